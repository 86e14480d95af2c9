# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoding a block of 64 keys, 16 at a time, into lanes; `vnni_words` says what into and why.

Bytes of a key lie side by side in memory, and here lanes are keys: each group of 16 keys is a
matrix of 16 x 4 words, which is transposed on the way.
"""

from __future__ import annotations

from string import Template

from dsv4_iree.kernels.vnni_pages import Source, find_next
from dsv4_iree.kernels.vnni_words import (
    BIAS,
    BYTES,
    DOUBLED,
    F32,
    GROUPS,
    I32,
    MASK,
    TILES,
    fill,
    look_up,
    scratch,
)

KEY_WORDS, KEY_SCALES, KEY_POISON = "memref<32x64xi32>", "memref<4x64xi32>", "memref<64xf32>"
KEY_FOUND = f"memref<{TILES}xi32>"
FOUR_KEYS = "vector<4x16xi8>"
LEAST = -min(DOUBLED)
EACH_BYTE = 0x01010101

BLOCK_OF_KEYS = Template("""\
%unsigned = arith.constant dense<$unsigned> : $bytes
%least = arith.constant dense<$least> : $i32
%bias = arith.constant dense<$bias> : $i32
%flags:2 = scf.for %at = %c0 to %c64 step %c16
    iter_args(%narrow_before = %seen#2, %ordinary_before = %seen#3) -> (i1, i1) {
  %key = arith.addi %block, %at : index
  $find
  %found = arith.cmpi sge, %address, %c0 : index
  %found32 = arith.extui %found : i1 to i32
  %tile = arith.divui %at, %c16 : index
  memref.store %found32, %key_found[%tile] : $key_found
  %raw = scf.if %found -> ($i32) {
    $find_scales
    $load_scales
    %scale_words = vector.bitcast %scale_bytes : vector<64xi8> to $i32
    scf.yield %scale_words : $i32
  } else {
    %ordinary_words = arith.constant dense<0x7F7F7F7F> : $i32
    scf.yield %ordinary_words : $i32
  }
  $scales
  // Keys outside all windows do not take part in choosing a form.
  %key32 = arith.index_cast %key : index to i32
  %key_splat = vector.broadcast %key32 : i32 to $i32
  %column = arith.addi %key_splat, %lane : $i32
  %before = arith.cmpi ult, %column, %from_lanes : $i32
  %after = arith.cmpi uge, %column, %to_lanes : $i32
  %outside = arith.ori %before, %after : $mask
  %spread = arith.subi %e_max, %e_min : $i32
  %one_scale = arith.cmpi sle, %spread, %room : $i32
  %not_low = arith.cmpi sge, %e_min, %least_ordinary : $i32
  %not_high = arith.cmpi sle, %e_max, %most_ordinary : $i32
  %in_range = arith.andi %not_low, %not_high : $mask
  %ordinary_or_out = arith.ori %in_range, %outside : $mask
  %one_scale_or_out = arith.ori %one_scale, %outside : $mask
  %narrow_or_out = arith.andi %ordinary_or_out, %one_scale_or_out : $mask
  %all_ordinary = vector.reduction <and>, %ordinary_or_out : $mask into i1
  %all_narrow = vector.reduction <and>, %narrow_or_out : $mask into i1
  %narrow_now = arith.andi %narrow_before, %all_narrow : i1
  %ordinary_now = arith.andi %ordinary_before, %all_ordinary : i1
  scf.if %found {
    $values
  }
  scf.yield %narrow_now, %ordinary_now : i1, i1
}
$find_next
%wide_or_exact = arith.select %flags#1, %i1, %i2 : i32
%new_form = arith.select %flags#0, %i0, %wide_or_exact : i32""")


def room() -> str:
    """The memory of a decoded block.

    %key_words: dims 8 w .. 8 w + 6 of one parity of each key in row w: even dims first, 16 rows on
    odd ones. %key_scales: the scale left to each group, as an exponent of a float. %key_poison: NaN
    where a scale is NaN, else 0. %key_found: which tiles of 16 keys exist. %next: where
    the tiles of the next block lie.
    """
    places = {"%key_words": KEY_WORDS, "%key_scales": KEY_SCALES, "%key_poison": KEY_POISON}
    places |= {"%key_found": KEY_FOUND, "%next": "memref<4xi64>"}
    return "\n".join(scratch(name, kind) for name, kind in places.items())


def decode_block(source: Source) -> str:
    """Decode the block at key %block of request %who; %new_form is what it can be scored in."""
    return fill(
        BLOCK_OF_KEYS,
        i32=I32,
        bytes=BYTES,
        mask=MASK,
        key_found=KEY_FOUND,
        unsigned=str([LEAST + value for value in DOUBLED] * 4),
        least=str(LEAST * EACH_BYTE),
        bias=str(BIAS * EACH_BYTE),
        find=source.find,
        find_scales=source.find_scales,
        load_scales=source.load_scales,
        scales=_scales(),
        values=_values(source.load_values),
        find_next=find_next(source),
    )


