# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exact top-k without a sort, and scoring with selection in one module.

The k-th largest logit is found by bisecting the order-preserving 32-bit key, one bit per pass;
what lies above it, and the first of what equals it, are placed by a running count and then ranked
by comparing each with each.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dsv4_iree.kernels.cache import visible_pages
from dsv4_iree.kernels.entry import Arg, Entry
from dsv4_iree.kernels.logits import WINDOW, PagedLogits, paged_inputs
from dsv4_iree.spec import IndexerSpec

LOWEST = -(2**31)  # below the key of every float
INF = 0x7F800000  # key of infinity
TABLE = (
    Arg("block_table", torch.int32, ("B", "W")),
    Arg("row_to_request", torch.int32, ("T",)),
)


class TopK(nn.Module):
    """ids [T, k] int32 of the k largest logits in each window.

    Of a row only the first `columns` logits are used. `ids`: 0 from the window's start, 1 columns.
    Largest first if `sorted`, else lowest column first.
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(
        self,
        logits: Tensor,
        start: Tensor,
        end: Tensor,
        columns: Tensor,
        ids: Tensor,
        sorted: Tensor,
    ) -> Tensor:
        last = torch.minimum(end.to(torch.int64), columns)
        chosen = self.columns(logits, start, last, sorted)
        base = torch.where(ids.to(torch.int32) > 0, 0, start.clamp(min=0))
        return torch.where(chosen < 0, -1, chosen - base[:, None])

    def columns(
        self, logits: Tensor, start: Tensor, end: Tensor, sorted: Tensor | None = None
    ) -> Tensor:
        """Columns [T, k], best first or in ascending order, -1 once nothing is left."""
        column = torch.arange(logits.shape[1], dtype=torch.int32)
        inside = (column >= start[:, None]) & (column < end[:, None])
        key = _ordered(logits)
        eligible = inside & (key > -INF) & (key <= INF)  # neither -inf nor NaN
        key = torch.where(eligible, key, LOWEST)
        kth = self._kth_largest(key)[:, None]
        above = key > kth
        equal = (key == kth) & eligible
        room = self.k - above.sum(1, dtype=torch.int32)[:, None]
        taken = above | (equal & (_running_count(equal) <= room))
        if sorted is not None:
            key = torch.where(sorted.to(torch.int32) > 0, key, 0)  # then places decide
        return self._ranked(key, taken)

    def _kth_largest(self, key: Tensor) -> Tensor:
        """The largest value that at least k keys reach; LOWEST if there are fewer."""
        kth = torch.full((key.shape[0],), LOWEST, dtype=torch.int32)
        for bit in range(31, -1, -1):
            # Unsigned bits over a signed key: setting bit 31 means going from LOWEST to 0.
            candidate = torch.zeros_like(kth) if bit == 31 else kth + (1 << bit)
            reached = (key >= candidate[:, None]).sum(1, dtype=torch.int32)
            kth = torch.where(reached >= self.k, candidate, kth)
        return kth

    def _ranked(self, key: Tensor, taken: Tensor) -> Tensor:
        """The taken columns, at most k a row, in order of falling key; -1 after them."""
        rows, columns = taken.shape
        slot = torch.where(taken, _running_count(taken) - 1, self.k).to(torch.int64)
        column = torch.arange(columns, dtype=torch.int32).expand(rows, columns)
        packed = torch.full((rows, self.k + 1), -1, dtype=torch.int32).scatter(1, slot, column)
        packed = packed[:, : self.k]
        keys = torch.where(packed < 0, LOWEST, key.gather(1, packed.clamp(min=0).to(torch.int64)))
        order = torch.arange(self.k)
        before = (keys[:, :, None] > keys[:, None, :]) | (
            (keys[:, :, None] == keys[:, None, :]) & (order[:, None] < order[None, :])
        )
        rank = before.sum(1, dtype=torch.int32)
        at = rank[:, :, None] == order.to(torch.int32)[None, None, :]
        return torch.where(at, packed[:, :, None], 0).sum(1, dtype=torch.int32)


class TopKSlots(nn.Module):
    """The same as slots of a cache (2), -1 for those without a page."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.topk = TopK(k)

    def forward(
        self,
        logits: Tensor,
        start: Tensor,
        end: Tensor,
        block_table: Tensor,
        row_to_request: Tensor,
        columns: Tensor,
        ids: Tensor,
        page_size: Tensor,
        sorted: Tensor,
    ) -> Tensor:
        last = torch.minimum(end.to(torch.int64), columns)
        chosen = self.topk.columns(logits, start, last, sorted)
        return _slots(chosen, block_table, row_to_request, page_size)


