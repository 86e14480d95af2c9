# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels over rows: who does what part of a vector, and the `stream.executable` around it.

On GPUs a few neighbouring threads share a row, so that what they access together is contiguous; on
CPUs a workgroup walks its rows alone, a group of 32 dims at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent

from dsv4_iree.kernels.dispatch import SIZES
from dsv4_iree.kernels.entry import Arg
from dsv4_iree.kernels.row_memory import BYTES, WORDS
from dsv4_iree.spec import GROUP

THREADS = 256  # of a workgroup on GPUs
ROWS = 256  # of a workgroup on CPUs: a few microseconds
WIDTH = {"i8": 1, "bf16": 2, "i32": 4, "f32": 4, "i64": 8}  # bytes
AHEAD = 16  # rows of which a CPU asks for the memory before it works on them


@dataclass(frozen=True)
class Share:
    """How rows are shared out on a target.

    Args:
        lanes: threads of a row.
        whole: whether each of them has a whole group of 32 dims, not a part of every group.
    """

    target: str
    lanes: int
    whole: bool = False

    @property
    def on_gpu(self) -> bool:
        return not self.target.startswith("cpu")

    @property
    def subgroup(self) -> int:
        """Threads that run together."""
        return 64 if self.target.startswith("gfx") else 32

    @property
    def checks(self) -> bool:
        """Whether wide accesses need aligned addresses."""
        return self.target.startswith("cuda")

    @property
    def dims(self) -> int:
        """Of every group that a lane works on, those of the lane."""
        return GROUP if self.whole else GROUP // self.lanes

    def groups(self, head_dim: int) -> range:
        """The groups that a lane works on, its own one being number 0."""
        return range(1 if self.whole else head_dim // GROUP)

    @property
    def pairs(self) -> int:
        """A lane's even dims of every 32, or its odd ones: elements of the vectors it works on."""
        return self.dims // 2

    @property
    def ints(self) -> str:
        return f"vector<{self.pairs}xi32>"

    @property
    def floats(self) -> str:
        return f"vector<{self.pairs}xf32>"

    @property
    def mask(self) -> str:
        return f"vector<{self.pairs}xi1>"


def share_of(target: str, lanes: int) -> Share:
    """Rows with so many threads each on GPUs, one on CPUs."""
    return Share(target, 1 if target.startswith("cpu") else lanes)


def number_at(n: int, numbers: Arg, share: Share) -> str:
    """%number_at<n>, in words: where this lane's part of group n of a row of numbers begins."""
    width, dim = WIDTH[_element(numbers)], numbers.shape[-1]
    return f"""\
%row_words{n} = arith.constant {int(dim) * width // 4} : index
%lane_words{n} = arith.constant {share.dims * width // 4} : index
%group_at{n} = arith.constant {GROUP * n * width // 4} : index
%row_at{n} = arith.muli %row, %row_words{n} : index
%in_row{n} = arith.addi %row_at{n}, %group_at{n} : index
%in_group{n} = arith.muli %lane, %lane_words{n} : index
%number_at{n} = arith.addi %in_row{n}, %in_group{n} : index"""


def constants(share: Share) -> str:
    """%v_<name>, vectors that repeat a number, and %i_<name>, which arithmetic on a lane uses."""
    whole = {str(i): i for i in (0, 1, 4, 7, 8, 15, 16, 20, 22, 23, 24, 28, 127, 128, 254, 255)}
    whole |= {"sign": -(1 << 31), "inf": 0x7F800000, "nan": 0x7FC00000, "implicit": 0x800000}
    whole |= {"fraction": 0x7FFFFF}
    whole |= {"high": -0x10000, "half_bf16": 0x7FFF, "e2m1": 126 << 23}
    whole |= {"below_cell": 0xFFF, "cells": -0x1000, "last_cell": 0x7F7FF000}
    real = {"two": 2.0, "half": 0.5, "code0": 2.0**23, "code2": 2.0**23 + 2, "code4": 2.0**23 + 4}
    scalar = {str(i): i for i in (0, 1, 2, 4, 8, 16, 23, 24, 127, 255)}
    scalar |= {"magnitude": 0x7FFFFFFF, "sign": -(1 << 31), "inf": 0x7F800000, "nan": 0x7FC00000}
    lines = [f"%v_{n} = arith.constant dense<{v}> : {share.ints}" for n, v in whole.items()]
    lines += [f"%v_{n} = arith.constant dense<{v!r}> : {share.floats}" for n, v in real.items()]
    lines += [f"%i_{n} = arith.constant {v} : i32" for n, v in scalar.items()]
    return "\n".join(lines)


GPU = """\
stream.executable private @{name} {{
  stream.executable.export public @{name} workgroups(%rows: index) -> (index, index, index) {{
    %c1 = arith.constant 1 : index
    %per_group = arith.constant {threads} : index
    %lanes = arith.constant {lanes} : index
    %all = arith.muli %rows, %lanes : index
    %groups = arith.ceildivui %all, %per_group : index
    stream.return %groups, %c1, %c1 : index, index, index
  }}
  builtin.module {{
    func.func @{name}({parameters}) attributes {{
        translation_info = #iree_codegen.translation_info<
            pipeline = #iree_codegen.no_pipeline workgroup_size = [{threads}, 1, 1]
            subgroup_size = {subgroup}>}} {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %per_group = arith.constant {threads} : index
      %lanes = arith.constant {lanes} : index
      %subgroup32 = arith.constant {subgroup} : i32
{constants}
{bindings}
      %group = stream.dispatch.workgroup.id[0] : index
      %thread = gpu.thread_id x
      %before = arith.muli %group, %per_group : index
      %number = arith.addi %before, %thread : index
      %row_any = arith.divui %number, %lanes : index
      %lane = arith.remui %number, %lanes : index
      %lane32 = arith.index_cast %lane : index to i32
      %live = arith.cmpi ult, %row_any, %rows : index
      // Threads past the last row work on it too, for the others' shuffles, and store nothing.
      %row_last = arith.subi %rows, %c1 : index
      %row = arith.minui %row_any, %row_last : index
{body}
      return
    }}
  }}
}}"""

CPU = """\
stream.executable private @{name} {{
  stream.executable.export public @{name} workgroups(%rows: index) -> (index, index, index) {{
    %c1 = arith.constant 1 : index
    %per_group = arith.constant {rows} : index
    %groups = arith.ceildivui %rows, %per_group : index
    stream.return %groups, %c1, %c1 : index, index, index
  }}
  builtin.module {{
    func.func @{name}({parameters}) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %per_group = arith.constant {rows} : index
      %lane32 = arith.constant 0 : i32
      %lane = arith.constant 0 : index
      %live = arith.constant true
{constants}
{bindings}
      %group = stream.dispatch.workgroup.id[0] : index
      %first = arith.muli %group, %per_group : index
      %stop_any = arith.addi %first, %per_group : index
      %stop = arith.minui %stop_any, %rows : index
      %ahead = arith.constant {ahead_rows} : index
      scf.for %block = %first to %stop step %ahead {{
        %block_any = arith.addi %block, %ahead : index
        %block_stop = arith.minui %block_any, %stop : index
        scf.for %row = %block to %block_stop step %c1 {{
{ahead}
        }}
        scf.for %row = %block to %block_stop step %c1 {{
{body}
        }}
      }}
      return
    }}
  }}
}}"""


def executable(
    name: str,
    share: Share,
    operands: tuple[Arg, ...],
    numbers: tuple[str, ...],
    constants: str,
    body: str,
    ahead: str = "",
) -> str:
    """`stream.executable @<name>`, one row of the dispatch after another.

    Args:
        operands: tensors of the dispatch, results that it does not read at their end.
        numbers: index arguments after the bindings, among them %rows and the operands' sizes.
        constants: text at the start of the function.
        body: what is done for row %row by lane %lane, an index, and %lane32; stores are for %live.
        ahead: what CPUs do for a block of rows before that, to have its memory on the way.
    """
    parameters = [f"%{arg.name}_binding: !stream.binding" for arg in operands]
    parameters += [f"%{number}: index" for number in numbers]
    return (GPU if share.on_gpu else CPU).format(
        name=name,
        lanes=share.lanes,
        subgroup=share.subgroup,
        threads=THREADS,
        rows=ROWS,
        ahead_rows=AHEAD,
        parameters=", ".join(parameters),
        constants=indent(constants, " " * 6),
        bindings=indent("\n".join(map(_binding, operands)), " " * 6),
        body=indent(body, " " * (6 if share.on_gpu else 10)),
        ahead=indent(ahead, " " * 10),
    )


ELEMENTS = ("slot_mapping", "block_table", "row_to_request", "entries", "positions", "weights")
"""Operands that are read one element at a time."""


def _element(arg: Arg) -> str:
    return str(arg).removesuffix(">").rpartition("x")[2]


def _binding(arg: Arg) -> str:
    """%<name>, the operand's memory: a run of bytes, or of words if it holds numbers."""
    element, name = _element(arg), arg.name
    size = WIDTH[element]
    fixed = 1
    for axis in arg.shape:
        fixed *= axis if isinstance(axis, int) else 1
    if name in ELEMENTS:
        kind, count = f"memref<?x{element}>", fixed
    elif name in ("values", "scales", "cache", "cache_values", "cache_scales"):
        kind, count = BYTES, fixed * size
    else:
        kind, count = WORDS, fixed * size // 4
    lines = [f"%{name}_size0 = arith.constant {count} : index"]
    last = f"%{name}_size0"
    for i, axis in enumerate(s for s in arg.shape if isinstance(s, str)):
        lines.append(f"%{name}_size{i + 1} = arith.muli {last}, %{SIZES.get(axis, axis)} : index")
        last = f"%{name}_size{i + 1}"
    lines.append(
        f"%{name} = stream.binding.subspan %{name}_binding[%c0]"
        f" : !stream.binding -> {kind}{{{last}}}"
    )
    return "\n".join(lines)
