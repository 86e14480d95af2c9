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


def e4m3_to_f32(byte: Tensor, fnuz: bool) -> Tensor:
    """FP8 bytes (int32 in [0, 255]) to values. e4m3fn: bias 7; e4m3fnuz: bias 8, 0x80 is NaN."""
    bias = 8 if fnuz else 7
    code = byte & 127
    normal = (((code >> 3) + 127 - bias) << 23 | (code & 7) << 20).view(torch.float32)
    value = torch.where(code < 8, code.to(torch.float32) * 2.0 ** (-2 - bias), normal)
    value = torch.where(byte > 127, -value, value)
    is_nan = byte == 128 if fnuz else code == 127
    return torch.where(is_nan, float("nan"), value)


def f32_from_bytes(byte: Tensor) -> Tensor:
    """[..., 4] int8, little-endian -> [...] float32."""
    b = widen(byte)
    return (b[..., 0] | b[..., 1] << 8 | b[..., 2] << 16 | b[..., 3] << 24).view(torch.float32)


def _power_of_two(exponent: Tensor) -> Tensor:
    return ((exponent + 127) << 23).view(torch.float32)
