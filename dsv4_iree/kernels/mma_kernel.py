# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The logits kernel of matrix units as a `stream.executable`: what one workgroup does.

It keeps a few query rows and walks a run of keys in blocks of one key per lane: find their page,
load them, score them, write a row's logits. A tile module of the target says how many lanes and
waves there are, what a lane loads of every key tile, and how a block is scored.
"""

from __future__ import annotations

from textwrap import indent
from types import ModuleType

from dsv4_iree.kernels import (
    mma_cuda,
    mma_e4m3,
    mma_gfx942,
    mma_gfx950,
    mma_pages,
    mma_sm90,
    mma_stages,
)
from dsv4_iree.kernels.dispatch import RESULT, SIZES
from dsv4_iree.kernels.entry import Arg
from dsv4_iree.spec import IndexerSpec

SCALE_BYTES = 4  # of a key: four e8m0 bytes or a float


def executable(
    name: str, target: str, spec: IndexerSpec, operands: tuple[Arg, ...], numbers: tuple[str, ...]
) -> str:
    """`stream.executable @<name>` that writes logits [rows, columns].

    Args:
        operands: tensors of the dispatch; with `logits` among them, columns outside the windows
            can keep what is there. The result is the binding after the last of them.
        numbers: index arguments after the bindings: rows, columns, per_run, together (query
            rows of a workgroup), clean, skip (windows of at most so many entries are not scored)
            and what the operands' sizes need.
    """
    names, tile = [arg.name for arg in operands], tile_module(target, spec)
    parameters = [f"%{name}_binding: !stream.binding" for name in [*names, "result"]]
    parameters += [f"%{number}: index" for number in numbers]
    lines = [
        CONSTANTS.format(
            row=spec.value_bytes,
            block=block_keys(tile),
            tile=tile.TILE_KEYS,
        ),
        "%thread = gpu.thread_id x",
        tile.LANE,
    ]
    lines += [binding(arg, spec) for arg in operands]
    lines.append(
        "%result = stream.binding.subspan %result_binding[%c0]"
        f" : !stream.binding -> {RESULT}{{%rows, %columns}}"
    )
    lines.append(_body(target, spec, names))
    return EXECUTABLE.format(
        name=name,
        lanes=tile.LANES,
        size=block_keys(tile),
        attributes=tile.ATTRIBUTES,
        parameters=", ".join(parameters),
        body=_in("\n".join(lines), 6),
    )


def tile_module(target: str, spec: IndexerSpec) -> ModuleType:
    if not spec.is_fp4:
        return mma_e4m3
    tiles = {"gfx942": mma_gfx942, "gfx950": mma_gfx950, "cuda-sm90": mma_sm90}
    return tiles.get(target, mma_cuda)


def block_keys(tile: ModuleType) -> int:
    """Keys that a workgroup scores at a time, one per lane."""
    return int(tile.LANES * tile.WAVES)


EXECUTABLE = """\
stream.executable private @{name} {{
  stream.executable.export public @{name} workgroups(
      %rows: index, %columns: index, %per_run: index, %together: index)
      -> (index, index, index) {{
    %c1 = arith.constant 1 : index
    %down = arith.ceildivui %rows, %together : index
    %across = arith.ceildivui %columns, %per_run : index
    // Neighbours in x run at the same time: they read the same keys, or pages of one request.
    stream.return %down, %across, %c1 : index, index, index
  }}
  builtin.module {{
    func.func @{name}({parameters}) attributes {{
        translation_info = #iree_codegen.translation_info<
            pipeline = #iree_codegen.no_pipeline workgroup_size = [{size}, 1, 1]
            subgroup_size = {lanes}>{attributes}}} {{
{body}
      return
    }}
  }}
}}"""

CONSTANTS = """\
%c0 = arith.constant 0 : index
%c1 = arith.constant 1 : index
%c4 = arith.constant 4 : index
%c16 = arith.constant 16 : index
%value_bytes = arith.constant {row} : index
%i32_0 = arith.constant 0 : i32
%block_keys = arith.constant {block} : index
%block_keys32 = arith.constant {block} : i32
%tile_keys = arith.constant {tile} : index
%zero = arith.constant 0.0 : f32
%zeros = arith.constant dense<0.0> : vector<4xf32>
%minus_inf = arith.constant 0xFF800000 : f32"""

# Columns are below 2^31, and a block's end below 2^32: unsigned numbers of one register.
COLUMN = """\
%base32 = arith.index_cast %base : index to i32
%block = arith.addi %base, %wave_keys : index
%block32 = arith.index_cast %block : index to i32
%column32 = arith.addi %block32, %own32 : i32
%column = arith.addi %block, %own : index"""

ALIGNED_PAGES = """\
%past_line = arith.remui %page_stride, %c16 : index
%aligned = arith.cmpi eq, %past_line, %c0 : index"""


def binding(arg: Arg, spec: IndexerSpec) -> str:
    """%<name>, the operand's memory. Keys are bytes in a row: their addresses are worked out."""
    kind, sizes = "memref" + str(arg).removeprefix("tensor"), ""
    if arg.name in ("k_values", "k_scales"):
        kind = "memref<?xi8>"
        row = spec.value_bytes if arg.name == "k_values" else SCALE_BYTES
        lines = f"%{arg.name}_row = arith.constant {row} : index\n"
        lines += f"%{arg.name}_size = arith.muli %columns, %{arg.name}_row : index\n"
        sizes = f"%{arg.name}_size"
    else:
        lines = ""
        sizes = ", ".join(f"%{SIZES.get(s, s)}" for s in arg.shape if isinstance(s, str))
    return (
        f"{lines}%{arg.name} = stream.binding.subspan %{arg.name}_binding[%c0]"
        f" : !stream.binding -> {kind}{{{sizes}}}"
    )


