# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of a radix selection by one workgroup: sweep, count digits, narrow the prefix, gather.

The prefix of the k-th largest entry is narrowed 11 bits at a time by a histogram of the next bits
in shared memory, until few enough entries reach it. That takes one histogram for most rows and six
for any: then the prefix is one entry, and exactly k reach it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import indent

THREADS = 512
HELD = 32  # logits of a chunk that a thread keeps in registers
DIGIT, BINS = 11, 2048
GATHERED = 4096  # entries that shared memory holds; at least the largest k
SHARED = "#gpu.address_space<workgroup>"


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

CONSTANTS = f"""\
%c0 = arith.constant 0 : index
%c1 = arith.constant 1 : index
%c2 = arith.constant 2 : index
%k = arith.constant {{k}} : index
%k32 = arith.constant {{k}} : i32
%threads = arith.constant {THREADS} : index
%lanes = arith.constant {{lanes}} : index
%lanes_i32 = arith.constant {{lanes}} : i32
%last_lane = arith.constant {{lanes}} : i32
%bins = arith.constant {BINS} : index
%bin_mask = arith.constant {BINS - 1} : i64
%gathered = arith.constant {GATHERED} : i32
%zero = arith.constant 0 : i32
%one32 = arith.constant 1 : i32
%minus_one = arith.constant -1 : i32
%c21_i32 = arith.constant 21 : i32
%c31_i32 = arith.constant 31 : i32
%top_bit = arith.constant 0x80000000 : i32
%c32_i64 = arith.constant 32 : i64
%no_entry = arith.constant 0 : i64
// The smallest of a finite logit, column aside.
%least_entry = arith.constant 0x0080000000000000 : i64
%c9_i64 = arith.constant 9 : i64
%c11_i64 = arith.constant {DIGIT} : i64
%c53_i64 = arith.constant 53 : i64
%plus_zero = arith.constant 0.0 : f32
%minus_inf = arith.constant 0xFF800000 : f32
%thread = gpu.thread_id x
%lane = arith.remui %thread, %lanes : index
%wave = arith.divui %thread, %lanes : index
%wave32 = arith.index_cast %wave : index to i32
%lane_last = arith.subi %lanes, %c1 : index
%lane_last32 = arith.index_cast %lane_last : index to i32
%row = stream.dispatch.workgroup.id[0] : index
%counts = memref.alloc() : memref<{BINS}xi32, {SHARED}>
%buffer = memref.alloc() : memref<{GATHERED}xi64, {SHARED}>
%wave_sums = memref.alloc() : memref<{THREADS // 32}xi32, {SHARED}>
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
scf.if %is_first_thread {{{{
  memref.store %plus_zero, %zeros[%c0] : memref<1xf32, {SHARED}>
  memref.store %zero, %slots[%c0] : memref<2xi32, {SHARED}>
  memref.store %zero, %slots[%c1] : memref<2xi32, {SHARED}>
}}}}"""


def hold(source: Source) -> str:
    """%held#<i>: what this thread keeps of the source in registers, -inf past its end."""
    whole, part, ends = [], [], []
    for i in range(HELD):
        past = f"%h{i}past = arith.constant {i * THREADS} : index"
        whole.append(f"{past}\n%h{i}at = arith.addi %thread, %h{i}past : index")
        whole.append(named(source.load, f"h{i}"))
        part.append(f"""\
{past}
%h{i}any = arith.addi %thread, %h{i}past : index
// The last again rather than one past it.
%h{i}at = arith.minui %h{i}any, %held_last : index
{named(source.load, f"h{i}")}
%h{i}is_in = arith.cmpi ult, %h{i}any, %{source.name}_count : index
%h{i}value = arith.select %h{i}is_in, %h{i}raw, %minus_inf : f32""")
    kinds = ", ".join(["f32"] * HELD)
    ends = [", ".join(f"%h{i}{name}" for i in range(HELD)) for name in ("raw", "value")]
    return f"""\
%held_last = arith.subi %{source.name}_count, %c1 : index
%held_whole = arith.constant {HELD * THREADS} : index
%is_whole = arith.cmpi eq, %{source.name}_count, %held_whole : index
%held:{HELD} = scf.if %is_whole -> ({kinds}) {{
{indent(chr(10).join(whole), "  ")}
  scf.yield {ends[0]} : {kinds}
}} else {{
{indent(chr(10).join(part), "  ")}
  scf.yield {ends[1]} : {kinds}
}}"""


