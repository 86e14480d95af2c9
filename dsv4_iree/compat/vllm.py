# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's indexer query, cache and top-k ops, and its ROCm sparse indexer
(rocm_aiter_mla_sparse.py).

The NVIDIA scorers vLLM calls are DeepGEMM's: see `compat.deepgemm`.
"""

from __future__ import annotations

from typing import Any

import torch

from dsv4_iree import windows
from dsv4_iree.compat import aiter, keys
from dsv4_iree.compat.serve import FP8, Quantized, made_queries, ready, select
from dsv4_iree.formats import rope
from dsv4_iree.spec import Format

LARGEST = {Format.FP8: 448.0, Format.FP8_FNUZ: 224.0}
"""What vLLM scales the largest number of a vector to: in e4m3fnuz not that dialect's 240."""


def fused_indexer_q_rope_quant(
    positions: torch.Tensor,
    index_q: torch.Tensor,
    index_q_cos_sin_cache: torch.Tensor,
    index_weights: torch.Tensor,
    index_weights_softmax_scale: float,
    index_weights_head_scale: float,
    use_fp4: bool = False,
) -> tuple[torch.Tensor | Quantized, torch.Tensor]:
    """RoPE, bf16, quantise: FP4 bytes [T, H, D/2] and int32 scales [T, H], or FP8 [T, H, D]; and
    fp32 weights [T, H] with both factors and, in FP8, the query's scale in them.

    FP8 is e4m3fn, but on a gfx942 device e4m3fnuz, as vLLM has it, made in plain torch.
    """
    numbers = {} if use_fp4 else {"format": "fp8", "layout": "n8"}
    factors = (index_weights_softmax_scale, index_weights_head_scale)
    if not use_fp4 and _takes_fnuz(index_q.device):
        x = rope(index_q, positions.long(), index_q_cos_sin_cache).bfloat16().float()
        kind = Format.FP8_FNUZ
        made, factor = keys.scaled_fp8(x, kind, LARGEST[kind], power_of_two=True)
        return made, index_weights.float() * factor * factors[0] * factors[1]
    (values, scales), weights = made_queries(
        index_q, index_weights, positions, index_q_cos_sin_cache, factors, "bf16", **numbers
    )
    if use_fp4:
        return (values, scales.view(torch.int32)[..., 0]), weights
    return values.view(torch.float8_e4m3fn), weights


def indexer_k_quant_and_cache(
    k: torch.Tensor,
    kv_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    quant_block_size: int,
    scale_fmt: str | None,
) -> None:
    """FP8 keys [n, D] into the slots of N8 pages [pages, P, D + 4]; slot < 0 is skipped.

    scale_fmt "ue8m0" rounds the scale up to a power of two. A cache of dtype float8_e4m3fnuz, or of
    bytes on gfx942, takes e4m3fnuz, in plain torch up to the write.
    """
    fnuz = kv_cache.dtype is torch.uint8 and _takes_fnuz(k.device)
    kind = Format.FP8_FNUZ if fnuz else keys.fp8_kind(kv_cache)
    keys.quantize_and_store(
        k,
        kv_cache,
        slot_mapping,
        quant_block_size,
        scale_fmt,
        preshuffle=False,
        kind=kind,
        largest=LARGEST[kind],
    )


def cp_gather_indexer_k_quant_cache(
    kv_cache: torch.Tensor,
    dst_k: torch.Tensor,
    dst_scale: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    token_to_seq: torch.Tensor | None = None,
) -> None:
    """Raw entries of requests, one after the other: FP8 [N, 128] and [N, 4] bytes, or MXFP4 [N, 64]
    and [N, 4]. `token_to_seq` follows from cu_seq_lens and is not read."""
    keys.gather(kv_cache, dst_k, dst_scale, block_table, cu_seq_lens)


def rocm_fp8_mqa_logits(
    q: torch.Tensor,
    kv: Quantized,
    weights: torch.Tensor,
    cu_seqlen_ks: torch.Tensor,
    cu_seqlen_ke: torch.Tensor,
) -> torch.Tensor:
    """[M, N] fp32 logits of FP8 q [M, H, D] and kv ([N, D], fp32 [N]); -inf outside the window."""
    return aiter.fp8_mqa_logits(q, *kv, weights, cu_seqlen_ks, cu_seqlen_ke)


