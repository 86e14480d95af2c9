"""What must not change the logits: where pages lie, what is around a row, how often it is run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from dsv4_iree import reference as plain
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import Format, IndexerSpec
from dsv4_iree.testing import (
    QUANTIZED_CALC_DIFF,
    assert_bytes_equal,
    assert_logits_close,
    paged_inputs,
)

SPECS = {
    "fp4": IndexerSpec(num_heads=8),
    "fp4-heads64": IndexerSpec(),
    "fp8": IndexerSpec(num_heads=8, format=Format.FP8, layout="n8"),
    "G4-page16": IndexerSpec(num_heads=8, page_size=16, layout="g4"),
    "P8-fnuz-page32": IndexerSpec(num_heads=8, page_size=32, format=Format.FP8_FNUZ, layout="p8"),
}
FP4 = SPECS["fp4"]
pytestmark = pytest.mark.gpu
Backend = Callable[..., Indexer]


@pytest.mark.parametrize("name", ["fp4", "fp8", "G4-page16"])
def test_moving_pages_and_table_together_changes_nothing(compiled: Backend, name: str) -> None:
    spec = SPECS[name]
    inputs = paged_inputs(spec, [150, 33, 64], seed=11)
    indexer = compiled(spec, "paged_mqa_logits")
    expected = indexer.paged_mqa_logits(**inputs.arguments())
    pages = inputs.cache.shape[0]
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(12))
    moved = torch.empty_like(inputs.cache)
    moved[order] = inputs.cache
    known = (inputs.block_table >= 0) & (inputs.block_table < pages)
    table = torch.where(known, order[inputs.block_table.clamp(0, pages - 1).long()].int(), -1)
    arguments = dict(inputs.arguments(), cache=moved, block_table=table)
    assert_bytes_equal(indexer.paged_mqa_logits(**arguments), expected)


def test_a_page_may_appear_twice_and_in_two_requests(compiled: Backend) -> None:
    inputs = paged_inputs(FP4, [192, 192], seed=13)
    inputs.block_table[1] = inputs.block_table[0]
    inputs.block_table[:, 2] = inputs.block_table[:, 0]
    inputs.q[0][1], inputs.q[1][1] = inputs.q[0][0], inputs.q[1][0]
    inputs.weights[1] = inputs.weights[0]
    logits = compiled(FP4, "paged_mqa_logits").paged_mqa_logits(**inputs.arguments())
    assert_bytes_equal(logits[0], logits[1])
    assert_bytes_equal(logits[:, :64], logits[:, 128:192])
    assert not logits[0, :64].equal(logits[0, 64:128])


@pytest.mark.parametrize("name", ["fp4", "fp8", "P8-fnuz-page32"])
def test_unused_bytes_do_not_matter(compiled: Backend, name: str) -> None:
    spec, results = SPECS[name], []
    for poison in (0x00, 0x7F, 0x80, 0xFF):
        inputs = paged_inputs(spec, [65, 0, 31], page_padding=20, poison=poison, seed=14)
        results.append(compiled(spec, "paged_mqa_logits").paged_mqa_logits(**inputs.arguments()))
    for other in results[1:]:
        assert_bytes_equal(other, results[0])


@pytest.mark.parametrize("name", ["fp4", "fp8"])
def test_twenty_runs_give_the_same_bits(compiled: Backend, name: str) -> None:
    spec = SPECS[name]
    inputs = paged_inputs(spec, [200, 70, 130], next_n=2, seed=15)
    indexer = compiled(spec, "paged_mqa_logits")
    first = indexer.paged_mqa_logits(**inputs.arguments())
    for _ in range(20):
        assert_bytes_equal(indexer.paged_mqa_logits(**inputs.arguments()), first)


@pytest.mark.parametrize("name", ["fp4", "fp8"])
def test_cutting_a_call_into_runs_of_rows_changes_nothing(
    compiled: Backend, least_limit: Callable[..., int], name: str
) -> None:
    spec = SPECS[name]
    inputs = paged_inputs(spec, [190, 64, 1, 100, 7], next_n=10, seed=16)
    whole = compiled(spec, "paged_mqa_logits").paged_mqa_logits(**inputs.arguments())
    load = partial(compiled, spec, "paged_mqa_logits")
    limit = least_limit(load, lambda indexer: indexer.paged_mqa_logits(**inputs.arguments()))
    cut = load(workspace_limit=limit)
    assert_bytes_equal(cut.paged_mqa_logits(**inputs.arguments()), whole)
    keys = torch.randn(100, 128, generator=torch.Generator().manual_seed(17))
    arguments = (inputs.q, plain.quantize(keys, spec), inputs.weights, None, inputs.end)
    whole = compiled(spec, "mqa_logits").mqa_logits(*arguments)
    load = partial(compiled, spec, "mqa_logits")
    limit = least_limit(load, lambda indexer: indexer.mqa_logits(*arguments))
    cut = load(workspace_limit=limit)
    assert_bytes_equal(cut.mqa_logits(*arguments), whole)


@pytest.mark.parametrize("name", ["fp4", "fp8"])
def test_a_row_does_not_depend_on_the_rows_around_it(compiled: Backend, name: str) -> None:
    spec = SPECS[name]
    inputs = paged_inputs(spec, [190, 64, 1, 100], seed=18)
    indexer = compiled(spec, "paged_mqa_logits")
    batch = indexer.paged_mqa_logits(**inputs.arguments())
    for row in range(4):
        alone = indexer.paged_mqa_logits(
            tuple(part[row : row + 1].clone() for part in inputs.q),
            inputs.weights[row : row + 1].clone(),
            inputs.cache,
            inputs.block_table[row : row + 1].clone(),
            inputs.end[row : row + 1].clone(),
        )
        assert_bytes_equal(alone[0], batch[row])


@pytest.mark.parametrize("n", [-20, 1, 30])
@pytest.mark.parametrize("name", ["fp4", "fp8"])
def test_a_power_of_two_on_the_weights_is_one_on_the_logits(
    compiled: Backend, name: str, n: int
) -> None:
    spec = SPECS[name]
    inputs = paged_inputs(spec, [100, 20], seed=19)
    indexer = compiled(spec, "paged_mqa_logits")
    logits = indexer.paged_mqa_logits(**inputs.arguments())
    inputs.weights.mul_(2.0**n)
    assert_bytes_equal(indexer.paged_mqa_logits(**inputs.arguments()), logits * 2.0**n)


@pytest.mark.parametrize(
    ("name", "bound"),
    [("fp4-heads64", QUANTIZED_CALC_DIFF), ("fp4", QUANTIZED_CALC_DIFF), ("fp8", 1e-3)],
)
def test_quantised_logits_stay_close_to_those_of_the_vectors(
    compiled: Backend, name: str, bound: float
) -> None:
    spec, random = SPECS[name], torch.Generator().manual_seed(20)
    q = torch.randn(16, spec.num_heads, 128, generator=random)
    k, weights = (
        torch.randn(256, 128, generator=random),
        torch.rand(16, spec.num_heads, generator=random),
    )
    end = torch.full((16,), 256, dtype=torch.int32)
    exact = plain.mqa_logits(q, k, weights, torch.zeros_like(end), end)
    pairs = plain.quantize(q, spec), plain.quantize(k, spec)
    logits = compiled(spec, "mqa_logits").mqa_logits(*pairs, weights, None, end)
    assert_logits_close(logits, exact, bound)
