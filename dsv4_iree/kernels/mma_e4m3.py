# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scores of FP8 keys on gfx942 and gfx950: 64 heads x 64 keys, four MFMAs per 16 x 16.

gfx942 multiplies e4m3 FNUZ, gfx950 OCP e4m3. The same byte is half as much in FNUZ, so OCP bytes
serve on gfx942 with a factor of 4; but 0x80 is NaN there and not -0, and NaN is another byte.

Lane (g, n) holds dims 32g..32g+31 of head n and of key n; an MFMA takes eight of each lane. It gets
heads 4g..4g+3 of key n. Scales are one float a vector: the query's goes into the weight.
"""

from __future__ import annotations

from dsv4_iree.kernels import mma_amd
from dsv4_iree.kernels.mma_amd import add_heads, head_numbers, head_tiles
from dsv4_iree.kernels.mma_common import TILES, lane_sum, word
from dsv4_iree.kernels.mma_fp8 import packed
from dsv4_iree.spec import Format, IndexerSpec

LANES, WAVES, TILE_KEYS = mma_amd.LANES, mma_amd.WAVES, mma_amd.TILE_KEYS
RAGGED_ROWS, PAGED_ROWS, memory = mma_amd.RAGGED_ROWS, mma_amd.PAGED_ROWS, mma_amd.memory
STAGED, ATTRIBUTES = mma_amd.STAGED, mma_amd.ATTRIBUTES
HEADS_STEP, LANE = mma_amd.HEADS_STEP, mma_amd.LANE
PARTS = (("low", "vector<16xi8>"), ("high", "vector<16xi8>"), ("scales", "vector<4xi8>"))
"""What a lane loads of a key tile: 32 dims and the scale of key n."""
STEPS = 4

CONSTANTS = f"""\
%no_low = arith.constant dense<0> : vector<16xi8>
%no_high = arith.constant dense<0> : vector<16xi8>
%no_scales = arith.constant dense<0> : vector<4xi8>
%c2 = arith.constant 2 : index
%c32 = arith.constant 32 : index
%i0 = arith.constant 0 : i32
%i16 = arith.constant 16 : i32
%i32 = arith.constant 32 : i32
%i64 = arith.constant 64 : i32
%ones = arith.constant dense<{packed(1, 1, 1, 1)}> : vector<4xi32>
%sizes = arith.constant dense<{packed(127, 127, 127, 127)}> : vector<4xi32>
%signs = arith.constant dense<{packed(128, 128, 128, 128)}> : vector<4xi32>
%sevens = arith.constant dense<7> : vector<4xi32>
%flip = arith.constant dense<-1> : vector<4xi32>
%lane_bytes = arith.muli %g, %c32 : index
%lane_bytes_high = arith.addi %lane_bytes, %c16 : index
%lane_heads = arith.muli %g, %c4 : index
%upper = arith.cmpi uge, %g, %c2 : index
%g_low = arith.remui %g, %c2 : index
%odd = arith.cmpi ne, %g_low, %c0 : index
"""


def fits(target: str, spec: IndexerSpec) -> bool:
    """Whether the target's MFMA takes the spec's bytes."""
    if target == "gfx942":
        return spec.format in (Format.FP8, Format.FP8_FNUZ)
    return target == "gfx950" and spec.format is Format.FP8


def load(t: int, values: str, scales: str, suffix: str) -> str:
    """%low<t><suffix>, %high<t><suffix>, %scales<t><suffix>, from %value_row<t>, %scale_row<t>."""
    return f"""\
%low_at{t} = arith.addi %value_row{t}, %lane_bytes : index
%low{t}{suffix} = vector.load {values}[%low_at{t}] : memref<?xi8>, vector<16xi8>
%high_at{t} = arith.addi %low_at{t}, %c16 : index
%high{t}{suffix} = vector.load {values}[%high_at{t}] : memref<?xi8>, vector<16xi8>
%scales{t}{suffix} = vector.load {scales}[%scale_row{t}] : memref<?xi8>, vector<4xi8>"""


def query(target: str, spec: IndexerSpec, r: int) -> str:
    """%q<r>_<m>_<s> and %w<r>_<m> of every 16 heads of row r."""
    heads, lines = spec.num_heads, []
    factor = 4.0 if _reinterprets(target, spec) else 1.0
    for m in range(head_tiles(spec)):
        n = f"{r}_{m}"
        lines.append(f"""\
%head_base{n} = arith.constant {16 * m} : index
{head_numbers(spec, n)}
%q_low{n} = vector.load %q_values[%row{r}, %head{n}, %lane_bytes]
    : memref<?x{heads}x128xi8>, vector<16xi8>
