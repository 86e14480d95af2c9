"""Modifiers of vector instructions: neg, abs, clamp, constants, EXEC, op_sel, DPP, SDWA."""

from __future__ import annotations

import numpy as np
import pytest
from machine import ALL, EXEC, LANE, Fault, Machine
from vectors import M32


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
