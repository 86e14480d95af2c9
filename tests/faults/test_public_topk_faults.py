"""Reported symptoms of top-k kernels, each as a small trigger."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dsv4_iree import reference as plain
from dsv4_iree.errors import ArgumentError
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import IndexerSpec
from dsv4_iree.testing import assert_bytes_equal

MAX, INF, NAN = 2**31 - 1, float("inf"), float("nan")
pytestmark = pytest.mark.gpu
Backend = Callable[..., Indexer]


def int32(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def select(compiled: Backend, logits: torch.Tensor, k: int, *ends: int) -> torch.Tensor:
    """[T, k] ids of whole rows, or of rows of the given lengths."""
    end = int32(*ends) if ends else torch.full((len(logits),), logits.shape[1]).int()
    return compiled(IndexerSpec(topk=k), "topk").topk(logits, None, end)


@pytest.mark.parametrize("k", [512, 2048])
def test_winners_are_dropped_when_one_bin_holds_them_all(compiled: Backend, k: int) -> None:
    ascending = (1.0 + torch.arange(65536) * 2.0**-23)[None]
    assert select(compiled, ascending, k)[0].equal(torch.arange(65535, 65535 - k, -1).int())


def test_winners_are_dropped_in_a_row_of_a_quarter_million(compiled: Backend) -> None:
    logits = torch.randn(1, 262144, generator=torch.Generator().manual_seed(0))
    chosen = select(compiled, logits, 512)
    assert chosen.equal(plain.topk(logits, 512, int32(0), int32(262144)))
    assert logits[0][chosen[0].long()].min() == logits[0].topk(512).values[-1]


def test_ties_beyond_a_buffer_leave_slots_unfilled(compiled: Backend) -> None:
    logits = torch.zeros(1, 8320)
    winners = torch.randperm(8320, generator=torch.Generator().manual_seed(1))[:100].sort().values
    logits[0, winners] = 1.0
    losers = [j for j in range(8320) if logits[0, j] == 0][: 2048 - 100]
    assert select(compiled, logits, 2048)[0].tolist() == winners.tolist() + losers


@pytest.mark.parametrize("nan", [NAN, -NAN], ids=["nan", "-nan"])
@pytest.mark.parametrize("finite", [0, 1, 100, 2047, 2048, 4095])
def test_nan_logits_give_ids_out_of_range(compiled: Backend, finite: int, nan: float) -> None:
    logits = torch.full((1, 4096), nan)
    at = torch.randperm(4096, generator=torch.Generator().manual_seed(finite))[:finite]
    logits[0, at] = torch.randn(finite, generator=torch.Generator().manual_seed(2))
    chosen = select(compiled, logits, 2048)[0]
    count = min(finite, 2048)
    assert ((chosen >= -1) & (chosen < 4096)).all()
    assert chosen[count:].eq(-1).all()
    best = at[logits[0, at].argsort(descending=True)][:count]
    assert chosen[:count].equal(best.int())


def test_a_long_row_leaks_into_the_next_one(compiled: Backend) -> None:
    lengths = [40000, 100, 40000, 2047, 2048, 2049, 0, 513]
    logits = torch.randn(len(lengths), 40000, generator=torch.Generator().manual_seed(3))
    together = select(compiled, logits, 512, *lengths)
    for row, length in enumerate(lengths):
        alone = select(compiled, logits[row : row + 1].clone(), 512, length)
        assert together[row].equal(alone[0])


@pytest.mark.parametrize("low", [10.0, -10.2, 1e-3, 1e4])
def test_a_narrow_band_of_values_is_not_told_apart(compiled: Backend, low: float) -> None:
    logits = low + abs(low) * 0.02 * torch.rand(
        1, 20000, generator=torch.Generator().manual_seed(4)
    )
    assert select(compiled, logits, 1024).equal(plain.topk(logits, 1024, int32(0), int32(20000)))


@pytest.mark.parametrize("columns", [20, 33, 1000, 5144])
def test_padding_wins_over_a_row_of_negative_values(compiled: Backend, columns: int) -> None:
    chosen = select(compiled, torch.full((1, columns), -5.0), 512)[0]
    count = min(columns, 512)
    assert chosen[:count].equal(torch.arange(count).int())
    assert chosen[count:].eq(-1).all()


def test_winners_in_the_upper_half_of_64_lanes_are_missed(compiled: Backend) -> None:
    column = torch.arange(4096)
    logits = torch.where(column % 64 >= 32, 1.0, 0.0)[None]
    assert select(compiled, logits, 2048)[0].equal(column[column % 64 >= 32].int())


def test_sorted_rows_come_out_in_the_wrong_order(compiled: Backend) -> None:
    logits = torch.tensor([[6.0, 5, 4, 3, 2, 1], [7, 8, 9, 10, 11, 12]])
    chosen = select(compiled, logits, 64)
    assert chosen[0, :7].tolist() == [0, 1, 2, 3, 4, 5, -1]
    assert chosen[1, :7].tolist() == [5, 4, 3, 2, 1, 0, -1]


def test_rows_beyond_65535_are_missing(compiled: Backend) -> None:
    logits = torch.randn(70000, 8, generator=torch.Generator().manual_seed(5))
    assert select(compiled, logits, 1)[:, 0].equal(logits.argmax(1).int())


def test_ids_of_an_earlier_larger_batch_survive(compiled: Backend) -> None:
    buffer = torch.full((4, 64), MAX, dtype=torch.int32)
    logits = torch.randn(4, 100, generator=torch.Generator().manual_seed(6))
    indexer = compiled(IndexerSpec(topk=64), "topk")
    indexer.topk(logits, None, int32(100, 100, 100, 100), out=buffer)
    later = buffer[2:].clone()
    indexer.topk(logits[:2], None, int32(3, 0), out=buffer[:2])
    assert sorted(buffer[0, :3].tolist()) == [0, 1, 2]
    assert buffer[0, 3:].eq(-1).all()
    assert buffer[1].eq(-1).all()
    assert buffer[2:].equal(later)


def test_rows_of_a_padded_buffer_are_read_shifted(compiled: Backend) -> None:
    """The columns past a row's end hold the largest values there are."""
    buffer = torch.full((4, 1024), INF)
    buffer[:, :1000] = torch.randn(4, 1000)
    padded = buffer[:, :1000]
    assert_bytes_equal(select(compiled, padded, 64), select(compiled, padded.contiguous(), 64))


def test_a_strided_output_stays_unwritten(compiled: Backend) -> None:
    out = torch.zeros(2, 128, dtype=torch.int32)[:, :64]
    with pytest.raises(ArgumentError, match=r"^out: expected a contiguous tensor, got strides"):
        compiled(IndexerSpec(topk=64), "topk").topk(torch.zeros(2, 9), None, int32(9, 9), out=out)
