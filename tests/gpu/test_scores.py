"""mqa_logits and paged_mqa_logits on a GPU: shapes that fill it, scales of all sizes, repeats."""

from __future__ import annotations

import pytest
import torch
from hard_inputs import SCALES, assert_rows_close, scaled_vectors
from test_topk import MAX, int32

import dsv4_iree
from dsv4_iree import IndexerSpec
from dsv4_iree.testing import assert_bytes_equal, assert_logits_close, paged_inputs

SPECS = {
    "heads64": IndexerSpec(),
    "heads32": IndexerSpec(num_heads=32),
    "heads8-page16": IndexerSpec(num_heads=8, page_size=16),
    "heads16-page128": IndexerSpec(num_heads=16, page_size=128),
}
TENSOR_CORES = 1e-3  # of a row's largest logit; 4e-4 was seen of e4m3 products on Hopper
by_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


def plain(spec: IndexerSpec) -> dsv4_iree.Indexer:
    return dsv4_iree.load(spec, backend="reference")


@pytest.mark.parametrize("next_n", [1, 2, 3])
@by_spec
def test_paged_scores_of_many_requests(gpu, spec, next_n):
    lengths = [*range(0, 700, 70), 6000, 4096, 4097, 1]
    x = paged_inputs(spec, lengths, next_n=next_n, page_padding=28, seed=next_n)
    x.start.copy_(torch.arange(len(x.start)) * 37 % 150)
    x.block_table[5, 0], x.block_table[10, 7] = -1, len(x.cache)
    logits = gpu(spec, "paged_mqa_logits").paged_mqa_logits(**x.arguments())
    assert_logits_close(logits, plain(spec).paged_mqa_logits(**x.arguments()))


@pytest.mark.parametrize(("rows", "keys"), [(1, 70_000), (129, 1000), (512, 4097)], ids=str)
@by_spec
def test_ragged_scores(gpu, spec, rows, keys):
    random = torch.Generator().manual_seed(keys)
    rows = rows * 8 // spec.num_heads or 1  # the reference takes its time
    q = scaled_vectors((rows, spec.num_heads), range(120, 130), random)
    k = scaled_vectors((keys,), range(120, 130), random)
    weights = torch.randn(rows, spec.num_heads, generator=random)
    start = (torch.arange(rows) * 37 % 500 - 20).int()
    end = (keys - torch.arange(rows) * 11 % keys).int()
    end[::7], end[3::7] = MAX, 0
    args = (q, k, weights, start, end)
    indexer, expected = gpu(spec, "mqa_logits"), plain(spec).mqa_logits(*args)
    assert_logits_close(indexer.mqa_logits(*args), expected)
    kept = torch.full((rows, keys), 7.0)
    indexer.mqa_logits(*args, clean=False, out=kept)
    column = torch.arange(keys)
    inside = (column >= start[:, None]) & (column < end[:, None])
    assert_logits_close(torch.where(inside, kept, -torch.inf), expected)
    assert kept[~inside].eq(7).all()


@pytest.mark.parametrize(("q_scales", "k_scales"), SCALES, ids=str)
@pytest.mark.parametrize("op", ["mqa_logits", "paged_mqa_logits"])
@by_spec
def test_scores_whatever_the_scales(gpu, spec, op, q_scales, k_scales):
    random = torch.Generator().manual_seed(31)
    q = scaled_vectors((5, spec.num_heads), q_scales, random)
    k = scaled_vectors((384,), k_scales, random)
    k[0][:8] = 0  # all-zero groups
    k[0][8:16] = 0x88  # negative zeros
    weights, end = torch.randn(5, spec.num_heads, generator=random), int32(380, 380, 9, 380, 380)
    args = (q, k, weights, None, end)
    if op == "paged_mqa_logits":
        pages = 384 // spec.page_size
        cache = torch.zeros(pages, spec.page_bytes, dtype=torch.uint8)
        plain(spec).write_cache(cache, k, torch.arange(384))
        args = (q, weights, cache, torch.arange(pages, dtype=torch.int32)[None], end)
    actual, expected = (getattr(indexer, op)(*args) for indexer in (gpu(spec, op), plain(spec)))
    assert_rows_close(actual, expected, TENSOR_CORES)


@by_spec
def test_garbage_outside_the_windows_changes_no_bit(gpu, spec):
    random = torch.Generator().manual_seed(34)
    q = scaled_vectors((6, spec.num_heads), range(120, 130), random)
    k = scaled_vectors((640,), range(120, 130), random)
    weights, end = torch.randn(6, spec.num_heads, generator=random), int32(400, 333, 5, 0, 1, 256)
    indexer = gpu(spec, "mqa_logits")
    expected = indexer.mqa_logits(q, k, weights, None, end)
    for byte in (0, 1, 254, 255):
        k[0][400:], k[1][400:] = 0xFF, byte
        assert_bytes_equal(indexer.mqa_logits(q, k, weights, None, end), expected)


@by_spec
def test_twenty_runs_of_either_op_give_the_same_bits(gpu, spec):
    x = paged_inputs(spec, [5000, 1000, 7, 64], next_n=2).arguments()
    k = scaled_vectors((3000,), range(110, 140), torch.Generator().manual_seed(1))
    ragged = (x["q"], k, x["weights"], None, torch.full((8,), 2900).int())
    indexer = gpu(spec, "paged_mqa_logits", "mqa_logits")
    first = indexer.paged_mqa_logits(**x), indexer.mqa_logits(*ragged)
    for _ in range(20):
        assert_bytes_equal(indexer.paged_mqa_logits(**x), first[0])
        assert_bytes_equal(indexer.mqa_logits(*ragged), first[1])
