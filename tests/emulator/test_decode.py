"""The decoder: refusals, and agreement with LLVM wherever it is installed."""

from __future__ import annotations

import ctypes

import llvm
import numpy as np
import pytest
from machine import ENCODINGS, TARGETS, Fault, Machine, decode

import dsv4_iree.emulator as emulator


def test_committed_encodings_are_llvms(target):
    lines = sorted(ENCODINGS[target])
    assert len(lines) > 300
    got = llvm.assemble(lines, target)
    wrong = [
        line for line, words in zip(lines, got, strict=True) if ENCODINGS[target][line] != words
    ]
    assert not wrong


def test_names_and_lengths_of_committed_encodings(target):
    """Without LLVM: the mnemonic is in the text that was assembled."""
    for line, words in ENCODINGS[target].items():
        name, length, problem = decode(words, target)
        assert (name, length, problem) == (llvm.plain(line.split()[0]), len(words), None), line


def opcode_rows() -> list[tuple[str, int, int, int, bool]]:
    library = emulator._load()
    library.emulator_op.restype = ctypes.c_char_p
    rows = []
    for index in range(library.emulator_op_count()):
        out = [ctypes.c_int() for _ in range(4)]
        name = library.emulator_op(index, *map(ctypes.byref, out))
        encoding, number, targets, modelled = (x.value for x in out)
        rows.append((name.decode(), encoding, number, targets, bool(modelled)))
    return rows


# Encodings of an opcode with operands that most opcodes accept; several, since none suits all.
SOP2, SOPK, SOP1, SOPC, SOPP, SMEM, VOP, VOP3P, VOP3PX, DS, MUBUF, FLAT, GLOBAL, SCRATCH = range(14)
V3, V2, V1 = (260 << 18 | 258 << 9 | 256), (258 << 9 | 256), 256
SHAPES = {
    SOP2: [lambda n: [0x80000000 | n << 23 | 0x020204]],
    SOPK: [lambda n: [0xB0000000 | n << 23 | 0x020001, 0]],
    SOP1: [lambda n: [0xBE800000 | n << 8 | 0x020004], lambda n: [0xBE800000 | n << 8 | 4]],
    SOPC: [lambda n: [0xBF000000 | n << 16 | 0x0204]],
    SOPP: [lambda n: [0xBF800000 | n << 16]],
    SMEM: [
        lambda n: [0xC0000000 | n << 18 | 1 << 17 | 4 << 6 | 2, 0],
        lambda n: [0xC0000000 | n << 18, 0],
        lambda n: [0xC0000000 | n << 18 | 4 << 6, 0],
    ],
    VOP: [
        lambda n, a=a, b=b: [0xD0000000 | n << 16 | a, b]
        for a in (6, 6 | 10 << 8)
        for b in (V3, 6 << 18 | V2, V2, V1, 0)
    ] + [lambda n: [0x7E000000 | (n - 0x140) << 9] if 0x140 <= n < 0x1C0 else [0]]
      + [lambda n: [0x7E000000 | (n - 0x140) << 9 | 4 << 17 | 258] if 0x140 <= n < 0x1C0 else [0]]
      + [lambda n: [(n - 0x100) << 25 | 4 << 17 | 6 << 9 | 258, 0] if 0x100 <= n < 0x140 else [0]],
    VOP3P: [
        lambda n, b=b: [0xD3800000 | n << 16 | 0x4008, b]
        for b in (3 << 27 | 272 << 18 | 260 << 9 | 256, 3 << 27 | 260 << 9 | 256, 3 << 27 | 256)
    ] + [lambda n: [0xD3800000 | n << 16 | 8, 272 << 18 | 260 << 9 | 256]],
    VOP3PX: [lambda n: [0xD3AC0000, 0x00021B0C, 0xD3800800 | n << 16, 0x04021104]],
    DS: [
        lambda n, b=b: [0xD8000000 | n << 17, b]
        for b in (0x0A080200, 0x0A000200, 0x200, 0x080200, 0x0A000002, 0x0A000000)
    ],
    MUBUF: [lambda n: [0xE0000000 | n << 18, 0x80000000]],
    FLAT: [lambda n, b=b: [0xDC000000 | n << 18, b] for b in (0x0A000002, 0x802, 0x0A000802)],
    GLOBAL: [lambda n, b=b: [0xDC008000 | n << 18, b] for b in (0x0A7F0002, 0x7F0802, 0x7F0002)],
    SCRATCH: [lambda n, b=b: [0xDC006000 | n << 18, b] for b in (0x0A7F0002, 0x7F0802, 0x7F0002)],
}  # fmt: skip


