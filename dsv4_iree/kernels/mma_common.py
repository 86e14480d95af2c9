# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tile modules have in common: scale bytes, the choice of a form, the sum over lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

TILES = 4  # of a block of keys, whose number is that of the lanes
MODERATE = (87, 167)  # NARROW: fp32 exponents of weights, far from the ends of fp32
ORDINARY = (60, 190)  # NARROW: scale bytes; their powers of two, and products, are normal numbers


@dataclass(frozen=True)
class Loop:
    """Lines about the keys of the loop over blocks.

    Args:
        begin: before the loop.
        carried: what goes from block to block, as its `iter_args`.
        ahead: at the start of every block.
        keys: at the start of a block that a row sees; define what the tile module's `keys` and
            `scores` take, and %there, whether the key that this lane writes is visible.
        end: at the end of every block.
    """

    begin: str
    carried: str
    ahead: str
    keys: str
    end: str


def shared(result: str, kind: str) -> str:
    """Memory of a workgroup, aligned for the widest accesses wherever the others' ends.

    The short form of this op has no place for the alignment.
    """
    properties = "<{alignment = 128 : i64, operandSegmentSizes = array<i32: 0, 0>}>"
    return f'{result} = "memref.alloc"() {properties} : () -> {kind}'


def word(result: str, four_bytes: str) -> str:
    """<result>: four bytes as an i32."""
    return f"""\
{result}_v = vector.bitcast {four_bytes} : vector<4xi8> to vector<1xi32>
{result} = vector.extract {result}_v[0] : i32 from vector<1xi32>"""


def extremes(n: str, word: str) -> str:
    """<n>_e0..3: the bytes of a word of scales; <n>_max, <n>_min."""
    lines = [f"{n}_e0 = arith.andi {word}, %i255 : i32"]
    for g, by in ((1, "%i8"), (2, "%i16"), (3, "%i24")):
        lines.append(f"{n}_m{g} = arith.shrui {word}, {by} : i32")
        lines.append(f"{n}_e{g} = arith.andi {n}_m{g}, %i255 : i32")
    for name in ("max", "min"):
        lines.append(f"{n}_{name}01 = arith.{name}ui {n}_e0, {n}_e1 : i32")
        lines.append(f"{n}_{name}23 = arith.{name}ui {n}_e2, {n}_e3 : i32")
        lines.append(f"{n}_{name} = arith.{name}ui {n}_{name}01, {n}_{name}23 : i32")
    return "\n".join(lines)


def none_exceeds(result: str, excess: list[str]) -> str:
    """<result>: whether no number is above zero in this lane; flags would take scalar registers."""
    lines, last = [], excess[0]
    for i, number in enumerate(excess[1:]):
        lines.append(f"{result}_{i} = arith.maxsi {last}, {number} : i32")
        last = f"{result}_{i}"
    return "\n".join([*lines, f"{result} = arith.cmpi sle, {last}, %i0 : i32"])


def narrow_keys(together: int, keys: int, votes: Callable[[str, list[str]], str]) -> str:
    """%narrow_keys: whether NARROW takes every key of the block that a row sees.

    Args:
        keys: of a tile.
        votes: gives the lines for a flag that is set where no number exceeds zero in any lane.
    """
    tiles = range(TILES)
    inside = "\n".join(seen(f"%excess_seen{t}", t, together, keys, f"%k{t}_excess") for t in tiles)
    return f"""\
{votes("%all_keys", [f"%k{t}_excess" for t in tiles])}
%narrow_keys = scf.if %all_keys -> (i1) {{
  scf.yield %all_keys : i1
}} else {{
  // Keys that no row sees, whose bytes may be anything, must not choose the form.
{inside}
{votes("%those_keys", [f"%excess_seen{t}" for t in tiles])}
  scf.yield %those_keys : i1
}}"""


def seen(result: str, t: int, together: int, keys: int, number: str) -> str:
    """<result>: a number of this lane's key of tile t, or 0 if no row sees that key."""
    lines = [
        f"""\
%number_at{t} = arith.constant {keys * t} : i32
%number_tile{t} = arith.addi %block32, %number_at{t} : i32
%n32_{t} = arith.index_cast %n : index to i32
%key_number{t} = arith.addi %number_tile{t}, %n32_{t} : i32"""
    ]
    last = ""
    for r in range(together):
        n = f"{t}_{r}"
        lines.append(f"""\
%after{n} = arith.cmpi uge, %key_number{t}, %first{r} : i32
%until{n} = arith.cmpi ult, %key_number{t}, %stop{r} : i32
%both{n} = arith.andi %after{n}, %until{n} : i1
%sees{n} = arith.andi %both{n}, %meets{r} : i1""")
        if last:
            lines.append(f"%seen{n} = arith.ori {last}, %sees{n} : i1")
        last = f"%seen{n}" if last else f"%sees{n}"
    lines.append(f"{result} = arith.select {last}, {number}, %i0 : i32")
    return "\n".join(lines)


def either_form(r: int, narrow: str, exact: str, far: str, near: str, lanes: str) -> str:
    """%score<r> by the form that the keys and row r allow, from lines that define the %part<r>_<t>
    of `lane_sum`: those of NARROW end in a, those of EXACT in b.
    """
    return f"""\
%is_narrow{r} = arith.andi %narrow_keys, %narrow_row{r} : i1
%score{r} = scf.if %is_narrow{r} -> (f32) {{
{narrow}
{lane_sum(r, "a", far, near, lanes)}
  scf.yield %total{r}a : f32
}} else {{
{exact}
{lane_sum(r, "b", far, near, lanes)}
  scf.yield %total{r}b : f32
}}
"""


def lane_sum(r: int, form: str, far: str, near: str, lanes: str) -> str:
    """%total<r><form>: the sum over the four lanes of a key, of key n of tile g in lane (g, n).

    A lane keeps one tile's part and sends the other's, so that each exchange serves two tiles.

    Args:
        far, near: how many lanes apart g and g + 2 are, and g and g + 1.
    """
    part, n = [f"%part{r}_{t}{form}" for t in range(TILES)], f"{r}{form}"
    return "\n".join(
        [
            _exchange(f"%tiles02_{n}", "%upper", part[0], part[2], far, lanes),
            _exchange(f"%tiles13_{n}", "%upper", part[1], part[3], far, lanes),
            _exchange(f"%total{n}", "%odd", f"%tiles02_{n}", f"%tiles13_{n}", near, lanes),
        ]
    )


def _exchange(result: str, second: str, one: str, other: str, apart: str, lanes: str) -> str:
    return f"""\
{result}_kept = arith.select {second}, {other}, {one} : f32
{result}_sent = arith.select {second}, {one}, {other} : f32
{result}_got, {result}_valid = gpu.shuffle xor {result}_sent, {apart}, {lanes} : f32
{result} = arith.addf {result}_kept, {result}_got : f32"""
