# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The EXACT form of the CUDA kernels: each group's dot times its two scales, for every e8m0 byte.

It runs where scales lie too far apart for the NARROW form. Loops keep its code and its registers
few.
"""

from __future__ import annotations

from dsv4_iree.kernels import mma_int8 as int8
from dsv4_iree.kernels.mma_common import TILES, word
from dsv4_iree.kernels.mma_int8 import STEPS
from dsv4_iree.spec import IndexerSpec

PAIRS = [(t, j) for t in range(TILES) for j in range(2)]  # of a key and a head


def exact_sums(spec: IndexerSpec, r: int) -> str:
    """%part<r>_0b..3b: the same, each group's dot times its two scales; loops keep it small.

    A group is alone in the dot where the other lanes' codes are zero.
    """
    heads, n = spec.num_heads, f"x{r}"
    lines = [
        f"""\
%c8{n} = arith.constant 8 : index
%twice_128 = arith.constant 256 : i32
%far = arith.constant 100 : i32
%near = arith.constant -100 : i32
%i127 = arith.constant 127 : i32
%no_dots = arith.constant dense<0> : vector<2x2xi32>
%tiles{n} = arith.constant {heads // 8} : index
{int8.table(f"%plain{n}", "%i0")}"""
    ]
    for t in range(TILES):
        for s in range(STEPS):
            lines.append(int8.decoded(f"%p{n}_{t}_{s}", f"%k_word{t}_{s}", f"%plain{n}"))
    body = [
        f"""\
%tile{n} = arith.muli %m, %c8{n} : index
%head{n} = arith.addi %tile{n}, %n : index
%bytes{n} = vector.load %q_values[%row{r}, %head{n}, %group_bytes]
    : memref<?x{heads}x64xi8>, vector<16xi8>
{int8.words(f"%word{n}", f"%bytes{n}")}
%heads{n} = arith.addi %tile{n}, %pair_heads : index"""
    ]
    for s in range(STEPS):
        body.append(int8.decoded(f"%q{n}_{s}", f"%word{n}_{s}", f"%plain{n}"))
        body.append(int8.operand(f"%qb{n}_{s}", [f"%q{n}_{s}_low", f"%q{n}_{s}_high"]))
    for j in range(2):
        body.append(f"""\
%add{n}_{j} = arith.constant {j} : index
%one{n}_{j} = arith.addi %heads{n}, %add{n}_{j} : index
%w{n}_{j} = memref.load %weights[%row{r}, %one{n}_{j}] : memref<?x{heads}xf32>
%four{n}_{j} = vector.load %q_scales[%row{r}, %one{n}_{j}, %c0]
    : memref<?x{heads}x4xi8>, vector<4xi8>
{word(f"%scales{n}_{j}", f"%four{n}_{j}")}""")
    body.append(_exact_groups(n))
    after = [f"%before{n}_{t}" for t in range(TILES)]
    for t, j in PAIRS:
        p = f"{n}_{t}{j}"
        body.append(f"""\
%max{p} = llvm.intr.maximum(%score{p}, %zero) : (f32, f32) -> f32
%weighted{p} = arith.mulf %max{p}, %w{n}_{j} : f32
%after{p} = arith.addf {after[t]}, %weighted{p} : f32""")
        after[t] = f"%after{p}"
    floats = ", ".join(["f32"] * TILES)
    begin = ", ".join(f"%before{n}_{t} = %zero" for t in range(TILES))
    parts = ", ".join(f"%part{r}_{t}b" for t in range(TILES))
    return "\n".join(
        [
            *lines,
            f"{parts} = scf.for %m = %c0 to %tiles{n} step %c1",
            f"    iter_args({begin}) -> ({floats}) {{",
            *body,
            f"scf.yield {', '.join(after)} : {floats}",
            "}",
        ]
    )


def _exact_groups(n: str) -> str:
    """%score<n>_<t><j>: q . k of heads j and the keys of this lane, group after group."""
    body = [
        f"%mine{n} = arith.cmpi eq, %g, %group{n} : index",
        f"%group32{n} = arith.index_cast %group{n} : index to i32",
        f"%group_bits{n} = arith.muli %group32{n}, %i8 : i32",
    ]
    for name, words in (
        ("ke", [f"%k{t}_word" for t in range(TILES)]),
        ("qe", [f"%scales{n}_{j}" for j in range(2)]),
    ):
        for i, scales in enumerate(words):
            body.append(f"%{name}_up{n}_{i} = arith.shrui {scales}, %group_bits{n} : i32")
            body.append(f"%{name}{n}_{i} = arith.andi %{name}_up{n}_{i}, %i255 : i32")
    for m in range(TILES // 2):
        before = "%no_dots"
        for s in range(STEPS):
            p, a, b = f"{n}_{m}_{s}", f"%p{n}_{2 * m}_{s}", f"%p{n}_{2 * m + 1}_{s}"
            for i, row in enumerate((f"{a}_low", f"{b}_low", f"{a}_high", f"{b}_high")):
                body.append(f"%row{p}_{i} = arith.select %mine{n}, {row}, %i0 : i32")
            body.append(int8.operand(f"%k{p}", [f"%row{p}_{i}" for i in range(4)]))
            body.append(int8.mma(f"%d{p}", f"%k{p}", f"%qb{n}_{s}", before))
            before = f"%d{p}"
        for t, j in PAIRS[4 * m : 4 * m + 4]:
            p = f"{n}_{t}{j}"
            body.append(f"""\
%int{p} = vector.extract {before}[{t - 2 * m}, {j}] : i32 from vector<2x2xi32>
%float{p} = arith.sitofp %int{p} : i32 to f32
{_scaled(p, f"%float{p}", f"%qe{n}_{j}", f"%ke{n}_{t}")}
%next{p} = arith.addf %upto{p}, %scaled{p} : f32""")
    floats = ", ".join(["f32"] * len(PAIRS))
    begin = ", ".join(f"%upto{n}_{t}{j} = %zero" for t, j in PAIRS)
    results = ", ".join(f"%score{n}_{t}{j}" for t, j in PAIRS)
    return "\n".join(
        [
            f"{results} = scf.for %group{n} = %c0 to %c4 step %c1",
            f"    iter_args({begin}) -> ({floats}) {{",
            *body,
            f"scf.yield {', '.join(f'%next{n}_{t}{j}' for t, j in PAIRS)} : {floats}",
            "}",
        ]
    )


def _scaled(p: str, value: str, q: str, k: str) -> str:
    """%scaled<p>: the value times 2^(q + k - 256) by three factors, which are normal numbers."""
    lines = [
        f"""\
%both{p} = arith.addi {q}, {k} : i32
%left{p}_0 = arith.subi %both{p}, %twice_128 : i32"""
    ]
    for i in range(3):
        lines.append(f"""\
%low{p}_{i} = arith.maxsi %left{p}_{i}, %near : i32
%part{p}_{i} = arith.minsi %low{p}_{i}, %far : i32
%left{p}_{i + 1} = arith.subi %left{p}_{i}, %part{p}_{i} : i32
%biased{p}_{i} = arith.addi %part{p}_{i}, %i127 : i32
%bits{p}_{i} = arith.shli %biased{p}_{i}, %i23 : i32
%factor{p}_{i} = arith.bitcast %bits{p}_{i} : i32 to f32
%times{p}_{i} = arith.mulf {value if i == 0 else f"%times{p}_{i - 1}"}, %factor{p}_{i} : f32""")
    return "\n".join(
        [
            *lines,
            f"""\
%q_nan{p} = arith.cmpi eq, {q}, %i255 : i32
%k_nan{p} = arith.cmpi eq, {k}, %i255 : i32
%is_nan{p} = arith.ori %q_nan{p}, %k_nan{p} : i1
%scaled{p} = arith.select %is_nan{p}, %nan, %times{p}_2 : f32""",
        ]
    )
