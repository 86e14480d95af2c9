# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantisation to MXFP4 and FP8 and back, bytes exact."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dsv4_iree.kernels.entry import Arg, Entry
from dsv4_iree.kernels.formats import (
    all_finite,
    ceil_exponent,
    e4m3_to_f32,
    f32_to_bf16,
    f32_to_e4m3,
    scaled_e2m1,
    times_power_of_two,
    unpack_codes,
    widen,
)
from dsv4_iree.spec import GROUP, Format, IndexerSpec, Rounding

MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)  # between the e2m1 magnitudes
SIXTH = 0.1666666716337204  # fp32 of 1/6


class Quantize(nn.Module):
    """keys [N, D] -> values and scales."""

    def __init__(self, spec: IndexerSpec) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        spec = self.spec
        if spec.hadamard:
            x = _hadamard(x)
        x = x.to(torch.float32)
        if not spec.is_fp4:
            return _fp8(x, spec.format is Format.FP8_FNUZ)
        groups = x.reshape(-1, spec.head_dim // GROUP, GROUP)
        if spec.rounding is Rounding.S2:
            code, e = _fp4(groups, Rounding.R)
            groups = scaled_e2m1(code, e[:, :, None])
        code, e = _fp4(groups, spec.rounding)
        code = code.reshape(-1, spec.head_dim // 2, 2)
        return (code[:, :, 0] | code[:, :, 1] << 4).to(torch.int8), e.to(torch.int8)


class Dequantize(nn.Module):
    """values and scales -> numbers [N, D]."""

    def __init__(self, spec: IndexerSpec, dtype: torch.dtype) -> None:
        super().__init__()
        self.spec, self.dtype = spec, dtype

    def forward(self, values: Tensor, scales: Tensor) -> Tensor:
        if self.spec.is_fp4:
            code = unpack_codes(values).reshape(-1, self.spec.head_dim // GROUP, GROUP)
            x = scaled_e2m1(code, widen(scales)[:, :, None]).flatten(1)
        else:
            fnuz = self.spec.format is Format.FP8_FNUZ
            x = e4m3_to_f32(widen(values), fnuz) * scales[:, None]
        return f32_to_bf16(x) if self.dtype is torch.bfloat16 else x


def quantized(spec: IndexerSpec, prefix: str, rows: tuple[int | str, ...]) -> tuple[Arg, Arg]:
    """The values and scales arguments of vectors of shape `rows`."""
    fp4 = spec.is_fp4
    scale_shape = (*rows, spec.scale_bytes) if fp4 else rows
    return (
        Arg(f"{prefix}values", torch.int8, (*rows, spec.value_bytes)),
        Arg(f"{prefix}scales", torch.int8 if fp4 else torch.float32, scale_shape),
    )


def quantize_entries(spec: IndexerSpec) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            f"quantize_{name}",
            Quantize(spec),
            inputs=(Arg("x", dtype, ("R", spec.head_dim)),),
            outputs=quantized(spec, "", ("R",)),
        )
        for name, dtype in (("bf16", torch.bfloat16), ("f32", torch.float32))
    )


def dequantize_entries(spec: IndexerSpec) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            f"dequantize_{name}",
            Dequantize(spec, dtype),
            inputs=quantized(spec, "", ("R",)),
            outputs=(Arg("x", dtype, ("R", spec.head_dim)),),
        )
        for name, dtype in (("bf16", torch.bfloat16), ("f32", torch.float32))
    )


def _hadamard(x: Tensor) -> Tensor:
    """Rows times H_D / sqrt(D): fp32 sums of pairs 1, 2, 4, ... apart, rounded to x's dtype."""
    dim = x.shape[1]
    y, stride = _flush(x.to(torch.float32)), 1
    while stride < dim:
        pairs = y.reshape(-1, dim // (2 * stride), 2, stride)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        y = _flush(torch.stack([a + b, a - b], dim=2).reshape(-1, dim))
        stride *= 2
    factor = torch.tensor(dim**-0.5, dtype=torch.float32).item()
    y = _flush(y * factor)
    return f32_to_bf16(y) if x.dtype is torch.bfloat16 else y


def _flush(x: Tensor) -> Tensor:
    """Subnormals to +0, so that hardware which flushes them by itself gives the same bytes."""
    return torch.where(x.abs() < 2.0**-126, 0.0, x)


def _fp4(groups: Tensor, rounding: Rounding) -> tuple[Tensor, Tensor]:
    """Codes [N, G, 32] and scale bytes [N, G], both int32."""
    finite = all_finite(groups)
    groups = torch.where(finite[:, :, None], groups, 0.0)
    amax = groups.abs().amax(2)
    if rounding is Rounding.D:
        sixth = amax.clamp(min=1e-4) / 6
    else:
        floor = 2.0**-126 if rounding is Rounding.R else 1e-4
        sixth = (amax * SIXTH).clamp(min=floor)
    e = ceil_exponent(sixth)
    x = times_power_of_two(groups, (127 - e)[:, :, None])
    magnitude = x.abs()
    to_even = rounding in (Rounding.R, Rounding.S2)
    code = torch.zeros_like(magnitude, dtype=torch.int32)
    for i, midpoint in enumerate(MIDPOINTS):
        # Passing the midpoint below an even code means going up, so a tie goes there.
        up = magnitude >= midpoint if to_even and i % 2 == 1 else magnitude > midpoint
        code = code + up.to(torch.int32)
    negative = x.view(torch.int32) < 0
    if not to_even:  # no negative zero
        negative = negative & (code > 0)
    code = torch.where(negative, code + 8, code)
    return torch.where(finite[:, :, None], code, 0), torch.where(finite, e, 255)


def _fp8(x: Tensor, fnuz: bool) -> tuple[Tensor, Tensor]:
    """Bytes [N, D] int8 and power-of-two scales [N] float32."""
    finite = all_finite(x)
    x = torch.where(finite[:, None], x, 0.0)
    e = ceil_exponent(x.abs().amax(1).clamp(min=1e-4) / (240.0 if fnuz else 448.0))
    scaled = times_power_of_two(x, (127 - e)[:, None])
    scale = torch.where(finite, (e << 23).view(torch.float32), float("nan"))
    return f32_to_e4m3(scaled, fnuz).to(torch.int8), scale
