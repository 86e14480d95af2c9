"""LLVM's assembler and disassembler for AMD GPUs, where they are installed."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

TRIPLE = "-triple=amdgcn-amd-amdhsa"
HINT = "LLVM 19 or later with the AMDGPU target is not installed (Debian: llvm-22)"


@functools.cache
def tool(name: str) -> str | None:
    """The newest such tool that knows gfx950."""
    versions = range(30, 18, -1)
    names = [f"{name}-{v}" for v in versions] + [name]
    places = [shutil.which(n) for n in names] + [f"/usr/lib/llvm-{v}/bin/{name}" for v in versions]
    for path in places:
        if path and Path(path).exists() and _knows_gfx950(path):
            return path
    return None


def _knows_gfx950(path: str) -> bool:
    run = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"LLVM version (\d+)", run.stdout)
    return bool(found) and int(found[1]) >= 19 and "amdgcn" in run.stdout


def need(name: str) -> str:
    """The tool's path; skips the test, loudly, where there is none."""
    path = tool(name)
    if path is None:
        pytest.skip(f"{name}: {HINT}")
    return path


def assemble(lines: list[str], target: str) -> list[list[int]]:
    """The words of each line."""
    command = [need("llvm-mc"), TRIPLE, f"-mcpu={target}", "--show-encoding"]
    run = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise ValueError(run.stderr)
    found = re.findall(r"encoding: \[([^\]]*)\]", run.stdout)
    if len(found) != len(lines):
        raise ValueError(f"expected {len(lines)} encodings, got {len(found)}")
    return [_words(bytes(int(x, 16) for x in text.split(","))) for text in found]


def disassemble_names(code: list[list[int]], target: str) -> list[str]:
    """The mnemonic of each instruction, without the suffix that names its encoding."""
    text = "\n".join(
        " ".join(f"0x{b:02x}" for w in ws for b in w.to_bytes(4, "little")) for ws in code
    )
    command = [need("llvm-mc"), TRIPLE, f"-mcpu={target}", "--disassemble", "--show-encoding"]
    run = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return [plain(line.split()[0]) for line in run.stdout.splitlines() if "encoding:" in line]


def disassemble_object(path: Path, target: str) -> list[tuple[int, str, list[int]]]:
    """Address, mnemonic and words of every instruction of a code object."""
    command = [need("llvm-objdump"), "-d", f"--mcpu={target}", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.findall(r"^\s+(\S+).*// ([0-9A-F]+): ([0-9A-F ]+)", run.stdout, re.MULTILINE)
    return [(int(at, 16), plain(name), [int(x, 16) for x in ws.split()]) for name, at, ws in found]


def plain(mnemonic: str) -> str:
    return re.sub(r"_(e32|e64|dpp|sdwa|e64_dpp)$", "", mnemonic)


def _words(data: bytes) -> list[int]:
    return [int.from_bytes(data[n : n + 4], "little") for n in range(0, len(data), 4)]
