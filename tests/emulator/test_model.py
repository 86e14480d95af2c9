"""tools/model.py: counts of an emulated part, scaled to the shape that was asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from dsv4_iree.spec import SPECS

TOOL = Path(__file__).parents[2] / "tools" / "model.py"


def test_modelled_times_scale_with_rows_and_say_that_they_are_modelled(make, target):
    folder = make(target, "mqa_logits", SPECS["flash"]).parents[1]
    shapes = []
    for rows in ("16384", "32768"):
        command = [sys.executable, str(TOOL), "--target", target, "--op", "mqa_logits", "--json"]
        command += ["--rows", rows, "--keys", "4096", "--artifacts", str(folder)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        shapes.append(json.loads(run.stdout))
    few, many = shapes
    assert few["modelled"] is True
    assert few["chip"] == {"gfx942": "MI300X", "gfx950": "MI355X"}[target]
    for name in ("matrix", "vector"):
        assert abs(many["resources"][name] / few["resources"][name] - 2) < 0.02
    assert few["microseconds"] == max(few["resources"].values())
    # One scaled MFMA stands for 32,768 multiply-adds, and 64 heads of 128 dims go into a logit.
    assert 0 < few["petaflops"] < 10.1
