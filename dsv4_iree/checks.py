# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Argument checks of the public ops: shapes, dtypes, strides and devices on every call, values on
request. Each returns the tensors in the one form that the kernels and the reference take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from dsv4_iree.errors import ArgumentError, check_tensor
from dsv4_iree.spec import CacheLayout, Format, IndexerSpec

Quantized = tuple[torch.Tensor, torch.Tensor]
Vectors = torch.Tensor | Quantized
FLOATS = (torch.float32, torch.bfloat16)
_FP8 = {Format.FP8: torch.float8_e4m3fn, Format.FP8_FNUZ: torch.float8_e4m3fnuz}


def vectors(
    name: str, given: object, rows: Sequence[int | str], spec: IndexerSpec, device: torch.device
) -> tuple[torch.Tensor, ...]:
    """(values, scales) of quantised vectors of shape `rows`, or (tensor,) in format BF16."""
    if spec.format is Format.BF16:
        shape = (*rows, spec.head_dim)
        return (check_tensor(name, given, shape=shape, dtype=torch.bfloat16, device=device),)
    if not isinstance(given, tuple) or len(given) != 2:
        raise ArgumentError(
            f"{name}: expected a pair (values, scales) as quantize returns it, "
            f"got {type(given).__name__}"
        )
    value_dtypes = [torch.uint8, *([_FP8[spec.format]] if not spec.is_fp4 else [])]
    values = check_tensor(
        f"{name} values",
        given[0],
        shape=(*rows, spec.value_bytes),
        dtype=value_dtypes,
        device=device,
    )
    scales = check_tensor(
        f"{name} scales",
        given[1],
        shape=(*values.shape[:-1], spec.scale_bytes) if spec.is_fp4 else values.shape[:-1],
        dtype=torch.uint8 if spec.is_fp4 else torch.float32,
        device=device,
    )
    return values if values.dtype is torch.uint8 else values.view(torch.uint8), scales


def int32(
    name: str, given: object, shape: Sequence[int | str], device: torch.device
) -> torch.Tensor:
    return check_tensor(name, given, shape=shape, dtype=torch.int32, device=device)


def cache_pages(cache: object, spec: IndexerSpec, device: torch.device) -> torch.Tensor:
    """The cache as [num_pages, page_bytes] uint8 with any page stride.

    Takes [num_pages, >= page_bytes], or the nominal view [num_pages, P, 1, entry_bytes].
    """
    if spec.layout is CacheLayout.F4:
        raise ArgumentError(
            "cache: logits are not read from layout F4; gather its entries, or convert it with "
            "dsv4_iree.layout.f4_to_entries"
        )
    if isinstance(cache, torch.Tensor) and cache.dim() == 4:
        shape: tuple[int | str, ...] = ("num_pages", spec.page_size, 1, spec.entry_bytes)
        dense = cache.stride()[1:] == (spec.entry_bytes, spec.entry_bytes, 1)
    else:
        shape = ("num_pages", f">={spec.page_bytes}")
        dense = isinstance(cache, torch.Tensor) and cache.stride()[-1:] == (1,)
    pages = check_tensor(
        "cache", cache, shape=shape, dtype=torch.uint8, device=device, contiguous=False
    )
    if pages.dim() == 2 and pages.shape[1] < spec.page_bytes:
        raise ArgumentError(
            f"cache: expected at least {spec.page_bytes} bytes a page, got {pages.shape[1]}"
        )
    stride = pages.stride(0)
    if not dense or (stride < spec.page_bytes and pages.shape[0] > 1):
        raise ArgumentError(
            f"cache: expected dense pages at least {spec.page_bytes} bytes apart, "
            f"got strides {list(pages.stride())}"
        )
    if pages.shape[1:] == (spec.page_bytes,):
        return pages
    return pages.as_strided((pages.shape[0], spec.page_bytes), (stride, 1))


def cache_memory(
    cache: object, spec: IndexerSpec, device: torch.device
) -> tuple[torch.Tensor, ...]:
    """The cache as [num_pages, bytes] uint8: one memory, or the values and the scales of F4."""
    if spec.layout is not CacheLayout.F4:
        return (cache_pages(cache, spec, device),)
    if not isinstance(cache, tuple) or len(cache) != 2:
        raise ArgumentError(
            f"cache: expected a pair (values, scales) in layout F4, got {type(cache).__name__}"
        )
    size, tiles = spec.page_size, spec.head_dim // 128
    values = _split_pages("cache values", cache[0], ("num_pages", tiles, 4, size, 16), device)
    shape = (values.shape[0], tiles, 4, size)
    return values, _split_pages("cache scales", cache[1], shape, device)


def _split_pages(
    name: str, given: object, shape: Sequence[int | str], device: torch.device
) -> torch.Tensor:
    """Dense pages any number of bytes apart."""
    pages = check_tensor(
        name, given, shape=shape, dtype=torch.uint8, device=device, contiguous=False
    )
    count, page_bytes = pages.shape[0], pages.shape[1:].numel()
    if (count and not pages[0].is_contiguous()) or (count > 1 and pages.stride(0) < page_bytes):
        raise ArgumentError(
            f"{name}: expected dense pages at least {page_bytes} bytes apart, "
            f"got strides {list(pages.stride())}"
        )
    return pages.as_strided((count, page_bytes), (pages.stride(0), 1))


