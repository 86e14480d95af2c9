# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ragged logits on gfx950 by Wave: MLIR that is kept as text, and the function that dispatches it.

tools/generate_wave.py has the kernel's source and writes the text; building needs no Wave. One wave
scores two query rows against a run of keys: eight `v_mfma_scale_f32_32x32x64_f8f6f4` for 64 heads x
64 keys leave half of a key's heads in a lane, so that its sum crosses lanes once.
"""

from __future__ import annotations

from pathlib import Path

from dsv4_iree.kernels import mma, radix, scoring
from dsv4_iree.kernels.entry import Arg, Entry
from dsv4_iree.spec import IndexerSpec

TEXT = Path(__file__).with_name("mlir") / "gfx950" / "mqa_logits_wave.mlir"
NAME = "mqa_logits_wave"
HEADS, ROWS = 64, 2  # that the text was made for; rows of a workgroup
NUMBERS = ("rows", "columns", "clean", "skip", "per_run")
"""The kernel's index arguments, in order."""


def fits(op: str, target: str, spec: IndexerSpec) -> bool:
    """Whether the text serves `op` for `spec` on `target`."""
    natural = spec.is_fp4 and spec.head_dim == 128 and spec.num_heads == HEADS
    return op == "mqa_logits" and target == "gfx950" and natural


def function(entry: Entry, target: str, spec: IndexerSpec) -> str:
    """`@<entry>_pure`, and the kernel that it dispatches."""
    run_length = mma.RUN_LENGTH.format(waves=mma.WAVES[target], block=64, longest=mma.LONGEST_RUN)
    return scoring.function(
        entry,
        spec,
        "wave",
        run_length,
        ("per_run",),
        _executable,
        lambda select: radix.selection(select, target, spec),
    )


def _executable(name: str, operands: tuple[Arg, ...], numbers: tuple[str, ...]) -> str:
    assert (name, numbers) == (NAME, NUMBERS)
    return TEXT.read_text()
