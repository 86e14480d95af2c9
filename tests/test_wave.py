"""The MLIR that is kept as text: it is what its generator makes, and what is dispatched."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dsv4_iree import IndexerSpec
from dsv4_iree.kernels import wave
from dsv4_iree.kernels.forms import form

TOOL = Path(__file__).parents[1] / "tools" / "generate_wave.py"


@pytest.mark.skipif(
    importlib.util.find_spec("wave_lang") is None,
    reason="wave-lang is not installed; tools/generate_wave.py says how it is",
)
def test_the_text_is_what_the_generator_makes():
    command = [sys.executable, str(TOOL), "--check"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]


def test_the_kernel_takes_the_numbers_that_it_is_given():
    (kernel,) = re.findall(rf"func\.func @{wave.NAME}\((.*?)\)", wave.TEXT.read_text())
    kinds = [argument.split(": ")[1] for argument in kernel.split(", ")]
    assert kinds == ["!stream.binding"] * 9 + ["index"] * len(wave.NUMBERS)


def test_what_the_text_was_not_made_for_has_another_form():
    forms = {
        ("mqa_logits", "gfx950", 64): "wave",
        ("mqa_logits", "gfx950", 32): "mma",
        ("mqa_logits", "gfx942", 64): "mma",
        ("paged_mqa_logits", "gfx950", 64): "mma",
        ("index_topk", "gfx950", 64): "mma",
    }
    for (op, target, heads), expected in forms.items():
        assert form(op, target, IndexerSpec(num_heads=heads), "") == expected
    fp8 = IndexerSpec(format="fp8", layout="n8")
    assert form("mqa_logits", "gfx950", fp8, "") == "mma"
