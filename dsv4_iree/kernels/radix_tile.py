# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From the logits of a run to the entries of its best in shared memory, tile by tile.

A tile is what a workgroup holds in registers. Of the first, threads take the largest logits of
groups: k groups whose largest reach a threshold are k logits that reach it. What reaches it goes
into the buffer. When that fills, its k-th largest entry, or one a little less, becomes the
threshold, and what is below it leaves. So few logits of the first tile are counted in shared
memory, and few of later ones looked at twice.

Where more of a tile reach the threshold than the buffer can take (equal logits, or a narrow band),
all its entries are counted, digit by digit.
"""

from __future__ import annotations

from textwrap import indent

from dsv4_iree.kernels.radix_digits import first_pass, narrow, unknown
from dsv4_iree.kernels.radix_group import (
    SHARED,
    Group,
    atomic_add,
    highest_of_wave,
    scan_wave,
    scope,
)
from dsv4_iree.kernels.radix_peaks import peak_range, threshold
from dsv4_iree.kernels.radix_steps import (
    BUFFER,
    GATHERED,
    Source,
    append,
    buffer_above,
    hold,
    loose,
    named,
    shared_entries,
    span,
    streams,
)

NUMBERS = """\
{range}
%threads32 = arith.constant {threads} : i32
%thread32 = arith.index_cast %thread : index to i32
%tile_entries = arith.constant {tile} : index
%loose = arith.constant {loose} : i32
%full = arith.constant {full} : i32
%top_key = memref.alloc() : memref<1xi32, {shared}>
%top_key_index = memref.extract_aligned_pointer_as_index %top_key
    : memref<1xi32, {shared}> -> index
%top_key_i64 = arith.index_cast %top_key_index : index to i64
%top_key_pointer = llvm.inttoptr %top_key_i64 : i64 to !llvm.ptr<3>
scf.if %is_first_thread {{
  memref.store %zero, %top_key[%c0] : memref<1xi32, {shared}>
}}"""

RUN = """\
%run_origin = arith.addi %row_at, %run_column : index
%run_column32 = arith.index_cast %run_column : index to i32
%low_of_run = arith.subi %minus_one, %run_column32 : i32
gpu.barrier
%ran:4 = scf.while (%tile = %c0, %held_count = %zero, %made = %zero, %known = %minus_inf)
    : (index, i32, i32, f32) -> (index, i32, i32, f32) {{
  %has_tile = arith.cmpi slt, %tile, %run_count : index
  scf.condition(%has_tile) %tile, %held_count, %made, %known : index, i32, i32, f32
}} do {{
^bb0(%tile: index, %held_count: i32, %made: i32, %known: f32):
{tile}
  %next_tile = arith.addi %tile, %tile_entries : index
{after}
}}
%run_found = arith.addi %ran#1, %zero : i32
{make}
{top}
{span}"""

TILE = """\
%tile_left = arith.subi %run_count, %tile : index
%logits_count = arith.minsi %tile_left, %tile_entries : index
%chunk_column = arith.addi %run_column, %tile : index
%column32 = arith.index_cast %chunk_column : index to i32
%low_of_first = arith.subi %minus_one, %column32 : i32
%origin = arith.addi %row_at, %chunk_column : index
%tile32 = arith.index_cast %tile : index to i32
%tile_thread = arith.addi %tile32, %thread32 : i32
{hold}
%is_first_tile = arith.cmpi eq, %tile, %c0 : index
%threshold = scf.if %is_first_tile -> (f32) {{
{threshold}
  scf.yield %kth_value : f32
}} else {{
  scf.yield %known : f32
}}
{mark}
%held_now = memref.load %slots[%c0] : memref<2xi32, {shared}>
%is_over = arith.cmpi sgt, %held_now, %gathered : i32
%can_rise = arith.cmpi sgt, %held_count, %loose : i32
// Then the same tile once more, with a higher threshold.
%again = arith.andi %is_over, %can_rise : i1
%fits = arith.cmpi sle, %held_now, %gathered : i32
scf.if %fits {{
{place}
}} else {{
  scf.if %again {{
  }} else {{
{make_held}
    scf.if %is_first_thread {{
      memref.store %held_count, %slots[%c0] : memref<2xi32, {shared}>
    }}
{top_of_held}
    %room = arith.subi %gathered, %held_count : i32
    %most_taken = arith.minsi %room, %loose : i32
{first_pass}
{narrow}
{gather}
  }}
}}
gpu.barrier
%now_any = memref.load %slots[%c0] : memref<2xi32, {shared}>
%now32 = arith.select %again, %held_count, %now_any : i32
%keeps_made = arith.ori %fits, %again : i1
%made_now = arith.select %keeps_made, %made, %now32 : i32
gpu.barrier"""

AFTER = """\
%is_full = arith.cmpi sgt, %now32, %full : i32
%is_not_last = arith.cmpi slt, %next_tile, %run_count : index
%makes_room = arith.andi %is_full, %is_not_last : i1
%rises = arith.ori %makes_room, %again : i1
%following = arith.select %again, %tile, %next_tile : index
%risen:3 = scf.if %rises -> (i32, i32, f32) {{
{rise}
}} else {{
  scf.yield %now32, %made_now, %threshold : i32, i32, f32
}}
scf.yield %following, %risen#0, %risen#1, %risen#2 : index, i32, i32, f32"""