def sweep(source: Source, tag: str, use: Callable[[list[str]], str]) -> str:
    """Visit every entry once: those held, or whole blocks of memory and then what remains.

    All threads make the same number of steps, so `use` may exchange values within a subgroup. It is
    given the prefixes of the names of the entries at hand.
    """
    if source.held:
        names = [f"{tag}u{i}" for i in range(HELD)]
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
%{u}far = arith.constant {i * THREADS} : index
%{u}at = arith.addi %{tag}thread, %{u}far : index
%{u}is_in = arith.constant true
%{u}raw = arith.select %{u}is_in, %held#{i}, %held#{i} : f32
%{u}plus_zero = arith.select %{u}is_in, %{tag}plus_zero, %{tag}plus_zero : f32"""
            for i, u in enumerate(names)
        ]
        return "\n".join([*lines, use(names)])
    name, each = source.name, THREADS * source.unroll
    whole, tail = [f"{tag}u{i}" for i in range(source.unroll)], f"{tag}t"
    loads = "\n".join(
        f"%{u}past = arith.constant {i * THREADS} : index\n"
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


def first_pass(source: Source, lanes: int) -> str:
    """%digit_prefix, %digit_low, %digit_need, %digit_group from the top digit of all entries."""
    count = sweep(source, "top", lambda us: "\n".join(_count_top(source, u, lanes) for u in us))
    return f"""\
{_clear()}
{count}
gpu.barrier
// No finite logit has the top digit 0.
scf.if %is_first_thread {{
  memref.store %zero, %counts[%c0] : memref<{BINS}xi32, {SHARED}>
}}
gpu.barrier
{_find("top", "%k32", lanes)}
%digit_low = arith.addi %c53_i64, %no_entry : i64
%digit_prefix = arith.extui %top_bin : i32 to i64
%digit_need = arith.subi %k32, %top_above : i32
%digit_group = arith.addi %top_size, %zero : i32"""


def _count_top(source: Source, u: str, lanes: int) -> str:
    return f"""\
{named(source.top, u)}
%{u}bin32 = arith.select %{u}is_in, %{u}digit, %zero : i32
%{u}bin64 = arith.extui %{u}bin32 : i32 to i64
{_count(u, f"%{u}bin64", lanes)}"""


def narrow(source: Source, to: str, of: str, most: str, lanes: int) -> str:
    """Narrow the prefix until at most `most` entries reach it, or until it is one entry.

    Defines %<to>_prefix, %<to>_low (bits below the prefix), %<to>_need (entries still to be taken
    among those with the prefix) and %<to>_group (how many have it). Starts from what is called %<of>_... .
    """
    tag = f"{to}n"
    count = sweep(source, tag, lambda us: "\n".join(_count_in(source, u, tag, lanes) for u in us))
    state = "i64, i64, i32, i32"
    return f"""\
%{to}:4 = scf.while (%{tag}prefix = %{of}_prefix, %{tag}low = %{of}_low,
    %{tag}need = %{of}_need, %{tag}group = %{of}_group) : ({state}) -> ({state}) {{
  // With %k - %need above the prefix.
  %{tag}above = arith.subi %k32, %{tag}need : i32
  %{tag}reach = arith.addi %{tag}above, %{tag}group : i32
  %{tag}many = arith.cmpi sgt, %{tag}reach, {most} : i32
  scf.condition(%{tag}many) %{tag}prefix, %{tag}low, %{tag}need, %{tag}group : {state}
}} do {{
^bb0(%{tag}prefix: i64, %{tag}low: i64, %{tag}need: i32, %{tag}group: i32):
  // The last digit is 9 bits: 64 = 5 x 11 + 9.
  %{tag}is_last = arith.cmpi ult, %{tag}low, %c11_i64 : i64
  %{tag}width = arith.select %{tag}is_last, %c9_i64, %c11_i64 : i64
  %{tag}shift = arith.subi %{tag}low, %{tag}width : i64
{indent(_clear(), "  ")}
{indent(count, "  ")}
  gpu.barrier
{indent(_find(f"{tag}f", f"%{tag}need", lanes), "  ")}
  %{tag}high = arith.shli %{tag}prefix, %{tag}width : i64
  %{tag}bits = arith.extui %{tag}f_bin : i32 to i64
  %{tag}next = arith.ori %{tag}high, %{tag}bits : i64
  %{tag}left = arith.subi %{tag}need, %{tag}f_above : i32
  scf.yield %{tag}next, %{tag}shift, %{tag}left, %{tag}f_size : {state}
}}
%{to}_prefix = arith.addi %{to}#0, %no_entry : i64
%{to}_low = arith.addi %{to}#1, %no_entry : i64
%{to}_need = arith.addi %{to}#2, %zero : i32
%{to}_group = arith.addi %{to}#3, %zero : i32"""


