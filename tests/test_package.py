"""What keeps the tree readable: who imports whom, how long files are, what import costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dsv4_iree

PACKAGE = Path(dsv4_iree.__file__).parent
MAY_IMPORT = {
    "errors": set(),
    "spec": {"errors"},
    "layout": {"errors", "spec"},
    "formats": {"spec"},
    "reference": {"formats", "layout", "spec"},
    "checks": {"errors", "spec"},
    "windows": {"errors"},
    "testing": {"checks", "layout", "reference", "spec"},
    "baseline": {"checks", "spec"},
    "manifest": {"errors", "spec"},
    "emulator": set(),
    "runtime": {"emulator", "errors", "manifest", "spec"},
    "calls": {"errors", "manifest", "runtime", "spec"},
    "cache_ops": {"calls", "checks", "errors", "formats", "reference", "runtime", "spec"},
    "streaming": {"errors", "runtime"},
    "indexer": {"cache_ops", "calls", "checks", "errors", "formats", "reference", "streaming"},
    "api": {"calls", "errors", "indexer", "runtime", "spec"},
    "distributed": {"checks", "errors", "indexer"},
    "torch_ops": {"api", "indexer", "spec"},
    "verify": {"api", "emulator", "errors", "indexer", "manifest", "runtime", "spec", "testing"},
    "compat": {
        "api",
        "errors",
        "formats",
        "indexer",
        "layout",
        "reference",
        "runtime",
        "spec",
        "windows",
    },
    "build": {"errors", "kernels", "manifest", "runtime", "spec"},
    "progress": {"build"},
    "kernels": {"layout", "spec"},
}
"""Module -> modules of this package it may import. kernels never import the reference."""


def imports(path: Path) -> set[str]:
    """Dotted names that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            if node.module == "dsv4_iree":
                names |= {f"dsv4_iree.{alias.name}" for alias in node.names}
    return names


def modules() -> dict[Path, str]:
    return {path: path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in
            sorted(PACKAGE.rglob("*.py"))}  # fmt: skip


@pytest.mark.parametrize(
    "command",
    ["ruff check .", "ruff format --check .", "mypy"],
)
def test_linters_are_content(command):
    run = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_imports_follow_the_arrows():
    for path, module in modules().items():
        if module in ("__init__", "__main__", "demo"):
            continue
        used = {name.split(".")[1] for name in imports(path) if name.startswith("dsv4_iree.")}
        assert used - {module} <= MAY_IMPORT[module], path


def test_only_kernels_and_build_touch_the_compiler():
    for path, module in modules().items():
        heavy = {n for n in imports(path) if n.startswith(("iree.compiler", "iree.turbine"))}
        assert not heavy or module in ("kernels", "build"), (path, heavy)


def test_files_stay_short():
    lengths = {path.name: len(path.read_text().splitlines()) for path in modules()}
    assert max(lengths.values()) <= 400, lengths
    assert sorted(lengths.values())[len(lengths) // 2] <= 160, lengths


def test_importing_the_package_needs_neither_compiler_nor_device():
    code = (
        "import sys, dsv4_iree; heavy = [m for m in sys.modules if m.startswith(("
        "'iree.compiler', 'iree.turbine', 'safetensors', 'matplotlib'))]; print(heavy)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_everything_public_says_what_it_is():
    for name in dsv4_iree.__all__:
        thing = getattr(dsv4_iree, name)
        assert isinstance(thing, dict) or thing.__doc__, name
    for name in dir(dsv4_iree.Indexer):
        assert name.startswith("_") or getattr(dsv4_iree.Indexer, name).__doc__, name
