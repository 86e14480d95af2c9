# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernel of the radix top-k that selects from what is kept of a row's runs."""

from __future__ import annotations

from dataclasses import replace
from textwrap import indent

from dsv4_iree.kernels.radix_digits import narrow, unknown
from dsv4_iree.kernels.radix_group import SHARED, Group, highest_of_group
from dsv4_iree.kernels.radix_ids import IDS_KIND, Ids, write_id, write_no_id
from dsv4_iree.kernels.radix_kernel import KEPT_KIND, executable, memory
from dsv4_iree.kernels.radix_order import in_order, scratch
from dsv4_iree.kernels.radix_steps import GATHERED, append, entries, loose, shared_entries, span

COPIED = 4  # ids that a thread copies

GRID = """\
%is_of_runs = arith.cmpi ugt, %chunks, %c1 : index
%k = arith.constant {k} : index
%each = arith.constant {each} : index
%all_ids = arith.muli %rows, %k : index
%copiers = arith.ceildivui %all_ids, %each : index
%used = arith.select %is_of_runs, %rows, %copiers : index
stream.return %used, %c1, %c1 : index, index, index"""

RESULT = """\
%last_rank = arith.subi %k, %c1 : index
%out = stream.binding.subspan %result_binding[%c0] : !stream.binding -> {ids}{{%all_ids}}"""

RANK = """\
scf.if %is_of_runs {{
  %used_chunks = arith.ceildivui %length, %chunk_entries : index
  %kept_count = arith.muli %used_chunks, %k : index
  %kept_count32 = arith.index_cast %kept_count : index to i32
  %loose = arith.constant {loose} : i32
  // The first of a run is its largest; from its last one on, it has k entries.
  %ends:2 = scf.for %of = %thread to %used_chunks step %threads
      iter_args(%most = %zero, %least = %zero) -> (i32, i32) {{
    %run_at = arith.muli %of, %k : index
    %first_at = arith.addi %row_region, %run_at : index
    %last_at = arith.addi %first_at, %last_rank : index
{first}
{last}
    %most_now = arith.maxui %most, %first_key : i32
    %least_now = arith.maxui %least, %last_key : i32
    scf.yield %most_now, %least_now : i32, i32
  }}
{top}
{bottom}
{span}
{all}
{narrow}
{gather}
  gpu.barrier
  %found32 = memref.load %slots[%c0] : memref<2xi32, {shared}>
  %found = arith.index_cast %found32 : i32 to index
  %of_row = arith.constant true
{near}
{write}
}} else {{
  // Workgroups share out the ids of all rows.
  %each = arith.constant {copied} : index
  %of_group = arith.muli %row, %threads : index
  %copier = arith.addi %of_group, %thread : index
  %copy_first = arith.muli %copier, %each : index
  %copy_end = arith.addi %copy_first, %each : index
  %is_inside = arith.cmpi ule, %copy_end, %all_ids : index
  scf.if %is_inside {{
    %four = "vector.load"(%kept_ids, %copy_first) <{{alignment = 16 : i64}}>
        : ({ids}, index) -> vector<{copied}xi32>
    "vector.store"(%four, %out, %copy_first) <{{alignment = 16 : i64}}>
        : (vector<{copied}xi32>, {ids}, index) -> ()
  }} else {{
    scf.for %at = %copy_first to %all_ids step %c1 {{
      %one = memref.load %kept_ids[%at] : {ids}
      memref.store %one, %out[%at] : {ids}
    }}
  }}
}}"""

KEY_OF_KEPT = """\
%{end}_entry = memref.load %kept[%{end}_at] : {kept}
%{end}_high = arith.shrui %{end}_entry, %c32_i64 : i64
%{end}_key = arith.trunci %{end}_high : i64 to i32"""

ABOVE_FLOOR = """\
%$is_above = arith.cmpi ugt, %$raw, %kept_floor : i64
%$more = arith.subi %$raw, %kept_floor : i64
%$entry = arith.select %$is_above, %$more, %no_entry : i64"""


def rank(name: str, k: int, group: Group, ids: Ids) -> str:
    """`@<name>`: ids [rows, k] of a row's best entries among the k kept of each of its runs.

    The number `chunk_entries` is the length of a run. Where rows are one run, their ids are there.
    """
    load = f"""\
%$index = arith.addi %row_region, %$at : index
%$raw = memref.load %kept[%$index] : {KEPT_KIND}"""
    kept = replace(entries("kept", load, 8), entry=ABOVE_FLOOR)
    first, last = (KEY_OF_KEPT.format(end=end, kept=KEPT_KIND) for end in ("first", "last"))
    all_kept = entries("kept", load, 8)
    gather = append(
        all_kept, "near", "%slot0_pointer", "%buffer", shared_entries(GATHERED), "%c0", group,
        "%kept_floor",
    )  # fmt: skip
    text = RANK.format(
        shared=SHARED,
        ids=IDS_KIND,
        copied=COPIED,
        loose=loose(k),
        first=_in(_in(first)),
        last=_in(_in(last)),
        top=_in(highest_of_group("top", "%ends#0", group)),
        bottom=_in(highest_of_group("bottom", "%ends#1", group)),
        span=_in(span("kept", "%top_highest", "%bottom_highest")),
        all=_in(unknown("all", "kept_count32", "%kept_bits")),
        narrow=_in(narrow(kept, "near", "all", "%loose", group)),
        gather=_in(gather),
        near=_in(span("near", "%top_highest", "%near_least_key")),
        write=_in(in_order("%found", "near", write_id(ids), write_no_id(), group)),
    )
    bindings = ("kept_binding", "start", "end", *ids.bindings, "result_binding")
    numbers = ("rows", "chunks", "columns", "ids", *ids.numbers, "chunk_entries")
    body = "\n".join([memory(ids), RESULT.format(ids=IDS_KIND), scratch(0), text])
    grid = GRID.format(k=k, each=COPIED * group.threads)
    return executable(name, bindings, numbers, grid, k, group, body)


def _in(text: str) -> str:
    return indent(text, "  ")
