"""Fixtures: compiled indexers whose artifacts are built on demand and shared by all workers."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from hypothesis import settings

import dsv4_iree
from dsv4_iree import build, emulator
from dsv4_iree.spec import OPS, IndexerSpec

sys.path.append(str(Path(__file__).parent))  # the vectors of test_quantize
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("ci")
torch.set_num_threads(2)

Load = Callable[..., dsv4_iree.Indexer]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests that take a minute")
    parser.addoption("--fuzz", type=int, default=0, help="random cases of each fuzz test")


@pytest.fixture(scope="session")
def artifacts(pytestconfig: pytest.Config) -> Path:
    """Folder of artifacts made from exactly these sources."""
    package = Path(dsv4_iree.__file__).parent
    names = ("build", "layout", "manifest", "runtime", "spec")
    kernels = [path for path in package.glob("kernels/**/*") if path.suffix in (".py", ".mlir")]
    sources = [*sorted(kernels), *(package / f"{name}.py" for name in names)]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    return Path(pytestconfig.cache.mkdir(f"artifacts-{digest[:12]}"))


@pytest.fixture(scope="session")
def make(artifacts: Path) -> Callable[[str, str, IndexerSpec], Path]:
    """make(target, op, spec): the manifest of that artifact, built once for all workers."""

    def build_missing(target: str, op: str, spec: IndexerSpec) -> Path:
        (job,) = build.plan([op], [target], [spec])
        with FileLock(artifacts / f"{job.name.replace('/', '-')}.lock"):
            if build.missing([job], artifacts):
                build.build_one(job, artifacts)
        return artifacts / f"{job.name}.json"

    return build_missing


@pytest.fixture(scope="session")
def compiled(artifacts: Path, make: Callable[[str, str, IndexerSpec], Path]) -> Load:
    """compiled(spec, *ops): a CPU indexer with the named ops (default all) built and loaded."""

    def load(spec: IndexerSpec, *ops: str, **options: object) -> dsv4_iree.Indexer:
        ops = ops or tuple(op for op in OPS if op in spec.ops)
        for op in ops:
            make("cpu", op, spec)
        return dsv4_iree.load(spec, artifacts=artifacts, ops=ops, **options)

    return load


@pytest.fixture(scope="session")
def reference() -> Load:
    """reference(spec): the same ops in plain torch."""
    return lambda spec, **options: dsv4_iree.load(spec, backend="reference", **options)


@pytest.fixture(scope="session")
def least_limit() -> Callable[..., int]:
    """least_limit(load, call): the workspace limit below which `call` of an indexer is refused."""

    def find(load: Load, call: Callable[[dsv4_iree.Indexer], object]) -> int:
        try:
            call(load(workspace_limit=1))
        except dsv4_iree.ArgumentError as error:
            return int(str(error).split("at least ")[1].split()[0])
        return 1

    return find


EXECUTED = pytest.StashKey[dict[str, int]]()
"""Opcodes that emulated programs executed, by mnemonic; workers send theirs to the controller."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[EXECUTED] = {}


@pytest.fixture(scope="session")
def executed_opcodes(pytestconfig: pytest.Config) -> dict[str, int]:
    return pytestconfig.stash[EXECUTED]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["executed"] = session.config.stash[EXECUTED]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    executed = node.config.stash[EXECUTED]
    for name, times in getattr(node, "workeroutput", {}).get("executed", {}).items():
        executed[name] = executed.get(name, 0) + times


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if executed := config.stash[EXECUTED]:
        ranked = sorted(executed.items(), key=lambda item: -item[1])
        terminalreporter.section("emulator: opcodes that compiled programs executed")
        terminalreporter.write_line(f"{len(ranked)}: " + " ".join(f"{n}:{t}" for n, t in ranked))
        terminalreporter.section("emulator: not modelled")
        for line in emulator.NOT_MODELLED:
            terminalreporter.write_line(f"- {line}")
