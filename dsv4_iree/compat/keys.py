# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Index keys in the caches of several systems: pages of three or four dims, and split F4 pages."""

from __future__ import annotations

from typing import Any

import torch

from dsv4_iree import layout, windows
from dsv4_iree.compat.serve import FLOATS, FP8, Quantized, indexer, ready
from dsv4_iree.errors import ArgumentError
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import CacheLayout, Format, IndexerSpec

FP8_MAX = {Format.FP8: 448.0, Format.FP8_FNUZ: 240.0}
DTYPE = {kind: dtype for dtype, kind in FP8.items()}


def pages(cache: torch.Tensor) -> torch.Tensor:
    """[pages, P, (1,) entry bytes] of any one-byte dtype as [pages, P * entry bytes] uint8."""
    raw = cache.view(torch.uint8) if cache.dtype is not torch.uint8 else cache
    size = raw[0].numel() if raw.shape[0] else 0
    return raw.as_strided((raw.shape[0], size), (raw.stride(0), 1), raw.storage_offset())


def fp8_kind(cache: torch.Tensor) -> Format:
    """e4m3fnuz if the cache says so by its dtype, else e4m3fn."""
    return Format.FP8_FNUZ if cache.dtype is torch.float8_e4m3fnuz else Format.FP8


def quantize_and_store(
    k: torch.Tensor,
    kv_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    quant_block_size: int,
    scale_fmt: str | None,
    *,
    preshuffle: bool,
    kind: Format | None = None,
    largest: float | None = None,
) -> None:
    """`indexer_k_quant_and_cache` of vLLM and AITER: FP8 keys [n, D] into their slots.

    Args:
        kind: the dialect; None: that of the cache's dtype.
        largest: what the largest number of a key becomes; None: the dialect's largest.
    """
    head_dim = k.shape[-1]
    if quant_block_size != head_dim:
        raise ArgumentError(
            f"quant_block_size: expected {head_dim}, one scale a key, got {quant_block_size}"
        )
    kind = fp8_kind(kv_cache) if kind is None else kind
    largest = FP8_MAX[kind] if largest is None else largest
    served = indexer(
        k.device,
        head_dim=head_dim,
        page_size=kv_cache.shape[1],
        format=kind,
        layout=CacheLayout.P8 if preshuffle else CacheLayout.N8,
    )
    rows = min(k.shape[0], slot_mapping.numel())
    slots = ready(slot_mapping.flatten()[:rows], torch.int64)
    keys = ready(k[:rows].reshape(rows, head_dim))
    if scale_fmt == "ue8m0" and largest == FP8_MAX[kind]:
        given = keys if keys.dtype in (torch.float32, torch.bfloat16) else keys.float()
        served.write_cache(pages(kv_cache), given, slots)
        return
    values, scales = scaled_fp8(keys.float(), kind, largest, power_of_two=scale_fmt == "ue8m0")
    served.write_cache(pages(kv_cache), (values.view(torch.uint8), scales), slots)


def scaled_fp8(
    x: torch.Tensor, kind: Format, largest: float, *, power_of_two: bool, smallest: float = 1e-4
) -> Quantized:
    """FP8 [..., D] and fp32 scales [...] of fp32 x: amax / largest, the amax at least smallest."""
    # By a tensor: torch on a GPU multiplies by the inverse of a number.
    scales = x.abs().amax(-1).clamp_min(smallest) / x.new_tensor(largest)
    if power_of_two:  # up, by the exponent: log2 itself rounds
        part, e = torch.frexp(scales)
        scales = torch.ldexp(torch.ones_like(scales), torch.where(part == 0.5, e - 1, e))
    return (x / scales[..., None]).to(DTYPE[kind]), scales


def as_fnuz(values: torch.Tensor, scales: torch.Tensor) -> Quantized:
    """FP8 vectors of either dialect as e4m3fnuz: a byte of e4m3fn is worth half there."""
    if values.dtype is torch.float8_e4m3fnuz:
        return values, scales
    raw = values.view(torch.uint8)
    numbers = raw & 0x7F
    raw = torch.where(numbers == 0x7F, 0x80, torch.where(numbers == 0, 0, raw))  # NaN, -0
    return raw.view(torch.float8_e4m3fnuz), scales * 2


