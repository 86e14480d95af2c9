"""Floats of 8 bits and fewer, and packed arithmetic."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from machine import LANE, Machine
from vectors import M32, WORDS, by_lane, lanes, same_floats, signed

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