def flat_memory(pages: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """What the entry points take of a cache, by the names that errors use."""
    names = ("cache",) if len(pages) == 1 else ("cache values", "cache scales")
    return {name: flat_cache(part) for name, part in zip(names, pages)}


def flat_cache(pages: torch.Tensor) -> torch.Tensor:
    """The run of bytes from the first byte of page 0 to the last byte of the last page."""
    last = (pages.shape[0] - 1) * pages.stride(0) + pages.shape[1]
    return pages.as_strided((last,), (1,))


def output(
    name: str, out: object, shape: Sequence[int], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """`out` if it fits, a new tensor if it is None."""
    if out is None:
        return torch.empty(tuple(shape), dtype=dtype, device=device)
    return check_tensor(name, out, shape=shape, dtype=dtype, device=device)


def quantized_output(
    out: object, rows: Sequence[int], spec: IndexerSpec, device: torch.device
) -> Quantized:
    """`out`, checked, or new values and scales for vectors of shape `rows`."""
    if out is not None:
        values, scales = vectors("out", out, rows, spec, device)
        return values, scales
    scale_shape = (*rows, spec.scale_bytes) if spec.is_fp4 else tuple(rows)
    scale_dtype = torch.uint8 if spec.is_fp4 else torch.float32
    return (
        torch.empty((*rows, spec.value_bytes), dtype=torch.uint8, device=device),
        torch.empty(scale_shape, dtype=scale_dtype, device=device),
    )


def logits_output(
    out: object, rows: int, width: int, clean: bool, device: torch.device
) -> torch.Tensor:
    if out is None and not clean:
        raise ArgumentError("out: expected a tensor with clean=False, which keeps its values")
    return output("out", out, (rows, width), torch.float32, device)


def strided_logits(logits: object, device: torch.device) -> torch.Tensor:
    """Logits [T, N] whose rows may be further apart than N, as [T, row stride]; nothing is read."""
    given = check_tensor(
        "logits",
        logits,
        shape=("T", "N"),
        dtype=[torch.float32, torch.bfloat16],
        device=device,
        contiguous=False,
    )
    (rows, columns), (apart, within) = given.shape, given.stride()
    if given.is_contiguous():
        return given
    if within != 1 or apart < columns:
        raise ArgumentError(
            f"logits: expected dense rows at least {columns} apart, got strides {[apart, within]}"
        )
    room = given.untyped_storage().nbytes() // given.element_size() - given.storage_offset()
    if room < rows * apart:
        raise ArgumentError(
            f"logits: expected memory for {rows} rows of {apart}, got {room} elements; "
            "slice the first columns"
        )
    return given.as_strided((rows, apart), (apart, 1))


def float_dtype(name: str, dtype: object) -> None:
    choice(name, dtype, FLOATS)


def choice(name: str, value: object, allowed: Sequence[object]) -> None:
    if value not in allowed:
        words = " or ".join(str(one).removeprefix("torch.") for one in allowed)
        raise ArgumentError(f"{name}: expected {words}, got {value!r}")


@dataclass(frozen=True)
class Paged:
    """The checked arguments of a paged op."""

    queries: tuple[torch.Tensor, ...]
    weights: torch.Tensor
    pages: torch.Tensor
    block_table: torch.Tensor
    row_to_request: torch.Tensor
    start: torch.Tensor
    end: torch.Tensor

    @property
    def rows(self) -> int:
        return self.weights.shape[0]

    @property
    def has_keys(self) -> bool:
        return self.pages.shape[0] > 0 and self.block_table.numel() > 0

    @property
    def table(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.block_table, self.row_to_request

    def inputs(self) -> dict[str, torch.Tensor]:
        """By name, in the order of the compiled entry points."""
        return {
            "q values": self.queries[0],
            "q scales": self.queries[1],
            "weights": self.weights,
            "cache": flat_cache(self.pages),
            "block_table": self.block_table,
            "row_to_request": self.row_to_request,
            "start": self.start,
            "end": self.end,
        }


def paged(
    q: object,
    weights: object,
    cache: object,
    block_table: object,
    row_to_request: object,
    start: object,
    end: object,
    spec: IndexerSpec,
    device: torch.device,
) -> Paged:
    """Check what the paged ops have in common; `start` and `row_to_request` may be None."""
    queries = vectors("q", q, ("T", spec.num_heads), spec, device)
    pages, rows = cache_pages(cache, spec, device), queries[0].shape[0]
    pages_of, request = table(block_table, row_to_request, rows, device)
    heads = head_weights(weights, rows, spec, device)
    first, last = window(start, end, rows, device)
    return Paged(queries, heads, pages, pages_of, request, first, last)


def table(
    block_table: object, row_to_request: object, rows: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """block_table [B, W] and row_to_request [T] int32, by default T / B rows for each request."""
    pages = int32("block_table", block_table, ("B", "W"), device)
    requests = pages.shape[0]
    if row_to_request is not None:
        return pages, int32("row_to_request", row_to_request, (rows,), device)
    if rows % max(requests, 1):
        raise ArgumentError(
            f"row_to_request: expected it for {rows} rows of {requests} requests, got None; "
            "only a multiple of the requests has a default"
        )
    return pages, _consecutive(rows, max(rows // max(requests, 1), 1), device)


def angles(
    positions: object, cos_sin: object, rows: int, spec: IndexerSpec, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """positions [T] and the table [max_pos, R]; without RoPE no position is in the table."""
    if (positions is None) != (cos_sin is None):
        given, absent = ("positions", "cos_sin")[:: 1 if cos_sin is None else -1]
        raise ArgumentError(f"{absent}: expected it with {given}, got None")
    if cos_sin is None:
        return _nowhere(rows, device), _no_angles(spec.rope_dim, device)
    shape = ("max_pos", spec.rope_dim)
    table = check_tensor("cos_sin", cos_sin, shape=shape, dtype=FLOATS, device=device)
    at = check_tensor("positions", positions, shape=(rows,), dtype=torch.int64, device=device)
    return (at, table) if table.shape[0] else (at, _no_angles(spec.rope_dim, device))


@lru_cache(maxsize=64)
def _nowhere(rows: int, device: torch.device) -> torch.Tensor:
    return torch.full((rows,), -1, dtype=torch.int64, device=device)


@lru_cache(maxsize=64)
def _no_angles(dims: int, device: torch.device) -> torch.Tensor:
    """A table of one position, which turns nothing."""
    return torch.cat([torch.ones(1, dims // 2), torch.zeros(1, dims // 2)], dim=1).to(device)


def positions_are_valid(positions: torch.Tensor, cos_sin: torch.Tensor) -> None:
    """Value check: every position in the table, but for the negative ones of rows not in use."""
    if bool((positions >= cos_sin.shape[0]).any()):
        raise ArgumentError(
            f"positions: expected positions below {cos_sin.shape[0]}, got {int(positions.max())}"
        )


def head_weights(
    weights: object, rows: int, spec: IndexerSpec, device: torch.device
) -> torch.Tensor:
    shape = (rows, spec.num_heads)
    return check_tensor("weights", weights, shape=shape, dtype=torch.float32, device=device)


def window(
    start: object, end: object, rows: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """start [T] (0 if None) and end [T] int32."""
    first = _zeros(rows, device) if start is None else int32("start", start, (rows,), device)
    return first, int32("end", end, (rows,), device)


@lru_cache(maxsize=64)
def _zeros(rows: int, device: torch.device) -> torch.Tensor:
    """The default start. Kept, as `_consecutive` is: making it costs more than all its checks."""
    return torch.zeros(rows, dtype=torch.int32, device=device)


@lru_cache(maxsize=64)
def _consecutive(rows: int, next_n: int, device: torch.device) -> torch.Tensor:
    """The default row_to_request: next_n rows for each request in turn."""
    return torch.arange(rows, device=device).div(next_n, rounding_mode="floor").int()


def slots_are_valid(slots: torch.Tensor, num_slots: int) -> None:
    """Value check: every slot below `num_slots`, none but the negative ones twice."""
    used = slots[slots >= 0]
    if bool((used >= num_slots).any()):
        raise ArgumentError(
            f"slot_mapping: expected slots below {num_slots}, got {int(used.max())}"
        )
    unique, count = used.unique(return_counts=True)
    if bool((count > 1).any()):
        raise ArgumentError(
            f"slot_mapping: expected every slot once, got slot {int(unique[count > 1][0])} twice"
        )


def windows_are_valid(args: Paged, spec: IndexerSpec) -> None:
    """Value check: every entry inside a row's window lies in the table, on a page that exists."""
    requests, width = args.block_table.shape
    row_to_request, start, end = args.row_to_request, args.start, args.end
    bad = (row_to_request < 0) | (row_to_request >= requests)
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ArgumentError(
            f"row_to_request[{row}]: expected a request in [0, {requests}), "
            f"got {int(row_to_request[row])}"
        )
    live = end > start
    bad = live & ((start < 0) | (end > width * spec.page_size))
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ArgumentError(
            f"window[{row}]: expected one within [0, {width * spec.page_size}), "
            f"got [{int(start[row])}, {int(end[row])})"
        )
    column = torch.arange(width, device=start.device)
    first, last = start[:, None] // spec.page_size, (end[:, None] - 1) // spec.page_size
    used = live[:, None] & (column >= first) & (column <= last)
    page, num_pages = args.block_table[row_to_request.long()], args.pages.shape[0]
    bad = used & ((page < 0) | (page >= num_pages))
    if bool(bad.any()):
        row, at = (int(i) for i in bad.nonzero()[0])
        raise ArgumentError(
            f"block_table[{int(row_to_request[row])}, {at}]: expected a page id in "
            f"[0, {num_pages}), got {int(page[row, at])}"
        )
