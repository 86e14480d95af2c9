# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""e2m1, e8m0 and e4m3 by integer arithmetic: the form every IREE target compiles right.

Bytes enter as int8 (torch.uint8 loses its sign rule on the way through torch-mlir) and are widened
with a mask. Values are built bit by bit: a gathered look-up table of a narrow float type does not
compile for llvm-cpu, and IREE's CPU runtime flushes subnormals, so no step that may meet one is
left to float arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor


def widen(byte: Tensor) -> Tensor:
    """int8 bytes as int32 in [0, 255]."""
    return byte.to(torch.int32) & 0xFF


def unpack_codes(values: Tensor) -> Tensor:
    """[..., D/2] int8 -> [..., D] int32 codes 0..15: two to a byte, low nibble first."""
    byte = widen(values)
    return torch.stack([byte & 15, byte >> 4], dim=-1).flatten(-2)


def e2m1_to_f32(code: Tensor) -> Tensor:
    """Codes 0..15 (int32) to their values; 0 and 0.5 are e2m1's subnormals."""
    magnitude = code & 7
    normal = ((magnitude >> 1) + 126) << 23 | (magnitude & 1) << 22
    bits = torch.where(magnitude < 2, magnitude * 0x3F000000, normal)
    return (bits | code >> 3 << 31).view(torch.float32)


def scaled(x: Tensor, exponent: Tensor) -> Tensor:
    """x * 2^exponent in fp32 for exponents in [-254, 254], which no single fp32 factor covers."""
    first = exponent.clamp(-126, 127)
    rest = (exponent - first).clamp(-126, 127)
    return x * _power_of_two(first) * _power_of_two(rest)


def scaled_e2m1(code: Tensor, e: Tensor) -> Tensor:
    """fp32 of code * 2^(e-127): code 0..15, scale byte e 0..255 (255: NaN), both int32.

    The smallest is 2^-128, a subnormal; beyond the fp32 range infinity.
    """
    magnitude = code & 7
    exponent = (magnitude >> 1) + e - 1  # of fp32, biased; below 1 the result is subnormal
    exponent = torch.where(magnitude == 1, e - 1, exponent)
    fraction = torch.where(magnitude == 1, 0, (magnitude & 1) << 22)
    subnormal = torch.where(exponent == 0, fraction + 0x800000 >> 1, fraction + 0x800000 >> 2)
    normal = (exponent.clamp(1, 254) << 23) + fraction
    bits = torch.where(exponent > 0, normal, subnormal)
    bits = torch.where(exponent > 254, 0x7F800000, bits)
    bits = torch.where(magnitude == 0, 0, bits)
    return torch.where(e == 255, 0x7FC00000, bits | code >> 3 << 31).view(torch.float32)


def times_power_of_two(x: Tensor, exponent: Tensor) -> Tensor:
    """x * 2^exponent for exponents in [-126, 126]; a subnormal x counts in full."""
    bits = x.view(torch.int32)
    fraction = (bits & 0x7FFFFF).to(torch.float32) * 2.0**-23  # x = fraction * 2^-126 if subnormal
    small = fraction * _power_of_two((exponent - 126).clamp(min=-126))
    small = torch.where(bits < 0, -small, small)
    return torch.where((bits & 0x7F800000) == 0, small, x * _power_of_two(exponent))


def e4m3_to_f32(byte: Tensor, fnuz: bool) -> Tensor:
    """FP8 bytes (int32 in [0, 255]) to values. e4m3fn: bias 7; e4m3fnuz: bias 8, 0x80 is NaN."""
    bias = 8 if fnuz else 7
    code = byte & 127
    normal = (((code >> 3) + 127 - bias) << 23 | (code & 7) << 20).view(torch.float32)
    value = torch.where(code < 8, code.to(torch.float32) * 2.0 ** (-2 - bias), normal)
    value = torch.where(byte > 127, -value, value)
    is_nan = byte == 128 if fnuz else code == 127
    return torch.where(is_nan, float("nan"), value)


def f32_to_e4m3(x: Tensor, fnuz: bool) -> Tensor:
    """Nearest-even FP8 bytes (int32) of values within the format's range."""
    bias = 8 if fnuz else 7
    bits = x.view(torch.int32)
    magnitude = bits & 0x7FFFFFFF
    rounded = (magnitude + 0x7FFFF + (magnitude >> 20 & 1)) >> 20
    normal = rounded - ((127 - bias) << 3)
    subnormal = torch.round(x.abs() * 2.0 ** (bias + 2)).to(torch.int32)
    code = torch.where(x.abs() < 2.0 ** (1 - bias), subnormal, normal)
    negative = bits < 0
    if fnuz:  # 0x80 would be NaN
        negative = negative & (code > 0)
    return torch.where(negative, code + 128, code)


def f32_to_bf16(x: Tensor) -> Tensor:
    """Nearest even, subnormals kept: the AVX512 instruction for this flushes them to zero."""
    bits = x.view(torch.int32)
    rounded = bits + 0x7FFF + (bits >> 16 & 1)
    rounded = torch.where(x == x, rounded, 0x7FC00000)  # rounding up could leave the NaNs
    return (rounded >> 16).to(torch.int16).view(torch.bfloat16)


def f32_bytes(x: Tensor) -> Tensor:
    """[...] float32 -> [..., 4] int8, little-endian."""
    bits = x.view(torch.int32)
    return torch.stack([bits, bits >> 8, bits >> 16, bits >> 24], dim=-1).to(torch.int8)


def f32_from_bytes(byte: Tensor) -> Tensor:
    """[..., 4] int8, little-endian -> [...] float32."""
    b = widen(byte)
    return (b[..., 0] | b[..., 1] << 8 | b[..., 2] << 16 | b[..., 3] << 24).view(torch.float32)


def all_finite(x: Tensor) -> Tensor:
    """Whether the last dim holds neither NaN nor infinity.

    Counted, because IREE 3.13 starts int32 minima of a GPU reduction from -1 and maxima from 0.
    """
    return (~(x.abs() < float("inf"))).to(torch.int32).sum(-1, dtype=torch.int32) == 0


def ceil_exponent(x: Tensor) -> Tensor:
    """127 + ceil(log2(x)) of normal positive floats (int32): log2 itself would round."""
    bits = x.view(torch.int32)
    return (bits >> 23) + ((bits & 0x7FFFFF) != 0).to(torch.int32)


def _power_of_two(exponent: Tensor) -> Tensor:
    return ((exponent + 127) << 23).view(torch.float32)
