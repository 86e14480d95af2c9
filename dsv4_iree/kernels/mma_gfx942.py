# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scores of 64 heads x 64 keys on gfx942: FP4 as fp8, 64 `v_mfma_f32_16x16x32_fp8_fp8`.

Every e2m1 value is an e4m3 FNUZ value, and so it is times 2^s for s from -6 to 5. A vector's group
scales go into its bytes where they lie within a factor of 2^11 of each other, less the largest one,
which goes into the head's weight or the key's sum: that is the NARROW form, one chain of four MFMAs
and no scale per score. The EXACT form keeps one accumulator per group and takes every e8m0 byte,
NaN included. Which one is decided by wave-uniform branches, from keys inside the windows only.

Lane (g, n) holds group g of head n and of key n; an MFMA takes eight codes of each group, even dims
before odd ones. It gets heads 4g..4g+3 of key n.
"""

from __future__ import annotations

from dsv4_iree.kernels import mma_amd
from dsv4_iree.kernels import mma_fp8 as codes
from dsv4_iree.kernels.mma_amd import add_heads, four, head_numbers, head_tiles
from dsv4_iree.kernels.mma_common import (
    MODERATE,
    TILES,
    either_form,
    extremes,
    narrow_keys,
    none_exceeds,
    word,
)
from dsv4_iree.spec import IndexerSpec

GROUPS, STEPS = 4, 4  # of 32 dims; MFMAs, which take eight codes of each group
LANES, WAVES, TILE_KEYS = mma_amd.LANES, mma_amd.WAVES, mma_amd.TILE_KEYS
RAGGED_ROWS, PAGED_ROWS, memory = mma_amd.RAGGED_ROWS, mma_amd.PAGED_ROWS, mma_amd.memory
STAGED, ATTRIBUTES = mma_amd.STAGED, mma_amd.ATTRIBUTES
HEADS_STEP, LANE = mma_amd.HEADS_STEP, mma_amd.LANE
PARTS = (("codes", "vector<16xi8>"), ("scales", "vector<4xi8>"))
"""What a lane loads of a key tile: the codes of group g of key n, and all scales of key n."""


CONSTANTS = f"""\
%no_codes = arith.constant dense<0> : vector<16xi8>
%no_scales = arith.constant dense<127> : vector<4xi8>
{codes.CONSTANTS}%i32 = arith.constant 32 : i32
%i64 = arith.constant 64 : i32
%all_lanes = arith.constant -1 : i64
%no_pair = arith.constant 0 : i64
%lane_bytes = arith.muli %g, %c16 : index
%lane_heads = arith.muli %g, %c4 : index
%g32 = arith.index_cast %g : index to i32
%g_bits = arith.muli %g32, %i8 : i32
%two = arith.constant 2 : index
%upper = arith.cmpi uge, %g, %two : index
%g_low = arith.remui %g, %two : index
%odd = arith.cmpi ne, %g_low, %c0 : index
"""


def load(t: int, values: str, scales: str, suffix: str) -> str:
    """%codes<t><suffix> and %scales<t><suffix>, from the rows at %value_row<t>, %scale_row<t>."""
    return f"""\
