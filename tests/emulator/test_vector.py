"""Vector opcodes: every expected value is computed here, in Python, from the ISA documents."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from machine import ALL, EXEC, LANE, VCC, Fault, Machine

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


def bits_reversed(x: int) -> int:
    return int(f"{x:032b}"[::-1], 2)


def leading(x: int) -> int:
    return M32 if x == 0 else 32 - x.bit_length()


def permuted(a: int, b: int, c: int) -> int:
    source, out = a << 32 | b, 0
    for n in range(4):
        s = c >> 8 * n & 255
        if s >= 13:
            byte = 255
        elif s == 12:
            byte = 0
        elif s >= 8:
            byte = 255 * (source >> (16 * (s - 8) + 15) & 1)
        else:
            byte = source >> 8 * s & 255
        out |= byte << 8 * n
    return out


def sad(a: int, b: int, c: int) -> int:
    return c + sum(abs((a >> 8 * n & 255) - (b >> 8 * n & 255)) for n in range(4))


def clip(x: int, low: int, high: int) -> int:
    return max(low, min(high, x))


INTEGER_1 = {
    "v_mov_b32": lambda a: a,
    "v_not_b32": lambda a: ~a,
    "v_bfrev_b32": bits_reversed,
    "v_ffbh_u32": leading,
    "v_ffbl_b32": lambda a: M32 if a == 0 else (a & -a).bit_length() - 1,
    "v_ffbh_i32": lambda a: leading(~a & M32 if a >> 31 else a),
}
INTEGER_2 = {
    "v_add_u32": lambda a, b: a + b,
    "v_sub_u32": lambda a, b: a - b,
    "v_subrev_u32": lambda a, b: b - a,
    "v_lshlrev_b32": lambda a, b: b << (a & 31),
    "v_lshrrev_b32": lambda a, b: b >> (a & 31),
    "v_ashrrev_i32": lambda a, b: signed(b) >> (a & 31),
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_min_i32": lambda a, b: min(signed(a), signed(b)),
    "v_max_i32": lambda a, b: max(signed(a), signed(b)),
    "v_min_u32": min,
    "v_max_u32": max,
    "v_mul_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "v_mul_hi_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32,
    "v_mul_i32_i24": lambda a, b: signed(a, 24) * signed(b, 24),
    "v_mul_hi_i32_i24": lambda a, b: signed(a, 24) * signed(b, 24) >> 32,
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: signed(a) * signed(b) >> 32,
    "v_bfm_b32": lambda a, b: ((1 << (a & 31)) - 1) << (b & 31),
    "v_bcnt_u32_b32": lambda a, b: a.bit_count() + b,
    "v_cvt_pk_u16_u32": lambda a, b: min(a, 65535) | min(b, 65535) << 16,
    "v_cvt_pk_i16_i32": lambda a, b: (
        (clip(signed(a), -32768, 32767) & 65535) | clip(signed(b), -32768, 32767) << 16
    ),
    "v_add_i32": lambda a, b: a + b,
    "v_sub_i32": lambda a, b: a - b,
    # 16-bit results clear the upper half on these chips.
    "v_add_u16": lambda a, b: a + b & 0xFFFF,
    "v_sub_u16": lambda a, b: a - b & 0xFFFF,
    "v_subrev_u16": lambda a, b: b - a & 0xFFFF,
    "v_mul_lo_u16": lambda a, b: a * b & 0xFFFF,
    "v_lshlrev_b16": lambda a, b: b << (a & 15) & 0xFFFF,
    "v_lshrrev_b16": lambda a, b: (b & 0xFFFF) >> (a & 15),
    "v_ashrrev_i16": lambda a, b: signed(b, 16) >> (a & 15) & 0xFFFF,
    "v_max_u16": lambda a, b: max(a & 0xFFFF, b & 0xFFFF),
    "v_min_u16": lambda a, b: min(a & 0xFFFF, b & 0xFFFF),
    "v_max_i16": lambda a, b: max(signed(a, 16), signed(b, 16)) & 0xFFFF,
    "v_min_i16": lambda a, b: min(signed(a, 16), signed(b, 16)) & 0xFFFF,
    "v_pack_b32_f16": lambda a, b: (a & 0xFFFF) | b << 16,
}
INTEGER_3 = {
    "v_mad_u32_u24": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
    "v_mad_i32_i24": lambda a, b, c: signed(a, 24) * signed(b, 24) + c,
    "v_bfe_u32": lambda a, b, c: a >> (b & 31) & ((1 << (c & 31)) - 1),
    "v_bfe_i32": lambda a, b, c: signed(a >> (b & 31), c & 31) if c & 31 else 0,
    "v_bfi_b32": lambda a, b, c: (a & b) | (~a & c),
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> (c & 31),
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> 8 * (c & 3),
    "v_min3_i32": lambda *x: min(map(signed, x)),
    "v_max3_i32": lambda *x: max(map(signed, x)),
    "v_med3_i32": lambda *x: sorted(map(signed, x))[1],
    "v_min3_u32": lambda *x: min(x),
    "v_max3_u32": lambda *x: max(x),
    "v_med3_u32": lambda *x: sorted(x)[1],
    "v_sad_u8": sad,
    "v_sad_u32": lambda a, b, c: abs(a - b) + c,
    "v_perm_b32": permuted,
    "v_mad_u32_u16": lambda a, b, c: (a & 0xFFFF) * (b & 0xFFFF) + c,
    "v_mad_i32_i16": lambda a, b, c: signed(a, 16) * signed(b, 16) + c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c,
    "v_add_lshl_u32": lambda a, b, c: ((a + b) & M32) << (c & 31),
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_lshl_or_b32": lambda a, b, c: a << (b & 31) | c,
    "v_and_or_b32": lambda a, b, c: (a & b) | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
}


def by_lane(f, *rows) -> np.ndarray:
    return np.array([f(*(int(row[n]) for row in rows)) & M32 for n in range(64)], np.uint32)


@pytest.mark.parametrize("name", INTEGER_1)
def test_integer_opcodes_of_one_source(name, target):
    m = Machine(target)
    m.v[1] = lanes(WORDS, 1)
    assert np.array_equal(m.run(f"{name} v0, v1").v[0], by_lane(INTEGER_1[name], m.v[1]))


@pytest.mark.parametrize("name", INTEGER_2)
def test_integer_opcodes_of_two_sources(name, target):
    m = Machine(target)
    m.v[1], m.v[2] = lanes(WORDS, 1), lanes(WORDS, 2)
    assert np.array_equal(
        m.run(f"{name} v0, v1, v2").v[0], by_lane(INTEGER_2[name], m.v[1], m.v[2])
    )


@pytest.mark.parametrize("name", INTEGER_3)
def test_integer_opcodes_of_three_sources(name, target):
    m = Machine(target)
    for n in (1, 2, 3):
        m.v[n] = lanes(WORDS, n)
    if name == "v_perm_b32":
        m.v[3] = (
            np.random.default_rng(0).integers(0, 15, (64, 4)).astype(np.uint8).view(np.uint32)[:, 0]
        )
    want = by_lane(INTEGER_3[name], m.v[1], m.v[2], m.v[3])
    assert np.array_equal(m.run(f"{name} v0, v1, v2, v3").v[0], want)


WIDE = {
    "v_lshlrev_b64 v[0:1], v6, v[2:3]": lambda a, b, c: b << (c & 63),
    "v_lshrrev_b64 v[0:1], v6, v[2:3]": lambda a, b, c: b >> (c & 63),
    "v_ashrrev_i64 v[0:1], v6, v[2:3]": lambda a, b, c: signed(b, 64) >> (c & 63),
    "v_lshl_add_u64 v[0:1], v[2:3], 3, v[4:5]": lambda a, b, c: (b << 3) + a,
    "v_mad_u64_u32 v[0:1], vcc, v6, v2, v[4:5]": lambda a, b, c: c * (b & M32) + a,
    "v_mad_i64_i32 v[0:1], vcc, v6, v2, v[4:5]": lambda a, b, c: signed(c) * signed(b) + a,
    "v_mov_b64 v[0:1], v[2:3]": lambda a, b, c: b,
}


@pytest.mark.parametrize("line", WIDE)
def test_64_bit_integer_opcodes(line, target):
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, M64, (2, 64), dtype=np.uint64, endpoint=True)
    m = Machine(target)
    m.set64(4, a), m.set64(2, b)
    m.v[6] = lanes(WORDS, 5)
    want = [WIDE[line](int(x), int(y), int(z)) & M64 for x, y, z in zip(a, b, m.v[6], strict=True)]
    assert m.run(line).get64(0).tolist() == want


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


def smaller(a, b):
    """A number wins over a NaN, -0 over +0."""
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    return min(a, b, key=lambda x: (x, math.copysign(1, x)))


def larger(a, b):
    return -smaller(-a, -b)


def fused(a, b, c):
    """a * b + c with one rounding, by way of exact rationals."""
    if not all(map(math.isfinite, (a, b, c))):
        with np.errstate(all="ignore"):
            return np.float32(np.float64(a) * np.float64(b) + np.float64(c))
    from fractions import Fraction

    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    return round_to_f32(exact)


def round_to_f32(exact):
    near = (
        np.float32(float(exact))
        if abs(exact) < 2**128
        else np.float32(math.copysign(math.inf, exact))
    )
    if not np.isfinite(near):
        return near
    options = [
        np.nextafter(near, np.float32(-math.inf)),
        near,
        np.nextafter(near, np.float32(math.inf)),
    ]
    options = [x for x in options if np.isfinite(x)]
    from fractions import Fraction

    best = min(options, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1))
    return best if best != 0 else np.float32(math.copysign(0.0, exact))


FLOAT_1 = {
    "v_trunc_f32": np.trunc,
    "v_ceil_f32": np.ceil,
    "v_floor_f32": np.floor,
    "v_rndne_f32": np.rint,
    "v_sqrt_f32": np.sqrt,
    "v_rcp_f32": lambda a: np.float32(1) / a,
    "v_rcp_iflag_f32": lambda a: np.float32(1) / a,
}
FLOAT_2 = {
    "v_add_f32": lambda a, b: a + b,
    "v_sub_f32": lambda a, b: a - b,
    "v_subrev_f32": lambda a, b: b - a,
    "v_mul_f32": lambda a, b: a * b,
    "v_min_f32": np.vectorize(smaller, otypes=[np.float32]),
    "v_max_f32": np.vectorize(larger, otypes=[np.float32]),
}
FLOAT_3 = {
    "v_fma_f32": np.vectorize(fused, otypes=[np.float32]),
    "v_min3_f32": np.vectorize(lambda a, b, c: smaller(smaller(a, b), c), otypes=[np.float32]),
    "v_max3_f32": np.vectorize(lambda a, b, c: larger(larger(a, b), c), otypes=[np.float32]),
}


def float_machine(target):
    m = Machine(target)
    for n in (1, 2, 3):
        m.v[n] = lanes(FLOATS, n).view(np.uint32)
    return m


@pytest.mark.parametrize("name", [*FLOAT_1, *FLOAT_2, *FLOAT_3])
def test_float_opcodes(name, target):
    m = float_machine(target)
    table = next(t for t in (FLOAT_1, FLOAT_2, FLOAT_3) if name in t)
    count = (FLOAT_1, FLOAT_2, FLOAT_3).index(table) + 1
    operands = [m.f32(n).copy() for n in range(1, count + 1)]
    with np.errstate(all="ignore"):
        want = table[name](*operands).astype(np.float32)
    m.run(f"{name} v0, " + ", ".join(f"v{n}" for n in range(1, count + 1)))
    assert same_floats(m.f32(0), want)


def test_median_takes_the_middle_and_the_least_when_there_is_a_nan(target):
    m = Machine(target)
    for n, x in enumerate(([3, 1, 2, 5], [1, 2, 3, math.nan], [2, 3, 1, 4]), start=1):
        m.v[n, :4] = np.array(x, np.float32).view(np.uint32)
    assert m.run("v_med3_f32 v0, v1, v2, v3").f32(0)[:4].tolist() == [2, 2, 2, 4]


def test_fmac_adds_to_what_the_destination_held(target):
    m = float_machine(target)
    m.v[0] = lanes(FLOATS, 9).view(np.uint32)
    want = FLOAT_3["v_fma_f32"](m.f32(1), m.f32(2), m.f32(0).copy())
    assert same_floats(m.run("v_fmac_f32 v0, v1, v2").f32(0), want)


def test_fused_with_a_literal_multiplier_or_addend(target):
    m = Machine(target)
    m.v[1:3] = np.array([[3.0] * 64, [5.0] * 64], np.float32).view(np.uint32)
    m.run("v_fmaak_f32 v3, v1, v2, 0x41200000", "v_fmamk_f32 v4, v1, 0x41200000, v2")
    assert m.f32(3)[0] == 25.0 and m.f32(4)[0] == 35.0


def test_exp_and_log_are_to_base_two_and_sine_counts_revolutions(target):
    m = Machine(target)
    m.v[1, :4] = np.array([3.0, -1.0, 0.25, 8.0], np.float32).view(np.uint32)
    m.run("v_exp_f32 v2, v1", "v_log_f32 v3, v1", "v_sin_f32 v4, v1", "v_rsq_f32 v5, v1")
    assert m.f32(2)[:2].tolist() == [8.0, 0.5]
    assert m.f32(3)[2:4].tolist() == [-2.0, 3.0]
    assert m.f32(4)[2] == 1.0
    assert m.f32(5)[2] == 2.0


def test_ldexp_scales_by_powers_of_two(target):
    m = Machine(target)
    m.v[1] = np.float32(1.5).view(np.uint32)
    m.v[2] = (LANE.astype(np.int32) - 32).view(np.uint32)
    want = np.ldexp(np.float32(1.5), LANE.astype(np.int32) - 32).astype(np.float32)
    assert same_floats(m.run("v_ldexp_f32 v0, v1, v2").f32(0), want)


def test_frexp_splits_a_float(target):
    m = Machine(target)
    m.v[1, :3] = np.array([12.0, -0.375, 0.0], np.float32).view(np.uint32)
    m.run("v_frexp_mant_f32 v2, v1", "v_frexp_exp_i32_f32 v3, v1")
    assert m.f32(2)[:3].tolist() == [0.75, -0.75, 0.0]
    assert m.v[3].view(np.int32)[:3].tolist() == [4, -1, 0]


def test_fraction_stays_below_one(target):
    m = Machine(target)
    m.v[1, :3] = np.array([2.75, -0.25, -1e-20], np.float32).view(np.uint32)
    got = m.run("v_fract_f32 v0, v1").f32(0)[:3]
    assert got[:2].tolist() == [0.75, 0.75] and got[2] == np.float32(1 - 2**-24)


TO_INTEGER = [
    0.0,
    -0.0,
    1.9,
    -1.9,
    2.5,
    4e9,
    5e9,
    -3e9,
    2147483647.0,
    math.inf,
    -math.inf,
    math.nan,
]


def test_float_to_integer_truncates_and_saturates(target):
    m = Machine(target)
    m.v[1, : len(TO_INTEGER)] = np.array(TO_INTEGER, np.float32).view(np.uint32)
    m.run("v_cvt_u32_f32 v2, v1", "v_cvt_i32_f32 v3, v1", "v_cvt_flr_i32_f32 v4, v1")
    top, low = 2**31 - 1, -(2**31)
    assert m.v[2, :12].tolist() == [0, 0, 1, 0, 2, 4000000000, M32, 0, 2**31, M32, 0, 0]
    assert m.v[3].view(np.int32)[:12].tolist() == [0, 0, 1, -1, 2, top, top, low, top, top, low, 0]
    assert m.v[4].view(np.int32)[:5].tolist() == [0, 0, 1, -2, 2]


def test_integer_to_float_rounds_to_nearest(target):
    m = Machine(target)
    m.v[1] = lanes(WORDS, 1)
    m.run(
        "v_cvt_f32_u32 v2, v1",
        "v_cvt_f32_i32 v3, v1",
        "v_cvt_f32_ubyte1 v4, v1",
        "v_cvt_f32_ubyte3 v5, v1",
    )
    assert same_floats(m.f32(2), m.v[1].astype(np.float32))
    assert same_floats(m.f32(3), m.v[1].view(np.int32).astype(np.float32))
    assert m.f32(4).tolist() == (m.v[1] >> 8 & 255).tolist()
    assert m.f32(5).tolist() == (m.v[1] >> 24).tolist()


def test_double_opcodes(target):
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal((3, 64)) * 1e3).astype(np.float64)
    m = Machine(target)
    m.set64(2, a), m.set64(4, b), m.set64(6, c)
    cases = {
        "v_add_f64 v[0:1], v[2:3], v[4:5]": a + b,
        "v_mul_f64 v[0:1], v[2:3], v[4:5]": a * b,
        "v_min_f64 v[0:1], v[2:3], v[4:5]": np.minimum(a, b),
        "v_max_f64 v[0:1], v[2:3], -v[4:5]": np.maximum(a, -b),
        "v_floor_f64 v[0:1], v[2:3]": np.floor(a),
        "v_rndne_f64 v[0:1], |v[2:3]|": np.rint(np.abs(a)),
        "v_trunc_f64 v[0:1], v[2:3]": np.trunc(a),
        "v_rcp_f64 v[0:1], v[2:3]": 1 / a,
        "v_sqrt_f64 v[0:1], |v[2:3]|": np.sqrt(np.abs(a)),
        "v_cvt_f64_i32 v[0:1], v8": np.arange(64, dtype=np.float64) - 5,
    }
    m.v[8] = (LANE.astype(np.int32) - 5).view(np.uint32)
    for line, want in cases.items():
        assert same_floats(m.run(line).get64(0).view(np.float64), want), line
    m.run("v_cvt_f32_f64 v0, v[2:3]", "v_cvt_i32_f64 v1, v[2:3]")
    assert same_floats(m.f32(0), a.astype(np.float32))
    assert m.v[1].view(np.int32).tolist() == np.trunc(a).astype(np.int32).tolist()


HALF_1 = {
    "v_trunc_f16": np.trunc,
    "v_ceil_f16": np.ceil,
    "v_floor_f16": np.floor,
    "v_rndne_f16": np.rint,
    "v_sqrt_f16": np.sqrt,
    "v_rcp_f16": lambda a: np.float16(1) / a,
}
HALF_2 = {
    "v_add_f16": lambda a, b: a + b,
    "v_sub_f16": lambda a, b: a - b,
    "v_subrev_f16": lambda a, b: b - a,
    "v_mul_f16": lambda a, b: a * b,
    "v_max_f16": np.vectorize(larger, otypes=[np.float16]),
    "v_min_f16": np.vectorize(smaller, otypes=[np.float16]),
}


@pytest.mark.parametrize("name", [*HALF_1, *HALF_2])
def test_half_opcodes_clear_the_upper_half(name, target):
    a, b = lanes(HALVES, 1), lanes(HALVES, 2)
    m = Machine(target)
    m.v[1], m.v[2] = a.view(np.uint16), b.view(np.uint16)
    m.v[1] |= 0x55550000
    with np.errstate(all="ignore"):
        want = (HALF_1[name](a) if name in HALF_1 else HALF_2[name](a, b)).astype(np.float16)
    m.run(f"{name} v0, v1" + (", v2" if name in HALF_2 else ""))
    assert same_floats(m.v[0].astype(np.uint16).view(np.float16), want)
    assert not (m.v[0] >> 16).any()


def test_conversions_between_widths(target):
    m = float_machine(target)
    with np.errstate(all="ignore"):
        half = m.f32(1).astype(np.float16)
    m.run("v_cvt_f16_f32 v4, v1", "v_cvt_f32_f16 v5, v4")
    assert same_floats(m.v[4].astype(np.uint16).view(np.float16), half)
    assert same_floats(m.f32(5), half.astype(np.float32))


def test_pkrtz_rounds_towards_zero(target):
    m = Machine(target)
    m.v[1] = np.float32(1 + 2**-10 + 2**-11 + 2**-12).view(np.uint32)
    m.v[2] = np.float32(-65535.0).view(np.uint32)
    got = m.run("v_cvt_pkrtz_f16_f32 v0, v1, v2").v[0, :1].view(np.float16)
    assert got.tolist() == [1 + 2**-10, -65504.0]


def test_gfx950_packs_bf16_and_f16_to_nearest():
    m = float_machine("gfx950")
    m.run("v_cvt_pk_bf16_f32 v4, v1, v2", "v_cvt_pk_f16_f32 v5, v1, v2")
    with np.errstate(all="ignore"):
        for at, n in ((0, 1), (1, 2)):
            got = m.v[4].view(np.uint16)[at::2].view(ml_dtypes.bfloat16).astype(np.float32)
            assert same_floats(got, m.f32(n).astype(ml_dtypes.bfloat16).astype(np.float32))
            assert same_floats(m.v[5].view(np.float16)[at::2].copy(), m.f32(n).astype(np.float16))


def test_bf16_source_of_gfx950():
    m = Machine("gfx950")
    m.v[1] = 0xFFFF3FC0
    assert m.run("v_cvt_f32_bf16 v0, v1").f32(0)[0] == 1.5


@pytest.mark.parametrize("table", [0b11001010, 0b10000001, 0x96])
def test_bitop3_is_a_truth_table(table):
    m = Machine("gfx950")
    for n in (1, 2, 3):
        m.v[n] = np.random.default_rng(n).integers(0, M32, 64, dtype=np.uint32)

    def expected(a, b, c):
        return sum(
            (table >> (4 * (a >> k & 1) + 2 * (b >> k & 1) + (c >> k & 1)) & 1) << k
            for k in range(32)
        )

    m.run(f"v_bitop3_b32 v0, v1, v2, v3 bitop3:0x{table:x}")
    assert np.array_equal(m.v[0], by_lane(expected, m.v[1], m.v[2], m.v[3]))


def test_bitop3_b16_keeps_the_upper_half():
    m = Machine("gfx950")
    m.v[0], m.v[1], m.v[2], m.v[3] = 0xAAAA0000, 0x1234FF00, 0x0F0F, 0
    assert m.run("v_bitop3_b16 v0, v1, v2, v3 bitop3:0xc0").v[0, 0] == 0xAAAA0F00


# ---- modifiers, constants, EXEC ---------------------------------------------------------------


def test_neg_abs_omod_and_clamp(target):
    m = Machine(target)
    m.v[1] = np.float32(-3.0).view(np.uint32)
    m.v[2] = np.float32(0.5).view(np.uint32)
    m.run(
        "v_add_f32 v3, |v1|, -v2",
        "v_mul_f32 v4, v1, v2 clamp",
        "v_add_f32 v5, -|v1|, v2",
        "v_add_f32 v6, |v1|, v2 clamp",
    )
    assert [m.f32(n)[0] for n in (3, 4, 5, 6)] == [2.5, 0.0, -2.5, 1.0]
    m.mode &= ~0x30  # the output scale works only where subnormals are flushed
    m.run("v_mul_f32 v7, v1, v2 mul:4", "v_mul_f32 v8, v1, v2 div:2")
    assert [m.f32(7)[0], m.f32(8)[0]] == [-6.0, -0.75]


def test_output_scale_with_subnormals_on_is_refused(target):
    with pytest.raises(Fault, match="output scale while subnormals are kept"):
        Machine(target).run("v_mul_f32 v7, v1, v2 mul:4")


def test_clamp_of_an_integer_is_refused(target):
    with pytest.raises(Fault, match=r"v_add_u32 .*clamp or output scale on an integer"):
        Machine(target).run("v_add_u32 v7, v1, v2 clamp")


def test_flush_mode_flushes_subnormals_of_floats_only(target):
    m = Machine(target)
    m.v[1] = 1  # the least subnormal
    m.mode &= ~0x30
    m.run("v_add_f32 v2, v1, v1", "v_add_u32 v3, v1, v1", "v_mov_b32 v4, v1")
    assert [m.v[2, 0], m.v[3, 0], m.v[4, 0]] == [0, 2, 1]


def test_setreg_switches_flushing_on_and_off(target):
    m = Machine(target)
    m.v[1] = 1
    m.run(
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0",
        "v_add_f32 v2, v1, v1",
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3",
        "v_add_f32 v3, v1, v1",
        "s_getreg_b32 s0, hwreg(HW_REG_MODE, 4, 4)",
    )
    assert (m.v[2, 0], m.v[3, 0], m.s[0]) == (0, 2, 15)


INLINE = {
    "64": 64,
    "-16": -16 & M32,
    "0.5": 0x3F000000,
    "-4.0": 0xC0800000,
    "0x12345678": 0x12345678,
}


@pytest.mark.parametrize("text", INLINE)
def test_constants_and_scalars_feed_all_lanes(text, target):
    m = Machine(target)
    m.s[7] = 99
    m.run(f"v_mov_b32 v0, {text}", "v_mov_b32 v1, s7")
    assert (m.v[0] == INLINE[text]).all() and (m.v[1] == 99).all()


def test_scalar_register_zero_as_second_source(target):
    m = Machine(target)
    m.s[0] = 5
    m.v[1] = LANE
    assert m.run("v_add_u32 v0, s0, v1").v[0].tolist() == (LANE + 5).tolist()
    assert m.run("v_lshl_add_u32 v0, v1, s0, s0").v[0].tolist() == ((LANE << 5) + 5).tolist()


def test_float_constants_are_halves_for_half_opcodes(target):
    m = Machine(target)
    m.v[1] = 0x3C00
    assert m.run("v_add_f16 v0, 0.5, v1").v[0, 0] == 0x3E00


def test_inactive_lanes_are_not_written(target):
    m = Machine(target)
    m.set_pair(EXEC, 0xF0F0F0F0_00FF00FF)
    m.v[0], m.v[1] = 7, 9
    m.run("v_mov_b32 v0, v1", "v_mov_b64 v[2:3], 5")
    on = np.array([0xF0F0F0F0_00FF00FF >> n & 1 for n in range(64)], bool)
    assert np.array_equal(m.v[0], np.where(on, 9, 7))
    assert np.array_equal(m.v[2], np.where(on, 5, 0xDEADBEEF))


def test_op_sel_picks_halves_of_16_bit_operands(target):
    m = Machine(target)
    m.v[0], m.v[1], m.v[2] = 0x77777777, 0x00010002, 0x00100020
    m.v[3] = 0
    m.run("v_mad_u16 v0, v1, v2, v3 op_sel:[1,0,0,1]")
    assert m.v[0, 0] == 0x00207777  # 1 * 0x20 into the high half, the low one kept
    m.run("v_mad_u16 v0, v1, v2, v3 op_sel:[0,1,0,0]")
    assert m.v[0, 0] == 0x00200020  # 2 * 0x10 into the low half, the high one kept


# ---- DPP --------------------------------------------------------------------------------------

NONE = -1
DPP = {
    "quad_perm:[3,2,1,0]": lambda n: n & ~3 | 3 - (n & 3),
    "row_shl:1": lambda n: n + 1 if n % 16 < 15 else NONE,
    "row_shr:1": lambda n: n - 1 if n % 16 >= 1 else NONE,
    "row_shr:15": lambda n: n - 15 if n % 16 >= 15 else NONE,
    "row_ror:4": lambda n: n // 16 * 16 + (n % 16 - 4) % 16,
    "row_mirror": lambda n: n // 16 * 16 + 15 - n % 16,
    "row_half_mirror": lambda n: n // 8 * 8 + 7 - n % 8,
    "row_bcast:15": lambda n: n // 16 * 16 - 1 if n >= 16 else NONE,
    "row_bcast:31": lambda n: 31 if n >= 32 else NONE,
    "wave_shl:1": lambda n: n + 1 if n < 63 else NONE,
    "wave_shr:1": lambda n: n - 1,
    "wave_rol:1": lambda n: (n + 1) % 64,
    "wave_ror:1": lambda n: (n - 1) % 64,
    "row_newbcast:5": lambda n: n // 16 * 16 + 5,
}


@pytest.mark.parametrize("bound", [False, True], ids=["keep", "zero"])
@pytest.mark.parametrize("control", DPP)
def test_dpp_moves_lanes(control, bound, target):
    m = Machine(target)
    m.v[0], m.v[1] = 1000, LANE + 1
    suffix = " bound_ctrl:1" if bound else ""
    m.run(f"v_mov_b32_dpp v0, v1 {control} row_mask:0xf bank_mask:0xf{suffix}")
    source = [DPP[control](n) for n in range(64)]
    missing = 0 if bound else 1000
    assert m.v[0].tolist() == [s + 1 if s != NONE else missing for s in source]


def test_dpp_masks_rows_and_banks(target):
    m = Machine(target)
    m.v[0], m.v[1], m.v[2] = 5, LANE, 100
    m.run("v_add_u32_dpp v0, v1, v2 row_mirror row_mask:0x5 bank_mask:0x3 bound_ctrl:1")
    want = [
        100 + n // 16 * 16 + 15 - n % 16 if n // 16 in (0, 2) and n % 16 < 8 else 5
        for n in range(64)
    ]
    assert m.v[0].tolist() == want


def test_dpp_does_not_read_inactive_lanes(target):
    m = Machine(target)
    m.set_pair(EXEC, ALL & ~(1 << 3))
    m.v[0], m.v[1] = 500, LANE
    m.run("v_mov_b32_dpp v0, v1 row_shr:1 row_mask:0xf bank_mask:0xf")
    assert m.v[0, :6].tolist() == [500, 0, 1, 500, 500, 4]


# ---- SDWA -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "operands", "to", "select", "want"),
    [
        (
            "v_add_u32_sdwa",
            "v0, v1, v2",
            "DWORD dst_unused:UNUSED_PAD",
            "src0_sel:BYTE_1 src1_sel:WORD_1",
            0x33 + 0x5566,
        ),
        (
            "v_add_u32_sdwa",
            "v0, sext(v1), v2",
            "DWORD dst_unused:UNUSED_PAD",
            "src0_sel:BYTE_3 src1_sel:BYTE_0",
            (0x88 - 256) & M32,
        ),
        (
            "v_add_u32_sdwa",
            "v0, v1, v2",
            "BYTE_2 dst_unused:UNUSED_PAD",
            "src0_sel:BYTE_0 src1_sel:DWORD",
            0x00440000,
        ),
        (
            "v_add_u32_sdwa",
            "v0, v1, v2",
            "BYTE_2 dst_unused:UNUSED_PRESERVE",
            "src0_sel:BYTE_0 src1_sel:DWORD",
            0xAA44AAAA,
        ),
        (
            "v_add_u32_sdwa",
            "v0, v1, v2",
            "WORD_1 dst_unused:UNUSED_SEXT",
            "src0_sel:BYTE_0 src1_sel:DWORD",
            0x00440000,
        ),
        (
            "v_lshlrev_b32_sdwa",
            "v0, v3, v1",
            "DWORD dst_unused:UNUSED_PAD",
            "src0_sel:DWORD src1_sel:BYTE_2",
            0x22 << 4,
        ),
        (
            "v_lshlrev_b32_sdwa",
            "v0, s4, v1",
            "DWORD dst_unused:UNUSED_PAD",
            "src0_sel:DWORD src1_sel:WORD_0",
            0x3344 << 8,
        ),
        (
            "v_cvt_f32_i32_sdwa",
            "v0, sext(v1)",
            "DWORD dst_unused:UNUSED_PAD",
            "src0_sel:BYTE_3",
            0xC2F00000,
        ),
    ],
)
def test_sdwa_selects_parts_of_words(name, operands, to, select, want, target):
    m = Machine(target)
    m.v[0], m.v[1], m.v[2], m.v[3] = 0xAAAAAAAA, 0x88223344, 0x55660000, 4
    m.s[4] = 8
    line = f"{name} {operands} dst_sel:{to} {select}"
    assert m.run(line).v[0, 0] == want


def test_sdwa_compare_writes_the_mask_it_names(target):
    m = Machine(target)
    m.v[1], m.v[2] = LANE << 8, 3
    m.run("v_cmp_eq_u32_sdwa s[4:5], v1, v2 src0_sel:BYTE_1 src1_sel:DWORD")
    assert m.pair(4) == 1 << 3


# ---- compares ---------------------------------------------------------------------------------

PREDICATES = {
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "ne": lambda a, b: a != b,
    "lg": lambda a, b: a < b or a > b,
    "o": lambda a, b: a == a and b == b,
    "u": lambda a, b: a != a or b != b,
    "nge": lambda a, b: not a >= b,
    "nlg": lambda a, b: not (a < b or a > b),
    "ngt": lambda a, b: not a > b,
    "nle": lambda a, b: not a <= b,
    "neq": lambda a, b: a != b,
    "nlt": lambda a, b: not a < b,
}
FLOAT_PREDICATES = [p for p in PREDICATES if p != "ne"]


def mask_of(bools) -> int:
    return sum(int(bool(x)) << n for n, x in enumerate(bools))


@pytest.mark.parametrize("kind", ["i16", "u16", "i32", "u32", "i64", "u64"])
def test_integer_compares(kind, target):
    bits = int(kind[1:])
    rng = np.random.default_rng(4)
    a = rng.integers(0, 4, 64).astype(np.uint64) * np.uint64(0x5555555555555555)
    b = rng.integers(0, 4, 64).astype(np.uint64) * np.uint64(0x5555555555555555)
    m = Machine(target)
    m.set64(2, a), m.set64(4, b)
    operands = "v[2:3], v[4:5]" if bits == 64 else "v2, v4"
    value = (
        (lambda x: signed(int(x), bits)) if kind[0] == "i" else (lambda x: int(x) & (1 << bits) - 1)
    )
    for p in ("lt", "eq", "le", "gt", "ne", "ge"):
        m.run(f"v_cmp_{p}_{kind} vcc, {operands}", f"v_cmp_{p}_{kind} s[8:9], {operands}")
        want = mask_of(PREDICATES[p](value(x), value(y)) for x, y in zip(a, b, strict=True))
        assert m.pair(VCC) == want == m.pair(8), p


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_float_compares(kind, target):
    values = np.array([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 2.5])
    a, b = lanes(values, 1), lanes(values, 2)
    m = Machine(target)
    if kind == "f64":
        m.set64(2, a), m.set64(4, b)
    else:
        dtype = {"f16": np.float16, "f32": np.float32}[kind]
        bits = {"f16": np.uint16, "f32": np.uint32}[kind]
        m.v[2], m.v[4] = a.astype(dtype).view(bits), b.astype(dtype).view(bits)
    operands = "v[2:3], v[4:5]" if kind == "f64" else "v2, v4"
    for p in FLOAT_PREDICATES:
        m.run(f"v_cmp_{p}_{kind} vcc, {operands}")
        assert m.pair(VCC) == mask_of(PREDICATES[p](x, y) for x, y in zip(a, b, strict=True)), p


def test_compare_leaves_zeros_for_inactive_lanes_and_cmpx_narrows_exec(target):
    m = Machine(target)
    m.set_pair(EXEC, 0xFF)
    m.v[1] = LANE
    m.run("v_cmp_gt_u32 vcc, 100, v1", "v_cmpx_lt_u32 s[4:5], 3, v1")
    assert m.pair(VCC) == 0xFF
    assert m.pair(4) == m.pair(EXEC) == 0xF0


def test_classes_of_floats(target):
    m = Machine(target)
    samples = [0x7F800001, 0x7FC00000, 0xFF800000, 0xBF800000, 0x80000001, 0x80000000]
    samples += [0, 1, 0x3F800000, 0x7F800000]
    m.v[1, :10] = samples
    for bit in range(10):
        m.v[2] = 1 << bit
        assert m.run("v_cmp_class_f32 vcc, v1, v2").pair(VCC) & 0x3FF == 1 << bit


# ---- carries, selects, lanes ------------------------------------------------------------------


def test_carry_chain_adds_64_bit_numbers(target):
    rng = np.random.default_rng(7)
    a, b = rng.integers(0, M64, (2, 64), dtype=np.uint64, endpoint=True)
    m = Machine(target)
    m.set64(2, a), m.set64(4, b)
    m.run("v_add_co_u32 v0, vcc, v2, v4", "v_addc_co_u32 v1, vcc, v3, v5, vcc")
    assert np.array_equal(m.get64(0), a + b)
    m.run("v_sub_co_u32 v0, s[8:9], v2, v4", "v_subb_co_u32 v1, s[8:9], v3, v5, s[8:9]")
    assert np.array_equal(m.get64(0), a - b)
    assert m.pair(8) == mask_of(a < b)
    m.run("v_subrev_co_u32 v0, vcc, v2, v4", "v_subbrev_co_u32 v1, vcc, v3, v5, vcc")
    assert np.array_equal(m.get64(0), b - a)


def test_cndmask_picks_by_a_mask_and_negates(target):
    m = Machine(target)
    m.set_pair(VCC, 0xAAAAAAAA_AAAAAAAA), m.set_pair(8, 0xF)
    m.v[1], m.v[2] = np.float32(1).view(np.uint32), np.float32(2).view(np.uint32)
    m.run("v_cndmask_b32 v3, v1, v2, vcc", "v_cndmask_b32 v4, v1, -v2, s[8:9]")
    assert m.f32(3)[:4].tolist() == [1, 2, 1, 2]
    assert m.f32(4)[:6].tolist() == [-2, -2, -2, -2, 1, 1]


def test_lanes_to_scalars_and_back(target):
    m = Machine(target)
    m.set_pair(EXEC, 0xFF00)
    m.v[1], m.v[2], m.s[4], m.s[5] = LANE * 3, 0, 70, 77
    m.run("v_readfirstlane_b32 s0, v1", "v_readlane_b32 s1, v1, s4", "v_writelane_b32 v2, s5, 9")
    assert (m.s[0], m.s[1], m.v[2, 9], m.v[2, 8]) == (24, 18, 77, 0)


def test_swap_and_permlane_swap():
    m = Machine("gfx950")
    m.v[0], m.v[1], m.v[2], m.v[3] = LANE, LANE + 100, LANE, LANE + 100
    m.run("v_permlane32_swap_b32 v0, v1", "v_permlane16_swap_b32 v2, v3")
    assert m.v[0].tolist() == [*range(32), *range(100, 132)]
    assert m.v[1].tolist() == [*range(32, 64), *range(132, 164)]
    assert m.v[2].tolist() == [*range(16), *range(100, 116), *range(32, 48), *range(132, 148)]
    assert m.v[3].tolist() == [*range(16, 32), *range(116, 132), *range(48, 64), *range(148, 164)]
    m.run("v_swap_b32 v0, v1")
    assert m.v[1].tolist() == [*range(32), *range(100, 132)]


def test_mbcnt_counts_the_lanes_below(target):
    m = Machine(target)
    m.run("v_mbcnt_lo_u32_b32 v0, -1, 0", "v_mbcnt_hi_u32_b32 v0, -1, v0")
    assert np.array_equal(m.v[0], LANE)


def test_accumulation_registers_move(target):
    m = Machine(target)
    m.v[1] = LANE
    m.run("v_accvgpr_write_b32 a5, v1", "v_accvgpr_mov_b32 a6, a5", "v_accvgpr_read_b32 v2, a6")
    assert np.array_equal(m.v[2], LANE)


# ---- division ---------------------------------------------------------------------------------

DIVIDE = (
    "v_div_scale_f32 v3, s[8:9], v2, v2, v1",
    "v_rcp_f32 v4, v3",
    "v_div_scale_f32 v5, vcc, v1, v2, v1",
    "v_fma_f32 v6, -v3, v4, 1.0",
    "v_fma_f32 v4, v6, v4, v4",
    "v_mul_f32 v7, v5, v4",
    "v_fma_f32 v8, -v3, v7, v5",
    "v_fma_f32 v7, v8, v4, v7",
    "v_fma_f32 v3, -v3, v7, v5",
    "v_div_fmas_f32 v3, v3, v4, v7",
    "v_div_fixup_f32 v0, v3, v2, v1",
)


def test_the_compilers_division_sequence_is_correctly_rounded(target):
    rng = np.random.default_rng(0)
    special = np.array(
        [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-38, 3e38, 1e-30, 1e30, 1.0, -7.0], np.float32
    )
    a = np.concatenate([special, rng.standard_normal(53).astype(np.float32)])
    for shift in range(0, 64, 3):
        b = np.roll(a, shift)
        m = Machine(target)
        m.v[1], m.v[2] = a.view(np.uint32), b.view(np.uint32)
        with np.errstate(all="ignore"):
            want = a / b
        subnormal = (np.abs(want) < 2.0**-126) & (want != 0)
        got = m.run(*DIVIDE).f32(0)
        assert same_floats(
            np.where(subnormal, 0, got).astype(np.float32),
            np.where(subnormal, 0, want).astype(np.float32),
        )


# ---- floats of 8 bits and fewer ---------------------------------------------------------------

SMALL = {
    ("gfx942", "fp8"): ml_dtypes.float8_e4m3fnuz,
    ("gfx942", "bf8"): ml_dtypes.float8_e5m2fnuz,
    ("gfx950", "fp8"): ml_dtypes.float8_e4m3fn,
    ("gfx950", "bf8"): ml_dtypes.float8_e5m2,
}


@pytest.mark.parametrize("kind", ["fp8", "bf8"])
def test_every_8_bit_code_decodes(kind, target):
    codes = np.arange(256, dtype=np.uint8)
    want = codes.view(SMALL[target, kind]).astype(np.float32)
    m = Machine(target)
    m.v[1] = codes.view(np.uint32)
    m.run(
        *(f"v_cvt_f32_{kind}_sdwa v{2 + n}, v1 src0_sel:BYTE_{n}" for n in range(4)),
        f"v_cvt_f32_{kind} v6, v1",
        f"v_cvt_pk_f32_{kind} v[8:9], v1",
        f"v_cvt_pk_f32_{kind}_sdwa v[10:11], v1 src0_sel:WORD_1",
    )
    for n in range(4):
        assert same_floats(m.f32(2 + n), want[n::4].copy())
    assert same_floats(m.f32(6), want[0::4].copy())
    for n in range(4):
        assert same_floats(m.f32(8 + n), want[n::4].copy())


@pytest.mark.parametrize("kind", ["fp8", "bf8"])
def test_rounding_to_8_bits_is_to_nearest_even(kind, target):
    dtype = SMALL[target, kind]
    finite = np.unique(np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32))
    finite = finite[np.isfinite(finite)]
    ties = (finite[1:] + finite[:-1]) / 2
    values = np.concatenate(
        [finite, ties, np.nextafter(ties, np.float32(9e9)), np.nextafter(ties, np.float32(-9e9))]
    )
    values = np.resize(values, -(-len(values) // 64) * 64).astype(np.float32)
    for row in values.reshape(-1, 64):
        m = Machine(target)
        m.v[0], m.v[1], m.v[2] = 0x11112222, row.view(np.uint32), np.roll(row, 1).view(np.uint32)
        m.run(f"v_cvt_pk_{kind}_f32 v0, v1, v2 op_sel:[0,0,1]")
        codes = row.astype(dtype).view(np.uint8)
        assert np.array_equal(m.v[0] >> 16 & 255, codes) and np.array_equal(
            m.v[0] >> 24, np.roll(codes, 1)
        )
        assert (m.v[0] & 0xFFFF == 0x2222).all()


def test_overflow_to_8_bits_is_nan_unless_the_mode_saturates(target):
    m = Machine(target)
    m.v[1] = np.float32(1e6).view(np.uint32)
    nan, most = (0x80, 0x7F) if target == "gfx942" else (0x7F, 0x7E)
    assert m.run("v_cvt_pk_fp8_f32 v0, v1, v1").v[0, 0] & 255 == nan
    m.mode |= 1 << 23
    assert m.run("v_cvt_pk_fp8_f32 v0, v1, v1").v[0, 0] & 255 == most


def test_stochastic_rounding_goes_up_when_the_noise_reaches_the_rest(target):
    m = Machine(target)
    m.v[0] = 0
    m.v[1] = np.float32(1.0625).view(np.uint32)  # half way between 1 and 1.125
    m.v[2] = np.where(LANE % 2, 0x80000000, 0x7FFFFFFF).astype(np.uint32)
    m.run("v_cvt_sr_fp8_f32 v0, v1, v2 op_sel:[0,0,0,1]")
    m.run("v_mov_b32 v3, v0")
    one = int(np.float32(1).astype(SMALL[target, "fp8"]).view(np.uint8))
    assert (m.v[3] >> 16 & 255).tolist() == [one + n % 2 for n in range(64)]


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


@pytest.mark.parametrize("byte", range(4))
def test_gfx950_unpacks_scaled_fp4(byte):
    select = f" op_sel:[{byte & 1},{byte >> 1},0]" if byte else ""
    m = Machine("gfx950")
    m.v[1] = np.random.default_rng(1).integers(0, M32, 64, dtype=np.uint32)
    m.v[2] = np.float32(0.25).view(np.uint32)
    m.run(
        f"v_cvt_scalef32_pk_f32_fp4 v[4:5], v1, v2{select}",
        f"v_cvt_scalef32_pk_bf16_fp4 v6, v1, v2{select}",
    )
    for n in range(2):
        want = FP4[m.v[1] >> (8 * byte + 4 * n) & 15] / 4
        assert same_floats(m.f32(4 + n), want)
        assert same_floats(
            m.v[6].view(np.uint16)[n::2].view(ml_dtypes.bfloat16).astype(np.float32), want
        )


def test_gfx950_rounds_to_scaled_fp4():
    values = np.array(
        [0.24, 0.25, 0.26, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0, -0.7, -100.0], np.float32
    )
    want = values.astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 15
    want[-3] = 7  # too large: the largest
    m = Machine("gfx950")
    m.v[0], m.v[3] = 0, np.float32(2.0).view(np.uint32)
    m.v[1, :12] = (values * 2).view(np.uint32)
    m.v[2, :12] = (values[::-1] * 2).astype(np.float32).view(np.uint32)
    m.run("v_cvt_scalef32_pk_fp4_f32 v0, v1, v2, v3 op_sel:[0,0,1,0]")
    byte = m.v[0, :12] >> 8 & 255
    assert (byte & 15).tolist() == want.tolist() and (byte >> 4).tolist() == want[::-1].tolist()


# ---- packed -----------------------------------------------------------------------------------

PACKED_INTEGER = {
    "v_pk_add_u16": lambda a, b: a + b,
    "v_pk_sub_u16": lambda a, b: a - b,
    "v_pk_mul_lo_u16": lambda a, b: a * b,
    "v_pk_lshlrev_b16": lambda a, b: b << (a & 15),
    "v_pk_lshrrev_b16": lambda a, b: b >> (a & 15),
    "v_pk_ashrrev_i16": lambda a, b: signed(b, 16) >> (a & 15),
    "v_pk_max_i16": lambda a, b: max(signed(a, 16), signed(b, 16)),
    "v_pk_min_i16": lambda a, b: min(signed(a, 16), signed(b, 16)),
    "v_pk_max_u16": max,
    "v_pk_min_u16": min,
    "v_pk_add_i16": lambda a, b: a + b,
    "v_pk_sub_i16": lambda a, b: a - b,
}


@pytest.mark.parametrize("name", PACKED_INTEGER)
def test_packed_integers_obey_op_sel(name, target):
    m = Machine(target)
    m.v[1], m.v[2] = lanes(WORDS, 3), np.random.default_rng(0).integers(0, M32, 64, dtype=np.uint32)
    f = PACKED_INTEGER[name]
    m.run(f"{name} v0, v1, v2", f"{name} v3, v1, v2 op_sel:[1,0] op_sel_hi:[0,1]")
    for out, swap in ((0, False), (3, True)):
        low, high = (16, 0) if swap else (0, 16)
        want = by_lane(
            lambda a, b, low=low, high=high: (f(a >> low & 0xFFFF, b & 0xFFFF) & 0xFFFF)
            | (f(a >> high & 0xFFFF, b >> 16) & 0xFFFF) << 16,
            m.v[1], m.v[2],
        )  # fmt: skip
        assert np.array_equal(m.v[out], want)


def test_packed_halves_multiply_add_and_negate(target):
    a = np.array([1.5, -2.0], np.float16)
    b = np.array([3.0, 0.25], np.float16)
    c = np.array([10.0, 20.0], np.float16)
    m = Machine(target)
    for n, x in enumerate((a, b, c), start=1):
        m.v[n] = x.view(np.uint32)[0]
    m.run(
        "v_pk_fma_f16 v4, v1, v2, v3 neg_lo:[1,0,0] neg_hi:[0,1,0]",
        "v_pk_add_f16 v5, v1, v2 op_sel:[0,1] op_sel_hi:[1,0]",
        "v_pk_mul_f16 v6, v1, 0.5 op_sel_hi:[1,0]",
        "v_pk_max_f16 v7, v1, v2 clamp",
    )
    halves = [m.v[n, :1].view(np.float16).tolist() for n in (4, 5, 6, 7)]
    assert halves == [[5.5, 20.5], [1.75, 1.0], [0.75, -1.0], [1.0, 0.25]]


def test_packed_floats_pair_registers(target):
    m = Machine(target)
    for n, x in zip((2, 3, 4, 5, 6, 7), (1.0, 2.0, 10.0, 20.0, 100.0, 200.0), strict=True):
        m.v[n] = np.float32(x).view(np.uint32)
    m.s[8:10] = np.array([3.0, 5.0], np.float32).view(np.uint32)
    m.run(
        "v_pk_fma_f32 v[10:11], v[2:3], v[4:5], v[6:7]",
        "v_pk_add_f32 v[12:13], v[2:3], v[4:5] op_sel:[0,1] op_sel_hi:[1,0] neg_lo:[0,1]",
        "v_pk_mul_f32 v[14:15], s[8:9], v[2:3]",
        "v_pk_mov_b32 v[16:17], v[2:3], v[4:5] op_sel:[1,0]",
    )
    got = [[m.f32(n)[0], m.f32(n + 1)[0]] for n in (10, 12, 14, 16)]
    assert got == [[110.0, 240.0], [-19.0, 12.0], [3.0, 10.0], [2.0, 10.0]]


def test_mixed_precision_multiply_add(target):
    m = Machine(target)
    m.v[0] = 0xAAAABBBB
    m.v[1] = np.array([2.0, -3.0], np.float16).view(np.uint32)[0]
    m.v[2] = np.float32(10.0).view(np.uint32)
    m.run(
        "v_fma_mix_f32 v3, v1, v2, v2 op_sel:[1,0,0] op_sel_hi:[1,0,0]",
        "v_fma_mixhi_f16 v0, |v1|, v2, -v2 op_sel:[1,0,0] op_sel_hi:[1,0,0]",
    )
    assert m.f32(3)[0] == -20.0
    assert m.v[0, 0] == 0x4D00BBBB  # 20 above the kept half


def test_dot_products(target):
    m = Machine(target)
    m.v[1], m.v[2], m.v[3] = 0xFF02FE04, 0x03050780, 1000
    a = [signed(0xFF02FE04 >> 8 * n, 8) for n in range(4)]
    b = [signed(0x03050780 >> 8 * n, 8) for n in range(4)]
    m.run("v_dot4_i32_i8 v4, v1, v2, v3", "v_dot4_u32_u8 v5, v1, v2, v3")
    assert m.v[4].view(np.int32)[0] == 1000 + sum(x * y for x, y in zip(a, b, strict=True))
    assert m.v[5, 0] == 1000 + sum((x & 255) * (y & 255) for x, y in zip(a, b, strict=True))
