# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Context parallelism: 2 to 4 processes give the ids of one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

import dsv4_iree
from dsv4_iree import distributed
from dsv4_iree.errors import ArgumentError
from dsv4_iree.spec import IndexerSpec
from dsv4_iree.testing import assert_bytes_equal, paged_inputs

SPEC = IndexerSpec(num_heads=8, page_size=16, topk=8)
OPS = ("paged_mqa_logits", "topk", "index_topk")
MAX = 2**31 - 1
CUTS = {2: (0, 3, 10), 3: (0, 1, 6, 10), 4: (0, 2, 2, 7, 10)}  # in pages; one shard is empty


def logits_and_windows() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(10, 160, generator=random)
    logits[1] = 0.0
    logits[2] = (logits[2] * 2).round()  # ties across ranks, zeros of both signs
    logits[3, ::3], logits[4, 5:] = float("nan"), float("-inf")
    logits[5] = torch.arange(160).int().view(torch.float32)  # subnormals
    logits[6] = -logits[5]
    start = torch.tensor([0, 0, 3, 0, -5, 0, 0, 40, 90, 0], dtype=torch.int32)
    end = torch.tensor([160, 160, 150, 160, MAX, 160, 160, 52, 90, -3], dtype=torch.int32)
    return logits, start, end


def paged() -> dict[str, object]:
    inputs = paged_inputs(SPEC, [160, 7, 100, 160, 12, 0], seed=3)
    arguments = inputs.arguments()
    arguments["block_table"][3, 4] = -1  # not visible
    arguments["start"] = torch.tensor([0, 0, 33, 62, 5, 0], dtype=torch.int32)
    arguments["end"] = torch.tensor([160, 7, 100, 70, MAX, 0], dtype=torch.int32)
    return arguments


def rank_checks(rank: int, world: int, folder: str, artifacts: str | None) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store-{world}-{artifacts is None}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    backend = {"artifacts": artifacts} if artifacts else {"backend": "reference"}
    indexer = dsv4_iree.load(SPEC, ops=OPS, **backend)
    first_page, last_page = CUTS[world][rank : rank + 2]
    first, last = 16 * first_page, 16 * last_page
    logits, start, end = logits_and_windows()
    shard = logits[:, first:last].contiguous()
    for ids in ("relative", "entry"):
        chosen = distributed.topk(indexer, shard, start, end, first=first, ids=ids)
        assert_bytes_equal(chosen, indexer.topk(logits, start, end, ids=ids))
    arguments = paged()
    table = arguments["block_table"][:, first_page:last_page].contiguous()
    for skip_short in (True, False):
        options = {"skip_short": skip_short, "ids": "entry"}
        chosen = distributed.index_topk(
            indexer, **{**arguments, "block_table": table}, first=first, **options
        )
        assert_bytes_equal(chosen, indexer.index_topk(**arguments, **options))
    dist.destroy_process_group()


@pytest.mark.parametrize("world", CUTS)
@pytest.mark.parametrize("backend", ["reference", "compiled"])
def test_ranks_give_the_ids_of_one_process(
    world: int, backend: str, tmp_path: Path, make: Callable[..., Path]
) -> None:
    artifacts = None
    if backend == "compiled":
        artifacts = str([make("cpu", op, SPEC) for op in OPS].pop().parents[1])
    arguments = (world, str(tmp_path), artifacts)
    multiprocessing.spawn(rank_checks, arguments, nprocs=world)


def test_what_cannot_be_sharded_is_refused() -> None:
    indexer = dsv4_iree.load(SPEC, backend="reference")
    logits, start, end = logits_and_windows()
    with pytest.raises(ArgumentError, match=r"^ids: expected relative or entry, got 'slot'"):
        distributed.topk(indexer, logits, start, end, first=0, ids="slot")
    with pytest.raises(ArgumentError, match=r"^first: expected"):
        distributed.topk(indexer, logits, start, end, first=-1)
    with pytest.raises(ArgumentError, match=r"^logits: expected dtype float32, got bfloat16"):
        distributed.topk(indexer, logits.bfloat16(), start, end, first=0)
