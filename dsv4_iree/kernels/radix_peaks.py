# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A threshold that at least k of a tile's logits reach, from the largest of groups of them.

k groups whose largest reach it are k logits that reach it, and not many more do: so few logits are
counted in shared memory.
"""

from __future__ import annotations

from textwrap import indent

from dsv4_iree.kernels.radix_digits import clear, find
from dsv4_iree.kernels.radix_group import SHARED, Group, atomic_add, scope
from dsv4_iree.kernels.radix_steps import DIGIT, named, value_of

PEAKS = """\
{peaks}
{extremes}
{reduced}
%is_wave_first = arith.cmpi eq, %lane, %c0 : index
scf.if %is_wave_first {{
{most_key}
{least_key}
  %old_most = llvm.atomicrmw umax %range_pointer, %mkey syncscope("{scope}") monotonic
      : !llvm.ptr<3>, i32
  %old_least = llvm.atomicrmw umin %least_pointer, %lkey syncscope("{scope}") monotonic
      : !llvm.ptr<3>, i32
}}
{clear}
%peak_most = memref.load %peak_range[%c0] : memref<2xi32, {shared}>
%peak_least = memref.load %peak_range[%c1] : memref<2xi32, {shared}>
%peak_span = arith.subi %peak_most, %peak_least : i32
%peak_zeros = math.ctlz %peak_span : i32
%peak_rest = arith.constant {rest} : i32
%peak_shift_any = arith.subi %peak_rest, %peak_zeros : i32
%peak_shift = arith.maxsi %peak_shift_any, %zero : i32
{count}
gpu.barrier
{find}
%peaks_reach = arith.addi %kth_above, %kth_size : i32
%is_kth = arith.cmpi sge, %peaks_reach, %k32 : i32
%kth_over = arith.shli %kth_bin, %peak_shift : i32
%kth_any = arith.addi %kth_over, %peak_least : i32
// Of the least finite logit, where there are not k peaks.
%least_key = arith.constant 0x00800000 : i32
%kth_key = arith.select %is_kth, %kth_any, %least_key : i32
{kth_value}"""

RANGE = """\
%peak_range = memref.alloc() : memref<2xi32, {shared}>
%range_index = memref.extract_aligned_pointer_as_index %peak_range
    : memref<2xi32, {shared}> -> index
%range_i64 = arith.index_cast %range_index : index to i64
%range_pointer = llvm.inttoptr %range_i64 : i64 to !llvm.ptr<3>
%least_pointer = llvm.getelementptr %range_pointer[1] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i32
scf.if %is_first_thread {{
  memref.store %zero, %peak_range[%c0] : memref<2xi32, {shared}>
  memref.store %minus_one, %peak_range[%c1] : memref<2xi32, {shared}>
}}"""

KEY = """\
%$sum = arith.addf {value}, %plus_zero : f32
%$bits = arith.bitcast %$sum : f32 to i32
%$sign = arith.shrsi %$bits, %c31_i32 : i32
%$flip = arith.ori %$sign, %top_bit : i32
%$key = arith.xori %$bits, %$flip : i32"""

# NaN and -inf are not counted.
COUNT = """\
%$eligible = arith.cmpf ogt, {value}, %minus_inf : f32
scf.if %$eligible {{
{key}
  %$over = arith.subi %$key, %peak_least : i32
  %$digit = arith.shrui %$over, %peak_shift : i32
  %$digit64 = arith.extui %$digit : i32 to i64
  %$bin = llvm.getelementptr %counts_pointer[%$digit64]
      : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, i32
{add}
}}"""


def peak_range() -> str:
    """Shared memory for the range of the peaks; before the tiles."""
    return RANGE.format(shared=SHARED)


def threshold(k: int, group: Group) -> str:
    """%kth_value: at least k of the %held logits reach it, or else all that can be selected do."""
    groups = _groups(k, group)
    return PEAKS.format(
        shared=SHARED,
        scope=scope(group),
        peaks=_peaks(groups, group),
        extremes=_extremes(groups),
        reduced=_over_wave(group),
        most_key=_in(named(KEY, "m").format(value="%most_wave")),
        least_key=_in(named(KEY, "l").format(value="%least_wave")),
        clear=clear("peak", group),
        rest=32 - DIGIT,
        count="\n".join(_count(g, group) for g in range(groups)),
        find=find("kth", "%k32", group),
        kth_value=value_of("kth", "%kth_key"),
    )


def _groups(k: int, group: Group) -> int:
    """Groups of a tile per thread: twice as many as entries are wanted, or all logits alone."""
    per = max(1, 1 << (2 * k // group.threads - 1).bit_length())
    return per if per <= group.held // 4 else group.held


def _peaks(count: int, group: Group) -> str:
    """%peak<g>: the largest of the held logits g, g + count, ..., NaN aside."""
    lines = []
    for g in range(count):
        value = f"%held#{g}"
        for i in range(g + count, group.held, count):
            lines.append(f"%peak{g}_{i} = arith.maxnumf {value}, %held#{i} : f32")
            value = f"%peak{g}_{i}"
        lines.append(f"%peak{g} = arith.addf {value}, %plus_zero : f32")
    return "\n".join(lines)


def _extremes(count: int) -> str:
    """%most and %least of the thread's peaks that can be selected; -inf and inf if none can."""
    lines = ["%inf = arith.constant 0x7F800000 : f32"]
    most, least = "%minus_inf", "%inf"
    for g in range(count):
        lines.append(f"""\
%peak_ok{g} = arith.cmpf ogt, %peak{g}, %minus_inf : f32
%peak_or_inf{g} = arith.select %peak_ok{g}, %peak{g}, %inf : f32
%most{g} = arith.maxnumf {most}, %peak{g} : f32
%least{g} = arith.minnumf {least}, %peak_or_inf{g} : f32""")
        most, least = f"%most{g}", f"%least{g}"
    lines.append(f"""\
%most = arith.addf {most}, %plus_zero : f32
%least = arith.addf {least}, %plus_zero : f32""")
    return "\n".join(lines)


def _over_wave(group: Group) -> str:
    lines, step = [], 1
    most, least = "%most", "%least"
    while step < group.lanes:
        lines.append(f"""\
%peak_by{step} = arith.constant {step} : i32
%most_other{step}, %most_valid{step} = gpu.shuffle xor {most}, %peak_by{step}, %lanes_i32 : f32
%most_by{step} = arith.maxnumf {most}, %most_other{step} : f32
%least_other{step}, %least_valid{step} = gpu.shuffle xor {least}, %peak_by{step}, %lanes_i32 : f32
%least_by{step} = arith.minnumf {least}, %least_other{step} : f32""")
        most, least, step = f"%most_by{step}", f"%least_by{step}", 2 * step
    lines.append(f"""\
%most_wave = arith.addf {most}, %plus_zero : f32
%least_wave = arith.addf {least}, %plus_zero : f32""")
    return "\n".join(lines)


def _count(g: int, group: Group) -> str:
    u = f"p{g}"
    return named(COUNT, u).format(
        value=f"%peak{g}",
        key=_in(named(KEY, u).format(value=f"%peak{g}")),
        add=_in(atomic_add(f"{u}old", f"%{u}bin", "%one32", group)),
    )


def _in(text: str) -> str:
    return indent(text, "  ")
