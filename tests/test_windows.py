"""Row windows from the lengths that serving engines keep, checked against written-out values."""

from __future__ import annotations

import pytest
import torch

from dsv4_iree import ArgumentError, windows


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    ("ratio", "ends"),
    [
        (1, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        (2, [0, 0, 1, 1, 2, 2, 3, 3, 4]),
        (4, [0, 0, 0, 0, 1, 1, 1, 1, 2]),
        (128, [0] * 9),
    ],
)
def test_a_query_sees_complete_groups_only(ratio, ends):
    positions = torch.arange(-1, 8)
    assert windows.from_positions(positions, ratio).tolist() == ends


def test_a_query_inside_a_group_does_not_see_it():
    assert windows.from_positions(ints(0, 1, 2, 3, 6, 7, 126, 127), 4).tolist() == [
        0, 0, 0, 1, 1, 2, 31, 32,
    ]  # fmt: skip


def test_one_length_per_request_gives_each_draft_one_entry_more():
    assert windows.from_context_lens(ints(10, 3), next_n=3).tolist() == [8, 9, 10, 1, 2, 3]


def test_padded_requests_have_empty_windows():
    assert windows.from_context_lens(ints(0, 1), next_n=2).tolist() == [-1, 0, 0, 1]


def test_lengths_per_row_are_taken_as_they_are():
    lengths = torch.tensor([[3, 4], [0, 9]], dtype=torch.int32)
    assert windows.from_context_lens(lengths, next_n=2).tolist() == [3, 4, 0, 9]
    with pytest.raises(ArgumentError, match=r"context_lens: expected shape \[B, 3\], got \[2, 2\]"):
        windows.from_context_lens(lengths, next_n=3)


def test_equal_neighbours_are_one_request():
    rows, first = windows.from_indices(ints(7, 7, 2, 2, 2, 7))
    assert rows.tolist() == [0, 0, 1, 1, 1, 2]
    assert first.tolist() == [0, 2, 5]
    assert windows.from_indices(ints())[0].tolist() == []


def test_cumulative_lengths_walk_request_by_request():
    request, entry = windows.from_cu_seqlens(ints(0, 2, 2, 5), rows=7)
    assert request.tolist() == [0, 0, 2, 2, 2, 0, 0]
    assert entry.tolist() == [0, 1, 0, 1, 2, -1, -1]


def test_nothing_to_walk():
    request, entry = windows.from_cu_seqlens(ints(0), rows=2)
    assert (request.tolist(), entry.tolist()) == ([0, 0], [-1, -1])
    with pytest.raises(ArgumentError, match="cu_seqlens: expected at least one element"):
        windows.from_cu_seqlens(ints(), rows=2)


def test_a_ratio_of_zero_is_refused():
    with pytest.raises(ArgumentError, match=r"ratio: expected an int in \[1, 1048576\], got 0"):
        windows.from_positions(ints(1), 0)
