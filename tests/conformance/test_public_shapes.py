"""The shapes of the public suites, made small: their windows, batches, pages and kinds of rows.

A name in a test id says whose suite the case is from.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dsv4_iree import reference as plain
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import Format, IndexerSpec
from dsv4_iree.testing import (
    PagedInputs,
    assert_bytes_equal,
    assert_logits_close,
    assert_selection,
    paged_inputs,
)

FP4, FP4_FLASH = IndexerSpec(num_heads=8), IndexerSpec()
FP8 = IndexerSpec(num_heads=8, format=Format.FP8, layout="n8")
K64 = IndexerSpec(num_heads=8, page_size=16, topk=64)
CLOSE = 1e-12  # calc_diff of two right fp32 summations of the same exact products
pytestmark = pytest.mark.gpu
Backend = Callable[..., Indexer]


def int32(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def context_parallel(rows: int, keys: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Window ends of one rank that holds an early and a late half of the sequence."""
    ranks, half = keys // rows, rows // 2
    rank = ranks // 3
    i = torch.arange(half, dtype=torch.int32)
    end = torch.cat([rank * half + i, (2 * ranks - 1 - rank) * half + i])
    return torch.zeros(rows, dtype=torch.int32), end


def causal(rows: int, keys: int) -> tuple[torch.Tensor, torch.Tensor]:
    end = keys - rows + torch.arange(rows, dtype=torch.int32)
    return torch.zeros(rows, dtype=torch.int32), end


def misaligned(rows: int, keys: int) -> tuple[torch.Tensor, torch.Tensor]:
    i = torch.arange(rows, dtype=torch.int32)
    return (i * 7 + 3) % keys, keys - (i * 5) % keys


PREFILL = [
    (causal, 1, 1), (causal, 1, 16), (causal, 1, 113), (causal, 17, 76), (causal, 61, 1024),
    (misaligned, 17, 76), (misaligned, 61, 113), (misaligned, 61, 1024),
    (context_parallel, 64, 256), (context_parallel, 32, 256),
]  # fmt: skip


@pytest.mark.parametrize(
    ("window", "rows", "keys"), PREFILL, ids=[f"{w.__name__}-{m}-{n}" for w, m, n in PREFILL]
)
@pytest.mark.parametrize("spec", [FP4, FP8], ids=["fp4", "fp8"])
def test_prefill_of_deepgemm_and_aiter(
    compiled: Backend, reference: Backend, spec: IndexerSpec, window: Callable, rows: int, keys: int
) -> None:
    random = torch.Generator().manual_seed(rows * keys)
    q = plain.quantize(torch.randn(rows, 8, 128, generator=random), spec)
    k = plain.quantize(torch.randn(keys, 128, generator=random), spec)
    weights = torch.randn(rows, 8, generator=random)
    start, end = window(rows, keys)
    logits = compiled(spec, "mqa_logits").mqa_logits(q, k, weights, start, end)
    assert_logits_close(logits, reference(spec).mqa_logits(q, k, weights, start, end), CLOSE)


DECODE = {  # spec, lengths of the last rows, next_n
    "deepgemm-next6": (FP4, [230, 160, 190, 255], 6),
    "deepgemm-fp8-next2": (FP8, [230, 160, 190, 255], 2),
    "aiter-heads64": (FP4_FLASH, [70, 128, 100], 1),
    "aiter-heads128": (IndexerSpec(num_heads=128), [96, 65], 1),
    "aiter-one-request": (FP4, [1047], 1),
    "aiter-batch8": (FP4, [256, 128, 512, 64, 375, 97, 8, 16], 1),
    "aiter-next2": (FP4, [256, 128, 124, 12], 2),
    "aiter-next3-ragged": (FP4, [97, 409, 1, 205, 51], 3),
    "aiter-next7": (FP4, [300, 6], 7),
    "aiter-next8": (FP4, [409, 51, 6], 8),
    "aiter-next16-short": (FP4, [8, 12, 4, 16], 16),
    "aiter-tiny": (FP4, [1, 33, 64], 1),
    "tokenspeed-hopper": (FP8, [37, 64, 130], 1),
}


