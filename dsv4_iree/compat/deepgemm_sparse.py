# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DeepGEMM's sparse scorers (V4.1): logits of the keys in each row's list of blocks.

A block list is a block table over pages of one block each, so the paged op scores what is listed
and nothing else: ragged keys are copied into such pages once a call, cached keys are gathered.
Vectors are MXFP4, or MXFP8, which is converted and scored a row at a time.

The metadata is theirs in place and size only. It holds what the builder was given, as int32 behind
uint8: windows [M, 2], block ids [M, n] and, paged, the rows' block tables [M, W].
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from dsv4_iree.compat import mxfp8
from dsv4_iree.compat.serve import (
    FP8,
    Quantized,
    first_rows,
    fp4,
    indexer,
    page_format,
    ready,
)
from dsv4_iree.errors import ArgumentError
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import Format

BLOCKS = (8, 16)


def get_sparse_mqa_logits_metadata(
    cu_seq_len_k_start: torch.Tensor,
    cu_seq_len_k_end: torch.Tensor,
    num_kv_tokens: int,
    sparse_kv_block_indices: torch.Tensor,
    qk_dtype: torch.dtype,
    sparse_block_kv: int,
    use_unaligned_ks: bool = False,
) -> torch.Tensor:
    """What `fp8_fp4_sparse_mqa_logits` needs to know of the rows, 1-D uint8.

    Args:
        sparse_kv_block_indices: [M, n] int32; the first ceil((end - start) / block) of a row count.
    """
    window = torch.stack([cu_seq_len_k_start, cu_seq_len_k_end], dim=1)
    return _packed(window, sparse_kv_block_indices)


def get_paged_sparse_mqa_logits_metadata(
    context_lens: torch.Tensor,
    block_table: torch.Tensor,
    indices: torch.Tensor | None,
    page_kv: int,
    sparse_kv_block_indices: torch.Tensor,
    qk_dtype: torch.dtype,
    sparse_block_kv: int,
) -> torch.Tensor:
    """The same for `fp8_fp4_paged_sparse_mqa_logits`; a row sees the first context_lens keys.

    With `indices` equal neighbours are the rows of one request, as in the dense scorer.
    """
    if page_kv % sparse_block_kv:
        raise ArgumentError(
            f"page_kv: expected a multiple of sparse_block_kv={sparse_block_kv}, got {page_kv}"
        )
    end = context_lens.flatten()
    table = block_table if indices is None else block_table[first_rows(indices, len(end)).long()]
    window = torch.stack([torch.zeros_like(end), end], dim=1)
    return _packed(window, sparse_kv_block_indices, table)


def fp8_fp4_sparse_mqa_logits(
    q: tuple[torch.Tensor, torch.Tensor | None],
    kv: Quantized,
    weights: torch.Tensor,
    metadata: torch.Tensor,
    num_max_sparse_blocks: int,
    sparse_block_kv: int,
    use_unaligned_ks: bool = False,
) -> torch.Tensor:
    """[M, n * block] bf16 logits: column c is key c % block of block c // block of the row's list.

    Columns outside the row's window or behind its blocks are -inf.

    Args:
        q: FP4 bytes [M, H, D/2] or FP8 [M, H, D], and int32 scales [M, H].
        kv: FP4 bytes [N, D/2] or FP8 [N, D], as q, and int32 scales [N].
        weights: [M, H] bf16.
        use_unaligned_ks: block i starts at i * block + start % block, else at i * block.
    """
    values, scales = _checked(q, weights, sparse_block_kv)
    start, end, blocks, _ = _unpacked(metadata, len(weights), num_max_sparse_blocks)
    end = end.clamp(max=len(kv[0]))
    blocks = _listed(blocks, start, end, sparse_block_kv)
    shift = start % sparse_block_kv if use_unaligned_ks else torch.zeros_like(start)
    key = _keys(blocks, shift, sparse_block_kv)
    if values.dtype in FP8:
        at = key.clamp(0, len(kv[0]) - 1)
        logits = _row_by_row(
            (values, scales),
            weights,
            at.shape[1],
            lambda row: mxfp8.numbers("kv", *(part[at[row]] for part in kv)),
        )
        return _shown(logits, key, start, end)
    served = _of_blocks(values, sparse_block_kv)
    entries = torch.cat(fp4("kv", *kv), dim=1)
    shifts = range(sparse_block_kv) if use_unaligned_ks else range(1)
    cache = torch.cat([_pages(entries[by:], len(entries), served) for by in shifts])
    pages = len(cache) // len(shifts)
    known = (blocks >= 0) & (blocks < pages)
    table = torch.where(known, shift[:, None] * pages + blocks, -1)
    logits = _scored(served, fp4("q", values, scales), weights, cache, table)
    return _shown(logits, key, start, end)


