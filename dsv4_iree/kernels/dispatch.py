# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Around a hand-written kernel: the `@<entry>_pure` that dispatches it.

A kernel is a `stream.executable`, which takes bindings and index numbers. What calls it is a
function on tensors, the same as `entry.pure_function` gives for a torch module; these are the parts
of its text.
"""

from __future__ import annotations

from textwrap import indent

from dsv4_iree.kernels.entry import Arg, Entry

SIZES = {
    "T": "rows",
    "R": "rows",
    "N": "columns",
    "S": "row_stride",
    "K": "columns",
    "B": "requests",
    "W": "width",
}
"""Names of the dynamic sizes in an argument's shape, as numbers of a kernel."""
RESULT = "memref<?x?xf32, strided<[?, 1], offset: ?>>"
"""Logits that a kernel writes. They may lie anywhere in the workspace: with a type that has no
offset, IREE 3.13 drops that of the binding on GPUs, and the kernel writes at its start.
"""


def operands(entry: Entry) -> tuple[Arg, ...]:
    """The tensors that the pure function takes."""
    return entry.tensors if entry.inout else entry.inputs


def sizes(args: tuple[Arg, ...]) -> tuple[list[str], list[str]]:
    """Lines that define %<size> for every dynamic size of the arguments, and those names."""
    lines, names = ["%c0 = arith.constant 0 : index"], []
    for arg in args:
        for i, size in enumerate(arg.shape):
            name = SIZES.get(str(size), str(size))
            if isinstance(size, str) and name not in names:
                names.append(name)
                lines.append(f"%{name}_axis = arith.constant {i} : index")
                lines.append(f"%{name} = tensor.dim %{arg.name}, %{name}_axis : {arg}")
    return lines, names


def scalars(entry: Entry) -> list[str]:
    """Lines that define %<scalar> as an index for every scalar of the entry; after `sizes`."""
    lines = []
    for name in entry.scalars:
        lines.append(f"%{name}_i64 = tensor.extract %{name}_box[%c0] : tensor<1xi64>")
        lines.append(f"%{name} = arith.index_cast %{name}_i64 : i64 to index")
    return lines


def shaped(arg: Arg) -> str:
    """The argument's type with its sizes, as `flow.dispatch` wants it."""
    names = [f"%{SIZES.get(size, size)}" for size in arg.shape if isinstance(size, str)]
    return f"{arg}{{{', '.join(names)}}}" if names else str(arg)


def dispatch(
    result: str, kernel: str, grid: str, args: tuple[Arg, ...], numbers: tuple[str, ...], kind: str
) -> str:
    """`%<result> = flow.dispatch` of `@kernel` in the executable of that name.

    Args:
        grid: workload values, such as "%rows, %columns".
        args: tensors it reads, each as %<name>.
        numbers: index values, each as %<name>.
        kind: the shaped type of the result.
    """
    given = ", ".join(f"%{name}" for name in (*(arg.name for arg in args), *numbers))
    kinds = ", ".join([*map(shaped, args), *["index"] * len(numbers)])
    call = f"%{result} = flow.dispatch @{kernel}::@{kernel}[{grid}]({given})"
    return f"{call}\n    : ({kinds}) -> {kind}"


def call(result: str, entry: Entry, renamed: dict[str, str]) -> str:
    """`%<result> = util.call` of the entry's pure function, on values of its arguments' names.

    Args:
        renamed: what else the value of an argument is called here.
    """
    args = operands(entry)
    given = [f"%{renamed.get(arg.name, arg.name)}" for arg in args]
    given += [f"%{scalar}_box" for scalar in entry.scalars]
    kinds = [*map(str, args), *["tensor<1xi64>"] * len(entry.scalars)]
    results = ", ".join(map(str, entry.outputs))
    called = f"%{result} = util.call @{entry.name}_pure({', '.join(given)})"
    return f"{called}\n    : ({', '.join(kinds)}) -> ({results})"


def pure(entry: Entry, lines: list[str]) -> str:
    """`util.func private @<entry>_pure` around lines that end in its `util.return`."""
    parameters = [f"%{arg.name}: {arg}" for arg in operands(entry)]
    parameters += [f"%{scalar}_box: tensor<1xi64>" for scalar in entry.scalars]
    results = ", ".join(str(arg) for arg in entry.outputs)
    head = f"util.func private @{entry.name}_pure({', '.join(parameters)}) -> ({results}) {{"
    return "\n".join([head, indent("\n".join(lines), "  "), "}"])
