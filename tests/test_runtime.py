"""Calls work on the caller's memory: no copy, no growth, the workspace given, async on request."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from dsv4_iree import IndexerSpec
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
