# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scoring and selection in one `stream.executable`: logits that are never in memory.

The waves of a workgroup walk a run of one row's window together, a block of keys each, as those of
`mma_kernel` do; what they score goes into the buffer of `stream_select`. What is left at the end of
the run is what `radix_keep.keep` leaves of a run of logits.
"""

from __future__ import annotations

from textwrap import indent

from dsv4_iree.kernels import mma_pages, stream_select
from dsv4_iree.kernels.entry import Arg
from dsv4_iree.kernels.mma_kernel import (
    ALIGNED_PAGES,
    COLUMN,
    CONSTANTS,
    binding,
    every_row,
    tile_module,
    window,
)
from dsv4_iree.kernels.radix_group import Group
from dsv4_iree.kernels.radix_ids import Ids
from dsv4_iree.kernels.stream_select import ROUND, SHARE, WAVES
from dsv4_iree.spec import IndexerSpec

EXECUTABLE = """\
stream.executable private @{name} {{
  stream.executable.export public @{name} workgroups(
      %rows: index, %runs: index) -> (index, index, index) {{
    %c1 = arith.constant 1 : index
    // Neighbours in x run at the same time: they read the same keys, or pages of one request.
    stream.return %rows, %runs, %c1 : index, index, index
  }}
  builtin.module {{
    func.func @{name}({parameters}) attributes {{
        translation_info = #iree_codegen.translation_info<
            pipeline = #iree_codegen.no_pipeline workgroup_size = [{threads}, 1, 1]
            subgroup_size = {lanes}>}} {{
{body}
      return
    }}
  }}
}}"""

# For a tile module's lines a wave is a workgroup of its own, which has one block of every step: so
# the waves put the same query into the same shared memory, where a module does, and a lane reads
# back what it wrote. A wave's number is one for all of its lanes, but the compiler has to be told.
PLACE = """\
%thread_any = gpu.thread_id x
%wave_lanes = arith.constant {lanes} : index
%thread = arith.remui %thread_any, %wave_lanes : index
%wave_any = arith.divui %thread_any, %wave_lanes : index
%wave_any32 = arith.index_cast %wave_any : index to i32
{wave32}
%wave = arith.index_cast %wave32 : i32 to index
%wave_past = arith.muli %wave, %wave_lanes : index"""

BODY = """\
%row_first = stream.dispatch.workgroup.id[0] : index
%row_last = arith.subi %rows, %c1 : index
%run_number = stream.dispatch.workgroup.id[1] : index
%own_tile = arith.muli %g, %tile_keys : index
%own = arith.addi %own_tile, %n : index
%own32 = arith.index_cast %own : index to i32
%columns32 = arith.index_cast %columns : index to i32
%run32 = arith.constant 0 : i32
%run_end32 = arith.addi %columns32, %run32 : i32
%skip32 = arith.index_cast %skip : index to i32
{aligned}
{window}
// A run counts from the window's start; the blocks are those of all rows.
%window_first = arith.index_cast %first0 : i32 to index
%window_stop = arith.index_cast %stop0 : i32 to index
%run_past = arith.muli %run_number, %per_run : index
%run_first = arith.addi %window_first, %run_past : index
%run_any = arith.addi %run_first, %per_run : index
%run_stop = arith.minsi %run_any, %window_stop : index
%before_first = arith.remui %run_first, %block_keys : index
%from_block = arith.subi %run_first, %before_first : index
%run_first32 = arith.index_cast %run_first : index to i32
%run_stop32 = arith.index_cast %run_stop : index to i32
%used = arith.cmpi slt, %run_first, %run_stop : index
// The only run of a row writes its ids.
%is_only = arith.cmpi eq, %runs, %c1 : index
%works = arith.ori %used, %is_only : i1
scf.if %works {{
{begin}
  %filled_most = scf.if %meets0 -> (i32) {{
{tile_constants}
{query}
    %steps_end = arith.constant {round} : index
    %step = arith.constant {step} : index
    %last:3 = scf.for %round = %from_block to %run_stop step %steps_end
        iter_args(%threshold = %minus_inf, %filled_from = %s_zero, %filled_any = %s_zero)
        -> (f32, i32, i32) {{
      %filled_round = scf.for %past = %c0 to %steps_end step %step
          iter_args(%filled_before = %filled_from) -> (i32) {{
        %step_first = arith.addi %round, %past : index
        %base = arith.addi %step_first, %wave_past : index
{score}
{offer}
        scf.yield %s_filled : i32
      }}
      %rounds_past = arith.subi %round, %from_block : index
{end_round}
      scf.yield %s_next#0, %s_next#1, %s_next#2 : f32, i32, i32
    }}
    scf.yield %last#2 : i32
  }} else {{
    // A window of at most k entries is ranked by entry number alone, if that is asked for: earlier
    // entries get larger numbers. It has no room for the buffer to run over.
    scf.if %exists0 {{
      %step = arith.constant {step} : index
      %filled_last = scf.for %step_first = %from_block to %run_stop step %step
          iter_args(%filled_before = %s_zero) -> (i32) {{
        %base = arith.addi %step_first, %wave_past : index
{number}
{offer_number}
        scf.yield %s_filled : i32
      }}
    }}
    %filled_share = arith.constant {share} : i32
    scf.yield %filled_share : i32
  }}
  %s_chunks = arith.addi %runs, %c0 : index
  %s_chunk = arith.addi %run_number, %c0 : index
  %s_first = arith.addi %window_first, %c0 : index
  %s_stop = arith.addi %window_stop, %c0 : index
  %s_filled_at_most = arith.addi %filled_most, %i32_0 : i32
{finish}
}}"""

INSIDE = """\
%from_first0 = arith.cmpi uge, %column32, %run_first32 : i32
%before_stop0 = arith.cmpi ult, %column32, %run_stop32 : i32
%inside0 = arith.andi %from_first0, %before_stop0 : i1"""

SCORE = """\
%block_end32 = arith.addi %block32, %block_keys32 : i32
%block_begins0 = arith.cmpi ult, %run_first32, %block_end32 : i32
%block_reaches0 = arith.cmpi ugt, %run_stop32, %block32 : i32
%here0 = arith.andi %block_begins0, %block_reaches0 : i1
%out:2 = scf.if %here0 -> (f32, i1) {{
{keys}
{tile_keys}
{scores}
  scf.yield %score0, %there : f32, i1
}} else {{
  %nowhere = arith.constant false
  scf.yield %minus_inf, %nowhere : f32, i1
}}
{inside}
%visible0 = arith.andi %inside0, %out#1 : i1"""

