# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Byte addresses of every value and scale in each cache layout.

A page p starts at `p * page_stride` bytes, in 64-bit arithmetic; the stride may exceed the page's
own bytes. The functions below give offsets inside a page. They use only + * // %, so they take
Python ints, integer tensors and the symbols of a kernel alike. P is the page size, D the head dim,
t the entry within the page, b the value byte of an entry, g the scale byte of an entry.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import torch

from dsv4_iree.spec import CacheLayout, IndexerSpec


class Symbol(Protocol):
    """A number that is known later: kernels write the same formulas into their code."""

    def __add__(self, other: Symbol | int, /) -> Symbol: ...
    def __radd__(self, other: int, /) -> Symbol: ...
    def __mul__(self, other: Symbol | int, /) -> Symbol: ...
    def __floordiv__(self, other: int, /) -> Symbol: ...
    def __mod__(self, other: int, /) -> Symbol: ...


Int = TypeVar("Int", int, torch.Tensor, Symbol)


def value_offset(spec: IndexerSpec, t: Int, b: Int) -> Int:
    """Offset in its page of value byte b of entry t.

    N4  t*D/2 + b                                             b = d // 2
    N8  t*D + b                                               b = d
    F4  ((b//64*4 + b%64//16)*P + t)*16 + b%16                in the values tensor
    G4  t//n*n*D/2 + b//16*n*16 + t%n*16 + b%16               n = 32 if H >= 32 or D <= 64 else 16
    P8  t//16*16*D + b//16*256 + t%16*16 + b%16
    """
    row, layout = spec.value_bytes, spec.layout
    if layout in (CacheLayout.N4, CacheLayout.N8):
        return t * row + b
    if layout is CacheLayout.F4:
        return (b // 16 * spec.page_size + t) * 16 + b % 16
    n = spec.tokens_per_tile if layout is CacheLayout.G4 else 16
    return t // n * n * row + b // 16 * n * 16 + t % n * 16 + b % 16


def scale_offset(spec: IndexerSpec, t: Int, g: Int) -> Int:
    """Offset in its page of scale byte g of entry t.

    N4  P*D/2 + t*D/32 + g
    N8  P*D + 4*t + g                                         bytes of one little-endian fp32
    F4  g*P + t%16*(P//16) + t//16                            in the scales tensor
    G4  P*D/2 + t//n*n*S + g%s*n*(S//s) + t%n*(S//s) + g//s   S = D/32 scales, s = 64//n
    P8  as N8
    """
    page, row = spec.page_size, spec.scale_bytes
    values = page * spec.value_bytes
    if spec.layout is CacheLayout.F4:
        return g * page + t % 16 * (page // 16) + t // 16
    if spec.layout is not CacheLayout.G4:
        return values + t * row + g
    n = spec.tokens_per_tile
    low = min(64 // n, row)  # scale bytes that one 64-lane load takes side by side
    high = row // low
    return values + t // n * n * row + g % low * n * high + t % n * high + g // low


def page_offsets(spec: IndexerSpec) -> torch.Tensor:
    """[P, value_bytes + scale_bytes] int64: where each byte of each entry lies in its page.

    For F4 the scale offsets count from the start of the page's scales tensor.
    """
    t = torch.arange(spec.page_size)[:, None]
    values = value_offset(spec, t, torch.arange(spec.value_bytes)[None, :])
    scales = scale_offset(spec, t, torch.arange(spec.scale_bytes)[None, :])
    return torch.cat([values, scales], dim=1)


def as_entries(spec: IndexerSpec, cache: torch.Tensor) -> torch.Tensor:
    """Every entry's bytes in order, from a cache in any one-tensor layout.

    Args:
        spec: names the layout, page size and formats.
        cache: [num_pages, >= page_bytes] uint8, any page stride.

    Returns:
        [num_pages, P, value_bytes + scale_bytes] uint8.
    """
    return cache[:, page_offsets(spec).to(cache.device)]


def from_entries(spec: IndexerSpec, entries: torch.Tensor) -> torch.Tensor:
    """The inverse of `as_entries`: [num_pages, page_bytes] uint8 in the layout of `spec`."""
    pages = entries.new_zeros(entries.shape[0], spec.page_bytes)
    pages[:, page_offsets(spec).to(entries.device)] = entries
    return pages


def f4_to_entries(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Every entry's bytes from an F4 cache: the documented way from F4 to the other layouts.

    Args:
        values: [num_pages, D/128, 4, P, 16] uint8.
        scales: [num_pages, D/128, 4, P] uint8, entry order (t % 16) * (P // 16) + t // 16.

    Returns:
        [num_pages, P, D/2 + D/32] uint8; `from_entries` makes a page of another layout of it.
    """
    pages, tiles, _, page_size, _ = values.shape
    spec = IndexerSpec(layout=CacheLayout.F4, page_size=page_size, head_dim=tiles * 128)
    where = page_offsets(spec).to(values.device)
    v = values.reshape(pages, -1)[:, where[:, : spec.value_bytes]]
    s = scales.reshape(pages, -1)[:, where[:, spec.value_bytes :]]
    return torch.cat([v, s], dim=2)


def entries_to_f4(entries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse of `f4_to_entries`: values and scales of an F4 cache."""
    pages, page_size, entry_bytes = entries.shape
    spec = IndexerSpec(layout=CacheLayout.F4, page_size=page_size, head_dim=entry_bytes * 32 // 17)
    where = page_offsets(spec).to(entries.device)
    values = entries.new_zeros(pages, page_size * spec.value_bytes)
    scales = entries.new_zeros(pages, page_size * spec.scale_bytes)
    values[:, where[:, : spec.value_bytes]] = entries[:, :, : spec.value_bytes]
    scales[:, where[:, spec.value_bytes :]] = entries[:, :, spec.value_bytes :]
    tiles = spec.head_dim // 128
    return (
        values.view(pages, tiles, 4, page_size, 16),
        scales.view(pages, tiles, 4, page_size),
    )
