# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Entry points of quantisation to MXFP4 and FP8 and back, bytes exact; `rows` has their kernels."""

from __future__ import annotations

import torch

from dsv4_iree.kernels.entry import Arg, Entry
from dsv4_iree.spec import IndexerSpec

FLOATS = (("bf16", torch.bfloat16), ("f32", torch.float32))


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
            None,
            inputs=(Arg("x", dtype, ("R", spec.head_dim)),),
            outputs=quantized(spec, "", ("R",)),
        )
        for name, dtype in FLOATS
    )


def dequantize_entries(spec: IndexerSpec) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            f"dequantize_{name}",
            None,
            inputs=quantized(spec, "", ("R",)),
            outputs=(Arg("x", dtype, ("R", spec.head_dim)),),
        )
        for name, dtype in FLOATS
    )