RUN = """\
%across = stream.dispatch.workgroup.id[1] : index
%down = stream.dispatch.workgroup.id[0] : index
%row_first = arith.muli %down, %together : index
%row_last = arith.subi %rows, %c1 : index
%run = arith.muli %across, %per_run : index
%run_any = arith.addi %run, %per_run : index
%run_end = arith.minui %run_any, %columns : index
%own_tile = arith.muli %g, %tile_keys : index
%own = arith.addi %own_tile, %n : index
%own32 = arith.index_cast %own : index to i32
%columns32 = arith.index_cast %columns : index to i32
%run32 = arith.index_cast %run : index to i32
%run_end32 = arith.index_cast %run_end : index to i32
%skip32 = arith.index_cast %skip : index to i32
%cleans = arith.cmpi ne, %clean, %c0 : index"""


def _body(target: str, spec: IndexerSpec, names: list[str]) -> str:
    tile, paged = tile_module(target, spec), "block_table" in names
    most = tile.PAGED_ROWS if paged else tile.RAGGED_ROWS
    aligned = ALIGNED_PAGES if paged else "%aligned = arith.constant true"
    lines = [RUN, aligned, tile.memory(spec, most)]
    if paged and most > 1:
        alone, pair = (
            (every_row(1, paged), _scored(target, spec, names, 1)),
            _scored(target, spec, names, 2),
        )
        lines.append(
            PAIRS.format(
                alone=_in("\n".join(alone), 2),
                rows=_in("".join(_row(r, paged) for r in range(2)), 2),
                pair=_in(pair, 4),
            )
        )
    else:
        lines += [every_row(most, paged), _scored(target, spec, names, most)]
    return "\n".join(lines)