%value_at{t} = arith.addi %value_row{t}, %lane_bytes : index
%codes{t}{suffix} = vector.load {values}[%value_at{t}] : memref<?xi8>, vector<16xi8>
%scales{t}{suffix} = vector.load {scales}[%scale_row{t}] : memref<?xi8>, vector<4xi8>"""


def query(target: str, spec: IndexerSpec, r: int) -> str:
    """%q<r>_<m>_<s> and %w<r>_<m> of every 16 heads of row r in NARROW form; %narrow_row<r>."""
    heads, lines, excess = spec.num_heads, [], []
    for m in range(head_tiles(spec)):
        n = f"{r}_{m}"
        lines.append(f"%head_base{n} = arith.constant {16 * m} : index")
        lines.append(head_numbers(spec, n))
        lines.append(
            f"%q_scales{n} = vector.load %q_scales[%row{r}, %head{n}, %c0]"
            f" : memref<?x{heads}x4xi8>, vector<4xi8>"
        )
        lines.append(codes.step(f"%q{n}", f"%q_scales{n}"))
        lines.append(codes.table(f"%q{n}_t", f"%q{n}"))
        lines.append(_load_query(spec, r, n))
        for s in range(STEPS):
            lines.append(codes.decoded(f"%q{n}_{s}", f"%q_code{n}_{s}", f"%q{n}_t"))
        lines.append(_weights(spec, r, n))
        excess += [f"%q{n}_excess", f"%w{n}_excess"]
    lines.append(_vote(f"%narrow_row{r}", excess))
    return "\n".join(lines) + "\n"


def keys(target: str, spec: IndexerSpec, together: int) -> str:
    """%k<t>_<s> and %kf<t> of every key tile in NARROW form; %narrow_keys."""
    lines = []
    for t in range(TILES):
        lines.append(codes.step(f"%k{t}", f"%scales{t}"))
        lines.append(codes.table(f"%k{t}_t", f"%k{t}"))
        lines.append(_words(f"%k_code{t}", f"%codes{t}"))
        for s in range(STEPS):
            lines.append(codes.decoded(f"%k{t}_{s}", f"%k_code{t}_{s}", f"%k{t}_t"))
        lines.append(f"%kf{t} = arith.bitcast %k{t}_factor : i32 to f32")
    lines.append(narrow_keys(together, 16, _vote))
    return "\n".join(lines)


def scores(target: str, spec: IndexerSpec, together: int) -> str:
    """%score<r>: the weighted sum over heads, for key n of tile g."""
    return "".join(_score(spec, r) for r in range(together))


def _score(spec: IndexerSpec, r: int) -> str:
    narrow = "\n".join(_narrow_sum(spec, r, t) for t in range(TILES))
    return either_form(r, narrow, _exact_sums(spec, r), "%i32", "%i16", "%i64")


def _load_query(spec: IndexerSpec, r: int, n: str) -> str:
    """%q_code<n>_<s>: eight codes of group g of the head, for each MFMA."""
    return f"""\
%q_bytes{n} = vector.load %q_values[%row{r}, %head{n}, %lane_bytes]
    : memref<?x{spec.num_heads}x64xi8>, vector<16xi8>
{_words(f"%q_code{n}", f"%q_bytes{n}")}"""


def _words(result: str, sixteen_bytes: str) -> str:
    lines = [f"{result}_v = vector.bitcast {sixteen_bytes} : vector<16xi8> to vector<4xi32>"]
    for s in range(STEPS):
        lines.append(f"{result}_{s} = vector.extract {result}_v[{s}] : i32 from vector<4xi32>")
    return "\n".join(lines)


def _weights(spec: IndexerSpec, r: int, n: str) -> str:
    """%w<n>: weights of four heads times their largest scale; %w<n>_excess."""
    heads = spec.num_heads
    lines = [
        f"%w_raw{n} = vector.load %weights[%row{r}, %heads{n}]"
        f" : memref<?x{heads}xf32>, vector<4xf32>"
    ]
    for i in range(4):
        lines.append(f"""\
%w_add{n}_{i} = arith.constant {i} : index
%w_head{n}_{i} = arith.addi %heads{n}, %w_add{n}_{i} : index
%w_scales{n}_{i} = vector.load %q_scales[%row{r}, %w_head{n}_{i}, %c0]
    : memref<?x{heads}x4xi8>, vector<4xi8>
{word(f"%w_scale{n}_{i}", f"%w_scales{n}_{i}")}
{extremes(f"%w{n}_{i}", f"%w_scale{n}_{i}")}
{codes.power(f"%w{n}_{i}")}""")
    factors = ", ".join(f"%w{n}_{i}_factor" for i in range(4))
    return (
        "\n".join(lines)
        + f"""
