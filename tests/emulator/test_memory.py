"""Buffer, global, flat and scratch accesses, atomics, and loads that go straight to LDS."""

from __future__ import annotations

import numpy as np
import pytest
from machine import AGPR, EXEC, LANE, M0, Fault, Machine, Memory


def buffer_machine(target, memory, records, *, stride=0, **kw):
    """Descriptor in s[4:7]; offsets of four bytes a lane in v1."""
    m = Machine(target, **kw)
    m.set_pair(4, memory.address | stride << 48)
    m.s[6], m.s[7] = records, 0x20000
    m.v[1] = LANE * 4
    return m


def counting(words=256):
    return Memory(np.arange(1, words + 1, dtype=np.uint32))


def test_buffer_loads_read_zero_out_of_range(target):
    with counting() as memory:
        m = buffer_machine(target, memory, 40)
        m.run("buffer_load_dword v0, v1, s[4:7], 0 offen offset:8")
        assert m.v[0, :10].tolist() == [3, 4, 5, 6, 7, 8, 9, 10, 0, 0]


def test_buffer_offset_wraps_at_32_bits(target):
    """An offset of -1020 in the register and +1024 in the instruction is 4."""
    with counting() as memory:
        m = buffer_machine(target, memory, 1024)
        m.v[1] = np.uint32(2**32 - 1020)
        assert (m.run("buffer_load_dword v0, v1, s[4:7], 0 offen offset:1024").v[0] == 2).all()


def test_wide_buffer_accesses_are_clamped_word_by_word(target):
    with counting() as memory:
        m = buffer_machine(target, memory, 8)
        m.v[1] = 0
        assert m.run("buffer_load_dwordx4 v[8:11], v1, s[4:7], 0 offen").v[8:12, 0].tolist() == [
            1,
            2,
            0,
            0,
        ]
        m.v[8:12] = 77
        m.set_pair(EXEC, 1)
        m.run("buffer_store_dwordx4 v[8:11], v1, s[4:7], 0 offen")
        assert memory.data[:4].tolist() == [77, 77, 3, 4]


def test_scalar_offset_moves_the_address_and_lowers_the_limit(target):
    with counting() as memory:
        m = buffer_machine(target, memory, 24)
        m.s[9] = 16
        assert m.run("buffer_load_dword v0, v1, s[4:7], s9 offen").v[0, :4].tolist() == [5, 6, 0, 0]


def test_index_times_stride(target):
    with counting() as memory:
        m = buffer_machine(target, memory, 1024, stride=16)
        m.v[2], m.v[3] = LANE % 8, 4
        m.run("buffer_load_dword v0, v2, s[4:7], 0 idxen")
        m.run("buffer_load_dword v5, v[2:3], s[4:7], 0 idxen offen")
        assert m.v[0, :4].tolist() == [1, 5, 9, 13]
        assert m.v[5, :4].tolist() == [2, 6, 10, 14]


def test_swizzled_buffers_are_refused(target):
    with counting() as memory:
        m = buffer_machine(target, memory, 1024)
        m.s[5] |= 1 << 31
        with pytest.raises(Fault, match="swizzled buffers are not modelled"):
            m.run("buffer_load_dword v0, v1, s[4:7], 0 offen offset:8")


SMALL = {
    "ubyte": lambda b: b[:64].astype(np.uint32),
    "sbyte": lambda b: b[:64].view(np.int8).astype(np.int32).view(np.uint32),
    "ushort": lambda b: b[:128].view(np.uint16).astype(np.uint32),
    "sshort": lambda b: b[:128].view(np.int16).astype(np.int32).view(np.uint32),
}


@pytest.mark.parametrize("kind", SMALL)
def test_small_loads_extend(kind, target):
    data = np.random.default_rng(0).integers(0, 256, 256).astype(np.uint8)
    size = 1 if "byte" in kind else 2
    with Memory(data) as memory:
        m = buffer_machine(target, memory, 256)
        m.v[1] = LANE * size
        m.set64(2, memory.address + LANE.astype(np.uint64) * size)
        m.run(f"buffer_load_{kind} v8, v1, s[4:7], 0 offen", f"global_load_{kind} v9, v[2:3], off")
        assert np.array_equal(m.v[8], SMALL[kind](data)) and np.array_equal(
            m.v[9], SMALL[kind](data)
        )


def test_d16_accesses_use_one_half_and_keep_the_other(target):
    data = np.arange(64, dtype=np.uint16) + 100
    with Memory(data) as memory:
        m = Machine(target)
        m.set64(2, memory.address + LANE.astype(np.uint64) * 2)
        m.v[0], m.v[1] = 0xAAAABBBB, 0xAAAABBBB
        m.run("global_load_short_d16 v0, v[2:3], off", "global_load_short_d16_hi v1, v[2:3], off")
        assert m.v[0, 5] == 0xAAAA0069 and m.v[1, 5] == 0x0069BBBB
        m.v[4] = LANE << 16
        m.run("global_store_short_d16_hi v[2:3], v4, off")
        assert memory.data.tolist() == list(range(64))
        m.run("global_store_byte_d16_hi v[2:3], v4, off offset:1")
        assert memory.data[3] == 0x0303


