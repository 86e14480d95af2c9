# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`index_topk` on GPUs without logits in memory: the specs that it serves, and its dispatches.

One dispatch scores a run of a row's keys and keeps the best k of it as it goes; `radix_rank.rank`
then selects from what the runs of a row left. So the workspace holds k entries of 8 bytes for each
run, and there are no more runs than it takes to fill the chip: 8 MiB for k = 512, or 4 KiB for each
of more than 2048 rows.
"""

from __future__ import annotations

import torch

from dsv4_iree.kernels import dispatch, stream_select
from dsv4_iree.kernels.entry import Arg, Entry
from dsv4_iree.kernels.mma_kernel import tile_module
from dsv4_iree.kernels.radix_group import Group
from dsv4_iree.kernels.radix_ids import Ids
from dsv4_iree.kernels.radix_rank import rank
from dsv4_iree.kernels.scoring import WHOLE_TABLE
from dsv4_iree.kernels.stream_kernel import executable, group
from dsv4_iree.spec import IndexerSpec

FILL = {"gfx942": 608, "gfx950": 1024, "cuda": 1024}
"""Workgroups that fill the chip: two, of which shared memory has room for no more, on each of 304
compute units, four on each of 256, and some more to balance than 132 multiprocessors hold."""
RANKERS = 512  # threads of a workgroup
SHORTEST_RUN = 4  # times k: a shorter one would leave almost all that it scores

# Rows are split into runs until there are workgroups to fill the chip. For any rows and columns
# there is room for all the runs that fewer rows and columns can have: a workspace for a large call
# serves every smaller one.
RUNS = """\
%one = arith.constant 1 : index
%fill = arith.constant {fill} : index
%shortest_run = arith.constant {shortest} : index
%some_rows = arith.maxui %rows, %one : index
%runs_to_fill = arith.ceildivui %fill, %some_rows : index
%runs_by_length = arith.divui %columns, %shortest_run : index
%runs_most = arith.minui %runs_by_length, %runs_to_fill : index
%runs_any = arith.maxui %runs_most, %one : index
%run_any = arith.ceildivui %columns, %runs_any : index
%per_run = arith.maxui %run_any, %one : index
%runs = arith.ceildivui %columns, %per_run : index
%most_runs = arith.constant {most} : index
%runs_of_any_length = arith.maxui %runs_by_length, %one : index
%regions_any = arith.muli %rows, %runs_of_any_length : index
%regions_some = arith.minui %regions_any, %most_runs : index
%regions = arith.maxui %regions_some, %rows : index
%entries = arith.muli %regions, %topk : index"""


def fits(target: str, spec: IndexerSpec) -> bool:
    """Whether this form serves the spec, where the logits kernel does.

    One whose workgroups score rows that share their keys is faster with logits in memory.
    """
    return stream_select.fits(spec.topk) and tile_module(target, spec).PAGED_ROWS == 1


def function(entry: Entry, target: str, spec: IndexerSpec, fill: int = 0) -> str:
    """`@<entry>_pure`, and the kernels that it dispatches.

    Args:
        fill: workgroups that fill the chip; 0: as the target's.
    """
    fill = fill or FILL[target.partition("-")[0]]
    name, operands, k = f"{entry.name}_mma", dispatch.operands(entry), spec.topk
    rankers = Group(RANKERS, group(target, spec).lanes, resident=2)
    ids, kept = Ids(True, spec.page_size), Arg("kept", torch.int64, ("entries",))
    of_rows = tuple(arg for arg in operands if arg.name in ("start", "end"))
    of_table = tuple(arg for arg in operands if arg.name in ("block_table", "row_to_request"))
    lines, sizes = dispatch.sizes(operands)
    lines += dispatch.scalars(entry)
    lines.append(WHOLE_TABLE.format(page_size=spec.page_size, topk=k))
    cut = RUNS.format(
        fill=fill, shortest=SHORTEST_RUN * k, whole=stream_select.ROUND, most=2 * fill
    )
    lines.append(cut)
    numbers = (*sizes, "columns", "page_stride", "num_pages", "skip", "runs", "per_run", "ids")
    lines += [
        dispatch.dispatch("kept", name, "%rows, %runs", operands, numbers, dispatch.shaped(kept)),
        dispatch.dispatch(
            "chosen",
            f"{entry.name}_rank",
            "%rows, %runs",
            (kept, *of_rows, *of_table),
            ("rows", "runs", "columns", "ids", *ids.numbers, "per_run"),
            dispatch.shaped(entry.outputs[0]),
        ),
        f"util.return %chosen : {entry.outputs[0]}",
    ]
    return "\n".join(
        [
            executable(name, target, spec, operands, numbers, ids),
            rank(f"{entry.name}_rank", k, rankers, ids),
            dispatch.pure(entry, lines),
        ]
    )
