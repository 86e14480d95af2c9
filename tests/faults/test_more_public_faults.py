"""More reported symptoms: workspaces, names of devices, views, candidate blocks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

import dsv4_iree
from dsv4_iree import ArgumentError
from dsv4_iree import reference as plain
from dsv4_iree.compat import serve, tokenspeed
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import IndexerSpec
from dsv4_iree.testing import assert_bytes_equal, paged_inputs

K64 = IndexerSpec(num_heads=8, page_size=16, topk=64)
pytestmark = pytest.mark.gpu
Backend = Callable[..., Indexer]


def int32(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def test_padded_views_of_logits_are_read_by_their_stride(compiled: Backend, monkeypatch) -> None:
    monkeypatch.setattr(serve, "load", lambda spec, **_: compiled(spec, "topk"))
    serve.use()
    buffer = torch.full((4, 1024), float("inf"))
    buffer[:, :1000] = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0))
    out = torch.full((4, 64), 7, dtype=torch.int32)
    tokenspeed.persistent_topk(buffer[:, :1000], int32(*[1000] * 4), out, None, 64, 1000)
    assert out.equal(buffer[:, :1000].topk(64).indices.int())
    serve.use()


def test_logits_of_two_gib_are_selected_from(
    compiled: Backend, pytestconfig: pytest.Config
) -> None:
    """Rows x columns x 4 bytes just above 2^31: with --long, for it takes a minute and 2 GiB."""
    if not pytestconfig.getoption("long"):
        pytest.skip("takes a minute: --long")
    logits, end = torch.zeros(32768, 16385), torch.full((32768,), 8).int()
    logits[-1, -1], logits[-1, -3], end[-1] = 1, 2, 16385
    chosen = compiled(IndexerSpec(topk=8), "topk").topk(logits, None, end)
    assert chosen[-1].tolist() == [16382, 16384, 0, 1, 2, 3, 4, 5]
    assert chosen[:-1].eq(torch.arange(8)).all()


def test_nan_and_empty_candidate_blocks_are_left_out_once(compiled: Backend) -> None:
    nan, none = float("nan"), float("-inf")
    scores = torch.tensor([[1.0, nan, 3.0, nan, 2.0, 0.5, nan, 4.0], [none] * 7 + [nan]])
    spec = IndexerSpec(topk=64)
    chosen = compiled(spec, "topk").topk(scores, None, int32(8, 8))
    assert chosen[0].tolist() == [7, 2, 4, 0, 5, *[-1] * 59]
    assert chosen[1].eq(-1).all()


def test_the_last_physical_page_is_read(compiled: Backend) -> None:
    inputs = paged_inputs(K64, [40], seed=1)
    pages = inputs.cache.shape[0]
    logits = []
    for page in (1, 2, pages - 1):
        cache, table = inputs.cache.clone(), inputs.block_table.clone()
        first = int(table[0, 0])
        cache[page] = inputs.cache[first]
        table[0] = page
        arguments = {**inputs.arguments(), "cache": cache, "block_table": table}
        arguments["end"] = int32(16)
        logits.append(compiled(K64, "paged_mqa_logits").paged_mqa_logits(**arguments, width=16))
    assert logits[0].isfinite().all()
    assert_bytes_equal(logits[1], logits[0])
    assert_bytes_equal(logits[2], logits[0])


def needed(indexer: Indexer, arguments: dict[str, object]) -> int:
    """Bytes of scratch that a call asks for."""
    try:
        indexer.index_topk(**arguments, workspace=torch.empty(1, dtype=torch.uint8))
    except ArgumentError as error:
        return int(str(error).split("at least ")[1].split()[0])
    return 1


def test_a_workspace_for_the_largest_call_serves_every_smaller_one(compiled: Backend) -> None:
    indexer = compiled(K64, "index_topk")
    shapes = [([300] * 4, 2), ([300] * 4, 1), ([300, 20], 2), ([16], 1), ([0], 1)]
    calls = [paged_inputs(K64, lengths, next_n=n).arguments() for lengths, n in shapes]
    asked = [needed(indexer, arguments) for arguments in calls]
    assert asked == sorted(asked, reverse=True)
    assert asked[0] > 1
    workspace = torch.full((asked[0],), 0xFF, dtype=torch.uint8)
    for arguments in calls:
        expected = indexer.index_topk(**arguments)
        assert indexer.index_topk(**arguments, workspace=workspace).equal(expected)


def test_topk_leaves_the_logits_as_they_were(compiled: Backend) -> None:
    logits = torch.randn(3, 500, generator=torch.Generator().manual_seed(2))
    before = logits.clone()
    indexer = compiled(K64, "topk")
    first = indexer.topk(logits, None, int32(500, 7, 0))
    assert_bytes_equal(logits, before)
    assert indexer.topk(logits, None, int32(500, 7, 0)).equal(first)


@pytest.mark.parametrize("name", ["rocm", "amdgpu", "hip://0", "gfx942", "hip:x", "cuda:-1", ""])
def test_a_device_by_another_tools_name_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(ArgumentError, match=r"^device: ") as error:
        dsv4_iree.load("flash", device=name)
    assert "\n" not in str(error.value)


def test_without_a_gpu_the_message_says_what_was_looked_for() -> None:
    code = "import dsv4_iree; dsv4_iree.load('flash', device='hip:7')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = run.stderr.strip().splitlines()[-1]
    assert run.returncode == 1
    assert last.startswith("dsv4_iree.errors.")
    assert "hip" in last


def test_requests_that_share_pages_score_them_alike_in_any_slab(compiled: Backend) -> None:
    """A prefix of shared pages, dense and with a wide stride, one call right after the other."""
    inputs = paged_inputs(K64, [160, 160], seed=3)
    inputs.block_table[1, :10] = inputs.block_table[0, :10]
    for part in (*inputs.q, inputs.weights):
        part[1] = part[0]
    wide = torch.full((inputs.cache.shape[0], 100_032), 0xFF, dtype=torch.uint8)
    wide[:, : K64.page_bytes] = inputs.cache
    score = compiled(K64, "paged_mqa_logits").paged_mqa_logits
    dense = score(**inputs.arguments())
    strided = score(**{**inputs.arguments(), "cache": wide[:, : K64.page_bytes]})
    assert dense[0].isfinite().sum() == 160
    assert_bytes_equal(dense[1], dense[0])
    assert_bytes_equal(strided, dense)


def test_drafts_of_a_compressed_cache_do_not_see_their_own_group(compiled: Backend) -> None:
    """next_n rows at positions 6, 7, 8 with ratio 4 see 1, 2, 2 entries, the best one last."""
    from dsv4_iree import windows

    end = windows.from_positions(torch.tensor([6, 7, 8]), 4)
    assert end.tolist() == [1, 2, 2]
    logits = torch.tensor([[1.0, 9.0]]).repeat(3, 1)
    chosen = compiled(K64, "topk").topk(logits, None, end)
    assert chosen[:, 0].tolist() == [0, 1, 1]
    assert chosen.equal(plain.topk(logits, 64, torch.zeros_like(end), end))
