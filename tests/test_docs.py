"""What the documents name exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def defined(file: Path) -> set[str]:
    return {node.name for node in ast.parse(file.read_text()).body
            if isinstance(node, ast.FunctionDef)}  # fmt: skip


def test_every_test_that_the_table_of_faults_names_exists() -> None:
    named = NAMED.findall((DOCS / "faults.md").read_text())
    assert len(named) > 150
    missing = [f"{file}::{test}" for file, test in named if test not in defined(TESTS / file)]
    assert not missing


def test_every_row_of_the_table_of_faults_has_a_source_and_a_test_or_a_reason() -> None:
    rows = [line.split(" | ") for line in (DOCS / "faults.md").read_text().splitlines()
            if line.startswith("| **")]  # fmt: skip
    assert len(rows) == 96
    for symptom, source, tests in rows:
        assert "https://github.com/" in source, symptom
        assert NAMED.search(tests) or len(tests) > 20, symptom
    assert sum(not NAMED.search(tests) for *_, tests in rows) == 3


def test_every_test_of_faults_is_in_the_table() -> None:
    named = {test for _, test in NAMED.findall((DOCS / "faults.md").read_text())}
    for file in sorted((TESTS / "faults").glob("test_*.py")):
        own = {name for name in defined(file) if name.startswith("test_")}
        assert own <= named, (file.name, own - named)
