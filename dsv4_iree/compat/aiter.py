# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""AITER's indexer scorers, top-k and FP8 cache ops (ROCm/aiter, e404860 and later).

Schedules and launch parameters (cta_info, block_k, num_warps, WavePerEU, ...) only divide work
there; here they are accepted and not read. The Gluon scorer is in `compat.aiter_mxfp4`, the
rotate-quantise ops are in `compat.aiter_rotate`.
"""

from __future__ import annotations

import torch

from dsv4_iree import windows as row_windows
from dsv4_iree.compat import keys
from dsv4_iree.compat.serve import filled, fp4, fp8, given, indexer, ready, select
from dsv4_iree.errors import ArgumentError
from dsv4_iree.spec import CacheLayout, Format

Windows = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def flydsl_pa_mqa_logits_fp4(
    q_fp4: torch.Tensor,
    q_scale: torch.Tensor,
    kv_cache: torch.Tensor,
    kv_scale: torch.Tensor,
    block_tables: torch.Tensor,
    weights: torch.Tensor,
    context_lens: torch.Tensor,
    max_seq_len: int,
    *,
    weight_scale: float = 1.0,
    next_n: int = 1,
    block_k: int = 256,
    kv_block_size: int = 64,
    num_warps: int = 4,
    parallel_unit_num: int = 512,
    out: torch.Tensor | None = None,
    cta_info: torch.Tensor | None = None,
    total_ctas: int | None = None,
    stream: object = None,
) -> torch.Tensor:
    """[B * next_n, max_seq_len] fp32 logits of the FlyDSL decode scorer.

    Row n of request b sees keys up to context_lens[b] - next_n + n. Without `out` the rest is -inf;
    with it the rest stays as it is.

    Args:
        q_fp4: [B, next_n, H, D/2] bytes.
        q_scale: [B, next_n, D/128, 4, 16, 4 * ceil(H / 64)] uint8, head h at [h % 16, h // 16].
        kv_cache, kv_scale: F4 pages [pages, D/128, 4, P, 16] and [pages, D/128, 4, P].
        weights: [B * next_n, H], bf16 there; multiplied by weight_scale in fp32.
    """
    if q_fp4.shape[1] != next_n:
        raise ArgumentError(f"next_n: expected {q_fp4.shape[1]} as in q_fp4, got {next_n}")
    end = row_windows.from_context_lens(ready(context_lens, torch.int32), next_n)
    rows = torch.arange(len(end), dtype=torch.int32, device=q_fp4.device) // next_n
    window = (rows, torch.zeros_like(end), end)
    tensors = (q_fp4.flatten(0, 1), q_scale.flatten(0, 1), kv_cache, kv_scale, block_tables)
    return _split(*tensors, weights, window, max_seq_len, weight_scale, kv_block_size, out)


def flydsl_pa_mqa_logits_fp4_prefill(
    q_fp4: torch.Tensor,
    q_scale: torch.Tensor,
    kv_cache: torch.Tensor,
    kv_scale: torch.Tensor,
    block_tables: torch.Tensor,
    weights: torch.Tensor,
    row_to_batch: torch.Tensor,
    local_starts: torch.Tensor,
    local_ends: torch.Tensor,
    max_seq_len: int,
    *,
    weight_scale: float = 1.0,
    block_k: int = 256,
    kv_block_size: int = 64,
    num_warps: int = 4,
    parallel_unit_num: int = 512,
    out: torch.Tensor | None = None,
    cta_info: torch.Tensor | None = None,
    n_ctas: int | None = None,
    stream: object = None,
) -> torch.Tensor:
    """[T, max_seq_len] fp32 logits of the FlyDSL prefill scorer, columns local to each sequence.

    Row t reads the block table row row_to_batch[t] in [local_starts[t], local_ends[t]); the other
    arguments are those of `flydsl_pa_mqa_logits_fp4`, without its request and next_n dims.
    """
    window = (row_to_batch, local_starts, local_ends)
    tensors = (q_fp4, q_scale, kv_cache, kv_scale, block_tables)
    return _split(*tensors, weights, window, max_seq_len, weight_scale, kv_block_size, out)


def flydsl_pa_mqa_logits_fp4_varqlen(
    q_fp4: torch.Tensor,
    q_scale: torch.Tensor,
    kv_cache: torch.Tensor,
    kv_scale: torch.Tensor,
    block_tables: torch.Tensor,
    weights: torch.Tensor,
    max_seq_len: int,
    *,
    cu_seq_q: torch.Tensor | None = None,
    context_lens: torch.Tensor | None = None,
    windows: Windows | None = None,
    weight_scale: float = 1.0,
    block_k: int = 256,
    kv_block_size: int = 64,
    num_warps: int = 4,
    parallel_unit_num: int | None = None,
    out: torch.Tensor | None = None,
    cta_info: torch.Tensor | None = None,
    n_ctas: int | None = None,
    stream: object = None,
) -> torch.Tensor:
    """`flydsl_pa_mqa_logits_fp4_prefill` of decode rows, a number of its own for each request.

    Args:
        windows: what `compute_varqlen_windows` gave; without it cu_seq_q and context_lens, which it
            takes.
    """
    if windows is None:
        if cu_seq_q is None or context_lens is None:
            raise ArgumentError("windows: expected windows, or cu_seq_q and context_lens, got None")
        windows = compute_varqlen_windows(cu_seq_q, context_lens, q_fp4.shape[0])
    tensors = (q_fp4, q_scale, kv_cache, kv_scale, block_tables)
    return _split(*tensors, weights, windows, max_seq_len, weight_scale, kv_block_size, out)


def compute_varqlen_windows(
    cu_seq_q: torch.Tensor, context_lens: torch.Tensor, total_q: int, *, out: Windows | None = None
) -> Windows:
    """Request, start and end of total_q rows, int32: cu_seq_q [B + 1] says where each begins.

    Row n of a request's q rows sees keys up to context_lens - q + n; rows from cu_seq_q[-1] on see
    none. `out` takes the three, in tensors that may be longer.
    """
    first, lens = ready(cu_seq_q, torch.int32), ready(context_lens, torch.int32)
    request, n = row_windows.from_cu_seqlens(first, total_q)
    end = lens[request.long()] - first.diff()[request.long()] + n + 1
    past = n < 0
    request = torch.where(past, len(lens) - 1, request).int()
    end = torch.where(past, 0, end.clamp(min=0)).int()
    made = (request, torch.zeros_like(end), end)
    if out is None:
        return made
    for tensor, part in zip(out, made):
        tensor[:total_q] = part
    return out


def deepgemm_fp8_paged_mqa_logits(
    q_fp8: torch.Tensor,
    kv_cache: torch.Tensor,
    weights: torch.Tensor,
    out_logits: torch.Tensor,
    context_lens: torch.Tensor,
    kv_indices: torch.Tensor,
    max_model_len: int,
    Preshuffle: bool = False,
    KVBlockSize: int = 1,
    ChunkK: int = 256,
    TotalCuCount: int | None = None,
    WavePerEU: int = 2,
    VarCtxSchedule: torch.Tensor | None = None,
) -> None:
    """FP8 logits into out_logits [B * next_n, >= max_model_len]; columns past a row's keys stay.

    Args:
        q_fp8: [B, next_n, H, D], its scale folded into weights.
        kv_cache: [pages, P, 1, D + 4], P = KVBlockSize; P8 pages with Preshuffle.
        context_lens: [B]; row n sees keys up to context_lens - next_n + n.
        kv_indices: [B, W] block table.
    """
    if kv_cache.shape[1] != KVBlockSize:
        raise ArgumentError(f"KVBlockSize: expected {kv_cache.shape[1]}, got {KVBlockSize}")
    queries, kind = fp8("q_fp8", q_fp8.flatten(0, 1), None)
    out, copied = filled(out_logits, max_model_len)
    served = indexer(
        q_fp8.device,
        num_heads=q_fp8.shape[2],
        head_dim=q_fp8.shape[3],
        page_size=KVBlockSize,
        format=kind,
        layout=CacheLayout.P8 if Preshuffle else CacheLayout.N8,
    )
    logits = served.paged_mqa_logits(
        queries,
        ready(weights, torch.float32),
        keys.pages(kv_cache),
        ready(kv_indices, torch.int32),
        ready(row_windows.from_context_lens(ready(context_lens, torch.int32), q_fp8.shape[1])),
        clean=False,
        out=out,
    )
    given(out_logits, logits, copied)


def fp8_mqa_logits(
    Q: torch.Tensor,
    KV: torch.Tensor,
    kv_scales: torch.Tensor,
    weights: torch.Tensor,
    cu_starts: torch.Tensor,
    cu_ends: torch.Tensor,
    clean_logits: bool = True,
) -> torch.Tensor:
    """[M, N] fp32 logits of FP8 Q [M, H, D] and KV [N, D]; -inf outside [start, end).

    Where one operand is e4m3fn and the other e4m3fnuz, the first is converted, exactly.
    """
    (queries, kind), (vectors, key_kind) = fp8("Q", Q, None), fp8("KV", KV, kv_scales)
    if kind is not key_kind:
        kind = Format.FP8_FNUZ
        queries, vectors = keys.as_fnuz(*queries), keys.as_fnuz(*vectors)
    served = indexer(
        Q.device, num_heads=Q.shape[1], head_dim=Q.shape[2], format=kind, layout="n8"
    )  # fmt: skip
    window = (ready(cu_starts, torch.int32), ready(cu_ends, torch.int32))
    return served.mqa_logits(queries, vectors, ready(weights, torch.float32), *window)


def top_k_per_row_prefill(
    logits: torch.Tensor,
    rowStarts: torch.Tensor,
    rowEnds: torch.Tensor,
    indices: torch.Tensor,
    values: torch.Tensor | None,
    numRows: int,
    stride0: int,
    stride1: int,
    k: int = 2048,
    stable: bool = False,
) -> None:
    """Absolute columns of the k largest logits in each window, then -1, into indices [rows, k].

    Best first, or with `stable` in ascending order. NaN is left out where AITER ranks it highest.
    """
    chosen = select(logits[:numRows], k, rowStarts[:numRows], rowEnds[:numRows], ids="entry")
    _ranked(logits[:numRows], chosen, indices, values, stable)


def top_k_per_row_decode(
    logits: torch.Tensor,
    next_n: int,
    seqLens: torch.Tensor,
    indices: torch.Tensor,
    numRows: int,
    stride0: int,
    stride1: int,
    k: int = 2048,
    stable: bool = False,
) -> None:
    """`top_k_per_row_prefill` of the first seqLens[r // next_n] - next_n + r % next_n + 1 keys."""
    end = row_windows.from_context_lens(ready(seqLens, torch.int32), next_n)[:numRows]
    chosen = select(logits[:numRows], k, None, end)
    _ranked(logits[:numRows], chosen, indices, None, stable)


def indexer_k_quant_and_cache(
    k: torch.Tensor,
    kv_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    quant_block_size: int,
    scale_fmt: str,
    preshuffle: bool = False,
) -> None:
    """FP8 keys [n, D] into the slots of N8 pages [pages, P, D + 4], or P8 with preshuffle."""
    keys.quantize_and_store(
        k, kv_cache, slot_mapping, quant_block_size, scale_fmt, preshuffle=preshuffle
    )


def cp_gather_indexer_k_quant_cache(
    kv_cache: torch.Tensor,
    dst_k: torch.Tensor,
    dst_scale: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    preshuffle: bool = False,
) -> None:
    """Raw entries of requests, one after the other, into dst_k and dst_scale."""
    keys.gather(kv_cache, dst_k, dst_scale, block_table, cu_seq_lens, preshuffle=preshuffle)


def _split(
    q: torch.Tensor,
    q_scale: torch.Tensor,
    kv_cache: torch.Tensor,
    kv_scale: torch.Tensor,
    block_tables: torch.Tensor,
    weights: torch.Tensor,
    window: Windows,
    width: int,
    weight_scale: float,
    page_size: int,
    out: torch.Tensor | None,
) -> torch.Tensor:
    """Paged logits over F4 pages: those that the call can read are converted to N4 first."""
    spec = keys.split_spec(kv_cache)
    if spec.page_size != page_size:
        raise ArgumentError(f"kv_block_size: expected {spec.page_size}, got {page_size}")
    heads = q.shape[1]
    cache, table = keys.split_to_natural(kv_cache, kv_scale, block_tables, width)
    served = indexer(q.device, num_heads=heads, head_dim=spec.head_dim, page_size=page_size)
    rows, start, end = (ready(t, torch.int32) for t in window)
    dense, copied = (None, False) if out is None else filled(out, width)
    logits = served.paged_mqa_logits(
        fp4("q_fp4", q, _plain_scales(q_scale, heads)),
        ready(weights.float() * weight_scale),
        cache,
        table,
        end,
        start=start,
        row_to_request=rows,
        width=width,
        clean=out is None,
        out=dense,
    )
    return given(out, logits, copied)


def _plain_scales(q_scale: torch.Tensor, heads: int) -> torch.Tensor:
    """[T, H, D/32] of [T, D/128, 4, 16, n], where head h is at [h % 16, h // 16]."""
    rows, tiles = q_scale.shape[:2]
    by_head = q_scale.view(torch.uint8).permute(0, 4, 3, 1, 2).reshape(rows, -1, tiles * 4)
    return by_head[:, :heads].contiguous()


def _ranked(
    logits: torch.Tensor,
    chosen: torch.Tensor,
    indices: torch.Tensor,
    values: torch.Tensor | None,
    stable: bool,
) -> None:
    if stable:
        last = torch.iinfo(torch.int32).max
        chosen = torch.where(chosen < 0, last, chosen).sort(dim=1).values
        chosen = torch.where(chosen == last, -1, chosen)
    rows, k = chosen.shape
    indices[:rows, :k] = chosen
    if values is not None and logits.shape[1]:
        taken = logits.gather(1, chosen.clamp(0).long())
        values[:rows, :k] = torch.where(chosen < 0, float("-inf"), taken)
