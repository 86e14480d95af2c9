# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bins into which entries fall in their order: by the highest bits that differ, or by value.

Keys order like logits but are no measure of them: between -1 and 1 there are as many as beyond, so
of logits on both sides of zero most would share few bins. Those that differ by more than a factor
of 2^16 are shared out by what they are instead.
"""

from __future__ import annotations

from dsv4_iree.kernels.radix_steps import BINS, DIGIT, shared_entries, value_of

CONSTANTS = """\
%bins_floor_high = arith.shrui %{of}_floor, %c32_i64 : i64
%bins_floor_key = arith.trunci %bins_floor_high : i64 to i32
%bins_range = arith.subi %{of}_top, %bins_floor_key : i32
{least}
{top}
%bins_extent = arith.subf %top_value, %least_value : f32
%bins_last = arith.constant {last} : f32
%bins_scale = arith.divf %bins_last, %bins_extent : f32
%bins_inf = arith.constant 0x7F800000 : f32
%bins_wide = arith.constant {wide} : i32
%bins_are_wide = arith.cmpi ugt, %bins_range, %bins_wide : i32
%bins_end = arith.cmpf olt, %bins_extent, %bins_inf : f32
%bins_begin = arith.cmpf olt, %bins_scale, %bins_inf : f32
%bins_can = arith.andi %bins_end, %bins_begin : i1
%bins_by_value = arith.andi %bins_are_wide, %bins_can : i1"""

# One function of the logit at every place, and one that never falls: so bins are in order.
DIGIT_OF = """\
%entry = memref.load %buffer[%slot] : {buffer}
%digit = scf.if %order_by_value -> (i64) {{
  %entry_high = arith.shrui %entry, %c32_i64 : i64
  %entry_key = arith.trunci %entry_high : i64 to i32
{value}
  %over = arith.subf %entry_value, %least_value : f32
  %scaled = arith.mulf %over, %bins_scale : f32
  %number = arith.fptoui %scaled : f32 to i32
  %last_bin = arith.constant {last} : i32
  %bin_number = arith.minui %number, %last_bin : i32
  %by_value = arith.extui %bin_number : i32 to i64
  scf.yield %by_value : i64
}} else {{
  %above_floor = arith.subi %entry, %order_floor : i64
  %by_bits = arith.shrui %above_floor, %order_shift : i64
  scf.yield %by_bits : i64
}}"""

SHIFT = """\
%order_digits = arith.constant {digit} : i64
%order_shift_any = arith.subi %order_bits, %order_digits : i64
%order_shift = arith.maxsi %order_shift_any, %no_entry : i64"""


def by_value(of: str) -> str:
    """%bins_by_value, for entries that `radix_steps.span` says of, and what `digit` needs then."""
    return CONSTANTS.format(
        of=of,
        least=value_of("least", "%bins_floor_key"),
        top=value_of("top", f"%{of}_top"),
        last=float(BINS - 1),
        wide=1 << 27,
    )


def shift() -> str:
    """%order_shift, for entries that differ in %order_bits alone."""
    return SHIFT.format(digit=DIGIT)


def digit(room: int) -> str:
    """%entry in %slot, and %digit, its bin: by value if %order_by_value."""
    value = value_of("entry", "%entry_key").replace("\n", "\n  ")
    return DIGIT_OF.format(buffer=shared_entries(room), value=f"  {value}", last=BINS - 1)