%w_bits{n} = vector.from_elements {factors} : vector<4xi32>
%w_factor{n} = vector.bitcast %w_bits{n} : vector<4xi32> to vector<4xf32>
%w{n} = arith.mulf %w_raw{n}, %w_factor{n} : vector<4xf32>
%w_int{n} = vector.bitcast %w_raw{n} : vector<4xf32> to vector<4xi32>
%w_23{n} = arith.constant dense<23> : vector<4xi32>
%w_255{n} = arith.constant dense<255> : vector<4xi32>
%w_shifted{n} = arith.shrui %w_int{n}, %w_23{n} : vector<4xi32>
%w_exponent{n} = arith.andi %w_shifted{n}, %w_255{n} : vector<4xi32>
%w_is_zero{n} = arith.cmpf oeq, %w_raw{n}, %zeros : vector<4xf32>
%w_ordinary{n} = arith.constant dense<127> : vector<4xi32>
%w_e{n} = arith.select %w_is_zero{n}, %w_ordinary{n}, %w_exponent{n} : vector<4xi1>, vector<4xi32>
%w_max{n} = vector.reduction <maxui>, %w_e{n} : vector<4xi32> into i32
%w_min{n} = vector.reduction <minui>, %w_e{n} : vector<4xi32> into i32
%w_least{n} = arith.constant {MODERATE[0]} : i32
%w_most{n} = arith.constant {MODERATE[1]} : i32
%w_low{n} = arith.subi %w_least{n}, %w_min{n} : i32
%w_high{n} = arith.subi %w_max{n}, %w_most{n} : i32
%w{n}_excess = arith.maxsi %w_low{n}, %w_high{n} : i32"""
    )


def _vote(result: str, excess: list[str]) -> str:
    return f"""\
{none_exceeds(f"{result}_lane", excess)}
{result}_lanes = rocdl.ballot {result}_lane : i64
{result} = arith.cmpi eq, {result}_lanes, %all_lanes : i64"""


def _mfma(result: str, q: str, k: str, before: str) -> str:
    return (
        f'{result} = llvm.call_intrinsic "llvm.amdgcn.mfma.f32.16x16x32.fp8.fp8"'
        f"({q}, {k}, {before}, %i0, %i0, %i0)"
        " : (i64, i64, vector<4xf32>, i32, i32, i32) -> vector<4xf32>"
    )


def _narrow_sum(spec: IndexerSpec, r: int, t: int) -> str:
    """%part<r>_<t>a: the sum over this lane's heads for key n of tile t."""
    lines, last = [], ""
    for m in range(head_tiles(spec)):
        n, before = f"{r}_{t}_{m}", "%zeros"
        for s in range(STEPS):
            lines.append(_mfma(f"%dot{n}_{s}", f"%q{r}_{m}_{s}", f"%k{t}_{s}", before))
            before = f"%dot{n}_{s}"
        # Numbers are finite here, so that there is no NaN to keep.
        lines.append(f"%relu{n} = arith.maxnumf {before}, %zeros fastmath<nnan> : vector<4xf32>")
        lines.append(add_heads(spec, m, n, f"%w{r}_{m}", last))
        last = f"%sum{n}"
    lines.append(four(f"%four{r}_{t}", last))
    lines.append(f"%part{r}_{t}a = arith.mulf %four{r}_{t}, %kf{t} : f32")
    return "\n".join(lines)


def _exact_sums(spec: IndexerSpec, r: int) -> str:
    """%part<r>_0b..3b: the same, each group's dot times its two scales; loops keep it small.

    A group is alone in the dot where the other lanes' codes are zero.
    """
    heads, n = spec.num_heads, f"x{r}"
    body = [f"%head_base{n} = arith.muli %m, %c16 : index", head_numbers(spec, n)]
    body.append(_load_query(spec, r, n))
    for s in range(STEPS):
        body.append(codes.decoded(f"%q{n}_{s}", f"%q_code{n}_{s}", "%plain"))
    for g in range(GROUPS):
        before = "%zeros"
        for s in range(STEPS):
            dot = f"%dot{n}_{g}" if s == STEPS - 1 else f"%dot{n}_{g}_{s}"
            body.append(_mfma(dot, f"%q{n}_{s}", f"%k{n}_{g}_{s}", before))
            before = dot
    for i in range(4):
        body.append(f"""\
%add{n}_{i} = arith.constant {i} : index
%one{n}_{i} = arith.addi %heads{n}, %add{n}_{i} : index
%four{n}_{i} = vector.load %q_scales[%row{r}, %one{n}_{i}, %c0]
    : memref<?x{heads}x4xi8>, vector<4xi8>
%e{n}_{i} = arith.extui %four{n}_{i} : vector<4xi8> to vector<4xi32>""")
    last = "%zeros"
    for g in range(GROUPS):
        body.append(_scaled_group(n, g, last))
        last = f"%upto{n}_{g}"
    body.append(f"""\
%relu{n} = llvm.intr.maximum({last}, %zeros)
    : (vector<4xf32>, vector<4xf32>) -> vector<4xf32>
%w{n} = vector.load %weights[%row{r}, %heads{n}] : memref<?x{heads}xf32>, vector<4xf32>
%weighted{n} = arith.mulf %relu{n}, %w{n} : vector<4xf32>
// The last tile may repeat its last heads; they must not count, whatever they score.
%heads_all{n} = arith.constant {heads} : index
%is_head{n} = arith.cmpi ult, %heads_any{n}, %heads_all{n} : index
%counted{n} = arith.select %is_head{n}, %weighted{n}, %zeros : vector<4xf32>
%next{n} = arith.addf %before{n}, %counted{n} : vector<4xf32>
scf.yield %next{n} : vector<4xf32>""")
    inner, prepare = "\n".join(body), "\n".join(_chosen_tile(n))
    parts = [f"%part{n}_{t}" for t in range(TILES)]
    kept = "\n".join(
        f"%this{n}_{t} = arith.constant {t} : index\n"
        f"%is{n}_{t} = arith.cmpi eq, %t, %this{n}_{t} : index\n"
        f"%kept{n}_{t} = arith.select %is{n}_{t}, %sum{n}, {part} : f32"
        for t, part in enumerate(parts)
    )
    floats = ", ".join(["f32"] * TILES)
    return f"""\
%tiles{n} = arith.constant {head_tiles(spec)} : index
%twice_127 = arith.constant dense<254> : vector<4xi32>
%all_255 = arith.constant dense<255> : vector<4xi32>
%nans = arith.constant dense<0x7FC00000> : vector<4xf32>
{", ".join(f"%part{r}_{t}b" for t in range(TILES))} = scf.for %t = %c0 to %c4 step %c1
    iter_args({", ".join(f"{part} = %zero" for part in parts)}) -> ({floats}) {{
{prepare}
%heads_sum{n} = scf.for %m = %c0 to %tiles{n} step %c1
    iter_args(%before{n} = %zeros) -> (vector<4xf32>) {{
{inner}
}}
{four(f"%sum{n}", f"%heads_sum{n}")}
{kept}
scf.yield {", ".join(f"%kept{n}_{t}" for t in range(TILES))} : {floats}
}}"""


