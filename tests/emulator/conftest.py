"""Fixtures of the emulator's tests; `tests/conftest.py` reports what was executed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # helpers beside the tests
sys.path.append(str(Path(__file__).parents[1]))  # rows of test_topk

import dsv4_iree
from dsv4_iree import IndexerSpec, emulator

DEVICES = {"gfx942": "hip:0", "gfx950": "hip:1"}


@pytest.fixture(params=["gfx942", "gfx950"])
def target(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def counted(
    executed_opcodes: dict[str, int],
) -> Iterator[Callable[[], list[emulator.Dispatch]]]:
    """Starts from no counts; adds what the test dispatched to the report."""
    emulator.reset_stats()
    yield emulator.stats
    for dispatch in emulator.stats():
        for name, times in dispatch.opcodes.items():
            executed_opcodes[name] = executed_opcodes.get(name, 0) + times
    emulator.reset_stats()
    emulator.configure(seed=0)


@pytest.fixture
def emulated(make, target):
    """emulated(spec, *ops): an indexer on the emulated device of `target`."""
    emulator.enable()

    def load(spec: IndexerSpec, *ops: str) -> dsv4_iree.Indexer:
        for op in ops:
            folder = make(target, op, spec).parents[1]
        return dsv4_iree.load(spec, device=DEVICES[target], artifacts=folder, ops=ops)

    return load


@pytest.fixture
def plain():
    """plain(spec): the same ops in plain torch."""
    return lambda spec: dsv4_iree.load(spec, backend="reference")
