# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tile modules of gfx942 and gfx950 share: lanes, tiles of 16 heads, and their sum."""

from __future__ import annotations

from dsv4_iree.spec import IndexerSpec

LANES = 64  # of a wave
WAVES = 1  # of a workgroup
TILE_KEYS = 16  # rows of a matrix operand that a lane loads at a time
RAGGED_ROWS, PAGED_ROWS = 2, 1  # query rows of a workgroup that share their keys
STAGED = False  # lanes load the keys of a block when it is their turn
ATTRIBUTES = ""
HEADS_STEP = 4  # of heads that a lane scores in a tile
LANE = """\
%lane = arith.addi %thread, %c0 : index
%wave_keys = arith.constant 0 : index
%n = arith.remui %lane, %c16 : index
%g = arith.divui %lane, %c16 : index"""


def head_tiles(spec: IndexerSpec) -> int:
    return -(-spec.num_heads // 16)


def head_numbers(spec: IndexerSpec, n: str) -> str:
    """%head<n>: head of which this lane loads codes; %heads<n>: first of the four it scores.

    From %head_base<n>, the first head of the tile; a last tile that is not full repeats its heads.
    """
    return f"""\
%head_any{n} = arith.addi %head_base{n}, %n : index
%head_last{n} = arith.constant {spec.num_heads - 1} : index
%head{n} = arith.minui %head_any{n}, %head_last{n} : index
%heads_any{n} = arith.addi %head_base{n}, %lane_heads : index
%heads_last{n} = arith.constant {spec.num_heads - 4} : index
%heads{n} = arith.minui %heads_any{n}, %heads_last{n} : index"""


def add_heads(spec: IndexerSpec, m: int, n: str, weight: str, last: str) -> str:
    """%sum<n>: %relu<n> of tile m's heads times their weights, added to `last` ("" for none)."""
    lines, relu = [], f"%relu{n}"
    if m == head_tiles(spec) - 1 and spec.num_heads % 16:
        # Heads that are there twice must not count twice, whatever they score and weigh.
        lines.append(f"""\
%count{n} = arith.constant {spec.num_heads % 16 // 4} : index
%is_head{n} = arith.cmpi ult, %g, %count{n} : index
%real{n} = arith.select %is_head{n}, {relu}, %zeros : vector<4xf32>
%real_w{n} = arith.select %is_head{n}, {weight}, %zeros : vector<4xf32>""")
        relu, weight = f"%real{n}", f"%real_w{n}"
    if last:
        lines.append(f"%sum{n} = math.fma {relu}, {weight}, {last} : vector<4xf32>")
    else:
        lines.append(f"%sum{n} = arith.mulf {relu}, {weight} : vector<4xf32>")
    return "\n".join(lines)


def four(result: str, vector: str) -> str:
    """The sum of a vector of four."""
    return f"""\
{result}_low = vector.shuffle {vector}, {vector} [0, 1] : vector<4xf32>, vector<4xf32>
{result}_high = vector.shuffle {vector}, {vector} [2, 3] : vector<4xf32>, vector<4xf32>
{result}_pair = arith.addf {result}_low, {result}_high : vector<2xf32>
{result}_x = vector.extract {result}_pair[0] : f32 from vector<2xf32>
{result}_y = vector.extract {result}_pair[1] : f32 from vector<2xf32>
{result} = arith.addf {result}_x, {result}_y : f32"""


def memory(spec: IndexerSpec, rows: int) -> str:
    """What a workgroup shares: nothing that is known before its rows."""
    return ""
