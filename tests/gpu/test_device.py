"""Which GPU the tests of this folder and those marked `gpu` ran on."""

from __future__ import annotations

import on_gpu
import pytest

from dsv4_iree import runtime


@pytest.mark.cuda
def test_there_is_a_gpu_and_its_best_code_was_tested(pytestconfig: pytest.Config) -> None:
    targets = on_gpu.targets(pytestconfig)
    if not targets or on_gpu.device(pytestconfig) == "cpu":
        pytest.skip("no CUDA GPU: nothing ran on one")
    assert runtime.open_device("cuda").targets[0] == targets[0]
    assert targets[-1] == "cuda"
