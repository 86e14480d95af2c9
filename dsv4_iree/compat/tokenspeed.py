# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tokenspeed's DeepSeek-V4 indexer ops: cache writers, gathers, top-k and index translation.

Names and argument order are those of lightseekorg/tokenspeed at f4d8ec6 (deepseek_v4_ops.py and
the CUDA and Triton kernels under it). Caches are N4 and N8 pages [pages, >= P * entry bytes].
"""

from __future__ import annotations

from typing import Any

import torch

from dsv4_iree import reference, windows
from dsv4_iree.compat import keys
from dsv4_iree.compat.serve import FLOATS, float_logits, indexer, made_queries, ready, select
from dsv4_iree.errors import ArgumentError
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import Format, IndexerSpec


def deepseek_v4_prepare_indexer_q_mxfp4(
    index_q: torch.Tensor,
    positions: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    weights: torch.Tensor,
    softmax_scale: float,
    head_scale: float,
) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    """RoPE, Hadamard and profile D: (uint8 bytes [T, H, D/2], int32 scales [T, H]) and fp32 weights
    [T, H] times both factors. bf16 after each step."""
    weights = weights.squeeze(-1) if weights.dim() == 3 else weights
    factors = (softmax_scale, head_scale)
    (values, scales), folded = made_queries(
        index_q, weights, positions, cos_sin_cache, factors, "bf16", rounding="d", hadamard=True
    )
    return (values, scales.view(torch.int32)[..., 0]), folded


def write_deepseek_v4_indexer_mxfp4_cache(
    index_k: torch.Tensor,
    cache_2d: torch.Tensor,
    slot_mapping: torch.Tensor,
    block_size: int = 64,
) -> None:
    """Quantise keys [n, D] by profile D (amax >= 1e-4, ties toward zero) into their slots; slot < 0
    is skipped and no other byte changes."""
    numbers = {"page_size": block_size, "rounding": "d"}
    served, given, slots = _rows(index_k, cache_2d, slot_mapping, numbers)
    served.write_cache(cache_2d, ready(given if given.dtype in FLOATS else given.float()), slots)


def write_deepseek_v4_indexer_fp8_cache(
    index_k: torch.Tensor,
    cache_2d: torch.Tensor,
    slot_mapping: torch.Tensor,
    block_size: int = 64,
) -> None:
    """The same as FP8 with one power-of-two scale a key, quantised in torch: the scale before it is
    rounded up is at least 1e-10, where the quantiser of this package takes an amax of 1e-4."""
    numbers = {"page_size": block_size, "format": "fp8", "layout": "n8"}
    served, given, slots = _rows(index_k, cache_2d, slot_mapping, numbers)
    values, scales = keys.scaled_fp8(
        given.float(), Format.FP8, 448.0, power_of_two=True, smallest=448e-10
    )
    served.write_cache(cache_2d, (values.view(torch.uint8), scales), slots)


def indexer_mxfp4_paged_gather(
    kv_cache: torch.Tensor,
    values_out: torch.Tensor,
    scales_out: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    cache_block_size: int,
) -> None:
    """Copy the raw bytes of requests' entries, one after the other, into [rows, 64] and [rows, 4].

    Rows from cu_seq_lens[-1] on stay as they are.
    """
    rows = values_out.shape[0]
    request, entry = windows.from_cu_seqlens(ready(cu_seq_lens, torch.int32), rows)
    head_dim = values_out.shape[1] * 2
    served = indexer(kv_cache.device, head_dim=head_dim, page_size=cache_block_size)
    found = served.gather_cache(
        kv_cache, ready(block_table, torch.int32), ready(request), ready(entry)
    )
    for out, got in zip((values_out, scales_out), found):
        out.copy_(torch.where(entry[:, None] >= 0, got, out))


def deepseek_v4_gather_indexer_mxfp4_cache(
    cache: torch.Tensor, slot_mapping: torch.Tensor, block_size: int = 64
) -> tuple[torch.Tensor, torch.Tensor]:
    """Raw bytes [n, D/2] and [n, D/32] of the slots; slot < 0 gives zeros."""
    head_dim = cache.shape[1] // block_size * 32 // 17
    served = indexer(cache.device, head_dim=head_dim, page_size=block_size)
    table = torch.arange(cache.shape[0], dtype=torch.int32, device=cache.device)[None]
    slots = ready(slot_mapping, torch.int32)
    values, scales = served.gather_cache(cache, table, torch.zeros_like(slots), slots)
    return values, scales


def gather_paged_indexer_fp8_cache(
    cache_2d: torch.Tensor,
    page_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    block_size: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys float8_e4m3fn [N, 128] and scales fp32 [N] of all requests' entries, in order.

    Reads cu_seq_lens[-1] on the host for the size of the result, as the original does.
    """
    rows = int(cu_seq_lens[-1])
    request, entry = windows.from_cu_seqlens(ready(cu_seq_lens, torch.int32), rows)
    served = indexer(cache_2d.device, page_size=block_size, format="fp8", layout="n8")
    values, scales = served.gather_cache(
        cache_2d, ready(page_table, torch.int32), ready(request), ready(entry)
    )
    return values.view(torch.float8_e4m3fn), scales


