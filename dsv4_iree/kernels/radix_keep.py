# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernel of the radix top-k that reads logits."""

from __future__ import annotations

from textwrap import indent

from dsv4_iree.kernels.radix_group import SHARED, Group, atomic_add
from dsv4_iree.kernels.radix_ids import IDS_KIND, Ids, write_id, write_no_id
from dsv4_iree.kernels.radix_kernel import KEPT_KIND, executable, memory
from dsv4_iree.kernels.radix_order import in_order, scratch
from dsv4_iree.kernels.radix_steps import GATHERED, Source, loose, shared_entries, streams
from dsv4_iree.kernels.radix_tile import constants, gather

GRID = "stream.return %rows, %chunks, %c1 : index, index, index"

LOGITS = """\
%extent = arith.muli %rows, %row_stride : index
%logits = stream.binding.subspan %logits_binding[%c0]
    : !stream.binding -> memref<?x{element}, strided<[1], offset: ?>>{{%extent}}
%row_at = arith.muli %row, %row_stride : index"""

KEEP = """\
%chunk = stream.dispatch.workgroup.id[1] : index
%chunk_first = arith.muli %chunk, %run : index
%chunk_left = arith.subi %length, %chunk_first : index
%run_count = arith.minsi %chunk_left, %run : index
%run_column = arith.addi %first, %chunk_first : index
{gather}
%found = arith.index_cast {count} : i32 to index
{memory}
%out = memref.cast %kept_ids : {ids} to {ids}
%region_any = arith.muli %chunk, %k : index
%region = arith.addi %row_region, %region_any : index
%of_row = arith.xori %is_of_runs, %true : i1
{write}"""

KEEP_ENTRY = """\
scf.if %is_of_runs {{
  %place = arith.addi %region, %rank : index
  memref.store %entry, %kept[%place] : {kept}
}} else {{
{write_id}
}}"""

KEEP_NONE = """\
scf.if %is_of_runs {{
  %place = arith.addi %region, %rank : index
  memref.store %no_entry, %kept[%place] : {kept}
}} else {{
{write_no_id}
}}"""

# Of a window of at most k entries all are selected that are visible, if that is asked for; then
# their logits are not read.
UNLESS_SHORT = """\
%asks_short = arith.cmpi sgt, %skip_short, %c0 : index
%window = arith.subi %end_any, %first : index
%holds_few = arith.cmpi sle, %window, %k : index
%is_short = arith.andi %asks_short, %holds_few : i1
%any:4 = scf.if %is_short -> (i32, i64, i64, i32) {{
{table}
  // Their logits count as zeros.
  %zeros_key = arith.extui %top_bit : i32 to i64
  %zeros_floor = arith.shli %zeros_key, %c32_i64 : i64
  %stop32 = arith.index_cast %stop : index to i32
  %least_low32 = arith.subi %minus_one, %stop32 : i32
  %least_low = arith.extui %least_low32 : i32 to i64
  %short_floor = arith.ori %zeros_floor, %least_low : i64
  %short_length = arith.index_cast %length : index to i64
  %short_zeros = math.ctlz %short_length : i64
  %short_bits = arith.subi %c64_i64, %short_zeros : i64
  gpu.barrier
  scf.for %number = %thread to %run_count step %threads {{
    %at = arith.addi %run_column, %number : index
    %page_at = arith.divui %at, %page_size : index
    %is_visible = scf.if %asks_known -> (i1) {{
      %page32 = memref.load %block_table[%asks, %page_at] : memref<?x?xi32>
      %page = arith.index_cast %page32 : i32 to index
      // Negative ids are large unsigned numbers.
      %is_page = arith.cmpi ult, %page, %num_pages : index
      scf.yield %is_page : i1
    }} else {{
      %none = arith.constant false
      scf.yield %none : i1
    }}
    scf.if %is_visible {{
      %at32 = arith.index_cast %at : index to i32
      %low32 = arith.subi %minus_one, %at32 : i32
      %low = arith.extui %low32 : i32 to i64
      %entry = arith.ori %zeros_floor, %low : i64
{take}
      %slot = arith.index_cast %slot32 : i32 to index
      memref.store %entry, %buffer[%slot] : {buffer}
    }}
  }}
  gpu.barrier
  %short_found = memref.load %slots[%c0] : memref<2xi32, {shared}>
  scf.yield %short_found, %short_floor, %short_bits, %top_bit : i32, i64, i64, i32
}} else {{
{gather}
  scf.yield %run_found, %run_floor, %run_bits, %run_top : i32, i64, i64, i32
}}
%any_floor = arith.addi %any#1, %no_entry : i64
%any_bits = arith.addi %any#2, %no_entry : i64
%any_top = arith.addi %any#3, %zero : i32"""


