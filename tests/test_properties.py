"""Properties of the ops on inputs that hypothesis finds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from test_cache import N4_PAGE16, POISON, guarded_cache, raw_entries, table_of
from test_quantize import FNUZ, FP8, PROFILES
from test_topk import INF, K64, NAN, by_python_sort, int32

from dsv4_iree import reference
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import IndexerSpec, Rounding
from dsv4_iree.testing import assert_bytes_equal

Backend = Callable[..., Indexer]
numbers = st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=128, max_size=128).map(
    torch.tensor
)


@given(numbers, st.sampled_from(Rounding))
def test_quantising_twice_changes_nothing(x: torch.Tensor, rounding: Rounding) -> None:
    spec = PROFILES[rounding]
    once = reference.dequantize(*reference.quantize(x, spec), spec)
    assert_bytes_equal(reference.dequantize(*reference.quantize(once, spec), spec), once)


@given(numbers, st.sampled_from([FP8, FNUZ]))
def test_quantising_twice_to_fp8_changes_nothing(x: torch.Tensor, spec: IndexerSpec) -> None:
    once = reference.dequantize(*reference.quantize(x, spec), spec)
    assert_bytes_equal(reference.dequantize(*reference.quantize(once, spec), spec), once)


@given(numbers, st.integers(-20, 20), st.sampled_from(Rounding))
def test_a_power_of_two_moves_the_scale_and_keeps_the_codes(
    x: torch.Tensor, n: int, rounding: Rounding
) -> None:
    amax = x.view(4, 32).abs().amax(1)
    assume(bool((amax > 2.0**20).all()))
    values, scales = reference.quantize(x, PROFILES[rounding])
    moved, moved_scales = reference.quantize(x * 2.0**n, PROFILES[rounding])
    assert torch.equal(moved, values)
    assert torch.equal(moved_scales.int(), scales.int() + n)


@given(numbers, st.sampled_from(Rounding))
def test_no_value_is_off_by_more_than_half_the_widest_step(
    x: torch.Tensor, rounding: Rounding
) -> None:
    spec = PROFILES[rounding]
    values, scales = reference.quantize(x, spec)
    error = (reference.dequantize(values, scales, spec).double() - x.double()).abs()
    step = 2.0 ** (scales.double() - 127).repeat_interleave(32)
    assert bool((error <= step * (2 if rounding is Rounding.S2 else 1)).all())


@given(st.permutations(range(6)), st.integers(0, 200), st.integers(0, 2**32))
def test_write_then_gather_is_the_identity_for_any_pages_and_stride(
    compiled: Backend, pages: list[int], padding: int, seed: int
) -> None:
    spec, used = N4_PAGE16, pages[:4]
    storage, cache = guarded_cache(spec, 6, padding)
    values, scales = raw_entries(spec, 60, seed)
    entry = torch.arange(60)
    slots = torch.tensor(used)[entry // 16] * 16 + entry % 16
    indexer = compiled(spec, "write_cache", "gather_cache")
    indexer.write_cache(cache, (values, scales), slots)
    requests = torch.zeros(60, dtype=torch.int32)
    got = indexer.gather_cache(cache, table_of(*used), requests, entry.int())
    assert got[0].equal(values)
    assert got[1].equal(scales)
    unused = storage.as_strided((6, 16 * 68 + padding), (16 * 68 + padding, 1), 64)[pages[4:]]
    assert unused.eq(POISON).all()
    assert storage[:64].eq(POISON).all()
    assert storage[-64:].eq(POISON).all()


@given(st.data())
def test_any_row_and_window_is_selected_exactly(compiled: Backend, data: st.DataObject) -> None:
    level = st.sampled_from([-INF, -1.0, -0.0, 0.0, 1e-45, 1.0, 1.0000001, 3e38, INF, NAN])
    row = data.draw(st.lists(level | st.floats(width=32), min_size=1, max_size=150))
    first, last = (data.draw(st.integers(-3, 160)) for _ in range(2))
    chosen = compiled(K64, "topk").topk(torch.tensor([row]), int32(first), int32(last))
    assert chosen[0].tolist() == by_python_sort(row, 64, first, last)
    arguments = (torch.tensor([row]), int32(first), int32(last))
    ascending = compiled(K64, "topk").topk(*arguments, sorted=False)
    wanted = sorted(chosen[chosen >= 0].tolist())
    assert ascending[0].tolist() == wanted + [-1] * (64 - len(wanted))
