"""The rows kernels of gfx942 and gfx950, executed: bytes exact, one dispatch, no other access."""

from __future__ import annotations

import pytest
import torch
from hard_inputs import hard_vectors

from dsv4_iree import IndexerSpec, emulator, reference
from dsv4_iree.testing import assert_bytes_equal

SPECS = {
    "n4": IndexerSpec(page_size=16),
    "n4 of one entry": IndexerSpec(page_size=1),
    "n4 of dim 96": IndexerSpec(head_dim=96, page_size=3),
    "n4 of dim 32": IndexerSpec(head_dim=32, page_size=16, rounding="s"),
    "g4 of 32": IndexerSpec(page_size=32, layout="g4", rounding="d", hadamard=True),
    "g4 of 16, dim 256": IndexerSpec(8, 256, 16, layout="g4", rounding="s2", hadamard=True),
    "n8": IndexerSpec(page_size=16, format="fp8", layout="n8"),
    "n8 of dim 96": IndexerSpec(head_dim=96, page_size=5, format="fp8-fnuz", layout="n8"),
    "p8 of fnuz": IndexerSpec(page_size=32, format="fp8-fnuz", layout="p8", hadamard=True),
}
by_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
floats = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
POISON = 0xA5


def one_dispatch(dispatches: list[emulator.Dispatch]) -> emulator.Dispatch:
    emulator.reset_stats()
    (dispatch,) = dispatches
    assert dispatch.scratch_bytes == 0
    return dispatch