def _count_in(source: Source, u: str, tag: str, lanes: int) -> str:
    return f"""\
{named(source.entry, u)}
%{u}shifted = arith.shrui %{u}entry, %{tag}shift : i64
%{u}head = arith.shrui %{u}shifted, %{tag}width : i64
%{u}has_prefix = arith.cmpi eq, %{u}head, %{tag}prefix : i64
%{u}is_entry = arith.cmpi ne, %{u}entry, %no_entry : i64
%{u}counted = arith.andi %{u}is_entry, %{u}is_in : i1
%{u}counts = arith.andi %{u}has_prefix, %{u}counted : i1
scf.if %{u}counts {{
  %{u}tail = arith.shli %{tag}prefix, %{tag}width : i64
  %{u}digit = arith.subi %{u}shifted, %{u}tail : i64
{indent(_count(u, f"%{u}digit", lanes), "  ")}
}}"""


def _count(u: str, digit: str, lanes: int) -> str:
    return f"""\
%{u}bin = llvm.getelementptr %counts_pointer[{digit}]
    : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, i32
{_atomic_add(f"{u}old", f"%{u}bin", "%one32", lanes)}"""


def _atomic_add(result: str, pointer: str, value: str, lanes: int) -> str:
    """An addition in shared memory that orders nothing but itself; memref's would fence."""
    scope = "workgroup" if lanes == 64 else "block"
    return f"""\
%{result} = llvm.atomicrmw add {pointer}, {value} syncscope("{scope}") monotonic
    : !llvm.ptr<3>, i32"""


def _clear() -> str:
    return f"""\
scf.for %bin = %thread to %bins step %threads {{
  memref.store %zero, %counts[%bin] : memref<{BINS}xi32, {SHARED}>
}}
gpu.barrier"""


def _find(tag: str, need: str, lanes: int) -> str:
    """%<tag>_bin of the need-th largest entry counted, %<tag>_above it, %<tag>_size of the bin.

    With fewer than `need` entries in all: bin 0, nothing above and the size of all.
    """
    per = BINS // THREADS
    lines, total = [], "%zero"
    for i in range(per):
        lines.append(f"""\
%{tag}back{i} = arith.constant {BINS - 1 - i} : index
%{tag}per{i} = arith.constant {per} : index
%{tag}skip{i} = arith.muli %thread, %{tag}per{i} : index
%{tag}at{i} = arith.subi %{tag}back{i}, %{tag}skip{i} : index
%{tag}count{i} = memref.load %counts[%{tag}at{i}] : memref<{BINS}xi32, {SHARED}>
%{tag}own{i} = arith.addi {total}, %{tag}count{i} : i32""")
        total = f"%{tag}own{i}"
    lines.append(_scan(tag, total, lanes))
    lines.append(f"""\
%{tag}fits = arith.cmpi sle, %{tag}total, {need} : i32
scf.if %{tag}fits {{
  scf.if %is_first_thread {{
    memref.store %zero, %digit_found[%c0] : memref<3xi32, {SHARED}>
    memref.store %zero, %digit_found[%c1] : memref<3xi32, {SHARED}>
    memref.store %{tag}total, %digit_found[%c2] : memref<3xi32, {SHARED}>
  }}
}} else {{""")
    above = f"%{tag}before"
    for i in range(per):
        lines.append(f"""\
  %{tag}reach{i} = arith.addi {above}, %{tag}count{i} : i32
  %{tag}below{i} = arith.cmpi slt, {above}, {need} : i32
  %{tag}reaches{i} = arith.cmpi sge, %{tag}reach{i}, {need} : i32
  %{tag}here{i} = arith.andi %{tag}below{i}, %{tag}reaches{i} : i1
  scf.if %{tag}here{i} {{
    %{tag}bin{i} = arith.index_cast %{tag}at{i} : index to i32
    memref.store %{tag}bin{i}, %digit_found[%c0] : memref<3xi32, {SHARED}>
    memref.store {above}, %digit_found[%c1] : memref<3xi32, {SHARED}>
    memref.store %{tag}count{i}, %digit_found[%c2] : memref<3xi32, {SHARED}>
  }}""")
        above = f"%{tag}reach{i}"
    lines.append(f"""\
}}
gpu.barrier
%{tag}_bin = memref.load %digit_found[%c0] : memref<3xi32, {SHARED}>
%{tag}_above = memref.load %digit_found[%c1] : memref<3xi32, {SHARED}>
%{tag}_size = memref.load %digit_found[%c2] : memref<3xi32, {SHARED}>""")
    return "\n".join(lines)