def test_global_addresses(target):
    with counting() as memory:
        m = Machine(target)
        m.set64(2, memory.address + 16 + LANE.astype(np.uint64) * 4)
        m.set_pair(4, memory.address)
        m.v[1] = LANE * 4
        m.run(
            "global_load_dwordx2 v[8:9], v[2:3], off offset:-16",
            "global_load_dword v10, v1, s[4:5] offset:20",
            "global_load_dword a7, v1, s[4:5]",
            "flat_load_dwordx3 v[12:14], v[2:3] offset:4",
        )
        assert m.v[8:11, 3].tolist() == [4, 5, 9]
        assert m.v[AGPR + 7, 3] == 4 and m.v[12:15, 3].tolist() == [9, 10, 11]
        m.v[20:24] = np.arange(4, dtype=np.uint32)[:, None]
        m.set_pair(EXEC, 2)
        m.run("global_store_dwordx4 v[2:3], v[20:23], off", "global_store_dword v1, a7, s[4:5]")
        assert memory.data[4:10].tolist() == [5, 0, 1, 2, 3, 10] and memory.data[1] == 2


def test_an_access_outside_allocations_names_everything(target):
    with counting() as memory:
        m = Machine(target)
        m.set64(2, memory.address + 1024 - 63 * 4 + 4 + LANE.astype(np.uint64) * 4)
        with pytest.raises(Fault) as fault:
            m.run("global_load_dword v0, v[2:3], off")
        text = str(fault.value)
        assert f"({target}), pc 0x0 (entry + 0x0), global_load_dword [dc508000 007f0002]" in text
        assert (
            f"lane 62 reads 4 bytes at 0x{memory.address + 1024:x}, outside every live allocation"
            in text
        )
        assert "nearest: 0 bytes past the end of the registered host memory of 1024 bytes" in text


def test_an_access_that_runs_over_the_end_is_caught(target):
    with counting() as memory:
        m = Machine(target)
        m.set64(2, np.full(64, memory.address + 1020, np.uint64))
        with pytest.raises(
            Fault, match=r"writes 16 bytes .*it starts inside the .* runs past its end"
        ):
            m.run("global_store_dwordx4 v[2:3], v[20:23], off")


def test_freed_memory_is_not_live(target):
    memory = counting()
    with memory:
        pass
    m = Machine(target)
    m.set_pair(2, memory.address)
    with pytest.raises(Fault, match="outside every live allocation"):
        m.run("s_load_dword s0, s[2:3], 0x0")


def test_an_address_near_the_top_does_not_wrap_into_memory(target):
    with counting():
        m = Machine(target)
        m.set64(2, np.full(64, 2**64 - 2, np.uint64))
        with pytest.raises(Fault, match="outside every live allocation"):
            m.run("global_load_dword v0, v[2:3], off")


def test_scratch_is_private_to_a_lane(target):
    m = Machine(target, scratch_bytes=32)
    m.v[0], m.v[1], m.s[3] = LANE, 8, 12
    m.run(
        "scratch_store_dword off, v0, off offset:4",
        "scratch_store_dwordx2 v1, v[0:1], off offset:4",
        "scratch_load_dword v2, off, off offset:4",
        "scratch_load_dwordx2 v[4:5], off, s3",
    )
    assert np.array_equal(m.v[2], LANE) and np.array_equal(m.v[4], LANE) and (m.v[5] == 8).all()
    with pytest.raises(Fault, match=r"lane 0 touches scratch bytes 32\.\.35 of 32"):
        m.run("scratch_load_dword v2, off, off offset:32")


def test_flat_addresses_reach_lds_and_scratch_through_their_apertures(target):
    m = Machine(target, lds_bytes=256, scratch_bytes=16)
    m.v[0] = LANE + 7
    m.run(
        "s_mov_b64 s[0:1], src_shared_base",
        "s_mov_b64 s[2:3], src_private_base",
        "v_mov_b32 v3, s1",
        "v_lshlrev_b32 v2, 2, v0",
        "v_add_u32 v2, -28, v2",
        "flat_store_dword v[2:3], v0",
        "v_mov_b32 v5, s3",
        "v_mov_b32 v4, 8",
        "flat_store_dword v[4:5], v0",
        "scratch_load_dword v6, off, off offset:8",
    )
    assert np.array_equal(m.lds.view(np.uint32), LANE + 7) and np.array_equal(m.v[6], LANE + 7)


# ---- straight to LDS --------------------------------------------------------------------------


