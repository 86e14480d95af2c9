"""write_cache and gather_cache, the reference and the compiled form alike."""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest
import torch

from dsv4_iree import layout
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import Format, IndexerSpec
from dsv4_iree.testing import assert_bytes_equal

N4, N4_PAGE16 = IndexerSpec(), IndexerSpec(page_size=16)
N8 = IndexerSpec(format=Format.FP8, layout="n8")
CACHES = {
    "N4": N4,
    "N4-page1": IndexerSpec(page_size=1),
    "N4-page16": N4_PAGE16,
    "N4-page128-dim64": IndexerSpec(page_size=128, head_dim=64),
    "G4-tile16": IndexerSpec(num_heads=8, page_size=16, layout="g4"),
    "G4-tile32": IndexerSpec(page_size=32, layout="g4"),
    "N8": N8,
    "P8-page32-fnuz": IndexerSpec(page_size=32, format=Format.FP8_FNUZ, layout="p8"),
}
by_cache = pytest.mark.parametrize("spec", CACHES.values(), ids=CACHES)
pytestmark = pytest.mark.gpu
POISON = 0xA5
Backend = Callable[..., Indexer]


@pytest.fixture(scope="session")
def backend(backend: Backend) -> Backend:
    """backend(spec): write_cache and gather_cache of each form, one after the other."""
    return lambda spec: backend(spec, "write_cache", "gather_cache")