def fp8_fp4_paged_sparse_mqa_logits(
    q: tuple[torch.Tensor, torch.Tensor | None],
    fused_kv_cache: torch.Tensor,
    weights: torch.Tensor,
    metadata: torch.Tensor,
    num_max_sparse_blocks: int,
    sparse_block_kv: int,
) -> torch.Tensor:
    """The same over cached keys.

    Args:
        q: FP4 bytes [M, 1, H, D/2] or FP8 [M, 1, H, D], and int32 scales [M, 1, H].
        fused_kv_cache: [pages, P, 1, 68] of FP4 or [pages, P, 1, 132] of FP8 keys at D = 128, the
            last 4 bytes of a key its scales.
    """
    values, scales = (part.flatten(0, 1) for part in _checked(q, weights, sparse_block_kv))
    start, end, blocks, tables = _unpacked(metadata, len(weights), num_max_sparse_blocks)
    blocks = _listed(blocks, start, end, sparse_block_kv)
    blocks = torch.where(_exists(tables, blocks, sparse_block_kv, fused_kv_cache), blocks, -1)
    key = _keys(blocks, torch.zeros_like(start), sparse_block_kv)
    if values.dtype in FP8:
        page_size = page_format(fused_kv_cache, values.shape[2], Format.FP8)["page_size"]
        page = tables.gather(1, key.clamp(0) // page_size)
        page = torch.where(key < 0, 0, page).long()
        logits = _row_by_row(
            (values, scales),
            weights,
            key.shape[1],
            lambda row: mxfp8.entries(fused_kv_cache, page[row], key[row] % page_size),
        )
        return _shown(logits, key, start, end)
    served = _of_blocks(values, sparse_block_kv)
    request = torch.arange(len(key), dtype=torch.int32, device=key.device)
    request = request.repeat_interleave(key.shape[1])
    numbers = page_format(fused_kv_cache, served.spec.head_dim, Format.FP4)
    found = indexer(weights.device, **numbers).gather_cache(
        fused_kv_cache, ready(tables), ready(request), ready(key.flatten(), torch.int32)
    )
    assert isinstance(found, tuple)
    cache = _pages(torch.cat(found, dim=1), key.numel(), served)
    table = torch.arange(blocks.numel(), device=key.device).view(blocks.shape)
    table = torch.where(blocks < 0, -1, table)
    logits = _scored(served, fp4("q", values, scales), weights, cache, table)
    return _shown(logits, key, start, end)


def _checked(
    q: tuple[torch.Tensor, torch.Tensor | None], weights: torch.Tensor, block: int
) -> Quantized:
    values, scales = q
    if scales is None:
        raise ArgumentError("q: expected int32 scales beside the values, got None")
    if block not in BLOCKS:
        raise ArgumentError(f"sparse_block_kv: expected 8 or 16, got {block}")
    if weights.dtype is not torch.bfloat16:
        raise ArgumentError(f"weights: expected dtype bfloat16, got {weights.dtype}")
    return values, scales


def _of_blocks(values: torch.Tensor, block: int) -> Indexer:
    """The indexer of FP4 queries [M, H, D/2] whose pages are blocks."""
    _, heads, width = values.shape
    return indexer(values.device, num_heads=heads, head_dim=2 * width, page_size=block)


def _packed(*parts: torch.Tensor) -> torch.Tensor:
    return torch.cat([part.int().flatten() for part in parts]).view(torch.uint8)


def _unpacked(
    metadata: torch.Tensor, rows: int, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """start [M], end [M] and blocks [M, n] int64; the rows' block tables int32."""
    numbers = metadata.view(torch.int32)
    width = len(numbers) // max(rows, 1) - 2 - count
    if width < 0 or len(numbers) != rows * (2 + count + width):
        raise ArgumentError(
            f"metadata: expected that of {rows} rows of {count} blocks, got {len(metadata)} bytes"
        )
    window, blocks, tables = numbers.split([2 * rows, rows * count, rows * width])
    start, end = window.view(rows, 2).long().unbind(1)
    return start, end, blocks.view(rows, count).long(), tables.view(rows, width)


def _listed(
    blocks: torch.Tensor, start: torch.Tensor, end: torch.Tensor, block: int
) -> torch.Tensor:
    """The block ids that count; -1 in place of the others, which may hold anything."""
    count = (end - start + block - 1) // block
    slot = torch.arange(blocks.shape[1], device=blocks.device)
    return torch.where(slot < count[:, None], blocks, -1)


def _keys(blocks: torch.Tensor, shift: torch.Tensor, block: int) -> torch.Tensor:
    """[M, n * block] key of each column, -1 in those of no block."""
    first = blocks * block + shift[:, None]
    key = first[:, :, None] + torch.arange(block, device=blocks.device)
    return torch.where(blocks[:, :, None] < 0, -1, key).flatten(1)


def _pages(entries: torch.Tensor, count: int, served: Indexer) -> torch.Tensor:
    """[ceil(count / P), page_bytes]: entries [n, 68] in natural pages, zeros behind the last."""
    spec = served.spec
    pages = -(-count // spec.page_size)
    padded = entries.new_zeros(pages * spec.page_size, spec.entry_bytes)
    padded[: len(entries)] = entries
    parts = padded.view(pages, spec.page_size, -1).split([spec.value_bytes, spec.scale_bytes], 2)
    return torch.cat([part.flatten(1) for part in parts], dim=1)


def _exists(
    tables: torch.Tensor, blocks: torch.Tensor, block: int, cache: torch.Tensor
) -> torch.Tensor:
    """Whether each block lies in its row's table, on a page of the cache."""
    at = blocks * block // cache.shape[1]
    known = (at >= 0) & (at < tables.shape[1])
    if not tables.shape[1]:
        return known
    page = tables.gather(1, torch.where(known, at, 0))
    return known & (page >= 0) & (page < cache.shape[0])


def _scored(
    served: Indexer,
    queries: Quantized,
    weights: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
) -> torch.Tensor:
    """[M, n * block] logits of the pages in `table`, a page to a block."""
    rows, columns = len(weights), table.shape[1] * served.spec.page_size
    return served.paged_mqa_logits(
        queries,
        ready(weights, torch.float32),
        ready(cache),
        ready(table, torch.int32),
        torch.full((rows,), columns, dtype=torch.int32, device=weights.device),
    )


def _row_by_row(
    q: Quantized, weights: torch.Tensor, width: int, keys_of: Callable[[int], torch.Tensor]
) -> torch.Tensor:
    """[M, width] logits of MXFP8 queries [M, H, D], each over keys of its own."""
    end = torch.full((len(weights),), width, dtype=torch.int32, device=weights.device)
    return mxfp8.own_keys_logits(mxfp8.numbers("q", *q)[:, None], weights, end, width, keys_of)


def _shown(
    logits: torch.Tensor, key: torch.Tensor, start: torch.Tensor, end: torch.Tensor
) -> torch.Tensor:
    """The logits in bf16, -inf where a column has no key of the row's window."""
    inside = (key >= 0) & (key >= start[:, None]) & (key < end[:, None])
    return logits.masked_fill(~inside, float("-inf")).bfloat16()
