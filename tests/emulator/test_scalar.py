"""Scalar opcodes, branches and scalar loads."""

from __future__ import annotations

import numpy as np
import pytest
from machine import ALL, EXEC, VCC, Fault, Machine, Memory

M32, M64 = 0xFFFFFFFF, 0xFFFF_FFFF_FFFF_FFFF
WORDS = (0, 1, 2, 5, 31, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF0001, 0x00100004, 0x12345678)


def signed(x: int, bits: int = 32) -> int:
    return x - (1 << bits) if x >> (bits - 1) else x


def field(x: int, b: int, bits: int, is_signed: bool) -> int:
    offset, width = b & (bits - 1), b >> 16 & 127
    if not width:
        return 0
    low = (signed(x, bits) if is_signed else x) >> offset & ((1 << width) - 1)
    return signed(low, width) if is_signed and low >> (width - 1) else low


# Result, and the condition code after; None leaves it as it was.
BINARY = {
    "s_add_u32": lambda a, b: (a + b, a + b > M32),
    "s_sub_u32": lambda a, b: (a - b, b > a),
    "s_add_i32": lambda a, b: (a + b, not -(2**31) <= signed(a) + signed(b) < 2**31),
    "s_sub_i32": lambda a, b: (a - b, not -(2**31) <= signed(a) - signed(b) < 2**31),
    "s_addc_u32": lambda a, b: (a + b + 1, a + b + 1 > M32),
    "s_subb_u32": lambda a, b: (a - b - 1, a - b - 1 < 0),
    "s_min_i32": lambda a, b: (min(a, b, key=signed), signed(a) < signed(b)),
    "s_max_i32": lambda a, b: (max(a, b, key=signed), signed(a) > signed(b)),
    "s_min_u32": lambda a, b: (min(a, b), a < b),
    "s_max_u32": lambda a, b: (max(a, b), a > b),
    "s_cselect_b32": lambda a, b: (a, None),
    "s_and_b32": lambda a, b: (a & b, a & b != 0),
    "s_or_b32": lambda a, b: (a | b, a | b != 0),
    "s_xor_b32": lambda a, b: (a ^ b, a ^ b != 0),
    "s_andn2_b32": lambda a, b: (a & ~b, a & ~b & M32 != 0),
    "s_orn2_b32": lambda a, b: (a | ~b, (a | ~b) & M32 != 0),
    "s_nand_b32": lambda a, b: (~(a & b), ~(a & b) & M32 != 0),
    "s_nor_b32": lambda a, b: (~(a | b), ~(a | b) & M32 != 0),
    "s_xnor_b32": lambda a, b: (~(a ^ b), ~(a ^ b) & M32 != 0),
    "s_lshl_b32": lambda a, b: (a << (b & 31), a << (b & 31) & M32 != 0),
    "s_lshr_b32": lambda a, b: (a >> (b & 31), a >> (b & 31) != 0),
    "s_ashr_i32": lambda a, b: (signed(a) >> (b & 31), signed(a) >> (b & 31) != 0),
    "s_bfm_b32": lambda a, b: (((1 << (a & 31)) - 1) << (b & 31), None),
    "s_mul_i32": lambda a, b: (a * b, None),
    "s_mul_hi_u32": lambda a, b: (a * b >> 32, None),
    "s_mul_hi_i32": lambda a, b: (signed(a) * signed(b) >> 32, None),
    "s_bfe_u32": lambda a, b: (field(a, b, 32, False), field(a, b, 32, False) != 0),
    "s_bfe_i32": lambda a, b: (field(a, b, 32, True), field(a, b, 32, True) != 0),
    "s_absdiff_i32": lambda a, b: (abs(signed(a) - signed(b)), a != b),
    "s_lshl1_add_u32": lambda a, b: ((a << 1) + b, (a << 1) + b > M32),
    "s_lshl4_add_u32": lambda a, b: ((a << 4) + b, (a << 4) + b > M32),
    "s_pack_ll_b32_b16": lambda a, b: ((a & 0xFFFF) | b << 16, None),
    "s_pack_lh_b32_b16": lambda a, b: ((a & 0xFFFF) | (b & 0xFFFF0000), None),
    "s_pack_hh_b32_b16": lambda a, b: (a >> 16 | (b & 0xFFFF0000), None),
}


