# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""xkernels' DSA indexer ops and its dequantising gather (ResearchComputer/xkernels, a009678)."""

from __future__ import annotations

import torch

from dsv4_iree.compat.serve import float_logits, fp4, indexer, ready
from dsv4_iree.errors import ArgumentError


def dsa_indexer_logits(
    q: torch.Tensor,
    k: torch.Tensor,
    weights: torch.Tensor,
    *,
    lengths: torch.Tensor | None = None,
    row_starts: torch.Tensor | None = None,
    backend: object = "auto",
) -> torch.Tensor:
    """[T, K] fp32 logits of q [T, H, D] and k [K, D]; -inf outside [start, start + length).

    A length of INT32_MAX is unbounded. bfloat16 runs compiled; float16 and float32 in plain torch.
    `backend` is accepted and not used.
    """
    if weights.dim() == 3:
        weights = weights.squeeze(-1)
    start, end = _window(q.shape[0], k.shape[0], lengths, row_starts, q.device)
    return float_logits(q, k, weights, start, end)


def dsa_indexer_topk(
    q: torch.Tensor,
    k: torch.Tensor,
    weights: torch.Tensor,
    *,
    topk: int,
    lengths: torch.Tensor | None = None,
    row_starts: torch.Tensor | None = None,
    backend: object = "auto",
) -> torch.Tensor:
    """Absolute columns [T, topk] int32, largest logit first, ties by ascending column.

    Where a window holds fewer than topk columns, masked ones follow in ascending order, as there.
    """
    if not 1 <= topk <= k.shape[0]:
        raise ArgumentError(f"topk: expected an int in [1, {k.shape[0]}], got {topk}")
    logits = dsa_indexer_logits(q, k, weights, lengths=lengths, row_starts=row_starts)
    start, end = _window(q.shape[0], k.shape[0], lengths, row_starts, q.device)
    chosen = indexer(q.device, topk=topk).topk(ready(logits), start, end, ids="entry")
    if lengths is None:
        return chosen
    column = torch.arange(k.shape[0], device=q.device)
    masked = (column < start[:, None]) | (column >= end[:, None])
    rest = torch.where(masked, column, k.shape[0]).sort(dim=1).values
    place = torch.arange(topk, device=q.device)
    missing = place - (chosen >= 0).sum(1, keepdim=True)
    return torch.where(missing < 0, chosen, rest.gather(1, missing.clamp(0))).int()


def mxfp4_paged_gather(
    kv_packed: torch.Tensor,
    kv_scale: torch.Tensor,
    block_table: torch.Tensor,
    sel_pos: torch.Tensor,
    *,
    block_size: int,
    group_size: int = 32,
    out_dtype: torch.dtype = torch.bfloat16,
    backend: object = "auto",
) -> torch.Tensor:
    """Dequantised entries [S, topk, D] of the positions sel_pos [S, topk].

    Args:
        kv_packed: [NB, P, D/2] uint8.
        kv_scale: [NB, P, D/32] uint8; byte 255 makes its group zero.
        sel_pos: int; a position < 0, past the table or on a page that does not exist gives zeros.
    """
    if group_size != 32:
        raise ArgumentError(f"group_size: expected 32, the group of MXFP4, got {group_size}")
    if kv_packed.shape[1] != block_size:
        raise ArgumentError(f"block_size: expected {kv_packed.shape[1]}, got {block_size}")
    position = sel_pos.long()
    known = (position >= 0) & (position < block_table.shape[1] * block_size)
    position = torch.where(known, position, 0)
    page = block_table.gather(1, position // block_size).long()
    known &= (page >= 0) & (page < kv_packed.shape[0])
    slot = (torch.where(known, page, 0) * block_size + position % block_size).flatten()
    values, scales = fp4("kv_packed", kv_packed.flatten(0, 1)[slot], kv_scale.flatten(0, 1)[slot])
    head_dim = 2 * values.shape[1]
    numbers = indexer(kv_packed.device, head_dim=head_dim).dequantize(
        (values, scales), dtype=torch.float32 if out_dtype is torch.float32 else torch.bfloat16
    )
    void = (scales == 255).repeat_interleave(32, dim=1) | ~known.flatten()[:, None]
    return torch.where(void, 0, numbers).to(out_dtype).view(*sel_pos.shape, head_dim)


def _window(
    rows: int,
    keys: int,
    lengths: torch.Tensor | None,
    row_starts: torch.Tensor | None,
    device: torch.device,
) -> tuple[torch.Tensor, torch.Tensor]:
    """start and end [rows] int32, the sum taken where INT32_MAX lengths cannot wrap."""
    start = torch.zeros(rows, dtype=torch.int64, device=device)
    start = start if row_starts is None else row_starts.long()
    end = torch.full_like(start, keys) if lengths is None else (start + lengths).clamp(max=keys)
    return ready(start, torch.int32), ready(end, torch.int32)