def keep(name: str, element: str, k: int, group: Group, ids: Ids) -> str:
    """`@<name>`: in memory for entries, the best k of every %run logits, largest first, then 0s.

    Where rows are one run, their ids [rows, k] instead.

    Args:
        element: type of a logit, f32 or bf16.
    """
    entry = KEEP_ENTRY.format(kept=KEPT_KIND, write_id=_in(write_id(ids)))
    no_entry = KEEP_NONE.format(kept=KEPT_KIND, write_no_id=_in(write_no_id()))
    best, count, of = gather(_logits(element), k, group), "%run_found", "run"
    if ids.page_size:
        take = indent(atomic_add("slot32", "%slot0_pointer", "%one32", group), " " * 6)
        best = UNLESS_SHORT.format(
            table=_in(ids.constants()),
            take=take,
            buffer=shared_entries(GATHERED),
            shared=SHARED,
            gather=_in(best),
        )
        count, of = "%any#0", "any"
    text = KEEP.format(
        gather=best,
        count=count,
        memory=memory(ids),
        ids=IDS_KIND,
        write=in_order("%found", of, entry, no_entry, group),
    )
    short = ("num_pages", "skip_short") if ids.page_size else ()
    bindings = ("logits_binding", "start", "end", *ids.bindings, "kept_binding")
    numbers = ("rows", "chunks", "row_stride", "columns", "run", "ids", *ids.numbers, *short)
    spare = scratch(loose(k) if streams(k) else 0)
    body = "\n".join([LOGITS.format(element=element), spare, constants(k, group), text])
    return executable(name, bindings, numbers, GRID, k, group, body)


def _logits(element: str) -> Source:
    """A chunk's logits. NaN and -inf become 0; adding +0 makes -0 and +0 one key."""
    load = f"""\
%$index = arith.addi %origin, %$at : index
%$narrow = memref.load %logits[%$index] : memref<?x{element}, strided<[1], offset: ?>>
%$raw = arith.extf %$narrow : {element} to f32"""
    if element == "f32":
        load = load.replace("%$narrow =", "%$raw =").rsplit("\n", 1)[0]
    key = """\
%$sum = arith.addf %$raw, %$plus_zero : f32
%$bits = arith.bitcast %$sum : f32 to i32
%$sign = arith.shrsi %$bits, %c31_i32 : i32
%$flip = arith.ori %$sign, %top_bit : i32
%$key32 = arith.xori %$bits, %$flip : i32
%$eligible = arith.cmpf ogt, %$raw, %minus_inf : f32"""
    low = """\
%$at32 = arith.index_cast %$at : index to i32
%$low32 = arith.subi %low_of_first, %$at32 : i32"""
    return Source(
        "logits",
        load,
        f"""\
{key}
{low}
%$key64 = arith.extui %$key32 : i32 to i64
%$low64 = arith.extui %$low32 : i32 to i64
%$high = arith.shli %$key64, %c32_i64 : i64
%$both = arith.ori %$high, %$low64 : i64
%$entry = arith.select %$eligible, %$both, %no_entry : i64""",
        f"""\
{key}
%$digit_any = arith.shrui %$key32, %c21_i32 : i32
%$digit = arith.select %$eligible, %$digit_any, %zero : i32""",
        # Under other names than those of `entry`, which may follow.
        low.replace("%$at32", "%$again_at32").replace("%$low32", "%$again_low32")
        + """
%$is_more = arith.cmpf ogt, %$raw, %least_value : f32
%$is_equal = arith.cmpf oeq, %$raw, %least_value : f32
%$is_early = arith.cmpi uge, %$again_low32, %least_low : i32
%$is_tie = arith.andi %$is_equal, %$is_early : i1
%$reaches = arith.ori %$is_more, %$is_tie : i1""",
        held=True,
    )


def _in(text: str) -> str:
    return indent(text, "  ")
