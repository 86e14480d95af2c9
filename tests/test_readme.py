"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()


def block(language: str, containing: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", TEXT, re.S)
    (found,) = (text for text in blocks if containing in text)
    return found


def shell(script: str, folder: Path) -> str:
    path = f"PATH={Path(sys.executable).parent}:$PATH"
    run = subprocess.run(
        ["bash", "-euc", f"export {path}\n{script}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"XDG_CACHE_HOME": str(folder), "PATH": "/usr/bin:/bin"},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_the_first_snippet_runs_without_an_artifact(capsys):
    exec(compile(block("python", 'backend="reference"'), "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("torch.Size([2, 512])")


def test_the_artifact_runs_with_iree_alone(tmp_path):
    script = block("sh", "iree-run-module").replace("build/", f"{tmp_path}/")
    script = script.replace("--out build", f"--out {tmp_path}")
    expected = [line[2:] for line in script.splitlines() if line.startswith("# ")]
    out = shell(script, tmp_path)
    assert out.splitlines()[-len(expected) :] == expected


def test_ci_runs_exactly_the_test_command():
    command = block("sh", "pytest").strip()
    assert command == "pip install -e '.[test]' && python -m pytest -n 2"
    extract = re.search(r"command=\$\((.*)\)\n", (ROOT / ".ci" / "run").read_text())
    assert extract
    assert shell(extract[1], ROOT).strip() == command