@pytest.mark.parametrize("name", BINARY)
def test_binary_opcodes(name, target):
    for a in WORDS:
        for b in WORDS:
            m = Machine(target)
            m.s[1], m.s[2], m.scc = a, b, 1
            m.run(f"{name} s0, s1, s2")
            result, scc = BINARY[name](a, b)
            assert (int(m.s[0]), m.scc) == (result & M32, 1 if scc is None else int(scc)), (a, b)


UNARY = {
    "s_mov_b32": lambda a: (a, None),
    "s_not_b32": lambda a: (~a, ~a & M32 != 0),
    "s_brev_b32": lambda a: (int(f"{a:032b}"[::-1], 2), None),
    "s_bcnt0_i32_b32": lambda a: (32 - a.bit_count(), a != M32),
    "s_bcnt1_i32_b32": lambda a: (a.bit_count(), a != 0),
    "s_ff1_i32_b32": lambda a: ((a & -a).bit_length() - 1, None),
    "s_ff0_i32_b32": lambda a: ((~a & M32 & -(~a & M32)).bit_length() - 1, None),
    "s_flbit_i32_b32": lambda a: (32 - a.bit_length() if a else -1, None),
    "s_flbit_i32": lambda a: (
        -1 if a in (0, M32) else 32 - (a ^ (M32 if a >> 31 else 0)).bit_length(),
        None,
    ),
    "s_sext_i32_i8": lambda a: (signed(a & 255, 8), None),
    "s_sext_i32_i16": lambda a: (signed(a & 0xFFFF, 16), None),
    "s_abs_i32": lambda a: (abs(signed(a)), a != 0),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary_opcodes(name, target):
    for a in WORDS:
        m = Machine(target)
        m.s[1], m.scc = a, 1
        m.run(f"{name} s0, s1")
        result, scc = UNARY[name](a)
        assert (int(m.s[0]), m.scc) == (result & M32, 1 if scc is None else int(scc)), a


def test_64_bit_opcodes(target):
    a, b = 0x8000_0000_1234_5678, 0xF0F0_F0F0_0000_FFFF
    cases = {
        "s_and_b64 s[0:1], s[2:3], s[4:5]": a & b,
        "s_or_b64 s[0:1], s[2:3], s[4:5]": a | b,
        "s_xor_b64 s[0:1], s[2:3], s[4:5]": a ^ b,
        "s_andn2_b64 s[0:1], s[2:3], s[4:5]": a & ~b,
        "s_not_b64 s[0:1], s[2:3]": ~a,
        "s_lshl_b64 s[0:1], s[2:3], 4": a << 4,
        "s_lshr_b64 s[0:1], s[2:3], 36": a >> 36,
        "s_ashr_i64 s[0:1], s[2:3], 36": signed(a, 64) >> 36,
        "s_bfe_u64 s[0:1], s[2:3], 0x100004": a >> 4 & 0xFFFF,
        "s_mov_b64 s[0:1], -3": -3,
        "s_mov_b64 s[0:1], 0.5": 0x3FE0000000000000,
        "s_brev_b64 s[0:1], s[2:3]": int(f"{a:064b}"[::-1], 2),
        "s_bcnt1_i32_b64 s0, s[2:3]": a.bit_count(),
        "s_ff1_i32_b64 s0, s[2:3]": 3,
        "s_cselect_b64 s[0:1], s[2:3], s[4:5]": b,
    }
    for line, want in cases.items():
        m = Machine(target)
        m.set_pair(2, a), m.set_pair(4, b)
        assert m.run(line).pair(0) == want & M64, line


def test_a_literal_in_a_64_bit_operation_is_zero_extended(target):
    assert Machine(target).run("s_mov_b64 s[0:1], 0xffffff00").pair(0) == 0xFFFFFF00


def test_immediate_opcodes(target):
    m = Machine(target)
    m.s[1], m.s[2] = 100, 0x7FFFFFFF
    m.run("s_movk_i32 s0, -5", "s_addk_i32 s1, -101", "s_mulk_i32 s1, 3", "s_addk_i32 s2, 1")
    assert m.s[:3].tolist() == [M32 - 4, M32 - 2, 0x80000000] and m.scc == 1
    for name, want in {"eq_i32": 0, "lt_i32": 1, "gt_u32": 1, "lt_u32": 0}.items():
        m.s[3] = M32 - 6
        immediate = "-6" if "i32" in name else "0x1234"
        assert m.run(f"s_cmpk_{name} s3, {immediate}").scc == want, name


COMPARES = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


@pytest.mark.parametrize("name", COMPARES)
def test_compares(name, target):
    for a in WORDS:
        for b in WORDS:
            m = Machine(target)
            m.s[1], m.s[2] = a, b
            assert m.run(f"s_cmp_{name}_u32 s1, s2").scc == COMPARES[name](a, b)
            assert m.run(f"s_cmp_{name}_i32 s1, s2").scc == COMPARES[name](signed(a), signed(b))


def test_bit_tests_and_64_bit_compares(target):
    m = Machine(target)
    m.s[1] = 0b100
    m.set_pair(2, 1 << 40), m.set_pair(4, 1 << 40)
    assert m.run("s_bitcmp1_b32 s1, 2").scc == 1
    assert m.run("s_bitcmp0_b32 s1, 2").scc == 0
    assert m.run("s_cmp_eq_u64 s[2:3], s[4:5]").scc == 1
    assert m.run("s_cmp_lg_u64 s[2:3], s[4:5]").scc == 0


def test_exec_is_saved_and_narrowed(target):
    m = Machine(target)
    m.set_pair(EXEC, 0xFFFF), m.set_pair(VCC, 0xF0F0F0)
    m.run("s_and_saveexec_b64 s[0:1], vcc")
    assert (m.pair(0), m.pair(EXEC), m.scc) == (0xFFFF, 0xF0F0, 1)
    m.run("s_or_saveexec_b64 s[0:1], -1")
    assert (m.pair(0), m.pair(EXEC)) == (0xF0F0, ALL)
    m.run("s_andn2_saveexec_b64 s[0:1], s[0:1]", "s_xor_saveexec_b64 s[2:3], s[2:3]")
    assert m.pair(2) == M64 & ~M64 | 0xF0F0 & ~ALL


def test_branches_loop_until_their_condition(target):
    m = Machine(target)
    m.run(
        "s_mov_b32 s0, 0",
        "s_add_i32 s0, s0, 3",
        "s_cmp_lt_u32 s0, 10",
        "s_cbranch_scc1 65533",
        "s_branch 1",
        "s_mov_b32 s0, 0",
        "s_cbranch_execz 1",
        "s_mov_b32 s1, 7",
        "s_cbranch_vccnz 1",
        "s_mov_b32 s2, 8",
    )
    assert m.s[:3].tolist() == [12, 7, 8]


def test_jumps_through_registers(target):
    m = Machine(target)
    m.run(
        "s_getpc_b64 s[0:1]",
        "s_add_u32 s0, s0, 16",
        "s_addc_u32 s1, s1, 0",
        "s_swappc_b64 s[2:3], s[0:1]",
        "s_mov_b32 s5, 1",  # skipped
        "s_mov_b32 s6, 2",
    )
    assert (m.s[5], m.s[6]) == (0, 2)
    assert m.pair(0) - m.pair(2) == 4  # the return address is the skipped instruction


def test_a_jump_out_of_the_code_is_a_fault(target):
    with pytest.raises(Fault, match=r"s_branch \[bf82ff00\].*jumps outside the code"):
        Machine(target).run("s_branch 65280")


def test_scalar_loads_add_register_and_immediate(target):
    data = np.arange(64, dtype=np.uint32)
    with Memory(data) as memory:
        m = Machine(target)
        m.set_pair(2, memory.address)
        m.s[9] = 8
        m.run("s_load_dwordx4 s[12:15], s[2:3], 0x10")
        assert m.s[12:16].tolist() == [4, 5, 6, 7]
        m.run("s_load_dwordx2 s[12:13], s[2:3], s9", "s_load_dword s14, s[2:3], s9 offset:0x20")
        assert m.s[12:15].tolist() == [2, 3, 10]
        m.set_pair(2, memory.address + 64)
        assert m.run("s_load_dwordx16 s[16:31], s[2:3], -0x40").s[16:32].tolist() == list(range(16))


def test_scalar_buffer_loads_read_zeros_out_of_range(target):
    with Memory(np.arange(1, 65, dtype=np.uint32)) as memory:
        m = Machine(target)
        m.set_pair(4, memory.address)
        m.s[6], m.s[7] = 40, 0
        assert m.run("s_buffer_load_dwordx4 s[8:11], s[4:7], 0x20").s[8:12].tolist() == [
            9,
            10,
            0,
            0,
        ]
