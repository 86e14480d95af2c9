# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writing keys into the paged cache and gathering them from it.

The cache is one flat run of bytes; a page starts at `page_stride * page id`, all in int64. Only
addresses of visible entries are formed from the block table; everything else reads page 0 and is
masked, so garbage in a table or in unused pages is never followed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dsv4_iree import layout
from dsv4_iree.kernels.entry import Arg, Entry
from dsv4_iree.kernels.formats import f32_bytes, f32_from_bytes
from dsv4_iree.kernels.quantize import Dequantize, Quantize, quantized
from dsv4_iree.spec import IndexerSpec

CACHE = Arg("cache", torch.int8, ("cache_bytes",))


def visible_pages(
    block_table: Tensor, request: Tensor, entry: Tensor, num_pages: Tensor, page_size: int
) -> tuple[Tensor, Tensor]:
    """Page id of each int64 entry (0 where invisible) and whether it is visible.

    `request` and `entry` broadcast against each other.
    """
    requests, width = block_table.shape
    known = (entry >= 0) & (entry < width * page_size) & (request >= 0) & (request < requests)
    flat = torch.where(known, request * width + entry // page_size, 0)
    page = block_table.flatten()[flat].to(torch.int64)
    visible = known & (page >= 0) & (page < num_pages)
    return torch.where(visible, page, 0), visible


def entry_bytes(
    spec: IndexerSpec, cache: Tensor, page: Tensor, token: Tensor, page_stride: Tensor
) -> tuple[Tensor, Tensor]:
    """Value bytes [..., value_bytes] and scale bytes [..., scale_bytes] (int8) of cache entries."""
    values, scales = _addresses(spec, page, token, page_stride)
    return cache[values], cache[scales]


def _addresses(
    spec: IndexerSpec, page: Tensor, token: Tensor, page_stride: Tensor
) -> tuple[Tensor, Tensor]:
    base = (page * page_stride)[..., None]
    token = token[..., None]
    values = layout.value_offset(spec, token, torch.arange(spec.value_bytes))
    scales = layout.scale_offset(spec, token, torch.arange(spec.scale_bytes))
    return base + values, base + scales


class WriteEntries(nn.Module):
    """Scatter quantised entries into the cache. Skipped rows repeat the first row that is kept.

    A scatter has no mask and no harmless address to point at; writing the same bytes twice is
    harmless. If no row is kept, the bytes that lie at the addresses are written back.
    """

    def __init__(self, spec: IndexerSpec) -> None:
        super().__init__()
        self.spec = spec

    def forward(
        self,
        values: Tensor,
        scales: Tensor,
        slot_mapping: Tensor,
        cache: Tensor,
        page_stride: Tensor,
        num_pages: Tensor,
    ) -> Tensor:
        rows, page_size = slot_mapping.shape[0], self.spec.page_size
        keep = (slot_mapping >= 0) & (slot_mapping < num_pages * page_size)
        # In int64, whose minima IREE 3.13 reduces rightly; see formats.all_finite.
        first = torch.where(keep, torch.arange(rows), rows).amin(0, keepdim=True)
        row = torch.where(keep, torch.arange(rows), first.clamp(max=rows - 1))
        slot = torch.where(first < rows, slot_mapping[row], 0)
        address = torch.cat(
            _addresses(self.spec, slot // page_size, slot % page_size, page_stride), dim=1
        )
        if not self.spec.is_fp4:
            scales = f32_bytes(scales)
        entries = torch.cat([values, scales], dim=1)[row]
        entries = torch.where(first[:, None] < rows, entries, cache[address])
        return cache.index_put((address.flatten(),), entries.flatten())


class WriteKeys(nn.Module):
    """Quantise keys, then write them."""

    def __init__(self, spec: IndexerSpec) -> None:
        super().__init__()
        self.quantize, self.write = Quantize(spec), WriteEntries(spec)

    def forward(
        self, keys: Tensor, slots: Tensor, cache: Tensor, page_stride: Tensor, num_pages: Tensor
    ) -> Tensor:
        written: Tensor = self.write(*self.quantize(keys), slots, cache, page_stride, num_pages)
        return written


class GatherCache(nn.Module):
    """Raw values and scales of entries of requests; zero bytes where nothing is visible."""

    def __init__(self, spec: IndexerSpec) -> None:
        super().__init__()
        self.spec = spec

    def forward(
        self,
        cache: Tensor,
        block_table: Tensor,
        row_to_request: Tensor,
        entries: Tensor,
        page_stride: Tensor,
        num_pages: Tensor,
    ) -> tuple[Tensor, Tensor]:
        page_size = self.spec.page_size
        entry = entries.to(torch.int64)
        page, visible = visible_pages(
            block_table, row_to_request.to(torch.int64), entry, num_pages, page_size
        )
        token = entry.clamp(min=0) % page_size
        values, scales = entry_bytes(self.spec, cache, page, token, page_stride)
        values = torch.where(visible[:, None], values, 0)
        scales = torch.where(visible[:, None], scales, 0)
        return values, scales if self.spec.is_fp4 else f32_from_bytes(scales)


class GatherDequantized(nn.Module):
    """The same entries as numbers."""

    def __init__(self, spec: IndexerSpec, dtype: torch.dtype) -> None:
        super().__init__()
        self.gather, self.dequantize = GatherCache(spec), Dequantize(spec, dtype)

    def forward(
        self,
        cache: Tensor,
        block_table: Tensor,
        row_to_request: Tensor,
        entries: Tensor,
        page_stride: Tensor,
        num_pages: Tensor,
    ) -> Tensor:
        raw = self.gather(cache, block_table, row_to_request, entries, page_stride, num_pages)
        numbers: Tensor = self.dequantize(*raw)
        return numbers


def write_entries(spec: IndexerSpec) -> tuple[Entry, ...]:
    slots = Arg("slot_mapping", torch.int64, ("R",))
    scalars = ("page_stride", "num_pages")
    raw = Entry(
        "write_cache",
        WriteEntries(spec),
        inputs=(*quantized(spec, "", ("R",)), slots),
        outputs=(CACHE,),
        scalars=scalars,
        inout=True,
    )
    keys = (
        Entry(
            f"write_cache_{name}",
            WriteKeys(spec),
            inputs=(Arg("keys", dtype, ("R", spec.head_dim)), slots),
            outputs=(CACHE,),
            scalars=scalars,
            inout=True,
        )
        for name, dtype in (("bf16", torch.bfloat16), ("f32", torch.float32))
    )
    return (raw, *keys)


def gather_entries(spec: IndexerSpec) -> tuple[Entry, ...]:
    inputs = (
        CACHE,
        Arg("block_table", torch.int32, ("B", "W")),
        Arg("row_to_request", torch.int32, ("R",)),
        Arg("entries", torch.int32, ("R",)),
    )
    scalars = ("page_stride", "num_pages")
    raw = Entry("gather_cache", GatherCache(spec), inputs, quantized(spec, "", ("R",)), scalars)
    numbers = (
        Entry(
            f"gather_cache_{name}",
            GatherDequantized(spec, dtype),
            inputs,
            (Arg("keys", dtype, ("R", spec.head_dim)),),
            scalars,
        )
        for name, dtype in (("bf16", torch.bfloat16), ("f32", torch.float32))
    )
    return (raw, *numbers)
