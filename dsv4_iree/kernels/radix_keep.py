# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernel of the radix top-k that reads logits."""

from __future__ import annotations

from textwrap import indent

from dsv4_iree.kernels import radix_sort
from dsv4_iree.kernels.radix_digits import narrow, unknown
from dsv4_iree.kernels.radix_kernel import KEPT, Ids, best, executable, places
from dsv4_iree.kernels.radix_steps import BUFFER, SHARED, Group, Source, append, buffer_above
from dsv4_iree.kernels.radix_tile import gather, loose

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
%region_any = arith.muli %chunk, %k : index
%region = arith.addi %row_region, %region_any : index
{gather}
{all}
%has_more = arith.cmpi ugt, %chunks, %c1 : index
scf.if %has_more {{
  %used = arith.cmpi sgt, %run_count, %c0 : index
  scf.if %used {{
{refine}
{emit}
    gpu.barrier
    %filled32 = memref.load %slots[%c1] : memref<2xi32, {shared}>
    %filled = arith.index_cast %filled32 : i32 to index
    %blank = arith.addi %filled, %thread : index
    scf.for %slot = %blank to %k step %threads {{
      %slot_at = arith.addi %region, %slot : index
      memref.store %no_entry, %kept[%slot_at] : memref<?xi64, strided<[1], offset: ?>>
    }}
  }}
}} else {{
{best}
{store}
}}"""

STORE = """\
%rank{e} = arith.addi %rank, %past{e} : index
%is_wanted{e} = arith.cmpi ult, %rank{e}, %k : index
scf.if %is_wanted{e} {{
  %place{e} = arith.addi %row_region, %rank{e} : index
  memref.store %sorted{e}, %kept[%place{e}] : memref<?xi64, strided<[1], offset: ?>>
}}"""

# A window of at most k entries is ranked by entry number alone, if that is asked for; then its
# logits are not read.
SHORT = """\
%true = arith.constant true
%asks_short = arith.cmpi sgt, %skip_short, %c0 : index
%window = arith.subi %end_any, %first : index
%holds_few = arith.cmpi sle, %window, %k : index
%is_short = arith.andi %asks_short, %holds_few : i1
%is_scored = arith.xori %is_short, %true : i1"""

BY_NUMBER = """\
%$is_in = arith.cmpi ult, %$any, %logits_count : index
%$can_be = arith.andi %$is_in, %asks_known : i1
%$value = scf.if %$can_be -> (f32) {
  %$column = arith.addi %chunk_column, %$any : index
  %$entry = arith.divui %$column, %page_size : index
  %$page32 = memref.load %block_table[%asks, %$entry] : memref<?x?xi32>
  %$page = arith.index_cast %$page32 : i32 to index
  // Negative ids are large unsigned numbers.
  %$visible = arith.cmpi ult, %$page, %num_pages : index
  %$number32 = arith.index_cast %$any : index to i32
  %$number = arith.sitofp %$number32 : i32 to f32
  %$minus = arith.negf %$number : f32
  %$chosen = arith.select %$visible, %$minus, %minus_inf : f32
  scf.yield %$chosen : f32
} else {
  scf.yield %minus_inf : f32
}"""


def keep(name: str, element: str, k: int, group: Group, ids: Ids) -> str:
    """`@<name>`: the best k of every %run logits, then 0 where there are fewer.

    In any order, but in that of the result where a row is one run.

    Args:
        element: type of a logit, f32 or bf16.
    """
    kind = "memref<?xi64, strided<[1], offset: ?>>"
    size = radix_sort.size(k, group)
    spare, per = max(loose(k), size), size // group.threads
    emit = append(BUFFER, "most", "%slot1_pointer", "%kept", kind, "%region", group, "%rfloor")
    text = KEEP.format(
        shared=SHARED,
        gather=gather(_logits(element), k, group, BY_NUMBER if ids.page_size else "", spare),
        all=unknown("all", "buffer_count32", "%rspan_bits"),
        refine=_in(_in(narrow(buffer_above("%rfloor"), "most", "all", "%k32", group))),
        emit=_in(_in(emit)),
        best=_in(best(k, "all", group, "%rfloor", spare)),
        store=_in("\n".join(STORE.format(e=e) for e in range(per))),
    )
    bindings = ("logits_binding", "start", "end", *ids.bindings, "kept_binding")
    short = ("num_pages", "skip_short") if ids.page_size else ()
    numbers = ("rows", "chunks", "row_stride", "columns", "run", *ids.numbers, *short)
    heads = [LOGITS.format(element=element), KEPT, ids.constants(), places(per)]
    heads += [SHORT] if ids.page_size else []
    body = "\n".join([*heads, text])
    return executable(name, bindings, numbers, "%chunks", k, group, body)


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
