"""Operands of vector instructions, and helpers that work out what a lane should hold."""

from __future__ import annotations

import math

import numpy as np

M32, M64 = 0xFFFFFFFF, 0xFFFF_FFFF_FFFF_FFFF

WORDS = np.array(
    [
        0,
        1,
        2,
        3,
        31,
        32,
        33,
        0x7F,
        0x80,
        0xFF,
        0x7FFF,
        0x8000,
        0xFFFF,
        0x10000,
        0x7FFFFF,
        0x800000,
        0xFFFFFF,
        0x1000000,
        0x7FFFFFFF,
        0x80000000,
        0x80000001,
        0xFFFFFFFE,
        0xFFFFFFFF,
        0x12345678,
    ],
    np.uint32,
)
FLOATS = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -2.5,
        3.25,
        1e-40,
        -1e-45,
        1e-20,
        3e38,
        -3e38,
        7.75,
        -0.3,
        math.inf,
        -math.inf,
        math.nan,
        65504.0,
        65520.0,
        1e10,
        -1e10,
        4294967296.0,
        2147483648.0,
    ],
    np.float32,
)
HALVES = np.array(
    [0, -0.0, 1, -1, 0.5, 2.5, -3.5, 65504, 6e-8, 1e-5, math.inf, -math.inf, math.nan, 100.25],
    np.float16,
)


def lanes(values: np.ndarray, seed: int) -> np.ndarray:
    """Every value in some lane, the rest drawn from them."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(values), rng.choice(values, 64)])[:64]


def signed(x: int, bits: int = 32) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def by_lane(f, *rows) -> np.ndarray:
    return np.array([f(*(int(row[n]) for row in rows)) & M32 for n in range(64)], np.uint32)


def same_floats(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal bit for bit, any NaN equal to any NaN."""
    bits = (
        np.uint16
        if got.dtype == np.float16
        else np.uint32
        if got.dtype == np.float32
        else np.uint64
    )
    both_nan = np.isnan(got) & np.isnan(want)
    return bool(((got.view(bits) == want.view(bits)) | both_nan).all())
