# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs, poison and comparators, for this package's tests and for people who port its kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from dsv4_iree import layout, reference
from dsv4_iree.checks import Quantized
from dsv4_iree.spec import CacheLayout, IndexerSpec

LOGITS_CALC_DIFF = 5e-6  # compiled logits against the reference on the same bytes
QUANTIZED_CALC_DIFF = 0.02  # FP4 logits against those of the vectors before quantisation


@dataclass(frozen=True)
class PagedInputs:
    """Arguments of the paged ops, in the names of `Indexer.paged_mqa_logits`."""

    q: Quantized
    weights: torch.Tensor
    cache: torch.Tensor
    block_table: torch.Tensor
    end: torch.Tensor
    start: torch.Tensor
    row_to_request: torch.Tensor

    def arguments(self) -> dict[str, object]:
        return dict(vars(self))

    def to(self, device: torch.device) -> PagedInputs:
        """The same on another device; the cache loses its page padding."""
        moved: dict[str, Any] = {
            name: tuple(t.to(device) for t in value)
            if isinstance(value, tuple)
            else value.to(device)
            for name, value in vars(self).items()
        }
        return PagedInputs(**moved)


def paged_inputs(
    spec: IndexerSpec,
    lengths: list[int],
    *,
    next_n: int = 1,
    seed: int = 0,
    page_padding: int = 0,
    spare_pages: int = 3,
    poison: int = 0xFF,
) -> PagedInputs:
    """Requests of the given lengths on shuffled pages, everything unused filled with poison.

    Args:
        lengths: entries that the last row of each request sees; row n of next_n sees
            next_n - 1 - n fewer. May be zero.
        page_padding: bytes between pages.
        spare_pages: pages that no request uses.
        poison: byte value of unused entries, padding and spare pages (0xFF: NaN scales).

    Unused block table entries hold garbage, valid ids and ids far out of range.
    """
    random = torch.Generator().manual_seed(seed)
    page_size = spec.page_size
    counts = [-(-length // page_size) for length in lengths]
    width = max(max(counts, default=0), 1) + 1
    num_pages = sum(counts) + spare_pages
    ids = torch.randperm(num_pages, generator=random).to(torch.int32)
    table = torch.tensor([2**31 - 1, -1, 0, num_pages, -(2**31)], dtype=torch.int32)
    table = table[torch.randint(5, (len(lengths), width), generator=random)]
    storage = torch.full((num_pages, spec.page_bytes + page_padding), poison, dtype=torch.uint8)
    cache, taken = storage[:, : spec.page_bytes], 0
    for b, (length, count) in enumerate(zip(lengths, counts)):
        pages = ids[taken : taken + count]
        table[b, :count], taken = pages, taken + count
        keys = torch.randn(length, spec.head_dim, generator=random)
        entry = torch.arange(length)
        slots = pages.long()[entry // page_size] * page_size + entry % page_size
        reference.write_cache(cache, *reference.quantize(keys, spec), slots, spec)
    rows = len(lengths) * next_n
    q = torch.randn(rows, spec.num_heads, spec.head_dim, generator=random)
    weights = torch.randn(rows, spec.num_heads, generator=random)
    last = torch.tensor(lengths, dtype=torch.int32).repeat_interleave(next_n)
    back = next_n - 1 - torch.arange(next_n, dtype=torch.int32).repeat(len(lengths))
    return PagedInputs(
        q=reference.quantize(q, spec),
        weights=weights,
        cache=cache,
        block_table=table,
        end=last - back,
        start=torch.zeros(rows, dtype=torch.int32),
        row_to_request=torch.arange(rows, dtype=torch.int32) // next_n,
    )


def calc_diff(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """1 - 2 <x, y> / (<x, x> + <y, y>) in float64: the measure of the public suites; 0 is equal."""
    x, y = actual.double(), expected.double()
    norm = float((x * x).sum() + (y * y).sum())
    return 0.0 if norm == 0 else 1 - 2 * float((x * y).sum()) / norm


def assert_logits_close(
    actual: torch.Tensor, expected: torch.Tensor, bound: float = LOGITS_CALC_DIFF
) -> None:
    """The -inf and NaN masks are equal and the finite logits within `bound` by `calc_diff`."""
    assert actual.shape == expected.shape, f"shape {list(actual.shape)}, {list(expected.shape)}"
    for name, mask in (("-inf", torch.isneginf), ("NaN", torch.isnan)):
        wrong = mask(actual) != mask(expected)
        where = wrong.nonzero()[:3].tolist()
        assert not wrong.any(), f"{int(wrong.sum())} logits differ in being {name}, first {where}"
    finite = expected.isfinite()
    diff = calc_diff(actual[finite], expected[finite])
    assert diff <= bound, f"calc_diff {diff:.3g}, allowed {bound:.3g}"


def assert_bytes_equal(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal bit for bit, NaN and the sign of zero included; reports the first difference."""
    assert actual.shape == expected.shape, f"shape {list(actual.shape)}, {list(expected.shape)}"
    assert actual.dtype == expected.dtype, f"dtype {actual.dtype}, {expected.dtype}"
    x, y = (  # not contiguous(): that keeps the stride of a single element
        torch.empty(t.shape or (1,), dtype=t.dtype).copy_(t).view(torch.uint8)
        for t in (actual, expected)
    )
    if not torch.equal(x, y):
        at = (x != y).nonzero()[0].tolist()
        raise AssertionError(
            f"{int((x != y).sum())} bytes differ, first at {at}: {x[tuple(at)]}, {y[tuple(at)]}"
        )


def assert_selection(
    indices: torch.Tensor, logits: torch.Tensor, start: torch.Tensor, end: torch.Tensor, atol: float
) -> None:
    """`indices` [T, k] is a right top-k of `logits` up to swaps of values within `atol`."""
    k = indices.shape[1]
    for t in range(indices.shape[0]):
        window = logits[t, int(start[t]) : max(int(end[t]), int(start[t]))]
        valid = window[window > float("-inf")]
        chosen = indices[t][indices[t] >= 0].long()
        count = min(k, len(valid))
        assert len(chosen) == count, f"row {t}: {len(chosen)} selected, expected {count}"
        assert (indices[t, count:] == -1).all(), f"row {t}: no -1 after the selected entries"
        assert len(chosen.unique()) == count, f"row {t}: an entry was selected twice"
        if count:
            kth = valid.topk(count).values[-1]
            lowest = window[chosen].min()
            assert lowest >= kth - atol, f"row {t}: selected {lowest:.6g}, left out {kth:.6g}"


def dequantized(inputs: PagedInputs, spec: IndexerSpec) -> torch.Tensor:
    """Every entry of every page as numbers: [num_pages, P, D] float32."""
    assert spec.layout is not CacheLayout.F4
    raw = layout.as_entries(spec, inputs.cache)
    values, scales = raw[..., : spec.value_bytes], raw[..., spec.value_bytes :].contiguous()
    scales = scales if spec.is_fp4 else scales.view(torch.float32)[..., 0]
    return reference.dequantize(values.contiguous(), scales, spec)
