"""topk and index_topk on a GPU: exact ids in long rows, whatever their values and windows."""

from __future__ import annotations

import pytest
import torch
from test_topk import MAX, hard_rows, int32

from dsv4_iree import IndexerSpec, reference
from dsv4_iree.streaming import STREAMS
from dsv4_iree.testing import assert_bytes_equal, paged_inputs

SIZES = [512, 1024, 2048]
DTYPES = [torch.float32, torch.bfloat16]
MILLION = 1 << 20


def windows(rows: int, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((rows,), first, dtype=torch.int32), torch.full((rows,), last).int()


@pytest.mark.parametrize("dtype", DTYPES, ids=["f32", "bf16"])
@pytest.mark.parametrize("columns", [5003, 40_000, 262_144])
@pytest.mark.parametrize("k", SIZES)
def test_hard_rows_sorted_ascending_and_as_slots(gpu, k, columns, dtype):
    rows = hard_rows(columns)
    logits = torch.stack(list(rows.values())).to(dtype)
    start, end = windows(len(rows), 7, columns - 5)
    random = torch.Generator().manual_seed(k)
    table = torch.randint(-1, 1000, (4, columns // 64), generator=random).int()
    requests = torch.randint(-1, 5, (len(rows),), generator=random).int()
    tables = {"block_table": table, "row_to_request": requests}
    spec = IndexerSpec(topk=k)
    indexer = gpu(spec, "topk")
    ranked = reference.topk(logits, k, start, end)
    for ordered in (True, False):
        chosen = reference.topk(logits, k, start, end, sorted=ordered)
        actual = indexer.topk(logits, start, end, sorted=ordered)
        for name, one, other in zip(rows, actual, chosen):
            assert one.equal(other), name
        expected = reference.as_ids(chosen, "slot", start, table, requests, spec)
        actual = indexer.topk(logits, start, end, sorted=ordered, ids="slot", **tables)
        assert_bytes_equal(actual, expected)
    entries = torch.where(ranked < 0, -1, ranked + 7)
    assert_bytes_equal(indexer.topk(logits, start, end, ids="entry"), entries)


@pytest.mark.parametrize("k", SIZES)
def test_a_long_row_leaves_nothing_behind_for_short_ones(gpu, k):
    """In one call, and in the calls that follow it."""
    lengths = [MILLION, 0, 1, k - 1, k, k + 1, 16_384, 16_385, MILLION - 1, 5]
    logits = torch.randn(len(lengths), MILLION, generator=torch.Generator().manual_seed(k))
    logits[8, 1000:900_000] = 2.0
    start = int32(0, 3, MILLION - 1, 5, 7, 11, 0, 0, 1, 16_380)
    end = (start + torch.tensor(lengths)).int()
    indexer = gpu(IndexerSpec(topk=k), "topk")
    expected = reference.topk(logits, k, start, end)
    assert_bytes_equal(indexer.topk(logits, start, end), expected)
    for row in (9, 1, 5, 0, 3):
        alone = slice(row, row + 1)
        args = (logits[alone].clone(), start[alone].clone(), end[alone].clone())
        assert_bytes_equal(indexer.topk(*args), expected[alone])


@pytest.mark.parametrize("dtype", DTYPES, ids=["f32", "bf16"])
def test_rows_of_a_wider_buffer_of_more_than_4_gib(gpu, dtype):
    """The last rows begin past 2^32 bytes."""
    rows, stride, columns = 4200, 2**20 // dtype.itemsize, 1000
    whole = torch.empty(rows, stride, dtype=dtype)  # memory is touched only where used
    logits = whole[:, :columns]
    start, end = windows(rows, 0, 0)
    random = torch.Generator().manual_seed(1)
    for row in (0, 2047, 2048, 4095, 4096, rows - 1):
        logits[row] = torch.randn(columns, generator=random).to(dtype)
        whole[row, columns : columns + 64] = torch.inf
        end[row] = MAX
    indexer = gpu(IndexerSpec(), "topk")
    assert_bytes_equal(indexer.topk(logits, start, end), reference.topk(logits, 512, start, end))


def test_twenty_runs_give_the_same_ids(gpu):
    rows = hard_rows(262_144)
    logits = torch.stack(list(rows.values()))
    start, end = windows(len(rows), 0, MAX)
    indexer = gpu(IndexerSpec(), "topk")
    first = indexer.topk(logits, start, end)
    assert_bytes_equal(first, reference.topk(logits, 512, start, end))
    for _ in range(20):
        assert_bytes_equal(indexer.topk(logits, start, end), first)


INDEX = {
    "flash": IndexerSpec(),
    "pro": IndexerSpec(topk=1024),
    "heads32": IndexerSpec(num_heads=32),
    "heads8-page16": IndexerSpec(num_heads=8, page_size=16, topk=64),
}


@pytest.mark.parametrize("ids", ["relative", "entry", "slot"])
@pytest.mark.parametrize("skip_short", [True, False], ids=["skip", "score"])
@pytest.mark.parametrize("spec", INDEX.values(), ids=INDEX)
def test_index_topk_selects_from_its_own_logits(gpu, spec, skip_short, ids):
    """Requests of 0 to 17,000 entries of two rows, missing pages, and windows of all kinds."""
    k = spec.topk
    x = paged_inputs(spec, [17_000, 0, 1, k - 1, k, k + 1, 5000, 700], next_n=2, page_padding=28)
    x.start.copy_(int32(0, 9, 0, 0, 0, 0, -5, 3, 0, 0, 0, 1, 4000, 100, 300, 690))
    x.end[12] = MAX
    x.block_table[0, 3], x.block_table[6, 5], x.block_table[7, 0] = -1, len(x.cache), MAX
    x.row_to_request[15] = 8
    x.block_table[6, -(-5000 // spec.page_size) :] = -1  # row 12 has no end
    indexer = gpu(spec, "index_topk", "paged_mqa_logits")
    arguments = x.arguments()
    width = x.block_table.shape[1] * spec.page_size
    chosen = indexer.index_topk(**arguments, skip_short=skip_short, ids=ids)
    logits = indexer.paged_mqa_logits(**arguments)
    assert logits.shape == (16, width)
    if skip_short:
        short = x.end.long() - x.start.clamp(min=0).long() <= k
        by_number = -torch.arange(width).float().expand_as(logits)
        logits = torch.where(short[:, None] & (logits > -torch.inf), by_number, logits)
    expected = reference.topk(logits, k, x.start, x.end)
    tables = (x.block_table, x.row_to_request)
    assert_bytes_equal(chosen, reference.as_ids(expected, ids, x.start, *tables, spec))
    assert chosen[15].eq(-1).all()
    module = indexer._caller.module("index_topk")
    assert module.target != "cuda" or STREAMS in module.functions
    if STREAMS in module.functions:
        streamed = indexer.index_topk(**arguments, skip_short=skip_short, ids=ids, streaming=True)
        assert_bytes_equal(streamed, chosen)


def test_twenty_runs_of_index_topk_give_the_same_ids(gpu):
    spec = IndexerSpec()
    x = paged_inputs(spec, [9000, 700, 3000], next_n=3).arguments()
    indexer = gpu(spec, "index_topk")
    first = indexer.index_topk(**x)
    for _ in range(20):
        assert_bytes_equal(indexer.index_topk(**x), first)
