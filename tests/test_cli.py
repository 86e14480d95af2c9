"""The commands as a person or a script calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dsv4_iree.spec import OPS, SPECS, IndexerSpec

ROOT = Path(__file__).parents[1]


def run(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_info_as_json_names_versions_devices_and_artifacts(make):
    folder = make("cpu", "topk", IndexerSpec(topk=8)).parents[1]
    report = json.loads(run("-m", "dsv4_iree", "info", "--json", "--artifacts", folder).stdout)
    assert report["packages"]["iree-base-runtime"].startswith("3.13.")
    assert report["devices"]["cpu"] == "cpu"
    assert {"target": "cpu", "file": "topk-k8", "folder": str(folder)} in report["artifacts"]


def test_info_for_people_has_a_line_per_artifact(make):
    folder = make("cpu", "topk", IndexerSpec(topk=8)).parents[1]
    text = run("-m", "dsv4_iree", "info", "--artifacts", folder).stdout
    lines = [line.split() for line in text.splitlines()]
    releases = dict(line[:2] for line in lines if len(line) == 2)
    assert releases["iree-base-runtime"].startswith("3.13.")
    assert ["cpu", "topk-k8"] in lines


def test_verify_fails_on_damage_and_names_it(make, tmp_path):
    folder = tmp_path / "cpu"
    folder.mkdir()
    good = make("cpu", "topk", IndexerSpec(topk=8))
    for suffix in (".json", ".mlir", ".vmfb"):
        (folder / f"topk-k8{suffix}").write_bytes(good.with_suffix(suffix).read_bytes())
    report = json.loads(run("-m", "dsv4_iree", "verify", "--json", "--artifacts", tmp_path).stdout)
    assert report["ok"]
    assert report["artifacts"][0]["answer"] == "ok"
    (folder / "topk-k8.vmfb").write_bytes(b"x")
    text = run("-m", "dsv4_iree", "verify", "--artifacts", tmp_path, code=1).stdout
    assert "the file is cut short or was replaced" in text
    assert "0 of 1 artifacts are right" in text


def test_verify_of_nothing_is_no_success(tmp_path):
    run("-m", "dsv4_iree", "verify", "--artifacts", tmp_path, code=1)


def test_demo_selects_what_torch_selects(make):
    for model in ("flash", "pro"):
        for target in ("cpu", "gfx942", "gfx950"):
            for op in OPS:
                folder = make(target, op, SPECS[model]).parents[1]
    report = json.loads(run("-m", "dsv4_iree", "demo", "--json", "--artifacts", folder).stdout)
    assert report["ids_equal"] is True
    assert report["eager_overlap_512"] >= 0.999
    assert report["eager_overlap_1024"] >= 0.999
    assert 0.8 < report["overlap_512"] < 1
    assert 0.8 < report["overlap_1024"] < 1
    assert report["compiled_ms"] > 0
    assert report["eager_ms"] > 0
    assert len(report["artifacts"]) == 33


def test_build_lists_without_building(tmp_path):
    arguments = ("tools/build_vmfb.py", "--list", "--spec", "flash", "pro", "--out", tmp_path)
    lines = run(*arguments, "--target", "cpu", "gfx950").stdout.splitlines()
    assert len(lines) == 2 * (len(OPS) + 2)  # two ops differ between the specs
    assert lines[0].split()[:3] == ["quantize", "cpu", "missing"]
    assert not list(tmp_path.iterdir())


def test_build_and_check_an_artifact(tmp_path):
    arguments = ("tools/build_vmfb.py", "--op", "dequantize", "--out", tmp_path)
    (line,) = run(*arguments).stdout.splitlines()
    op, target, file, size, sha256, _ = line.split()
    assert (op, target, file) == ("dequantize", "cpu", "dequantize-d128-fp4.vmfb")
    assert int(size) == (tmp_path / "cpu" / file).stat().st_size
    manifest = json.loads((tmp_path / "cpu" / "dequantize-d128-fp4.json").read_text())
    assert manifest["sha256"].startswith(sha256)
    assert run(*arguments, "--check").stdout.split()[-1] == "same"
    (tmp_path / "cpu" / file).write_bytes(b"x")
    assert "not compared" in run(*arguments, "--check", code=1).stdout


def test_build_refuses_a_spec_that_cannot_be():
    done = run("tools/build_vmfb.py", "--spec", "num_heads=0", code=2)
    assert "num_heads: expected an int in [1, 128], got 0" in done.stderr
    done = run("tools/build_vmfb.py", "--spec", "heads=3", code=2)
    assert "'heads=3' is none of flash, pro, v41, num_heads=..." in done.stderr


def test_bench_prints_one_object_per_line(make):
    folder = make("cpu", "topk", SPECS["flash"]).parents[1]
    arguments = ("--op", "topk", "--rows", 2, "--keys", 700, "--rounds", 1, "--peers", "eager")
    done = run("tools/bench.py", *arguments, "--json", "--artifacts", folder)
    (row,) = map(json.loads, done.stdout.splitlines())
    assert (row["op"], row["target"], row["rows"], row["keys"]) == ("topk", "cpu", 2, 700)
    assert row["speedup_vs_eager"] > 0
    assert row["ms"] > 0


def test_bench_sets_index_topk_against_its_logits(make):
    for op in ("quantize", "paged_mqa_logits", "index_topk"):
        folder = make("cpu", op, SPECS["flash"]).parents[1]
    arguments = ("--op", "index_topk", "--rows", 4, "--keys", 700, "--requests", 1, "--rounds", 1)
    done = run("tools/bench.py", *arguments, "--json", "--artifacts", folder)
    row = json.loads(done.stdout)
    assert row["requests"] == 1
    assert row["of_logits"] == pytest.approx(row["ms"] / row["logits_ms"], abs=1e-3)
    assert row["scratch_mib"] > 0
    assert "eager_ms" not in row