ONCE = "scf.yield %next_tile, %now32, %made_now, %threshold : index, i32, i32, f32"

# The threshold becomes the k-th largest of the buffer, or a little less; what is below it goes.
RISE = """\
%buffer_count = arith.index_cast %now32 : i32 to index
{make}
{top}
{span}
{all}
{level}
{pack}
gpu.barrier
%packed32 = memref.load %slots[%c1] : memref<2xi32, {shared}>
%packed = arith.index_cast %packed32 : i32 to index
scf.for %slot = %thread to %packed step %threads {{
  %moved = memref.load %spare[%slot] : {spare}
  memref.store %moved, %buffer[%slot] : {buffer}
}}
gpu.barrier
scf.if %is_first_thread {{
  memref.store %packed32, %slots[%c0] : memref<2xi32, {shared}>
  memref.store %zero, %slots[%c1] : memref<2xi32, {shared}>
}}
gpu.barrier
scf.yield %packed32, %packed32, %level_least_value : i32, i32, f32"""

# Only the places of what reaches the threshold, as columns from %run_column: one thread finds
# several, another none.
PLACE = """\
%places:2 = scf.while (%left_flags = %flags, %to = %first_slot) : (i32, i32) -> (i32, i32) {{
  %has_more = arith.cmpi ne, %left_flags, %zero : i32
  scf.condition(%has_more) %left_flags, %to : i32, i32
}} do {{
^bb0(%left_flags: i32, %to: i32):
  %number = math.cttz %left_flags : i32
  %less = arith.subi %left_flags, %one32 : i32
  %rest = arith.andi %left_flags, %less : i32
  %far = arith.muli %number, %threads32 : i32
  %place32 = arith.addi %far, %tile_thread : i32
  %place64 = arith.extui %place32 : i32 to i64
  %to_index = arith.index_cast %to : i32 to index
  memref.store %place64, %buffer[%to_index] : {buffer}
  %next_to = arith.addi %to, %one32 : i32
  scf.yield %rest, %next_to : i32, i32
}}"""

# The entries of places %{made} to %{count}; their logits are read again.
MAKE = """\
%{tag}first_any = arith.index_cast %{made} : i32 to index
%{tag}first = arith.addi %{tag}first_any, %thread : index
%{tag}end = arith.index_cast %{count} : i32 to index
gpu.barrier
%{tag}key = scf.for %slot = %{tag}first to %{tag}end step %threads
    iter_args(%most = %zero) -> (i32) {{
  %place = memref.load %buffer[%slot] : {buffer}
  %mat = arith.index_cast %place : i64 to index
{entry}
  memref.store %mentry, %buffer[%slot] : {buffer}
  %larger = arith.maxui %most, %mkey32 : i32
  scf.yield %larger : i32
}}
{highest}
scf.if %{tag}is_end {{
  %{tag}old = llvm.atomicrmw umax %top_key_pointer, %{tag}upto syncscope("{scope}") monotonic
      : !llvm.ptr<3>, i32
}}
gpu.barrier"""

TOP = """\
%{tag}highest = memref.load %top_key[%c0] : memref<1xi32, {shared}>
%{tag}bits = arith.bitcast %{threshold} : f32 to i32
%{tag}sign = arith.shrsi %{tag}bits, %c31_i32 : i32
%{tag}flip = arith.ori %{tag}sign, %top_bit : i32
%{tag}least = arith.xori %{tag}bits, %{tag}flip : i32"""


def constants(k: int, group: Group) -> str:
    """Numbers, and shared memory, that `gather` needs."""
    return NUMBERS.format(
        range=peak_range(),
        threads=group.threads,
        tile=group.threads * group.held,
        shared=SHARED,
        loose=loose(k),
        full=GATHERED // 2 if 4 * k <= GATHERED else GATHERED,
    )


