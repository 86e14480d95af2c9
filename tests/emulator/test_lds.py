"""LDS: loads, stores, atomics, exchanges between lanes, transposing loads, bounds."""

from __future__ import annotations

import numpy as np
import pytest
from machine import AGPR, EXEC, LANE, Fault, Machine


def machine(target, size=4096):
    m = Machine(target, lds_bytes=size)
    m.lds[:] = np.arange(size) * 7 & 0xFF
    m.v[1] = LANE * 16
    return m


@pytest.mark.parametrize(("suffix", "words"), [("b32", 1), ("b64", 2), ("b96", 3), ("b128", 4)])
def test_words_in_and_out(suffix, words, target):
    m = machine(target)
    regs = f"v[4:{3 + words}]" if words > 1 else "v4"
    m.run(f"ds_read_{suffix} {regs}, v1 offset:16")
    table = m.lds.view(np.uint32).reshape(-1, 4)
    for n in range(words):
        assert np.array_equal(m.v[4 + n], table[1:65, n])
    m.v[4 : 4 + words] = LANE + 1000
    m.run(f"ds_write_{suffix} v1, {regs} offset:32")
    assert np.array_equal(m.lds.view(np.uint32).reshape(-1, 4)[2:66, words - 1], LANE + 1000)


def test_small_units(target):
    m = machine(target)
    m.v[1] = LANE * 3
    m.v[8:12] = 0xAAAABBBB
    m.run(
        "ds_read_u8 v2, v1 offset:1",
        "ds_read_i8 v3, v1 offset:1",
        "ds_read_u16 v4, v1",
        "ds_read_i16 v5, v1",
        "ds_read_u8_d16 v8, v1 offset:1",
        "ds_read_u8_d16_hi v9, v1 offset:1",
        "ds_read_u16_d16_hi v10, v1",
        "ds_read_i8_d16 v11, v1 offset:1",
    )
    byte = m.lds[LANE * 3 + 1]
    half = m.lds[LANE * 3].astype(np.uint32) | byte.astype(np.uint32) << 8
    assert np.array_equal(m.v[2], byte) and np.array_equal(
        m.v[3].view(np.int32), byte.view(np.int8)
    )
    assert np.array_equal(m.v[4], half)
    assert np.array_equal(m.v[5].view(np.int32), half.astype(np.uint16).view(np.int16))
    assert np.array_equal(m.v[8], 0xAAAA0000 | byte.astype(np.uint32))
    assert np.array_equal(m.v[9], byte.astype(np.uint32) << 16 | 0xBBBB)
    assert np.array_equal(m.v[10], half << 16 | 0xBBBB)
    assert np.array_equal(
        m.v[11], 0xAAAA0000 | byte.view(np.int8).astype(np.int16).view(np.uint16).astype(np.uint32)
    )
    m.v[6] = 0x11223344
    m.run("ds_write_b8 v1, v6", "ds_write_b16_d16_hi v1, v6 offset:1")
    assert m.lds[:3].tolist() == [0x44, 0x22, 0x11]


def test_two_at_once_with_offsets_in_elements(target):
    m = machine(target, 8192)
    m.v[1] = LANE * 8
    m.run(
        "ds_read2_b32 v[2:3], v1 offset0:1 offset1:4",
        "ds_read2_b64 v[4:7], v1 offset0:1 offset1:3",
        "ds_read2st64_b32 v[8:9], v1 offset0:1 offset1:2",
    )
    words = m.lds.view(np.uint32)
    assert np.array_equal(m.v[2], words[LANE * 2 + 1]) and np.array_equal(
        m.v[3], words[LANE * 2 + 4]
    )
    assert np.array_equal(m.v[4], words[LANE * 2 + 2]) and np.array_equal(
        m.v[7], words[LANE * 2 + 7]
    )
    assert np.array_equal(m.v[8], words[LANE * 2 + 64]) and np.array_equal(
        m.v[9], words[LANE * 2 + 128]
    )
    m.v[1] = LANE * 16
    m.v[20], m.v[21], m.v[22], m.v[23] = LANE, LANE + 100, LANE + 200, LANE + 300
    m.run("ds_write2_b64 v1, v[20:21], v[22:23] offset1:1")
    assert m.lds.view(np.uint32)[:8].tolist() == [0, 100, 200, 300, 1, 101, 201, 301]


def test_accumulation_registers_as_data(target):
    m = machine(target)
    m.run("ds_read_b32 a3, v1", "ds_write_b32 v1, a3 offset:1024")
    assert np.array_equal(m.v[AGPR + 3], m.lds.view(np.uint32)[LANE * 4])
    assert np.array_equal(m.lds.view(np.uint32)[256 + LANE * 4], m.v[AGPR + 3])


