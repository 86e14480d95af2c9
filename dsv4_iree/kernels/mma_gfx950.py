# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scores of 64 heads x 64 keys on gfx950: one scaled FP4 MFMA per 16 heads, 16 keys and 128 dims.

`v_mfma_scale_f32_16x16x128_f8f6f4` takes e2m1 codes and their e8m0 bytes as they are, every byte
exactly, NaN included. Lane (g, n) gives group g of head n and of key n; it gets heads 4g..4g+3 of
key n. What is left for the vector ALU is one max and half a packed fma per score, and the sum over
the four lanes of a key.
"""

from __future__ import annotations

from dsv4_iree.kernels import mma_amd
from dsv4_iree.kernels.mma_amd import add_heads, four, head_numbers, head_tiles
from dsv4_iree.kernels.mma_common import TILES
from dsv4_iree.spec import IndexerSpec

SCALES, CODES = "vector<4xf8E8M0FNU>", "vector<32xf4E2M1FN>"
SCALED = f"{SCALES}, {CODES}, {SCALES}, {CODES}, vector<4xf32>"


LANES, WAVES, TILE_KEYS = mma_amd.LANES, mma_amd.WAVES, mma_amd.TILE_KEYS
RAGGED_ROWS, PAGED_ROWS, memory = mma_amd.RAGGED_ROWS, mma_amd.PAGED_ROWS, mma_amd.memory
STAGED, ATTRIBUTES = mma_amd.STAGED, mma_amd.ATTRIBUTES
HEADS_STEP, LANE = mma_amd.HEADS_STEP, mma_amd.LANE
PARTS = (("codes", "vector<16xi8>"), ("scale", "i8"))
"""What a lane loads of a key tile: the codes and the scale of group g of key n."""

CONSTANTS = """\
%no_codes = arith.constant dense<0> : vector<16xi8>
%no_scale = arith.constant 0 : i8
%no_byte = arith.constant 0 : i8
%group_bytes = arith.muli %g, %c16 : index
%lane_heads = arith.muli %g, %c4 : index
"""


def load(t: int, values: str, scales: str, suffix: str) -> str:
    """%codes<t><suffix> and %scale<t><suffix>, from the rows at %value_row<t> and %scale_row<t>."""
    return f"""\
%value_at{t} = arith.addi %value_row{t}, %group_bytes : index
%codes{t}{suffix} = vector.load {values}[%value_at{t}] : memref<?xi8>, vector<16xi8>
%scale_at{t} = arith.addi %scale_row{t}, %g : index
%scale{t}{suffix} = memref.load {scales}[%scale_at{t}] : memref<?xi8>"""


def keys(target: str, spec: IndexerSpec, together: int) -> str:
    """%k<t> and %ks<t>: the operands of every key tile."""
    return "\n".join(
        f"""\
%k{t} = vector.bitcast %codes{t} : vector<16xi8> to {CODES}
{_scale(f"%ks{t}", f"%scale{t}")}"""
        for t in range(TILES)
    )


def query(target: str, spec: IndexerSpec, r: int) -> str:
    """%q<r>_<m>, %qs<r>_<m> and %w<r>_<m>: codes, scale and weights of every 16 heads of row r."""
    heads, lines = spec.num_heads, []
    for m in range(head_tiles(spec)):
        n = f"{r}_{m}"
        lines.append(f"""\
%head_base{n} = arith.constant {16 * m} : index
{head_numbers(spec, n)}
%q_bytes{n} = vector.load %q_values[%row{r}, %head{n}, %group_bytes]
    : memref<?x{heads}x64xi8>, vector<16xi8>
%q{n} = vector.bitcast %q_bytes{n} : vector<16xi8> to {CODES}
%q_scale{n} = memref.load %q_scales[%row{r}, %head{n}, %g] : memref<?x{heads}x4xi8>
{_scale(f"%qs{n}", f"%q_scale{n}")}
%w{n} = vector.load %weights[%row{r}, %heads{n}] : memref<?x{heads}xf32>, vector<4xf32>
""")
    return "".join(lines)


def scores(target: str, spec: IndexerSpec, together: int) -> str:
    """%score<r>: the weighted sum over heads, for key n of tile g."""
    return "".join(_score(spec, r) for r in range(together))


def _score(spec: IndexerSpec, r: int) -> str:
    return "\n".join([*(_head_sum(spec, r, t) for t in range(TILES)), _lane_sum(r)]) + "\n"


def _scale(result: str, byte: str) -> str:
    """The instruction names one byte of a register; a loaded byte is its first as it stands."""
    return f"""\
{result}_bytes = vector.from_elements {byte}, %no_byte, %no_byte, %no_byte : vector<4xi8>
{result} = vector.bitcast {result}_bytes : vector<4xi8> to {SCALES}"""


def _head_sum(spec: IndexerSpec, r: int, t: int) -> str:
    """%part<r>_<t>: the sum over this lane's heads for key n of tile t."""
    lines = []
    for m in range(head_tiles(spec)):
        n = f"{r}_{t}_{m}"
        lines.append(f"""\
%dot{n} = amdgpu.scaled_mfma 16x16x128 (%qs{r}_{m}[0] * %q{r}_{m}) * (%ks{t}[0] * %k{t}) + %zeros
    : {SCALED}
%relu{n} = llvm.intr.maximum(%dot{n}, %zeros)
    : (vector<4xf32>, vector<4xf32>) -> vector<4xf32>""")
        last = f"%sum{r}_{t}_{m - 1}" if m else ""
        lines.append(add_heads(spec, m, n, f"%w{r}_{m}", last))
    lines.append(four(f"%part{r}_{t}", f"%sum{r}_{t}_{head_tiles(spec) - 1}"))
    return "\n".join(lines)


def _lane_sum(r: int) -> str:
    """Add up the four lanes of every key, and leave the sum of key i in lane i.

    A swap of halves serves two tiles at once: afterwards each half holds both parts of one tile.
    """
    return "\n".join(
        [
            _swap_add("permlane32", f"%half{r}_0", f"%part{r}_0", f"%part{r}_2"),
            _swap_add("permlane32", f"%half{r}_1", f"%part{r}_1", f"%part{r}_3"),
            _swap_add("permlane16", f"%score{r}", f"%half{r}_0", f"%half{r}_1"),
        ]
    )


def _swap_add(instruction: str, result: str, one: str, other: str) -> str:
    pair = "!llvm.struct<(i32, i32)>"
    return f"""\
{result}_x = arith.bitcast {one} : f32 to i32
{result}_y = arith.bitcast {other} : f32 to i32
{result}_xy = rocdl.{instruction}.swap {result}_x, {result}_y, false, false
    : (i32, i32) -> {pair}
{result}_a = llvm.extractvalue {result}_xy[0] : {pair}
{result}_b = llvm.extractvalue {result}_xy[1] : {pair}
{result}_c = arith.bitcast {result}_a : i32 to f32
{result}_d = arith.bitcast {result}_b : i32 to f32
{result} = arith.addf {result}_c, {result}_d : f32"""
