"""DeepGEMM's MXFP8 scorers, dense and sparse, through compat: FP8 with a scale per 32 dims."""

from __future__ import annotations

import pytest
import torch
from suites import DEEPGEMM, DEEPGEMM_MXFP8, DEEPGEMM_MXFP8_PAGED

from dsv4_iree import reference
from dsv4_iree.compat import deepgemm, mxfp8
from dsv4_iree.compat import deepgemm_sparse as sparse
from dsv4_iree.testing import assert_logits_close

pytestmark = pytest.mark.usefixtures("compat_backend")
E4M3 = torch.float8_e4m3fn
DTYPE = {"fp32": torch.float32, "bf16": torch.bfloat16}
INF = float("inf")


def quantized(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """FP8 [..., D], int32 scales [...] (garbage in unused bytes) and the float64 numbers of x."""
    groups = x.double().unflatten(-1, (-1, 32))
    e = (groups.abs().amax(-1).clamp_min(1e-4) / 448).log2().ceil()
    values = (groups * torch.exp2(-e)[..., None]).to(E4M3)
    scales = torch.full((*x.shape[:-1], 4), 201, dtype=torch.uint8)
    scales[..., : e.shape[-1]] = (e + 127).to(torch.uint8)
    numbers = values.double() * torch.exp2(e)[..., None]
    return values.flatten(-2), scales.view(torch.int32)[..., 0], numbers.flatten(-2)


def vectors(seed: int, *shape: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gaussian vectors whose groups differ in size by powers of two up to 2^12."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=random)
    size = torch.randint(-6, 7, (*shape[:-1], shape[-1] // 32), generator=random)
    return quantized(x * torch.exp2(size.float()).repeat_interleave(32, dim=-1))


def cached(
    k: torch.Tensor, scales: torch.Tensor, table: torch.Tensor, page: int, pages: int
) -> torch.Tensor:
    """[pages, P, 1, D + 4] with padded pages: key j of request b in its table's page j // P."""
    requests, count, dim = k.shape
    memory = torch.full((pages, page * (dim + 4) + 512), 0x7F, dtype=torch.uint8)  # NaN
    for b in range(requests):
        for j in range(count):
            at = int(table[b, j // page])
            memory[at, j % page * dim :][:dim] = k[b, j].view(torch.uint8)
            memory[at, page * dim + j % page * 4 :][:4] = scales[b, j : j + 1].view(torch.uint8)
    return memory.as_strided((pages, page, 1, dim + 4), (memory.stride(0), dim + 4, dim + 4, 1))


def weighted(seed: int, rows: int, heads: int, dtype: str = "fp32") -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(rows, heads, generator=random).to(DTYPE[dtype])


@pytest.mark.parametrize("case", DEEPGEMM_MXFP8, ids=lambda case: "-".join(map(str, case.values())))
def test_ragged(case: dict) -> None:
    rows, width, (shown, given) = 9, 150, case["dtypes"]
    q, q_scales, q_numbers = vectors(1, rows, case["heads"], case["dim"])
    k, k_scales, k_numbers = vectors(2, width, case["dim"])
    weights = weighted(3, rows, case["heads"], given)
    start = torch.arange(rows, dtype=torch.int32) * 5
    end = torch.arange(rows, dtype=torch.int32) * 15 + 30
    end[4] = start[4]
    longest = int((end - start).max())
    logits = deepgemm.fp8_fp4_mqa_logits(
        (q, q_scales), (k, k_scales), weights, start, end, not case["compressed"],
        longest if case["compressed"] else 0, DTYPE[shown],
    )  # fmt: skip
    expected = reference.mqa_logits(q_numbers, k_numbers, weights.float(), start, end)
    if case["compressed"]:
        dense, expected = expected, torch.full((rows, longest), -INF)
        for row, (s, e) in enumerate(zip(start.tolist(), end.tolist())):
            expected[row, : e - s] = dense[row, s:e]
    assert logits.dtype is DTYPE[shown]
    assert_logits_close(logits.float(), expected, DEEPGEMM["bf16" if shown == "bf16" else "fp32"])


def test_the_scales_are_those_of_each_group() -> None:
    """Powers of two of FP8 numbers are bf16 numbers: exact, but for NaN."""
    q, scales, numbers = vectors(1, 5, 8, 128)
    assert mxfp8.numbers("q", q, scales).double().equal(numbers)
    by_byte = scales.view(torch.uint8).view(5, 8, 4)
    assert mxfp8.numbers("q", q, by_byte).double().equal(numbers)
    by_byte[2, 3, 1] = 255
    lost = mxfp8.numbers("q", q, by_byte).isnan()
    assert lost[2, 3, 32:64].all()
    assert lost.sum() == 32


@pytest.mark.parametrize(
    "case", DEEPGEMM_MXFP8_PAGED, ids=lambda case: "-".join(map(str, case.values()))
)
def test_paged(case: dict) -> None:
    page, heads, varlen = case["page"], case["heads"], case["next_n"] == "varlen"
    next_n = 1 if varlen else case["next_n"]
    count, requests, width = 140, 3, 200
    q, q_scales, q_numbers = vectors(4, requests, next_n, heads, 128)
    k, k_scales, k_numbers = vectors(5, requests, count, 128)
    random = torch.Generator().manual_seed(6)
    table = torch.randperm(21, generator=random).view(3, 7)[:, : -(-count // page) + 1].int()
    cache = cached(k, k_scales, table, page, 21)
    weights = weighted(7, requests * next_n, heads)
    lens = torch.randint(1, count + 1, (requests, next_n), generator=random).int()
    lens[1] = 0
    lens[2, -1] = count
    indices = None
    if varlen:  # rows 1 and 2 are one request, which reads the table row of row 1
        indices, lens[1] = torch.tensor([3, 8, 8], dtype=torch.int32), 70
        table[2], k_numbers[2] = 2**31 - 1, k_numbers[1]
    logits = deepgemm.fp8_fp4_paged_mqa_logits(
        (q, q_scales), cache, weights, lens, table, None, width, indices=indices
    )
    expected = torch.full((requests * next_n, width), -INF)
    for b in range(requests):
        rows, end = slice(b * next_n, (b + 1) * next_n), lens[b]
        expected[rows, :count] = reference.mqa_logits(
            q_numbers[b], k_numbers[b], weights[rows], torch.zeros_like(end), end
        )
    assert_logits_close(logits, expected, DEEPGEMM["fp32"])


@pytest.mark.parametrize("bad", [-1, 21, 2**31 - 1])
def test_pages_that_do_not_exist_are_invisible(bad: int) -> None:
    q, q_scales, _ = vectors(4, 1, 1, 8, 128)
    k, k_scales, _ = vectors(5, 1, 96, 128)
    table = torch.tensor([[3, 20, 7]], dtype=torch.int32)
    cache = cached(k, k_scales, table, 32, 21)
    table[0, 1] = bad
    lens = torch.tensor([[90]], dtype=torch.int32)
    logits = deepgemm.fp8_fp4_paged_mqa_logits(
        (q, q_scales), cache, weighted(7, 1, 8), lens, table, None, 96
    )
    assert logits.isfinite().nonzero()[:, 1].tolist() == [*range(32), *range(64, 90)]


def listed(dense: torch.Tensor, first: torch.Tensor, end: torch.Tensor, block: int):
    """Columns of dense logits [M, N], block after block; -inf where `first` is negative."""
    key = (first[:, :, None] + torch.arange(block)).flatten(1)
    seen = (first >= 0).repeat_interleave(block, dim=1) & (key < end[:, None])
    return torch.where(seen, dense.gather(1, key.clamp(0, dense.shape[1] - 1)), -INF)


@pytest.mark.parametrize("unaligned", [False, True], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("block", [8, 16])
def test_sparse_ragged(block: int, unaligned: bool) -> None:
    rows, width, heads = 3, 150, 32
    q, q_scales, q_numbers = vectors(1, rows, heads, 128)
    k, k_scales, k_numbers = vectors(2, width, 128)
    weights = weighted(3, rows, heads, "bf16")
    start = torch.tensor([0, 3, 40], dtype=torch.int32)
    end = torch.tensor([150, 3, 59], dtype=torch.int32)
    blocks = torch.full((rows, 4), 2**31 - 1, dtype=torch.int32)
    blocks[0] = torch.tensor([0, 2, 3, 149 // block])
    blocks[2, :2] = torch.tensor([40 // block, 40 // block + 1])
    metadata = sparse.get_sparse_mqa_logits_metadata(
        start, end, width, blocks, E4M3, block, unaligned
    )
    logits = sparse.fp8_fp4_sparse_mqa_logits(
        (q, q_scales), (k, k_scales), weights, metadata, 4, block, unaligned
    )
    assert (logits.shape, logits.dtype) == ((rows, 4 * block), torch.bfloat16)
    first = blocks.long() * block + (start % block * unaligned)[:, None]
    first[1] = -1
    first[2, -(-19 // block) :] = -1
    dense = reference.mqa_logits(q_numbers, k_numbers, weights.float(), start, end)
    expected = listed(dense, first, end, block)
    assert expected.isfinite().sum(1).min() == 0
    assert_logits_close(logits.float(), expected, DEEPGEMM["bf16"])


@pytest.mark.parametrize(("page", "block"), [(64, 8), (128, 16)])
def test_sparse_paged(page: int, block: int) -> None:
    requests, count, heads = 2, 230, 32
    q, q_scales, q_numbers = vectors(4, requests, 1, heads, 128)
    k, k_scales, k_numbers = vectors(5, requests, count, 128)
    table = torch.tensor([[7, 0, 3, 6], [1, 5, 2, 4]], dtype=torch.int32)
    cache = cached(k, k_scales, table, page, 8)
    weights = weighted(7, requests, heads, "bf16")
    end = torch.tensor([230, 5], dtype=torch.int32)
    blocks = torch.full((requests, 8), 2**31 - 1, dtype=torch.int32)
    blocks[0] = torch.tensor([0, 1, 3, 4, 7, 9, 11, 229 // block])
    blocks[1, 0] = 0
    metadata = sparse.get_paged_sparse_mqa_logits_metadata(
        end[:, None], table, torch.tensor([4, 9], dtype=torch.int32), page, blocks, E4M3, block
    )
    logits = sparse.fp8_fp4_paged_sparse_mqa_logits(
        (q, q_scales), cache, weights, metadata, 8, block
    )
    dense = torch.cat(
        [
            reference.mqa_logits(
                q_numbers[b], k_numbers[b], weights[b : b + 1].float(),
                torch.zeros(1, dtype=torch.int32), end[b : b + 1],
            )
            for b in range(requests)
        ]
    )  # fmt: skip
    first = blocks.long() * block
    first[1, 1:] = -1
    expected = listed(dense, first, end, block)
    assert_logits_close(logits.float(), expected, DEEPGEMM["bf16"])
