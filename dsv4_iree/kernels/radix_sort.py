# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bitonic sort by one workgroup, largest first.

A thread holds some neighbours in registers. Elements that are compared lie in one thread, in one
subgroup or in two; so most steps exchange by shuffles and only the widest by shared memory.
"""

from __future__ import annotations

from dsv4_iree.kernels.radix_steps import Group, shared_entries


def size(k: int, group: Group) -> int:
    """Entries that are sorted for the first k: a power of two that every thread has a part in."""
    return max(group.threads, 1 << (k - 1).bit_length())


def sort(entries: int, group: Group, room: int) -> str:
    """%sorted<e>: entry number thread * per + e of the first %found_count in %found, then 0s.

    %found holds `room` >= `entries`.

    Entries below %exact_least are left out. They are sorted by the bits %order_bits, and cut to
    them.
    """
    per = entries // group.threads
    lines, names = [], [f"%unsorted{e}" for e in range(per)]
    for e, name in enumerate(names):
        lines.append(f"""\
%far{e} = arith.constant {e * group.threads} : index
%take{e} = arith.addi %far{e}, %thread : index
%taken{e} = memref.load %found[%take{e}] : {shared_entries(room)}
%is_within{e} = arith.cmpi ult, %take{e}, %found_count : index
%is_best{e} = arith.cmpi uge, %taken{e}, %exact_least : i64
%is_there{e} = arith.andi %is_within{e}, %is_best{e} : i1
%ordered{e} = arith.andi %taken{e}, %order_bits : i64
{name} = arith.select %is_there{e}, %ordered{e}, %no_entry : i64""")
    lines.append("gpu.barrier")
    run = 2
    while run <= entries:
        apart = run // 2
        while apart:
            text, names = _step(names, run, apart, group, room)
            lines.append(text)
            apart //= 2
        run *= 2
    lines += [f"%sorted{e} = arith.addi {name}, %no_entry : i64" for e, name in enumerate(names)]
    return "\n".join(lines)


def _step(names: list[str], run: int, apart: int, group: Group, room: int) -> tuple[str, list[str]]:
    """Compare entries `apart` from each other; runs of `run` fall and rise in turn."""
    per, tag = len(names), f"s{run}_{apart}"
    lines = []
    if run >= per:
        lines.append(_bit_is_clear(f"{tag}falls", run // per))
    if apart < per:
        return _within_thread(names, run, apart, tag, lines)
    lines.append(_bit_is_clear(f"{tag}is_first", apart // per))
    # The first of a pair keeps the larger where runs fall, the second where they rise.
    lines.append(f"%{tag}larger = arith.cmpi eq, %{tag}falls, %{tag}is_first : i1")
    lines.append(_exchange(names, apart // per, tag, group, room))
    for e, name in enumerate(names):
        lines.append(f"""\
%{tag}is_larger{e} = arith.cmpi ugt, {name}, %{tag}other{e} : i64
%{tag}stays{e} = arith.cmpi eq, %{tag}is_larger{e}, %{tag}larger : i1
%{tag}e{e} = arith.select %{tag}stays{e}, {name}, %{tag}other{e} : i64""")
    return "\n".join(lines), [f"%{tag}e{e}" for e in range(per)]


def _within_thread(
    names: list[str], run: int, apart: int, tag: str, lines: list[str]
) -> tuple[str, list[str]]:
    new = list(names)
    for e in range(len(names)):
        if e & apart:
            continue
        one, other = names[e], names[e + apart]
        falls = f"%{tag}falls"
        if run < len(names):
            falls = f"%{tag}falls{e}"
            lines.append(f"{falls} = arith.constant {'false' if e & run else 'true'}")
        new[e], new[e + apart] = f"%{tag}e{e}", f"%{tag}e{e + apart}"
        lines.append(f"""\
%{tag}is_larger{e} = arith.cmpi ugt, {one}, {other} : i64
%{tag}stays{e} = arith.cmpi eq, %{tag}is_larger{e}, {falls} : i1
{new[e]} = arith.select %{tag}stays{e}, {one}, {other} : i64
{new[e + apart]} = arith.select %{tag}stays{e}, {other}, {one} : i64""")
    return "\n".join(lines), new


def _bit_is_clear(name: str, bit: int) -> str:
    """%<name>: whether the thread's number has the bit clear."""
    return f"""\
%{name}_bit = arith.constant {bit} : index
%{name}_has = arith.andi %thread, %{name}_bit : index
%{name} = arith.cmpi eq, %{name}_has, %c0 : index"""


def _exchange(names: list[str], threads: int, tag: str, group: Group, room: int) -> str:
    """%<tag>other<e>: what the thread whose number differs in that bit has in place of each."""
    lines, kind = [], shared_entries(room)
    if threads < group.lanes:
        lines.append(f"%{tag}by = arith.constant {threads} : i32")
        for e, name in enumerate(names):
            lines.append(f"""\
%{tag}lo{e} = arith.trunci {name} : i64 to i32
%{tag}shift{e} = arith.shrui {name}, %c32_i64 : i64
%{tag}hi{e} = arith.trunci %{tag}shift{e} : i64 to i32
%{tag}olo{e}, %{tag}vlo{e} = gpu.shuffle xor %{tag}lo{e}, %{tag}by, %lanes_i32 : i32
%{tag}ohi{e}, %{tag}vhi{e} = gpu.shuffle xor %{tag}hi{e}, %{tag}by, %lanes_i32 : i32
%{tag}olo64{e} = arith.extui %{tag}olo{e} : i32 to i64
%{tag}ohi64{e} = arith.extui %{tag}ohi{e} : i32 to i64
%{tag}high{e} = arith.shli %{tag}ohi64{e}, %c32_i64 : i64
%{tag}other{e} = arith.ori %{tag}high{e}, %{tag}olo64{e} : i64""")
        return "\n".join(lines)
    lines.append(f"""\
%{tag}by = arith.constant {threads} : index
%{tag}peer = arith.xori %thread, %{tag}by : index""")
    for e, name in enumerate(names):
        lines.append(f"""\
%{tag}mine{e} = arith.addi %far{e}, %thread : index
memref.store {name}, %found[%{tag}mine{e}] : {kind}""")
    lines.append("gpu.barrier")
    for e in range(len(names)):
        lines.append(f"""\
%{tag}theirs{e} = arith.addi %far{e}, %{tag}peer : index
%{tag}other{e} = memref.load %found[%{tag}theirs{e}] : {kind}""")
    return "\n".join([*lines, "gpu.barrier"])
