"""topk and index_topk: ids exact, in order, the same on every run."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

import dsv4_iree
from dsv4_iree import reference as plain
from dsv4_iree.errors import ArgumentError
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import Format, IndexerSpec
from dsv4_iree.testing import PagedInputs, assert_bytes_equal, assert_selection, paged_inputs

K64 = IndexerSpec(num_heads=8, page_size=16, topk=64)
INDEX = {
    "fp4-page16-k64": K64,
    "fp8-k64": IndexerSpec(num_heads=8, topk=64, format=Format.FP8, layout="n8"),
    "flash": IndexerSpec(),
    "G4-k1": IndexerSpec(num_heads=8, page_size=16, topk=1, layout="g4"),
}
SIZES = [1, 64, 512, 1024, 2048]
pytestmark = pytest.mark.gpu
Backend = Callable[..., Indexer]
MAX, MIN = 2**31 - 1, -(2**31)
NAN, INF = math.nan, math.inf


def spec_of(k: int) -> IndexerSpec:
    return IndexerSpec(num_heads=8, page_size=16, topk=k)


def int32(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def hard_rows(columns: int) -> dict[str, torch.Tensor]:
    """Rows that break one or another way of selecting."""
    random = torch.Generator().manual_seed(0)
    normal = torch.randn(columns, generator=random)
    ladder = (torch.tensor(1.0).view(torch.int32) + torch.arange(columns).int()).view(torch.float32)
    scattered = torch.rand(columns, generator=random)
    sign = torch.where(torch.arange(columns) % 2 == 0, 1.0, -1.0)
    band = torch.rand(columns, generator=random)
    return {
        "random": normal,
        "across zero": normal - normal.sort().values[-min(columns, 400)],
        "all equal": torch.full((columns,), -2.5),
        "one-ulp ladder up": ladder,
        "one-ulp ladder down": -ladder,
        "sorted up": normal.sort().values,
        "sorted down": normal.sort(descending=True).values,
        "mostly -inf": torch.where(scattered < 0.01, normal, -INF),
        "all -inf": torch.full((columns,), -INF),
        "NaN of both signs": torch.where(scattered < 0.3, sign * NAN, normal),
        "mostly NaN": torch.where(scattered < 0.97, sign * NAN, normal),
        "all NaN": sign * NAN,
        "infinities": torch.where(scattered < 0.1, sign * INF, normal),
        "zeros of both signs": sign * 0.0,
        "denormals": ((scattered * 2**23).int() * sign.int()).abs().view(torch.float32) * sign,
        "more ties than k": torch.where(scattered < 0.002, 1.0, 0.0),
        "few levels": (scattered * 8).floor(),
        "band at 10": 10.0 + 0.2 * band,
        "band at -10": -10.0 - 0.2 * band,
        "band at 1e-3": 1e-3 * (1 + 0.02 * band),
        "band at 1e4": 1e4 * (1 + 0.02 * band),
        "all magnitudes": sign * torch.exp(170 * (scattered - 0.5)),
    }


def by_python_sort(row: list[float], k: int, first: int, last: int) -> list[int]:
    """The contract, word for word."""
    inside = [j for j in range(len(row)) if first <= j < last and row[j] > -INF]
    best = sorted(inside, key=lambda j: (-row[j], j))[:k]
    return [j - max(first, 0) for j in best] + [-1] * (k - len(best))


@pytest.mark.parametrize("columns", [1, 63, 300, 5003])
@pytest.mark.parametrize("k", SIZES)
def test_hard_rows_are_selected_exactly(compiled: Backend, k: int, columns: int) -> None:
    rows = hard_rows(columns)
    logits = torch.stack(list(rows.values()))
    end = torch.full((len(logits),), columns, dtype=torch.int32)
    before = logits.clone()
    chosen = compiled(spec_of(k), "topk").topk(logits, None, end)
    for name, row, ids in zip(rows, logits, chosen):
        assert ids.tolist() == by_python_sort(row.tolist(), k, 0, columns), name
    assert_bytes_equal(logits, before)


def test_the_reference_keeps_the_contract_word_for_word() -> None:
    rows = torch.stack(list(hard_rows(301).values()))
    for k, first, last in ((1, 0, 301), (64, 7, 290), (512, -4, MAX)):
        start, end = (torch.full((len(rows),), n, dtype=torch.int32) for n in (first, last))
        expected = [by_python_sort(row.tolist(), k, first, last) for row in rows]
        assert plain.topk(rows, k, start, end).tolist() == expected


def test_largest_first_then_lowest_column_then_minus_one(backend: Backend) -> None:
    logits = torch.tensor(
        [
            [1.0, 3.0, -INF, 3.0, NAN, INF, -0.0, 0.0, -NAN, -1e-45],
            [-5.0, -5.0, -7.0, -5.0, -6.0, -INF, -INF, -INF, -INF, -INF],
        ]
    )
    chosen = backend(K64, "topk").topk(logits, None, int32(10, 10))
    assert chosen[0].tolist() == [5, 1, 3, 0, 6, 7, 9] + [-1] * 57
    assert chosen[1].tolist() == [0, 1, 3, 4, 2] + [-1] * 59


@pytest.mark.parametrize("k", SIZES)
def test_rows_around_k_entries_are_filled_exactly(compiled: Backend, k: int) -> None:
    lengths = [0, 1, k - 1, k, k + 1, 2 * k + 3]
    logits = torch.randn(6, 2 * k + 3, generator=torch.Generator().manual_seed(1))
    chosen = compiled(spec_of(k), "topk").topk(logits, None, int32(*lengths))
    for row, ids, length in zip(logits, chosen, lengths):
        assert ids.tolist() == by_python_sort(row.tolist(), k, 0, length)
        assert int((ids >= 0).sum()) == min(k, length)


def check_strided_rows(indexer: Indexer, dtype: torch.dtype) -> None:
    whole = torch.stack(list(hard_rows(300).values())).to(dtype)
    expected = [by_python_sort(row.tolist(), 64, 5, 290) for row in whole[:, :290].float()]
    whole[:, 290:] = INF
    start = torch.full((len(whole),), 5, dtype=torch.int32)
    end = torch.full((len(whole),), MAX, dtype=torch.int32)
    assert indexer.topk(whole[:, :290], start, end).tolist() == expected
    ascending = indexer.topk(whole[:, :290], start, end, sorted=False, ids="entry")
    for row, ids in zip(ascending.tolist(), expected):
        columns = sorted(j + 5 for j in ids if j >= 0)
        assert row == columns + [-1] * (64 - len(columns))
    table = torch.arange(19 * len(whole), dtype=torch.int32).flip(0).view(len(whole), 19)
    slots = indexer.topk(whole[:, :290], start, end, ids="slot", block_table=table)
    for pages, row, ids in zip(table.tolist(), slots.tolist(), expected):
        assert row == [slot_of(j + 5, pages) if j >= 0 else -1 for j in ids]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_may_be_further_apart_than_they_are_long(backend: Backend, dtype: torch.dtype) -> None:
    check_strided_rows(backend(K64, "topk"), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_code_for_any_cpu_selects_from_rows_that_are_further_apart(
    make: Callable[..., Path], dtype: torch.dtype, tmp_path: Path
) -> None:
    shutil.copytree(make("cpu-generic", "topk", K64).parent, tmp_path / "cpu-generic")
    check_strided_rows(dsv4_iree.load(K64, artifacts=tmp_path), dtype)


def test_logits_of_other_strides_are_refused(backend: Backend) -> None:
    indexer, whole = backend(K64, "topk"), torch.zeros(4, 128)
    with pytest.raises(ArgumentError, match=r"^logits: expected dense rows at least 64 apart"):
        indexer.topk(whole[:, ::2], None, int32(9, 9, 9, 9))
    with pytest.raises(ArgumentError, match=r"^logits: expected dense rows at least 128 apart"):
        indexer.topk(whole[:1].expand(4, 128), None, int32(9, 9, 9, 9))
    with pytest.raises(ArgumentError, match=r"^logits: expected memory for 4 rows of 128, got 448"):
        indexer.topk(whole[:, 64:], None, int32(9, 9, 9, 9))


WINDOWS = [
    (0, 200), (0, 0), (9, 9), (20, 10), (0, -5), (-5, -1), (-7, 30), (100, 200), (13, 77),
    (150, 9999), (200, 300), (0, MAX), (1, MAX), (199, MAX), (MIN, MAX), (MAX, MAX), (0, MIN),
]  # fmt: skip


@pytest.mark.parametrize("ids", ["relative", "entry"])
@pytest.mark.parametrize("poison", [1e6, NAN, INF, -NAN], ids=["1e6", "nan", "inf", "-nan"])
def test_nothing_outside_the_window_is_selected(backend: Backend, ids: str, poison: float) -> None:
    logits = torch.randn(len(WINDOWS), 200, generator=torch.Generator().manual_seed(2))
    expected = [by_python_sort(row.tolist(), 64, *window) for row, window in zip(logits, WINDOWS)]
    for row, (first, last) in zip(logits, WINDOWS):
        column = torch.arange(200)
        row[(column < first) | (column >= last)] = poison
    start, end = (int32(*column) for column in zip(*WINDOWS))
    chosen = backend(K64, "topk").topk(logits, start, end, ids=ids)
    base = start.clamp(min=0)[:, None] if ids == "entry" else 0
    wanted = torch.tensor(expected, dtype=torch.int32)
    assert_bytes_equal(chosen, torch.where(wanted < 0, -1, wanted + base))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("k", [1, 64, 512])
def test_unsorted_are_the_same_columns_in_ascending_order(
    backend: Backend, k: int, dtype: torch.dtype
) -> None:
    rows = torch.stack(list(hard_rows(300).values())).to(dtype)
    start, end = (torch.full((len(rows),), n, dtype=torch.int32) for n in (7, 290))
    for ids, base in (("relative", 0), ("entry", 7)):
        chosen = backend(spec_of(k), "topk").topk(rows, start, end, sorted=False, ids=ids)
        for row, got in zip(rows.float(), chosen.tolist()):
            wanted = sorted(j for j in by_python_sort(row.tolist(), k, 7, 290) if j >= 0)
            assert got == [j + base for j in wanted] + [-1] * (k - len(wanted))


def slot_of(entry: int, pages: list[int] | None) -> int:
    """Slot in pages of 16 entries, word for word."""
    if entry < 0 or pages is None or entry // 16 >= len(pages) or pages[entry // 16] < 0:
        return -1
    return pages[entry // 16] * 16 + entry % 16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("order", ["sorted", "ascending"])
def test_slots_are_those_of_the_block_table(
    backend: Backend, order: str, dtype: torch.dtype
) -> None:
    random = torch.Generator().manual_seed(12)
    logits = torch.randn(7, 200, generator=random).round(decimals=1).to(dtype)
    table = torch.randint(0, 2**27 - 1, (4, 11), generator=random).int()
    table[1, 3], table[2, 0], table[3] = -1, MIN, torch.arange(11)
    requests = int32(0, 1, 2, 3, 4, -1, 3)
    windows = [(0, 200), (5, 200), (0, 150), (-3, MAX), (0, 200), (0, 200), (90, 91)]
    start, end = (int32(*column) for column in zip(*windows))
    chosen = backend(K64, "topk").topk(
        logits,
        start,
        end,
        sorted=order == "sorted",
        ids="slot",
        block_table=table,
        row_to_request=requests,
    )
    for row, got in enumerate(chosen.tolist()):
        first, last = windows[row]
        found = by_python_sort(logits[row].tolist(), 64, first, last)
        entries = [j + max(first, 0) for j in found if j >= 0]
        if order == "ascending":
            entries.sort()
        request = int(requests[row])
        pages = table[request].tolist() if 0 <= request < 4 else None
        assert got == [slot_of(j, pages) for j in entries] + [-1] * (64 - len(entries))


def test_rows_of_a_request_follow_each_other_unless_told_otherwise(backend: Backend) -> None:
    logits, end = torch.arange(80.0).expand(4, 80).contiguous(), int32(80, 80, 80, 80)
    table = torch.tensor([[5, 6, 7, 8, 9], [1, 2, 3, 4, 0]], dtype=torch.int32)
    indexer = backend(spec_of(1), "topk")
    chosen = indexer.topk(logits, None, end, ids="slot", block_table=table)
    assert chosen[:, 0].tolist() == [159, 159, 15, 15]
    with pytest.raises(ArgumentError, match=r"^block_table: expected a torch.Tensor, got None"):
        indexer.topk(logits, None, end, ids="slot")
    with pytest.raises(ArgumentError, match=r"^row_to_request: expected it for 4 rows of 3 req"):
        indexer.topk(logits, None, end, ids="slot", block_table=table[[0, 1, 0]])
    none = indexer.topk(logits, None, end, ids="slot", block_table=table[:, :0].clone())
    assert none.eq(-1).all()


def test_twenty_runs_of_topk_give_the_same_ids(compiled: Backend) -> None:
    logits = torch.stack(list(hard_rows(5003).values()))
    end = torch.full((len(logits),), 5003, dtype=torch.int32)
    indexer = compiled(spec_of(512), "topk")
    first = indexer.topk(logits, None, end)
    assert all(indexer.topk(logits, None, end).equal(first) for _ in range(20))


def test_a_dirty_output_is_rewritten_in_full_and_in_place(backend: Backend) -> None:
    indexer, out = backend(K64, "topk"), torch.full((3, 64), MAX, dtype=torch.int32)
    logits = torch.randn(3, 100, generator=torch.Generator().manual_seed(3))
    chosen = indexer.topk(logits, None, int32(100, 0, 3), out=out)
    assert chosen is out
    assert out[1].eq(-1).all()
    assert out[2, 3:].eq(-1).all()
    assert out[0].sort().values.equal(logits[0].topk(64).indices.int().sort().values)


@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (3, 0), (0, 0)], ids=str)
def test_topk_of_nothing_is_nothing(backend: Backend, rows: int, columns: int) -> None:
    end = torch.full((rows,), 9, dtype=torch.int32)
    chosen = backend(K64, "topk").topk(torch.zeros(rows, columns), None, end)
    assert chosen.shape == (rows, 64)
    assert chosen.eq(-1).all()


def with_windows(inputs: PagedInputs, *windows: tuple[int, int]) -> dict[str, object]:
    start, end = (int32(*column) for column in zip(*windows))
    return dict(inputs.arguments(), start=start, end=end)


@pytest.mark.parametrize("skip_short", [True, False], ids=["skip", "score"])
@pytest.mark.parametrize("spec", INDEX.values(), ids=INDEX)
def test_index_topk_is_topk_of_its_own_logits(
    compiled: Backend, spec: IndexerSpec, skip_short: bool
) -> None:
    lengths = [0, 1, 63, 64, 65, 130, 700]
    inputs = paged_inputs(spec, lengths, page_padding=8, seed=4)
    indexer = compiled(spec, "index_topk", "paged_mqa_logits", "topk")
    logits = indexer.paged_mqa_logits(**inputs.arguments())
    expected = indexer.topk(logits, inputs.start, inputs.end)
    if skip_short:
        for row, length in enumerate(lengths):
            if length <= spec.topk:
                expected[row] = -1
                expected[row, :length] = torch.arange(length)
    chosen = indexer.index_topk(**inputs.arguments(), skip_short=skip_short)
    assert_bytes_equal(chosen, expected)
    sizes = [int((row >= 0).sum()) for row in chosen]
    assert sizes == [min(length, spec.topk) for length in lengths]


@pytest.mark.parametrize("skip_short", [True, False], ids=["skip", "score"])
@pytest.mark.parametrize("name", ["fp4-page16-k64", "fp8-k64"])
def test_index_topk_agrees_with_the_reference_up_to_near_ties(
    compiled: Backend, reference: Backend, name: str, skip_short: bool
) -> None:
    spec = INDEX[name]
    inputs = paged_inputs(spec, [0, 40, 64, 200, 333], next_n=2, seed=5)
    chosen = compiled(spec, "index_topk").index_topk(**inputs.arguments(), skip_short=skip_short)
    logits = reference(spec).paged_mqa_logits(**inputs.arguments())
    assert_selection(chosen, logits, inputs.start, inputs.end, atol=1e-4)
    expected = reference(spec).index_topk(**inputs.arguments(), skip_short=skip_short)
    short = inputs.end <= 64
    assert chosen.sort().values[short].equal(expected.sort().values[short])
    if skip_short:
        assert chosen[short].equal(expected[short])


@pytest.mark.parametrize("ids", ["relative", "entry", "slot"])
@pytest.mark.parametrize("skip_short", [True, False], ids=["skip", "score"])
def test_windows_and_ids_of_index_topk(backend: Backend, ids: str, skip_short: bool) -> None:
    indexer = backend(K64, "index_topk", "paged_mqa_logits", "topk")
    inputs = paged_inputs(K64, [200] * 8, seed=6)
    windows = [(0, 200), (7, 60), (-9, 20), (150, 200), (30, 30), (90, 80), (3, 200), (10, 150)]
    arguments = with_windows(inputs, *windows)
    chosen = indexer.index_topk(**arguments, skip_short=skip_short, ids=ids)
    logits = indexer.paged_mqa_logits(**arguments)
    relative = indexer.topk(logits, arguments["start"], arguments["end"])
    for row, (first, last) in enumerate(windows):
        length = max(last - max(first, 0), 0)
        if skip_short and length <= 64:
            relative[row] = -1
            relative[row, :length] = torch.arange(length)
        for got, want in zip(chosen[row].tolist(), relative[row].tolist()):
            if want >= 0 and ids != "relative":
                want += max(first, 0)
            if want >= 0 and ids == "slot":
                want = int(inputs.block_table[row, want // 16]) * 16 + want % 16
            assert got == want


@pytest.mark.parametrize("skip_short", [True, False], ids=["skip", "score"])
def test_entries_on_missing_pages_are_left_out_of_the_selection(
    backend: Backend, skip_short: bool
) -> None:
    indexer, inputs = backend(K64, "index_topk"), paged_inputs(K64, [50, 120, 64], seed=7)
    inputs.block_table[0, 1] = -1
    inputs.block_table[1, 2] = inputs.cache.shape[0]
    inputs.block_table[2, 0] = MAX
    chosen = indexer.index_topk(**inputs.arguments(), skip_short=skip_short)
    present = [
        [*range(16), *range(32, 50)],
        None,
        list(range(16, 64)),
    ]
    for row in (0, 2):
        count = len(present[row])
        ids = chosen[row, :count].tolist()
        assert (ids if skip_short else sorted(ids)) == present[row]
        assert chosen[row, count:].eq(-1).all()
    assert not set(range(32, 48)) & set(chosen[1].tolist())
    assert len(set(chosen[1].tolist())) == 64


@pytest.mark.parametrize("skip_short", [True, False], ids=["skip", "score"])
def test_unbounded_ends_and_unknown_requests_are_legal(backend: Backend, skip_short: bool) -> None:
    indexer, inputs = backend(K64, "index_topk"), paged_inputs(K64, [160] * 5, seed=8)
    inputs.block_table[:, 10:] = -1
    windows = [(0, MAX), (140, MAX), (MIN, MAX), (0, 150), (0, 20)]
    arguments = with_windows(inputs, *windows)
    arguments["row_to_request"] = int32(0, 1, 2, 5, -1)
    chosen = indexer.index_topk(**arguments, skip_short=skip_short)
    assert chosen[3:].eq(-1).all()
    assert (chosen[[0, 2]] >= 0).all()
    assert sorted(chosen[1, :20].tolist()) == list(range(20))
    assert chosen[1, 20:].eq(-1).all()


@pytest.mark.parametrize("name", ["fp4-page16-k64", "fp8-k64"])
def test_poison_runs_and_cuts_do_not_change_the_ids(
    compiled: Backend, least_limit: Callable[..., int], name: str
) -> None:
    spec, results = INDEX[name], []
    for poison in (0xFF, 0x00, 0x7F, 0xFF):
        inputs = paged_inputs(spec, [300, 10, 65], next_n=8, page_padding=4, poison=poison, seed=9)
        results.append(compiled(spec, "index_topk").index_topk(**inputs.arguments()))
    load = partial(compiled, spec, "index_topk")
    limit = least_limit(load, lambda indexer: indexer.index_topk(**inputs.arguments()))
    results.append(load(workspace_limit=limit).index_topk(**inputs.arguments()))
    assert all(other.equal(results[0]) for other in results)
    assert (results[0] >= 0).any(1).all()


def test_rows_and_entries_with_nan_scores_are_not_selected(backend: Backend) -> None:
    inputs = paged_inputs(K64, [90, 90], seed=11)
    inputs.q[1][0, 3, 1] = 255
    page, token = int(inputs.block_table[1, 2]), 5
    inputs.cache[page, 16 * 64 + 4 * token + 2] = 255
    chosen = backend(K64, "index_topk").index_topk(**inputs.arguments())
    assert chosen[0].eq(-1).all()
    assert (chosen[1] >= 0).all()
    assert 2 * 16 + token not in chosen[1].tolist()


def test_index_topk_of_no_rows_or_no_pages_is_empty(backend: Backend) -> None:
    indexer, inputs = backend(K64, "index_topk"), paged_inputs(K64, [20, 30], seed=10)
    arguments = inputs.arguments()
    for change in ({"cache": inputs.cache[:0]}, {"block_table": inputs.block_table[:, :0].clone()}):
        assert indexer.index_topk(**{**arguments, **change}).eq(-1).all()
    none = indexer.index_topk(
        (inputs.q[0][:0], inputs.q[1][:0]),
        inputs.weights[:0],
        inputs.cache,
        inputs.block_table,
        inputs.end[:0],
    )
    assert none.shape == (0, 64)
