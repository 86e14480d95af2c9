# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The same scores by a plain Triton kernel, for `bench.py` to compare with on an NVIDIA GPU.

One program per query row and tile of keys, bf16 dots, FP4 decoded in registers. It reads the same
bytes as the compiled ops; Triton comes with torch, and nothing else here uses it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 64


@triton.jit
def _decode(codes, scales):
    """bf16 from four-bit codes in int16 and their e8m0 scales."""
    bits = ((codes & 8) << 12) | ((codes & 7) << 6)
    # The bits are e2m1 times 2^-126; two factors, as 2^126 times a scale may be too large for one.
    up = tl.full((1, 1), 0x7E80, tl.int16).to(tl.bfloat16, bitcast=True)
    scale = (scales.to(tl.int16) << 7).to(tl.bfloat16, bitcast=True)
    return (bits.to(tl.bfloat16, bitcast=True) * up) * scale


@triton.jit
def _scores(
    q_values, q_scales, weights, values, scales, table, start, end, out,
    width, columns, page_stride, scale_offset, row_stride,
    HEADS: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr, PAGED: tl.constexpr,
):  # fmt: skip
    row, tile = tl.program_id(0), tl.program_id(1)
    key, byte, head = tl.arange(0, TILE), tl.arange(0, 64), tl.arange(0, HEADS)
    column = tile * TILE + key
    if PAGED:
        page = tl.load(table + row * width + tile * TILE // PAGE).to(tl.int64)
        token = (tile * TILE) % PAGE + key
        k_at = page * page_stride + token * 64
        s_at = page * page_stride + scale_offset + token * 4
    else:
        k_at, s_at = column.to(tl.int64) * 64, column.to(tl.int64) * 4
    inside = column < columns
    k = tl.load(values + k_at[:, None] + byte[None, :], inside[:, None], 0)
    k_scale = tl.load(scales + s_at[:, None] + byte[None, :] // 16, inside[:, None], 0)
    q_at = row.to(tl.int64) * HEADS + head
    q = tl.load(q_values + q_at[:, None] * 64 + byte[None, :])
    q_scale = tl.load(q_scales + q_at[:, None] * 4 + byte[None, :] // 16)
    dots = tl.dot(
        _decode((k & 15).to(tl.int16), k_scale), _decode((q & 15).to(tl.int16), q_scale).T
    )
    dots = tl.dot(
        _decode((k >> 4).to(tl.int16), k_scale), _decode((q >> 4).to(tl.int16), q_scale).T, dots
    )
    weight = tl.load(weights + q_at)
    logit = tl.sum(tl.maximum(dots, 0.0) * weight[None, :], 1)
    visible = (column >= tl.load(start + row)) & (column < tl.load(end + row))
    tl.store(out + row * row_stride + column, tl.where(visible, logit, float("-inf")), inside)


def paged_mqa_logits(q, weights, cache, table, end, out, page_size):
    """Rows of one request each, layout N4, page sizes that are multiples of 64."""
    rows, width = table.shape
    start, flat = torch.zeros_like(end), cache.view(-1)
    _scores[rows, width * page_size // TILE](
        *q, weights, flat, flat, table, start, end, out,
        width, width * page_size, cache.stride(0), page_size * 64, out.stride(0),
        HEADS=weights.shape[1], PAGE=page_size, TILE=TILE, PAGED=True,
    )  # fmt: skip
    return out


def mqa_logits(q, k, weights, end, out):
    rows, columns = out.shape
    _scores[rows, -(-columns // TILE)](
        *q, weights, *k, k[0], torch.zeros_like(end), end, out,
        0, columns, 0, 0, out.stride(0),
        HEADS=weights.shape[1], PAGE=TILE, TILE=TILE, PAGED=False,
    )  # fmt: skip
    return out
