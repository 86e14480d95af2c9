"""Bad input: every mistake has its own words, and nothing is written or read on the way."""

from __future__ import annotations

import re

import pytest
import torch

import dsv4_iree
from dsv4_iree import ArgumentError, ArtifactError, IndexerSpec
from dsv4_iree.testing import paged_inputs

SPEC = IndexerSpec(num_heads=8, page_size=16, topk=8)


@pytest.fixture(scope="module")
def indexer(compiled):
    return compiled(SPEC, "quantize", "write_cache", "mqa_logits", "paged_mqa_logits", "topk")


@pytest.fixture
def paged():
    return paged_inputs(SPEC, [40, 16]).arguments()


def refuses(words: str):
    return pytest.raises(ArgumentError, match="^" + re.escape(words))


CASES = {
    "q is no pair": (
        {"q": torch.zeros(2)},
        "q: expected a pair (values, scales) as quantize returns it, got Tensor",
    ),
    "q of other heads": (
        {"q": (torch.zeros(2, 4, 64, dtype=torch.uint8), torch.zeros(2, 4, 4, dtype=torch.uint8))},
        "q values: expected shape [T, 8, 64], got [2, 4, 64]",
    ),
    "q scales of another dtype": (
        {"q": (torch.zeros(2, 8, 64, dtype=torch.uint8), torch.zeros(2, 8, 4))},
        "q scales: expected dtype uint8, got float32",
    ),
    "weights of other rows": (
        {"weights": torch.zeros(3, 8)},
        "weights: expected shape [2, 8], got [3, 8]",
    ),
    "weights in half precision": (
        {"weights": torch.zeros(2, 8).half()},
        "weights: expected dtype float32, got float16",
    ),
    "transposed weights": (
        {"weights": torch.zeros(8, 2).T},
        "weights: expected a contiguous tensor, got strides [1, 2] for shape [2, 8]; "
        "pass weights.contiguous()",
    ),
    "weights on another device": (
        {"weights": torch.zeros(2, 8, device="meta")},
        "weights: expected device cpu, got meta; move it with weights.to('cpu')",
    ),
    "weights between two aligned addresses": (
        {"weights": torch.zeros(17)[1:].view(2, 8)},
        "weights: expected data aligned to 64 bytes, got an address 4 bytes past that; "
        "pass weights.clone()",
    ),
    "a list for a tensor": ({"end": [1, 2]}, "end: expected a torch.Tensor, got list"),
    "end in int64": (
        {"end": torch.zeros(2, dtype=torch.int64)},
        "end: expected dtype int32, got int64",
    ),
    "a flat block table": (
        {"block_table": torch.zeros(4, dtype=torch.int32)},
        "block_table: expected shape [B, W], got [4]",
    ),
    "rows that no request explains": (
        {"block_table": torch.zeros(3, 4, dtype=torch.int32), "row_to_request": None},
        "row_to_request: expected it for 2 rows of 3 requests, got None; "
        "only a multiple of the requests has a default",
    ),
    "pages too small": (
        {"cache": torch.zeros(5, 1000, dtype=torch.uint8)},
        "cache: expected at least 1088 bytes a page, got 1000",
    ),
    "overlapping pages": (
        {"cache": torch.zeros(9000, dtype=torch.uint8).as_strided((5, 1088), (1024, 1))},
        "cache: expected dense pages at least 1088 bytes apart, got strides [1024, 1]",
    ),
    "a nominal view with another entry size": (
        {"cache": torch.zeros(5, 16, 1, 132, dtype=torch.uint8)},
        "cache: expected shape [num_pages, 16, 1, 68], got [5, 16, 1, 132]",
    ),
    "a cache of signed bytes": (
        {"cache": torch.zeros(5, 1088, dtype=torch.int8)},
        "cache: expected dtype uint8, got int8",
    ),
    "a negative width": ({"width": -1}, "width: expected an int in [0, 2147483647], got -1"),
    "an output of another width": (
        {"out": torch.zeros(2, 5), "width": 6},
        "out: expected shape [2, 6], got [2, 5]",
    ),
    "no output to keep": (
        {"clean": False},
        "out: expected a tensor with clean=False, which keeps its values",
    ),
    "too small a workspace": (
        {"workspace": torch.zeros(0, dtype=torch.uint8)},
        "workspace: expected at least ",
    ),
    "a workspace of floats": (
        {"workspace": torch.zeros(64)},
        "workspace: expected dtype uint8, got float32",
    ),
}


