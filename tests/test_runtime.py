"""Calls work on the caller's memory: no copy, no growth, the workspace given, async on request."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from dsv4_iree import IndexerSpec, reference
from dsv4_iree.calls import Call
from dsv4_iree.indexer import PAGED_ROWS
from dsv4_iree.testing import assert_bytes_equal, paged_inputs

SPEC = IndexerSpec(num_heads=8, page_size=16, topk=8)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def indexer(compiled):
    return compiled(SPEC, "quantize", "write_cache", "paged_mqa_logits", "topk", "index_topk")


@pytest.fixture(scope="module")
def paged():
    return paged_inputs(SPEC, [100, 40]).arguments()


def test_results_are_in_the_memory_that_was_given(indexer, paged):
    out = torch.full((2, 112), 7.0)
    address = out.data_ptr()
    result = indexer.paged_mqa_logits(**paged, out=out, width=112)
    assert result is out
    assert out.data_ptr() == address
    assert not (out == 7.0).any()


def test_inputs_are_read_where_they_are(indexer, paged):
    """The device sees the tensor's own address: what is written there later is seen too."""
    device = indexer.function("paged_mqa_logits", "paged_mqa_logits").device
    tensor = torch.zeros(64)
    view = device.view("tensor", tensor)
    tensor.fill_(3.0)
    mapped = view.map().asarray([64], np.dtype("float32"))
    assert (mapped == 3.0).all()
    assert mapped.ctypes.data == tensor.data_ptr()


def test_a_write_changes_the_cache_in_place_and_nothing_around_it(indexer):
    storage = torch.full((8, SPEC.page_bytes + 64), 0xAB, dtype=torch.uint8)
    cache = storage[2:6, : SPEC.page_bytes]
    indexer.write_cache(cache, torch.randn(3, 128), torch.tensor([0, 17, 63]))
    changed = (storage != 0xAB).any(1).tolist()
    assert changed == [False, False, True, True, False, True, False, False]
    assert (storage[:, SPEC.page_bytes :] == 0xAB).all()


def test_a_thousand_calls_do_not_grow_the_process(indexer, paged):
    out = torch.empty(2, 112)
    for _ in range(20):
        indexer.paged_mqa_logits(**paged, out=out)
    before = resident_bytes()
    for _ in range(1000):
        indexer.paged_mqa_logits(**paged, out=out)
    assert resident_bytes() - before < 2 << 20


