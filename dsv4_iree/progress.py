# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Building with something to look at: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tqdm import tqdm

from dsv4_iree.build import Job, Result, build


def describe(result: Result) -> str:
    """op, target, file, bytes, sha256 and seconds of a built artifact, or its error."""
    artifact, job = result.artifact, result.job
    if artifact is None:
        return result.error
    return (
        f"{job.op:17} {job.target:9} {artifact.file} {artifact.bytes} {artifact.sha256[:12]} "
        f"{result.seconds:.1f}"
    )


def build_visibly(
    jobs: Sequence[Job], out: Path, workers: int, say: Callable[[Result], None]
) -> list[Result]:
    """`build.build`; `say` gets each result, between two drawings of the bar."""
    with tqdm(total=len(jobs), unit="artifact", disable=not sys.stderr.isatty()) as bar:

        def done(result: Result) -> None:
            bar.set_postfix_str(f"{result.job.op} for {result.job.target}")
            bar.update()
            with tqdm.external_write_mode():
                say(result)

        return build(jobs, out, workers=workers, done=done)