def _scales() -> str:
    """Split the scales in %raw into %shift0..%shift3 and what is left; %e_min and %e_max."""
    lines = []
    for g in range(GROUPS):
        lines.append(f"""\
%by{g} = arith.constant dense<{8 * g}> : {I32}
%moved{g} = arith.shrui %raw, %by{g} : {I32}
%e{g} = arith.andi %moved{g}, %v255 : {I32}""")
    for name in ("min", "max"):
        lines.append(f"""\
%{name}01 = arith.{name}si %e0, %e1 : {I32}
%{name}23 = arith.{name}si %e2, %e3 : {I32}
%e_{name} = arith.{name}si %{name}01, %{name}23 : {I32}""")
    for g in range(GROUPS):
        lines.append(f"""\
%above{g} = arith.subi %e{g}, %e_min : {I32}
%shift{g} = arith.minsi %above{g}, %room : {I32}
%left{g} = arith.subi %e{g}, %shift{g} : {I32}
%bits{g} = arith.shli %left{g}, %v23 : {I32}
%g{g} = arith.constant {g} : index
vector.store %bits{g}, %key_scales[%g{g}, %at] : {KEY_SCALES}, {I32}""")
    lines.append(f"""\
%is_nan = arith.cmpi eq, %e_max, %v255 : {I32}
%poison = arith.select %is_nan, %nans, %z : {MASK}, {F32}
vector.store %poison, %key_poison[%at] : {KEY_POISON}, {F32}""")
    return "\n".join(lines)


def _values(load: Template) -> str:
    """Decode 16 keys into %key_words from column %at on, one group after the other."""
    lines = [f"%empty = arith.constant dense<0> : {FOUR_KEYS}"]
    for g in range(GROUPS):
        # Bytes are unsigned and must stay so when they are shifted: LEAST is added before that,
        # and what BIAS has more than it after.
        lines.append(f"""\
%least_shifted{g} = arith.shli %least, %shift{g} : {I32}
%lift{g} = arith.subi %bias, %least_shifted{g} : {I32}""")
        for i in range(4):
            # Key 4 j + i goes to 128-bit lane j: transposing each 128-bit lane is enough then.
            whole = "%empty"
            for j in range(4):
                key, part, after = 4 * j + i, f"%part{g}_{i}_{j}", f"%keys{g}_{i}_{j}"
                numbers = {"key": key, "before": 16 * g, "offset": 64 * key + 16 * g}
                lines.append(load.substitute(out=part, **numbers))
                kinds = f"vector<16xi8> into {FOUR_KEYS}"
                lines.append(f"{after} = vector.insert {part}, {whole} [{j}] : {kinds}")
                whole = after
            lines.append(f"""\
%flat{g}_{i} = vector.shape_cast {whole} : {FOUR_KEYS} to {BYTES}
%keys{g}_{i} = vector.bitcast %flat{g}_{i} : {BYTES} to {I32}""")
        lines += _transposed(g)
        for w in range(4):
            lines += _decoded(g, w)
    return "\n".join(lines)


def _transposed(g: int) -> list[str]:
    """%word{g}_0 .. %word{g}_3: one word of the group each, key by key."""
    low = [x + o for x in range(0, 16, 4) for o in (0, 16, 1, 17)]
    high = [x + 2 for x in low]
    first = [x + o for x in range(0, 16, 4) for o in (0, 1, 16, 17)]
    second = [x + 2 for x in first]

    def shuffle(name: str, one: str, other: str, lanes: list[int]) -> str:
        return f"{name} = vector.shuffle {one}, {other} {lanes} : {I32}, {I32}"

    a, b, c, d = (f"%keys{g}_{i}" for i in range(4))
    return [
        shuffle(f"%low_ab{g}", a, b, low),
        shuffle(f"%low_cd{g}", c, d, low),
        shuffle(f"%high_ab{g}", a, b, high),
        shuffle(f"%high_cd{g}", c, d, high),
        shuffle(f"%word{g}_0", f"%low_ab{g}", f"%low_cd{g}", first),
        shuffle(f"%word{g}_1", f"%low_ab{g}", f"%low_cd{g}", second),
        shuffle(f"%word{g}_2", f"%high_ab{g}", f"%high_cd{g}", first),
        shuffle(f"%word{g}_3", f"%high_ab{g}", f"%high_cd{g}", second),
    ]


def _decoded(g: int, w: int) -> list[str]:
    """Store the values of word w of group g: low nibbles are even dims, high ones odd dims."""
    n = f"{g}_{w}"
    lines = [
        f"%codes{n} = vector.bitcast %word{n} : {I32} to {BYTES}",
        f"%even{n} = arith.andi %codes{n}, %low_nibble : {BYTES}",
        f"%odd{n} = arith.shrui %codes{n}, %nibble : {BYTES}",
    ]
    for parity, row in (("even", 4 * g + w), ("odd", 16 + 4 * g + w)):
        p = f"{parity}{n}"
        lines.append(f"""\
%values_{p} = {look_up("%unsigned", f"%{p}")}
%words_{p} = vector.bitcast %values_{p} : {BYTES} to {I32}
%shifted_{p} = arith.shli %words_{p}, %shift{g} : {I32}
%lifted_{p} = arith.addi %shifted_{p}, %lift{g} : {I32}
%row_{p} = arith.constant {row} : index
vector.store %lifted_{p}, %key_words[%row_{p}, %at] : {KEY_WORDS}, {I32}""")
    return lines
