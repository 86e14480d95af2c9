"""The radix top-k of gfx942 and gfx950, executed: exact ids whatever the rows, sizes and order."""

from __future__ import annotations

import pytest
import torch
from compiled import compile_mlir, run, to_numpy
from test_topk import hard_rows

import dsv4_iree
from dsv4_iree import IndexerSpec, emulator, manifest, reference
from dsv4_iree.kernels import radix
from dsv4_iree.kernels.entry import Arg, Entry
from dsv4_iree.kernels.logits import WINDOW
from dsv4_iree.testing import assert_bytes_equal, paged_inputs

SIZES = [1, 512, 1000, 1024, 2048, 4096]
MAX = 2**31 - 1


def spec_of(k: int) -> IndexerSpec:
    return IndexerSpec(num_heads=8, page_size=16, topk=k)


@pytest.fixture
def topk(emulated, make, target, counted):
    """topk(k): an indexer on the emulated device of `target`, with the radix kernels."""

    def load(k: int) -> dsv4_iree.Indexer:
        assert manifest.read(make(target, "topk", spec_of(k))).form == "radix"
        return emulated(spec_of(k), "topk")

    return load


@pytest.fixture
def kernel(target, tmp_path):
    """kernel(dtype, k): the function alone, on logits of any row stride."""

    def build(dtype: torch.dtype, k: int):
        inputs = (Arg("logits", dtype, ("T", "S")), *WINDOW)
        out = Arg("indices", torch.int32, ("T", k))
        entry = Entry("select", torch.nn.Identity(), inputs, (out,), ("columns", "ids", "sorted"))
        text = radix.function(entry, target, spec_of(k))
        path = tmp_path / f"select{k}.mlir"
        path.write_text(text.replace("util.func private", "util.func public"))
        vmfb = compile_mlir(path, target)

        def call(logits, start, end, columns):
            scalars = (torch.tensor([n]) for n in (columns, 0, 1))
            arrays = [to_numpy(x) for x in (logits, start, end, *scalars)]
            (ids,) = run(vmfb, target, *arrays, function="select_pure")
            return torch.from_numpy(ids)

        return call

    return build


def tile(target: str, k: int) -> int:
    """Logits that a workgroup holds at a time."""
    group = radix.keepers(target, k)
    return group.threads * group.held


