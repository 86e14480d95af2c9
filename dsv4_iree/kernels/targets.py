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
}

COMMON = (
    "--iree-input-type=none",
    # Entry points take a fence to wait for and one to signal.
    "--iree-execution-model=async-external",
)
