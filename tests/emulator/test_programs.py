"""Ordinary programs, compiled by IREE and executed by IREE's own HIP driver on both targets."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from compiled import code_object, compile_mlir, export, mlir_text, run, to_numpy
from llvm import disassemble_object
from machine import decode
from programs import PROGRAMS, Function, Program

import dsv4_iree.emulator as emulator


def matmul_text(m: int, n: int, k: int, dtype: str) -> str:
    text = (
        mlir_text("matmul")
        .replace("MxKxT", f"{m}x{k}x{dtype}")
        .replace("NxKxT", f"{n}x{k}x{dtype}")
    )
    return text.replace("MxNx", f"{m}x{n}x").replace(": T", f": {dtype}")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="session")
def vmfb(folder):
    """Compiles each program once per target and session."""

    def get(program: Program, target: str):
        mlir, out = folder / f"{program.name}.mlir", folder / f"{program.name}_{target}.vmfb"
        if not mlir.exists():
            export(
                Function(program.f),
                program.inputs(torch.Generator().manual_seed(0)),
                program.dynamic,
                mlir,
            )
        return out if out.exists() else compile_mlir(mlir, target)

    return get


def expected(program: Program, inputs) -> list[np.ndarray]:
    results = program.f(*inputs)
    return [to_numpy(r) for r in (results if isinstance(results, (list, tuple)) else [results])]


def assert_close(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    if tolerance == 0:
        assert np.array_equal(got, want)
        return
    error = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
    assert error <= tolerance * np.abs(want.astype(np.float64)).max()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_program_gives_torchs_result(program, target, vmfb, counted):
    inputs = program.inputs(torch.Generator().manual_seed(0))
    for seed in (0, 1):
        emulator.set_seed(seed)
        results = run(vmfb(program, target), target, *map(to_numpy, inputs))
        for got, want in zip(results, expected(program, inputs), strict=True):
            assert_close(got, want, program.tolerance)


FP8 = {"gfx942": ("f8E4M3FNUZ", torch.float8_e4m3fnuz), "gfx950": ("f8E4M3FN", torch.float8_e4m3fn)}


def test_fp8_matmul_uses_the_targets_own_format(target, folder, counted):
    name, dtype = FP8[target]
    mlir = folder / f"matmul_{name}.mlir"
    mlir.write_text(matmul_text(128, 128, 256, name))
    a, b = (
        torch.randn(128, 256, generator=torch.Generator().manual_seed(s)).to(dtype) for s in (0, 1)
    )
    (got,) = run(compile_mlir(mlir, target), target, to_numpy(a), to_numpy(b))
    assert_close(got, (a.float() @ b.float().t()).numpy(), 1e-6)
    used = {name for dispatch in counted() for name in dispatch.matrix}
    assert used & {
        "v_mfma_f32_16x16x32_fp8_fp8",
        "v_mfma_f32_16x16x128_f8f6f4",
        "v_mfma_f32_32x32x64_f8f6f4",
    }


def test_32x32_matrix_instructions(target, folder, counted):
    k, kind = (8, "MFMA_F32_32x32x8_F16") if target == "gfx942" else (16, "MFMA_F32_32x32x16_F16")
    text = mlir_text("matmul_32x32").replace("KIND", kind).replace("STEP", str(k))
    mlir = folder / f"matmul_32x32_{target}.mlir"
    mlir.write_text(text)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((128, 128)).astype(np.float16) for _ in range(2))
    (got,) = run(compile_mlir(mlir, target), target, a, b)
    assert_close(got, a.astype(np.float32) @ b.astype(np.float32), 1e-5)
    assert any("32x32" in name for dispatch in counted() for name in dispatch.matrix)


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def test_scaled_fp4_matmul_on_gfx950(folder, counted):
    mlir = folder / "mxfp4.mlir"
    mlir.write_text(mlir_text("mxfp4"))
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, (128, 8, 16)).astype(np.int8) for _ in range(2))
    sa, sb = (rng.integers(120, 132, (128, 8)).astype(np.uint8) for _ in range(2))
    (got,) = run(compile_mlir(mlir, "gfx950"), "gfx950", a, b, sa.view(np.int8), sb.view(np.int8))

    def wide(packed, scales):
        codes = packed.view(np.uint8)
        values = np.stack([E2M1[codes & 15], E2M1[codes >> 4]], -1).reshape(128, 8, 32)
        return (values * np.exp2(scales.astype(np.float64) - 127)[:, :, None]).reshape(128, 256)

    assert_close(got, (wide(a, sa) @ wide(b, sb).T).astype(np.float32), 1e-6)
    assert any("v_mfma_scale" in name for dispatch in counted() for name in dispatch.matrix)


def test_decoder_agrees_with_llvm_on_every_instruction_of_the_programs(target, vmfb, tmp_path):
    seen = 0
    for program in PROGRAMS:
        data = vmfb(program, target).read_bytes()
        path = tmp_path / "kernel.o"
        path.write_bytes(code_object(data)[1])
        for address, name, words in disassemble_object(path, target):
            got, length, problem = decode(words, target)
            assert (got, length) == (name, len(words)), f"{program.name} at 0x{address:x}"
            assert problem is None, f"{program.name} at 0x{address:x}: {name}: {problem}"
            seen += 1
    assert seen > 5000


def test_matrix_kernels_are_interpreted_fast_enough(folder, counted):
    """Five million wave-instructions a second on two idle cores; here by processor time, with room
    to spare, since other things may be running."""
    mlir = folder / "matmul_speed.mlir"
    mlir.write_text(matmul_text(1024, 1024, 1024, "f16"))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((1024, 1024)).astype(np.float16) for _ in range(2))
    path = compile_mlir(mlir, "gfx942")
    rates = []
    for _ in range(3):
        emulator.reset_stats()
        start = time.process_time()
        run(path, "gfx942", a, b)
        rates.append(sum(d.instructions for d in counted()) / (time.process_time() - start))
    assert max(rates) > 1.0e6
