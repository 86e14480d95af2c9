# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the AVX512-VNNI logits kernels do to a query row and to a block of 64 keys, as MLIR text.

A lane is a key. `vpdpbusd` multiplies four unsigned bytes of every lane with four signed bytes and
adds the products to the lane's int32. Doubled e2m1 codes are integers in [-12, 12]: signed bytes
for queries; keys get 12 added, and what that adds to the dot is taken off the accumulator's start.

A group of codes with scale byte e is the same vector as the codes times 2^s with byte e - s, and
bytes have room for s up to 3. Query groups always take up to 3 in. There are three forms:

NARROW  the four groups of every head, and of every key in the block, end up with one scale: the dot
        over all dims is one integer chain, and scales are applied once per head and once per key.
WIDE    the scales go onto each group's dot by one factor, for scale bytes near 127.
EXACT   the same by two factors, because one does not cover e8m0 x e8m0; and NaN.

What NARROW can do is below 2^24 units, so exact in WIDE as well, and WIDE's only factor is EXACT's
first: the choice of a form, made per block, never changes a bit.
"""

from __future__ import annotations

from string import Template
from textwrap import indent

LANES = 16
BLOCK = 64  # keys that are decoded together
GROUPS, WORDS = 4, 4  # of 32 dims; per half group, of four codes of one parity
CODE_BIAS = 12
BIAS = CODE_BIAS << 3
ROOM = 3  # log2 of the room that a byte leaves above the largest code
NARROW, WIDE, EXACT = 0, 1, 2
ORDINARY = (97, 157)  # scale bytes of NARROW and WIDE
MODERATE = (87, 167)  # fp32 exponents of weights in NARROW
DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # codes 0..15
SIGNED = [*DOUBLED] * 4
UNSIGNED = [CODE_BIAS + code for code in DOUBLED] * 4

I32, F32, BYTES = "vector<16xi32>", "vector<16xf32>", "vector<64xi8>"
LINES = "vector<4x16xi8>"

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
%l0 = arith.constant 0 : i64
%f0 = arith.constant 0.0 : f32
%nan = arith.constant 0x7FC00000 : f32
%v0 = arith.constant dense<0> : {I32}
%v1 = arith.constant dense<1> : {I32}
%v3 = arith.constant dense<{ROOM}> : {I32}
%v16 = arith.constant dense<16> : {I32}
%v23 = arith.constant dense<23> : {I32}
%v255 = arith.constant dense<255> : {I32}
%vbias = arith.constant dense<{BIAS * 0x01010101}> : {I32}
%vcode_bias = arith.constant dense<{CODE_BIAS * 0x01010101}> : {I32}
%nan_bits = arith.constant dense<0x7F800000> : {I32}
%vleast = arith.constant dense<{ORDINARY[0]}> : {I32}
%vmost = arith.constant dense<{ORDINARY[1]}> : {I32}
%least_power = arith.constant dense<-126> : {I32}
%most_power = arith.constant dense<127> : {I32}
%lane = arith.constant dense<{[*range(LANES)]}> : {I32}
%z = arith.constant dense<0.0> : {F32}
%nans = arith.constant dense<0x7FC00000> : {F32}
%minus_inf = arith.constant dense<0xFF800000> : {F32}
%low = arith.constant dense<15> : {BYTES}
%four_bits = arith.constant dense<4> : {BYTES}
%ones = arith.constant dense<1> : {BYTES}
%signed = arith.constant dense<{SIGNED}> : {BYTES}
%unsigned = arith.constant dense<{UNSIGNED}> : {BYTES}"""