# Rows of two requests share no keys: each has its turn, in which the other one does nothing.
PAIRS = """\
%pairs = arith.cmpi ne, %together, %c1 : index
scf.if %pairs {{
{rows}
  %same = arith.cmpi eq, %asks0, %asks1 : index
  %two_turns = arith.constant 2 : index
  %turns = arith.select %same, %c1, %two_turns : index
  scf.for %turn = %c0 to %turns step %c1 {{
    %is_first = arith.cmpi eq, %turn, %c0 : index
    %is_second = arith.cmpi ne, %turn, %c0 : index
    %now0 = arith.ori %same, %is_first : i1
    %now1 = arith.ori %same, %is_second : i1
    %asks = arith.select %is_first, %asks0, %asks1 : index
{pair}
  }}
}} else {{
{alone}
}}"""


def _scored(target: str, spec: IndexerSpec, names: list[str], together: int) -> str:
    """Write the run's logits of some rows; of those that are not %now, nothing."""
    tile = tile_module(target, spec)
    paged, keep, rows = "block_table" in names, "logits" in names, range(together)
    results = ", ".join(f"%score{r}" for r in rows)
    floats = ", ".join(["f32"] * together)
    none = ", ".join(["%minus_inf"] * together)
    if tile.STAGED:
        loop = mma_stages.loop(spec, block_keys(tile), paged, together)
    else:
        loop = mma_pages.loop(spec, tile, paged)
    return f"""\
{"".join(window(r) for r in rows)}
{_any("wanted", [f"%meets{r}" for r in rows])}
scf.if %wanted {{
{_in(tile.CONSTANTS, 2)}
{_in("".join(tile.query(target, spec, r) for r in rows), 2)}
{_in(loop.begin, 2)}
  scf.for %base = %run to %run_end step %block_keys{loop.carried} {{
{_in(COLUMN, 4)}
{_in(loop.ahead, 4)}
    %base_end32 = arith.addi %base32, %block_keys32 : i32
{_in("".join(_meets_block(r) for r in rows), 4)}
{_in(_any("here", [f"%here{r}" for r in rows]), 4)}
    %out:{together + 1} = scf.if %here -> ({floats}, i1) {{
{_in(loop.keys, 6)}
{_in(tile.keys(target, spec, together), 6)}
{_in(tile.scores(target, spec, together), 6)}
      scf.yield {results}, %there : {floats}, i1
    }} else {{
      %nowhere = arith.constant false
      scf.yield {none}, %nowhere : {floats}, i1
    }}
{_in("".join(_store(r, together, keep) for r in rows), 4)}
{_in(loop.end, 4)}
  }}
}} else {{
  scf.for %base = %run to %run_end step %block_keys {{
{_in(COLUMN, 4)}
{_in("".join(_store_nothing(r, keep) for r in rows), 4)}
  }}
}}"""


def every_row(together: int, paged: bool) -> str:
    """The rows of a workgroup, all of them at once."""
    lines = []
    for r in range(together):
        lines.append(f"{_row(r, paged)}%now{r} = arith.constant true")
    if paged:
        lines.append("%asks = arith.addi %asks0, %c0 : index")
    return "\n".join(lines)


def _row(r: int, paged: bool) -> str:
    """%row of row r of the workgroup, and the request that it %asks for."""
    asks = f"%exists{r} = arith.constant true\n"
    if paged:
        asks = f"""\
%asks32_{r} = memref.load %row_to_request[%row{r}] : memref<?xi32>
%asks{r} = arith.index_cast %asks32_{r} : i32 to index
%exists{r} = arith.cmpi ult, %asks{r}, %requests : index
"""
    return f"""\
%r{r} = arith.constant {r} : index
%row_any{r} = arith.addi %row_first, %r{r} : index
%row{r} = arith.minui %row_any{r}, %row_last : index
{asks}"""