def test_atomics(target):
    m = Machine(target, lds_bytes=64)
    m.lds[:] = 0
    m.v[1], m.v[2] = 0, 3
    m.run("ds_add_u32 v1, v2", "ds_add_rtn_u32 v3, v1, v2")
    assert np.array_equal(m.v[3], 192 + 3 * LANE) and m.lds.view(np.uint32)[0] == 384
    m.v[2] = LANE * 5
    m.run("ds_max_u32 v1, v2 offset:4", "ds_or_b32 v1, v2 offset:8", "ds_xor_b32 v1, v2 offset:12")
    assert m.lds.view(np.uint32)[1:4].tolist() == [
        315,
        int(np.bitwise_or.reduce(LANE * 5)),
        int(np.bitwise_xor.reduce(LANE * 5)),
    ]
    m.v[4] = np.float32(0.5).view(np.uint32)
    m.run("ds_add_f32 v1, v4 offset:16")
    assert m.lds.view(np.float32)[4] == 32.0
    m.lds.view(np.uint32)[5] = 7
    m.v[5], m.v[6] = np.where(LANE == 3, 7, 99).astype(np.uint32), LANE
    m.run("ds_cmpst_rtn_b32 v7, v1, v5, v6 offset:20")
    assert m.lds.view(np.uint32)[5] == 3 and m.v[7, :5].tolist() == [7, 7, 7, 7, 3]
    m.run("ds_wrxchg_rtn_b32 v7, v1, v6 offset:20")
    assert m.v[7, :3].tolist() == [3, 0, 1]
    m.set64(8, np.full(64, 2**40, np.uint64))
    m.run("ds_add_u64 v1, v[8:9] offset:24")
    assert m.lds.view(np.uint64)[3] == 2**46


def test_pulling_and_pushing_between_lanes(target):
    m = Machine(target)
    m.set_pair(EXEC, 0xFFFF_FFFF_FFFF_FFFE)
    m.v[1], m.v[2], m.v[3], m.v[4] = (63 - LANE) * 4, LANE + 100, 9, 9
    m.run("ds_bpermute_b32 v3, v1, v2", "ds_permute_b32 v4, v1, v2")
    assert m.v[3].tolist() == [9, *range(162, 100, -1), 0]  # lane 0 is not active: 0 to lane 63
    assert m.v[4, 1:].tolist() == [162 - n for n in range(62)] + [0]


SWIZZLE = {
    "offset:swizzle(QUAD_PERM,1,0,3,2)": lambda n: n ^ 1,
    "offset:swizzle(SWAP,16)": lambda n: n ^ 16,
    "offset:swizzle(REVERSE,8)": lambda n: n ^ 7,
    "offset:swizzle(BROADCAST,8,3)": lambda n: n & ~7 | 3,
}


@pytest.mark.parametrize("pattern", SWIZZLE)
def test_swizzle_reads_its_address_register(pattern, target):
    m = Machine(target)
    m.v[1] = LANE
    m.run(f"ds_swizzle_b32 v0, v1 {pattern}")
    assert m.v[0].tolist() == [SWIZZLE[pattern](n) for n in range(64)]


@pytest.mark.parametrize(
    ("line", "bits"),
    [
        ("ds_read_b64_tr_b16", 16),
        ("ds_read_b64_tr_b8", 8),
        ("ds_read_b64_tr_b4", 4),
        ("ds_read_b96_tr_b6", 6),
    ],
)
def test_transposing_loads_give_each_lane_a_column(line, bits):
    """Each 16 lanes load a row-major matrix of 16 columns; lane n gets column n."""
    size = 96 if bits == 6 else 64
    per_lane = size // bits
    matrices = np.random.default_rng(0).integers(0, 1 << bits, (4, per_lane, 16))
    m = Machine("gfx950", lds_bytes=4096)
    m.v[1] = LANE * 16
    for lane in range(64):
        flat = matrices[lane // 16].reshape(-1)[lane % 16 * per_lane :][:per_lane]
        whole = sum(int(x) << bits * n for n, x in enumerate(flat))
        m.lds[lane * 16 : lane * 16 + size // 8] = np.frombuffer(
            whole.to_bytes(size // 8, "little"), np.uint8
        )
    m.run(f"{line} v[2:{1 + size // 32}], v1")
    for lane in range(64):
        whole = sum(int(m.v[2 + w, lane]) << 32 * w for w in range(size // 32))
        got = [whole >> bits * n & (1 << bits) - 1 for n in range(per_lane)]
        assert got == matrices[lane // 16][:, lane % 16].tolist()


def test_reading_past_the_workgroups_share_is_a_fault(target):
    m = Machine(target, lds_bytes=1024)
    m.v[1] = LANE * 16
    with pytest.raises(
        Fault, match=r"ds_read_b64 \[.*\].*lane 63 touches LDS bytes 1020\.\.1027 of 1024"
    ):
        m.run("ds_read_b64 v[2:3], v1 offset:12")
    m.v[1] = np.uint32(2**32 - 4)
    with pytest.raises(Fault, match="touches LDS bytes 4294967292"):
        m.run("ds_write_b32 v1, v2")