# From %q_bytes, %q_scale (vector<4xi8>) and %weight of head %h in row %r of the workgroup.
# Gives %q_narrow, %q_ordinary, %q_nan.
HEAD = Template("""\
%e = arith.extui %q_scale : vector<4xi8> to vector<4xi32>
%e_min = vector.reduction <minsi>, %e : vector<4xi32> into i32
%e_max = vector.reduction <maxsi>, %e : vector<4xi32> into i32
%e_base = vector.broadcast %e_min : i32 to vector<4xi32>
%e_above = arith.subi %e, %e_base : vector<4xi32>
%w3 = arith.constant dense<$room> : vector<4xi32>
%s = arith.minsi %e_above, %w3 : vector<4xi32>
%w1 = arith.constant dense<1> : vector<4xi32>
%p = arith.shli %w1, %s : vector<4xi32>
%p8 = arith.trunci %p : vector<4xi32> to vector<4xi8>
%power = vector.shuffle %p8, %p8 $each_16_times : vector<4xi8>, vector<4xi8>
%lo_code = arith.andi %q_bytes, %low : $bytes
%hi_code = arith.shrui %q_bytes, %four_bits : $bytes
%lo_plain = $lo_looked_up
%hi_plain = $hi_looked_up
%lo = arith.muli %lo_plain, %power : $bytes
%hi = arith.muli %hi_plain, %power : $bytes
%lo_words = vector.bitcast %lo : $bytes to $i32
%hi_words = vector.bitcast %hi : $bytes to $i32
vector.store %lo_words, %q_codes[%r, %h, %c0] : $q_codes, $i32
vector.store %hi_words, %q_codes[%r, %h, %c16] : $q_codes, $i32
%lo_sums = $lo_added
%all_sums = $hi_added
%sums0 = vector.shuffle %all_sums, %all_sums [0, 4, 8, 12] : $i32, $i32
%sums1 = vector.shuffle %all_sums, %all_sums [1, 5, 9, 13] : $i32, $i32
%sums2 = vector.shuffle %all_sums, %all_sums [2, 6, 10, 14] : $i32, $i32
%sums3 = vector.shuffle %all_sums, %all_sums [3, 7, 11, 15] : $i32, $i32
%sums01 = arith.addi %sums0, %sums1 : vector<4xi32>
%sums23 = arith.addi %sums2, %sums3 : vector<4xi32>
%sums = arith.addi %sums01, %sums23 : vector<4xi32>
%w0 = arith.constant dense<0> : vector<4xi32>
%minus = arith.subi %w0, %sums : vector<4xi32>
%wbias = arith.constant dense<$bias> : vector<4xi32>
%first = arith.muli %minus, %wbias : vector<4xi32>
vector.store %first, %q_first[%r, %h, %c0] : $q_four, vector<4xi32>
%all_first = vector.reduction <add>, %first : vector<4xi32> into i32
memref.store %all_first, %q_start[%r, %h] : $q_int
// Both sides are doubled: 2 off the exponent. 127 off: an increment for the bits of a float.
%w129 = arith.constant dense<129> : vector<4xi32>
%w23 = arith.constant dense<23> : vector<4xi32>
%own = arith.subi %e, %s : vector<4xi32>
%over = arith.subi %own, %w129 : vector<4xi32>
%delta = arith.shli %over, %w23 : vector<4xi32>
vector.store %delta, %q_delta[%r, %h, %c0] : $q_four, vector<4xi32>
%e_halved = arith.subi %e_min, %i2 : i32
%e_bits = arith.shli %e_halved, %i23 : i32
%e_factor = arith.bitcast %e_bits : i32 to f32
%scaled = arith.mulf %weight, %e_factor : f32
memref.store %scaled, %q_weights[%r, %h] : $q_one
%q_least = arith.constant $least : i32
%q_most = arith.constant $most : i32
%e_low = arith.cmpi sge, %e_min, %q_least : i32
%e_high = arith.cmpi sle, %e_max, %q_most : i32
%q_ordinary = arith.andi %e_low, %e_high : i1
%i255 = arith.constant 255 : i32
%q_nan = arith.cmpi eq, %e_max, %i255 : i32
// NARROW multiplies weights and scales first, so it takes weights far from the ends of fp32.
%w_bits = arith.bitcast %weight : f32 to i32
%w_shifted = arith.shrui %w_bits, %i23 : i32
%w_exponent = arith.andi %w_shifted, %i255 : i32
%w_least = arith.constant $w_least : i32
%w_span = arith.constant $w_span : i32
%w_over = arith.subi %w_exponent, %w_least : i32
%w_inside = arith.cmpi ule, %w_over, %w_span : i32
%w_zero = arith.cmpf oeq, %weight, %f0 : f32
%w_good = arith.ori %w_inside, %w_zero : i1
%spread = arith.subi %e_max, %e_min : i32
%room = arith.constant $room : i32
%e_close = arith.cmpi sle, %spread, %room : i32
%e_good = arith.andi %e_close, %q_ordinary : i1
%q_narrow = arith.andi %e_good, %w_good : i1""")