def test_buffer_loads_to_lds(target):
    with counting() as memory:
        m = buffer_machine(target, memory, 160, lds_bytes=1024)
        m.s[M0] = 64
        m.run("buffer_load_dword v1, s[4:7], 0 offen lds")
        words = m.lds.view(np.uint32)
        assert words[16:56].tolist() == list(range(1, 41)) and not words[56:80].any()


def test_gfx950_loads_four_words_to_lds():
    with counting(512) as memory:
        m = buffer_machine("gfx950", memory, 2048, lds_bytes=1024)
        m.v[1] = LANE * 16
        m.s[M0] = 0
        m.set64(2, memory.address + LANE.astype(np.uint64) * 16)
        m.run("buffer_load_dwordx4 v1, s[4:7], 0 offen lds")
        assert m.lds.view(np.uint32).tolist() == list(range(1, 257))
        m.lds[:] = 0
        m.run("global_load_lds_dwordx4 v[2:3], off")
        assert m.lds.view(np.uint32).tolist() == list(range(1, 257))


# ---- atomics ----------------------------------------------------------------------------------

ATOMICS = {
    "add": lambda old, x: old + x,
    "sub": lambda old, x: old - x,
    "smin": lambda old, x: min(old, x, key=lambda v: v - 2**32 * (v >> 31)),
    "smax": lambda old, x: max(old, x, key=lambda v: v - 2**32 * (v >> 31)),
    "umin": min,
    "umax": max,
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "swap": lambda old, x: x,
    "inc": lambda old, x: 0 if old >= x else old + 1,
    "dec": lambda old, x: x if old == 0 or old > x else old - 1,
}


@pytest.mark.parametrize("name", ATOMICS)
def test_atomics_return_what_was_there(name, target):
    rng = np.random.default_rng(0)
    data = rng.integers(0, 2**32, 64, dtype=np.uint32)
    data[:2] = 0, 5
    operand = rng.integers(0, 2**32, 64, dtype=np.uint32)
    operand[1] = 5
    want = [ATOMICS[name](int(a), int(b)) & 0xFFFFFFFF for a, b in zip(data, operand, strict=True)]
    with Memory(data.copy()) as memory:
        m = Machine(target)
        m.set_pair(4, memory.address)
        m.v[1], m.v[2] = LANE * 4, operand
        m.run(f"global_atomic_{name} v0, v1, v2, s[4:5] sc0")
        assert np.array_equal(m.v[0], data) and memory.data.tolist() == want
        m.run(f"global_atomic_{name} v1, v2, s[4:5]")
        assert memory.data.tolist() == [
            ATOMICS[name](a, int(b)) & 0xFFFFFFFF for a, b in zip(want, operand, strict=True)
        ]


def test_lanes_add_to_one_counter_in_order(target):
    with Memory(np.zeros(2, np.uint32)) as memory:
        m = buffer_machine(target, memory, 8)
        m.v[0], m.v[1] = 1, 0
        m.run("buffer_atomic_add v0, v1, s[4:7], 0 offen sc0")
        assert np.array_equal(m.v[0], LANE) and memory.data[0] == 64


def test_compare_and_swap(target):
    with Memory(np.arange(64, dtype=np.uint32)) as memory:
        m = Machine(target)
        m.set_pair(4, memory.address)
        m.v[1], m.v[2], m.v[3] = LANE * 4, 1000, LANE & 0xFFFFFFFE
        m.run("global_atomic_cmpswap v0, v1, v[2:3], s[4:5] sc0")
        assert memory.data[:4].tolist() == [1000, 1, 1000, 3] and np.array_equal(m.v[0], LANE)


def test_wide_and_float_atomics(target):
    with Memory(np.zeros(4, np.uint64)) as memory:
        m = Machine(target)
        m.set_pair(4, memory.address)
        m.set_pair(EXEC, 3)
        m.v[1] = 0
        m.set64(2, np.full(64, 2**33 + 1, np.uint64))
        m.run("global_atomic_add_x2 v1, v[2:3], s[4:5]")
        m.v[6] = np.float32(1.5).view(np.uint32)
        m.run("global_atomic_add_f32 v1, v6, s[4:5] offset:8")
        m.v[7] = np.array([1.0, 2.0], np.float16).view(np.uint32)[0]
        m.run("global_atomic_pk_add_f16 v1, v7, s[4:5] offset:16")
        m.set64(8, np.full(64, 0.25))
        m.run("global_atomic_add_f64 v1, v[8:9], s[4:5] offset:24")
        assert memory.data[0] == 2**34 + 2
        assert memory.data[1:2].view(np.float32)[0] == 3.0
        assert memory.data[2:3].view(np.float16)[:2].tolist() == [2.0, 4.0]
        assert memory.data[3:4].view(np.float64)[0] == 0.5
