# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From the lengths that serving engines keep to row windows [start, end) in cache entries."""

from __future__ import annotations

import torch

from dsv4_iree.errors import ArgumentError, check_range, check_tensor


def from_positions(positions: torch.Tensor, ratio: int) -> torch.Tensor:
    """end [T] int32 of queries at raw token positions: (pos + 1) // ratio entries are complete.

    Args:
        positions: [T] int32 or int64 raw positions; negative (padding) gives an empty window.
        ratio: raw tokens per compressed entry (`compress_ratio`), 4 for V4's indexer.
    """
    check_tensor("positions", positions, shape=("T",), dtype=(torch.int32, torch.int64))
    check_range("ratio", ratio, 1, 2**20)
    return ((positions + 1).clamp(min=0) // ratio).to(torch.int32)


def from_context_lens(context_lens: torch.Tensor, next_n: int = 1) -> torch.Tensor:
    """end [B * next_n] int32 of decode rows, request by request.

    Args:
        context_lens: [B, next_n] int32, entries visible to each row; or [B], entries visible to
            the last of next_n rows, where row n sees next_n - 1 - n fewer. That rule is right for
            uncompressed caches alone: with a ratio above 1 use `from_positions`.
        next_n: rows per request.

    Lengths may be zero; what the rule makes negative is an empty window.
    """
    check_range("next_n", next_n, 1, 1024)
    if isinstance(context_lens, torch.Tensor) and context_lens.dim() == 2:
        check_tensor("context_lens", context_lens, shape=("B", next_n), dtype=torch.int32)
        return context_lens.flatten()
    check_tensor("context_lens", context_lens, shape=("B",), dtype=torch.int32)
    back = torch.arange(next_n - 1, -1, -1, dtype=torch.int32, device=context_lens.device)
    return (context_lens[:, None] - back).flatten()


def from_indices(indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Row groups of ragged decode: row_to_request [T] and the first row of each request [B].

    Args:
        indices: [T] int32; consecutive equal values are the rows of one request, whose block table
            row is that of its first row: pass `block_table[first_rows]` with `row_to_request`.
    """
    check_tensor("indices", indices, shape=("T",), dtype=torch.int32)
    starts = torch.ones_like(indices, dtype=torch.bool)
    starts[1:] = indices[1:] != indices[:-1]
    row_to_request = (starts.cumsum(0) - 1).to(torch.int32)
    return row_to_request, starts.nonzero()[:, 0]


def from_cu_seqlens(cu_seqlens: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """row_to_request [rows] and entry number [rows] of the concatenated entries of B requests.

    The arguments of `Indexer.gather_cache` for a whole gather. Rows at or past the last cumulative
    length get entry -1.

    Args:
        cu_seqlens: [B + 1] int32 true cumulative lengths, from 0, not falling.
        rows: rows of the output.
    """
    check_tensor("cu_seqlens", cu_seqlens, shape=("B + 1",), dtype=torch.int32)
    if cu_seqlens.shape[0] == 0:
        raise ArgumentError("cu_seqlens: expected at least one element, got shape [0]")
    row = torch.arange(rows, dtype=torch.int32, device=cu_seqlens.device)
    request = torch.searchsorted(cu_seqlens, row, right=True, out_int32=True) - 1
    past = row >= cu_seqlens[-1]
    entry = row - cu_seqlens[request.long().clamp(0)]
    return torch.where(past, 0, request), torch.where(past, -1, entry)
