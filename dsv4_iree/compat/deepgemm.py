# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DeepGEMM's attention.hpp: MQA logits, ragged and paged, FP8 and FP4.

Names, argument order and dtypes are those of deepseek-ai/DeepGEMM at 54e2261 and its newer
csrc/apis/attention.hpp. Schedules only divide work there; here they are accepted and not read.
"""

from __future__ import annotations

import torch

from dsv4_iree import windows
from dsv4_iree.compat import mxfp8
from dsv4_iree.compat.serve import (
    FP8,
    Quantized,
    first_rows,
    float_logits,
    fp4,
    fp8,
    indexer,
    page_format,
    ready,
)
from dsv4_iree.errors import ArgumentError
from dsv4_iree.spec import Format

Pair = tuple[torch.Tensor, torch.Tensor | None]


def fp8_fp4_mqa_logits(
    q: Pair,
    kv: Quantized,
    weights: torch.Tensor,
    cu_seq_len_k_start: torch.Tensor,
    cu_seq_len_k_end: torch.Tensor,
    clean_logits: bool = True,
    max_seqlen_k: int = 0,
    logits_dtype: torch.dtype = torch.float32,
    schedule_meta: torch.Tensor | None = None,
) -> torch.Tensor:
    """[M, N] logits; columns outside [start, end) are -inf, with clean_logits=False too.

    Args:
        q: FP8 [M, H, D] and None (scale 1), FP4 bytes [M, H, D/2] and int32 scales [M, H], or
            MXFP8: FP8 and int32 scales.
        kv: FP8 [N, D] and fp32 scales [N], FP4 bytes [N, D/2] and int32 scales [N], or, beside
            MXFP8 queries, FP8 and int32 scales.
        weights: [M, H] fp32, or bf16 with bf16 logits.
        max_seqlen_k: if positive the result is [M, max_seqlen_k], column j for key start + j.
        logits_dtype: float32, or bfloat16: the fp32 logits rounded once.
    """
    _dtypes(weights, logits_dtype)
    if max_seqlen_k and clean_logits:
        raise ArgumentError(
            f"clean_logits: expected False with max_seqlen_k={max_seqlen_k}, got True; "
            "columns past a row's window are -inf all the same"
        )
    start, end = (ready(t, torch.int32) for t in (cu_seq_len_k_start, cu_seq_len_k_end))
    mx = _mx_queries(q)
    if mx is None:
        logits = _ragged(q, kv, weights, start, end)
    else:
        k = mxfp8.numbers("kv", *kv)
        logits = float_logits(mxfp8.numbers("q", *mx), k, weights, start, end)
    if max_seqlen_k:
        logits = _compressed(logits, start, end, max_seqlen_k)
    return logits.to(logits_dtype)


def fp8_fp4_paged_mqa_logits(
    q: Pair,
    kv_cache: torch.Tensor,
    weights: torch.Tensor,
    context_lens: torch.Tensor,
    block_table: torch.Tensor,
    schedule_meta: torch.Tensor | None,
    max_context_len: int,
    clean_logits: bool = False,
    logits_dtype: torch.dtype = torch.float32,
    indices: torch.Tensor | None = None,
) -> torch.Tensor:
    """[B * next_n, max_context_len] logits; columns past a row's length are -inf.

    Args:
        q: FP8 [B, next_n, H, D] and None, FP4 bytes [B, next_n, H, D/2] and int32 scales, or
            MXFP8: FP8 and int32 scales.
        kv_cache: [pages, P, 1, 68 or 132 at D = 128] uint8, any page stride; a key's last 4 bytes
            are e8m0 scales beside MXFP8 queries.
        context_lens: int32 [B, next_n], the keys that each row sees; or [B], those of the last
            row, where row n sees next_n - 1 - n fewer.
        block_table: [B, W] int32.
        indices: [B] int32 with next_n = 1; equal neighbours are the rows of one request, which
            reads the block table row of its first.
    """
    _dtypes(weights, logits_dtype)
    batch, next_n = q[0].shape[:2]
    end = windows.from_context_lens(ready(context_lens, torch.int32), next_n)
    request = None if indices is None else first_rows(indices, batch)
    mx = _mx_queries(q)
    if mx is not None:
        page_format(kv_cache, q[0].shape[3], Format.FP8)
        table = block_table if request is None else block_table[request.long()]
        return mxfp8.paged_logits(mx, kv_cache, weights, end, table, max_context_len).to(
            logits_dtype
        )
    queries, kind = _queries(q)
    heads, width = queries[0].shape[2:]
    head_dim = width * 2 if kind is Format.FP4 else width
    served = indexer(
        weights.device, num_heads=heads, **page_format(kv_cache, head_dim, kind)
    )  # fmt: skip
    logits = served.paged_mqa_logits(
        (queries[0].flatten(0, 1), queries[1].flatten(0, 1)),
        ready(weights, torch.float32),
        kv_cache,
        ready(block_table, torch.int32),
        ready(end),
        row_to_request=request,
        width=max_context_len,
    )
    return logits.to(logits_dtype)


def fp8_mqa_logits(
    q: torch.Tensor,
    kv: Quantized,
    weights: torch.Tensor,
    cu_seq_len_k_start: torch.Tensor,
    cu_seq_len_k_end: torch.Tensor,
    clean_logits: bool = True,
    max_seqlen_k: int = 0,
) -> torch.Tensor:
    """The older name: `fp8_fp4_mqa_logits` with FP8 queries of scale 1."""
    window = (cu_seq_len_k_start, cu_seq_len_k_end)
    return fp8_fp4_mqa_logits((q, None), kv, weights, *window, clean_logits, max_seqlen_k)


def fp8_paged_mqa_logits(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    weights: torch.Tensor,
    context_lens: torch.Tensor,
    block_table: torch.Tensor,
    schedule_meta: torch.Tensor | None,
    max_context_len: int,
    clean_logits: bool = False,
) -> torch.Tensor:
    """The older name: `fp8_fp4_paged_mqa_logits` with FP8 queries of scale 1."""
    return fp8_fp4_paged_mqa_logits(
        (q, None),
        kv_cache,
        weights,
        context_lens,
        block_table,
        schedule_meta,
        max_context_len,
        clean_logits,
    )


def get_paged_mqa_logits_metadata(
    context_lens: torch.Tensor,
    block_kv: int,
    num_sms: int,
    indices: torch.Tensor | None = None,
) -> torch.Tensor:
    """[num_sms + 1, 2] int32 in place of a schedule: calls accept it and read nothing in it."""
    return torch.zeros(num_sms + 1, 2, dtype=torch.int32, device=context_lens.device)


def get_mqa_logits_metadata(
    cu_seq_len_k_start: torch.Tensor,
    cu_seq_len_k_end: torch.Tensor,
    num_kv_tokens: int,
    num_heads: int,
) -> torch.Tensor:
    """A 1-D int32 in place of a schedule: `schedule_meta` accepts it and nothing reads it."""
    return torch.zeros(1, dtype=torch.int32, device=cu_seq_len_k_start.device)


def _dtypes(weights: torch.Tensor, logits_dtype: torch.dtype) -> None:
    """DeepGEMM's rule: bf16 weights come with bf16 logits only."""
    if logits_dtype not in (torch.float32, torch.bfloat16):
        raise ArgumentError(f"logits_dtype: expected float32 or bfloat16, got {logits_dtype}")
    allowed = {torch.float32} if logits_dtype is torch.float32 else {torch.float32, logits_dtype}
    if weights.dtype not in allowed:
        raise ArgumentError(
            f"weights: expected dtype float32, or bfloat16 with bfloat16 logits, "
            f"got {weights.dtype} with {logits_dtype} logits"
        )


