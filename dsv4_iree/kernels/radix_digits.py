# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The prefix of the k-th largest entry, by one workgroup.

It is narrowed 11 bits at a time by a histogram of the next bits in shared memory, until few enough
entries reach it. That takes one histogram for most rows and six for any: then the prefix is one
entry, and exactly k reach it.
"""

from __future__ import annotations

from textwrap import indent

from dsv4_iree.kernels.radix_group import SHARED, Group, atomic_add, scan_wave
from dsv4_iree.kernels.radix_steps import BINS, Source, named, sweep


def first_pass(source: Source, group: Group) -> str:
    """%digit_prefix, %digit_low, %digit_need, %digit_group from the top digit of all entries."""
    count = sweep(
        source, "top", group, lambda us: "\n".join(_count_top(source, u, group) for u in us)
    )
    return f"""\
{clear("top", group)}
{count}
gpu.barrier
// No finite logit has the top digit 0.
scf.if %is_first_thread {{
  memref.store %zero, %counts[%c0] : memref<{BINS}xi32, {SHARED}>
}}
gpu.barrier
{find("top", "%k32", group)}
%digit_low = arith.addi %c53_i64, %no_entry : i64
%digit_prefix = arith.extui %top_bin : i32 to i64
%digit_need = arith.subi %k32, %top_above : i32
%digit_group = arith.addi %top_size, %zero : i32"""


def _count_top(source: Source, u: str, group: Group) -> str:
    """Count the top digit of the entry that is named %<u>..., in bin 0 if %<u>is_in is false."""
    return f"""\
{named(source.top, u)}
%{u}bin32 = arith.select %{u}is_in, %{u}digit, %zero : i32
%{u}bin64 = arith.extui %{u}bin32 : i32 to i64
{_count(u, f"%{u}bin64", group)}"""


def unknown(of: str, count: str, low: str) -> str:
    """%<of>_...: a search among %<count> (i32) entries of %<low> bits, of which none is known."""
    return f"""\
%{of}_prefix = arith.addi %no_entry, %no_entry : i64
%{of}_low = arith.addi {low}, %no_entry : i64
%{of}_need = arith.addi %k32, %zero : i32
%{of}_group = arith.addi %{count}, %zero : i32"""


def narrow(source: Source, to: str, of: str, most: str, group: Group) -> str:
    """Narrow the prefix until at most `most` entries reach it, or until it is one entry.

    Defines %<to>_prefix, %<to>_low (bits below the prefix), %<to>_need (entries still to be taken
    among those with the prefix) and %<to>_group (how many have it). Starts
    from what is called %<of>_... .
    """
    tag = f"{to}n"
    count = sweep(
        source, tag, group, lambda us: "\n".join(_count_in(source, u, tag, group) for u in us)
    )
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
  // The last digit may have fewer.
  %{tag}width = arith.minui %{tag}low, %c11_i64 : i64
  %{tag}shift = arith.subi %{tag}low, %{tag}width : i64
{indent(clear(tag, group), "  ")}
{indent(count, "  ")}
  gpu.barrier
{indent(find(f"{tag}f", f"%{tag}need", group), "  ")}
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


def _count_in(source: Source, u: str, tag: str, group: Group) -> str:
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
{indent(_count(u, f"%{u}digit", group), "  ")}
}}"""


def _count(u: str, digit: str, group: Group) -> str:
    return f"""\
%{u}bin = llvm.getelementptr %counts_pointer[{digit}]
    : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, i32
{atomic_add(f"{u}old", f"%{u}bin", "%one32", group)}"""


