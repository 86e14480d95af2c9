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
from dsv4_iree.kernels.radix_keep import keep
from dsv4_iree.kernels.radix_kernel import CHUNK, KEEPERS, Ids, rank
from dsv4_iree.kernels.radix_steps import GATHERED, Group
from dsv4_iree.kernels.radix_tile import streams
from dsv4_iree.spec import IndexerSpec

SUBGROUP = {"gfx942": 64, "gfx950": 64, "cuda": 32, "cuda-sm89": 32, "cuda-sm90": 32}

WORKGROUPS = {"gfx942": 608, "gfx950": 512, "cuda": 264, "cuda-sm89": 264, "cuda-sm90": 264}
"""That can be resident at once: two on each of 304 or 256 compute units, or 132 multiprocessors."""

# Runs of whole tiles, and the chunks of a row that they make.
RUNS = """\
%chunk = arith.constant {chunk} : index
%one = arith.constant 1 : index
%tiles_any = arith.ceildivui %columns, %chunk : index
%tiles = arith.maxui %tiles_any, %one : index
%workgroups = arith.constant {workgroups} : index
%some_rows = arith.maxui %rows, %one : index
%share_any = arith.divui %workgroups, %some_rows : index
%share = arith.maxui %share_any, %one : index
%run_tiles = {run_tiles} : index
%run = arith.muli %run_tiles, %chunk : index
%chunks = arith.ceildivui %tiles, %run_tiles : index
%k = arith.constant {k} : index
%regions = arith.muli %rows, %chunks : index
%entries = arith.muli %regions, %k : index"""


def fits(op: str, target: str, spec: IndexerSpec) -> bool:
    """Whether these kernels serve `op` for `spec` on the target."""
    return op == "topk" and target in SUBGROUP and spec.topk <= GATHERED


def function(entry: Entry, target: str, spec: IndexerSpec) -> str:
    """`@<entry>_pure`, and the kernels that it dispatches."""
    table = "block_table" in (arg.name for arg in entry.inputs)
    return _function(entry, target, spec, Ids(table, orders=True))


def selection(entry: Entry, target: str, spec: IndexerSpec) -> str:
    """`topk.select_entry` by these kernels, for logits that are -inf where nothing is visible."""
    return _function(entry, target, spec, Ids(True, spec.page_size))


def _function(entry: Entry, target: str, spec: IndexerSpec, ids: Ids) -> str:
    (out,), (logits, *rows), name, k = entry.outputs, entry.inputs, entry.name, spec.topk
    windows = tuple(arg for arg in rows if arg.name in ("start", "end"))
    tables = tuple(arg for arg in rows if arg not in windows)
    # Which entries are visible `keep` must know of `index_topk` alone.
    of_keep, seen = (ids, tables) if ids.page_size else (Ids(orders=ids.orders), ())
    short = ("num_pages", "skip_short") if ids.page_size else ()
    kept = Arg("kept", torch.int64, ("entries",))
    lines, _ = dispatch.sizes(entry.inputs)
    lines += dispatch.scalars(entry)
    if "S" not in logits.shape:
        lines.append("%row_stride = arith.addi %columns, %c0 : index")
    tiles = "arith.ceildivui %tiles, %share" if streams(k) else "arith.addi %one, %c0"
    lines.append(RUNS.format(chunk=CHUNK, k=k, workgroups=WORKGROUPS[target], run_tiles=tiles))
    lines += [
        dispatch.dispatch(
            "kept",
            f"{name}_keep",
            "%rows, %chunks",
            (logits, *windows, *seen),
            ("rows", "chunks", "row_stride", "columns", "run", *of_keep.numbers, *short),
            dispatch.shaped(kept),
        ),
        dispatch.dispatch(
            "chosen",
            f"{name}_rank",
            "%rows, %chunks",
            (kept, *windows, *tables),
            ("rows", "chunks", "columns", "ids", *ids.numbers, "run"),  # its chunk_entries
            dispatch.shaped(out),
        ),
        f"util.return %chosen : {out}",
    ]
    element, lanes = str(logits).removesuffix(">").rpartition("x")[2], SUBGROUP[target]
    # Many entries are left to rank, and to sort, where k is large.
    rankers = Group(1024 if k > 1024 else 512, lanes)
    return "\n".join(
        [
            keep(f"{name}_keep", element, k, Group(KEEPERS, lanes), of_keep),
            rank(f"{name}_rank", k, rankers, ids),
            dispatch.pure(entry, lines),
        ]
    )