def test_a_call_on_a_large_cache_takes_no_memory_of_its_size(indexer):
    """A copy of the cache would show: it is 256 MiB and the process must not grow by a tenth."""
    cache = torch.zeros((256 << 20) // SPEC.page_bytes, SPEC.page_bytes, dtype=torch.uint8)
    slots, keys = torch.tensor([5, cache.shape[0] * 16 - 1]), torch.ones(2, 128)
    indexer.write_cache(cache, keys, slots)
    before = resident_bytes()
    indexer.write_cache(cache, keys, slots)
    assert resident_bytes() - before < 25 << 20
    assert cache[0, 5 * 64 : 6 * 64].any()
    assert cache[-1, 15 * 64 : 16 * 64].any()


def test_the_workspace_given_is_the_one_used(indexer, paged):
    with pytest.raises(ValueError, match="workspace: expected at least") as caught:
        indexer.index_topk(**paged, workspace=torch.empty(64, dtype=torch.uint8))
    need = int(str(caught.value).split("at least ")[1].split()[0])
    workspace = torch.zeros(need, dtype=torch.uint8)
    expected = indexer.index_topk(**paged)
    assert_bytes_equal(indexer.index_topk(**paged, workspace=workspace), expected)
    assert workspace.any()
    workspace.fill_(0xFF)  # what an earlier call left there does not matter
    assert_bytes_equal(indexer.index_topk(**paged, workspace=workspace), expected)


LIMITED = {
    "by hand": IndexerSpec(num_heads=8, page_size=16, topk=64),
    "portable": IndexerSpec(num_heads=8, topk=64, format="fp8", layout="n8"),
}


@pytest.mark.parametrize("spec", LIMITED.values(), ids=LIMITED)
def test_a_limit_holds_or_is_refused_by_name(compiled, least_limit, spec):
    inputs = paged_inputs(spec, [300, 10, 65, 190, 64], next_n=10, seed=16).arguments()
    expected = compiled(spec, "index_topk").index_topk(**inputs)
    load = partial(compiled, spec, "index_topk")
    least = least_limit(load, lambda indexer: indexer.index_topk(**inputs))
    for limit in (least, least + 1000, 2 * least):
        limited = load(workspace_limit=limit)
        assert_bytes_equal(limited.index_topk(**inputs), expected)
        assert limited.scratch_bytes <= limit
    words = f"^workspace_limit: expected at least {least} bytes for 16 rows of index_topk, got 99$"
    with pytest.raises(ValueError, match=words):
        load(workspace_limit=99).index_topk(**inputs)


def test_a_million_tokens_stay_within_the_limit(compiled):
    """8192 rows over 262,144 entries would be 8 GiB of logits; here the first 96 are computed."""
    spec, limit = IndexerSpec(num_heads=4, topk=512), 48 << 20
    pages, entries = 8, 262144
    keys = torch.randn(pages * 64, 128, generator=torch.Generator().manual_seed(20))
    cache = torch.zeros(pages, spec.page_bytes, dtype=torch.uint8)
    indexer = compiled(spec, "index_topk", "paged_mqa_logits", "write_cache", "quantize")
    indexer.write_cache(cache, keys, torch.arange(pages * 64))
    table = torch.randint(pages, (1, entries // 64), generator=torch.Generator().manual_seed(21))
    table, rows = table.int(), 8192
    q = indexer.quantize(torch.randn(rows, 4, 128, generator=torch.Generator().manual_seed(22)))
    weights = torch.randn(rows, 4, generator=torch.Generator().manual_seed(23))
    row_to_request = torch.zeros(rows, dtype=torch.int32)
    end = torch.randint(entries, (rows,), generator=torch.Generator().manual_seed(24)).int()
    arguments = {
        "q values": q[0],
        "q scales": q[1],
        "weights": weights,
        "cache": cache.view(-1),
        "block_table": table,
        "row_to_request": row_to_request,
        "start": torch.zeros_like(end),
        "end": end,
    }
    out = torch.empty(rows, 512, dtype=torch.int32)
    limited = compiled(spec, "index_topk", workspace_limit=limit)
    caller, function = limited._caller, limited.function("index_topk", "index_topk")
    scalars = (spec.page_bytes, pages, 1, 0)
    call = Call("index_topk", "index_topk", arguments, {"out": out}, scalars, PAGED_ROWS)
    need = function.workspace_bytes(call.arguments())
    assert need > 8 << 30
    step = caller._run_of_rows(call, function, rows, need)
    run = function.workspace_bytes(call.arguments(slice(0, step)))
    assert step >= 16
    assert limit // 2 < run <= limit

    few = slice(0, 96)
    given = (tuple(part[few].clone() for part in q), weights[few].clone(), cache, table, end[few])
    requests = row_to_request[few].clone()
    chosen = limited.index_topk(*given, row_to_request=requests)
    assert limited.scratch_bytes <= limit
    for row in (0, 50, 95):
        one = (tuple(part[row : row + 1].clone() for part in q), weights[row : row + 1].clone())
        last = end[row : row + 1].clone()
        logits = indexer.paged_mqa_logits(*one, cache, table, last)
        assert_bytes_equal(
            chosen[row : row + 1], reference.topk(logits, 512, torch.zeros_like(last), last)
        )


def test_calls_queue_in_order_without_waiting(compiled, indexer, paged):
    queued = compiled(SPEC, "paged_mqa_logits", "topk", wait=False)
    logits = torch.empty(2, 112)
    out = torch.empty(2, 8, dtype=torch.int32)
    for _ in range(20):
        queued.paged_mqa_logits(**paged, out=logits)
        queued.topk(logits, paged["start"], paged["end"], out=out)
    queued.synchronize()
    assert_bytes_equal(out, indexer.index_topk(**paged, skip_short=False))


def test_indexers_on_two_threads_do_not_disturb_each_other(compiled, paged):
    expected = compiled(SPEC, "index_topk").index_topk(**paged)
    wrong: list[int] = []

    def work(number: int) -> None:
        mine = compiled(SPEC, "index_topk")
        wrong.extend(
            number for _ in range(30) if not torch.equal(mine.index_topk(**paged), expected)
        )

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_artifact_is_loaded_once(compiled):
    indexer = compiled(SPEC, "topk")
    assert indexer.function("topk", "topk") is indexer.function("topk", "topk")


def test_gradients_do_not_stop_a_call(indexer):
    x = torch.randn(4, 128)
    values, _ = indexer.quantize(torch.nn.Parameter(x))
    assert_bytes_equal(values, indexer.quantize(x)[0])