%q_high{n} = vector.load %q_values[%row{r}, %head{n}, %lane_bytes_high]
    : memref<?x{heads}x128xi8>, vector<16xi8>
{_operands(target, spec, f"%q{n}", f"%q_low{n}", f"%q_high{n}")}
%w_raw{n} = vector.load %weights[%row{r}, %heads{n}] : memref<?x{heads}xf32>, vector<4xf32>
%w_scale{n} = vector.load %q_scales[%row{r}, %heads{n}] : memref<?x{heads}xf32>, vector<4xf32>
%w_own{n} = arith.mulf %w_raw{n}, %w_scale{n} : vector<4xf32>
%w_factor{n} = arith.constant dense<{factor}> : vector<4xf32>
%w{n} = arith.mulf %w_own{n}, %w_factor{n} : vector<4xf32>
""")
    return "".join(lines)


def keys(target: str, spec: IndexerSpec, together: int) -> str:
    """%k<t>_<s> and %kf<t> of every key tile."""
    lines = []
    for t in range(TILES):
        lines.append(f"""\
{_operands(target, spec, f"%k{t}", f"%low{t}", f"%high{t}")}
{word(f"%k_scale{t}", f"%scales{t}")}
%kf{t} = arith.bitcast %k_scale{t} : i32 to f32""")
    return "\n".join(lines)


def scores(target: str, spec: IndexerSpec, together: int) -> str:
    """%score<r>: the weighted sum over heads, for key n of tile g."""
    return "".join(_score(spec, r) for r in range(together))


def _score(spec: IndexerSpec, r: int) -> str:
    sums = "\n".join(_head_sum(spec, r, t) for t in range(TILES))
    total = lane_sum(r, "", "%i32", "%i16", "%i64")
    return f"{sums}\n{total}\n%score{r} = arith.addf %total{r}, %zero : f32\n"


def _reinterprets(target: str, spec: IndexerSpec) -> bool:
    return target == "gfx942" and spec.format is Format.FP8


def _operands(target: str, spec: IndexerSpec, result: str, low: str, high: str) -> str:
    """<result>_<s>: eight bytes for each of four MFMAs."""
    lines = []
    for i, half in enumerate((low, high)):
        n = f"{result}_h{i}"
        lines.append(f"{n}_w = vector.bitcast {half} : vector<16xi8> to vector<4xi32>")
        taken = f"{n}_w"
        if _reinterprets(target, spec):
            lines.append(_as_fnuz(n))
            taken = f"{n}_fnuz"
        lines.append(f"{n}_long = vector.bitcast {taken} : vector<4xi32> to vector<2xi64>")
        for j in range(2):
            lines.append(
                f"{result}_{2 * i + j} = vector.extract {n}_long[{j}] : i64 from vector<2xi64>"
            )
    return "\n".join(lines)


def _as_fnuz(n: str) -> str:
    """<n>_fnuz: OCP bytes with -0 as 0 and NaN as 0x80; bit 7 carries what holds for a byte."""
    kind = "vector<4xi32>"
    return f"""\
{n}_size = arith.andi {n}_w, %sizes : {kind}
{n}_some = arith.addi {n}_size, %sizes : {kind}
{n}_kept = arith.andi {n}_w, {n}_some : {kind}
{n}_sign = arith.andi {n}_kept, %signs : {kind}
{n}_number = arith.ori {n}_size, {n}_sign : {kind}
{n}_over = arith.addi {n}_size, %ones : {kind}
{n}_nan = arith.andi {n}_over, %signs : {kind}
{n}_nan_bit = arith.shrui {n}_nan, %sevens : {kind}
{n}_nan_size = arith.subi {n}_nan, {n}_nan_bit : {kind}
{n}_nan_byte = arith.ori {n}_nan, {n}_nan_size : {kind}
{n}_finite = arith.xori {n}_nan_byte, %flip : {kind}
{n}_masked = arith.andi {n}_number, {n}_finite : {kind}
{n}_fnuz = arith.ori {n}_masked, {n}_nan : {kind}"""


def _head_sum(spec: IndexerSpec, r: int, t: int) -> str:
    """%part<r>_<t>: the sum over this lane's heads for key n of tile t."""
    lines, last = [], ""
    for m in range(head_tiles(spec)):
        n, before = f"{r}_{t}_{m}", "%zeros"
        for s in range(STEPS):
            lines.append(
                f'%dot{n}_{s} = llvm.call_intrinsic "llvm.amdgcn.mfma.f32.16x16x32.fp8.fp8"'
                f"(%q{r}_{m}_{s}, %k{t}_{s}, {before}, %i0, %i0, %i0)"
                " : (i64, i64, vector<4xf32>, i32, i32, i32) -> vector<4xf32>"
            )
            before = f"%dot{n}_{s}"
        lines.append(
            f"%relu{n} = llvm.intr.maximum({before}, %zeros)"
            " : (vector<4xf32>, vector<4xf32>) -> vector<4xf32>"
        )
        lines.append(add_heads(spec, m, n, f"%w{r}_{m}", last))
        last = f"%sum{n}"
    n = f"{r}_{t}"
    lines.append(f"""\
%heads_sum{n} = vector.reduction <add>, {last} : vector<4xf32> into f32
%part{n} = arith.mulf %heads_sum{n}, %kf{t} : f32""")
    return "\n".join(lines)