def rocm_fp8_paged_mqa_logits(
    q_fp8: torch.Tensor,
    kv_cache_fp8: torch.Tensor,
    weights: torch.Tensor,
    context_lens: torch.Tensor,
    block_tables: torch.Tensor,
    schedule_metadata: torch.Tensor | None,
    max_model_len: int,
) -> torch.Tensor:
    """[B * next_n, max_model_len] fp32 logits; -inf past a row's keys.

    As vLLM on ROCm has it, pages of 64 entries are in AITER's preshuffled layout (P8), others N8.
    """
    page_size = kv_cache_fp8.shape[1]
    rows = q_fp8.shape[0] * q_fp8.shape[1]
    logits = torch.full((rows, max_model_len), float("-inf"), device=q_fp8.device)
    aiter.deepgemm_fp8_paged_mqa_logits(
        q_fp8,
        kv_cache_fp8,
        weights,
        logits,
        context_lens,
        block_tables,
        max_model_len,
        Preshuffle=page_size == 64,
        KVBlockSize=page_size,
    )
    return logits


def top_k_per_row_prefill(
    logits: torch.Tensor,
    cu_seqlen_ks: torch.Tensor,
    cu_seqlen_ke: torch.Tensor,
    indices: torch.Tensor,
    num_rows: int,
    stride0: int,
    stride1: int,
    topk_tokens: int,
) -> None:
    """Ids relative to cu_seqlen_ks of the largest logits in each window, then -1."""
    window = (cu_seqlen_ks[:num_rows], cu_seqlen_ke[:num_rows])
    indices[:num_rows, :topk_tokens] = select(logits[:num_rows], topk_tokens, *window)


def top_k_per_row_decode(
    logits: torch.Tensor,
    next_n: int,
    seq_lens: torch.Tensor,
    indices: torch.Tensor,
    num_rows: int,
    stride0: int,
    stride1: int,
    topk_tokens: int,
) -> None:
    """The same for decode rows; seq_lens is [B], the last row's, or [B, next_n]."""
    end = windows.from_context_lens(ready(seq_lens, torch.int32), next_n)[:num_rows]
    indices[:num_rows, :topk_tokens] = select(logits[:num_rows], topk_tokens, None, end)


def fill_short_context_topk_indices(
    topk_indices: torch.Tensor, positions: torch.Tensor, TOP_K: int, COMPRESS_RATIO: int
) -> None:
    """Every complete entry of each position, ascending, then -1: no scoring while all fit in k."""
    end = windows.from_positions(ready(positions), COMPRESS_RATIO)
    column = torch.arange(TOP_K, dtype=torch.int32, device=positions.device)
    topk_indices[: len(end), :TOP_K] = torch.where(column < end[:, None], column, -1)


