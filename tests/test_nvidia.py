# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The code of the NVIDIA targets: the instructions meant, and nothing in local memory."""

import subprocess

import pytest
import torch

from dsv4_iree import build, reference, runtime
from dsv4_iree.spec import IndexerSpec

FLASH = IndexerSpec()
ROWS = ("quantize", "write_cache", "gather_cache")


def _ptx(job: build.Job, folder) -> str:
    (folder / "module.mlir").write_text(build._mlir(job))
    flags = [*build._flags(job.target), f"--iree-hal-dump-executable-files-to={folder}"]
    command = [build.compiler(), "module.mlir", *flags, "-o", "module.vmfb"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (found,) = folder.glob("*.ptx") if job.op in ROWS else folder.glob("*mma*.ptx")
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


@pytest.mark.parametrize("op", ROWS)
def test_rows_are_converted_two_numbers_at_a_time(tmp_path, op):
    text = _ptx(build.Job(op, "cuda", FLASH), tmp_path)
    assert "fma.rn.bf16x2" in text
    assert "ld.global.nc.v4.b32" in text
    assert ("st.global.v4.b32" in text) or ("st.global.v2.b64" in text)
    assert ".local" not in text


def test_sums_of_bf16_numbers_are_the_codes():
    """128, 130 and 132 and the numbers over the scale, rounded once, as the kernels add them."""
    magnitudes = torch.arange(0x7F80, dtype=torch.int16).view(torch.bfloat16).double()
    for byte in (*range(1, 8), 60, 127, 128, 190, *range(248, 253)):
        scale = 2.0 ** (byte - 127)
        some = magnitudes[(magnitudes <= 6 * scale) & (magnitudes >= 2.0**-6 * scale)]
        # Groups with the largest number of that scale.
        x = torch.nn.functional.pad(some, (0, -len(some) % 31)).view(-1, 31)
        x = torch.cat([x, torch.full((len(x), 1), 6 * scale, dtype=torch.float64)], 1)
        x = torch.nn.functional.pad(x, (0, 0, 0, -len(x) % 4))
        sums = [(x * 2 / scale + 128), (x / scale + 130), (x / 2 / scale + 132)]
        codes = torch.stack(sums).bfloat16().amin(0).int() - 128
        values, scales = reference.quantize(x.view(-1, 128).bfloat16(), FLASH)
        used = x.view(-1, 4, 32)[..., -1] > 0
        assert scales[used].eq(byte).all()
        assert codes.view(-1, 64, 2)[..., 0].eq(values & 15).all()
        assert codes.view(-1, 64, 2)[..., 1].eq(values >> 4).all()