def gather(
    kv_cache: torch.Tensor,
    dst_k: torch.Tensor,
    dst_scale: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    *,
    preshuffle: bool = False,
) -> None:
    """`cp_gather_indexer_k_quant_cache`: raw entries of requests, one after the other.

    64-byte rows that are not an FP8 dtype are MXFP4. Rows from cu_seq_lens[-1] on stay as they are.
    """
    rows, width = dst_k.shape
    is_fp8 = dst_k.dtype in (torch.float8_e4m3fn, torch.float8_e4m3fnuz) or width != 64
    numbers: dict[str, object] = {"page_size": kv_cache.shape[1], "head_dim": width}
    if is_fp8:
        kind = fp8_kind(dst_k)
        numbers |= {"format": kind, "layout": "p8" if preshuffle else "n8"}
    else:
        numbers["head_dim"] = 2 * width
    request, entry = windows.from_cu_seqlens(ready(cu_seq_lens, torch.int32), rows)
    values, scales = indexer(kv_cache.device, **numbers).gather_cache(
        pages(kv_cache), ready(block_table, torch.int32), ready(request), ready(entry)
    )
    keep = entry[:, None] >= 0
    for out, got in ((dst_k, values), (dst_scale, scales)):
        target = out.view(torch.uint8)
        source = got.view(torch.uint8).view(rows, -1)
        target.copy_(torch.where(keep, source, target))


def slots_of(
    cache: torch.Tensor, slots: torch.Tensor, page_size: int, dtype: torch.dtype | None
) -> torch.Tensor | Quantized:
    """Raw or dequantised N4 entries of physical slots; slot < 0 gives zeros."""
    head_dim = cache.shape[1] // page_size * 32 // 17
    served = indexer(cache.device, head_dim=head_dim, page_size=page_size)
    table = torch.arange(cache.shape[0], dtype=torch.int32, device=cache.device)[None]
    at = ready(slots.flatten(), torch.int32)
    return served.gather_cache(cache, table, torch.zeros_like(at), at, dtype=dtype)


def split_spec(payload: torch.Tensor) -> IndexerSpec:
    """The F4 spec of a values tensor [pages, D/128, 4, P, 16]."""
    if payload.dim() != 5 or payload.shape[2] != 4 or payload.shape[4] != 16:
        raise ArgumentError(
            f"payload: expected shape [pages, D/128, 4, P, 16], got {list(payload.shape)}"
        )
    return IndexerSpec(
        layout=CacheLayout.F4, page_size=payload.shape[3], head_dim=payload.shape[1] * 128
    )


def split_store(
    payload: torch.Tensor,
    scale: torch.Tensor,
    slots: torch.Tensor,
    x: torch.Tensor,
    **rounding: Any,
) -> None:
    """Quantise vectors [n, D] into the slots of a split cache; slots outside it are skipped."""
    served = _split_indexer(payload, **rounding)
    given = x if x.dtype in FLOATS else x.float()
    pages = (payload.view(torch.uint8), scale.view(torch.uint8))
    served.write_cache(pages, ready(given), ready(slots.flatten(), torch.int64))


def split_read(payload: torch.Tensor, scale: torch.Tensor, slots: torch.Tensor) -> Quantized:
    """Raw values and scales of the slots of a split cache; slot < 0 gives zeros."""
    served = _split_indexer(payload)
    table = torch.arange(payload.shape[0], dtype=torch.int32, device=payload.device)[None]
    at = ready(slots.flatten(), torch.int32)
    pages = (payload.view(torch.uint8), scale.view(torch.uint8))
    found = served.gather_cache(pages, table, torch.zeros_like(at), at)
    assert isinstance(found, tuple)
    return found


def _split_indexer(payload: torch.Tensor, **rounding: Any) -> Indexer:
    spec = split_spec(payload)
    numbers = {"layout": spec.layout, "page_size": spec.page_size, "head_dim": spec.head_dim}
    return indexer(payload.device, **numbers, **rounding)


def used_pages(
    block_table: torch.Tensor, num_pages: int, width: int, page_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids of the pages that columns below `width` can name, and the table of their new numbers.

    For layouts that are converted before a call: only these pages are, and an id outside
    [0, num_pages) becomes -1.
    """
    table = block_table[:, : -(-width // page_size)]
    known = (table >= 0) & (table < num_pages)
    number = torch.arange(table.numel(), device=table.device).view(table.shape)
    ids = torch.where(known, table, 0).flatten().long()
    return ids, torch.where(known, number, -1).int()


def split_to_natural(
    payload: torch.Tensor, scale: torch.Tensor, block_table: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The N4 pages that a call over `width` columns reads, and their block table."""
    spec = split_spec(payload)
    ids, table = used_pages(block_table, payload.shape[0], width, spec.page_size)
    if not payload.shape[0]:
        return payload.new_zeros(0, spec.page_bytes, dtype=torch.uint8), table
    entries = layout.f4_to_entries(
        payload.view(torch.uint8)[ids].contiguous(), scale.view(torch.uint8)[ids].contiguous()
    )
    natural = IndexerSpec(page_size=spec.page_size, head_dim=spec.head_dim)
    return layout.from_entries(natural, entries), table
