"""Faults put in on purpose: each is caught, and its message names it."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from compiled import code_object, compile_mlir, mlir_text, run, to_numpy
from machine import words_of
from programs import PROGRAMS, Program
from test_programs import folder, matmul_text, vmfb  # noqa: F401  (fixtures)

import dsv4_iree.emulator as emulator

BY_NAME = {p.name: p for p in PROGRAMS}
BARRIER, NOP = b"\x00\x00\x8a\xbf", b"\x00\x00\x80\xbf"
OTHER = {"gfx942": "gfx950", "gfx950": "gfx942"}


def inputs_of(program: Program) -> list[np.ndarray]:
    return [to_numpy(x) for x in program.inputs(torch.Generator().manual_seed(0))]


def fails(data: bytes, target: str, *inputs: np.ndarray, match: str) -> None:
    """The HIP call fails with the message, in IREE's own error and in last_error()."""
    emulator.clear_error()
    with pytest.raises(RuntimeError, match=match):
        run(data, target, *inputs)
    assert re.search(match, emulator.last_error())


def test_a_missing_barrier_is_a_race(target, vmfb):  # noqa: F811
    program = BY_NAME["matmul_f16"]
    data = vmfb(program, target).read_bytes()
    assert BARRIER in data
    fails(
        data.replace(BARRIER, NOP),
        target,
        *inputs_of(program),
        match=r"kernel main\S* \(gfx9\d\d\), pc 0x[0-9a-f]+ .*ds_\w+ \[.*"
        r"workgroup \(\d+, \d+, \d+\) wave \d+: LDS race: wave \d+ (reads|writes) byte \d+, "
        r"which (wave \d+|several waves) (wrote|read) with no barrier",
    )


def test_a_missing_barrier_shows_as_a_difference_between_seeds(vmfb):  # noqa: F811
    """With the race check off, the interleaving alone gives it away."""
    program = BY_NAME["matmul_f16"]
    data = vmfb(program, "gfx942").read_bytes().replace(BARRIER, NOP)
    emulator.configure(check_races=False)
    try:
        results = []
        for seed in range(4):
            emulator.set_seed(seed)
            results.append(run(data, "gfx942", *inputs_of(program))[0].tobytes())
    finally:
        emulator.configure(check_races=True, seed=0)
    assert len(set(results)) > 1


def test_reading_past_the_workgroups_lds(target, vmfb):  # noqa: F811
    """The kernel descriptor is made to ask for less LDS than the code uses."""
    program = BY_NAME["matmul_f16"]
    data = bytearray(vmfb(program, target).read_bytes())
    at, image = code_object(bytes(data))
    found = [n for n in range(0, len(image) - 64, 64) if is_descriptor(image, n)]
    assert len(found) == 1
    data[at + found[0] : at + found[0] + 4] = (1024).to_bytes(4, "little")
    fails(
        bytes(data),
        target,
        *inputs_of(program),
        match=r"lane \d+ touches LDS bytes \d+\.\.\d+ of 1024",
    )


def is_descriptor(image: bytes, at: int) -> bool:
    """The only 64 aligned bytes that begin with a plausible LDS size and no scratch."""
    words = np.frombuffer(image[at : at + 64], np.uint32)
    return 4096 < words[0] <= 160 << 10 and words[1] == 0 and not words[6:11].any()


GATHER = mlir_text("gather")


def test_a_row_number_out_of_bounds(target, tmp_path):
    mlir = tmp_path / "gather.mlir"
    mlir.write_text(GATHER)
    data = compile_mlir(mlir, target).read_bytes()
    table = np.arange(6400, dtype=np.float32).reshape(100, 64)
    (rows,) = run(data, target, table, np.array([0, 99, 5], np.int32))
    assert rows[:, 0].tolist() == [0, 6336, 320]
    fails(
        data, target, table, np.array([0, 1_000_000, 5], np.int32),
        match=r"kernel main\S* \(gfx9\d\d\), pc 0x[0-9a-f]+ \(entry \+ 0x[0-9a-f]+\), "
        r"global_load_dword \[[0-9a-f ]+\], workgroup \(1, 0, 0\) wave 0: lane \d+ reads 4 bytes "
        r"at 0x[0-9a-f]+, outside every live allocation; nearest: ",
    )  # fmt: skip


def test_a_code_object_of_the_other_target(target, vmfb):  # noqa: F811
    program = BY_NAME["softmax"]
    data = vmfb(program, OTHER[target]).read_bytes()
    fails(
        data,
        target,
        *inputs_of(program),
        match=f"it is for {OTHER[target]}, but the device is {target}",
    )


