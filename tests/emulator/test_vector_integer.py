"""Integer opcodes; here and in the files beside, expected values come from the ISA documents."""

from __future__ import annotations

import numpy as np
import pytest
from machine import Machine
from vectors import M32, M64, WORDS, by_lane, lanes, signed


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