def persistent_topk(
    logits: torch.Tensor,
    lengths: torch.Tensor,
    output: torch.Tensor,
    workspace: torch.Tensor | None,
    k: int,
    max_seq_len: int,
    q_len_per_req: int = 1,
) -> None:
    """Ids of the k largest logits before each row's length, then -1, into output [T, k].

    Ids are best first, a choice among the orders the original allows. `lengths` has one entry a
    row, or one a request, of whose q_len_per_req rows row n sees q_len_per_req - 1 - n fewer.
    `workspace` and `max_seq_len` are accepted and not used.
    """
    if lengths.shape[0] != logits.shape[0]:
        lengths = windows.from_context_lens(ready(lengths, torch.int32), q_len_per_req)
    output.copy_(select(logits, k, None, lengths))


def indexer_topk_prefill(
    logits: torch.Tensor,
    row_starts: torch.Tensor,
    row_ends: torch.Tensor,
    output: torch.Tensor,
    k: int,
) -> None:
    """Ids relative to row_starts of the k largest logits in each window, then -1."""
    output.copy_(select(logits, k, row_starts, row_ends))


def cute_dsl_decode_topk(
    logits: torch.Tensor,
    seq_lens: torch.Tensor,
    topk: int,
    next_n: int,
    out: torch.Tensor,
) -> None:
    """`persistent_topk` with one length a request; row n sees next_n - 1 - n entries fewer."""
    persistent_topk(logits, seq_lens, out, None, topk, logits.shape[1], next_n)


def _indexer_topk_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    weights: torch.Tensor,
    top_k: int,
    lengths: torch.Tensor | None = None,
    row_starts: torch.Tensor | None = None,
) -> torch.Tensor:
    """Absolute columns [T, top_k] of unquantised scores; masked columns, lowest first, follow the
    visible ones where a window holds fewer than top_k. Without lengths every column is visible."""
    weights = weights.squeeze(-1) if weights.dim() == 3 else weights
    start = torch.zeros(q.shape[0], dtype=torch.int32, device=q.device)
    end = torch.full_like(start, k.shape[0])
    if lengths is not None:
        start = start if row_starts is None else row_starts.to(torch.int32)
        end = (start.long() + lengths).clamp(max=k.shape[0]).to(torch.int32)
    logits = float_logits(q, k, weights, ready(start), ready(end))
    return logits.argsort(dim=1, descending=True, stable=True)[:, :top_k].int()


def compute_global_topk_indices_and_lens(
    topk_indices: torch.Tensor,
    token_to_req_indices: torch.Tensor,
    block_table: torch.Tensor,
    block_size: int,
    is_valid_token: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Physical slots of row-local ids [T, k] (-1 stays -1), and how many are valid in each row."""
    spec = IndexerSpec(page_size=block_size)
    start = torch.zeros_like(token_to_req_indices, dtype=torch.int32)
    slots = reference.as_ids(
        topk_indices, "slot", start, block_table, token_to_req_indices, spec
    ).int()  # fmt: skip
    lens = ((topk_indices >= 0).sum(1) * is_valid_token).int()
    return slots, lens


def _rows(
    index_k: torch.Tensor,
    cache_2d: torch.Tensor,
    slot_mapping: torch.Tensor,
    numbers: dict[str, Any],
) -> tuple[Indexer, torch.Tensor, torch.Tensor]:
    """The writer of a cache, keys [n, D] and their slots; as there, padded slots are ignored."""
    if index_k.dim() != 2:
        raise ArgumentError(f"index_k: expected shape [tokens, D], got {list(index_k.shape)}")
    rows = min(index_k.shape[0], slot_mapping.numel())
    slots = ready(slot_mapping.flatten()[:rows], torch.int64)
    served = indexer(cache_2d.device, head_dim=index_k.shape[1], **numbers)
    return served, index_k[:rows], slots