def test_every_modelled_opcode_has_llvms_name_and_number(target):
    """LLVM's disassembler, given this table's numbers, must give back this table's names."""
    bit = 1 << TARGETS.index(target)
    rows = [r for r in opcode_rows() if r[4] and r[3] & bit]
    candidates = [(r, shape(r[2])) for r in rows for shape in SHAPES[r[1]]]
    named = {}
    for (row, _), name in zip(
        candidates, disassembled([c for _, c in candidates], target), strict=True
    ):
        named.setdefault(row[0], set()).add(name)
    wrong = {name: got for name, got in named.items() if name not in got}
    assert len(rows) > 800 and not wrong


def test_no_opcode_is_on_a_target_that_lacks_it():
    new = [r for r in opcode_rows() if r[4] and r[3] == 2]
    candidates = [(r, shape(r[2])) for r in new for shape in SHAPES[r[1]]]
    for (row, _), name in zip(
        candidates, disassembled([c for _, c in candidates], "gfx942"), strict=True
    ):
        assert name != row[0], row


def disassembled(codes: list[list[int]], target: str) -> list[str]:
    """One name per code, empty where LLVM rejects it: each is followed by a marker."""
    marker = [0xBF800000 | 0x5A5A & 0xF]  # s_nop 10
    import subprocess

    lines = []
    for code in codes:
        for words in (code, marker):
            lines.append(" ".join(f"0x{b:02x}" for w in words for b in w.to_bytes(4, "little")))
    command = [llvm.need("llvm-mc"), llvm.TRIPLE, f"-mcpu={target}", "--disassemble"]
    run = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, check=False
    )
    names: list[list[str]] = [[]]
    for line in run.stdout.splitlines():
        text = line.strip()
        if text == "s_nop 10":
            names.append([])
        elif text and not text.startswith("."):
            names[-1].append(llvm.plain(text.split()[0]))
    return [found[0] if found else "" for found in names[:-1]]


def test_unknown_opcodes_are_named_by_their_words(target):
    with pytest.raises(
        Fault, match=r"pc 0x0 \(entry \+ 0x0\), \(unknown\) \[be80ff00\].*unknown opcode"
    ):
        Machine(target).run_words([0xBE80FF00])
    with pytest.raises(Fault, match=r"\(unknown\) \[f8000000.*unknown encoding"):
        Machine(target).run_words([0xF8000000, 0])


def test_instructions_not_modelled_are_refused_by_name(target):
    words = [0xD3E60008, 0x04420500]  # v_smfmac_f32_16x16x32_bf16
    name, _, problem = decode(words, target)
    assert (name, problem) == ("v_smfmac_f32_16x16x32_bf16", "this instruction is not modelled")


def test_instructions_of_the_other_target_are_refused():
    words = ENCODINGS["gfx950"]["v_cvt_pk_bf16_f32 v4, v1, v2"]
    assert decode(words, "gfx942")[2] == "this target has no such instruction"
    with pytest.raises(Fault, match=r"v_cvt_pk_bf16_f32 .*this target has no such instruction"):
        Machine("gfx942").run_words(words)


def test_code_that_ends_within_an_instruction(target):
    assert decode([0xD3E60008], target)[2] == "the code ends within this instruction"


def test_any_words_decode_to_something(target):
    rng = np.random.default_rng(0)
    for words in rng.integers(0, 2**32, (2000, 4), dtype=np.uint32):
        _, length, _ = decode(words.tolist(), target)
        assert 1 <= length <= 4
