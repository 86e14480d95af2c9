# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A row's best entries while its logits come by: what a workgroup of `stream_kernel` keeps of them.

Entries are those of `radix_kernel`. They gather in a buffer in shared memory. Where it may run over
in the next round of blocks, its best k, and a few more where that saves a search, move to its
front, and the least logit that they reach becomes the threshold. Columns come in rising order from
round to round, so a later logit that only equals the threshold loses against k that are there.
"""

from __future__ import annotations

import re
from textwrap import indent

from dsv4_iree.kernels.radix_digits import first_pass, narrow
from dsv4_iree.kernels.radix_group import SHARED, Group, highest_of_group, scope
from dsv4_iree.kernels.radix_ids import IDS_KIND, Ids, write_id, write_no_id
from dsv4_iree.kernels.radix_kernel import KEPT_KIND, memory
from dsv4_iree.kernels.radix_order import in_order, scratch
from dsv4_iree.kernels.radix_steps import (
    append,
    entries,
    loose,
    prologue,
    shared_entries,
    span,
)

ENTRIES = 2048  # that the buffer holds
ROUND = 512  # columns between two looks at how full it is
WAVES = 4  # of a workgroup
SHARE = ENTRIES // WAVES  # entries of the buffer that a wave fills
BUFFER_MEMORY = shared_entries(ENTRIES)
FILLED = f"memref<2x{WAVES}xi32, {SHARED}>"

GIVEN = (
    *("kept_binding", "block_table_binding", "row_to_request_binding"),
    *("rows", "requests", "width", "ids"),
)
"""What these steps take of the kernel's arguments."""

LOAD = f"%$raw = memref.load %buffer[%$at] : {BUFFER_MEMORY}"
BUFFER = entries("buffer", LOAD, 2)
# All threads have read a block of the buffer before one writes, and none writes past that block.
IN_PLACE = entries("buffer", f"{LOAD}\ngpu.barrier", 4)


def fits(k: int) -> bool:
    """Whether the buffer holds k entries and those of a round, and has room to gain by."""
    return 2 * k <= ENTRIES


def begin(k: int, group: Group) -> str:
    """Shared memory and constants; all names of these steps start with %s_."""
    most = (k + ENTRIES - ROUND) // 2
    return _own(f"""\
{prologue(k, group, ENTRIES)}
{scratch(0, ENTRIES)}
%filled_waves = memref.alloc() : {FILLED}
%entries = arith.constant {ENTRIES} : index
%full = arith.constant {SHARE - ROUND // WAVES} : i32
// Kept of a full buffer: k, or up to half of what is more.
%most_left = arith.constant {most} : i32
%waves = arith.constant {WAVES} : index
%waves32 = arith.constant {WAVES} : i32
%waves_less_one = arith.constant {WAVES - 1} : i32
%round_columns = arith.constant {ROUND} : index
%every_lane = arith.constant -1 : i32
%lane32 = arith.index_cast %lane : index to i32
%lane_bit = arith.shli %one32, %lane32 : i32
%lanes_below = arith.subi %lane_bit, %one32 : i32
%is_first_lane = arith.cmpi eq, %lane, %c0 : index
{_clear("%thread")}
gpu.barrier""")


def offer(value: str, visible: str, threshold: str, filled: str, group: Group) -> str:
    """Keep this lane's logit of %column32, if it is visible and above the threshold.

    NaN is above nothing, and -inf is not above the first threshold, itself. %s_filled is what the
    wave has of the buffer with it, after `filled`. The waves' shares lie interleaved.
    """
    return f"""\
%s_above = arith.cmpf ogt, {value}, {threshold} : f32
%s_taken = arith.andi %s_above, {visible} : i1
{_count_lanes(group)}
%s_filled = arith.addi {filled}, %s_takers_count : i32
scf.if %s_taken {{
  // Adding +0 makes -0 and +0 one key.
  %s_sum = arith.addf {value}, %s_plus_zero : f32
  %s_bits = arith.bitcast %s_sum : f32 to i32
  %s_sign = arith.shrsi %s_bits, %s_c31_i32 : i32
  %s_flip = arith.ori %s_sign, %s_top_bit : i32
  %s_key = arith.xori %s_bits, %s_flip : i32
  %s_low = arith.subi %s_minus_one, %column32 : i32
  %s_key64 = arith.extui %s_key : i32 to i64
  %s_low64 = arith.extui %s_low : i32 to i64
  %s_high = arith.shli %s_key64, %s_c32_i64 : i64
  %s_entry = arith.ori %s_high, %s_low64 : i64
  %s_place = arith.addi {filled}, %s_takers_before : i32
  %s_of_wave = arith.muli %s_place, %s_waves32 : i32
  %s_slot32 = arith.addi %s_of_wave, %wave32 : i32
  %s_slot = arith.index_castui %s_slot32 : i32 to index
  memref.store %s_entry, %s_buffer[%s_slot] : {BUFFER_MEMORY}
}}"""