@pytest.mark.parametrize(("spec", "lengths", "next_n"), DECODE.values(), ids=DECODE)
def test_decode(
    compiled: Backend, reference: Backend, spec: IndexerSpec, lengths: list[int], next_n: int
) -> None:
    inputs = paged_inputs(spec, lengths, next_n=next_n, page_padding=1024, spare_pages=7)
    logits = compiled(spec, "paged_mqa_logits").paged_mqa_logits(**inputs.arguments())
    assert_logits_close(logits, reference(spec).paged_mqa_logits(**inputs.arguments()), CLOSE)
    assert logits.isfinite().sum(1).tolist() == inputs.end.clamp(min=0).tolist()


def rows_of_requests(
    inputs: PagedInputs, windows: list[list[tuple[int, int]]]
) -> dict[str, object]:
    """Arguments with one row per window of each request."""
    flat = [(b, *window) for b, rows in enumerate(windows) for window in rows]
    requests, start, end = (int32(*column) for column in zip(*flat))
    take = torch.arange(len(flat)) % len(inputs.weights)
    return dict(
        inputs.arguments(),
        q=tuple(part[take] for part in inputs.q),
        weights=inputs.weights[take],
        row_to_request=requests,
        start=start,
        end=end,
    )


def chunk(queries: int, context: int) -> list[tuple[int, int]]:
    """The last `queries` rows of a request, each seeing one entry more."""
    return [(0, max(0, context - queries + n + 1)) for n in range(queries)]


CHUNKS = {
    "aiter-ends-2": [[(0, 50), (0, 120), (0, 200)], [(0, 40), (0, 100)]],
    "aiter-ends-3": [[(0, 30)], [(0, 200)], [(0, 100), (0, 150)]],
    "aiter-windows": [[(10, 50), (64, 200)], [(0, 100), (130, 256)]],
    "aiter-queries-3-1-2": [chunk(3, 128), chunk(1, 80), chunk(2, 192)],
    "aiter-queries-10-1-5-2": [chunk(10, 256), chunk(1, 64), chunk(5, 200), chunk(2, 128)],
    "aiter-queries-2-0-3": [chunk(2, 96), chunk(0, 64), chunk(3, 160)],
    "deepgemm-varlen": [chunk(6, 140), chunk(1, 3), chunk(4, 2), chunk(2, 64)],
}


@pytest.mark.parametrize("windows", CHUNKS.values(), ids=CHUNKS)
def test_chunks_of_several_requests(
    compiled: Backend, reference: Backend, windows: list[list[tuple[int, int]]]
) -> None:
    inputs = paged_inputs(FP4, [max((end for _, end in w), default=64) for w in windows], next_n=2)
    arguments = rows_of_requests(inputs, windows)
    logits = compiled(FP4, "paged_mqa_logits").paged_mqa_logits(**arguments)
    assert_logits_close(logits, reference(FP4).paged_mqa_logits(**arguments), CLOSE)
    seen = [max(end - start, 0) for rows in windows for start, end in rows]
    assert logits.isfinite().sum(1).tolist() == seen


@pytest.mark.parametrize("tokens", [1, 7, 32, 257])
def test_queries_of_vllm_and_aiter_are_quantised_by_token_and_head(
    compiled: Backend, tokens: int
) -> None:
    x = torch.randn(tokens, 16, 128, generator=torch.Generator().manual_seed(tokens)).bfloat16()
    for actual, expected in zip(
        compiled(FP4, "quantize").quantize(x), plain.quantize(x, FP4), strict=True
    ):
        assert_bytes_equal(actual, expected)