def _mx_queries(q: Pair) -> Quantized | None:
    """q if it is MXFP8."""
    values, scales = q
    return None if scales is None or values.dtype not in FP8 else (values, scales)


def _queries(q: Pair) -> tuple[Quantized, Format]:
    values, scales = q
    if scales is None:
        return fp8("q", values, None)
    return fp4("q", values, scales), Format.FP4


def _ragged(
    q: Pair, kv: Quantized, weights: torch.Tensor, start: torch.Tensor, end: torch.Tensor
) -> torch.Tensor:
    """[M, N] logits of FP4 or FP8 queries and keys."""
    queries, kind = _queries(q)
    if kind is Format.FP4:
        keys = fp4("kv", *kv)
    else:
        keys, key_kind = fp8("kv", *kv)
        if key_kind is not kind:
            raise ArgumentError(f"kv: expected the dtype of q, {q[0].dtype}, got {kv[0].dtype}")
    _, heads, width = queries[0].shape
    head_dim = width * 2 if kind is Format.FP4 else width
    served = indexer(weights.device, num_heads=heads, head_dim=head_dim, **_natural(kind))
    return served.mqa_logits(queries, keys, ready(weights, torch.float32), start, end)


def _natural(kind: Format) -> dict[str, object]:
    return {"format": kind, "layout": "n4" if kind is Format.FP4 else "n8"}


def _compressed(
    logits: torch.Tensor, start: torch.Tensor, end: torch.Tensor, width: int
) -> torch.Tensor:
    """Row i's columns from start[i] on, -inf past its end."""
    key = start.long().clamp(0)[:, None] + torch.arange(width, device=logits.device)
    if not logits.shape[1]:
        return logits.new_full(key.shape, float("-inf"))
    inside = (key < end[:, None]) & (key < logits.shape[1])
    taken = logits.gather(1, key.clamp(max=logits.shape[1] - 1))
    return torch.where(inside, taken, float("-inf"))
