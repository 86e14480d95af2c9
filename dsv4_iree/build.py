# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels x targets -> .vmfb, manifest and MLIR. Needs the `build` extra.

Files appear by rename, each with its final content, so a build that is interrupted leaves what was
there before, and two builds at once do not mix.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import iree.runtime as rt

from dsv4_iree import manifest
from dsv4_iree.errors import ArtifactError, BuildError
from dsv4_iree.manifest import Artifact
from dsv4_iree.runtime import artifact_folders, reflection, signatures
from dsv4_iree.spec import IndexerSpec

if TYPE_CHECKING:
    from dsv4_iree.kernels.entry import Entry


@dataclass(frozen=True)
class Job:
    """One artifact to build."""

    op: str
    target: str
    spec: IndexerSpec

    @property
    def name(self) -> str:
        return f"{self.target}/{manifest.stem(self.op, self.spec)}"


@dataclass(frozen=True)
class Result:
    """What became of a job: an artifact or an error text, and the seconds it took."""

    job: Job
    artifact: Artifact | None
    error: str
    seconds: float


def plan(
    ops: Sequence[str], targets: Sequence[str], specs: Sequence[IndexerSpec]
) -> tuple[Job, ...]:
    """Every artifact wanted, once each: specs share those that do not depend on what differs."""
    jobs = {
        job.name: job
        for spec in specs
        for op in ops
        if op in spec.ops
        for target in targets
        for job in (Job(op, target, spec),)
    }
    return tuple(jobs.values())


def missing(jobs: Iterable[Job], out: Path) -> tuple[Job, ...]:
    """The jobs for which `out` holds no fitting artifact with the right hash."""

    def is_missing(job: Job) -> bool:
        path = out / f"{job.name}.json"
        try:
            artifact, _ = manifest.verified_bytes(path)
        except (OSError, ArtifactError):
            return True
        return manifest.reject_reason(artifact, job.op, job.target, job.spec) is not None

    return tuple(job for job in jobs if is_missing(job))


def build(
    jobs: Sequence[Job], out: Path, *, workers: int = 1, done: Callable[[Result], None]
) -> list[Result]:
    """Build all jobs into `out`; one that fails does not stop the others.

    Args:
        jobs: from `plan`.
        out: folder that gets <target>/<name>.{vmfb,json,mlir}.
        workers: processes that compile at the same time.
        done: called with each result as it comes.
    """
    results: list[Result] = []
    # Fresh processes: torch and the compiler own threads that do not survive a fork.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for future in as_completed([pool.submit(_build_one, job, out) for job in jobs]):
            results.append(future.result())
            done(results[-1])
    return results


def build_one(job: Job, out: Path) -> Artifact:
    """Build one job in this process; BuildError with the saved MLIR's path if it fails."""
    text, flags = _mlir(job), _flags(job.target)
    stem = out / job.name
    stem.parent.mkdir(parents=True, exist_ok=True)
    code = _compile(text, flags, stem)
    artifact = Artifact(
        op=job.op,
        abi=manifest.ABI[job.op],
        target=job.target,
        spec=manifest.spec_fields(job.op, job.spec),
        iree=manifest.iree_release("iree-base-compiler"),
        form=_form(job),
        flags=flags,
        cpu=_instruction_sets(job.target),
        functions=signatures(rt.VmModule.copy_buffer(rt.VmInstance(), code)),
        file=f"{stem.name}.vmfb",
        bytes=len(code),
        sha256=hashlib.sha256(code).hexdigest(),
        mlir=f"{stem.name}.mlir",
        mlir_sha256=hashlib.sha256(text.encode()).hexdigest(),
    )
    write_atomically(stem.with_name(artifact.mlir), text.encode())
    write_atomically(stem.with_name(artifact.file), code)
    write_atomically(stem.with_name(f"{stem.name}.json"), artifact.to_json().encode())
    return artifact


def write_atomically(path: Path, content: bytes) -> None:
    """`path` holds either its old or its new content, never a part."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _build_one(job: Job, out: Path) -> Result:
    began = time.perf_counter()
    try:
        artifact, error = build_one(job, out), ""
    except BuildError as failure:
        artifact, error = None, str(failure)
    except Exception as failure:  # a full disk, say, must not end the builds beside this one
        artifact, error = None, f"{job.name}: {type(failure).__name__}: {failure}"
    return Result(job, artifact, error, time.perf_counter() - began)


def _mlir(job: Job) -> str:
    from dsv4_iree.kernels.entry import to_mlir
    from dsv4_iree.kernels.targets import MODULE

    numbers = manifest.spec_fields(job.op, job.spec)
    facts = reflection(job.op, job.target, manifest.ABI[job.op], numbers)
    try:
        return to_mlir(*_functions(job), facts, MODULE.get(job.target, ""))
    except Exception as error:
        raise BuildError(f"{job.name}: export failed: {error}") from error


def _instruction_sets(target: str) -> str:
    if target == "cpu-generic":
        return "x86_64 avx avx2 bmi1 bmi2 f16c fma"
    return manifest.host_cpu() if target == "cpu" else ""


def _form(job: Job) -> str:
    from dsv4_iree.kernels.forms import form

    return form(job.op, job.target, job.spec, manifest.host_cpu())


def _functions(job: Job) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """The entries of the job's op and the functions they call."""
    from dsv4_iree.kernels.forms import function, offers

    form = _form(job)
    entries = tuple(
        entry for entry in _entries(job.op, job.spec) if offers(entry, job.target, job.spec, form)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.export's own deprecations, not ours to mend
        return entries, tuple(function(e, job.target, job.spec, form) for e in entries)


@lru_cache(maxsize=4)
def _entries(op: str, spec: IndexerSpec) -> tuple[Entry, ...]:
    """The same objects for every target, so that a portable function is exported once."""
    from dsv4_iree.kernels import KERNELS

    return next(kernel for kernel in KERNELS if kernel.op == op).entries(spec)


def _flags(target: str) -> tuple[str, ...]:
    from dsv4_iree.kernels.targets import COMMON, FLAGS

    return (*COMMON, *FLAGS[target])


def _compile(text: str, flags: tuple[str, ...], stem: Path) -> bytes:
    """The compiled module; on failure the MLIR stays at `stem`.failed.mlir."""
    with tempfile.TemporaryDirectory() as folder:
        # Relative names: the source's path becomes part of the artifact.
        (Path(folder) / "module.mlir").write_text(text)
        command = [compiler(), "module.mlir", *flags, "-o", "module.vmfb"]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if run.returncode == 0:
            return (Path(folder) / "module.vmfb").read_bytes()
    failed = stem.with_name(f"{stem.name}.failed.mlir")
    write_atomically(failed, text.encode())
    again = " ".join(["iree-compile", str(failed), *flags, "-o", f"{stem}.vmfb"])
    lines = [line for line in run.stderr.splitlines() if "error:" in line][:3]
    raise BuildError(
        f"{stem.name}: iree-compile failed\n"
        + "\n".join(f"  {line}" for line in lines or run.stderr.splitlines()[-3:])
        + f"\n  MLIR: {failed}\n  again: {again}"
    )


def compiler() -> str:
    """Path of iree-compile, the one installed beside this Python."""
    beside = Path(sys.executable).with_name("iree-compile")
    if beside.exists():
        return str(beside)
    raise BuildError(f"iree-compile: not found at {beside}; pip install 'dsv4_iree[build]'")


def default_out() -> Path:
    """Where builds go unless told otherwise: the first folder that loading looks at."""
    return artifact_folders()[0]