@pytest.mark.parametrize("tokens", [1, 7, 32])
def test_keys_of_vllm_are_inserted_at_the_slots_of_a_compressor(
    compiled: Backend, tokens: int
) -> None:
    """Only every fourth token ends a group of ratio 4; the others have slot -1."""
    keys = torch.randn(tokens, 128, generator=torch.Generator().manual_seed(tokens)).bfloat16()
    position = torch.arange(tokens) + 5
    slots = torch.where((position + 1) % 4 == 0, position // 4, -1)
    spec, stored = IndexerSpec(page_size=16), []
    for write in (compiled(spec, "write_cache").write_cache, None):
        cache = torch.full((3, spec.page_bytes), 0xEE, dtype=torch.uint8)
        if write is not None:
            write(cache, keys, slots)
        else:
            kept = slots >= 0
            pair = (part[kept] for part in plain.quantize(keys, spec))
            plain.write_cache(cache, *pair, slots[kept], spec)
        stored.append(cache)
    assert_bytes_equal(*stored)


def test_tokenspeed_cache_with_slots_0_2_and_a_skipped_one(compiled: Backend) -> None:
    spec = IndexerSpec()
    cache = torch.full((1, 4352), 0x77, dtype=torch.uint8)
    values = torch.arange(192).view(3, 64).to(torch.uint8)
    scales = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8], [9, 9, 9, 9]], dtype=torch.uint8)
    compiled(spec, "write_cache").write_cache(cache, (values, scales), torch.tensor([0, 2, -1]))
    expected = torch.full((4352,), 0x77, dtype=torch.uint8)
    expected[0:64], expected[128:192] = values[0], values[1]
    expected[4096:4100], expected[4104:4108] = scales[0], scales[1]
    assert_bytes_equal(cache[0], expected)


def test_tokenspeed_gather_over_pages_of_four(compiled: Backend) -> None:
    spec = IndexerSpec(page_size=4)
    cache = torch.arange(3 * 272).view(3, 272).to(torch.uint8)
    requests, entries = int32(0, 0, 0, 0, 0, 1, 1), int32(0, 1, 2, 3, 4, 0, 1)
    values, scales = compiled(spec, "gather_cache").gather_cache(
        cache, torch.tensor([[2, 0], [1, 0]], dtype=torch.int32), requests, entries
    )
    for row, (page, token) in enumerate([(2, 0), (2, 1), (2, 2), (2, 3), (0, 0), (1, 0), (1, 1)]):
        assert values[row].equal(cache[page, token * 64 : token * 64 + 64])
        assert scales[row].equal(cache[page, 256 + token * 4 : 260 + token * 4])