def windows(rows: int, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((rows,), first, dtype=torch.int32), torch.full((rows,), last).int()


@pytest.mark.parametrize("columns", [300, 5003, 40000])
@pytest.mark.parametrize("k", SIZES)
def test_hard_rows_of_one_chunk_and_of_several(topk, k, columns):
    rows = hard_rows(columns)
    logits = torch.stack(list(rows.values()))
    for first, last in ((0, columns), (7, columns - 5), (-3, MAX)):
        start, end = windows(len(rows), first, last)
        actual = topk(k).topk(logits, start, end)
        expected = reference.topk(logits, k, start, end)
        for name, one, other in zip(rows, actual, expected):
            assert one.equal(other), name


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("k", [1, 512, 1000, 2048])
def test_a_workgroup_takes_tile_after_tile(kernel, monkeypatch, target, k, runs):
    """With as few workgroups as there are rows or twice that, each has several tiles of a row."""
    rows, columns = hard_rows(100000), 100000
    logits = torch.stack(list(rows.values()))
    # Tiles that all exceed those before them, and some that do not.
    logits[0] = torch.arange(columns).sin() + (torch.arange(columns) // tile(target, k))
    monkeypatch.setitem(radix.WORKGROUPS, target, runs * len(logits))
    select = kernel(torch.float32, k)
    for seed, (first, last) in enumerate(((0, columns), (17, columns - 30), (90000, MAX), (9, 9))):
        start, end = windows(len(logits), first, last)
        expected = reference.topk(logits, k, start, end)
        emulator.set_seed(seed)
        actual = select(logits, start, end, columns)
        for name, one, other in zip(rows, actual, expected):
            assert one.equal(other), (name, first)


@pytest.mark.parametrize("columns", [300, 5003, 40000])
@pytest.mark.parametrize("k", [1, 512, 1000, 2048, 3000, 4096])
def test_ascending_columns_and_slots(topk, k, columns):
    rows = hard_rows(columns)
    logits = torch.stack(list(rows.values()))
    start, end = windows(len(rows), 7, columns - 5)
    random = torch.Generator().manual_seed(k)
    table = torch.randint(-1, 1000, (4, columns // 16), generator=random).int()
    requests = torch.randint(-1, 5, (len(rows),), generator=random).int()
    options = {"block_table": table, "row_to_request": requests}
    for ordered in (True, False):
        chosen = reference.topk(logits, k, start, end, sorted=ordered)
        assert_bytes_equal(topk(k).topk(logits, start, end, sorted=ordered), chosen)
        expected = reference.as_ids(chosen, "slot", start, table, requests, spec_of(k))
        actual = topk(k).topk(logits, start, end, sorted=ordered, ids="slot", **options)
        assert_bytes_equal(actual, expected)


@pytest.mark.parametrize("k", [512, 2048])
@pytest.mark.parametrize("seed", range(1, 7))
def test_the_order_of_waves_and_workgroups_changes_nothing(topk, k, seed):
    rows = hard_rows(20000)
    names = ("random", "all equal", "denormals", "few levels", "band at 10", "mostly NaN")
    logits = torch.stack([rows[name] for name in names])
    start, end = windows(len(names), 3, 19990)
    expected = reference.topk(logits, k, start, end)
    emulator.set_seed(seed)
    assert_bytes_equal(topk(k).topk(logits, start, end), expected)


def test_rows_across_zero_take_few_steps_more(topk, counted):
    """Their keys are far apart, and few bins of keys would have them all."""
    normal = torch.randn(1, 8192, generator=torch.Generator().manual_seed(0))
    start, end = windows(1, 0, 8192)
    issued = []
    for logits in (normal, normal - 1.7, normal - 3):
        emulator.reset_stats()
        topk(512).topk(logits, start, end)
        issued.append(sum(counted()[0].classes.values()))
    assert max(issued) < 1.1 * issued[0]


@pytest.mark.parametrize("k", [1, 512, 2048])
def test_windows_around_k_and_a_long_row_before_a_short_one(topk, k):
    logits = torch.randn(10, 20000, generator=torch.Generator().manual_seed(k))
    lengths = [20000, 0, 1, k - 1, k, k + 1, 16384, 16385, 19999, 5]
    start = torch.tensor([0, 3, 19999, 5, 7, 11, 0, 0, 1, 16380], dtype=torch.int32)
    end = (start + torch.tensor(lengths)).int()
    for ids in ("relative", "entry"):
        actual = topk(k).topk(logits, start, end, ids=ids)
        expected = reference.topk(logits, k, start, end)
        if ids == "entry":
            expected = torch.where(expected < 0, -1, expected + start[:, None])
        assert_bytes_equal(actual, expected)


def test_ties_fall_to_the_lowest_columns_over_chunks(topk):
    logits = torch.zeros(2, 70000)
    logits[1, 100::7] = 1.0
    start, end = windows(2, 50, 70000)
    assert topk(2048).topk(logits, start, end).tolist() == [
        list(range(2048)),
        list(range(50, 50 + 7 * 2048, 7)),
    ]


def test_a_row_of_a_million(topk):
    random = torch.Generator().manual_seed(3)
    logits = torch.randn(1, 1 << 20, generator=random)
    logits[0, 1000:900000] = 2.0
    start, end = windows(1, 0, 1 << 20)
    expected = reference.topk(logits, 4096, start, end)
    assert_bytes_equal(topk(4096).topk(logits, start, end), expected)


def test_columns_beyond_the_width_are_not_selected(kernel):
    storage = torch.full((5, 20100), torch.inf)
    storage[:, :20000] = torch.randn(5, 20000)
    start, end = torch.tensor([0, 9, 0, 3, 0]).int(), torch.tensor([MAX, 20050, 17, 2, 20000]).int()
    actual = kernel(torch.float32, 512)(storage, start, end, 20000)
    assert_bytes_equal(actual, reference.topk(storage[:, :20000], 512, start, end))


def test_bfloat16_logits_are_ranked_as_they_are(kernel):
    rows = hard_rows(17001)
    logits = torch.stack(list(rows.values())).bfloat16()
    start, end = windows(len(rows), 2, 17000)
    actual = kernel(torch.bfloat16, 512)(logits, start, end, 17001)
    assert_bytes_equal(actual, reference.topk(logits.float(), 512, start, end))


@pytest.mark.parametrize("k", [1, 512, 2048, 4096])
def test_logits_are_read_once_and_nothing_is_spilled(topk, k, counted, target):
    rows, columns = 2, 40000
    logits = torch.randn(rows, columns, generator=torch.Generator().manual_seed(k))
    start, end = windows(rows, 0, columns)
    indexer = topk(k)
    emulator.reset_stats()
    indexer.topk(logits, start, end)
    keep, rank = counted()
    # A workgroup reads the last of a chunk in place of what is past its end, and again the few
    # that it may select.
    whole = 4 * rows * -(-columns // tile(target, k)) * tile(target, k)
    assert 4 * rows * columns < keep.bytes_read < (1.1 if k < 2048 else 1.3) * whole
    assert rank.bytes_read < 4 * 8 * rows * (3 * k + 512)
    for dispatch in (keep, rank):
        assert dispatch.lds_bytes <= 1 << 16
        assert dispatch.scratch_bytes == 0
        assert dispatch.vgprs <= 256
        # Counting in shared memory needs no fence.
        assert {"ds_add_u32", "ds_add_rtn_u32"} & set(dispatch.opcodes)
        assert not {"buffer_wbl2", "buffer_inv"} & set(dispatch.opcodes)


@pytest.mark.parametrize("ids", ["relative", "entry", "slot"])
@pytest.mark.parametrize("skip_short", [True, False], ids=["skip", "score"])
def test_index_topk_selects_from_its_own_logits(emulated, skip_short, ids):
    spec = IndexerSpec(num_heads=8, page_size=16, topk=64)
    windows = [(0, 200), (7, 60), (-9, 20), (150, 200), (30, 30), (90, 80), (3, 200), (10, 150)]
    unbounded, few, lost = (0, MAX), (2, 50), (0, 64)
    windows += [unbounded, few, lost, (0, 200), (190, MAX)]
    inputs = paged_inputs(spec, [200] * len(windows), page_padding=8, seed=6)
    for at, (first, last) in enumerate(windows):
        inputs.start[at], inputs.end[at] = first, last
    inputs.block_table[:, 13:] = -1
    inputs.block_table[9, 1], inputs.block_table[11, 4] = -1, inputs.cache.shape[0]
    inputs.row_to_request[10] = len(windows)
    indexer = emulated(spec, "index_topk", "paged_mqa_logits")
    x = inputs.arguments()
    chosen = indexer.index_topk(**x, skip_short=skip_short, ids=ids)
    logits = indexer.paged_mqa_logits(**x)
    if skip_short:
        length = inputs.end.long() - inputs.start.clamp(min=0).long()
        by_number = -torch.arange(logits.shape[1]).float().expand_as(logits)
        short = (length <= 64)[:, None] & (logits > -torch.inf)
        logits = torch.where(short, by_number, logits)
    expected = reference.topk(logits, 64, inputs.start, inputs.end)
    entry = torch.where(expected < 0, -1, expected + inputs.start.clamp(min=0)[:, None])
    if ids == "slot":
        request = torch.arange(len(windows))[:, None]
        page = inputs.block_table[request, entry.clamp(min=0) // 16]
        expected = torch.where(entry < 0, -1, page * 16 + entry % 16)
    elif ids == "entry":
        expected = entry
    assert_bytes_equal(chosen, expected.int())
    assert (chosen[10] == -1).all()


def test_index_topk_of_a_long_context_runs_the_radix_kernels(emulated, counted):
    spec = IndexerSpec(num_heads=8, page_size=64, topk=512)
    inputs = paged_inputs(spec, [17000, 300], seed=2)
    indexer = emulated(spec, "index_topk", "paged_mqa_logits")
    chosen = indexer.index_topk(**inputs.arguments(), skip_short=False)
    names = [dispatch.kernel for dispatch in counted()]
    assert names[-2:] == ["index_topk_select_keep", "index_topk_select_rank"]
    logits = indexer.paged_mqa_logits(**inputs.arguments())
    assert_bytes_equal(chosen, reference.topk(logits, 512, inputs.start, inputs.end))