def _count_lanes(group: Group) -> str:
    """%s_takers_count lanes of the wave have %s_taken, %s_takers_before of them before this one."""
    if group.lanes == 32:
        return """\
%s_takers = llvm.call_intrinsic "llvm.nvvm.vote.ballot.sync"(%s_every_lane, %s_taken)
    : (i32, i1) -> i32
%s_takers_count = math.ctpop %s_takers : i32
%s_takers_below = arith.andi %s_takers, %s_lanes_below : i32
%s_takers_before = math.ctpop %s_takers_below : i32"""
    return """\
%s_takers = rocdl.ballot %s_taken : i64
%s_takers_count64 = math.ctpop %s_takers : i64
%s_takers_count = arith.trunci %s_takers_count64 : i64 to i32
%s_takers_low = arith.trunci %s_takers : i64 to i32
%s_takers_shifted = arith.shrui %s_takers, %s_c32_i64 : i64
%s_takers_high = arith.trunci %s_takers_shifted : i64 to i32
%s_low_before = rocdl.mbcnt.lo %s_takers_low, %s_zero : (i32, i32) -> i32
%s_takers_before = rocdl.mbcnt.hi %s_takers_high, %s_low_before : (i32, i32) -> i32"""


def end_round(threshold: str, filled: str, past: str, group: Group) -> str:
    """%s_next#0..2: the threshold from here on, and what this wave, and any, has of the buffer.

    There is room for another round. `past` are the columns before this one.
    """
    most = "%s_filled_0"
    lines = []
    for wave in range(WAVES):
        lines.append(f"""\
%s_wave_{wave} = arith.constant {wave} : index
%s_filled_{wave} = memref.load %s_filled_waves[%s_turn, %s_wave_{wave}] : {FILLED}""")
        if wave:
            lines.append(f"%s_any_{wave} = arith.maxui {most}, %s_filled_{wave} : i32")
            most = f"%s_any_{wave}"
    compact = _own(f"""\
{_compact("%most_left", group)}
%after_left = arith.addi %left, %thread : index
{_clear("%after_left")}
%left_more = arith.addi %left32, %waves_less_one : i32
%left_each = arith.divui %left_more, %waves32 : i32
gpu.barrier""")
    return f"""\
// Written to again two rounds from here, after a barrier that comes after all reads of it.
%s_rounds = arith.divui {past}, %s_round_columns : index
%s_turn = arith.remui %s_rounds, %s_c2 : index
scf.if %s_is_first_lane {{
  memref.store {filled}, %s_filled_waves[%s_turn, %wave] : {FILLED}
}}
gpu.barrier
{chr(10).join(lines)}
%s_any_filled = arith.index_castui {most} : i32 to index
%s_is_full = arith.cmpi ugt, {most}, %s_full : i32
%s_next:3 = scf.if %s_is_full -> (f32, i32, i32) {{
{indent(compact, "  ")}
  scf.yield %s_near_least_value, %s_left_each, %s_left_each : f32, i32, i32
}} else {{
  scf.yield {threshold}, {filled}, {most} : f32, i32, i32
}}"""


# What `radix_rank.rank` needs of a run: its largest entry is the first, and its least the last. The
# first changes places with the largest, then the last with the least.
KEEP_RUN = """\
scf.if %is_first_thread {{
  memref.store %zero, %slots[%c0] : memref<2xi32, {shared}>
  memref.store %zero, %slots[%c1] : memref<2xi32, {shared}>
}}
{bottom}
%bottom_key = arith.xori %bottom_highest, %minus_one : i32
scf.for %slot = %thread to %left step %threads {{
{key}
  %slot32 = arith.index_cast %slot : index to i32
  %is_top = arith.cmpi eq, %each_key, %top_highest : i32
  scf.if %is_top {{
    %old = llvm.atomicrmw umax %slot0_pointer, %slot32 syncscope("{scope}") monotonic
        : !llvm.ptr<3>, i32
  }}
  %is_bottom = arith.cmpi eq, %each_key, %bottom_key : i32
  scf.if %is_bottom {{
    %old = llvm.atomicrmw umax %slot1_pointer, %slot32 syncscope("{scope}") monotonic
        : !llvm.ptr<3>, i32
  }}
}}
gpu.barrier
%top32 = memref.load %slots[%c0] : memref<2xi32, {shared}>
%bottom32 = memref.load %slots[%c1] : memref<2xi32, {shared}>
%top_at = arith.index_cast %top32 : i32 to index
%bottom_at = arith.index_cast %bottom32 : i32 to index
%last_place = arith.subi %k, %c1 : index
%has_all = arith.cmpi eq, %left, %k : index
%is_same = arith.cmpi eq, %bottom_at, %top_at : index
%was_first = arith.cmpi eq, %bottom_at, %c0 : index
%bottom_or_top = arith.select %was_first, %top_at, %bottom_at : index
%bottom_now = arith.select %is_same, %c0, %bottom_or_top : index
%bottom_place = arith.select %has_all, %bottom_now, %last_place : index
scf.for %slot = %thread to %k step %threads {{
  %is_entry = arith.cmpi ult, %slot, %left : index
  %any = memref.load %buffer[%slot] : {buffer}
  %entry = arith.select %is_entry, %any, %no_entry : i64
  %is_top = arith.cmpi eq, %slot, %top_at : index
  %is_first = arith.cmpi eq, %slot, %c0 : index
  %from_first = arith.select %is_first, %top_at, %slot : index
  %place_any = arith.select %is_top, %c0, %from_first : index
  %is_bottom = arith.cmpi eq, %place_any, %bottom_place : index
  %is_last = arith.cmpi eq, %place_any, %last_place : index
  %from_last = arith.select %is_last, %bottom_place, %place_any : index
  %place = arith.select %is_bottom, %last_place, %from_last : index
  %kept_at = arith.addi %region, %place : index
  memref.store %entry, %kept[%kept_at] : {kept}
}}"""