def window(r: int) -> str:
    """%first, %stop of row r of the workgroup; %meets: it has keys to score in this run."""
    return f"""\
%in_rows{r} = arith.cmpi ult, %row_any{r}, %rows : index
%live{r} = arith.andi %in_rows{r}, %now{r} : i1
%start{r} = memref.load %start[%row{r}] : memref<?xi32>
%end{r} = memref.load %end[%row{r}] : memref<?xi32>
%first{r} = arith.maxsi %start{r}, %i32_0 : i32
%end_positive{r} = arith.maxsi %end{r}, %i32_0 : i32
%stop{r} = arith.minsi %end_positive{r}, %columns32 : i32
%length{r} = arith.subi %end_positive{r}, %first{r} : i32
%long{r} = arith.cmpi sgt, %length{r}, %skip32 : i32
%begins{r} = arith.cmpi ult, %first{r}, %run_end32 : i32
%reaches{r} = arith.cmpi ugt, %stop{r}, %run32 : i32
%overlaps{r} = arith.andi %begins{r}, %reaches{r} : i1
%serves{r} = arith.andi %live{r}, %exists{r} : i1
%scores{r} = arith.andi %serves{r}, %long{r} : i1
%meets{r} = arith.andi %overlaps{r}, %scores{r} : i1
"""


def _meets_block(r: int) -> str:
    return f"""\
%block_begins{r} = arith.cmpi ult, %first{r}, %base_end32 : i32
%block_reaches{r} = arith.cmpi ugt, %stop{r}, %base32 : i32
%block_overlaps{r} = arith.andi %block_begins{r}, %block_reaches{r} : i1
%here{r} = arith.andi %block_overlaps{r}, %meets{r} : i1
"""


def _any(name: str, flags: list[str]) -> str:
    """%<name>: whether one of the flags is set."""
    lines, last = [], flags[0]
    for i, flag in enumerate(flags[1:]):
        lines.append(f"%{name}_any{i} = arith.ori {last}, {flag} : i1")
        last = f"%{name}_any{i}"
    return "\n".join([*lines, f"%{name} = arith.ori {last}, {last} : i1"])


def _store(r: int, together: int, keep: bool) -> str:
    """Write the block's logits of row r: -inf outside the window, or nothing."""
    return f"""\
%from_first{r} = arith.cmpi uge, %column32, %first{r} : i32
%before_stop{r} = arith.cmpi ult, %column32, %stop{r} : i32
%inside{r} = arith.andi %from_first{r}, %before_stop{r} : i1
%has_score{r} = arith.andi %inside{r}, %here{r} : i1
%visible{r} = arith.andi %has_score{r}, %out#{together} : i1
%logit{r} = arith.select %visible{r}, %out#{r}, %minus_inf : f32
{_write(r, f"%logit{r}", keep)}"""


def _store_nothing(r: int, keep: bool) -> str:
    return f"""\
%from_first{r} = arith.cmpi uge, %column32, %first{r} : i32
%before_stop{r} = arith.cmpi ult, %column32, %stop{r} : i32
%inside{r} = arith.andi %from_first{r}, %before_stop{r} : i1
{_write(r, "%minus_inf", keep)}"""


def _write(r: int, value: str, keep: bool) -> str:
    """Write the value; outside the window without %clean what was there."""
    old = new = ""
    if keep:
        new, old = (
            f"%new{r}",
            f"""\
  %touched{r} = arith.ori %inside{r}, %cleans : i1
  %new{r} = scf.if %touched{r} -> (f32) {{
    scf.yield {value} : f32
  }} else {{
    %old{r} = memref.load %logits[%row{r}, %column] : memref<?x?xf32>
    scf.yield %old{r} : f32
  }}
""",
        )
    return f"""\
%in_row{r} = arith.cmpi ult, %column32, %columns32 : i32
%stored{r} = arith.andi %in_row{r}, %live{r} : i1
scf.if %stored{r} {{
{old}  memref.store {new or value}, %result[%row{r}, %column] : {RESULT}
}}
"""


def _in(text: str, spaces: int) -> str:
    return indent(text.rstrip("\n"), " " * spaces)
