"""What is checked before an artifact is run: each kind of damage has its own words."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import dsv4_iree
from dsv4_iree import ArtifactError, IndexerSpec, build, manifest, runtime
from dsv4_iree.spec import OPS, SPECS
from dsv4_iree.verify import verify

SPEC = IndexerSpec(topk=8)
NAME = "topk-k8"


@pytest.fixture(scope="module")
def good(make) -> Path:
    """Folder with one artifact, and whatever else was built."""
    return make("cpu", "topk", SPEC).parents[1]


@pytest.fixture
def folder(good, tmp_path) -> Path:
    """A copy of one artifact that a test may damage."""
    (tmp_path / "cpu").mkdir()
    for suffix in ("vmfb", "json", "mlir"):
        shutil.copy(good / "cpu" / f"{NAME}.{suffix}", tmp_path / "cpu")
    return tmp_path


def edit(folder: Path, **changes: object) -> None:
    path = folder / "cpu" / f"{NAME}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def refuses(folder: Path, words: str, spec: IndexerSpec = SPEC) -> None:
    with pytest.raises(ArtifactError, match=re.escape(words)):
        dsv4_iree.load(spec, artifacts=folder, ops=["topk"])


def test_an_undamaged_copy_runs(folder):
    indexer = dsv4_iree.load(SPEC, artifacts=folder, ops=["topk"])
    end = torch.tensor([3], dtype=torch.int32)
    assert indexer.topk(torch.tensor([[1.0, 3.0, 2.0, 9.0]]), None, end)[0, :4].tolist() == [
        1, 2, 0, -1,
    ]  # fmt: skip


def test_a_flipped_bit_is_found(folder):
    path = folder / "cpu" / f"{NAME}.vmfb"
    code = bytearray(path.read_bytes())
    code[len(code) // 2] ^= 1
    path.write_bytes(code)
    digest = json.loads((folder / "cpu" / f"{NAME}.json").read_text())["sha256"]
    refuses(folder, f"{NAME}.vmfb: expected sha256 {digest[:12]}, got ")


def test_a_file_cut_short_is_found(folder):
    path = folder / "cpu" / f"{NAME}.vmfb"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-8])
    refuses(
        folder,
        f"{NAME}.vmfb: expected {size} bytes, got {size - 8}; "
        "the file is cut short or was replaced, rebuild it",
    )


def test_an_artifact_without_its_code_is_found(folder):
    (folder / "cpu" / f"{NAME}.vmfb").unlink()
    refuses(folder, f"{NAME}.vmfb: missing beside {NAME}.json; rebuild the artifact")


CHANGES = {
    "another release": ({"iree": "3.9"}, "compiled with IREE 3.9, the runtime is 3.13"),
    "an older abi": ({"abi": 0}, "abi is 0, need 3"),
    "another target": ({"target": "gfx942"}, "target is gfx942, need cpu"),
    "another k": ({"spec": {"topk": 9}}, "topk is 9, need 8"),
    "another op": ({"op": "quantize"}, "op is quantize, need topk"),
    "a CPU this is not": ({"cpu": "x86_64 avx1024"}, "needs a CPU with avx1024"),
    "another format": ({"format": 9}, f"{NAME}.json: expected manifest format 2; rebuild"),
    "a field too many": ({"extra": 1}, f"{NAME}.json: unknown field 'extra'; rebuild"),
    "a path": ({"file": "../x.vmfb"}, "file: expected a file name, got '../x.vmfb'"),
    "text for a number": ({"bytes": "7"}, "bytes: expected int, got '7'; rebuild the artifact"),
}


@pytest.mark.parametrize(("changes", "words"), CHANGES.values(), ids=CHANGES)
def test_a_manifest_that_does_not_fit_says_why(folder, changes, words):
    edit(folder, **changes)
    refuses(folder, f"no artifact for topk on cpu. Looked at:\n  cpu/{NAME}.json: ")
    refuses(folder, words)


def test_a_manifest_that_is_not_json_says_so(folder):
    (folder / "cpu" / f"{NAME}.json").write_text("{")
    refuses(folder, f"{NAME}.json: not JSON (")


def test_a_manifest_of_another_size_is_not_read(folder):
    (folder / "cpu" / f"{NAME}.json").write_text(" " * 70000)
    refuses(folder, f"{NAME}.json: manifest of 70000 bytes, at most 65536 are read")


def _replace_code(folder: Path, code: bytes, **changes: object) -> None:
    import hashlib

    (folder / "cpu" / f"{NAME}.vmfb").write_bytes(code)
    edit(folder, bytes=len(code), sha256=hashlib.sha256(code).hexdigest(), **changes)


def test_bytes_that_are_no_module_are_refused_although_the_hash_fits(folder):
    _replace_code(folder, b"not a module at all" * 10)
    refuses(folder, f"{NAME}.vmfb: not an IREE module (")


def test_a_module_of_another_op_is_refused_although_the_hash_fits(folder, good, make):
    make("cpu", "dequantize", SPEC)
    _replace_code(folder, (good / "cpu" / "dequantize-d128-fp4.vmfb").read_bytes())
    refuses(folder, f"{NAME}.vmfb: expected the function async func @topk(")


def test_a_module_of_another_k_is_refused_although_the_hash_fits(folder, good, make):
    other = IndexerSpec(topk=16)
    make("cpu", "topk", other)
    declared = json.loads((good / "cpu" / "topk-k16.json").read_text())["functions"]
    _replace_code(folder, (good / "cpu" / "topk-k16.vmfb").read_bytes(), functions=declared)
    refuses(
        folder, f"{NAME}.vmfb: the manifest says dsv4.spec = topk=8, the module topk=16; rebuild"
    )


def test_a_module_for_another_target_is_refused_although_manifest_and_hash_fit(folder, good, make):
    make("gfx942", "topk", SPEC)
    declared = json.loads((good / "gfx942" / f"{NAME}.json").read_text())["functions"]
    code = (good / "gfx942" / f"{NAME}.vmfb").read_bytes()
    _replace_code(folder, code, functions=declared)
    refuses(folder, "the manifest says dsv4.target = cpu, the module gfx942; rebuild the artifact")


def test_a_gpu_module_does_not_start_on_the_cpu(good, tmp_path, make):
    """Past all other checks, IREE's own refusal is turned into one line that names both."""
    make("gfx942", "topk", SPEC)
    path = good / "gfx942" / f"{NAME}.json"
    with pytest.raises(ArtifactError, match="made for gfx942, which local-task does not run"):
        runtime.Module(path, runtime.open_device("cpu"))


