# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`index_topk` that streams, executed: the ids of the form that writes logits, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pytest
import torch
from compiled import compile_mlir, run, to_numpy

from dsv4_iree import IndexerSpec, emulator, reference
from dsv4_iree.errors import ArgumentError
from dsv4_iree.kernels import mma, stream
from dsv4_iree.kernels.topk import index_topk_entries
from dsv4_iree.spec import Format
from dsv4_iree.streaming import COLUMNS, SCORES, is_faster
from dsv4_iree.testing import PagedInputs, assert_bytes_equal, paged_inputs

MAX = 2**31 - 1
SMALL = IndexerSpec(num_heads=8, page_size=16, topk=64)
K512 = IndexerSpec(num_heads=8, page_size=64, topk=512)
IDS = ("relative", "entry", "slot")
Select = Callable[..., torch.Tensor]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory):
    """programs(target, spec, fill): index_topk that streams, by so many workgroups that fill the
    chip; None: the function that writes logits."""

    @lru_cache
    def program(target: str, spec: IndexerSpec, fill: int | None) -> bytes:
        writes, streams = index_topk_entries(spec)
        if fill is None:
            text = mma.function(writes, target, spec)
        else:
            text = stream.function(streams, target, spec, fill)
        path = tmp_path_factory.mktemp("stream") / "index_topk.mlir"
        path.write_text(text.replace("util.func private", "util.func public"))
        return compile_mlir(path, target).read_bytes()

    return program


@pytest.fixture
def select(programs, target, counted) -> Select:
    """select(spec, inputs, ...): ids by the streaming function, or by the other one."""

    def call(
        spec: IndexerSpec,
        x: PagedInputs,
        *,
        skip_short: bool = False,
        ids: str = "relative",
        fill: int | None = 1,
    ) -> torch.Tensor:
        cache, stride = x.cache, x.cache.stride(0)
        flat = cache.as_strided(((len(cache) - 1) * stride + spec.page_bytes,), (1,))
        scalars = [torch.tensor([n]) for n in (stride, len(cache), int(skip_short), IDS.index(ids))]
        given = [*x.q, x.weights, flat, x.block_table, x.row_to_request, x.start, x.end, *scalars]
        program = programs(target, spec, fill)
        name = "index_topk" if fill is None else "index_topk_streaming"
        (found,) = run(program, target, *map(to_numpy, given), function=f"{name}_pure")
        return torch.from_numpy(found)

    return call


def both_functions(
    select: Select, spec: IndexerSpec, x: PagedInputs, fill: int = 1, **options
) -> torch.Tensor:
    """The ids, which both functions agree upon."""
    found = select(spec, x, fill=fill, **options)
    assert_bytes_equal(found, select(spec, x, fill=None, **options))
    return found


