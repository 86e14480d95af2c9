# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SGLang's FP4 index-key cache, in natural (N4) and split (F4) pages, and its top-k transform.

Its scorers are DeepGEMM's on NVIDIA and AITER's on AMD: `compat.deepgemm`, `compat.aiter`. The
reads are methods of its pools; here they take the buffers.
"""

from __future__ import annotations

import torch

from dsv4_iree import reference
from dsv4_iree.compat import keys
from dsv4_iree.compat.serve import Quantized, indexer, ready
from dsv4_iree.errors import ArgumentError
from dsv4_iree.spec import IndexerSpec


def quantize_fp4_indexer_tensor(
    x: torch.Tensor, rne: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 [n, 64] bytes and int32 [n] scales (group g in byte g) of [..., 128].

    rne=False is profile S. rne=True is S2, whose second stage is SGLang's kernel: equal to it for
    the fake-quantised keys that its V4.1 path passes.
    """
    values, scales = _quantize(x, rne)
    return values.view(torch.int8), scales.view(torch.int32)[:, 0]


def store_fp4_index_k_cache(
    input: torch.Tensor,
    cache: torch.Tensor,
    loc: torch.Tensor,
    *,
    page_size: int,
    rne: bool = False,
) -> None:
    """Quantise keys [n, 128] into the slots `loc` of natural pages [pages, page_size * 68]."""
    if cache.shape[1] != page_size * 68:
        raise ArgumentError(f"cache: expected {page_size * 68} bytes a page, got {cache.shape[1]}")
    served = indexer(cache.device, page_size=page_size, rounding="s2" if rne else "s")
    served.write_cache(cache, _rows(input), ready(loc.flatten(), torch.int64))


def store_fp4_index_k_cache_split(
    input: torch.Tensor,
    payload: torch.Tensor,
    scale: torch.Tensor,
    loc: torch.Tensor,
    *,
    page_size: int,
    rne: bool = False,
) -> None:
    """The same into split pages: values [pages, 1, 4, P, 16], scales [pages, 1, 4, P] turned."""
    if payload.shape[3] != page_size:
        raise ArgumentError(f"page_size: expected {payload.shape[3]}, got {page_size}")
    keys.split_store(payload, scale, loc, _rows(input), rounding="s2" if rne else "s")


def get_index_k_fp4(
    cache: torch.Tensor, slots: torch.Tensor, page_size: int = 64
) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 [n, 64] bytes and int32 [n] scales of physical slots; slot < 0 gives zeros."""
    values, scales = keys.slots_of(cache, slots, page_size, None)
    return values.view(torch.int8), scales.view(torch.int32)[:, 0]


def get_index_k_fp4_split(
    payload: torch.Tensor, scale: torch.Tensor, slots: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same from split pages."""
    values, scales = keys.split_read(payload, scale, slots)
    return values.view(torch.int8), scales.contiguous().view(torch.int32)[:, 0]


def get_index_k_dequant(
    cache: torch.Tensor, slots: torch.Tensor, page_size: int = 64
) -> torch.Tensor:
    """[n, 128] bf16 numbers of physical slots; slot < 0 gives zeros."""
    numbers = keys.slots_of(cache, slots, page_size, torch.bfloat16)
    assert isinstance(numbers, torch.Tensor)
    return numbers


def topk_transform_512(
    scores: torch.Tensor,
    seq_lens: torch.Tensor,
    page_tables: torch.Tensor,
    out_page_indices: torch.Tensor,
    page_size: int,
    out_raw_indices: torch.Tensor | None = None,
) -> None:
    """Physical slots of each row's largest scores, then -1; k is the width of out_page_indices.

    Entries scored -inf or NaN are left out. Row r uses row r of page_tables. `out_raw_indices`
    takes the ids before translation. A length <= 0 is a row without entries.
    """
    end = ready(seq_lens, torch.int32)
    served = indexer(scores.device, topk=out_page_indices.shape[1])
    raw = served.topk(ready(scores, torch.float32), None, end)
    rows = torch.arange(len(raw), dtype=torch.int32, device=raw.device)
    spec = IndexerSpec(page_size=page_size)
    table = page_tables.to(torch.int32)
    slots = reference.as_ids(raw, "slot", torch.zeros_like(end), table, rows, spec)
    out_page_indices.copy_(slots)
    if out_raw_indices is not None:
        out_raw_indices.copy_(raw)


def _quantize(x: torch.Tensor, rne: bool) -> Quantized:
    return indexer(x.device, rounding="s2" if rne else "s").quantize(_rows(x))


def _rows(x: torch.Tensor) -> torch.Tensor:
    """[n, 128] in a dtype that the quantiser takes."""
    if x.shape[-1] != 128:
        raise ArgumentError(f"input: expected a last dim of 128, got {list(x.shape)}")
    flat = x.reshape(-1, 128)
    return ready(flat, torch.bfloat16 if x.dtype is torch.bfloat16 else torch.float32)
