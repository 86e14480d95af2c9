"""Fixtures of the compat modules: their indexers come from artifacts that are built on demand."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import on_gpu
import pytest

import dsv4_iree
from dsv4_iree import compat, emulator
from dsv4_iree.compat import serve
from dsv4_iree.spec import IndexerSpec

sys.path.insert(0, str(Path(__file__).parent))  # the suites beside the tests

EMULATED = {"gfx942": "hip:0", "gfx950": "hip:1"}
Use = Callable[[str], None]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Calls of compat run on the CPU, then on the CUDA GPU, if there is one."""
    gpus = on_gpu.cases(metafunc.config)
    for name, others in (("compat_compiled", ["cpu"]), ("compat_backend", ["reference", "cpu"])):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, [*others, *gpus], indirect=True)


@pytest.fixture
def use(
    make: Callable[[str, str, IndexerSpec], Path],
    folder_of: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> Iterator[Use]:
    """use(target): compat calls run its artifacts, built when an op first needs them."""

    def of_target(target: str) -> None:
        folder = folder_of(target)

        def load(spec: IndexerSpec, *, device: object) -> dsv4_iree.Indexer:
            device = EMULATED.get(target, device)
            indexer = dsv4_iree.load(spec, device=device, artifacts=folder)
            loaded = indexer._caller.module

            def module(op: str) -> object:
                make(target, op, spec)
                return loaded(op)

            indexer._caller.module = module
            return indexer

        monkeypatch.setattr(serve, "load", load)
        if target in on_gpu.targets(pytestconfig):
            for offer in compat.TABLE:
                system = importlib.import_module(f"dsv4_iree.compat.{offer.system}")
                function = getattr(system, offer.function)
                function = on_gpu.moved(function, on_gpu.device(pytestconfig))
                monkeypatch.setattr(system, offer.function, function)

    serve.use()
    yield of_target
    serve.use()


@pytest.fixture
def compat_compiled(request: pytest.FixtureRequest, use: Use) -> None:
    """compat calls run the compiled artifacts of the CPU, then of the GPU."""
    use(request.param)


@pytest.fixture
def compat_backend(request: pytest.FixtureRequest, use: Use) -> None:
    """compat calls run the reference, then the compiled artifacts of the CPU and of the GPU."""
    if request.param == "reference":
        serve.use(backend="reference")
    else:
        use(request.param)


@pytest.fixture(params=list(EMULATED))
def compat_emulated(request: pytest.FixtureRequest, use: Use) -> None:
    """compat calls run the artifacts of an AMD target on the emulator, on CPU tensors."""
    emulator.enable()
    use(request.param)