def rocm_aiter_sparse_attn_indexer(
    hidden_states: torch.Tensor,
    k_cache_prefix: str,
    kv_cache: torch.Tensor,
    q_fp8: torch.Tensor,
    k: torch.Tensor | None,
    weights: torch.Tensor,
    quant_block_size: int,
    scale_fmt: str | None,
    topk_tokens: int,
    head_dim: int,
    max_model_len: int,
    total_seq_lens: int,
    topk_indices_buffer: torch.Tensor,
    skip_k_cache_insert: bool = False,
    *,
    attn_metadata: Any,
    positions: torch.Tensor | None = None,
    compress_ratio: int = 1,
) -> torch.Tensor:
    """One step of vLLM's ROCm indexer: insert k, score, select into topk_indices_buffer.

    Args:
        attn_metadata: vLLM's indexer metadata of this layer, which vLLM takes from its forward
            context: slot_mapping, num_decode_tokens, max_seq_len, decode, prefill.
        positions: raw token positions. With them a batch whose max_seq_len // compress_ratio is at
            most topk_tokens skips scoring: the answer is every complete entry of each token.

    Decode rows come first; those of one request have consecutive rows. A batch whose requests
    have different numbers of decode rows (requires_padding) is scored a row at a time.
    """
    preshuffle = kv_cache.shape[1] == 64
    tokens = hidden_states.shape[0]
    topk_indices_buffer[:tokens] = -1
    if k is not None and not skip_k_cache_insert:
        kind = FP8[q_fp8.dtype]  # the cache may be of plain bytes
        keys.quantize_and_store(
            k,
            kv_cache,
            attn_metadata.slot_mapping,
            quant_block_size,
            scale_fmt,
            preshuffle=preshuffle,
            kind=kind,
            largest=LARGEST[kind],
        )
    if positions is not None and attn_metadata.max_seq_len // compress_ratio <= topk_tokens:
        fill_short_context_topk_indices(
            topk_indices_buffer, positions[:tokens], topk_tokens, compress_ratio
        )
        return topk_indices_buffer
    if attn_metadata.prefill is not None:
        for chunk in attn_metadata.prefill.chunks:
            rows = slice(chunk.token_start, chunk.token_end)
            _prefill_chunk(
                chunk, kv_cache, q_fp8[rows], weights[rows], topk_indices_buffer[rows], topk_tokens
            )
    if attn_metadata.decode is not None:
        _decode_rows(
            attn_metadata, kv_cache, q_fp8, weights, max_model_len, topk_indices_buffer, topk_tokens
        )
    return topk_indices_buffer


def _takes_fnuz(device: torch.device) -> bool:
    """Whether vLLM's FP8 on this device is e4m3fnuz: on gfx942."""
    if device.type != "cuda" or torch.version.hip is None:
        return False
    return "gfx942" in torch.cuda.get_device_properties(device).gcnArchName


def _prefill_chunk(
    chunk: Any,
    kv_cache: torch.Tensor,
    q: torch.Tensor,
    weights: torch.Tensor,
    indices: torch.Tensor,
    topk_tokens: int,
) -> None:
    """Gather the chunk's keys, score its rows over them, select relative to each row's start."""
    gathered = torch.empty(
        chunk.total_seq_lens, q.shape[2], dtype=torch.uint8, device=q.device
    ).view(q.dtype)  # fmt: skip
    scales = torch.empty(chunk.total_seq_lens, 1, device=q.device)
    keys.gather(
        kv_cache,
        gathered,
        scales,
        chunk.block_table,
        chunk.cu_seq_lens,
        preshuffle=kv_cache.shape[1] == 64,
    )
    window = (chunk.cu_seqlen_ks, chunk.cu_seqlen_ke)
    logits = rocm_fp8_mqa_logits(q, (gathered, scales), weights, *window)
    top_k_per_row_prefill(logits, *window, indices, len(q), logits.stride(0), 1, topk_tokens)


def _decode_rows(
    metadata: Any,
    kv_cache: torch.Tensor,
    q: torch.Tensor,
    weights: torch.Tensor,
    max_model_len: int,
    indices: torch.Tensor,
    topk_tokens: int,
) -> None:
    """Score and select the decode rows, next_n to a request or each as a request of its own."""
    rows, decode = metadata.num_decode_tokens, metadata.decode
    table, lens = decode.block_table, decode.seq_lens
    next_n = rows // table.shape[0]
    if decode.requires_padding:
        counts = decode.decode_lens.long()
        request = torch.repeat_interleave(torch.arange(len(counts), device=q.device), counts)
        first = counts.cumsum(0) - counts
        n = torch.arange(rows, device=q.device) - first[request]
        lens = lens[request] - counts[request] + n + 1
        table, next_n = table[request], 1
    cache = kv_cache if kv_cache.dim() == 4 else kv_cache.unsqueeze(2)
    queries = q[:rows].unflatten(0, (-1, next_n))
    logits = rocm_fp8_paged_mqa_logits(
        queries, cache, weights[:rows], lens, table, None, max_model_len
    )
    top_k_per_row_decode(logits, next_n, lens, indices, rows, logits.stride(0), 1, topk_tokens)
