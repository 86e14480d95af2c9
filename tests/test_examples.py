"""The examples run, and select what plain torch selects."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dsv4_iree.spec import OPS, IndexerSpec

EXAMPLES = Path(__file__).parent.parent / "examples"
FP8 = IndexerSpec(format="fp8", layout="p8")
FP4 = IndexerSpec(rounding="s")
NEEDS = {
    "vllm_rocm_indexer": [(FP8, "write_cache"), (FP8, "paged_mqa_logits"), (FP8, "topk")],
    "sglang_fp4_indexer": [(FP4, op) for op in OPS if op not in ("mqa_logits", "index_topk")],
}


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(NEEDS)


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("name", NEEDS)
def test_example(name: str, backend: str, make, artifacts: Path) -> None:
    if backend == "compiled":
        for spec, op in NEEDS[name]:
            make("cpu", op, spec)
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), "--backend", backend],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "DSV4_IREE_ARTIFACTS": str(artifacts)},
    )
    assert run.returncode == 0, run.stderr
    lines = re.findall(r"(\d+) entries, (\d+) of (\d+) selected", run.stdout)
    assert len(lines) == 3
    for entries, right, count in lines:
        assert right == count
        assert int(count) == min(int(entries), 512)
