# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Top-k on GPUs by radix selection: which specs it serves, and its functions in a module.

Two dispatches: the best k entries of each run of a row, then the best k of those, in order. A row
is read once, and shared out over as many workgroups as would else be idle; where it is one run,
the first dispatch has it in order already.
"""

from __future__ import annotations

import torch

from dsv4_iree.kernels import dispatch
from dsv4_iree.kernels.entry import Arg, Entry
from dsv4_iree.kernels.radix_group import Group
from dsv4_iree.kernels.radix_ids import Ids
from dsv4_iree.kernels.radix_keep import keep
from dsv4_iree.kernels.radix_rank import rank
from dsv4_iree.kernels.radix_steps import GATHERED, streams
from dsv4_iree.spec import IndexerSpec

WORKGROUPS = {"gfx942": 608, "gfx950": 512, "cuda": 264, "cuda-sm89": 264, "cuda-sm90": 264}
"""That can be resident at once: two on each of 304 or 256 compute units, or 132 multiprocessors."""

MOST_RUNS = 16
"""Of a row: one workgroup reads all that they keep."""

# Runs of whole tiles, and the chunks of a row that they make.
RUNS = """\
%chunk = arith.constant {chunk} : index
%one = arith.constant 1 : index
%tiles_any = arith.ceildivui %columns, %chunk : index
%tiles = arith.maxui %tiles_any, %one : index
%workgroups = arith.constant {workgroups} : index
%some_rows = arith.maxui %rows, %one : index
%share_any = arith.divui %workgroups, %some_rows : index
%share_some = arith.maxui %share_any, %one : index
%most_runs = arith.constant {most_runs} : index
%share = arith.minui %share_some, %most_runs : index
%run_tiles = {run_tiles} : index
%run = arith.muli %run_tiles, %chunk : index
%chunks = arith.ceildivui %tiles, %run_tiles : index
%k = arith.constant {k} : index
%regions = arith.muli %rows, %chunks : index
%kept_entries = arith.muli %regions, %k : index
// Or the ids of all rows, two in the place of an entry.
%is_of_runs = arith.cmpi ugt, %chunks, %one : index
%two = arith.constant 2 : index
%kept_ids = arith.ceildivui %kept_entries, %two : index
%entries = arith.select %is_of_runs, %kept_entries, %kept_ids : index"""


def fits(op: str, target: str, spec: IndexerSpec) -> bool:
    """Whether these kernels serve `op` for `spec` on the target."""
    return op == "topk" and target in WORKGROUPS and spec.topk <= GATHERED


def keepers(target: str, k: int) -> Group:
    """The workgroup of `keep`."""
    lanes = 64 if target.startswith("gfx") else 32
    # A long tile, where much of a short one would be candidates.
    long = 4 * k > GATHERED
    return Group(512, lanes, held=32 if long else 16, resident=2 if long else 3)


def function(entry: Entry, target: str, spec: IndexerSpec) -> str:
    """`@<entry>_pure`, and the kernels that it dispatches."""
    table = "block_table" in (arg.name for arg in entry.inputs)
    return _function(entry, target, spec, Ids(table, orders=True))


def selection(entry: Entry, target: str, spec: IndexerSpec) -> str:
    """`topk.select_entry` by these kernels, for logits that are -inf where nothing is visible."""
    return _function(entry, target, spec, Ids(True, spec.page_size))


def _function(entry: Entry, target: str, spec: IndexerSpec, ids: Ids) -> str:
    (out,), (logits, *of_rows), name, k = entry.outputs, entry.inputs, entry.name, spec.topk
    rows = sorted(of_rows, key=lambda arg: arg.name not in ("start", "end"))
    group = keepers(target, k)
    short = ("num_pages", "skip_short") if ids.page_size else ()
    kept = Arg("kept", torch.int64, ("entries",))
    lines, _ = dispatch.sizes(entry.inputs)
    lines += dispatch.scalars(entry)
    if "S" not in logits.shape:
        lines.append("%row_stride = arith.addi %columns, %c0 : index")
    tiles = "arith.ceildivui %tiles, %share" if streams(k) else "arith.addi %one, %c0"
    lines.append(
        RUNS.format(
            chunk=group.threads * group.held,
            k=k,
            workgroups=WORKGROUPS[target],
            run_tiles=tiles,
            most_runs=MOST_RUNS,
        )
    )
    numbers = ("row_stride", "columns", "run", "ids", *ids.numbers, *short)
    lines += [
        dispatch.dispatch(
            "kept",
            f"{name}_keep",
            "%rows, %chunks",
            (logits, *rows),
            ("rows", "chunks", *numbers),
            dispatch.shaped(kept),
        ),
        dispatch.dispatch(
            "chosen",
            f"{name}_rank",
            "%rows, %chunks",
            (kept, *rows),
            ("rows", "chunks", "columns", "ids", *ids.numbers, "run"),  # its chunk_entries
            dispatch.shaped(out),
        ),
        f"util.return %chosen : {out}",
    ]
    element = str(logits).removesuffix(">").rpartition("x")[2]
    # Many entries are left to rank, and to sort, where k is large.
    rankers = Group(1024 if k > 1024 else 512, group.lanes, resident=1 if k > 1024 else 2)
    return "\n".join(
        [
            keep(f"{name}_keep", element, k, group, ids),
            rank(f"{name}_rank", k, rankers, ids),
            dispatch.pure(entry, lines),
        ]
    )
