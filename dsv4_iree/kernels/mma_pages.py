# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the keys of a block lie, and how they are loaded when it is their turn."""

from __future__ import annotations

from textwrap import indent
from types import ModuleType

from dsv4_iree.kernels.mma_common import TILES, Loop
from dsv4_iree.spec import IndexerSpec


def loop(spec: IndexerSpec, tile: ModuleType, paged: bool) -> Loop:
    """A loop whose blocks load their own keys."""
    return Loop("", "", "", _keys(spec, tile, paged), "")


def _keys(spec: IndexerSpec, tile: ModuleType, paged: bool) -> str:
    """%<part><t> for the tile module's parts of every key tile t, as loaded; and %there: whether
    the key that this lane writes, n of tile g, is visible.
    """
    if not paged:
        tiles = [_ragged_tile(tile, t) for t in range(TILES)]
        return "\n".join([*tiles, "%there = arith.constant true"])
    # Tiles that lie in one page whatever the block.
    each = next(each for each in (4, 2, 1) if spec.page_size % (each * tile.TILE_KEYS) == 0)
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
%tile_at{t} = arith.constant {(t - first) * tile.TILE_KEYS} : index
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
%key_at{first} = arith.constant {first * tile.TILE_KEYS} : index
%key{first} = arith.addi %block, %key_at{first} : index
%page_size{first} = arith.constant {spec.page_size} : index
%entry{first} = arith.divui %key{first}, %page_size{first} : index
%token{first} = arith.remui %key{first}, %page_size{first} : index
%in_table{first} = arith.cmpi ult, %entry{first}, %width : index
%page{first} = scf.if %in_table{first} -> (index) {{
  %page32 = memref.load %block_table[%asks, %entry{first}] : memref<?x?xi32>
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
%tile_at{t} = arith.constant {t * tile.TILE_KEYS} : index
%tile_key{t} = arith.addi %block, %tile_at{t} : index
%key_any{t} = arith.addi %tile_key{t}, %n : index
%key_last{t} = arith.subi %columns, %c1 : index
%lane_key{t} = arith.minui %key_any{t}, %key_last{t} : index
%value_row{t} = arith.muli %lane_key{t}, %value_bytes : index
%scale_row{t} = arith.muli %lane_key{t}, %c4 : index
{tile.load(t, "%k_values", "%k_scales", "")}"""


def _in(text: str, spaces: int) -> str:
    return indent(text.rstrip("\n"), " " * spaces)
