"""The emulated AMD devices, for faults that can occur there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import dsv4_iree
from dsv4_iree import emulator
from dsv4_iree.spec import IndexerSpec

DEVICES = {"gfx942": "hip:0", "gfx950": "hip:1"}


@pytest.fixture(params=list(DEVICES))
def on_amd(request: pytest.FixtureRequest, make) -> Callable[..., dsv4_iree.Indexer]:
    """on_amd(spec, *ops): the artifacts of one AMD target, executed on the emulator."""
    emulator.enable()

    def load(spec: IndexerSpec, *ops: str) -> dsv4_iree.Indexer:
        for op in ops:
            folder = make(request.param, op, spec).parents[1]
        return dsv4_iree.load(spec, device=DEVICES[request.param], artifacts=folder, ops=ops)

    return load
