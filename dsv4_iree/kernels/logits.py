# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ragged and paged logits in portable form.

The dot of two groups of e2m1 codes is a multiple of 1/4 below 1152, exact in fp32 (and in tf32 or
bf16 products). The two scales go onto it afterwards: that keeps every pair of e8m0 scales exact,
which scaling the operands beforehand would not.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dsv4_iree.kernels.cache import CACHE, entry_bytes, visible_pages
from dsv4_iree.kernels.entry import Arg, Entry
from dsv4_iree.kernels.formats import (
    e2m1_to_f32,
    e4m3_to_f32,
    f32_from_bytes,
    scaled,
    unpack_codes,
    widen,
)
from dsv4_iree.kernels.quantize import quantized
from dsv4_iree.spec import GROUP, Format, IndexerSpec

WINDOW = (Arg("start", torch.int32, ("T",)), Arg("end", torch.int32, ("T",)))


class RaggedLogits(nn.Module):
    """logits [T, K]: every row against the same keys."""

    def __init__(self, spec: IndexerSpec) -> None:
        super().__init__()
        self.spec = spec

    def forward(
        self,
        q_values: Tensor,
        q_scales: Tensor,
        k_values: Tensor,
        k_scales: Tensor,
        weights: Tensor,
        start: Tensor,
        end: Tensor,
        logits: Tensor,
        clean: Tensor,
    ) -> Tensor:
        keys = (k_values[None], k_scales[None])
        scored = _weighted_scores(self.spec, q_values, q_scales, keys, weights)
        column = torch.arange(k_values.shape[0], dtype=torch.int32)
        return _windowed(scored, logits, _inside(column, start, end), clean)


class Bf16Logits(nn.Module):
    """logits [T, K] of queries and keys that were not quantised."""

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        weights: Tensor,
        start: Tensor,
        end: Tensor,
        logits: Tensor,
        clean: Tensor,
    ) -> Tensor:
        score = torch.matmul(q.to(torch.float32), k.to(torch.float32).T)
        scored = (torch.relu(score) * weights[:, :, None]).sum(1)
        column = torch.arange(k.shape[0], dtype=torch.int32)
        return _windowed(scored, logits, _inside(column, start, end), clean)