@pytest.mark.parametrize(("change", "words"), CASES.values(), ids=CASES)
def test_a_wrong_argument_of_a_paged_op_is_named(indexer, paged, change, words):
    with refuses(words):
        indexer.paged_mqa_logits(**{**paged, **change})


def test_the_reference_refuses_the_same(paged, reference):
    with refuses("weights: expected shape [2, 8], got [3, 8]"):
        reference(SPEC).paged_mqa_logits(**{**paged, "weights": torch.zeros(3, 8)})


def test_quantize_refuses_another_head_dim_and_dtype(indexer):
    with refuses("x: expected shape [3, 128], got [3, 64]"):
        indexer.quantize(torch.zeros(3, 64))
    with refuses("x: expected dtype float32 or bfloat16, got float64"):
        indexer.quantize(torch.zeros(3, 128, dtype=torch.float64))
    with refuses("x: expected a torch.Tensor, got NoneType"):
        indexer.quantize(None)


def test_write_cache_refuses_other_slots(indexer):
    cache = torch.zeros(2, SPEC.page_bytes, dtype=torch.uint8)
    with refuses("slot_mapping: expected shape [3], got [2]"):
        indexer.write_cache(cache, torch.zeros(3, 128), torch.zeros(2, dtype=torch.int64))
    with refuses("slot_mapping: expected dtype int64, got int32"):
        indexer.write_cache(cache, torch.zeros(2, 128), torch.zeros(2, dtype=torch.int32))
    assert not cache.any()


def test_ids_of_an_unknown_kind_are_refused(indexer):
    window = torch.ones(2, dtype=torch.int32)
    with refuses("ids: expected relative or entry or slot, got 'page'"):
        indexer.topk(torch.zeros(2, 9), None, window, ids="page")
    with refuses("block_table: expected a torch.Tensor, got NoneType"):
        indexer.topk(torch.zeros(2, 9), None, window, ids="slot")


def test_streaming_where_there_is_no_such_kernel_is_refused(compiled, reference, paged):
    indexer = compiled(SPEC, "index_topk")
    with refuses(
        "streaming: expected None or False, got True: the artifact for cpu with k = 8 has no such "
    ):
        indexer.index_topk(**paged, streaming=True)
    with refuses("streaming: expected None or True or False, got 'auto'"):
        indexer.index_topk(**paged, streaming="auto")
    expected = reference(SPEC).index_topk(**paged, streaming=True)
    assert indexer.index_topk(**paged, streaming=False).equal(expected)


VALUES = {
    "a page that does not exist": (
        {"block_table": torch.tensor([[0, 1, 99], [2, 0, 0]], dtype=torch.int32)},
        "block_table[0, 2]: expected a page id in [0, 7), got 99",
    ),
    "a window past the table": (
        {"end": torch.tensor([40, 999], dtype=torch.int32)},
        "window[1]: expected one within [0, 64), got [0, 999)",
    ),
    "a request that does not exist": (
        {"row_to_request": torch.tensor([0, 7], dtype=torch.int32)},
        "row_to_request[1]: expected a request in [0, 2), got 7",
    ),
}


@pytest.mark.parametrize(("change", "words"), VALUES.values(), ids=VALUES)
def test_values_are_checked_on_request_only(compiled, paged, change, words):
    paged = {**paged, **change}
    compiled(SPEC, "paged_mqa_logits").paged_mqa_logits(**paged)
    with refuses(words):
        compiled(SPEC, "paged_mqa_logits", validate=True).paged_mqa_logits(**paged)


def test_garbage_that_no_window_reaches_is_valid(compiled, paged):
    compiled(SPEC, "paged_mqa_logits", validate=True).paged_mqa_logits(**paged)


