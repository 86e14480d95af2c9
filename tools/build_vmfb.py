#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compile the kernels to .vmfb artifacts, each with a manifest and its MLIR beside it.

    python tools/build_vmfb.py --target gfx942 gfx950 cpu --spec flash pro
    python tools/build_vmfb.py --target cpu --op topk --spec topk=2048 --out build/
    python tools/build_vmfb.py --target cpu --list

Progress goes to stderr; one line per artifact to stdout: op, target, file, bytes, sha256, seconds.
Exit code: 0 all built, 1 a compile failed or a check found a difference, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from dsv4_iree import manifest
from dsv4_iree.build import Job, Result, default_out, missing, plan
from dsv4_iree.errors import ArtifactError, IndexerError
from dsv4_iree.progress import build_visibly, describe
from dsv4_iree.spec import OPS, SPECS, TARGETS, IndexerSpec


def parse_spec(text: str) -> IndexerSpec:
    """A model's name, or numbers: "num_heads=32,page_size=128,format=fp8,layout=n8"."""
    if text in SPECS:
        return SPECS[text]
    numbers: dict[str, int | str | bool] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if name not in IndexerSpec.__dataclass_fields__ or not equals:
            known = ", ".join([*SPECS, *(f"{f}=..." for f in IndexerSpec.__dataclass_fields__)])
            raise argparse.ArgumentTypeError(f"{part!r} is none of {known}")
        bools = {"True": True, "true": True, "False": False, "false": False}
        numbers[name] = int(value) if value.isdigit() else bools.get(value, value)
    if str(numbers.get("format", "")).startswith("fp8"):
        numbers.setdefault("layout", "n8")
    try:
        return IndexerSpec(**numbers)  # type: ignore[arg-type]
    except IndexerError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=["cpu"])
    parser.add_argument("--op", nargs="+", choices=OPS, default=list(OPS))
    parser.add_argument(
        "--spec",
        nargs="+",
        type=parse_spec,
        default=[SPECS["flash"]],
        metavar="SPEC",
        help="flash, pro, v41 or field=value,... (default flash)",
    )
    parser.add_argument("--out", type=Path, default=default_out(), help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=2, help="compiles at a time (default 2)")
    parser.add_argument("--list", action="store_true", help="print what would be built")
    parser.add_argument("--check", action="store_true", help="build again and compare the hashes")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    jobs = plan(args.op, args.target, args.spec)
    if args.list:
        absent = set(missing(jobs, args.out))
        for job in jobs:
            state = "missing" if job in absent else "built"
            print(f"{job.op:17} {job.target:9} {state:8} {args.out / job.name}.vmfb")
        return 0
    if args.check:
        with tempfile.TemporaryDirectory() as folder:
            failed = _run(jobs, Path(folder), args.jobs, quiet=True)
            return max(failed, _compare(jobs, args.out, Path(folder)))
    return _run(jobs, args.out, args.jobs, quiet=False)


def _run(jobs: tuple[Job, ...], out: Path, workers: int, *, quiet: bool) -> int:
    """Build; print the result lines unless `quiet`, and errors always."""

    def say(result: Result) -> None:
        if result.artifact is None:
            print(describe(result), file=sys.stderr)
        elif not quiet:
            print(describe(result), flush=True)

    results = build_visibly(jobs, out, workers, say)
    return int(any(result.artifact is None for result in results))


def _compare(jobs: tuple[Job, ...], out: Path, again: Path) -> int:
    """Print for each job whether the artifact in `out` is the one just built in `again`."""
    differ = 0
    for job in jobs:
        try:
            new = manifest.read(again / f"{job.name}.json").sha256
            old = manifest.verified_bytes(out / f"{job.name}.json")[0].sha256
        except (OSError, ArtifactError) as error:
            verdict = f"not compared: {error}"
        else:
            verdict = "same" if new == old else f"differs: {old[:12]}, rebuilt {new[:12]}"
        differ |= verdict != "same"
        print(f"{job.op:17} {job.target:9} {job.name}.vmfb {verdict}")
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