class PagedLogits(nn.Module):
    """logits [T, N]: every row against the cached keys of its own request."""

    def __init__(self, spec: IndexerSpec) -> None:
        super().__init__()
        self.spec = spec

    def forward(
        self,
        q_values: Tensor,
        q_scales: Tensor,
        weights: Tensor,
        cache: Tensor,
        block_table: Tensor,
        row_to_request: Tensor,
        start: Tensor,
        end: Tensor,
        logits: Tensor,
        page_stride: Tensor,
        num_pages: Tensor,
        clean: Tensor,
    ) -> Tensor:
        scored, visible = self.scores(
            q_values, q_scales, weights, cache, block_table, row_to_request,
            logits.shape[1], page_stride, num_pages,
        )  # fmt: skip
        column = torch.arange(logits.shape[1], dtype=torch.int32)
        scored = torch.where(visible, scored, float("-inf"))
        return _windowed(scored, logits, _inside(column, start, end), clean)

    def scores(
        self,
        q_values: Tensor,
        q_scales: Tensor,
        weights: Tensor,
        cache: Tensor,
        block_table: Tensor,
        row_to_request: Tensor,
        width: int,
        page_stride: Tensor,
        num_pages: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Scores of entries 0..width-1 of each row's request, and which of them are visible."""
        spec, entry = self.spec, torch.arange(width)
        page, visible = visible_pages(
            block_table, row_to_request.to(torch.int64)[:, None], entry, num_pages, spec.page_size
        )
        token = (entry % spec.page_size).expand(page.shape)
        values, scales = entry_bytes(spec, cache, page, token, page_stride)
        keys = (values, scales if spec.is_fp4 else f32_from_bytes(scales))
        return _weighted_scores(spec, q_values, q_scales, keys, weights), visible


def _weighted_scores(
    spec: IndexerSpec,
    q_values: Tensor,
    q_scales: Tensor,
    keys: tuple[Tensor, Tensor],
    weights: Tensor,
) -> Tensor:
    """sum_h weights * relu(q . k) [T, N] for keys [T or 1, N, ...]."""
    if spec.is_fp4:
        score = _fp4_scores(spec, q_values, widen(q_scales), keys[0], widen(keys[1]))
        return (torch.relu(score) * weights[:, :, None]).sum(1)
    fnuz = spec.format is Format.FP8_FNUZ
    q, k = e4m3_to_f32(widen(q_values), fnuz), e4m3_to_f32(widen(keys[0]), fnuz)
    score = torch.relu(torch.matmul(q, k.transpose(1, 2)))
    factor = weights * q_scales
    return (score * factor[:, :, None]).sum(1) * keys[1]


def _fp4_scores(
    spec: IndexerSpec, q_values: Tensor, q_e: Tensor, k_values: Tensor, k_e: Tensor
) -> Tensor:
    """q . k [T, H, N]: one exact matmul of codes per scale group."""
    q, k = _codes(spec, q_values, q_e), _codes(spec, k_values, k_e)
    total = None
    for g in range(spec.head_dim // GROUP):
        dot = torch.matmul(q[:, :, g], k[:, :, g].transpose(1, 2))
        exponent = q_e[:, :, g][:, :, None] + k_e[:, :, g][:, None, :] - 254
        part = scaled(dot, exponent)
        total = part if total is None else total + part
    assert total is not None
    return total


def _codes(spec: IndexerSpec, values: Tensor, e: Tensor) -> Tensor:
    """[..., G, 32] float32 values of the codes; NaN where the scale byte is 255."""
    code = unpack_codes(values).unflatten(-1, (spec.head_dim // GROUP, GROUP))
    return torch.where((e == 255)[..., None], float("nan"), e2m1_to_f32(code))


def _inside(column: Tensor, start: Tensor, end: Tensor) -> Tensor:
    return (column >= start[:, None]) & (column < end[:, None])


def _windowed(scored: Tensor, old: Tensor, inside: Tensor, clean: Tensor) -> Tensor:
    """Scores inside; outside -inf or, unless `clean`, what was there."""
    return torch.where(inside, scored, torch.where(clean > 0, float("-inf"), old))


def ragged_entries(spec: IndexerSpec) -> tuple[Entry, ...]:
    weights = Arg("weights", torch.float32, ("T", spec.num_heads))
    if spec.format is Format.BF16:
        module: nn.Module = Bf16Logits()
        operands: tuple[Arg, ...] = (
            Arg("q", torch.bfloat16, ("T", spec.num_heads, spec.head_dim)),
            Arg("k", torch.bfloat16, ("K", spec.head_dim)),
        )
    else:
        module = RaggedLogits(spec)
        operands = (*query(spec), *quantized(spec, "k_", ("K",)))
    out = Arg("logits", torch.float32, ("T", "K"))
    inputs = (*operands, weights, *WINDOW)
    return (Entry("mqa_logits", module, inputs, (out,), ("clean",), inout=True),)


def paged_entries(spec: IndexerSpec) -> tuple[Entry, ...]:
    out = Arg("logits", torch.float32, ("T", "N"))
    scalars = ("page_stride", "num_pages", "clean")
    return (
        Entry("paged_mqa_logits", PagedLogits(spec), paged_inputs(spec), (out,), scalars, True),
    )


def query(spec: IndexerSpec) -> tuple[Arg, Arg]:
    return quantized(spec, "q_", ("T", spec.num_heads))


def paged_inputs(spec: IndexerSpec) -> tuple[Arg, ...]:
    return (
        *query(spec),
        Arg("weights", torch.float32, ("T", spec.num_heads)),
        CACHE,
        Arg("block_table", torch.int32, ("B", "W")),
        Arg("row_to_request", torch.int32, ("T",)),
        *WINDOW,
    )
