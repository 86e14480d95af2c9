"""Float vector instructions of the emulator: rounding, NaN, conversions."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from machine import LANE, Machine
from vectors import FLOATS, HALVES, M32, WORDS, by_lane, lanes, same_floats


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
