# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The logits kernel of matrix units as a `stream.executable`: what one workgroup, one wave, does.

It keeps a few query rows in registers and walks a run of keys in blocks of one key per lane: find
their page, load them, score them, write a row's logits. A tile module of the target says how many
lanes there are, what a lane loads of every key tile, and how a block is scored.
"""

from __future__ import annotations

from textwrap import indent
from types import ModuleType

from dsv4_iree.kernels import mma_cuda, mma_e4m3, mma_gfx942, mma_gfx950
from dsv4_iree.kernels.dispatch import RESULT, SIZES
from dsv4_iree.kernels.entry import Arg
from dsv4_iree.kernels.mma_common import TILES
from dsv4_iree.spec import IndexerSpec

SCALE_BYTES = 4  # of a key: four e8m0 bytes or a float


def executable(
    name: str, target: str, spec: IndexerSpec, operands: tuple[Arg, ...], numbers: tuple[str, ...]
) -> str:
    """`stream.executable @<name>` that writes logits [rows, columns].

    Args:
        operands: tensors of the dispatch; with `logits` among them, columns outside the windows
            can keep what is there. The result is the binding after the last of them.
        numbers: index arguments after the bindings: rows, columns, per_run, clean, skip (windows of
            at most so many entries are not scored) and what the operands' sizes need.
    """
    names, tile = [arg.name for arg in operands], tile_module(target, spec)
    together = rows_together(names)
    parameters = [f"%{name}_binding: !stream.binding" for name in [*names, "result"]]
    parameters += [f"%{number}: index" for number in numbers]
    lines = [
        CONSTANTS.format(
            together=together, row=spec.value_bytes, block=tile.LANES, tile=tile_keys(tile)
        ),
        tile.LANE,
    ]
    lines += [_binding(arg, spec) for arg in operands]
    lines.append(
        "%result = stream.binding.subspan %result_binding[%c0]"
        f" : !stream.binding -> {RESULT}{{%rows, %columns}}"
    )
    lines.append(_body(target, spec, names, together))
    return EXECUTABLE.format(
        name=name,
        together=together,
        lanes=tile.LANES,
        parameters=", ".join(parameters),
        body=_in("\n".join(lines), 6),
    )


def tile_module(target: str, spec: IndexerSpec) -> ModuleType:
    if not spec.is_fp4:
        return mma_e4m3
    return {"gfx942": mma_gfx942, "gfx950": mma_gfx950}.get(target, mma_cuda)


def tile_keys(tile: ModuleType) -> int:
    """Keys of a tile: rows of a matrix operand."""
    return int(tile.LANES) // TILES


def rows_together(names: list[str]) -> int:
    """Query rows of a workgroup: rows of a ragged call share their keys."""
    return 1 if "block_table" in names else 2


EXECUTABLE = """\
stream.executable private @{name} {{
  stream.executable.export public @{name} workgroups(
      %rows: index, %columns: index, %per_run: index) -> (index, index, index) {{
    %c1 = arith.constant 1 : index
    %together = arith.constant {together} : index
    %down = arith.ceildivui %rows, %together : index
    %across = arith.ceildivui %columns, %per_run : index
    // Neighbours in x run at the same time: they read the same keys, or pages of one request.
    stream.return %down, %across, %c1 : index, index, index
  }}
  builtin.module {{
    func.func @{name}({parameters}) attributes {{
        translation_info = #iree_codegen.translation_info<
            pipeline = #iree_codegen.no_pipeline workgroup_size = [{lanes}, 1, 1]
            subgroup_size = {lanes}>}} {{
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
%together = arith.constant {together} : index
%i32_0 = arith.constant 0 : i32
%block_keys = arith.constant {block} : index
%block_keys32 = arith.constant {block} : i32
%tile_keys = arith.constant {tile} : index
%zero = arith.constant 0.0 : f32
%zeros = arith.constant dense<0.0> : vector<4xf32>
%minus_inf = arith.constant 0xFF800000 : f32
%lane = gpu.thread_id x"""

# Columns are below 2^31, and a block's end below 2^32: unsigned numbers of one register.
COLUMN = """\
%block32 = arith.index_cast %block : index to i32
%column32 = arith.addi %block32, %own32 : i32
%column = arith.addi %block, %own : index"""

ALIGNED_PAGES = """\
%past_line = arith.remui %page_stride, %c16 : index
%aligned = arith.cmpi eq, %past_line, %c0 : index"""


def _binding(arg: Arg, spec: IndexerSpec) -> str:
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


def _body(target: str, spec: IndexerSpec, names: list[str], together: int) -> str:
    tile = tile_module(target, spec)
    paged, keep, rows = "block_table" in names, "logits" in names, range(together)
    results = ", ".join(f"%score{r}" for r in rows)
    floats = ", ".join(["f32"] * together)
    none = ", ".join(["%minus_inf"] * together)
    return f"""\
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
%cleans = arith.cmpi ne, %clean, %c0 : index
{ALIGNED_PAGES if paged else "%aligned = arith.constant true"}
{"".join(_window(r, paged) for r in rows)}
{_any("wanted", [f"%meets{r}" for r in rows])}
scf.if %wanted {{
{_in(tile.CONSTANTS, 2)}
{_in("".join(tile.query(target, spec, r) for r in rows), 2)}
  scf.for %block = %run to %run_end step %block_keys {{
{_in(COLUMN, 4)}
    %block_end32 = arith.addi %block32, %block_keys32 : i32
{_in("".join(_meets_block(r) for r in rows), 4)}
{_in(_any("here", [f"%here{r}" for r in rows]), 4)}
    %out:{together + 1} = scf.if %here -> ({floats}, i1) {{
{_in(_keys(spec, tile, paged), 6)}
{_in(tile.keys(target, spec, together), 6)}
{_in("".join(tile.scores(target, spec, r) for r in rows), 6)}
      scf.yield {results}, %there : {floats}, i1
    }} else {{
      %nowhere = arith.constant false
      scf.yield {none}, %nowhere : {floats}, i1
    }}
{_in("".join(_store(r, together, keep) for r in rows), 4)}
  }}
}} else {{
  scf.for %block = %run to %run_end step %block_keys {{
{_in(COLUMN, 4)}
{_in("".join(_store_nothing(r, keep) for r in rows), 4)}
  }}
}}"""


def _window(r: int, paged: bool) -> str:
    """%row, %first, %stop of row r of the workgroup; %meets: it has keys to score in this run."""
    exists = f"%exists{r} = arith.constant true\n"
    if paged:
        exists = f"""\
%asks32_{r} = memref.load %row_to_request[%row{r}] : memref<?xi32>
%asks{r} = arith.index_cast %asks32_{r} : i32 to index
%exists{r} = arith.cmpi ult, %asks{r}, %requests : index
"""
    return f"""\
%r{r} = arith.constant {r} : index
%row_any{r} = arith.addi %row_first, %r{r} : index
%row{r} = arith.minui %row_any{r}, %row_last : index
%live{r} = arith.cmpi ult, %row_any{r}, %rows : index
{exists}%start{r} = memref.load %start[%row{r}] : memref<?xi32>
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
%block_begins{r} = arith.cmpi ult, %first{r}, %block_end32 : i32
%block_reaches{r} = arith.cmpi ugt, %stop{r}, %block32 : i32
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


def _keys(spec: IndexerSpec, tile: ModuleType, paged: bool) -> str:
    """%<part><t> for the tile module's parts of every key tile t, as loaded; and %there: whether
    the key that this lane writes, n of tile g, is visible.
    """
    if not paged:
        tiles = [_ragged_tile(tile, t) for t in range(TILES)]
        return "\n".join([*tiles, "%there = arith.constant true"])
    # Tiles that lie in one page whatever the block.
    each = next(each for each in (4, 2, 1) if spec.page_size % (each * tile_keys(tile)) == 0)
    lookups = range(0, TILES, each)
    lines = [_lookup(spec, tile, first, range(first, first + each)) for first in lookups]
    there = f"%real{lookups[-1]}"
    for first in reversed(lookups[:-1]):
        lines.append(f"""\
%until{first} = arith.constant {first + each} : index
%before{first} = arith.cmpi ult, %g, %until{first} : index
%there{first} = arith.select %before{first}, %real{first}, {there} : i1""")
        there = f"%there{first}"
    return "\n".join([*lines, f"%there = arith.ori {there}, {there} : i1"])


def _lookup(spec: IndexerSpec, tile: ModuleType, first: int, tiles: range) -> str:
    """Find the page of some tiles, and load them if it exists."""
    loads, results, missing = [], [], []
    for t in tiles:
        loads.append(f"""\
%tile_at{t} = arith.constant {(t - first) * tile_keys(tile)} : index
%tile_token{t} = arith.addi %token{first}, %tile_at{t} : index
%lane_token{t} = arith.addi %tile_token{t}, %n : index
%row_in{t} = arith.muli %lane_token{t}, %value_bytes : index
%value_row{t} = arith.addi %page_base{first}, %row_in{t} : index
%scale_in{t} = arith.muli %lane_token{t}, %c4 : index
%scale_row{t} = arith.addi %scales_base{first}, %scale_in{t} : index
{tile.load(t, "%cache", "%cache", "_loaded")}""")
        results += [f"%{part}{t}" for part, _ in tile.PARTS]
        missing += [f"%no_{part}" for part, _ in tile.PARTS]
    loaded = ", ".join(f"{result}_loaded" for result in results)
    kinds = ", ".join([kind for _, kind in tile.PARTS] * len(tiles))
    return f"""\
%key_at{first} = arith.constant {first * tile_keys(tile)} : index
%key{first} = arith.addi %block, %key_at{first} : index
%page_size{first} = arith.constant {spec.page_size} : index
%entry{first} = arith.divui %key{first}, %page_size{first} : index
%token{first} = arith.remui %key{first}, %page_size{first} : index
%in_table{first} = arith.cmpi ult, %entry{first}, %width : index
%page{first} = scf.if %in_table{first} -> (index) {{
  %page32 = memref.load %block_table[%asks0, %entry{first}] : memref<?x?xi32>
  %page_any = arith.index_cast %page32 : i32 to index
  scf.yield %page_any : index
}} else {{
  scf.yield %num_pages : index
}}
// Negative ids are large unsigned numbers.
%real{first} = arith.cmpi ult, %page{first}, %num_pages : index
%page_base{first} = arith.muli %page{first}, %page_stride : index
%page_values{first} = arith.constant {spec.page_size * spec.value_bytes} : index
%scales_base{first} = arith.addi %page_base{first}, %page_values{first} : index
{", ".join(results)} = scf.if %real{first} -> ({kinds}) {{
{_in(chr(10).join(loads), 2)}
  scf.yield {loaded} : {kinds}
}} else {{
  scf.yield {", ".join(missing)} : {kinds}
}}"""


def _ragged_tile(tile: ModuleType, t: int) -> str:
    """Lanes past the last key read that key again."""
    return f"""\
%tile_at{t} = arith.constant {t * tile_keys(tile)} : index
%tile_key{t} = arith.addi %block, %tile_at{t} : index
%key_any{t} = arith.addi %tile_key{t}, %n : index
%key_last{t} = arith.subi %columns, %c1 : index
%lane_key{t} = arith.minui %key_any{t}, %key_last{t} : index
%value_row{t} = arith.muli %lane_key{t}, %value_bytes : index
%scale_row{t} = arith.muli %lane_key{t}, %c4 : index
{tile.load(t, "%k_values", "%k_scales", "")}"""


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