def query_scratch(rows: int, heads: int) -> tuple[dict[str, str], str]:
    """Types of a workgroup's decoded query rows, and the lines that make room for them."""
    kinds = {
        "q_codes": f"memref<{rows}x{heads}x32xi32>",
        "q_four": f"memref<{rows}x{heads}x4xi32>",
        "q_int": f"memref<{rows}x{heads}xi32>",
        "q_one": f"memref<{rows}x{heads}xf32>",
    }
    names = {
        "%q_codes": "q_codes",
        "%q_first": "q_four",
        "%q_start": "q_int",
        "%q_delta": "q_four",
        "%q_weights": "q_one",
    }
    return kinds, "\n".join(_scratch(name, kinds[kind]) for name, kind in names.items())


K_CODES, K_SCALE, K_LIFT = "memref<32x64xi32>", "memref<4x64xi32>", "memref<1x64xi32>"


def key_scratch() -> str:
    names = {"%k_codes": K_CODES, "%k_scale": K_SCALE, "%k_lift": K_LIFT}
    return "\n".join(_scratch(name, kind) for name, kind in names.items())


def _scratch(name: str, kind: str) -> str:
    # The short form of this op has no place for the alignment.
    sizes = "<{alignment = 64 : i64, operandSegmentSizes = array<i32: 0, 0>}>"
    return f'{name} = "memref.alloca"() {sizes} : () -> {kind}'


def call(instruction: str, operands: tuple[str, ...], kinds: tuple[str, ...]) -> str:
    """An AVX512 instruction by its LLVM intrinsic; the last of `kinds` is the result's."""
    types = f"({', '.join(kinds[:-1])}) -> {kinds[-1]}"
    return (
        f'llvm.call_intrinsic "llvm.x86.avx512.{instruction}.512"({", ".join(operands)}) : {types}'
    )