def gather(logits: Source, k: int, group: Group) -> str:
    """%run_found (i32) entries in %buffer: the best k of logits %run_column to + %run_count, and
    few more.

    Shared memory %spare holds loose(k) entries, and is free afterwards. None of the entries is less
    than %run_floor, and they differ from it in the lowest %run_bits alone.
    """
    buffer = shared_entries(GATHERED)
    tile = TILE.format(
        shared=SHARED,
        hold=hold(logits, group),
        threshold=_in(threshold(k, group)),
        mark=_mark(group),
        place=_in(PLACE.format(buffer=buffer)),
        make_held=_in(_make("h", logits, "made", "held_count", group)),
        top_of_held=_in(_in(_top_of_held(logits, group))),
        first_pass=_in(first_pass(logits, group)),
        narrow=_in(narrow(logits, "near", "digit", "%most_taken", group)),
        gather=_in(append(logits, "near", "%slot0_pointer", "%buffer", buffer, "%c0", group)),
    )
    after = AFTER.format(rise=_in(_rise(logits, k, group))) if streams(k) else ONCE
    return RUN.format(
        tile=_in(tile),
        after=_in(after),
        make=_make("e", logits, "ran#2", "run_found", group),
        top=TOP.format(tag="r", shared=SHARED, threshold="ran#3"),
        span=span("run", "%rhighest", "%rleast"),
    )


def _rise(logits: Source, k: int, group: Group) -> str:
    spare = shared_entries(loose(k))
    return RISE.format(
        shared=SHARED,
        spare=spare,
        buffer=shared_entries(GATHERED),
        make=_make("f", logits, "made_now", "now32", group),
        top=TOP.format(tag="f", shared=SHARED, threshold="threshold"),
        span=span("f", "%fhighest", "%fleast"),
        all=unknown("all", "now32", "%f_bits"),
        level=narrow(buffer_above("%f_floor"), "level", "all", "%loose", group),
        pack=append(BUFFER, "level", "%slot1_pointer", "%spare", spare, "%c0", group, "%f_floor"),
    )


def _make(tag: str, logits: Source, made: str, count: str, group: Group) -> str:
    text = f"{logits.load}\n{logits.entry}"
    for name, of_run in (
        ("%origin", "%run_origin"),
        ("%low_of_first", "%low_of_run"),
        ("%$plus_zero", "%plus_zero"),
    ):
        text = text.replace(name, of_run)
    return MAKE.format(
        tag=tag,
        made=made,
        count=count,
        buffer=shared_entries(GATHERED),
        entry=_in(named(text, "m")),
        highest=highest_of_wave(tag, f"%{tag}key", group),
        scope=scope(group),
    )


def _top_of_held(logits: Source, group: Group) -> str:
    """%top_key is that of the largest held logit, if it was less."""
    lines, value = [], "%minus_inf"
    for i in range(group.held):
        lines.append(f"%held_most{i} = arith.maxnumf {value}, %held#{i} : f32")
        value = f"%held_most{i}"
    key = named(logits.entry, "w").replace("%wplus_zero", "%plus_zero")
    lines.append(f"""\
%wraw = arith.addf {value}, %plus_zero : f32
%wat = arith.addi %thread, %c0 : index
{key}
{highest_of_wave("w_", "%wkey32", group)}
scf.if %w_is_end {{
  %w_old = llvm.atomicrmw umax %top_key_pointer, %w_upto syncscope("{scope(group)}") monotonic
      : !llvm.ptr<3>, i32
}}""")
    return "\n".join(lines)


def _mark(group: Group) -> str:
    """%flags: which held logits reach the threshold; %first_slot: of the thread's, in %buffer."""
    lines, flags = [], "%zero"
    for i in range(group.held):
        lines.append(f"""\
%over{i} = arith.cmpf oge, %held#{i}, %threshold : f32
%one{i} = arith.constant {1 << i if i < 31 else -(1 << 31)} : i32
%flag{i} = arith.select %over{i}, %one{i}, %zero : i32
%flags{i} = arith.ori {flags}, %flag{i} : i32""")
        flags = f"%flags{i}"
    lines.append(f"""\
%flags = arith.addi {flags}, %zero : i32
%own = math.ctpop %flags : i32
{scan_wave("own", "%own", group)}
%is_wave_end = arith.cmpi eq, %lane, %lane_last : index
%base_of_end = scf.if %is_wave_end -> (i32) {{
{_in(atomic_add("old", "%slot0_pointer", "%ownupto", group))}
  scf.yield %old : i32
}} else {{
  scf.yield %zero : i32
}}
%wave_base, %wave_valid = gpu.shuffle idx %base_of_end, %lane_last32, %lanes_i32 : i32
%lane_base = arith.subi %ownupto, %own : i32
%first_slot = arith.addi %wave_base, %lane_base : i32
gpu.barrier""")
    return "\n".join(lines)


def _in(text: str) -> str:
    return indent(text, "  ")
