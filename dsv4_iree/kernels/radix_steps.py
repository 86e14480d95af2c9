# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of a radix selection by one workgroup: visit entries, and gather those that reach a prefix.

How the prefix is found is in `radix_digits`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from textwrap import indent

from dsv4_iree.kernels.mma_common import shared
from dsv4_iree.kernels.radix_group import SHARED, Group, atomic_add, scan_wave

GATHERED = 4096  # entries that shared memory holds; at least the largest k
DIGIT, BINS = 11, 2048


@dataclass(frozen=True)
class Source:
    """Entries that a sweep visits: number 0 <= %$at < %<name>_count.

    Args:
        load: text that reads %$raw.
        entry: text that makes %$entry (i64) of it.
        top: text that makes its highest digit %$digit (i32), 0 if it cannot be selected.
        reaches: text that makes %$reaches: whether it counts and is not below %least.
        unroll: entries a thread loads before it looks at the first of them.
        held: whether they are in registers instead, as `hold` leaves them.
    """

    name: str
    load: str
    entry: str
    top: str
    reaches: str
    unroll: int = 1
    held: bool = False


def streams(k: int) -> bool:
    """Whether a workgroup may take more than one tile: k of those before and k more have room."""
    return 2 * k <= GATHERED


def loose(k: int) -> int:
    """Entries that may be left where k are wanted, to save the last steps of a search."""
    return min(k + max(k // 8, 64), GATHERED - k if streams(k) else GATHERED)


def shared_entries(count: int) -> str:
    """Type of shared memory that holds so many entries."""
    return f"memref<{count}xi64, {SHARED}>"


def entries(name: str, load: str, unroll: int) -> Source:
    """A source of entries in memory."""
    return Source(
        name,
        load,
        "%$entry = arith.addi %$raw, %no_entry : i64",
        """\
%$digit64 = arith.shrui %$raw, %c53_i64 : i64
%$digit = arith.trunci %$digit64 : i64 to i32""",
        "%$reaches = arith.cmpi uge, %$raw, %least : i64",
        unroll,
    )


BUFFER = entries("buffer", f"%$raw = memref.load %buffer[%$at] : {shared_entries(GATHERED)}", 2)


def buffer_above(least: str) -> Source:
    """The buffer's entries, less one that none is below: fewer bits differ."""
    return replace(BUFFER, entry=f"%$entry = arith.subi %$raw, {least} : i64")


def prologue(k: int, group: Group, room: int = GATHERED) -> str:
    """Constants, the thread's place, and shared memory with a buffer of `room` entries."""
    return f"""\
%c0 = arith.constant 0 : index
%c1 = arith.constant 1 : index
%c2 = arith.constant 2 : index
%k = arith.constant {k} : index
%k32 = arith.constant {k} : i32
%threads = arith.constant {group.threads} : index
%lanes = arith.constant {group.lanes} : index
%lanes_i32 = arith.constant {group.lanes} : i32
%bins = arith.constant {BINS} : index
%bin_mask = arith.constant {BINS - 1} : i64
%gathered = arith.constant {room} : i32
%true = arith.constant true
%zero = arith.constant 0 : i32
%one32 = arith.constant 1 : i32
%minus_one = arith.constant -1 : i32
%c21_i32 = arith.constant 21 : i32
%c31_i32 = arith.constant 31 : i32
%c32_i32 = arith.constant 32 : i32
%top_bit = arith.constant 0x80000000 : i32
%c32_i64 = arith.constant 32 : i64
%no_entry = arith.constant 0 : i64
// The smallest of a finite logit, column aside.
%least_entry = arith.constant 0x0080000000000000 : i64
%c11_i64 = arith.constant {DIGIT} : i64
%c53_i64 = arith.constant 53 : i64
%c64_i64 = arith.constant 64 : i64
%plus_zero = arith.constant 0.0 : f32
%minus_inf = arith.constant 0xFF800000 : f32
%thread = gpu.thread_id x
%lane = arith.remui %thread, %lanes : index
%wave = arith.divui %thread, %lanes : index
%wave32 = arith.index_cast %wave : index to i32
%lane_last = arith.subi %lanes, %c1 : index
%lane_last32 = arith.index_cast %lane_last : index to i32
%row = stream.dispatch.workgroup.id[0] : index
{shared("%counts", f"memref<{BINS}xi32, {SHARED}>")}
%buffer = memref.alloc() : {shared_entries(room)}
%wave_sums = memref.alloc() : memref<{group.threads // group.lanes}xi32, {SHARED}>
%digit_found = memref.alloc() : memref<3xi32, {SHARED}>
%zeros = memref.alloc() : memref<1xf32, {SHARED}>
%slots = memref.alloc() : memref<2xi32, {SHARED}>
%counts_index = memref.extract_aligned_pointer_as_index %counts
    : memref<{BINS}xi32, {SHARED}> -> index
%counts_i64 = arith.index_cast %counts_index : index to i64
%counts_pointer = llvm.inttoptr %counts_i64 : i64 to !llvm.ptr<3>
%slots_index = memref.extract_aligned_pointer_as_index %slots
    : memref<2xi32, {SHARED}> -> index
%slots_i64 = arith.index_cast %slots_index : index to i64
%slot0_pointer = llvm.inttoptr %slots_i64 : i64 to !llvm.ptr<3>
%slot1_pointer = llvm.getelementptr %slot0_pointer[1] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i32
%is_first_thread = arith.cmpi eq, %thread, %c0 : index
scf.if %is_first_thread {{
  memref.store %plus_zero, %zeros[%c0] : memref<1xf32, {SHARED}>
  memref.store %zero, %slots[%c0] : memref<2xi32, {SHARED}>
  memref.store %zero, %slots[%c1] : memref<2xi32, {SHARED}>
}}"""


def hold(source: Source, group: Group) -> str:
    """%held#<i>: what this thread keeps of the source in registers, -inf past its end."""
    whole, part = [], []
    for i in range(group.held):
        past = i * group.threads
        # Constants past one address.
        load = named(source.load, f"h{i}").replace("%origin", "%held_origin")
        load = f"%h{i}at = arith.constant {past} : index\n{load}"
        whole.append(load)
        part.append(f"""\
%h{i}past = arith.constant {past} : i32
%h{i}is_in = arith.cmpi sgt, %held_left, %h{i}past : i32
%h{i}value = scf.if %h{i}is_in -> (f32) {{
{indent(load, "  ")}
  scf.yield %h{i}raw : f32
}} else {{
  scf.yield %minus_inf : f32
}}""")
    kinds = ", ".join(["f32"] * group.held)
    ends = [", ".join(f"%h{i}{name}" for i in range(group.held)) for name in ("raw", "value")]
    return f"""\
%held_origin = arith.addi %origin, %thread : index
%held_left_any = arith.subi %{source.name}_count, %thread : index
%held_left = arith.index_cast %held_left_any : index to i32
%held_whole = arith.constant {group.held * group.threads} : index
%is_whole = arith.cmpi eq, %{source.name}_count, %held_whole : index
%held:{group.held} = scf.if %is_whole -> ({kinds}) {{
{indent(chr(10).join(whole), "  ")}
  scf.yield {ends[0]} : {kinds}
}} else {{
{indent(chr(10).join(part), "  ")}
  scf.yield {ends[1]} : {kinds}
}}"""


def sweep(source: Source, tag: str, group: Group, use: Callable[[list[str]], str]) -> str:
    """Visit every entry once: those held, or whole blocks of memory and then what remains.

    All threads make the same number of steps, so `use` may exchange values within a subgroup. It is
    given the prefixes of the names of the entries at hand.
    """
    if source.held:
        names = [f"{tag}u{i}" for i in range(group.held)]
        # A compiler that knew these zeros would save every key from one sweep to the next, in
        # registers that it does not have.
        lines = [
            f"""\
%{tag}plus_zero = memref.load %zeros[%c0] : memref<1xf32, {SHARED}>
%{tag}no_bits = arith.bitcast %{tag}plus_zero : f32 to i32
%{tag}known = arith.index_cast %thread : index to i32
%{tag}thread32 = arith.ori %{tag}known, %{tag}no_bits : i32
%{tag}thread = arith.index_castui %{tag}thread32 : i32 to index"""
        ]
        lines += [
            f"""\
%{u}far = arith.constant {i * group.threads} : index
%{u}at = arith.addi %{tag}thread, %{u}far : index
%{u}is_in = arith.constant true
%{u}raw = arith.select %{u}is_in, %held#{i}, %held#{i} : f32
%{u}plus_zero = arith.select %{u}is_in, %{tag}plus_zero, %{tag}plus_zero : f32"""
            for i, u in enumerate(names)
        ]
        return "\n".join([*lines, use(names)])
    name, each = source.name, group.threads * source.unroll
    whole, tail = [f"{tag}u{i}" for i in range(source.unroll)], f"{tag}t"
    loads = "\n".join(
        f"%{u}past = arith.constant {i * group.threads} : index\n"
        f"%{u}at = arith.addi %{tag}mine, %{u}past : index\n"
        f"%{u}is_in = arith.constant true\n" + named(source.load, u)
        for i, u in enumerate(whole)
    )
    return f"""\
%{tag}each = arith.constant {each} : index
%{tag}rest = arith.remui %{name}_count, %{tag}each : index
%{tag}whole = arith.subi %{name}_count, %{tag}rest : index
%{tag}last = arith.subi %{name}_count, %c1 : index
scf.for %{tag}block = %c0 to %{tag}whole step %{tag}each {{
  %{tag}mine = arith.addi %{tag}block, %thread : index
{indent(loads, "  ")}
{indent(use(whole), "  ")}
}}
scf.for %{tag}block = %{tag}whole to %{name}_count step %threads {{
  %{tail}any = arith.addi %{tag}block, %thread : index
  %{tail}is_in = arith.cmpi ult, %{tail}any, %{name}_count : index
  // The last entry again rather than one past it.
  %{tail}at = arith.minui %{tail}any, %{tag}last : index
{indent(named(source.load, tail), "  ")}
{indent(use([tail]), "  ")}
}}"""


def append(
    source: Source,
    to: str,
    counter: str,
    memory: str,
    kind: str,
    base: str,
    group: Group,
    above: str = "%no_entry",
) -> str:
    """Write the entries from the prefix %<to>_... on to `memory`, from `base`, in any order.

    The prefix is one of entries less `above`.

    A subgroup takes slots from the counter for all entries that it has at hand.
    """

    same = "=v,0" if group.lanes == 64 else "=r,0"

    def use(us: list[str]) -> str:
        lines, bits = [], "%zero"
        for i, u in enumerate(us):
            lines.append(f"""\
{named(source.reaches, u)}
%{u}taken = arith.andi %{u}reaches, %{u}is_in : i1
%{u}one = arith.constant {1 << i} : i32
%{u}bit = arith.select %{u}taken, %{u}one, %zero : i32
%{u}mask = arith.ori {bits}, %{u}bit : i32""")
            bits = f"%{u}mask"
        u = us[0]
        lines.append(f"""\
%{u}own = math.ctpop {bits} : i32
{scan_wave(f"{u}s", f"%{u}own", group)}
%{u}is_end = arith.cmpi eq, %lane, %lane_last : index
%{u}base_of_end = scf.if %{u}is_end -> (i32) {{
{indent(atomic_add(f"{u}old", counter, f"%{u}supto", group), "  ")}
  scf.yield %{u}old : i32
}} else {{
  scf.yield %zero : i32
}}
%{u}wave_base, %{u}valid = gpu.shuffle idx %{u}base_of_end, %lane_last32, %lanes_i32 : i32
%{u}lane_base = arith.subi %{u}supto, %{u}own : i32
%{u}slot32 = arith.addi %{u}wave_base, %{u}lane_base : i32
// One register of flags rather than a flag each, which the compiler would keep.
%{u}flags = llvm.inline_asm "", "{same}" {bits} : (i32) -> i32""")
        slot = f"%{u}slot32"
        for v in us:
            lines.append(f"""\
%{v}flag = arith.andi %{u}flags, %{v}one : i32
%{v}writes = arith.cmpi ne, %{v}flag, %zero : i32
scf.if %{v}writes {{
{indent(named(source.entry, v), "  ")}
  %{v}slot = arith.index_cast {slot} : i32 to index
  %{v}place = arith.addi {base}, %{v}slot : index
  memref.store %{v}entry, {memory}[%{v}place] : {kind}
}}
%{v}wrote = arith.extui %{v}writes : i1 to i32
%{v}next = arith.addi {slot}, %{v}wrote : i32""")
            slot = f"%{v}next"
        return "\n".join(lines)

    swept = sweep(source, f"{to}{source.name[0]}", group, use)
    return f"{least(to, above)}\n{_renamed_least(swept, to)}"


def least(to: str, above: str = "%no_entry") -> str:
    """%<to>_least: the smallest entry with the prefix, and %<to>_least_value: its logit."""
    return f"""\
// Where no bit is known yet, the prefix is 0 and so is what a smaller shift makes of it.
%{to}_low_most = arith.constant 63 : i64
%{to}_low_some = arith.minui %{to}_low, %{to}_low_most : i64
%{to}_least_any = arith.shli %{to}_prefix, %{to}_low_some : i64
%{to}_least_sum = arith.addi %{to}_least_any, {above} : i64
%{to}_least = arith.maxui %{to}_least_sum, %least_entry : i64
%{to}_least_low = arith.trunci %{to}_least : i64 to i32
%{to}_least_high = arith.shrui %{to}_least, %c32_i64 : i64
%{to}_least_key = arith.trunci %{to}_least_high : i64 to i32
// Back from the key to the logit.
{value_of(f"{to}_least", f"%{to}_least_key")}"""


VALUE = """\
%{name}_sign = arith.shrsi {key}, %c31_i32 : i32
%{name}_off = arith.xori %{name}_sign, %minus_one : i32
%{name}_flip = arith.ori %{name}_off, %top_bit : i32
%{name}_bits = arith.xori {key}, %{name}_flip : i32
%{name}_value = arith.bitcast %{name}_bits : i32 to f32"""


def value_of(name: str, key: str) -> str:
    """%<name>_value: the logit of a key, i32."""
    return VALUE.format(name=name, key=key)


SPAN = """\
%{of}_range = arith.subi {top}, {least} : i32
%{of}_zeros32 = math.ctlz %{of}_range : i32
%{of}_zeros = arith.extui %{of}_zeros32 : i32 to i64
%{of}_bits = arith.subi %c64_i64, %{of}_zeros : i64
%{of}_floor_key = arith.extui {least} : i32 to i64
%{of}_floor = arith.shli %{of}_floor_key, %c32_i64 : i64
%{of}_top = arith.addi {top}, %zero : i32"""


def span(of: str, top: str, least: str) -> str:
    """%<of>_bits: in which entries with keys `least` to %<of>_top differ from %<of>_floor."""
    return SPAN.format(of=of, top=top, least=least)


def _renamed_least(text: str, to: str) -> str:
    return re.sub(r"%least\b|%least_(low|value)\b", lambda m: f"%{to}_{m[0][1:]}", text)


def named(text: str, u: str) -> str:
    """The text with %$name as %<u>name."""
    return text.replace("%$", f"%{u}")
