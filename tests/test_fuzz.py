"""Random calls against the reference: layouts, pages, strides, tables, windows, next_n and k.

A few cases run by default, the same ones each time. For 20,000 new ones on the CPU artifacts and
500 on the emulated AMD targets, an hour or so:

    python -m pytest tests/test_fuzz.py --fuzz 20000 --timeout 0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dsv4_iree
from dsv4_iree import emulator, layout, reference
from dsv4_iree.spec import IndexerSpec
from dsv4_iree.testing import assert_bytes_equal, assert_logits_close

MAX, MIN, INF, NAN = 2**31 - 1, -(2**31), float("inf"), float("nan")
DEVICES = {"cpu": "cpu", "gfx942": "hip:0", "gfx950": "hip:1"}
SPECS = {
    "n4": IndexerSpec(num_heads=8, page_size=16, topk=64),
    "n4 of 64 heads": IndexerSpec(),
    "n4 of one entry": IndexerSpec(num_heads=16, page_size=1),
    "g4": IndexerSpec(num_heads=32, page_size=32, layout="g4"),
    "n8": IndexerSpec(num_heads=8, format="fp8", layout="n8"),
    "p8 of fnuz": IndexerSpec(num_heads=8, page_size=32, format="fp8-fnuz", layout="p8"),
}
ON_AMD = ("n4", "n4 of 64 heads", "g4")
PROPERTIES = 4  # tests below; --fuzz is shared out among them
Load = Callable[..., dsv4_iree.Indexer]


@pytest.fixture(params=list(DEVICES))
def target(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def load(target: str, make) -> Load:
    """load(spec, *ops): the target's artifacts, loaded once for a test."""
    if target != "cpu":
        emulator.enable()
    known: dict[object, dsv4_iree.Indexer] = {}

    def loaded(spec: IndexerSpec, *ops: str) -> dsv4_iree.Indexer:
        if (spec, ops) not in known:
            for op in ops:
                folder = make(target, op, spec).parents[1]
            known[spec, ops] = dsv4_iree.load(
                spec, device=DEVICES[target], artifacts=folder, ops=ops
            )
        return known[spec, ops]

    return loaded