def padded(spec: IndexerSpec, pages: int, padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    storage = torch.full((pages, spec.page_bytes + padding), POISON, dtype=torch.uint8)
    return storage, storage[:, : spec.page_bytes]


@floats
@by_spec
def test_hard_vectors_are_quantised_and_back_bit_for_bit(emulated, counted, spec, dtype):
    x = hard_vectors(spec.head_dim, dtype)[::3].contiguous()
    indexer = emulated(spec, "quantize", "dequantize")
    pair, expected = indexer.quantize(x), reference.quantize(x, spec)
    one_dispatch(counted())
    for one, other in zip(pair, expected):
        assert_bytes_equal(one, other)
    numbers = indexer.dequantize(expected, dtype=dtype)
    one_dispatch(counted())
    wanted = reference.dequantize(*expected, spec).to(dtype)
    assert torch.equal(numbers.isnan(), wanted.isnan())
    assert_bytes_equal(numbers.nan_to_num(7.0), wanted.nan_to_num(7.0))


@pytest.mark.parametrize("padding", [0, 13])
@by_spec
def test_slots_are_written_and_nothing_else(emulated, counted, spec, padding):
    pages, random = 5, torch.Generator().manual_seed(3)
    slots = torch.randperm(pages * spec.page_size, generator=random)[:33]
    skipped = torch.tensor([-1, pages * spec.page_size, -(2**63), 2**63 - 1, 2**40])
    slots = torch.cat([slots, skipped])[torch.randperm(len(slots) + 5, generator=random)]
    keys = torch.randn(len(slots), spec.head_dim, generator=random)
    indexer = emulated(spec, "write_cache")
    for given in (keys, keys.bfloat16(), reference.quantize(keys, spec)):
        storage, cache = padded(spec, pages, padding)
        expected, wanted = padded(spec, pages, padding)
        indexer.write_cache(cache, given, slots)
        one_dispatch(counted())
        pair = given if isinstance(given, tuple) else reference.quantize(given, spec)
        reference.write_cache(wanted, *pair, slots, spec)
        assert_bytes_equal(storage, expected)


@pytest.mark.parametrize("padding", [0, 13])
@by_spec
def test_only_visible_entries_are_read(emulated, counted, spec, padding):
    """The emulator refuses any read outside the cache and the table."""
    pages, random, size = 5, torch.Generator().manual_seed(4), spec.page_size
    _, cache = padded(spec, pages, padding)
    keys = torch.randn(pages * size, spec.head_dim, generator=random)
    reference.write_cache(cache, *reference.quantize(keys, spec), torch.arange(pages * size), spec)
    garbage = [2**31 - 1, -(2**31), -1, pages]
    table = torch.tensor([[4, 0, garbage[0]], [garbage[1], 3, 1], [garbage[2], garbage[3], 2]])
    entries = torch.arange(-2, 3 * size + 2).repeat(5)
    entries = torch.cat([entries, torch.tensor([2**31 - 1, -(2**31), 2**30, 0, 0])]).int()
    requests = torch.tensor([-1, 0, 1, 2, 3]).repeat_interleave(3 * size + 4)
    requests = torch.cat([requests, torch.tensor([0, 0, 1, 2**31 - 1, -(2**31)])]).int()
    args = (cache, table.int(), requests, entries)
    indexer, expected = emulated(spec, "gather_cache"), reference.gather_cache(*args, spec)
    for one, other in zip(indexer.gather_cache(*args), expected):
        assert_bytes_equal(one, other)
    one_dispatch(counted())
    assert expected[0].any(1).sum() >= 5 * size
    for dtype in (torch.float32, torch.bfloat16):
        numbers = indexer.gather_cache(*args, dtype=dtype)
        one_dispatch(counted())
        assert_bytes_equal(numbers, reference.dequantize(*expected, spec).to(dtype))


def test_split_pages_far_apart(emulated, counted):
    spec, random = IndexerSpec(layout="f4"), torch.Generator().manual_seed(5)
    caches = []
    for _ in range(2):
        values = torch.full((3, 4096 + 9), POISON, dtype=torch.uint8)
        scales = torch.full((3, 256 + 5), POISON, dtype=torch.uint8)
        caches.append((values, scales))
    keys, slots = torch.randn(70, 128, generator=random), torch.randperm(192, generator=random)[:70]
    indexer = emulated(spec, "write_cache", "gather_cache")
    views = [(v[:, :4096].view(3, 1, 4, 64, 16), s[:, :256].view(3, 1, 4, 64)) for v, s in caches]
    indexer.write_cache(views[0], keys, slots)
    one_dispatch(counted())
    flat = (caches[1][0][:, :4096], caches[1][1][:, :256])
    reference.write_cache(flat, *reference.quantize(keys, spec), slots, spec)
    for one, other in zip(*caches):
        assert_bytes_equal(one, other)
    table = torch.tensor([[2, 0, 1]], dtype=torch.int32)
    args = (table, torch.zeros(192, dtype=torch.int32), torch.arange(192, dtype=torch.int32))
    found, wanted = indexer.gather_cache(views[0], *args), reference.gather_cache(flat, *args, spec)
    one_dispatch(counted())
    for one, other in zip(found, wanted):
        assert_bytes_equal(one, other)


def test_pages_beyond_four_gib_are_addressed_in_64_bits(emulated):
    spec, stride = IndexerSpec(), 1_002_240
    around = [0, 2142, 2143, 4285, 4286]  # below and above 2^31, below and above 2^32 bytes
    storage = torch.empty(4287 * stride, dtype=torch.uint8)  # memory is touched only where used
    cache = storage.as_strided((4287, spec.page_bytes), (stride, 1))
    cache[around] = POISON
    keys = torch.randn(5, 128, generator=torch.Generator().manual_seed(6))
    pair, slots = reference.quantize(keys, spec), torch.tensor(around) * 64 + 11
    indexer = emulated(spec, "write_cache", "gather_cache")
    indexer.write_cache(cache, keys, slots)
    table, entries = torch.tensor([around], dtype=torch.int32), torch.arange(5).int() * 64 + 11
    args = (cache, table, torch.zeros(5, dtype=torch.int32), entries)
    for one, other in zip(indexer.gather_cache(*args), pair):
        assert_bytes_equal(one, other)
    assert_bytes_equal(
        indexer.gather_cache(*args, dtype=torch.float32), reference.dequantize(*pair, spec)
    )
