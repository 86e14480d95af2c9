# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The arithmetic of the AVX512-VNNI logits kernels, and the vocabulary of their MLIR.

A vector lane is a key. `vpdpbusd` multiplies four unsigned bytes of each lane by four signed bytes
and adds the products to the lane's int32: four dims of 16 keys in one instruction.

Values. Twice an e2m1 value is an integer in [-12, 12], so dots of doubled values are exact; the
scales take the doubling off again. Queries are the signed operand. Keys are the unsigned one: BIAS
is added to each of their bytes. That makes every dot too large by BIAS times the sum of the query's
values, so the accumulators of a head start from minus that.

Scales. Values with scale byte e are the same numbers as values * 2^s with scale byte e - s, and
BIAS leaves room for s up to ROOM. Every vector brings the scales of its groups together like this,
down to its smallest. There are three forms of the scores, chosen for each block of keys:

NARROW  all heads and all keys have one scale left, as when their scale bytes are at most ROOM
        apart: the dot over all dims is one integer chain, scaled once per head and once per key.
WIDE    each group's dot is scaled by one factor; for scale bytes near 127.
EXACT   each group's dot is scaled by two factors, since the exponents of e8m0 * e8m0 reach far
        beyond those of fp32; knows NaN.

The choice never changes a bit. A dot that NARROW can take is below 2^24 of its units, so the sum
over groups is exact in WIDE as well; and WIDE's one factor is the first of EXACT's two.
"""

from __future__ import annotations

from string import Template
from textwrap import indent

LANES = 16
BLOCK = 64  # keys that are decoded together
TILES = BLOCK // LANES
GROUPS = 4  # of 32 dims, each with its scale
ROOM = 3
BIAS = 12 << ROOM
NARROW, WIDE, EXACT = 0, 1, 2
ORDINARY = (97, 157)  # scale bytes of NARROW and WIDE
MODERATE = (87, 167)  # fp32 exponents of weights in NARROW, which multiplies them by scales first
DOUBLED = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]  # e2m1 codes 0..15

I32, F32, BYTES = f"vector<{LANES}xi32>", f"vector<{LANES}xf32>", "vector<64xi8>"
MASK = f"vector<{LANES}xi1>"

CONSTANTS = f"""\
%c0 = arith.constant 0 : index
%c1 = arith.constant 1 : index
%c2 = arith.constant 2 : index
%c4 = arith.constant 4 : index
%c16 = arith.constant 16 : index
%c32 = arith.constant 32 : index
%c48 = arith.constant 48 : index
%c64 = arith.constant 64 : index
%none = arith.constant -1 : index
%true = arith.constant true
%false = arith.constant false
%i0 = arith.constant 0 : i32
%i1 = arith.constant 1 : i32
%i2 = arith.constant 2 : i32
%i23 = arith.constant 23 : i32
%f0 = arith.constant 0.0 : f32
%nan = arith.constant 0x7FC00000 : f32
%v0 = arith.constant dense<0> : {I32}
%v23 = arith.constant dense<23> : {I32}
%v255 = arith.constant dense<255> : {I32}
%room = arith.constant dense<{ROOM}> : {I32}
%least_ordinary = arith.constant dense<{ORDINARY[0]}> : {I32}
%most_ordinary = arith.constant dense<{ORDINARY[1]}> : {I32}
%least_power = arith.constant dense<-126> : {I32}
%most_power = arith.constant dense<127> : {I32}
%lane = arith.constant dense<{[*range(LANES)]}> : {I32}
%no_lanes = arith.constant dense<false> : {MASK}
%z = arith.constant dense<0.0> : {F32}
%nans = arith.constant dense<0x7FC00000> : {F32}
%minus_inf = arith.constant dense<0xFF800000> : {F32}
%low_nibble = arith.constant dense<15> : {BYTES}
%nibble = arith.constant dense<4> : {BYTES}"""


def call(instruction: str, operands: tuple[str, ...], kinds: tuple[str, ...]) -> str:
    """An AVX512 instruction by its LLVM intrinsic; the last of `kinds` is the result's."""
    types = f"({', '.join(kinds[:-1])}) -> {kinds[-1]}"
    return (
        f'llvm.call_intrinsic "llvm.x86.avx512.{instruction}.512"({", ".join(operands)}) : {types}'
    )


def dot(start: str, unsigned: str, signed: str) -> str:
    """%start plus four products in every lane."""
    return call("vpdpbusd", (start, unsigned, signed), (I32, BYTES, BYTES, I32))


def look_up(table: str, codes: str) -> str:
    """The bytes of a table of 16, repeated four times, that 64 codes below 16 name."""
    return call("pshuf.b", (table, codes), (BYTES, BYTES, BYTES))


def scratch(name: str, kind: str) -> str:
    """Room on the workgroup's stack, aligned for vectors."""
    # The short form of this op has no place for the alignment.
    sizes = "<{alignment = 64 : i64, operandSegmentSizes = array<i32: 0, 0>}>"
    return f'{name} = "memref.alloca"() {sizes} : () -> {kind}'


def fill(template: Template, **parts: str) -> str:
    """Put `parts` into a template; one that stands alone on a line is indented as it is."""
    lines = []
    for line in template.template.splitlines():
        bare = line.strip()
        if bare.startswith("$") and bare[1:] in parts:
            lines.append(indent(parts[bare[1:]], line[: line.index("$")]))
        else:
            lines.append(Template(line).substitute(parts))
    return "\n".join(lines)