NUMBER = """\
{inside}
%page_size = arith.constant {page_size} : index
%visible0 = scf.if %inside0 -> (i1) {{
  %entry = arith.divui %column, %page_size : index
  %page32 = memref.load %block_table[%asks0, %entry] : memref<?x?xi32>
  %page = arith.index_cast %page32 : i32 to index
  // Negative ids are large unsigned numbers.
  %is_real = arith.cmpi ult, %page, %num_pages : index
  scf.yield %is_real : i1
}} else {{
  %nowhere = arith.constant false
  scf.yield %nowhere : i1
}}
%past_first = arith.subi %column32, %first0 : i32
%as_float = arith.sitofp %past_first : i32 to f32
%number = arith.negf %as_float : f32"""


def group(target: str, spec: IndexerSpec) -> Group:
    """Threads of a workgroup."""
    lanes = int(tile_module(target, spec).LANES)
    return Group(WAVES * lanes, lanes, resident=1)


def executable(
    name: str,
    target: str,
    spec: IndexerSpec,
    operands: tuple[Arg, ...],
    numbers: tuple[str, ...],
    ids: Ids,
) -> str:
    """`stream.executable @<name>` that leaves the best k entries of every run, or a row's ids.

    Args:
        operands: tensors of the dispatch. The result, [rows * runs * k], is the binding after the
            last of them.
        numbers: index arguments after the bindings: rows, columns, runs, per_run (entries of a
            window that a workgroup scores), skip (windows of at most so many entries are not
            scored), ids and what the operands' sizes need.
    """
    tile, waves = tile_module(target, spec), group(target, spec)
    parameters = [f"%{arg.name}_binding: !stream.binding" for arg in operands]
    parameters += ["%kept_binding: !stream.binding", *(f"%{number}: index" for number in numbers)]
    wave32 = "%wave32 = rocdl.readfirstlane %wave_any32 : i32"
    if waves.lanes == 32:
        wave32 = "%wave32 = arith.ori %wave_any32, %wave_any32 : i32"
    lines = [
        CONSTANTS.format(row=spec.value_bytes, block=tile.LANES, tile=tile.TILE_KEYS),
        PLACE.format(lanes=waves.lanes, wave32=wave32),
        tile.LANE,
    ]
    lines += [binding(arg, spec) for arg in operands]
    lines.append(_body(target, spec, ids, waves))
    return EXECUTABLE.format(
        name=name,
        parameters=", ".join(parameters),
        threads=waves.threads,
        lanes=waves.lanes,
        body=_in("\n".join(lines), 6),
    )


def _body(target: str, spec: IndexerSpec, ids: Ids, waves: Group) -> str:
    tile = tile_module(target, spec)
    score = SCORE.format(
        keys=_in(mma_pages.loop(spec, tile, paged=True).keys, 2),
        tile_keys=_in(tile.keys(target, spec, 1), 2),
        scores=_in(tile.scores(target, spec, 1), 2),
        inside=INSIDE,
    )
    number = NUMBER.format(inside=INSIDE, page_size=spec.page_size)
    offers = [
        stream_select.offer(value, "%visible0", threshold, "%filled_before", waves)
        for value, threshold in (("%out#0", "%threshold"), ("%number", "%minus_inf"))
    ]
    return BODY.format(
        aligned=ALIGNED_PAGES,
        window=f"{every_row(1, paged=True)}\n{window(0)}",
        begin=_in(stream_select.begin(spec.topk, waves), 2),
        tile_constants=_in(tile.CONSTANTS, 4),
        query=_in(tile.query(target, spec, 0), 4),
        round=ROUND,
        step=waves.threads,
        share=SHARE,
        score=_in(f"{COLUMN}\n{score}", 8),
        offer=_in(offers[0], 8),
        end_round=_in(
            stream_select.end_round("%threshold", "%filled_round", "%rounds_past", waves), 6
        ),
        number=_in(f"{COLUMN}\n{number}", 8),
        offer_number=_in(offers[1], 8),
        finish=_in(stream_select.finish("%filled_at_most", spec.topk, ids, waves), 2),
    )


def _in(text: str, spaces: int) -> str:
    return indent(text.rstrip("\n"), " " * spaces)
