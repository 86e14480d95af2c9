# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What differs per target: the flags of iree-compile."""

from __future__ import annotations

FLAGS: dict[str, tuple[str, ...]] = {
    "cpu": (
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=host",
    ),
    "cpu-generic": (
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=x86-64-v3",
    ),
    "gfx942": ("--iree-hal-target-device=hip", "--iree-rocm-target=gfx942"),
    "gfx950": ("--iree-hal-target-device=hip", "--iree-rocm-target=gfx950"),
    "cuda": ("--iree-hal-target-device=cuda", "--iree-cuda-target=sm_80"),
    "cuda-sm89": ("--iree-hal-target-device=cuda", "--iree-cuda-target=sm_89"),
    "cuda-sm90": (),
}

# Hopper's own instructions need sm_90a, which iree-compile has no name for.
_SM90A = """\
#iree_gpu.target<arch = "sm_90a", features = "+ptx80", wgp = <
    compute = fp64|fp32|fp16|int64|int32|int16|int8, storage = b64|b32|b16|b8,
    subgroup = shuffle|arithmetic, dot = dp4xi8toi32,
    mma = [<NV_MMA_SYNC_F32_16x8x16_F16>, <NV_MMA_SYNC_F32_16x8x16_BF16>],
    subgroup_size_choices = [32], max_workgroup_sizes = [1024, 1024, 1024],
    max_thread_count_per_workgroup = 1024, max_workgroup_memory_bytes = 232448,
    max_workgroup_counts = [2147483647, 65535, 65535]>>"""
MODULE: dict[str, str] = {
    "cuda-sm90": f"""\
hal.device.targets = [#hal.device.target<"cuda", [
    #hal.executable.target<"cuda", "cuda-nvptx-fb", {{iree_codegen.target_info = {_SM90A}}}>]>]""",
}
"""Attributes of the module, where a target has no flag."""

COMMON = (
    "--iree-input-type=none",
    # Entry points take a fence to wait for and one to signal.
    "--iree-execution-model=async-external",
)