KEY = f"""\
  %each = memref.load %buffer[%slot] : {BUFFER_MEMORY}
  %each_high = arith.shrui %each, %c32_i64 : i64
  %each_key = arith.trunci %each_high : i64 to i32"""


def finish(filled: str, k: int, ids: Ids, group: Group) -> str:
    """Write the best k entries of one run of several, or else the row's ids.

    Args:
        filled: what any wave has of the buffer, at most.
    """
    keep_run = KEEP_RUN.format(
        shared=SHARED,
        buffer=BUFFER_MEMORY,
        kept=KEPT_KIND,
        key=KEY,
        scope=scope(group),
        bottom=highest_of_group("bottom", "%ends#1", group),
    )
    in_places = in_order("%left", "near", write_id(ids), write_no_id(), group, ENTRIES)
    return _own(f"""\
gpu.barrier
%length_any = arith.subi %stop, %first : index
%length = arith.maxsi %length_any, %c0 : index
{memory(ids)}
%any_filled = arith.index_castui {filled} : i32 to index
%loose = arith.constant {loose(k)} : i32
%most_last = arith.select %is_of_runs, %k32, %loose : i32
{_compact("%most_last", group)}
%ends:2 = scf.for %slot = %thread to %left step %threads
    iter_args(%most_key = %zero, %most_less = %zero) -> (i32, i32) {{
{KEY}
  // The least key is the complement of the largest complement.
  %each_less = arith.xori %each_key, %minus_one : i32
  %larger_key = arith.maxui %most_key, %each_key : i32
  %larger_less = arith.maxui %most_less, %each_less : i32
  scf.yield %larger_key, %larger_less : i32, i32
}}
{highest_of_group("top", "%ends#0", group)}
scf.if %is_of_runs {{
  %region_any = arith.muli %chunk, %k : index
  %region = arith.addi %row_region, %region_any : index
{indent(keep_run, "  ")}
}} else {{
{indent(span("near", "%top_highest", "%near_least_key"), "  ")}
  %out = memref.cast %kept_ids : {IDS_KIND} to {IDS_KIND}
  %of_row = arith.constant true
{indent(in_places, "  ")}
}}""")


def _compact(most: str, group: Group) -> str:
    """%left (%left32) entries at the front of the buffer: the best k, and up to %most in all.

    What was there, of %any_filled of every wave's share, is there no longer.
    """
    return f"""\
%buffer_count = arith.muli %any_filled, %waves : index
{first_pass(BUFFER, group)}
{narrow(BUFFER, "near", "digit", most, group)}
scf.if %is_first_thread {{
  memref.store %zero, %slots[%c0] : memref<2xi32, {SHARED}>
}}
gpu.barrier
{append(IN_PLACE, "near", "%slot0_pointer", "%buffer", BUFFER_MEMORY, "%c0", group)}
gpu.barrier
%left32 = memref.load %slots[%c0] : memref<2xi32, {SHARED}>
%left = arith.index_cast %left32 : i32 to index"""


def _clear(first: str) -> str:
    """No entries in the buffer from `first` on, in steps of the workgroup."""
    return f"""\
scf.for %cleared = {first} to %entries step %threads {{
  memref.store %no_entry, %buffer[%cleared] : {BUFFER_MEMORY}
}}"""


def _own(text: str) -> str:
    """The text with names that differ from those of the logits kernel around it."""
    return re.sub(rf"%(?!(?:{'|'.join(GIVEN)})\b)", "%s_", text)