def raw_entries(spec: IndexerSpec, count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random bytes as values and scales of `count` keys."""
    random = torch.Generator().manual_seed(seed)
    values = torch.randint(256, (count, spec.value_bytes), dtype=torch.uint8, generator=random)
    scales = torch.randint(256, (count, spec.scale_bytes), dtype=torch.uint8, generator=random)
    return values, scales if spec.is_fp4 else scales.view(torch.float32)[:, 0]


def guarded_cache(
    spec: IndexerSpec, pages: int, padding: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Poisoned memory, and a cache in the middle of it."""
    stride = spec.page_bytes + padding
    storage = torch.full((64 + pages * stride + 64,), POISON, dtype=torch.uint8)
    return storage, storage.as_strided((pages, spec.page_bytes), (stride, 1), 64)


def table_of(*pages: int) -> torch.Tensor:
    return torch.tensor([pages], dtype=torch.int32)


def int32(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def test_entries_land_at_the_addresses_worked_out_by_hand(backend: Backend) -> None:
    storage, cache = guarded_cache(N4, 3, padding=100)
    values = torch.arange(128, dtype=torch.uint8).view(2, 64)
    scales = torch.tensor([[200, 201, 202, 203], [210, 211, 212, 213]], dtype=torch.uint8)
    backend(N4).write_cache(cache, (values, scales), torch.tensor([2 * 64 + 63, 1]))
    base = 64 + 2 * 4452  # page 2
    expected = torch.full_like(storage, POISON)
    expected[base + 4032 : base + 4096] = torch.arange(64, dtype=torch.uint8)
    expected[base + 4348 : base + 4352] = torch.tensor([200, 201, 202, 203], dtype=torch.uint8)
    expected[64 + 64 : 64 + 128] = torch.arange(64, 128, dtype=torch.uint8)
    expected[64 + 4100 : 64 + 4104] = torch.tensor([210, 211, 212, 213], dtype=torch.uint8)
    assert_bytes_equal(storage, expected)


def test_an_fp8_scale_lies_behind_all_values_as_a_little_endian_float(backend: Backend) -> None:
    storage, cache = guarded_cache(N8, 2)
    values = torch.full((1, 128), 0x38, dtype=torch.uint8)
    backend(N8).write_cache(cache, (values, torch.tensor([0.15625])), torch.tensor([64 + 2]))
    expected = torch.full_like(storage, POISON)
    base = 64 + 8448
    expected[base + 256 : base + 384] = 0x38
    expected[base + 8200 : base + 8204] = torch.tensor([0, 0, 0x20, 0x3E], dtype=torch.uint8)
    assert_bytes_equal(storage, expected)


@by_cache
def test_written_entries_are_gathered_back_and_no_other_byte_changes(
    backend: Backend, spec: IndexerSpec
) -> None:
    pages, size = 5, spec.page_size
    storage, cache = guarded_cache(spec, pages, padding=28)
    order = torch.randperm(pages * size, generator=torch.Generator().manual_seed(1))
    slots = order[: max(len(order) * 3 // 4, 1)]
    values, scales = raw_entries(spec, len(slots))
    indexer = backend(spec)
    indexer.write_cache(cache, (values, scales), slots)

    expected, _ = guarded_cache(spec, pages, padding=28)
    entry_bytes = torch.cat([values, scales.view(len(slots), -1).view(torch.uint8)], dim=1)
    offsets = layout.page_offsets(spec)
    for slot, entry in zip(slots.tolist(), entry_bytes):
        expected[64 + slot // size * (spec.page_bytes + 28) + offsets[slot % size]] = entry
    assert_bytes_equal(storage, expected)

    table = table_of(*range(pages))
    requests = torch.zeros(len(slots), dtype=torch.int32)
    got = indexer.gather_cache(cache, table, requests, slots.int())
    assert_bytes_equal(got[0], values)
    assert_bytes_equal(got[1], scales)


@by_cache
def test_negative_slots_and_slots_past_the_last_page_are_skipped(
    backend: Backend, spec: IndexerSpec
) -> None:
    last = 3 * spec.page_size
    slots = torch.tensor([-1, 0, -(2**63), last - 1, last, 2**31, 2**40, 2**63 - 1])
    values, scales = raw_entries(spec, len(slots))
    storage, cache = guarded_cache(spec, 3)
    backend(spec).write_cache(cache, (values, scales), slots)
    expected, wanted = guarded_cache(spec, 3)
    backend(spec).write_cache(
        wanted, (values[[1, 3]].contiguous(), scales[[1, 3]].contiguous()), slots[[1, 3]]
    )
    assert_bytes_equal(storage, expected)
    assert storage.ne(POISON).any()


@by_cache
@pytest.mark.parametrize("slots", [[-1, -1, -7], [10**6, 2**62, -1], [-1]], ids=str)
def test_nothing_is_written_when_every_slot_is_skipped(
    backend: Backend, spec: IndexerSpec, slots: list[int]
) -> None:
    storage, cache = guarded_cache(spec, 3)
    backend(spec).write_cache(cache, raw_entries(spec, len(slots)), torch.tensor(slots))
    assert storage.eq(POISON).all()


def test_no_keys_no_pages_and_no_rows_are_legal(backend: Backend) -> None:
    indexer, none = backend(N4), torch.zeros(0, dtype=torch.int64)
    storage, cache = guarded_cache(N4, 2)
    indexer.write_cache(cache, raw_entries(N4, 0), none)
    indexer.write_cache(cache, torch.zeros(0, 128), none)
    indexer.write_cache(cache[:0], raw_entries(N4, 2), torch.tensor([0, 1]))
    assert storage.eq(POISON).all()
    values, scales = indexer.gather_cache(cache, table_of(0), none.int(), none.int())
    assert values.shape == (0, 64)
    assert scales.shape == (0, 4)
    for empty in (cache[:0], cache):
        table = table_of(0) if empty.shape[0] == 0 else torch.zeros(1, 0, dtype=torch.int32)
        values, scales = indexer.gather_cache(empty, table, int32(0, 0), int32(0, 5))
        assert not values.any()
        assert not scales.any()


@by_cache
def test_only_entries_on_existing_pages_of_existing_requests_are_gathered(
    backend: Backend, spec: IndexerSpec
) -> None:
    size, pages = spec.page_size, 4
    _, cache = guarded_cache(spec, pages)
    indexer = backend(spec)
    slots = torch.arange(pages * size)
    values, scales = raw_entries(spec, len(slots))
    indexer.write_cache(cache, (values, scales), slots)
    table = torch.tensor([[3, 1, 3], [-1, 4, 2**31 - 1], [-(2**31), 0, 10**6]], dtype=torch.int32)
    cases = {  # (request, entry): slot that is read
        (0, 0): 3 * size, (0, size - 1): 4 * size - 1, (0, size): size,
        (0, 2 * size): 3 * size, (0, 3 * size - 1): 4 * size - 1, (2, 2 * size - 1): size - 1,
        (0, -1): None, (0, -size): None, (0, -(2**31)): None,
        (0, 3 * size): None, (0, 2**31 - 1): None, (2, 3 * size): None,
        (1, 0): None, (1, size): None, (1, 2 * size): None,
        (2, 0): None, (2, 2 * size): None,
        (-1, size): None, (3, size): None, (2**31 - 1, size): None, (-(2**31), size): None,
    }  # fmt: skip
    requests, entries = (int32(*column) for column in zip(*cases))
    got = indexer.gather_cache(cache, table, requests, entries)
    for row, (case, slot) in enumerate(cases.items()):
        if slot is None:
            assert not got[0][row].any(), case
            assert not got[1][row : row + 1].view(torch.uint8).any(), case
        else:
            assert got[0][row].equal(values[slot]), case
            assert_bytes_equal(got[1][row : row + 1], scales[slot : slot + 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize(
    "spec",
    [IndexerSpec(page_size=16, rounding="d", hadamard=True), N8],
    ids=["N4-D-hadamard", "N8"],
)
def test_writing_numbers_equals_quantising_and_writing_the_bytes(
    compiled: Backend, reference: Backend, spec: IndexerSpec, dtype: torch.dtype
) -> None:
    keys = torch.randn(40, 128, generator=torch.Generator().manual_seed(2)).to(dtype)
    slots = torch.randperm(3 * spec.page_size, generator=torch.Generator().manual_seed(3))[:40]
    slots[7] = -1
    stored = []
    pair = reference(spec).quantize(keys)
    for indexer, given_keys in (
        (compiled(spec, "write_cache"), keys),
        (compiled(spec, "write_cache"), pair),
        (reference(spec), keys),
    ):
        storage, cache = guarded_cache(spec, 3, padding=12)
        indexer.write_cache(cache, given_keys, slots)
        stored.append(storage)
    assert_bytes_equal(stored[0], stored[1])
    assert_bytes_equal(stored[0], stored[2])
    assert stored[0].ne(POISON).any()


@by_cache
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_gathered_numbers_are_the_dequantised_bytes(
    compiled: Backend, reference: Backend, spec: IndexerSpec, dtype: torch.dtype
) -> None:
    _, cache = guarded_cache(spec, 3, padding=4)
    slots = torch.arange(3 * spec.page_size)
    keys = torch.randn(len(slots), spec.head_dim, generator=torch.Generator().manual_seed(4))
    reference(spec).write_cache(cache, keys, slots)
    requests, entries = int32(0, 0, 0, 1), int32(0, spec.page_size, -1, 0)
    table = torch.tensor([[2, 1], [0, 7]], dtype=torch.int32)
    numbers = compiled(spec, "gather_cache").gather_cache(
        cache, table, requests, entries, dtype=dtype
    )
    raw = reference(spec).gather_cache(cache, table, requests, entries)
    expected = reference(spec).dequantize(raw, dtype=dtype)
    assert_bytes_equal(numbers, expected)
    assert not numbers[2].any()
    assert numbers[[0, 1, 3]].any(1).all()


def test_results_go_into_the_tensors_of_the_caller(backend: Backend) -> None:
    _, cache = guarded_cache(N4, 2)
    indexer, (values, scales) = backend(N4), raw_entries(N4, 3)
    indexer.write_cache(cache, (values, scales), torch.tensor([5, 6, 7]))
    out = torch.full((3, 64), 9, dtype=torch.uint8), torch.full((3, 4), 9, dtype=torch.uint8)
    pointers = [t.data_ptr() for t in out]
    got = indexer.gather_cache(cache, table_of(0, 1), int32(0, 0, 0), int32(5, 6, 7), out=out)
    assert [t.data_ptr() for t in got] == pointers
    assert out[0].equal(values)
    assert out[1].equal(scales)


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (N8, torch.float8_e4m3fn),
        (CACHES["P8-page32-fnuz"], torch.float8_e4m3fnuz),
    ],
    ids=["fn", "fnuz"],
)
def test_fp8_tensors_are_taken_as_they_are(
    backend: Backend, spec: IndexerSpec, kind: torch.dtype
) -> None:
    values, scales = raw_entries(spec, 2)
    stored = []
    for given_values in (values, values.view(kind)):
        storage, cache = guarded_cache(spec, 1)
        backend(spec).write_cache(cache, (given_values, scales), torch.tensor([3, 1]))
        stored.append(storage)
    assert_bytes_equal(*stored)


def test_the_nominal_view_of_four_dims_is_the_same_cache(backend: Backend) -> None:
    storage, cache = guarded_cache(N4, 3, padding=64)
    nominal = storage.as_strided((3, 64, 1, 68), (4416, 68, 68, 1), 64)
    indexer, entries = backend(N4), raw_entries(N4, 2)
    indexer.write_cache(nominal, entries, torch.tensor([70, 130]))
    got = indexer.gather_cache(cache, table_of(0, 1, 2), int32(0, 0), int32(70, 130))
    assert got[0].equal(entries[0])
    assert got[1].equal(entries[1])
    also = indexer.gather_cache(nominal, table_of(0, 1, 2), int32(0, 0), int32(70, 130))
    assert also[0].equal(got[0])


@pytest.mark.parametrize("name", ["N4", "N8"])
def test_pages_beyond_two_and_four_gib_are_addressed_in_64_bits(
    backend: Backend, name: str
) -> None:
    spec, stride, size = CACHES[name], 1_002_240, 64
    around = [0, 2142, 2143, 4285, 4286]  # below and above 2^31, below and above 2^32 bytes
    storage = torch.empty(4287 * stride, dtype=torch.uint8)  # memory is touched only where used
    cache = storage.as_strided((4287, spec.page_bytes), (stride, 1))
    cache[around] = POISON
    indexer = backend(spec)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    entries = raw_entries(spec, 5)
    indexer.write_cache(cache, entries, torch.tensor(around) * size + 11)
    got = indexer.gather_cache(
        cache,
        table_of(*around),
        int32(0, 0, 0, 0, 0),
        torch.arange(5, dtype=torch.int32) * size + 11,
    )
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert_bytes_equal(got[0], entries[0])
    assert_bytes_equal(got[1], entries[1])
    offsets = layout.page_offsets(spec)[11]
    for page, row in zip(
        around, torch.cat([entries[0], entries[1].view(5, -1).view(torch.uint8)], 1)
    ):
        assert storage[page * stride + offsets].equal(row)
    if isinstance(indexer, Indexer):  # on a GPU the test itself copies
        assert grown < 256, f"{grown:.0f} MiB more resident: the cache was copied"
