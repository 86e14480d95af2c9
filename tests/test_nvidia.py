# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The code of the NVIDIA targets: the instructions meant, and nothing in local memory."""

import subprocess

import pytest

from dsv4_iree import build, runtime
from dsv4_iree.spec import IndexerSpec

FLASH = IndexerSpec()


def _ptx(job: build.Job, folder) -> str:
    (folder / "module.mlir").write_text(build._mlir(job))
    flags = [*build._flags(job.target), f"--iree-hal-dump-executable-files-to={folder}"]
    command = [build.compiler(), "module.mlir", *flags, "-o", "module.vmfb"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (found,) = folder.glob("*mma*.ptx")
    return found.read_text()


# Two rows at a time, or, in paged calls, one row alone or two of a request.
@pytest.mark.parametrize("op,rows", [("mqa_logits", 2), ("paged_mqa_logits", 1 + 2)])
@pytest.mark.parametrize("heads", [64, 32, 8])
def test_hopper_scores_a_block_in_products_of_a_warpgroup(tmp_path, op, rows, heads):
    text = _ptx(build.Job(op, "cuda-sm90", IndexerSpec(num_heads=heads)), tmp_path)
    assert ".target sm_90a" in text
    # 4 steps for 64 of a block's 128 keys and all heads of a row.
    product = f"wgmma.mma_async.sync.aligned.m64n{heads}k32.f32.e4m3.e4m3"
    assert text.count("wgmma.mma_async") == text.count(product) == 4 * 2 * rows
    assert "cp.async.cg.shared.global" in text
    assert ".local" not in text
    assert ".maxnreg 128" in text


@pytest.mark.parametrize("op", ["mqa_logits", "paged_mqa_logits"])
def test_sm_80_scores_with_int8_products(tmp_path, op):
    text = _ptx(build.Job(op, "cuda", FLASH), tmp_path)
    assert ".target sm_80" in text
    assert "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32" in text
    assert "ld.global.nc.v4.b32" in text
    assert ".local" not in text


def test_hopper_code_is_preferred_on_hopper_alone():
    assert runtime.cuda_targets(80) == ("cuda",)
    assert runtime.cuda_targets(89) == ("cuda-sm89", "cuda")
    assert runtime.cuda_targets(90) == ("cuda-sm90", "cuda-sm89", "cuda")
    assert runtime.cuda_targets(100) == ("cuda-sm89", "cuda")