def _scan(tag: str, value: str, lanes: int) -> str:
    """%<tag>before: sum of the value over the threads before this one; %<tag>total: over all."""
    waves = THREADS // lanes
    lines = [
        _scan_wave(tag, value, lanes),
        f"""\
%{tag}is_end = arith.cmpi eq, %lane, %lane_last : index
scf.if %{tag}is_end {{
  memref.store %{tag}upto, %wave_sums[%wave] : memref<{THREADS // 32}xi32, {SHARED}>
}}
gpu.barrier""",
    ]
    lines.append(f"""\
%{tag}waves = arith.constant {waves} : index
%{tag}wave_last = arith.constant {waves - 1} : index
%{tag}wave_last32 = arith.constant {waves - 1} : i32
%{tag}is_wave = arith.cmpi ult, %lane, %{tag}waves : index
%{tag}of_wave = arith.minui %lane, %{tag}wave_last : index
%{tag}sum_any = memref.load %wave_sums[%{tag}of_wave] : memref<{THREADS // 32}xi32, {SHARED}>
%{tag}sum = arith.select %{tag}is_wave, %{tag}sum_any, %zero : i32
{_scan_wave(f"{tag}w", f"%{tag}sum", lanes)}
%{tag}total, %{tag}valid_total = gpu.shuffle idx %{tag}wupto, %{tag}wave_last32, %lanes_i32 : i32
%{tag}mine, %{tag}valid_mine = gpu.shuffle idx %{tag}sum, %wave32, %lanes_i32 : i32
%{tag}with_mine, %{tag}valid_with = gpu.shuffle idx %{tag}wupto, %wave32, %lanes_i32 : i32
%{tag}waves_before = arith.subi %{tag}with_mine, %{tag}mine : i32
%{tag}with_own = arith.addi %{tag}waves_before, %{tag}upto : i32
%{tag}before = arith.subi %{tag}with_own, {value} : i32""")
    return "\n".join(lines)


def _scan_wave(tag: str, value: str, lanes: int) -> str:
    """%<tag>upto: sum of the value over the lanes up to and with this one."""
    lines, upto, step = [], value, 1
    while step < lanes:
        lines.append(f"""\
%{tag}by{step} = arith.constant {step} : i32
%{tag}lower{step}, %{tag}valid{step} = gpu.shuffle up {upto}, %{tag}by{step}, %lanes_i32 : i32
%{tag}from{step} = arith.constant {step} : index
%{tag}has{step} = arith.cmpi uge, %lane, %{tag}from{step} : index
%{tag}add{step} = arith.select %{tag}has{step}, %{tag}lower{step}, %zero : i32
%{tag}upto{step} = arith.addi {upto}, %{tag}add{step} : i32""")
        upto, step = f"%{tag}upto{step}", 2 * step
    lines.append(f"%{tag}upto = arith.addi {upto}, %zero : i32")
    return "\n".join(lines)


def append(
    source: Source, to: str, counter: str, memory: str, kind: str, base: str, lanes: int
) -> str:
    """Write the entries from the prefix %<to>_... on to `memory`, from `base`, in any order.

    A subgroup takes slots from the counter for all entries that it has at hand.
    """

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
{_scan_wave(f"{u}s", f"%{u}own", lanes)}
%{u}is_end = arith.cmpi eq, %lane, %lane_last : index
%{u}base_of_end = scf.if %{u}is_end -> (i32) {{
{indent(_atomic_add(f"{u}old", counter, f"%{u}supto", lanes), "  ")}
  scf.yield %{u}old : i32
}} else {{
  scf.yield %zero : i32
}}
%{u}wave_base, %{u}valid = gpu.shuffle idx %{u}base_of_end, %lane_last32, %lanes_i32 : i32
%{u}lane_base = arith.subi %{u}supto, %{u}own : i32
%{u}slot32 = arith.addi %{u}wave_base, %{u}lane_base : i32
// One register of flags rather than a flag each, which the compiler would keep.
%{u}flags = llvm.inline_asm "", "{"=v,0" if lanes == 64 else "=r,0"}" {bits} : (i32) -> i32""")
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

    return f"""\
%{to}_least_any = arith.shli %{to}_prefix, %{to}_low : i64
%{to}_least = arith.maxui %{to}_least_any, %least_entry : i64
%{to}_least_low = arith.trunci %{to}_least : i64 to i32
%{to}_least_high = arith.shrui %{to}_least, %c32_i64 : i64
%{to}_least_key = arith.trunci %{to}_least_high : i64 to i32
// Back from the key to the logit.
%{to}_least_sign = arith.shrsi %{to}_least_key, %c31_i32 : i32
%{to}_least_off = arith.xori %{to}_least_sign, %minus_one : i32
%{to}_least_flip = arith.ori %{to}_least_off, %top_bit : i32
%{to}_least_bits = arith.xori %{to}_least_key, %{to}_least_flip : i32
%{to}_least_value = arith.bitcast %{to}_least_bits : i32 to f32
{_renamed_least(sweep(source, f"{to}{source.name[0]}", use), to)}"""


def _renamed_least(text: str, to: str) -> str:
    return re.sub(r"%least\b|%least_(low|value)\b", lambda m: f"%{to}_{m[0][1:]}", text)


def named(text: str, u: str) -> str:
    """The text with %$name as %<u>name."""
    return text.replace("%$", f"%{u}")
