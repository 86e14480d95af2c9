"""Kernels at sizes that a CUDA GPU runs; what it also runs of other folders is marked `gpu`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import on_gpu
import pytest

import dsv4_iree


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without a GPU, test_device.py says so once."""
    needs = collection_path.name.startswith("test_") and collection_path.name != "test_device.py"
    return True if needs and not on_gpu.targets(config) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "gpu" in metafunc.fixturenames:
        gpus = on_gpu.cases(metafunc.config)
        metafunc.parametrize("gpu", gpus, indirect=True, scope="session")


@pytest.fixture(scope="session")
def gpu(request: pytest.FixtureRequest, indexers: Callable) -> Callable[..., dsv4_iree.Indexer]:
    """gpu(spec, *ops): an indexer of one target of the GPU, for CPU tensors."""
    return indexers(request.param)
