"""Compile the stand-in HIP runtime with the system's C compiler, once per source and machine."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

log = logging.getLogger("dsv4_iree")

LIBRARY = "libamdhip64.so"  # the name that IREE's driver looks for
SOURCES = Path(__file__).resolve().parent
# Contraction would fuse what the hardware rounds twice; fused steps are written out as fma.
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-march=native",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
    "-fPIC",
    "-shared",
    "-pthread",
)


class BuildError(RuntimeError):
    """The emulator could not be compiled."""


def library_path() -> Path:
    """Where the compiled library is, or will be."""
    return _cache_dir() / _key() / LIBRARY


def build() -> Path:
    """Return the compiled library, compiling it first if this machine has not yet.

    The file appears whole or not at all; two processes that build at once do no harm.
    """
    path = library_path()
    if path.exists():
        return path
    compiler = _compiler()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        out = Path(scratch) / LIBRARY
        command = [compiler, *FLAGS, *map(str, _sources(".c")), "-o", str(out), "-lm"]
        log.debug("compiling the emulator: %s", " ".join(command))
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise BuildError(
                f"the emulator did not compile with {compiler}: expected gcc 12 or clang 15"
                f" or later on x86-64\n{' '.join(command)}\n{run.stderr}"
            )
        out.replace(path)
    return path


def _compiler() -> str:
    wanted = os.environ.get("CC", "cc")
    found = shutil.which(wanted)
    if found is None:
        raise BuildError(
            f"the emulator is C source and needs a C compiler: expected {wanted!r} on PATH,"
            " got none; install gcc or clang, or name one in the environment variable CC"
        )
    return found


def _sources(suffix: str) -> list[Path]:
    return sorted(SOURCES.glob(f"*{suffix}"))


def _cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dsv4_iree" / "emulator"


def _key() -> str:
    """Sources, flags and processor: code for one processor may not run on another."""
    digest = hashlib.sha256(" ".join([*FLAGS, platform.machine(), _processor()]).encode())
    for source in [*_sources(".c"), *_sources(".h")]:
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("flags")), "")