def test_artifacts_say_inside_what_their_manifest_says(good):
    artifact, code = manifest.verified_bytes(good / "cpu" / f"{NAME}.json")
    module = runtime.parse_module(artifact, code)
    facts = module.lookup_function("topk").reflection
    assert facts["dsv4.op"] == "topk"
    assert facts["dsv4.spec"] == "topk=8"
    assert "tensor<?x8xi32> {iree.abi.output = 0 : index}" in facts["iree.abi.declaration"]


def test_every_random_bit_flip_is_refused(folder):
    path = folder / "cpu" / f"{NAME}.vmfb"
    code = path.read_bytes()
    for bit in torch.randint(len(code) * 8, (25,), generator=torch.Generator().manual_seed(0)):
        flipped = bytearray(code)
        flipped[int(bit) // 8] ^= 1 << int(bit) % 8
        path.write_bytes(flipped)
        refuses(folder, "the file was changed, rebuild it")


@pytest.mark.parametrize("target", ["cpu", "gfx942", "gfx950", "cuda"])
@pytest.mark.parametrize("op", OPS)
def test_every_op_builds_for_every_target(artifacts, op, target, make):
    for spec in (SPECS["flash"], SPECS["pro"]):
        make(target, op, spec)
    for verdict in verify([artifacts], [target]):
        assert verdict.hash == verdict.signature == "ok", verdict


def test_an_artifact_for_any_x86_64_serves_where_none_is_for_this_cpu(make, tmp_path):
    targets = runtime.open_device("cpu").targets
    shutil.copytree(make("cpu-generic", "topk", SPEC).parent, tmp_path / "cpu-generic")
    generic = manifest.choose([tmp_path], "topk", targets, SPEC)
    assert runtime.Module(generic, runtime.open_device("cpu")).functions
    assert manifest.read(generic).target == "cpu-generic"
    shutil.copytree(make("cpu", "topk", SPEC).parent, tmp_path / "cpu")
    assert manifest.choose([tmp_path], "topk", targets, SPEC).parent.name == "cpu"


def test_known_answers_of_the_cpu_artifacts(artifacts, make):
    for op in OPS:
        make("cpu", op, SPECS["flash"])
    names = {f"cpu/{manifest.stem(op, SPECS['flash'])}.vmfb" for op in OPS}
    verdicts = {v.file: v for v in verify([artifacts], ["cpu"]) if v.file in names}
    assert verdicts.keys() == names
    for verdict in verdicts.values():
        assert verdict.answer == "ok", verdict


def test_verify_reports_damage(folder):
    (folder / "cpu" / f"{NAME}.vmfb").write_bytes(b"")
    (verdict,) = verify([folder], ["cpu"])
    assert not verdict.ok
    assert "cut short" in verdict.hash


def test_a_rebuild_gives_the_same_bytes_in_another_process(good, tmp_path):
    command = (
        "from pathlib import Path; from dsv4_iree import build; from dsv4_iree.spec import *; "
        "job, = build.plan(['topk'], ['cpu'], [IndexerSpec(topk=8)]); "
        f"print(build.build_one(job, Path({str(tmp_path)!r})).sha256)"
    )
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", command], capture_output=True, text=True, check=True
    )
    assert run.stdout.split()[-1] == manifest.read(good / "cpu" / f"{NAME}.json").sha256


def test_a_failed_compile_leaves_the_mlir_and_the_command(tmp_path, monkeypatch):
    (job,) = build.plan(["topk"], ["cpu"], [SPEC])
    monkeypatch.setattr(build, "_mlir", lambda job: "module { broken }")
    with pytest.raises(dsv4_iree.BuildError) as caught:
        build.build_one(job, tmp_path)
    saved = tmp_path / "cpu" / f"{NAME}.failed.mlir"
    assert saved.read_text() == "module { broken }"
    assert f"MLIR: {saved}" in str(caught.value)
    assert f"again: iree-compile {saved} --iree-input-type=none" in str(caught.value)
    assert sorted(p.name for p in (tmp_path / "cpu").iterdir()) == [saved.name]


def test_one_failure_does_not_end_the_other_builds(tmp_path):
    (tmp_path / "gfx942").write_text("a file where a folder should be")
    jobs = build.plan(["dequantize"], ["gfx942", "cpu"], [SPEC])
    results = {r.job.target: r for r in build.build(jobs, tmp_path, workers=1, done=lambda r: None)}
    assert "FileExistsError" in results["gfx942"].error
    assert results["cpu"].artifact
    assert (tmp_path / "cpu" / "dequantize-d128-fp4.vmfb").is_file()


def test_specs_share_the_artifacts_that_do_not_depend_on_what_differs():
    jobs = build.plan(OPS, ["cpu"], [SPECS["flash"], SPECS["pro"]])
    assert len(jobs) == len(OPS) + 2
