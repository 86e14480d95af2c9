"""Compares, carries, selects, moves between lanes, and the division sequence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from machine import EXEC, LANE, VCC, Machine
from vectors import M64, lanes, same_floats, signed

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