def _chosen_tile(n: str) -> list[str]:
    """%k<n>_<g>_<s> and %ke<n>_<g>: codes of group g alone, and scales, of the key in tile %t."""
    lines = []
    for part in (*(f"code{s}" for s in range(STEPS)), "word"):
        names = [
            f"%k{t}_word" if part == "word" else f"%k_code{t}_{part[4:]}" for t in range(TILES)
        ]
        last = names[0]
        for t in range(1, TILES):
            lines.append(f"""\
%at{n}_{part}_{t} = arith.constant {t} : index
%now{n}_{part}_{t} = arith.cmpi eq, %t, %at{n}_{part}_{t} : index
%{part}{n}_{t} = arith.select %now{n}_{part}_{t}, {names[t]}, {last} : i32""")
            last = f"%{part}{n}_{t}"
    lines.append(extremes(f"%k{n}", f"%word{n}_{TILES - 1}"))
    for s in range(STEPS):
        lines.append(codes.decoded(f"%k{n}_s{s}", f"%code{s}{n}_{TILES - 1}", "%plain"))
    for g in range(GROUPS):
        lines.append(f"""\
%ke{n}_{g} = vector.broadcast %k{n}_e{g} : i32 to vector<4xi32>
%number{n}_{g} = arith.constant {g} : index
%mine{n}_{g} = arith.cmpi eq, %g, %number{n}_{g} : index""")
        for s in range(STEPS):
            lines.append(f"%k{n}_{g}_{s} = arith.select %mine{n}_{g}, %k{n}_s{s}, %no_pair : i64")
    return lines


def _scaled_group(n: str, g: int, last: str) -> str:
    """%upto<n>_<g>: the group's dots times both scales, added to those before."""
    p, four = f"{n}_{g}", ", ".join(f"%byte{n}_{g}_{i}" for i in range(4))
    lines = [
        f"%byte{p}_{i} = vector.extract %e{n}_{i}[{g}] : i32 from vector<4xi32>" for i in range(4)
    ]
    lines.append(f"""\
%qe{p} = vector.from_elements {four} : vector<4xi32>
%both{p} = arith.addi %qe{p}, %ke{p} : vector<4xi32>
%power{p} = arith.subi %both{p}, %twice_127 : vector<4xi32>
%scaled{p} = llvm.call_intrinsic "llvm.ldexp.v4f32.v4i32"(%dot{p}, %power{p})
    : (vector<4xf32>, vector<4xi32>) -> vector<4xf32>
%q_is_nan{p} = arith.cmpi eq, %qe{p}, %all_255 : vector<4xi32>
%k_is_nan{p} = arith.cmpi eq, %ke{p}, %all_255 : vector<4xi32>
%is_nan{p} = arith.ori %q_is_nan{p}, %k_is_nan{p} : vector<4xi1>
%group{p} = arith.select %is_nan{p}, %nans, %scaled{p} : vector<4xi1>, vector<4xf32>
%upto{p} = arith.addf {last}, %group{p} : vector<4xf32>""")
    return "\n".join(lines)