def test_truncated_code_objects(target, vmfb):  # noqa: F811
    image = code_object(vmfb(BY_NAME["softmax"], target).read_bytes())[1]
    emulator.check_code_object(image, target)
    for length in (0, 3, 63, 64, 200, len(image) // 2, len(image) - 1):
        with pytest.raises(emulator.EmulatorError, match="code object: truncated"):
            emulator.check_code_object(image[:length], target)


def test_a_code_object_cut_short_within_an_artifact(target, vmfb):  # noqa: F811
    """What follows is something else, here zeros, so only its tables can tell."""
    program = BY_NAME["softmax"]
    data = bytearray(vmfb(program, target).read_bytes())
    at, image = code_object(bytes(data))
    data[at + len(image) // 2 : at + len(image)] = bytes(len(image) - len(image) // 2)
    fails(
        bytes(data),
        target,
        *inputs_of(program),
        match="code object: (truncated|its section table is damaged)",
    )


def test_damaged_code_objects_never_crash(target, vmfb):  # noqa: F811
    image = code_object(vmfb(BY_NAME["softmax"], target).read_bytes())[1]
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(image)
        for at in rng.integers(0, len(image), 8):
            damaged[at] = rng.integers(256)
        try:
            emulator.check_code_object(bytes(damaged), target)
        except emulator.EmulatorError as error:
            assert re.match(r"(code object|kernel .*): ", str(error))


def test_an_unknown_opcode_is_refused_where_it_is_reached(vmfb):  # noqa: F811
    program = BY_NAME["softmax"]
    data = vmfb(program, "gfx942").read_bytes()
    end = b"\x00\x00\x81\xbf"  # s_endpgm
    assert end in data
    fails(
        data.replace(end, b"\x00\xff\x80\xbe"),
        "gfx942",
        *inputs_of(program),
        match=r"kernel main\S*softmax\S* \(gfx942\), pc 0x[0-9a-f]+ .*"
        r"\(unknown\) \[be80ff00\].*unknown opcode",
    )


def test_an_endless_loop_ends_at_the_instruction_limit(vmfb):  # noqa: F811
    program = BY_NAME["softmax"]
    data = vmfb(program, "gfx942").read_bytes()
    loop = data.replace(b"\x00\x00\x81\xbf", b"\xff\xff\x82\xbf")  # s_branch to itself
    emulator.configure(instruction_limit=100_000)
    try:
        fails(
            loop,
            "gfx942",
            *inputs_of(program),
            match="more than 100000 instructions: an endless loop",
        )
    finally:
        emulator.configure(instruction_limit=2_000_000_000)


def test_a_fault_does_not_end_the_process_or_the_device(vmfb):  # noqa: F811
    program = BY_NAME["matmul_f16"]
    data = vmfb(program, "gfx942").read_bytes()
    fails(data.replace(BARRIER, NOP), "gfx942", *inputs_of(program), match="LDS race")
    assert run(data, "gfx942", *inputs_of(program))[0].shape == (128, 128)


def test_the_command_line_tool_runs_artifacts(target, vmfb, tmp_path):  # noqa: F811
    program = BY_NAME["sum_rows"]
    (x,) = inputs_of(program)
    np.save(tmp_path / "x.npy", x)
    command = [
        str(Path(sys.executable).with_name("iree-run-module")),
        f"--device={emulator.DEVICES[target]}",
        f"--module={vmfb(program, target)}",
        "--function=main",
        f"--input=@{tmp_path / 'x.npy'}",
        f"--output=@{tmp_path / 'y.npy'}",
    ]
    emulator.enable()  # sets the environment variable that the child reads
    subprocess.run(command, check=True, capture_output=True)
    assert np.allclose(np.load(tmp_path / "y.npy"), x.sum(-1), atol=1e-3)


def test_messages_are_on_stderr_too(vmfb, tmp_path):  # noqa: F811
    path = vmfb(BY_NAME["softmax"], "gfx950")
    script = textwrap.dedent(f"""
        import dsv4_iree.emulator as emulator
        from pathlib import Path
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        data = Path({str(path)!r}).read_bytes()
        at = data.index(b"\\x7fELF")
        try:
            emulator.check_code_object(data[at:], "gfx942")
        except emulator.EmulatorError:
            pass
    """)
    run_ = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert (
        "dsv4_iree.emulator: code object: it is for gfx950, but the device is gfx942" in run_.stderr
    )


def kernel_entry(image: bytes) -> int:
    """The file offset of the first instruction; loading may move it from the descriptor."""
    number = lambda at, size: int.from_bytes(image[at : at + size], "little")  # noqa: E731
    headers = [number(32, 8) + 56 * n for n in range(number(56, 2))]
    loads = [
        (number(h + 8, 8), number(h + 16, 8), number(h + 32, 8))
        for h in headers
        if number(h, 4) == 1
    ]
    descriptor = next(n for n in range(0, len(image) - 64, 64) if is_small_descriptor(image, n))
    start = next(v - o for o, v, size in loads if o <= descriptor < o + size)
    target = descriptor + start + number(descriptor + 16, 8)
    return target - next(v - o for o, v, size in loads if v <= target < v + size)


def is_small_descriptor(image: bytes, at: int) -> bool:
    words = np.frombuffer(image[at : at + 64], np.uint32)
    plausible = words[0] < 160 << 10 and words[1] == 0 and 0 < words[2] <= 256
    return bool(
        plausible and words[3] == 0 and words[5] == 0 and words[4] and not words[6:11].any()
    )


def test_registers_start_poisoned_and_differently_for_every_seed(target, vmfb):  # noqa: F811
    """A kernel that stores registers nobody wrote, put where the compiled one was."""
    data = vmfb(BY_NAME["exp_log"], target).read_bytes()
    at, image = code_object(data)
    entry = at + kernel_entry(image)
    lines = (
        "s_load_dwordx2 s[4:5], s[0:1], 0x8",
        "s_mov_b64 exec, 1",
        "v_mov_b32 v1, 0",
        "v_mov_b32 v2, s60",
        "global_store_dword v1, v9, s[4:5]",
        "global_store_dword v1, v2, s[4:5] offset:4",
        "s_endpgm",
    )
    code = np.array([w for line in lines for w in words_of(line, target)], np.uint32).tobytes()
    kernel = bytearray(data)
    for start in (entry, entry + 256):  # with and without preloaded arguments
        kernel[start : start + len(code)] = code
    seen = set()
    for seed in range(4):
        emulator.set_seed(seed)
        (out,) = run(bytes(kernel), target, *inputs_of(BY_NAME["exp_log"]))
        assert np.isnan(out[:2]).all()
        seen.add(out[:2].tobytes())
    emulator.set_seed(0)
    assert len(seen) > 1
