"""One wave, driven by hand: set registers, run a few instructions, look at registers."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
from pathlib import Path

import llvm
import numpy as np

import dsv4_iree.emulator as emulator

TARGETS = ("gfx942", "gfx950")
LANE = np.arange(64, dtype=np.uint32)
ALL = 0xFFFF_FFFF_FFFF_FFFF
VCC, M0, EXEC = 106, 124, 126
AGPR = 256  # row of a0
ROUND_NEAREST_KEEP_SUBNORMALS = 0x3F0  # and DX10_CLAMP and IEEE
ENDPGM = 0xBF810000

# Committed encodings, so that no assembler is needed. DSV4_RECORD_ENCODINGS=1 adds missing ones.
_FILE = Path(__file__).with_name("encodings.json")
ENCODINGS: dict[str, dict[str, list[int]]] = json.loads(_FILE.read_text()) if _FILE.exists() else {}
_RECORD = bool(os.environ.get("DSV4_RECORD_ENCODINGS"))


class Fault(Exception):
    """The interpreter refused to go on."""


def words_of(line: str, target: str) -> list[int]:
    """The encoding of one line of assembly."""
    known = ENCODINGS.setdefault(target, {})
    if line not in known:
        if not _RECORD:
            raise KeyError(f"{line!r} on {target}: no encoding; run with DSV4_RECORD_ENCODINGS=1")
        known[line] = llvm.assemble([line], target)[0]
    return known[line]


@atexit.register
def _save() -> None:
    if _RECORD:
        rows = [
            f'"{target}": {{\n'
            + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(lines.items()))
            + "\n}"
            for target, lines in sorted(ENCODINGS.items())
        ]
        _FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n")


class Machine:
    """Registers of a wave. `v` is [512, 64], accumulation registers from row 256; `s` is [128]."""

    def __init__(self, target: str, *, lds_bytes: int = 0, scratch_bytes: int = 0) -> None:
        self.target = target
        self.v = np.full((512, 64), 0xDEADBEEF, np.uint32)
        self.s = np.zeros(128, np.uint32)
        self.scc = 0
        self.mode = ROUND_NEAREST_KEEP_SUBNORMALS
        self.lds = np.full(max(lds_bytes, 4), 0xCD, np.uint8)
        self.lds_bytes, self.scratch_bytes = lds_bytes, scratch_bytes
        self.set_pair(EXEC, ALL)

    def set_pair(self, register: int, value: int) -> None:
        self.s[register] = value & 0xFFFFFFFF
        self.s[register + 1] = value >> 32 & 0xFFFFFFFF

    def pair(self, register: int) -> int:
        return int(self.s[register + 1]) << 32 | int(self.s[register])

    def set64(self, register: int, values: np.ndarray) -> None:
        """A row of 64-bit values in two vector registers."""
        bits = np.ascontiguousarray(values).view(np.uint64)
        self.v[register] = (bits & 0xFFFFFFFF).astype(np.uint32)
        self.v[register + 1] = (bits >> np.uint64(32)).astype(np.uint32)

    def get64(self, register: int) -> np.ndarray:
        return self.v[register + 1].astype(np.uint64) << np.uint64(32) | self.v[register]

    def f32(self, register: int) -> np.ndarray:
        return self.v[register].view(np.float32)

    def run(self, *lines: str) -> Machine:
        """Run lines of assembly, then s_endpgm."""
        return self.run_words([w for line in lines for w in words_of(line, self.target)])

    def run_words(self, words: list[int]) -> Machine:
        library = emulator._load()
        code = np.array([*words, ENDPGM], np.uint32)
        scc, executed = ctypes.c_uint32(self.scc), ctypes.c_uint64()
        message = ctypes.create_string_buffer(2048)
        failed = library.emulator_execute(
            TARGETS.index(self.target),
            code.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_uint64(len(code)),
            self.v.ctypes.data_as(ctypes.c_void_p),
            self.s.ctypes.data_as(ctypes.c_void_p),
            ctypes.byref(scc),
            self.mode,
            self.lds.ctypes.data_as(ctypes.c_void_p),
            self.lds_bytes,
            self.scratch_bytes,
            message,
            ctypes.byref(executed),
        )
        self.scc = scc.value
        if failed:
            raise Fault(message.value.decode())
        return self


class Memory:
    """An array of bytes that kernels may touch while the `with` block lasts."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = np.ascontiguousarray(data)
        self.address = self.data.ctypes.data

    def __enter__(self) -> Memory:
        emulator.register(self.address, self.data.nbytes)
        return self

    def __exit__(self, *_: object) -> None:
        emulator.unregister(self.address)


def decode(words: list[int], target: str) -> tuple[str, int, str | None]:
    """Mnemonic, length in words, and why it would be refused."""
    library = emulator._load()
    library.emulator_decode.restype = ctypes.c_char_p
    code = np.array(words, np.uint32)
    length, problem = ctypes.c_int(), ctypes.c_char_p()
    name = library.emulator_decode(
        TARGETS.index(target),
        code.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint64(len(code)),
        ctypes.byref(length),
        ctypes.byref(problem),
    )
    return name.decode(), length.value, problem.value.decode() if problem.value else None
