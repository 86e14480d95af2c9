"""Fixtures: compiled indexers whose artifacts are built on demand and shared by all workers."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import dsv4_iree
from dsv4_iree import build, emulator
from dsv4_iree.spec import OPS, IndexerSpec

sys.path.append(str(Path(__file__).parent))  # modules that tests share
import on_gpu

with contextlib.suppress(ModuleNotFoundError):  # no test that runs on a GPU needs it
    from hypothesis import settings

    settings.register_profile("ci", derandomize=True, deadline=None, max_examples=40)
    settings.load_profile("ci")
torch.set_num_threads(2)

Load = Callable[..., dsv4_iree.Indexer]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests that take a minute")
    parser.addoption("--fuzz", type=int, default=0, help="random cases of each fuzz test")
    parser.addoption(
        "--artifacts", type=Path, help="folder of built artifacts; no other is built or used"
    )
    parser.addoption(
        "--build-for",
        action="append",
        default=[],
        metavar="TARGET",
        help="build into --artifacts what the cases of this GPU target load, and run them on the "
        "CPU; may be repeated",
    )


@pytest.fixture(scope="session")
def artifacts(pytestconfig: pytest.Config) -> Path:
    """Folder of artifacts made from exactly these sources, unless another is given."""
    if given := pytestconfig.getoption("artifacts"):
        return given.resolve()
    package = Path(dsv4_iree.__file__).parent
    names = ("build", "layout", "manifest", "runtime", "spec")
    kernels = [path for path in package.glob("kernels/**/*") if path.suffix in (".py", ".mlir")]
    sources = [*sorted(kernels), *(package / f"{name}.py" for name in names)]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    return Path(pytestconfig.cache.mkdir(f"artifacts-{digest[:12]}"))


@pytest.fixture(scope="session")
def make(artifacts: Path, pytestconfig: pytest.Config) -> Callable[[str, str, IndexerSpec], Path]:
    """make(target, op, spec): the manifest of that artifact, built once for all workers."""
    given, build_for = map(pytestconfig.getoption, ("artifacts", "build_for"))

    def build_missing(target: str, op: str, spec: IndexerSpec) -> Path:
        targets = [target, "cpu"] if target in build_for else [target]
        jobs = build.plan([op], targets, [spec])
        if not given or build_for:  # else loading says what is missing, and the command for it
            from filelock import FileLock

            artifacts.mkdir(parents=True, exist_ok=True)
            for job in jobs:
                with FileLock(artifacts / f"{job.name.replace('/', '-')}.lock"):
                    if build.missing([job], artifacts):
                        build.build_one(job, artifacts)
        return artifacts / f"{jobs[0].name}.json"

    return build_missing


@pytest.fixture(scope="session")
def folder_of(
    artifacts: Path, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """folder_of(target): where to load from; for a GPU without targets that it would prefer."""

    def linked(target: str) -> Path:
        if target not in on_gpu.targets(pytestconfig) or on_gpu.device(pytestconfig) == "cpu":
            return artifacts
        folder = tmp_path_factory.mktemp(target)
        (folder / target).symlink_to(artifacts / target)
        return folder

    return linked


@pytest.fixture(scope="session")
def indexers(
    make: Callable[[str, str, IndexerSpec], Path],
    folder_of: Callable[[str], Path],
    pytestconfig: pytest.Config,
) -> Callable[[str], Load]:
    """indexers(target)(spec, *ops): with the named ops (default all) built and loaded.

    Those of a GPU take CPU tensors too.
    """

    def of_target(target: str) -> Load:
        folder = folder_of(target)
        device = "cpu" if target == "cpu" else on_gpu.device(pytestconfig)

        def load(spec: IndexerSpec, *ops: str, **options: object) -> dsv4_iree.Indexer:
            ops = ops or tuple(op for op in OPS if op in spec.ops)
            for op in ops:
                make(target, op, spec)
            indexer = dsv4_iree.load(spec, device=device, artifacts=folder, ops=ops, **options)
            return indexer if target == "cpu" else on_gpu.Moved(indexer, device)

        return load

    return of_target


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests marked `gpu` run on the CPU, then on the CUDA GPU, if there is one."""
    if metafunc.definition.get_closest_marker("gpu"):
        forms = ["cpu", *on_gpu.cases(metafunc.config)]
        for name, others in (("compiled", []), ("backend", ["reference"])):
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, [*others, *forms], indirect=True, scope="session")


@pytest.fixture(scope="session")
def compiled(request: pytest.FixtureRequest, indexers: Callable[[str], Load]) -> Load:
    """compiled(spec, *ops): a CPU indexer; in tests marked `gpu` also one of the GPU here."""
    return indexers(getattr(request, "param", "cpu"))


@pytest.fixture(scope="session")
def backend(
    request: pytest.FixtureRequest, reference: Load, indexers: Callable[[str], Load]
) -> Load:
    """backend(spec, *ops): the reference, the CPU's and the GPU's form, one after the other."""
    if request.param == "reference":
        return lambda spec, *ops: reference(spec)
    return indexers(request.param)


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
    config.addinivalue_line("markers", "gpu: a test that also runs on a CUDA GPU")
    config.addinivalue_line("markers", "cuda: a case that runs on the CUDA GPU of this machine")
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
