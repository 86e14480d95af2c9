# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From a torch module to the MLIR of an entry point that writes into its caller's buffers.

torch.export and turbine give a pure function on tensors. Around it goes a public function in
destination-passing style: every output is an argument with `iree.abi.output`, scratch memory is an
argument with `iree.abi.transients`, and IREE adds `<entry>_transients_size` to ask how much of it
a call needs. Nothing is allocated during a call.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from iree.compiler import passmanager
from iree.turbine import aot

_ELEMENT = {
    torch.int8: "i8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
}


@dataclass(frozen=True)
class Arg:
    """One tensor argument; a name in place of a size stands for a dynamic dimension."""

    name: str
    dtype: torch.dtype
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        sizes = ["?" if isinstance(size, str) else str(size) for size in self.shape]
        return f"tensor<{'x'.join([*sizes, _ELEMENT[self.dtype]])}>"


@dataclass(frozen=True)
class Entry:
    """One exported function; its arguments are inputs, outputs, scalars, workspace.

    Args:
        name: of the exported function.
        module: forward(*inputs, *scalars) -> outputs; each scalar comes as an int64 [1] tensor.
            With `inout`, forward(*inputs, *outputs, *scalars) -> outputs. None if every target
            has a hand-written kernel.
        inputs: tensors that are read.
        outputs: tensors that are written; they belong to the caller.
        scalars: names of the i64 arguments.
        inout: whether the outputs are read as well.
    """

    name: str
    module: torch.nn.Module | None
    inputs: tuple[Arg, ...]
    outputs: tuple[Arg, ...]
    scalars: tuple[str, ...] = ()
    inout: bool = False

    @property
    def tensors(self) -> tuple[Arg, ...]:
        return self.inputs + self.outputs


def to_mlir(
    entries: tuple[Entry, ...], pure: tuple[str, ...], reflection: dict[str, str], target: str = ""
) -> str:
    """One MLIR module with all `entries` around their `pure` functions.

    Args:
        reflection: what is readable in the compiled artifact.
        target: attribute of the module that says what it is for; "": flags say so.
    """
    attributes = ", ".join(f'"{key}" = "{value}"' for key, value in sorted(reflection.items()))
    public = [_public(entry, attributes) for entry in entries]
    head = f"module attributes {{{target}}} {{" if target else "module {"
    return f"{head}\n" + "\n".join([*pure, *public]) + "\n}\n"


@lru_cache(maxsize=4)
def pure_function(entry: Entry) -> str:
    """`util.func private @<entry>_pure`: tensors in, tensors out; the same for every target."""
    assert entry.module is not None
    args, dynamic_shapes = _examples(entry)
    program = torch.export.export(
        entry.module, args, dynamic_shapes=dynamic_shapes, strict=False
    ).run_decompositions()
    module = aot.export(program).mlir_module
    with module.context:
        pipeline = "builtin.module(torch-to-iree{emit-async-entry-points=false})"
        passmanager.PassManager.parse(pipeline).run(module)
        text = "\n".join(str(op) for op in module.regions[0].blocks[0])
    return text.replace("util.func public @main(", f"util.func private @{entry.name}_pure(")


def _examples(
    entry: Entry,
) -> tuple[tuple[torch.Tensor, ...], tuple[dict[int, torch.export.Dim], ...]]:
    """Example arguments and their dynamic dimensions, every one of a size of its own."""
    read = entry.tensors if entry.inout else entry.inputs
    names = sorted({size for arg in read for size in arg.shape if isinstance(size, str)})
    sizes = {name: 7 + 2 * i for i, name in enumerate(names)}
    dims = {name: torch.export.Dim(name, min=2, max=2**40) for name in names}
    tensors, dynamic = [], []
    for arg in read:
        shape = [sizes[size] if isinstance(size, str) else size for size in arg.shape]
        tensors.append(torch.zeros(shape, dtype=arg.dtype))
        dynamic.append({i: dims[s] for i, s in enumerate(arg.shape) if isinstance(s, str)})
    scalars = [torch.zeros(1, dtype=torch.int64) for _ in entry.scalars]
    return (*tensors, *scalars), (*dynamic, *({} for _ in scalars))


def _public(entry: Entry, attributes: str) -> str:
    """The exported function around `@<entry>_pure`."""
    read = entry.tensors if entry.inout else entry.inputs
    parameters = [f"%{arg.name}: {arg}" for arg in entry.inputs]
    for i, arg in enumerate(entry.outputs):
        parameters.append(f"%{arg.name}: {arg} {{iree.abi.output = {i} : index}}")
    parameters += [f"%{name}: i64" for name in entry.scalars]
    parameters.append("%workspace: !hal.buffer {iree.abi.transients}")
    boxed = [
        f"  %{name}_box = tensor.from_elements %{name} : tensor<1xi64>" for name in entry.scalars
    ]
    operands = [f"%{arg.name}" for arg in read] + [f"%{name}_box" for name in entry.scalars]
    types = [str(arg) for arg in read] + ["tensor<1xi64>"] * len(entry.scalars)
    results = ", ".join(str(arg) for arg in entry.outputs)
    values = ", ".join(f"%r#{i}" for i in range(len(entry.outputs)))
    return "\n".join(
        [
            f"util.func public @{entry.name}({', '.join(parameters)})",
            f"    -> ({results}) attributes {{iree.reflection = {{{attributes}}}}} {{",
            *boxed,
            f"  %r:{len(entry.outputs)} = util.call @{entry.name}_pure({', '.join(operands)})",
            f"      : ({', '.join(types)}) -> ({results})",
            f"  util.return {values} : {results}",
            "}",
        ]
    )