class Slots(nn.Module):
    """Chosen columns as slots of a cache."""

    def forward(
        self,
        chosen: Tensor,
        block_table: Tensor,
        row_to_request: Tensor,
        page_size: Tensor,
    ) -> Tensor:
        return _slots(chosen, block_table, row_to_request, page_size)


class IndexTopK(nn.Module):
    """Score and select; the logits live in the workspace."""

    def __init__(self, spec: IndexerSpec) -> None:
        super().__init__()
        self.spec = spec
        self.logits, self.select = PagedLogits(spec), SelectTopK(spec)

    def forward(
        self,
        q_values: Tensor,
        q_scales: Tensor,
        weights: Tensor,
        cache: Tensor,
        block_table: Tensor,
        row_to_request: Tensor,
        start: Tensor,
        end: Tensor,
        page_stride: Tensor,
        num_pages: Tensor,
        skip_short: Tensor,
        ids: Tensor,
    ) -> Tensor:
        width = block_table.shape[1] * self.spec.page_size
        scored, _ = self.logits.scores(
            q_values, q_scales, weights, cache, block_table, row_to_request,
            width, page_stride, num_pages,
        )  # fmt: skip
        chosen: Tensor = self.select(
            scored, block_table, row_to_request, start, end, num_pages, skip_short, ids
        )
        return chosen


class SelectTopK(nn.Module):
    """The selecting half of `IndexTopK`: from logits of whole sequences [T, W * P] to ids."""

    def __init__(self, spec: IndexerSpec) -> None:
        super().__init__()
        self.ranked, self.topk, self.ids = RankedLogits(spec), TopK(spec.topk), AsIds(spec)

    def forward(
        self,
        logits: Tensor,
        block_table: Tensor,
        row_to_request: Tensor,
        start: Tensor,
        end: Tensor,
        num_pages: Tensor,
        skip_short: Tensor,
        ids: Tensor,
    ) -> Tensor:
        ranked = self.ranked(logits, block_table, row_to_request, start, end, num_pages, skip_short)
        chosen = self.topk.columns(ranked, start, end)
        named: Tensor = self.ids(chosen, block_table, row_to_request, start, ids)
        return named


class RankedLogits(nn.Module):
    """Logits with -inf where nothing is visible.

    `skip_short`: a window of at most k entries is ranked by entry number alone, whatever its
    scores.
    """

    def __init__(self, spec: IndexerSpec) -> None:
        super().__init__()
        self.spec = spec

    def forward(
        self,
        logits: Tensor,
        block_table: Tensor,
        row_to_request: Tensor,
        start: Tensor,
        end: Tensor,
        num_pages: Tensor,
        skip_short: Tensor,
    ) -> Tensor:
        width = logits.shape[1]
        _, visible = visible_pages(
            block_table,
            row_to_request.to(torch.int64)[:, None],
            torch.arange(width),
            num_pages,
            self.spec.page_size,
        )
        # In int64: end - start of an "unbounded" INT32_MAX window wraps.
        length = end.to(torch.int64) - start.clamp(min=0).to(torch.int64)
        short = (length <= self.spec.topk) & (skip_short > 0)
        by_number = -torch.arange(width).to(torch.float32)
        ranked = torch.where(short[:, None], by_number, logits)
        return torch.where(visible, ranked, float("-inf"))


