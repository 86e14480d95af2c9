"""Fixtures of the compat modules: their indexers come from artifacts that are built on demand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dsv4_iree
from dsv4_iree import emulator
from dsv4_iree.compat import serve
from dsv4_iree.spec import IndexerSpec

sys.path.insert(0, str(Path(__file__).parent))  # the suites beside the tests

EMULATED = {"gfx942": "hip:0", "gfx950": "hip:1"}
Make = Callable[[str, str, IndexerSpec], Path]


def on_demand(target: str, artifacts: Path, make: Make) -> Callable[..., dsv4_iree.Indexer]:
    """`dsv4_iree.load` for compat.serve whose artifacts are built when an op first needs them."""

    def load(spec: IndexerSpec, *, device: object) -> dsv4_iree.Indexer:
        indexer = dsv4_iree.load(spec, device=EMULATED.get(target, "cpu"), artifacts=artifacts)
        loaded = indexer._caller.module

        def module(op: str) -> object:
            make(target, op, spec)
            return loaded(op)

        indexer._caller.module = module
        return indexer

    return load


@pytest.fixture
def compat_on_cpu(artifacts: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """compat calls run the compiled CPU artifacts."""
    monkeypatch.setattr(serve, "load", on_demand("cpu", artifacts, make))
    serve.use()
    yield
    serve.use()


@pytest.fixture(params=["compiled", "reference"])
def compat_backend(
    request: pytest.FixtureRequest, artifacts: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """compat calls run the compiled CPU artifacts, then the reference."""
    serve.use()
    if request.param == "compiled":
        monkeypatch.setattr(serve, "load", on_demand("cpu", artifacts, make))
    else:
        serve.use(backend="reference")
    yield request.param
    serve.use()


@pytest.fixture(params=["gfx942", "gfx950"])
def compat_emulated(
    request: pytest.FixtureRequest, artifacts: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """compat calls run the artifacts of an AMD target on the emulator, on CPU tensors."""
    emulator.enable()
    monkeypatch.setattr(serve, "load", on_demand(request.param, artifacts, make))
    serve.use()
    yield request.param
    serve.use()