def keys_of(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys whose logits are these integers below 2^21, NaN for NaN, under `scoring`."""
    magnitude = logits.nan_to_num().abs().long()
    codes = torch.zeros(len(logits), 4, 32, dtype=torch.uint8)
    for group in range(3):
        digit = magnitude >> 7 * group & 127
        sixes, rest = digit // 6, digit % 6
        codes[:, group, :21] = 7 * (torch.arange(21) < sixes[:, None]).byte()
        # 0, 1, 2, 3, 4 and 4 + 1 as e2m1 codes.
        codes[:, group, 21] = torch.tensor([0, 2, 4, 5, 6, 6], dtype=torch.uint8)[rest]
        codes[:, group, 22] = torch.tensor([0, 0, 0, 0, 0, 2], dtype=torch.uint8)[rest]
    codes |= 8 * (logits < 0)[:, None, None].byte() * (codes > 0)
    flat = codes.view(len(logits), 128)
    scales = torch.tensor([127, 134, 141, 127], dtype=torch.uint8).repeat(len(logits), 1)
    scales[logits.isnan()] = 255
    return flat[:, ::2] | flat[:, 1::2] << 4, scales


def scoring(spec: IndexerSpec, rows: int):
    """Query and weights with which a logit is the sum of a key's numbers."""
    values = torch.zeros(rows, spec.num_heads, 64, dtype=torch.uint8)
    values[:, 0], values[:, 1] = 0x22, 0xAA  # ones, and minus ones
    weights = torch.zeros(rows, spec.num_heads)
    weights[:, 0], weights[:, 1] = 1.0, -1.0
    return (values, torch.full((rows, spec.num_heads, 4), 127, dtype=torch.uint8)), weights


def inputs_of(spec: IndexerSpec, rows: list[torch.Tensor]) -> PagedInputs:
    """A request for each row, of which the logits are these."""
    length = len(rows[0])
    x = paged_inputs(spec, [length] * len(rows), seed=3)
    entry = torch.arange(length)
    for pages, logits in zip(x.block_table, rows):
        slots = pages.long()[entry // spec.page_size] * spec.page_size + entry % spec.page_size
        reference.write_cache(x.cache, *keys_of(logits), slots, spec)
    q, weights = scoring(spec, len(rows))
    return PagedInputs(**{**vars(x), "q": q, "weights": weights})


def hard_rows(columns: int) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(4)
    wild = torch.randint(-(2**20), 2**20, (columns,), generator=random).float()
    scattered = torch.rand(columns, generator=random)
    rising = torch.arange(columns).float() - columns // 2
    return {
        "random": wild,
        "rising": rising,
        "falling": -rising,
        "all equal": torch.full((columns,), 5.0),
        "all zero": torch.zeros(columns),
        "few levels": (scattered * 8).floor(),
        "rising in steps": (rising / 700).floor(),
        "more ties than k": (scattered < 0.002).float(),
        "close together": 2.0**20 + (scattered * 50).floor(),
        "mostly NaN": torch.where(scattered < 0.97, torch.nan, wild),
        "NaN until late": torch.where(torch.arange(columns) < columns - 900, torch.nan, rising),
        "all NaN": torch.full((columns,), torch.nan),
    }


@pytest.mark.parametrize("spec", [SMALL, K512], ids=["k64", "k512"])
def test_hard_rows(select, spec):
    """The buffer of 2048 runs over in a rising row again and again, in one of ties once."""
    rows = hard_rows(5000)
    x = inputs_of(spec, list(rows.values()))
    expected = reference.topk(torch.stack(list(rows.values())), spec.topk, x.start, x.end)
    for name, one, other in zip(rows, both_functions(select, spec, x), expected):
        assert one.equal(other), name


@pytest.mark.parametrize("seed", range(1, 7))
def test_the_order_of_waves_and_workgroups_changes_nothing(select, seed):
    names = ("random", "rising", "few levels", "mostly NaN", "NaN until late")
    logits = torch.stack([hard_rows(4000)[name] for name in names])
    x = inputs_of(K512, list(logits))
    emulator.set_seed(seed)
    for fill in (1, 2 * len(names)):
        expected = reference.topk(logits, 512, x.start, x.end)
        assert_bytes_equal(select(K512, x, fill=fill), expected)


def test_k_of_1024(select):
    spec = IndexerSpec(num_heads=8, page_size=64, topk=1024)
    rows = {n: row for n, row in hard_rows(5000).items() if n in ("random", "rising", "few levels")}
    x = inputs_of(spec, list(rows.values()))
    expected = reference.topk(torch.stack(list(rows.values())), 1024, x.start, x.end)
    assert_bytes_equal(both_functions(select, spec, x), expected)


def test_infinite_logits(select):
    """Weights that make -inf, +inf and NaN of the same keys."""
    row = hard_rows(3000)["random"]
    x = inputs_of(SMALL, [row] * 3)
    x.weights[0] = torch.tensor([-torch.inf, *[0.0] * 7])
    x.weights[1] = torch.tensor([torch.inf, *[0.0] * 7])
    x.weights[2] = torch.tensor([-3e38, *[0.0] * 7])
    logits = torch.stack([w * row.clamp(min=0) for w in x.weights[:, 0]])
    expected = reference.topk(logits, 64, x.start, x.end)
    assert (expected[0] == -1).all()
    assert_bytes_equal(both_functions(select, SMALL, x), expected)


@pytest.mark.parametrize("runs", [1, 4])
@pytest.mark.parametrize("skip_short", [True, False], ids=["skip", "score"])
def test_windows_pages_and_ids(select, counted, skip_short, runs):
    """Windows of one run or several begin anywhere; pages and requests are missing."""
    windows = [(0, 2000), (7, 60), (-9, 20), (1500, 2000), (30, 30), (90, 80), (3, 2000)]
    windows += [(10, 1300), (0, MAX), (2, 50), (0, 64), (0, 65), (0, 2000), (1990, MAX), (MAX, MAX)]
    x = paged_inputs(SMALL, [2000] * len(windows), page_padding=8, seed=6)
    for at, (first, last) in enumerate(windows):
        x.start[at], x.end[at] = first, last
    x.block_table[:, 125:] = -1
    x.block_table[9, 1], x.block_table[12, 4] = -1, x.cache.shape[0]
    x.block_table[0, 20:60] = MAX
    x.row_to_request[10], x.row_to_request[6] = len(windows), -1
    for ids in IDS:
        fill = runs * len(windows)
        found = both_functions(select, SMALL, x, fill, skip_short=skip_short, ids=ids)
        assert fill in (dispatch.workgroups for dispatch in counted())
        assert (found[[6, 10]] == -1).all()
        assert (found[0] >= 0).all()


def test_runs_that_begin_inside_pages_and_blocks(select):
    spec = IndexerSpec(num_heads=12, page_size=48, topk=16)
    x = paged_inputs(spec, [3001, 77, 2000, 0], next_n=3, seed=8)
    x.start.copy_(torch.arange(12) * 37)
    for fill in (12, 12 * 7, 12 * 40):
        both_functions(select, spec, x, fill)


@pytest.mark.parametrize("fill", [1, 9])
def test_fp8_keys(select, fill):
    spec = IndexerSpec(num_heads=8, topk=64, format=Format.FP8, layout="n8")
    both_functions(select, spec, paged_inputs(spec, [2500, 70, 1300], seed=9), fill)


@pytest.mark.parametrize("skip_short", [True, False], ids=["skip", "score"])
def test_lengths_around_k(select, skip_short):
    x = paged_inputs(SMALL, [0, 1, 63, 64, 65, 5], next_n=2, seed=1)
    for fill in (1, 60):
        found = both_functions(select, SMALL, x, fill, skip_short=skip_short)
        assert (found[0] == -1).all()
        assert (found >= 0).sum(1).tolist() == [0, 0, 0, 1, 62, 63, 63, 64, 64, 64, 4, 5]


def test_a_row_has_the_same_ids_alone_and_among_others(select):
    """Nothing stays from the row before, nor in the workspace."""
    rows = hard_rows(4000)
    x = inputs_of(SMALL, list(rows.values()))
    together = select(SMALL, x, fill=30)
    backward = torch.arange(len(rows)).flip(0)
    turned = {name: vars(x)[name][backward] for name in ("weights", "start", "end")}
    turned |= {"q": tuple(part[backward] for part in x.q)}
    turned["row_to_request"] = x.row_to_request[backward]
    assert_bytes_equal(
        select(SMALL, PagedInputs(**{**vars(x), **turned}), fill=30)[backward], together
    )
    for row in (0, 5, 11):
        one = {name: value[row : row + 1] for name, value in turned.items() if name != "q"}
        one["q"] = tuple(part[row : row + 1] for part in turned["q"])
        alone = select(SMALL, PagedInputs(**{**vars(x), **one}), fill=30)
        assert_bytes_equal(alone[0], together[backward[row]])


@pytest.mark.parametrize("k", [64, 512, 1024])
def test_only_what_is_kept_is_written(select, counted, k):
    """Ids of a row that is one run, else entries; and it multiplies no more than for the logits."""
    spec, columns = IndexerSpec(topk=k), 16384
    x = paged_inputs(spec, [columns], seed=5)
    for fill, written in ((1, 4 * k), (3, 3 * 8 * k)):
        select(spec, x, fill=fill)
        scored, rank = counted()[-2:]
        assert scored.bytes_written == written
        for dispatch in (scored, rank):
            assert dispatch.scratch_bytes == 0
            assert dispatch.vgprs <= 256
            assert dispatch.lds_bytes <= 1 << 16
        assert 2 * scored.lds_bytes <= 1 << 16
    select(spec, x, fill=1)
    scored = counted()[-2]
    select(spec, x, fill=None)
    assert scored.matrix == counted()[-3].matrix


@pytest.mark.parametrize("k", [64, 1024])
def test_a_workspace_for_a_large_call_serves_every_smaller_one(emulated, k):
    """Whichever function that is; and it is small."""
    spec = IndexerSpec(num_heads=8, page_size=16, topk=k)
    indexer, x = emulated(spec, "index_topk"), paged_inputs(spec, [16], seed=1)

    def needed(rows: int, columns: int) -> int:
        with pytest.raises(ArgumentError, match="at least") as error:
            indexer.index_topk(**sized(x, rows, columns // 16), workspace=bytes_of(0))
        return int(str(error.value).split("at least ")[1].split()[0])

    sizes = [16, 1024, 4096, 8192, 12288, 16384, 65536]
    rows = [1, 33, 100, 255, 256, 300, 511, 512, 700, 1023, 1024, 1500, 4096, 8192]
    needs = torch.tensor([[needed(r, c) for c in sizes] for r in rows])
    assert (needs.diff(dim=0) >= 0).all()
    assert (needs.diff(dim=1) >= 0).all()
    assert int(needs.max()) <= 8192 * 8 * k + 4096


def test_the_function_that_serves_a_call(emulated, counted, target):
    """The one that is asked for, else the faster one, or that for which the workspace has room."""
    spec = IndexerSpec(num_heads=8, page_size=64, topk=16)
    indexer, x = emulated(spec, "index_topk"), paged_inputs(spec, [6000], seed=1)
    pages = SCORES[target] * 16 // 64
    few, many = sized(x, 1, pages - 1), sized(x, 1, pages)
    assert not is_faster(target, 1, (1, 64 * pages - 64), 16)
    assert is_faster(target, 1, (1, 64 * pages), 16)
    assert is_faster(target, 2, (1, 64 * pages), 16) == (target == "gfx950")
    assert not is_faster(target, 3, (1, 64 * pages), 16)
    assert not is_faster(target, 2**20, (2**19, COLUMNS * 16 - 64), 16)
    assert not is_faster("cuda", 1, (1, 64 * pages), 16)

    def streamed(given, **options) -> bool:
        indexer.index_topk(**given, **options)
        kernel = counted()[-2].kernel  # the last one is the same
        assert kernel in ("index_topk_streaming_mma", "index_topk_select_keep")
        return kernel == "index_topk_streaming_mma"

    for given in (few, many):
        assert streamed(given, streaming=True)
        assert not streamed(given, streaming=False)
        assert streamed(given) == (given is many)
    room = bytes_of(4 * 64 * (pages - 1) - 64)  # not for the logits
    assert streamed(few, workspace=room)
    with pytest.raises(ArgumentError, match="workspace: expected at least"):
        indexer.index_topk(**few, workspace=room, streaming=False)


def sized(x: PagedInputs, rows: int, pages: int) -> dict[str, object]:
    """Arguments with the first row so many times, and the first page."""

    def repeated(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[:1].expand(rows, *tensor.shape[1:]).contiguous()

    of_rows = ("weights", "start", "end", "row_to_request")
    table = x.block_table[:, :1].expand(1, pages).contiguous()
    given = {name: repeated(vars(x)[name]) for name in of_rows}
    return {**vars(x), **given, "q": tuple(map(repeated, x.q)), "block_table": table}


def bytes_of(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8)