@pytest.fixture
def fuzz(pytestconfig: pytest.Config, target: str) -> Callable[..., None]:
    """fuzz(strategy, check): run `check` on as many cases as were asked for."""
    asked = pytestconfig.getoption("fuzz")
    cases = asked // PROPERTIES if asked else 24
    if target != "cpu":  # 500 of 20,000 on two targets
        cases = max(cases // (80 if asked else 4), 1)

    def run(strategy: st.SearchStrategy, check: Callable[..., None]) -> None:
        settings(
            max_examples=cases,
            derandomize=not asked,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )(given(strategy)(check))()

    return run


@dataclass
class Case:
    """One call, as the ints it was drawn from; `tensors` makes the arguments."""

    name: str
    seed: int
    padding: int
    pages: int
    table: list[list[int]]
    requests: list[int] | None
    start: list[int]
    end: list[int]
    width: int

    def tensors(self) -> tuple[IndexerSpec, dict[str, object]]:
        spec, rows = SPECS[self.name], len(self.end)
        random = torch.Generator().manual_seed(self.seed)
        storage = torch.randint(256, (self.pages, spec.page_bytes + self.padding),
                                generator=random, dtype=torch.uint8)  # fmt: skip
        keys = torch.randn(self.pages, spec.page_size, spec.head_dim, generator=random)
        pair = reference.quantize(keys * 4, spec)
        scales = pair[1].contiguous().view(torch.uint8).view(*keys.shape[:2], -1)
        entries = torch.cat([pair[0].view(torch.uint8), scales], dim=2)
        storage[:, : spec.page_bytes] = layout.from_entries(spec, entries)
        q = torch.randn(rows, spec.num_heads, spec.head_dim, generator=random)
        to_int32 = lambda numbers: torch.tensor(numbers, dtype=torch.int32)  # noqa: E731
        return spec, {
            "q": reference.quantize(q, spec),
            "weights": torch.randn(rows, spec.num_heads, generator=random),
            "cache": storage[:, : spec.page_bytes],
            "block_table": to_int32(self.table),
            "start": to_int32(self.start),
            "end": to_int32(self.end),
            "row_to_request": None if self.requests is None else to_int32(self.requests),
        }


@st.composite
def calls(draw: st.DrawFn, names: tuple[str, ...]) -> Case:
    name = draw(st.sampled_from(names))
    page = SPECS[name].page_size
    pages, columns, batch = (draw(st.integers(1, n)) for n in (6, 5, 3))
    garbage = st.sampled_from([-1, MIN, MAX, pages, pages + 1, 2**24])
    ids = st.one_of(st.integers(0, pages - 1), st.integers(0, pages - 1), garbage)
    table = draw(st.lists(st.lists(ids, min_size=columns, max_size=columns),
                          min_size=batch, max_size=batch))  # fmt: skip
    full = columns * page
    next_n = draw(st.integers(1, 4))
    rows, requests = batch * next_n, None
    if draw(st.booleans()):
        rows = draw(st.integers(1, 7))
        requests = draw(st.lists(st.sampled_from([*range(batch), *range(batch), -1, batch, MAX]),
                                 min_size=rows, max_size=rows))  # fmt: skip
    edges = st.sampled_from([0, 1, page - 1, page, page + 1, full - 1, full, full + 1, MAX])
    ends = st.one_of(st.integers(-2, full + 2), edges, st.sampled_from([MIN, -1]))
    starts = st.one_of(st.just(0), st.integers(-3, full), edges)
    return Case(
        name=name,
        seed=draw(st.integers(0, 2**31)),
        padding=draw(st.sampled_from([0, 0, 4, 28, 64, 1024])),
        pages=pages,
        table=table,
        requests=requests,
        start=draw(st.lists(starts, min_size=rows, max_size=rows)),
        end=draw(st.lists(ends, min_size=rows, max_size=rows)),
        width=draw(st.one_of(st.just(full), st.integers(0, full + 70))),
    )


def names(target: str) -> tuple[str, ...]:
    return tuple(SPECS) if target == "cpu" else ON_AMD


def plain(spec: IndexerSpec) -> dsv4_iree.Indexer:
    return dsv4_iree.load(spec, backend="reference")


def test_paged_logits(load: Load, fuzz: Callable[..., None], target: str) -> None:
    def check(case: Case) -> None:
        spec, arguments = case.tensors()
        scores = load(spec, "paged_mqa_logits").paged_mqa_logits
        logits = scores(**arguments, width=case.width)
        expected = plain(spec).paged_mqa_logits(**arguments, width=case.width)
        assert_logits_close(logits, expected)
        kept = torch.full_like(logits, 55.0)
        scores(**arguments, width=case.width, clean=False, out=kept)
        column = torch.arange(case.width)
        inside = (column >= arguments["start"][:, None]) & (column < arguments["end"][:, None])
        assert_bytes_equal(kept, torch.where(inside, logits, 55.0))

    fuzz(calls(names(target)), check)


def test_index_topk(load: Load, fuzz: Callable[..., None], target: str) -> None:
    """The selection is that of the call's own logits, in every form of ids."""

    def check(case: Case) -> None:
        spec, arguments = case.tensors()
        indexer = load(spec, "paged_mqa_logits", "index_topk")
        logits = indexer.paged_mqa_logits(**arguments)
        start, end = arguments["start"], arguments["end"]
        chosen = indexer.index_topk(**arguments, skip_short=False)
        assert chosen.equal(reference.topk(logits, spec.topk, start, end))
        requests = arguments["row_to_request"]
        if requests is None:
            rows = torch.arange(len(end), dtype=torch.int32)
            requests = rows // (len(end) // len(case.table))
        for ids in ("entry", "slot"):
            expected = reference.as_ids(
                chosen, ids, start, arguments["block_table"], requests, spec
            )
            assert indexer.index_topk(**arguments, skip_short=False, ids=ids).equal(expected)
        short = indexer.index_topk(**arguments)
        assert short.sort(1).values.equal(chosen.sort(1).values)

    chosen_specs = ("n4", "n4 of 64 heads") if target == "cpu" else ("n4 of 64 heads",)
    fuzz(calls(chosen_specs), check)


@st.composite
def rows_of_logits(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(0, 700))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    kind = draw(st.sampled_from(["normal", "levels", "bits", "ladder", "special"]))
    logits = torch.randn(rows, columns, generator=random)
    if kind == "levels":
        logits = torch.randint(draw(st.integers(1, 9)), (rows, columns), generator=random).float()
    elif kind == "bits":  # any float at all, NaN of both signs among them
        low, high = torch.randint(2**16, (2, rows, columns), generator=random, dtype=torch.int32)
        logits = (low | high << 16).view(torch.float32)
        logits[logits.abs() < 2.0**-126] = 0  # CPUs flush subnormals
    elif kind == "ladder":
        logits = (torch.arange(columns, dtype=torch.int32) + 0x3F800000).view(torch.float32)
        logits = logits.repeat(rows, 1)
    elif kind == "special":
        values = torch.tensor([0.0, -0.0, 1.0, INF, -INF, NAN, -NAN])
        logits = values[torch.randint(7, (rows, columns), generator=random)]
    edges = st.sampled_from([MIN, -1, 0, 1, columns - 1, columns, columns + 1, MAX])
    bounds = st.lists(st.one_of(st.integers(-3, columns + 3), edges), min_size=rows, max_size=rows)
    start, end = (torch.tensor(draw(bounds), dtype=torch.int32) for _ in range(2))
    return logits.clone(), start, end, draw(st.sampled_from([8, 16, 64, 256]))


def test_topk(load: Load, fuzz: Callable[..., None], target: str) -> None:
    def check(given: tuple) -> None:
        logits, start, end, k = given
        indexer = load(IndexerSpec(topk=k if target == "cpu" else 8), "topk")
        before, k = logits.clone(), indexer.spec.topk
        chosen = indexer.topk(logits, start, end)
        assert chosen.equal(reference.topk(logits, k, start, end))
        assert_bytes_equal(logits, before)

    fuzz(rows_of_logits(), check)


@st.composite
def writes(draw: st.DrawFn, names: tuple[str, ...]) -> tuple:
    name = draw(st.sampled_from(names))
    pages, columns = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    total = pages * SPECS[name].page_size
    count = draw(st.integers(0, min(total, 70)))
    outside = st.sampled_from([-1, -(2**40), total, total + 1, 2**40])
    where = draw(st.permutations(range(total)))[:count]
    slots = [draw(outside) if draw(st.integers(0, 5)) == 0 else slot for slot in where]
    ids = st.sampled_from([*range(pages), -1, pages, MAX])
    table = draw(st.lists(st.lists(ids, min_size=columns, max_size=columns), min_size=1,
                          max_size=3))  # fmt: skip
    rows = draw(st.lists(st.tuples(
        st.sampled_from([*range(len(table)), -1, len(table)]),
        st.integers(-2, columns * SPECS[name].page_size + 2),
    ), max_size=40))  # fmt: skip
    padding = draw(st.sampled_from([0, 4, 64, 1024]))
    return name, draw(st.integers(0, 2**31)), pages, padding, slots, table, rows


def test_write_and_gather(load: Load, fuzz: Callable[..., None], target: str) -> None:
    def check(given: tuple) -> None:
        name, seed, pages, padding, slots, table, rows = given
        spec, random = SPECS[name], torch.Generator().manual_seed(seed)
        keys = torch.randn(len(slots), spec.head_dim, generator=random)
        at = torch.tensor(slots, dtype=torch.int64)
        storage, expected = (
            torch.full((pages, spec.page_bytes + padding), 0xAB, dtype=torch.uint8)
            for _ in range(2)
        )
        indexer, cache = load(spec, "write_cache", "gather_cache"), storage[:, : spec.page_bytes]
        indexer.write_cache(cache, keys, at)
        reference.write_cache(
            expected[:, : spec.page_bytes], *reference.quantize(keys, spec), at, spec
        )
        assert_bytes_equal(storage, expected)
        pairs = torch.tensor(rows, dtype=torch.int32).view(-1, 2)
        arguments = (cache, torch.tensor(table, dtype=torch.int32),
                     pairs[:, 0].clone(), pairs[:, 1].clone())  # fmt: skip
        for actual, wanted in zip(
            indexer.gather_cache(*arguments), reference.gather_cache(*arguments, spec)
        ):
            assert_bytes_equal(actual, wanted)

    fuzz(writes(names(target)), check)