def clear(tag: str, group: Group) -> str:
    """No counts; then a barrier."""
    if group.threads >= 512:  # a few steps of a loop, and no registers for their addresses
        return f"""\
scf.for %bin = %thread to %bins step %threads {{
  memref.store %zero, %counts[%bin] : memref<{BINS}xi32, {SHARED}>
}}
gpu.barrier"""
    lines = [
        f"""\
%{tag}far_bin{i} = arith.constant {i * group.threads} : index
%{tag}own_bin{i} = arith.addi %thread, %{tag}far_bin{i} : index
memref.store %zero, %counts[%{tag}own_bin{i}] : memref<{BINS}xi32, {SHARED}>"""
        for i in range(BINS // group.threads)
    ]
    return "\n".join([*lines, "gpu.barrier"])


def bins_of_thread(tag: str, group: Group) -> str:
    """%<tag>bin<i>: counts of this thread's bins, from the largest on, at %<tag>bin_at<i>."""
    per = BINS // group.threads
    wide = min(per, 4)
    lines = [
        f"""\
%{tag}bins_before = arith.constant {BINS - per} : index
%{tag}bins_each = arith.constant {per} : index
%{tag}bins_skipped = arith.muli %thread, %{tag}bins_each : index
%{tag}bins_first = arith.subi %{tag}bins_before, %{tag}bins_skipped : index"""
    ]
    for at in range(0, per, wide):
        lines.append(f"""\
%{tag}bins_past{at} = arith.constant {at} : index
%{tag}bins_at{at} = arith.addi %{tag}bins_first, %{tag}bins_past{at} : index
%{tag}bins{at} = "vector.load"(%counts, %{tag}bins_at{at}) <{{alignment = {4 * wide} : i64}}>
    : (memref<{BINS}xi32, {SHARED}>, index) -> vector<{wide}xi32>""")
    for i in range(per):
        at = per - 1 - i
        lines.append(f"""\
%{tag}bin_past{i} = arith.constant {at} : index
%{tag}bin_at{i} = arith.addi %{tag}bins_first, %{tag}bin_past{i} : index
%{tag}bin{i} = vector.extract %{tag}bins{at // wide * wide}[{at % wide}]
    : i32 from vector<{wide}xi32>""")
    return "\n".join(lines)


def find(tag: str, need: str, group: Group) -> str:
    """%<tag>_bin of the need-th largest entry counted, %<tag>_above it, %<tag>_size of the bin.

    With fewer than `need` entries in all: bin 0, nothing above and the size of all.
    """
    per = BINS // group.threads
    lines, total = [bins_of_thread(tag, group)], "%zero"
    for i in range(per):
        lines.append(f"%{tag}own{i} = arith.addi {total}, %{tag}bin{i} : i32")
        total = f"%{tag}own{i}"
    lines.append(scan(tag, total, group))
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
    # One thread's bins are those.
    lines.append(f"""\
  %{tag}upto_all = arith.addi {above}, {total} : i32
  %{tag}below_all = arith.cmpi slt, {above}, {need} : i32
  %{tag}reaches_all = arith.cmpi sge, %{tag}upto_all, {need} : i32
  %{tag}here_all = arith.andi %{tag}below_all, %{tag}reaches_all : i1
  scf.if %{tag}here_all {{""")
    for i in range(per):
        lines.append(f"""\
  %{tag}reach{i} = arith.addi {above}, %{tag}bin{i} : i32
  %{tag}below{i} = arith.cmpi slt, {above}, {need} : i32
  %{tag}reaches{i} = arith.cmpi sge, %{tag}reach{i}, {need} : i32
  %{tag}here{i} = arith.andi %{tag}below{i}, %{tag}reaches{i} : i1
  scf.if %{tag}here{i} {{
    %{tag}found{i} = arith.index_cast %{tag}bin_at{i} : index to i32
    memref.store %{tag}found{i}, %digit_found[%c0] : memref<3xi32, {SHARED}>
    memref.store {above}, %digit_found[%c1] : memref<3xi32, {SHARED}>
    memref.store %{tag}bin{i}, %digit_found[%c2] : memref<3xi32, {SHARED}>
  }}""")
        above = f"%{tag}reach{i}"
    lines.append(f"""\
  }}
}}
gpu.barrier
%{tag}_bin = memref.load %digit_found[%c0] : memref<3xi32, {SHARED}>
%{tag}_above = memref.load %digit_found[%c1] : memref<3xi32, {SHARED}>
%{tag}_size = memref.load %digit_found[%c2] : memref<3xi32, {SHARED}>""")
    return "\n".join(lines)


def scan(tag: str, value: str, group: Group) -> str:
    """%<tag>before: sum of the value over the threads before this one; %<tag>total: over all."""
    waves = group.threads // group.lanes
    lines = [
        scan_wave(tag, value, group),
        f"""\
%{tag}is_end = arith.cmpi eq, %lane, %lane_last : index
scf.if %{tag}is_end {{
  memref.store %{tag}upto, %wave_sums[%wave] : memref<{waves}xi32, {SHARED}>
}}
gpu.barrier""",
    ]
    lines.append(f"""\
%{tag}waves = arith.constant {waves} : index
%{tag}wave_last = arith.constant {waves - 1} : index
%{tag}wave_last32 = arith.constant {waves - 1} : i32
%{tag}is_wave = arith.cmpi ult, %lane, %{tag}waves : index
%{tag}of_wave = arith.minui %lane, %{tag}wave_last : index
%{tag}sum_any = memref.load %wave_sums[%{tag}of_wave] : memref<{waves}xi32, {SHARED}>
%{tag}sum = arith.select %{tag}is_wave, %{tag}sum_any, %zero : i32
{scan_wave(f"{tag}w", f"%{tag}sum", group)}
%{tag}total, %{tag}valid_total = gpu.shuffle idx %{tag}wupto, %{tag}wave_last32, %lanes_i32 : i32
%{tag}mine, %{tag}valid_mine = gpu.shuffle idx %{tag}sum, %wave32, %lanes_i32 : i32
%{tag}with_mine, %{tag}valid_with = gpu.shuffle idx %{tag}wupto, %wave32, %lanes_i32 : i32
%{tag}waves_before = arith.subi %{tag}with_mine, %{tag}mine : i32
%{tag}with_own = arith.addi %{tag}waves_before, %{tag}upto : i32
%{tag}before = arith.subi %{tag}with_own, {value} : i32""")
    return "\n".join(lines)
