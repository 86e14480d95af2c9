"""torch.ops.dsv4_iree: registered rightly, and usable inside torch.compile without a break."""

from __future__ import annotations

import pytest
import torch

import dsv4_iree.torch_ops
from dsv4_iree import IndexerSpec
from dsv4_iree.testing import assert_bytes_equal, paged_inputs

SPEC = IndexerSpec(num_heads=8, page_size=16, topk=8)
OPS = torch.ops.dsv4_iree


@pytest.fixture(autouse=True)
def artifacts_for_ops(make, artifacts, monkeypatch):
    for op in (
        "quantize",
        "quantize_queries",
        "write_cache",
        "mqa_logits",
        "paged_mqa_logits",
        "topk",
        "index_topk",
    ):
        make("cpu", op, SPEC)
    monkeypatch.setenv("DSV4_IREE_ARTIFACTS", str(artifacts))
    dsv4_iree.torch_ops._indexer.cache_clear()


def paged() -> tuple[torch.Tensor, ...]:
    x = paged_inputs(SPEC, [100, 40])
    return (*x.q, x.weights, x.cache, x.block_table, x.row_to_request, x.start, x.end)


def queries(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    q, weights = torch.randn(3, 8, 128, dtype=dtype), torch.randn(3, 8, dtype=dtype)
    return q, weights, torch.tensor([0, 4, 9]), torch.randn(5, 64)


def ragged(quantize) -> tuple[torch.Tensor, ...]:
    q, k = quantize(torch.randn(2, 8, 128)), quantize(torch.randn(30, 128))
    window = torch.tensor([0, 3], dtype=torch.int32), torch.tensor([30, 9], dtype=torch.int32)
    return (*q, *k, torch.randn(2, 8), *window)


def test_ops_pass_opcheck(reference):
    window = torch.zeros(2, dtype=torch.int32), torch.tensor([9, 3], dtype=torch.int32)
    cache = torch.zeros(4, SPEC.page_bytes, dtype=torch.uint8)
    for op, args in (
        (OPS.quantize, (torch.randn(5, 128),)),
        (OPS.quantize, (torch.randn(2, 3, 128).bfloat16(),)),
        (OPS.quantize_queries, queries(torch.float32)),
        (OPS.quantize_queries, (*queries(torch.bfloat16), "r", False, "f32")),
        (OPS.write_cache, (cache, torch.randn(3, 128), torch.tensor([0, -1, 20]), 16)),
        (OPS.mqa_logits, ragged(reference(SPEC).quantize)),
        (OPS.paged_mqa_logits, (*paged(), 16, 120)),
        (OPS.topk, (torch.randn(2, 9), *window, 8)),
        (OPS.topk, (torch.randn(2, 9), *window, 8, False, "slot", *paged()[4:6], 16)),
        (OPS.index_topk, (*paged(), 16, 8)),
    ):
        torch.library.opcheck(op, args)


def test_a_whole_step_compiles_without_a_graph_break(compiled):
    indexer = compiled(SPEC, "quantize", "write_cache", "index_topk")
    x = paged_inputs(SPEC, [100, 40])
    q, keys = torch.randn(2, 8, 128), torch.randn(2, 128)
    slots = x.block_table[:, 0].long() * 16 + 3
    tail = (x.block_table, x.row_to_request, x.start, x.end)

    def step(cache: torch.Tensor, q: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        OPS.write_cache(cache, keys * 2, slots, 16)
        values, scales = OPS.quantize(q + 1)
        return OPS.index_topk(values, scales, x.weights, cache, *tail, 16, 8)

    expected_cache, cache = x.cache.clone(), x.cache.clone()
    indexer.write_cache(expected_cache, keys * 2, slots)
    expected = indexer.index_topk(
        indexer.quantize(q + 1), x.weights, expected_cache, x.block_table, x.end
    )
    graph = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert_bytes_equal(graph(cache, q, keys), expected)
    assert_bytes_equal(cache, expected_cache)


def test_ready_queries_go_straight_into_the_selection(compiled):
    indexer, x = compiled(SPEC, "quantize_queries", "index_topk"), paged_inputs(SPEC, [100, 40])
    q, weights = torch.randn(2, 8, 128), torch.randn(2, 8)
    positions, angles = torch.tensor([399, 159]), torch.randn(400, 64)

    def step(q: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        made = OPS.quantize_queries(q * 2, weights, positions, angles)
        tail = (x.block_table, x.row_to_request, x.start, x.end)
        return OPS.index_topk(*made, x.cache, *tail, 16, 8)

    pair, folded = indexer.quantize_queries(q * 2, weights, positions=positions, cos_sin=angles)
    expected = indexer.index_topk(pair, folded, x.cache, x.block_table, x.end)
    graph = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert_bytes_equal(graph(q, weights), expected)


def test_compiled_graphs_take_other_sizes(compiled):
    graph = torch.compile(
        lambda logits, start, end: OPS.topk(logits, start, end, 8) + 1,
        fullgraph=True,
        dynamic=True,
        backend="aot_eager",
    )
    indexer = compiled(SPEC, "topk")
    for rows, columns in ((2, 9), (3, 50), (5, 8)):
        logits = torch.randn(rows, columns)
        start, end = torch.zeros(rows).int(), torch.full((rows,), columns).int()
        assert_bytes_equal(graph(logits, start, end), indexer.topk(logits, start, end) + 1)