def decode_head(kinds: dict[str, str]) -> str:
    add, look_up = (I32, BYTES, BYTES, I32), (BYTES, BYTES, BYTES)
    return HEAD.substitute(
        kinds,
        lo_looked_up=call("pshuf.b", ("%signed", "%lo_code"), look_up),
        hi_looked_up=call("pshuf.b", ("%signed", "%hi_code"), look_up),
        lo_added=call("vpdpbusd", ("%v0", "%ones", "%lo"), add),
        hi_added=call("vpdpbusd", ("%lo_sums", "%ones", "%hi"), add),
        bytes=BYTES,
        i32=I32,
        room=ROOM,
        bias=BIAS,
        each_16_times=[i // 16 for i in range(64)],
        least=ORDINARY[0],
        most=ORDINARY[1],
        w_least=MODERATE[0],
        w_span=MODERATE[1] - MODERATE[0],
    )


def scale_bytes(raw: str) -> str:
    """%e0..%e3: the scale bytes of each group in 16 words; %e_min and %e_max of them."""
    lines = []
    for g in range(GROUPS):
        lines.append(f"%by{g} = arith.constant dense<{8 * g}> : {I32}")
        lines.append(f"%moved{g} = arith.shrui {raw}, %by{g} : {I32}")
        lines.append(f"%e{g} = arith.andi %moved{g}, %v255 : {I32}")
    for name in ("min", "max"):
        lines.append(f"%{name}01 = arith.{name}si %e0, %e1 : {I32}")
        lines.append(f"%{name}23 = arith.{name}si %e2, %e3 : {I32}")
        lines.append(f"%e_{name} = arith.{name}si %{name}01, %{name}23 : {I32}")
    return "\n".join(lines)


def store_scales() -> str:
    """Split the scales of 16 keys at column %at into shifts and the rest; %shift0..%shift3."""
    lines = [scale_bytes("%raw")]
    for g in range(GROUPS):
        lines.append(f"""\
%above{g} = arith.subi %e{g}, %e_min : {I32}
%some{g} = arith.minsi %above{g}, %v3 : {I32}
%shift{g} = arith.select %narrow, %some{g}, %v0 : {I32}
%rest{g} = arith.subi %e{g}, %shift{g} : {I32}
%bits{g} = arith.shli %rest{g}, %v23 : {I32}
%offset{g} = arith.shli %vcode_bias, %shift{g} : {I32}
%lift{g} = arith.subi %vbias, %offset{g} : {I32}
%g{g} = arith.constant {g} : index
vector.store %bits{g}, %k_scale[%g{g}, %at] : {K_SCALE}, {I32}""")
    return "\n".join(lines)


def store_codes(load: Template) -> str:
    """Decode 16 keys into %k_codes from column %at on, one scale group after the other.

    Args:
        load: lines that define $out, a vector<16xi8>: the bytes of key $key of the 16 that come
            after $before others, and after $offset bytes of the first key's.
    """
    lines = [f"%empty = arith.constant dense<0> : {LINES}"]
    for g in range(GROUPS):
        for i in range(4):
            # The word of key 4j + i goes to 128-bit lane j: transposing each lane is enough then.
            whole = "%empty"
            for j in range(4):
                out, after = f"%part{g}_{i}_{j}", f"%line{g}_{i}_{j}"
                key = 4 * j + i
                lines.append(
                    load.substitute(out=out, key=key, before=16 * g, offset=64 * key + 16 * g)
                )
                lines.append(
                    f"{after} = vector.insert {out}, {whole} [{j}] : vector<16xi8> into {LINES}"
                )
                whole = after
            lines.append(f"%flat{g}_{i} = vector.shape_cast {whole} : {LINES} to {BYTES}")
            lines.append(f"%words{g}_{i} = vector.bitcast %flat{g}_{i} : {BYTES} to {I32}")
        lines += _transposed(g)
        for w in range(WORDS):
            lines += _decoded(g, w)
    return "\n".join(lines)


def _transposed(g: int) -> list[str]:
    """%word{g}_{w}: word w of the group, key by key."""
    low = [x + o for x in range(0, 16, 4) for o in (0, 16, 1, 17)]
    high = [x + 2 for x in low]
    first = [x + o for x in range(0, 16, 4) for o in (0, 1, 16, 17)]
    second = [x + 2 for x in first]

    def shuffle(name: str, one: str, other: str, lanes: list[int]) -> str:
        return f"{name} = vector.shuffle {one}, {other} {lanes} : {I32}, {I32}"

    a, b, c, d = (f"%words{g}_{i}" for i in range(4))
    return [
        shuffle(f"%ab{g}_l", a, b, low),
        shuffle(f"%cd{g}_l", c, d, low),
        shuffle(f"%ab{g}_h", a, b, high),
        shuffle(f"%cd{g}_h", c, d, high),
        shuffle(f"%word{g}_0", f"%ab{g}_l", f"%cd{g}_l", first),
        shuffle(f"%word{g}_1", f"%ab{g}_l", f"%cd{g}_l", second),
        shuffle(f"%word{g}_2", f"%ab{g}_h", f"%cd{g}_h", first),
        shuffle(f"%word{g}_3", f"%ab{g}_h", f"%cd{g}_h", second),
    ]


def _decoded(g: int, w: int) -> list[str]:
    """Store the codes of word w: even dims in step 4 g + w, odd ones 16 steps on."""
    n = f"{g}_{w}"
    lines = [
        f"%in{n} = vector.bitcast %word{n} : {I32} to {BYTES}",
        f"%even{n} = arith.andi %in{n}, %low : {BYTES}",
        f"%odd{n} = arith.shrui %in{n}, %four_bits : {BYTES}",
    ]
    for parity, step in (("even", 4 * g + w), ("odd", 16 + 4 * g + w)):
        code = call("pshuf.b", ("%unsigned", f"%{parity}{n}"), (BYTES, BYTES, BYTES))
        lines.append(f"""\
%{parity}_code{n} = {code}
%{parity}_word{n} = vector.bitcast %{parity}_code{n} : {BYTES} to {I32}
%{parity}_shifted{n} = arith.shli %{parity}_word{n}, %shift{g} : {I32}
%{parity}_out{n} = arith.addi %{parity}_shifted{n}, %lift{g} : {I32}
%{parity}_step{n} = arith.constant {step} : index
vector.store %{parity}_out{n}, %k_codes[%{parity}_step{n}, %at] : {K_CODES}, {I32}""")
    return lines


def fill(template: Template, kinds: dict[str, str], **parts: str) -> str:
    """Put `kinds` and `parts` into a template; a part that stands alone is indented as it is."""
    lines = []
    for line in template.template.splitlines():
        bare = line.strip()
        if bare.startswith("$") and bare[1:] in parts:
            lines.append(indent(parts[bare[1:]], line[: line.index("$")]))
        else:
            lines.append(Template(line).substitute(kinds, **parts))
    return "\n".join(lines)
