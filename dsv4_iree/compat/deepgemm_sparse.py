# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DeepGEMM's sparse scorers (V4.1): logits of the keys in each row's list of blocks.

A block list is a block table over pages of one block each, so the paged op scores what is listed
and nothing else: ragged keys are copied into such pages once a call, cached keys are gathered.

The metadata is theirs in place and size only. It holds what the builder was given, as int32 behind
uint8: windows [M, 2], block ids [M, n] and, paged, the rows' block tables [M, W].
"""

from __future__ import annotations

import torch

from dsv4_iree.compat.serve import (
    Quantized,
    first_rows,
    fp4,
    indexer,
    not_offered,
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
        q: FP4 bytes [M, H, D/2] and int32 scales [M, H].
        kv: FP4 bytes [N, D/2] and int32 scales [N].
        weights: [M, H] bf16.
        use_unaligned_ks: block i starts at i * block + start % block, else at i * block.
    """
    queries, served = _served("fp8_fp4_sparse_mqa_logits", q, weights, sparse_block_kv)
    start, end, blocks, _ = _unpacked(metadata, len(weights), num_max_sparse_blocks)
    blocks = _listed(blocks, start, end, sparse_block_kv)
    entries = torch.cat(fp4("kv", *kv), dim=1)
    shifts = range(sparse_block_kv) if use_unaligned_ks else range(1)
    cache = torch.cat([_pages(entries[shift:], len(entries), served) for shift in shifts])
    pages = len(cache) // len(shifts)
    blocks = torch.where(blocks < pages, blocks, -1)
    shift = start % sparse_block_kv if use_unaligned_ks else torch.zeros_like(start)
    table = shift[:, None] * pages + blocks
    first = blocks * sparse_block_kv + shift[:, None]
    return _scored(served, queries, weights, cache, table, blocks, first, start, end)


def fp8_fp4_paged_sparse_mqa_logits(
    q: tuple[torch.Tensor, torch.Tensor | None],
    fused_kv_cache: torch.Tensor,
    weights: torch.Tensor,
    metadata: torch.Tensor,
    num_max_sparse_blocks: int,
    sparse_block_kv: int,
) -> torch.Tensor:
    """The same over cached keys: q [M, 1, H, D/2] and [M, 1, H], cache [pages, P, 1, 68]."""
    name, block = "fp8_fp4_paged_sparse_mqa_logits", sparse_block_kv
    values, scales = q
    flat = (values.flatten(0, 1), None if scales is None else scales.flatten(0, 1))
    queries, served = _served(name, flat, weights, block)
    rows = len(weights)
    start, end, blocks, tables = _unpacked(metadata, rows, num_max_sparse_blocks)
    blocks = _listed(blocks, start, end, block)
    first = blocks * block
    key = first[:, :, None] + torch.arange(block, device=first.device)
    key = torch.where(blocks[:, :, None] < 0, -1, key).flatten().int()
    request = torch.arange(rows, dtype=torch.int32, device=key.device)
    request = request.repeat_interleave(num_max_sparse_blocks * block)
    numbers = page_format(fused_kv_cache, served.spec.head_dim, Format.FP4)
    found = indexer(weights.device, **numbers).gather_cache(
        fused_kv_cache, ready(tables), ready(request), ready(key)
    )
    assert isinstance(found, tuple)
    cache = _pages(torch.cat(found, dim=1), key.numel(), served)
    table = torch.arange(blocks.numel(), device=key.device).view(blocks.shape)
    exists = _exists(tables, blocks, block, fused_kv_cache)
    blocks = torch.where(exists, blocks, -1)
    return _scored(served, queries, weights, cache, table, blocks, first, start, end)


def _served(
    name: str, q: tuple[torch.Tensor, torch.Tensor | None], weights: torch.Tensor, block: int
) -> tuple[Quantized, Indexer]:
    """Checked FP4 queries, and the indexer whose pages are blocks."""
    values, scales = q
    if scales is None or values.dtype not in (torch.int8, torch.uint8):
        not_offered(name, "FP8 has no sparse scorer here", "pass FP4 queries and keys")
    if block not in BLOCKS:
        raise ArgumentError(f"sparse_block_kv: expected 8 or 16, got {block}")
    if weights.dtype is not torch.bfloat16:
        raise ArgumentError(f"weights: expected dtype bfloat16, got {weights.dtype}")
    _, heads, width = values.shape
    served = indexer(weights.device, num_heads=heads, head_dim=2 * width, page_size=block)
    return fp4("q", values, scales), served


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
    blocks: torch.Tensor,
    first: torch.Tensor,
    start: torch.Tensor,
    end: torch.Tensor,
) -> torch.Tensor:
    """Logits of the pages in `table`, -inf where a block or key is not the row's."""
    rows, size = len(weights), served.spec.page_size
    logits = served.paged_mqa_logits(
        queries,
        ready(weights, torch.float32),
        ready(cache),
        ready(torch.where(blocks < 0, -1, table), torch.int32),
        torch.full((rows,), blocks.shape[1] * size, dtype=torch.int32, device=weights.device),
    )
    key = first[:, :, None] + torch.arange(size, device=first.device)
    inside = (blocks >= 0)[:, :, None] & (key >= start[:, None, None]) & (key < end[:, None, None])
    return logits.masked_fill(~inside.flatten(1), float("-inf")).bfloat16()
