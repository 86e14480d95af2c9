"""Programs compiled by IREE for a GPU target, and their execution on the emulator."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import torch

import dsv4_iree.emulator as emulator

DTYPES = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e4m3fnuz: (torch.uint8, ml_dtypes.float8_e4m3fnuz),
}


def to_numpy(t: torch.Tensor) -> np.ndarray:
    carrier, dtype = DTYPES.get(t.dtype, (None, None))
    if carrier is None:
        return t.contiguous().numpy()
    return t.contiguous().view(carrier).numpy().view(dtype)


def mlir_text(name: str) -> str:
    """A program that is kept as text."""
    return (Path(__file__).parent / "mlir" / f"{name}.mlir").read_text()


def export(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], dynamic, path: Path) -> None:
    """Write the program as MLIR."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import iree.turbine.aot as aot

        shapes = None
        if dynamic:
            dims = ({k: torch.export.Dim(v) for k, v in d.items()} if d else None for d in dynamic)
            shapes = {"args": tuple(dims)}
        aot.export(module, args=inputs, dynamic_shapes=shapes).save_mlir(str(path))


def compile_mlir(mlir: Path, target: str) -> Path:
    """Compile in a process of its own, as a user would."""
    out = mlir.with_name(f"{mlir.stem}_{target}.vmfb")
    tool = Path(sys.executable).with_name("iree-compile")
    options = ["--iree-hal-target-device=hip", f"--iree-rocm-target={target}", "-o", str(out)]
    run = subprocess.run(
        [str(tool), str(mlir), *options], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return out


def run(
    vmfb: bytes | Path, target: str, *inputs: np.ndarray, function: str = "main"
) -> list[np.ndarray]:
    """Execute on a device of its own: a fault would stay with one that is shared."""
    emulator.enable()
    import iree.runtime as rt

    data = vmfb.read_bytes() if isinstance(vmfb, Path) else vmfb
    device = rt.get_device(emulator.DEVICES[target], cache=False)
    context = rt.SystemContext(config=rt.Config(device=device))
    context.add_vm_module(rt.VmModule.copy_buffer(context.instance, data))
    arguments = [rt.asdevicearray(device, x) for x in inputs]
    results = context.modules.module[function](*arguments)
    results = results if isinstance(results, (list, tuple)) else [results]
    return [np.array(r.to_host()) for r in results]


def code_object(vmfb: bytes) -> tuple[int, bytes]:
    """Where the first code object lies in a .vmfb, and its bytes as its headers state them."""
    at = vmfb.index(b"\x7fELF")
    number = lambda offset, size: int.from_bytes(vmfb[at + offset : at + offset + size], "little")  # noqa: E731
    return at, vmfb[at : at + number(40, 8) + number(58, 2) * number(60, 2)]
