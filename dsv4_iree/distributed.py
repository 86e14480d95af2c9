# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Top-k over keys that are sharded over ranks (context parallelism).

Each rank holds a run of consecutive entries, `first` being the number of its first one in the whole
sequence, and the same query rows and windows as all others. It selects its own best k; these are
gathered, k * 8 bytes per row and rank, and merged by the same order: every rank returns the ids
that one process with all keys would.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from dsv4_iree import checks
from dsv4_iree.checks import Quantized
from dsv4_iree.errors import check_range, check_tensor
from dsv4_iree.indexer import Indexer

NOTHING = -(2**63)  # below every packed entry


def topk(
    indexer: Indexer,
    logits: torch.Tensor,
    start: torch.Tensor | None,
    end: torch.Tensor,
    *,
    first: int,
    ids: str = "relative",
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """`Indexer.topk` of logits whose columns are sharded: [T, k] int32, the same on all ranks.

    Args:
        logits: [T, N] float32, columns first to first + N; N may differ between ranks.
        start, end: [T] int32 window of each row over the columns of all ranks.
        ids: "relative" to the window's start, or "entry" for columns.
        group: the ranks; None for all.
    """
    checks.choice("ids", ids, ("relative", "entry"))
    check_tensor(
        "logits",
        logits,
        shape=("T", "N"),
        dtype=torch.float32,
        device=indexer.device,
        contiguous=False,
    )
    start, end = checks.window(start, end, logits.shape[0], indexer.device)
    mine = _selected(indexer, logits, start, end, _first(first))
    return _relative(_merged(mine, group), start, ids)


def index_topk(
    indexer: Indexer,
    q: Quantized,
    weights: torch.Tensor,
    cache: torch.Tensor,
    block_table: torch.Tensor,
    end: torch.Tensor,
    *,
    first: int,
    start: torch.Tensor | None = None,
    row_to_request: torch.Tensor | None = None,
    skip_short: bool = True,
    ids: str = "relative",
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """`Indexer.index_topk` of sharded caches: [T, k] int32, the same on all ranks.

    Needs the ops paged_mqa_logits, topk and, to skip short windows, index_topk.

    Args:
        cache, block_table: of this rank; entry j of its table is entry first + j of a request.
        start, end: [T] int32 window of each row over the entries of all ranks.
        ids: "relative" to the window's start, or "entry" of the request.
        group: the ranks; None for all.
    """
    checks.choice("ids", ids, ("relative", "entry"))
    first, k = _first(first), indexer.spec.topk
    start, end = checks.window(start, end, weights.shape[0], indexer.device)
    # In int64: the length of an unbounded window overflows.
    short = (end.long() - start.long().clamp(0) <= k) & skip_short
    width = block_table.shape[1] * indexer.spec.page_size
    shard = (q, weights, cache, block_table)
    scored_end = torch.where(short, start, end)
    here_start, here_end = _window_here(start, scored_end, first, width)
    logits = indexer.paged_mqa_logits(
        *shard, here_end, start=here_start, row_to_request=row_to_request
    )
    mine = _selected(indexer, logits, start, scored_end, first)
    if skip_short:  # no more than k of them lie here, so they are skipped here too
        short_end = torch.where(short, end, start)
        here_start, here_end = _window_here(start, short_end, first, width)
        chosen = indexer.index_topk(
            *shard, here_end, start=here_start, row_to_request=row_to_request, ids="entry"
        )
        by_number = _packed(torch.zeros_like(chosen), chosen, first)
        mine = torch.where(short[:, None], by_number, mine)
    return _relative(_merged(mine, group), start, ids)


def _selected(
    indexer: Indexer, logits: torch.Tensor, start: torch.Tensor, end: torch.Tensor, first: int
) -> torch.Tensor:
    """This rank's best k entries [T, k], packed."""
    here_start, here_end = _window_here(start, end, first, logits.shape[1])
    chosen = indexer.topk(logits, here_start, here_end, ids="entry")
    if not logits.shape[1]:
        return _packed(chosen, chosen, first)
    bits = logits.gather(1, chosen.clamp(min=0).long()).view(torch.int32)
    return _packed(torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits), chosen, first)


def _packed(keys: torch.Tensor, chosen: torch.Tensor, first: int) -> torch.Tensor:
    """int64 in the order of selection: larger key first, then the lower entry number."""
    entry = keys.long() * 2**32 + (2**31 - 1 - (chosen.long() + first))
    return torch.where(chosen < 0, NOTHING, entry)


def _merged(mine: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """Entry numbers [T, k] int32 of the best of all ranks' packed entries; -1 after the last."""
    k = mine.shape[1]
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, mine.contiguous(), group=group)
    best = torch.cat(every, 1).sort(dim=1, descending=True).values[:, :k]
    entry = 2**31 - 1 - (best & (2**32 - 1))
    return torch.where(best == NOTHING, -1, entry).to(torch.int32)


def _window_here(
    start: torch.Tensor, end: torch.Tensor, first: int, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The part of each window that lies in this rank's `width` entries, by their number here."""
    here = ((bound.long() - first).clamp(0, width).to(torch.int32) for bound in (start, end))
    return next(here), next(here)


def _relative(entry: torch.Tensor, start: torch.Tensor, ids: str) -> torch.Tensor:
    if ids == "entry":
        return entry
    return torch.where(entry < 0, -1, entry - start.clamp(min=0)[:, None])


def _first(first: int) -> int:
    check_range("first", first, 0, 2**31 - 1)
    return first