def test_slots_are_checked_on_request(compiled):
    strict = compiled(SPEC, "write_cache", validate=True)
    cache, keys = torch.zeros(2, SPEC.page_bytes, dtype=torch.uint8), torch.zeros(3, 128)
    with refuses("slot_mapping: expected slots below 32, got 32"):
        strict.write_cache(cache, keys, torch.tensor([0, -1, 32]))
    with refuses("slot_mapping: expected every slot once, got slot 5 twice"):
        strict.write_cache(cache, keys, torch.tensor([5, 1, 5]))
    strict.write_cache(cache, keys, torch.tensor([5, -1, -1]))


SPECS = {
    "heads": ({"num_heads": 0}, "num_heads: expected an int in [1, 128], got 0"),
    "head dim": ({"head_dim": 100}, "head_dim: expected a multiple of 32 in [32, 256], got 100"),
    "k": ({"topk": 5000}, "topk: expected an int in [1, 4096], got 5000"),
    "k as text": ({"topk": "512"}, "topk: expected an int in [1, 4096], got '512'"),
    "k as bool": ({"topk": True}, "topk: expected an int in [1, 4096], got True"),
    "format": (
        {"format": "nvfp4"},
        "format: expected one of fp4, fp8, fp8-fnuz, bf16, got 'nvfp4'",
    ),
    "layout": ({"format": "fp8"}, "layout: expected N8 or P8 for format fp8, got N4"),
    "page": (
        {"format": "fp8", "layout": "p8", "page_size": 24},
        "page_size: expected a multiple of 16 for layout P8, got 24",
    ),
    "rounding": (
        {"format": "fp8", "layout": "n8", "rounding": "d"},
        "rounding: expected R for format fp8, got D",
    ),
}


@pytest.mark.parametrize(("numbers", "words"), SPECS.values(), ids=SPECS)
def test_a_spec_that_cannot_be_is_refused(numbers, words):
    with refuses(words):
        IndexerSpec(**numbers)


def test_loading_refuses_unknown_names():
    with refuses("spec: expected one of flash, pro, v41, got 'fast'"):
        dsv4_iree.load("fast")
    with refuses("backend: expected compiled or reference, got 'triton'"):
        dsv4_iree.load(backend="triton")
    with refuses("device: expected cpu, cuda[:i] or hip[:i], got 'tpu'"):
        dsv4_iree.load(device="tpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_named():
    with refuses("device: cuda:3 asked for, but torch sees no such GPU"):
        dsv4_iree.load(device="cuda:3")


def test_a_layout_without_kernels_says_what_exists(reference):
    f4 = reference(IndexerSpec(layout="f4"))
    with refuses("index_topk: not available for format fp4 and layout f4, which have quantize"):
        f4.index_topk(None, None, None, None, None)


def test_a_missing_artifact_says_how_to_build_it(tmp_path):
    words = (
        rf"^no artifact for topk on cpu. Looked at:\n  \(none in {tmp_path}\)\n"
        r"Build it with: python tools/build_vmfb.py --target cpu --op topk --spec topk=512$"
    )
    with pytest.raises(ArtifactError, match=words):
        dsv4_iree.load(artifacts=tmp_path, ops=["topk"])


def test_empty_batches_touch_nothing(indexer):
    none = torch.zeros(0, dtype=torch.int32)
    values, scales = indexer.quantize(torch.zeros(0, 128))
    assert values.shape == (0, 64)
    assert scales.shape == (0, 4)
    assert indexer.topk(torch.zeros(0, 9), None, none).shape == (0, 8)
    q = indexer.quantize(torch.zeros(0, 8, 128))
    cache = torch.zeros(0, SPEC.page_bytes, dtype=torch.uint8)
    table = torch.zeros(0, 3, dtype=torch.int32)
    assert indexer.paged_mqa_logits(q, torch.zeros(0, 8), cache, table, none).shape == (0, 48)
    assert indexer.mqa_logits(
        q, indexer.quantize(torch.zeros(5, 128)), torch.zeros(0, 8), None, none
    ).shape == (0, 5)


def test_a_cache_without_pages_shows_nothing(indexer):
    q = indexer.quantize(torch.ones(2, 8, 128))
    cache = torch.zeros(0, SPEC.page_bytes, dtype=torch.uint8)
    table, end = torch.zeros(2, 3, dtype=torch.int32), torch.full((2,), 9, dtype=torch.int32)
    logits = indexer.paged_mqa_logits(q, torch.ones(2, 8), cache, table, end)
    assert torch.isneginf(logits).all()
