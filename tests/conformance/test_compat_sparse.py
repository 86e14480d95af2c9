"""DeepGEMM's sparse scorers at the shapes of vLLM's test of them, through compat."""

from __future__ import annotations

import pytest
import torch
from suites import DEEPGEMM

from dsv4_iree import reference
from dsv4_iree.compat import deepgemm_sparse as sparse
from dsv4_iree.formats import exact
from dsv4_iree.spec import IndexerSpec
from dsv4_iree.testing import assert_logits_close, paged_inputs

pytestmark = pytest.mark.usefixtures("compat_compiled")
ROWS, HEADS, LONGEST, COUNT = 17, 32, 1500, 64
GARBAGE = 2**31 - 1
FP4 = IndexerSpec()


def listed(first: int, last: int, count: int, random: torch.Generator) -> torch.Tensor:
    """[COUNT] block ids: `count` of first .. last - 1 in ascending order, then garbage."""
    chosen = first + torch.randperm(last - first, generator=random)[:count].sort().values
    return torch.cat([chosen, torch.full((COUNT - count,), GARBAGE)]).int()


def expected(
    dense: torch.Tensor, first: torch.Tensor, counts: torch.Tensor, start, end, block: int
) -> torch.Tensor:
    """Columns of the dense logits [M, N], block after block, -inf where nothing is."""
    out = torch.full((len(dense), COUNT * block), float("-inf"))
    for row in range(len(dense)):
        for slot in range(int(counts[row])):
            for t in range(block):
                key = int(first[row, slot]) + t
                if start[row] <= key < end[row]:
                    out[row, slot * block + t] = dense[row, key]
    return out


def packed(pair: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return pair[0].view(torch.int8), pair[1].view(torch.int32)[..., 0]


@pytest.mark.parametrize("unaligned", [False, True], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("block", [8, 16])
def test_ragged_blocks(block: int, unaligned: bool) -> None:
    random = torch.Generator().manual_seed(block)
    lens = torch.randint(1, LONGEST, (ROWS,), generator=random)
    lens[0], lens[1] = 1, 0
    end = lens.cumsum(0)
    start, keys = end - lens, int(end[-1])
    counts = ((lens + block - 1) // block).clamp(max=COUNT)
    blocks = torch.stack(
        [
            listed(s // block, (s + n - 1) // block + 1, c, random)
            for s, n, c in zip(start.tolist(), lens.tolist(), counts.tolist())
        ]
    )
    q = reference.quantize(torch.randn(ROWS, HEADS, 128, generator=random), FP4)
    k = reference.quantize(torch.randn(keys, 128, generator=random), FP4)
    weights = torch.randn(ROWS, HEADS, generator=random).bfloat16()
    window = (start.int(), end.int())
    metadata = sparse.get_sparse_mqa_logits_metadata(
        *window, keys, blocks, torch.int8, block, unaligned
    )
    assert metadata.dtype is torch.uint8
    logits = sparse.fp8_fp4_sparse_mqa_logits(
        packed(q), packed(k), weights, metadata, COUNT, block, unaligned
    )
    assert (logits.shape, logits.dtype) == ((ROWS, COUNT * block), torch.bfloat16)
    dense = reference.mqa_logits(exact(q, FP4), exact(k, FP4), weights.float(), *window)
    first = blocks.long() * block + (start % block * unaligned)[:, None]
    wanted = expected(dense, first, counts, start, end, block)
    assert_logits_close(logits.float(), wanted, DEEPGEMM["bf16"])
    assert wanted[2:].isfinite().any(1).all()


@pytest.mark.parametrize("shared", [False, True], ids=["own requests", "runs of rows"])
@pytest.mark.parametrize(("page", "block"), [(64, 8), (128, 16)])
def test_cached_blocks(page: int, block: int, shared: bool) -> None:
    spec = IndexerSpec(num_heads=HEADS, page_size=page)
    random = torch.Generator().manual_seed(page)
    x = paged_inputs(spec, [0, 1, 700, 1499, 64], next_n=2 if shared else 1, page_padding=64)
    indices, table, rows = None, x.block_table, len(x.end)
    if shared:  # a row of the table for each query; those of a run's later rows are not read
        indices = x.row_to_request + 7
        table = torch.full((rows, x.block_table.shape[1]), GARBAGE, dtype=torch.int32)
        table[::2] = x.block_table
    end = x.end.clamp(min=0)
    counts = ((end + block - 1) // block).clamp(max=COUNT)
    blocks = torch.stack(
        [
            listed(0, max(-(-n // block), c), c, random)
            for n, c in zip(end.tolist(), counts.tolist())
        ]
    )
    weights = x.weights.bfloat16()
    cache = x.cache.as_strided((x.cache.shape[0], page, 1, 68), (x.cache.stride(0), 68, 68, 1))
    metadata = sparse.get_paged_sparse_mqa_logits_metadata(
        end[:, None], table, indices, page, blocks, torch.int8, block
    )
    values, scales = packed(x.q)
    logits = sparse.fp8_fp4_paged_sparse_mqa_logits(
        (values[:, None], scales[:, None]), cache, weights, metadata, COUNT, block
    )
    dense = reference.paged_mqa_logits(
        exact(x.q, spec), weights.float(), x.cache, x.block_table, x.row_to_request,
        torch.zeros_like(end), end, x.block_table.shape[1] * page, spec,
    )  # fmt: skip
    wanted = expected(dense, blocks.long() * block, counts, torch.zeros_like(end), end, block)
    assert logits.dtype is torch.bfloat16
    assert_logits_close(logits.float(), wanted, DEEPGEMM["bf16"])


def test_blocks_on_pages_that_do_not_exist_are_invisible() -> None:
    spec = IndexerSpec(num_heads=8, page_size=64)
    x = paged_inputs(spec, [200])
    cache = x.cache.as_strided((x.cache.shape[0], 64, 1, 68), (x.cache.stride(0), 68, 68, 1))
    table = x.block_table.clone()
    table[0, 1] = cache.shape[0]
    blocks = torch.tensor([[0, 7, 8, 15, 16, 24]], dtype=torch.int32)
    metadata = sparse.get_paged_sparse_mqa_logits_metadata(
        torch.tensor([[200]], dtype=torch.int32), table, None, 64, blocks, torch.int8, 8
    )
    values, scales = packed(x.q)
    logits = sparse.fp8_fp4_paged_sparse_mqa_logits(
        (values[:, None], scales[:, None]), cache, x.weights.bfloat16(), metadata, 6, 8
    )
    assert logits.view(6, 8).isfinite().all(1).tolist() == [True, True, False, False, True, True]
