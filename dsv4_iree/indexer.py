# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The indexer's ops on torch tensors: check, then run the compiled form or the reference."""

from __future__ import annotations

import torch

from dsv4_iree import checks, reference
from dsv4_iree.cache_ops import CacheOps
from dsv4_iree.calls import Call, named, page_scalars
from dsv4_iree.checks import Quantized, Vectors
from dsv4_iree.errors import check_range
from dsv4_iree.formats import exact
from dsv4_iree.streaming import functions

IDS = ("relative", "entry", "slot")
PAGED_ROWS = ("q values", "q scales", "weights", "row_to_request", "start", "end", "out")


class Indexer(CacheOps):
    """The ops of one spec on one device. Build it with `load`.

    Letters: T query rows, B requests, W pages per request, K keys; H, D, P and k as in the spec.

    All tensors are contiguous, 64-byte aligned and on the indexer's device; only a cache may have
    a page stride and logits for `topk` a row stride. Queries and keys are pairs (values, scales) as
    `quantize` returns them; in format BF16 they are bfloat16 tensors. A result goes into `out` if
    that is given. `workspace` is scratch memory (uint8, 1-D) in place of the indexer's own, which
    grows to its largest call.

    Every method raises ArgumentError for a wrong shape, dtype, stride or device, and ArtifactError
    if no artifact fits. One indexer serves one thread at a time.
    """

    def mqa_logits(
        self,
        q: Vectors,
        k: Vectors,
        weights: torch.Tensor,
        start: torch.Tensor | None,
        end: torch.Tensor,
        *,
        clean: bool = True,
        out: torch.Tensor | None = None,
        workspace: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """logits[t, j] = sum_h weights[t, h] * relu(q[t, h] . k[j]) for start[t] <= j < end[t].

        Args:
            q: T x H quantised vectors. FP8 query scales are applied here, do not fold them in.
            k: K quantised vectors.
            weights: [T, H] float32, all other factors folded in, any sign.
            start, end: [T] int32 window of each row, empty if end <= start; None starts at 0.
            clean: whether columns outside the window become -inf; else `out` keeps them.

        Returns:
            [T, K] float32.
        """
        self._require("mqa_logits")
        spec, device = self.spec, self.device
        queries = checks.vectors("q", q, ("T", spec.num_heads), spec, device)
        keys = checks.vectors("k", k, ("K",), spec, device)
        rows, width = queries[0].shape[0], keys[0].shape[0]
        checks.head_weights(weights, rows, spec, device)
        start, end = checks.window(start, end, rows, device)
        logits = checks.logits_output(out, rows, width, clean, device)
        if self._caller is None:
            numbers = (exact(queries, spec), exact(keys, spec))
            scored = reference.mqa_logits(*numbers, weights, start, end)
            return _fill_window(logits, scored, start, end, clean)
        inputs = {
            **named("q", queries),
            **named("k", keys),
            "weights": weights,
            "start": start,
            "end": end,
        }
        by_rows = ("q", "q values", "q scales", "weights", "start", "end", "out")
        outputs, scores = {"out": logits}, logits.numel()
        call = Call("mqa_logits", "mqa_logits", inputs, outputs, (int(clean),), by_rows, scores)
        if scores:
            self._caller.run(call, workspace)
        return logits

    def paged_mqa_logits(
        self,
        q: Quantized,
        weights: torch.Tensor,
        cache: torch.Tensor,
        block_table: torch.Tensor,
        end: torch.Tensor,
        *,
        start: torch.Tensor | None = None,
        row_to_request: torch.Tensor | None = None,
        width: int | None = None,
        clean: bool = True,
        out: torch.Tensor | None = None,
        workspace: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`mqa_logits` over the cached keys of each row's own request; column j is its entry j.

        Entries beyond the block table, or on a page id outside [0, num_pages), are invisible: -inf.

        Args:
            q, weights, clean: as for `mqa_logits`.
            cache: [num_pages, >= page_bytes] uint8, any page stride.
            block_table: [B, W] int32 page ids; those past a request's end may hold anything.
            start, end: [T] int32 window of each row in entries of its request; start 0 if None.
            row_to_request: [T] int32; None: T / B consecutive rows per request (next_n).
            width: columns of the result; None: as `out`, else W * P.

        Returns:
            [T, width] float32.
        """
        self._require("paged_mqa_logits")
        spec = self.spec
        args = checks.paged(
            q, weights, cache, block_table, row_to_request, start, end, spec, self.device
        )
        if self.validate:
            checks.windows_are_valid(args, spec)
        if width is None:
            width = block_table.shape[1] * spec.page_size if out is None else out.shape[-1]
        check_range("width", width, 0, 2**31 - 1)
        logits = checks.logits_output(out, args.rows, width, clean, self.device)
        if self._caller is None or not args.has_keys:
            scored = reference.paged_mqa_logits(
                exact(args.queries, spec),
                args.weights,
                args.pages,
                *args.table,
                args.start,
                args.end,
                width=width,
                spec=spec,
            )
            return _fill_window(logits, scored, args.start, args.end, clean)
        scalars = (*page_scalars(args.pages), int(clean))
        call = Call(
            "paged_mqa_logits",
            "paged_mqa_logits",
            args.inputs(),
            {"out": logits},
            scalars,
            PAGED_ROWS,
            logits.numel(),
        )
        if logits.numel():
            self._caller.run(call, workspace)
        return logits

    def topk(
        self,
        logits: torch.Tensor,
        start: torch.Tensor | None,
        end: torch.Tensor,
        *,
        sorted: bool = True,
        ids: str = "relative",
        block_table: torch.Tensor | None = None,
        row_to_request: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        workspace: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Columns of the k largest logits in each row's window: [T, k] int32.

        Largest first; equal logits (and +0, -0): lowest column first. NaN and -inf are never
        selected; -1 once nothing else is left. Nothing outside the window is looked at.

        Args:
            logits: [T, N] float32 or bfloat16; rows may be further apart than N (a slice of the
                first columns).
            start, end: [T] int32 window of each row; None starts at 0.
            sorted: False gives the same columns in ascending order, which saves CPUs the sort.
            ids: "relative" to the window's start, "entry" for columns, or "slot" of the cache
                (page id * P + offset) of the entry with the column's number; -1 in the place of
                those without a page: beyond the table, of an unknown request, on a negative page.
            block_table, row_to_request: for slots, as in `paged_mqa_logits`.
        """
        device = self.device
        strided = checks.strided_logits(logits, device)
        checks.choice("ids", ids, IDS)
        rows = logits.shape[0]
        start, end = checks.window(start, end, rows, device)
        table: dict[str, torch.Tensor] = {}
        if ids == "slot":
            tensors = checks.table(block_table, row_to_request, rows, device)
            table = dict(zip(("block_table", "row_to_request"), tensors))
        chosen = checks.output("out", out, (rows, self.spec.topk), torch.int32, device)
        inputs = {"logits": strided, "start": start, "end": end, **table}
        if self._caller is None or not all(tensor.numel() for tensor in inputs.values()):
            found = reference.topk(logits, self.spec.topk, start, end, sorted=sorted)
            tables = (table.get("block_table"), table.get("row_to_request"))
            return chosen.copy_(reference.as_ids(found, ids, start, *tables, self.spec))
        entry = "topk_slots" if table else "topk"
        if logits.dtype is torch.bfloat16:
            entry += "_bf16"
        page_size = (self.spec.page_size,) if table else ()
        scalars = (logits.shape[1], IDS.index(ids), *page_size, int(sorted))
        by_rows = ("logits", "start", "end", "row_to_request", "out")
        call = Call("topk", entry, inputs, {"out": chosen}, scalars, by_rows)
        self._caller.run(call, workspace)
        return chosen

    def index_topk(
        self,
        q: Quantized,
        weights: torch.Tensor,
        cache: torch.Tensor,
        block_table: torch.Tensor,
        end: torch.Tensor,
        *,
        start: torch.Tensor | None = None,
        row_to_request: torch.Tensor | None = None,
        skip_short: bool = True,
        ids: str = "relative",
        streaming: bool | None = None,
        out: torch.Tensor | None = None,
        workspace: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`topk` of `paged_mqa_logits` in one call: [T, k] int32; takes what they take.

        Args:
            skip_short: a window of at most k entries is not ranked by score: the answer is its
                visible entries in ascending order, then -1. Without it the set is the same, but
                for entries whose logit is NaN or -inf.
            ids: "relative" to the window's start, "entry" of the request, or "slot" of the cache
                (page id * P + offset).
            streaming: True keeps the best of a row while it is scored, False writes its logits to
                the workspace first; None takes what is faster (`streaming.is_faster`), or what a
                given workspace has room for. The ids are the same.
        """
        self._require("index_topk")
        spec = self.spec
        args = checks.paged(
            q, weights, cache, block_table, row_to_request, start, end, spec, self.device
        )
        checks.choice("ids", ids, IDS)
        checks.choice("streaming", streaming, (None, True, False))
        if self.validate:
            checks.windows_are_valid(args, spec)
        chosen = checks.output("out", out, (args.rows, spec.topk), torch.int32, self.device)
        if self._caller is None or not args.has_keys:
            found = reference.index_topk(
                exact(args.queries, spec),
                args.weights,
                args.pages,
                *args.table,
                args.start,
                args.end,
                spec=spec,
                skip_short=skip_short,
            )
            return chosen.copy_(reference.as_ids(found, ids, args.start, *args.table, spec))
        scalars = (*page_scalars(args.pages), int(skip_short), IDS.index(ids))
        if args.rows:
            requests, width = args.block_table.shape
            module, table = self._caller.module("index_topk"), (requests, width * spec.page_size)
            entry, other = functions(module, args.rows, table, spec.topk, streaming)
            outputs = {"out": chosen}
            call = Call("index_topk", entry, args.inputs(), outputs, scalars, PAGED_ROWS, 0, other)
            self._caller.run(call, workspace)
        return chosen


def _fill_window(
    logits: torch.Tensor, scored: torch.Tensor, start: torch.Tensor, end: torch.Tensor, clean: bool
) -> torch.Tensor:
    """Put `scored` into `logits`: everywhere, or inside the windows alone."""
    if clean:
        return logits.copy_(scored)
    column = torch.arange(logits.shape[1], device=logits.device)
    inside = (column >= start[:, None]) & (column < end[:, None])
    return logits.copy_(torch.where(inside, scored, logits))