@pytest.mark.parametrize(
    ("pages", "page_size", "dim", "requests", "selected"),
    [(8, 16, 128, 2, 12), (6, 8, 64, 3, 5), (4, 32, 256, 1, 20)],
    ids=str,
)
def test_xkernels_gather(
    compiled: Backend, pages: int, page_size: int, dim: int, requests: int, selected: int
) -> None:
    spec, random = (
        IndexerSpec(page_size=page_size, head_dim=dim),
        torch.Generator().manual_seed(dim),
    )
    keys = torch.randn(pages * page_size, dim, generator=random)
    cache = torch.zeros(pages, spec.page_bytes, dtype=torch.uint8)
    pair = plain.quantize(keys, spec)
    plain.write_cache(cache, *pair, torch.arange(pages * page_size), spec)
    table = torch.stack([torch.randperm(pages, generator=random) for _ in range(requests)]).int()
    rows = torch.arange(requests, dtype=torch.int32).repeat_interleave(selected)
    entries = torch.randint(-2, pages * page_size, (len(rows),), generator=random).int()
    numbers = compiled(spec, "gather_cache").gather_cache(
        cache, table, rows, entries, dtype=torch.bfloat16
    )
    at = entries.clamp(min=0).long()
    slots = table[rows.long(), at // page_size].long() * page_size + at % page_size
    expected = plain.dequantize(*pair, spec)[slots].bfloat16()
    expected[entries < 0] = 0
    assert_bytes_equal(numbers, expected)


@pytest.mark.parametrize(
    ("rows", "heads", "dim", "keys", "starts", "lengths"),
    [
        (4, 16, 32, 96, None, None),
        (3, 32, 64, 200, None, None),
        (4, 16, 32, 128, [0, 8, 0, 16], [64, 32, 128, 80]),
        (37, 5, 64, 200, "mask", "mask"),
    ],
    ids=["4-16-32-96", "3-32-64-200", "masked", "37-5-64-200"],
)
def test_xkernels_logits_and_selection(
    compiled: Backend, reference: Backend, rows: int, heads: int, dim: int, keys: int,
    starts: object, lengths: object,
) -> None:  # fmt: skip
    spec = IndexerSpec(heads, dim, topk=64, format=Format.BF16)
    random = torch.Generator().manual_seed(rows)
    q = torch.randn(rows, heads, dim, generator=random).bfloat16()
    k = torch.randn(keys, dim, generator=random).bfloat16()
    weights = torch.randn(rows, heads, generator=random)
    start, length = torch.zeros(rows, dtype=torch.int32), torch.full((rows,), keys).int()
    if starts == "mask":
        start, length = torch.arange(rows).int(), torch.arange(rows).int() * 4
    elif starts:
        start, length = int32(*starts), int32(*lengths)
    indexer = compiled(spec, "mqa_logits", "topk")
    logits = indexer.mqa_logits(q, k, weights, start, start + length)
    expected = reference(spec).mqa_logits(q, k, weights, start, start + length)
    assert_logits_close(logits, expected, CLOSE)
    chosen = indexer.topk(logits, start, start + length)
    assert chosen.equal(plain.topk(logits, 64, start, start + length))
    assert_selection(chosen, expected, start, start + length, atol=1e-4)


LENGTHS = {
    "tokenspeed-persistent": (512, [0, 7, 513, 9000, 33000], 33024),
    "tokenspeed-36-rows": (512, [0, 17, *(520 + i % 24 for i in range(34))], 544),
    "aiter-8-to-4096": (512, [8, 128, 1024, 3072, 4096], 4096),
    "aiter-k2048": (2048, [1024, 3072, 4096, 4095], 4096),
    "flashinfer-length-is-k": (1024, [1024, 1023, 1025], 4096),
}


@pytest.mark.parametrize("kind", ["random", "10 low bits", "64 levels", "8 levels"])
@pytest.mark.parametrize(("k", "lengths", "width"), LENGTHS.values(), ids=LENGTHS)
def test_public_rows_are_selected_exactly(
    compiled: Backend, k: int, lengths: list[int], width: int, kind: str
) -> None:
    random = torch.Generator().manual_seed(width)
    logits = torch.randn(len(lengths), width, generator=random)
    if kind == "10 low bits":
        low = torch.randint(1024, logits.shape, generator=random, dtype=torch.int32)
        logits = (low | 0x3F800000).view(torch.float32)
    elif kind != "random":
        levels = int(kind.split()[0])
        logits = torch.randint(levels, logits.shape, generator=random) / levels
    end = int32(*lengths)
    logits[torch.arange(width) >= end[:, None]] = 1e6
    chosen = compiled(IndexerSpec(topk=k), "topk").topk(logits, None, end)
    assert chosen.equal(plain.topk(logits, k, torch.zeros_like(end), end))
    assert (chosen >= 0).sum(1).tolist() == [min(k, length) for length in lengths]


def test_a_dirty_workspace_of_another_call_does_not_matter(compiled: Backend) -> None:
    """flashinfer's repeated-buffer and mode-transition cases."""
    indexer = compiled(K64, "index_topk")
    shapes = [[300, 20], [5], [0, 64, 65, 200], [300, 20]]
    clean = [indexer.index_topk(**paged_inputs(K64, shape).arguments()) for shape in shapes]
    workspace = torch.empty(1 << 24, dtype=torch.uint8)
    for fill in (0x00, 0xFF, None):
        for shape, expected in zip(shapes, clean):
            if fill is not None:
                workspace.fill_(fill)
            arguments = paged_inputs(K64, shape).arguments()
            assert indexer.index_topk(**arguments, workspace=workspace).equal(expected)
