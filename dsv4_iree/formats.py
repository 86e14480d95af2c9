# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The number formats of the reference, in plain torch: their exact values and their rounding."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dsv4_iree.spec import GROUP, Format, IndexerSpec, Rounding

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
FLOOR = {  # smallest amax / 6 of a group
    Rounding.R: 2.0**-126,
    Rounding.D: 1e-4 / 6,
    Rounding.S: 1e-4,
    Rounding.S2: 1e-4,
}


def hadamard(x: torch.Tensor) -> torch.Tensor:
    """x H_D / sqrt(D) along the last dim, Sylvester order, in fp32, rounded back to x's dtype.

    The sums are taken pairwise, strides 1, 2, 4, ...: that order fixes every bit. What falls below
    2^-126 on the way becomes +0, with or without hardware that flushes subnormals.
    """
    y, dim = _flush(x.float()), x.shape[-1]
    stride = 1
    while stride < dim:
        a, b = y.unflatten(-1, (-1, 2, stride)).unbind(-2)
        y = _flush(torch.stack([a + b, a - b], dim=-2).flatten(-3))
        stride *= 2
    return _flush(y * dim**-0.5).to(x.dtype)


def rope(x: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor) -> torch.Tensor:
    """x [T, H, D] with pairs (2i, 2i + 1) of its last dims turned by row t's angles, in fp32.

    (a, b) becomes (a cos - b sin, b cos + a sin), products rounded before they are added; what
    falls below 2^-126 becomes zero of its sign. A row whose position is not in the table stays.

    Args:
        cos_sin: [max_pos, R]: R / 2 cosines, then R / 2 sines, for the last R dims.
    """
    known = (positions >= 0) & (positions < cos_sin.shape[0])
    turned = x[known].float()
    angles = to_zero(cos_sin[positions[known]].float())[:, None]
    cos, sin = angles.chunk(2, dim=-1)
    a, b = to_zero(turned[..., -cos_sin.shape[1] :]).unflatten(-1, (-1, 2)).unbind(-1)
    real = to_zero(to_zero(a * cos) - to_zero(b * sin))
    imaginary = to_zero(to_zero(b * cos) + to_zero(a * sin))
    turned[..., -cos_sin.shape[1] :] = torch.stack([real, imaginary], dim=-1).flatten(-2)
    result = x.float().clone()  # for float32 x, float() gives x itself
    result[known] = turned
    return result


def to_zero(x: torch.Tensor) -> torch.Tensor:
    """Subnormals to zero of their sign, as some targets do by themselves."""
    return torch.where(x.abs() < 2.0**-126, torch.copysign(torch.zeros_like(x), x), x)


def _flush(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.abs() < 2.0**-126, 0.0, x)


def quantize_fp4(x: torch.Tensor, rounding: Rounding) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed codes [..., D/2] and scale bytes [..., D/32], both uint8, of x [..., D] float32."""
    groups = x.unflatten(-1, (-1, GROUP))
    if rounding is Rounding.S2:
        codes, e = _quantize_group(groups, Rounding.R)
        groups = (_e2m1(codes) * _e8m0(e)[..., None]).float()
    codes, e = _quantize_group(groups, rounding)
    codes = codes.flatten(-2)
    return codes[..., 0::2] | codes[..., 1::2] << 4, e


def quantize_fp8(x: torch.Tensor, kind: Format) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes [..., D] uint8 and power-of-two scales [...] float32 of x [..., D] float32."""
    dtype = torch.float8_e4m3fn if kind is Format.FP8 else torch.float8_e4m3fnuz
    largest = torch.finfo(dtype).max
    finite = x.isfinite().all(-1)
    x = torch.where(finite[..., None], x, 0.0)
    e = _ceil_exponent(x.abs().amax(-1).clamp_min(1e-4) / largest)
    values = (x * ((254 - e) << 23).view(torch.float32)[..., None]).to(dtype).view(torch.uint8)
    scale = torch.where(finite, (e << 23).view(torch.float32), float("nan"))
    return values, scale


def exact(vectors: Sequence[torch.Tensor], spec: IndexerSpec) -> torch.Tensor:
    """[..., D] float64 numbers of (values, scales) or, in format BF16, (numbers,): no rounding."""
    values, scales = vectors[0], vectors[-1]
    if spec.format is Format.BF16:
        return values.double()
    if spec.format is Format.FP4:
        codes = torch.stack([values & 15, values >> 4], dim=-1).flatten(-2)
        grouped: torch.Tensor = _e2m1(codes).unflatten(-1, (-1, GROUP)) * _e8m0(scales)[..., None]
        return grouped.flatten(-2)
    kind = torch.float8_e4m3fn if spec.format is Format.FP8 else torch.float8_e4m3fnuz
    return values.view(kind).double() * scales.double()[..., None]


def _e2m1(codes: torch.Tensor) -> torch.Tensor:
    magnitude = E2M1.to(codes.device)[(codes & 7).long()].double()
    return torch.where(codes >= 8, -magnitude, magnitude)


def _e8m0(e: torch.Tensor) -> torch.Tensor:
    scale = torch.ldexp(torch.ones_like(e, dtype=torch.float64), e.double() - 127)
    return torch.where(e == 255, float("nan"), scale)


def _ceil_exponent(x: torch.Tensor) -> torch.Tensor:
    """127 + ceil(log2(x)) of normal positive floats, by bit test: log2 itself rounds."""
    bits = x.view(torch.int32)
    return (bits >> 23) + ((bits & 0x7FFFFF) != 0).int()


def _quantize_group(x: torch.Tensor, rounding: Rounding) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [..., 32] uint8 and scale byte [...] uint8 of groups [..., 32] float32."""
    finite = x.isfinite().all(-1)
    x = torch.where(finite[..., None], x, 0.0)
    amax = x.abs().amax(-1)
    e = _ceil_exponent((amax * (1 / 6)).clamp_min(FLOOR[rounding]))
    scaled = x * ((254 - e) << 23).view(torch.float32)[..., None]
    midpoints = ((E2M1[1:] + E2M1[:-1]) / 2).to(x.device)
    above = scaled.abs()[..., None] > midpoints
    if rounding in (Rounding.R, Rounding.S2):  # a tie goes to the even code
        above |= (scaled.abs()[..., None] == midpoints) & (
            torch.arange(7, device=x.device) % 2 == 1
        )
    codes = above.sum(-1)
    negative = scaled.signbit()
    if rounding in (Rounding.D, Rounding.S):
        negative &= codes > 0
    codes = (codes + 8 * negative) * finite[..., None]
    return codes.to(torch.uint8), torch.where(finite, e, 255).to(torch.uint8)