class AsIds(nn.Module):
    """Chosen columns as ids: 0 entries relative to the window's start, 1 of the sequence, 2 slots.

    Where a column is chosen, it is visible: its request and page are in range.
    """

    def __init__(self, spec: IndexerSpec) -> None:
        super().__init__()
        self.page_size = spec.page_size

    def forward(
        self, chosen: Tensor, block_table: Tensor, row: Tensor, start: Tensor, ids: Tensor
    ) -> Tensor:
        page_size, width, kind = self.page_size, block_table.shape[1], ids.to(torch.int32)
        entry = chosen.clamp(min=0)
        request = row.clamp(min=0, max=block_table.shape[0] - 1)
        at = request[:, None].to(torch.int64) * width + (entry // page_size).to(torch.int64)
        slot = block_table.flatten()[at] * page_size + entry % page_size
        relative = entry - start.clamp(min=0)[:, None]
        result = torch.where(kind == 2, slot, torch.where(kind == 1, entry, relative))
        return torch.where(chosen < 0, -1, result)


def topk_entries(spec: IndexerSpec) -> tuple[Entry, ...]:
    out, k, entries = _indices(spec), spec.topk, []
    for suffix, dtype in (("", torch.float32), ("_bf16", torch.bfloat16)):
        rows = (Arg("logits", dtype, ("T", "S")), *WINDOW)
        entries += [
            Entry(f"topk{suffix}", TopK(k), rows, (out,), ("columns", "ids", "sorted")),
            Entry(
                f"topk_slots{suffix}",
                TopKSlots(k),
                (*rows, *TABLE),
                (out,),
                ("columns", "ids", "page_size", "sorted"),
            ),
        ]
    return tuple(entries)


def index_topk_entries(spec: IndexerSpec) -> tuple[Entry, ...]:
    out = Arg("indices", torch.int32, ("T", spec.topk))
    scalars = ("page_stride", "num_pages", "skip_short", "ids")
    return (
        Entry("index_topk", IndexTopK(spec), paged_inputs(spec), (out,), scalars),
        # The same without logits in memory, where a target has a kernel for it.
        Entry("index_topk_streaming", None, paged_inputs(spec), (out,), scalars),
    )


def select_entry(spec: IndexerSpec) -> Entry:
    """Selection alone, to be called with the logits of a hand-written kernel."""
    inputs = (Arg("logits", torch.float32, ("T", "N")), *_rows(spec, "start", "end"))
    scalars = ("num_pages", "skip_short", "ids")
    return Entry("index_topk_select", SelectTopK(spec), inputs, (_indices(spec),), scalars)


def ranked_entry(spec: IndexerSpec) -> Entry:
    """What goes before a hand-written selection."""
    logits = Arg("logits", torch.float32, ("T", "N"))
    inputs, scalars = (logits, *_rows(spec, "start", "end")), ("num_pages", "skip_short")
    return Entry("index_topk_ranked", RankedLogits(spec), inputs, (logits,), scalars)


def ids_entry(spec: IndexerSpec) -> Entry:
    """What goes after it."""
    inputs = (Arg("chosen", torch.int32, ("T", spec.topk)), *_rows(spec, "start"))
    return Entry("index_topk_ids", AsIds(spec), inputs, (_indices(spec),), ("ids",))


def slots_entry(spec: IndexerSpec) -> Entry:
    """What goes after a hand-written selection of columns, for slots."""
    chosen = Arg("chosen", torch.int32, ("T", spec.topk))
    return Entry("topk_as_slots", Slots(), (chosen, *TABLE), (_indices(spec),), ("page_size",))


def _rows(spec: IndexerSpec, *windows: str) -> tuple[Arg, ...]:
    known = ("block_table", "row_to_request", *windows)
    return tuple(arg for arg in paged_inputs(spec) if arg.name in known)


def _indices(spec: IndexerSpec) -> Arg:
    return Arg("indices", torch.int32, ("T", spec.topk))


def _slots(chosen: Tensor, block_table: Tensor, row: Tensor, page_size: Tensor) -> Tensor:
    """Columns as page * page_size + offset; -1 stays, and is what has no page in the table."""
    requests, width = block_table.shape
    entry = chosen.clamp(min=0).to(torch.int64)
    request, page_at = row.to(torch.int64)[:, None], entry // page_size
    known = (request >= 0) & (request < requests) & (page_at < width) & (chosen >= 0)
    at = torch.where(known, request * width + page_at, 0)
    page = block_table.flatten()[at]
    slot = page.to(torch.int64) * page_size + entry % page_size
    return torch.where(known & (page >= 0), slot, -1).to(torch.int32)


def _ordered(logits: Tensor) -> Tensor:
    """int32 keys that compare like the floats; +0 and -0 are one key, subnormals keep theirs."""
    if logits.dtype is torch.bfloat16:
        bits = logits.view(torch.int16).to(torch.int32) << 16
    else:
        bits = logits.view(torch.int32)
    return torch.where(bits < 0, LOWEST - bits, bits)


def _running_count(mask: Tensor) -> Tensor:
    return torch.cumsum(mask.to(torch.int32), dim=1, dtype=torch.int32)
