# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Entry points that write keys into the paged cache and gather them from it, and portable reads.

`rows` has the kernels of the entry points. The cache is one flat run of bytes; a page starts at
`page_stride * page id`, all in int64. Only addresses of visible entries are formed from the block
table; the portable reads take page 0 for everything else and mask it, so garbage in a table or in
unused pages is never followed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsv4_iree import layout
from dsv4_iree.kernels.entry import Arg, Entry
from dsv4_iree.kernels.quantize import FLOATS, quantized
from dsv4_iree.spec import CacheLayout, IndexerSpec

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
    base = (page * page_stride)[..., None]
    token = token[..., None]
    values = layout.value_offset(spec, token, torch.arange(spec.value_bytes))
    scales = layout.scale_offset(spec, token, torch.arange(spec.scale_bytes))
    return cache[base + values], cache[base + scales]


def write_entries(spec: IndexerSpec) -> tuple[Entry, ...]:
    slots, cache = Arg("slot_mapping", torch.int64, ("R",)), cache_args(spec)
    keys = [Arg("keys", dtype, ("R", spec.head_dim)) for _, dtype in FLOATS]
    given = {"": quantized(spec, "", ("R",)), "_bf16": keys[:1], "_f32": keys[1:]}
    return tuple(
        Entry(f"write_cache{name}", None, (*args, slots), cache, page_scalars(spec), inout=True)
        for name, args in given.items()
    )


def gather_entries(spec: IndexerSpec) -> tuple[Entry, ...]:
    inputs = (
        *cache_args(spec),
        Arg("block_table", torch.int32, ("B", "W")),
        Arg("row_to_request", torch.int32, ("R",)),
        Arg("entries", torch.int32, ("R",)),
    )
    keys = [Arg("keys", dtype, ("R", spec.head_dim)) for _, dtype in FLOATS]
    made = {"": quantized(spec, "", ("R",)), "_bf16": keys[:1], "_f32": keys[1:]}
    return tuple(
        Entry(f"gather_cache{name}", None, inputs, tuple(outputs), page_scalars(spec))
        for name, outputs in made.items()
    )


def cache_args(spec: IndexerSpec) -> tuple[Arg, ...]:
    """The memory of a cache: F4 has its values and scales apart."""
    if spec.layout is not CacheLayout.F4:
        return (CACHE,)
    return (
        Arg("cache_values", torch.int8, ("values_bytes",)),
        Arg("cache_scales", torch.int8, ("scales_bytes",)),
    )


def page_scalars(spec: IndexerSpec) -> tuple[str, ...]:
    """Bytes from page to page, of each memory, and the number of pages."""
    apart = ("scales_stride",) if spec.layout is CacheLayout.F4 else ()
    return ("page_stride", *apart, "num_pages")
