# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantising inside a kernel: from fp32 bits to scale bytes and codes, exact on every target.

Scales are found by integer arithmetic alone. A scaled magnitude m is at most that of the largest
code, and adding 2^23 to a number rounds it to a whole one, ties to even; so the e2m1 code of m is

    min(round(2m), 2 + round(m), 4 + round(m / 2))

as each term has the slope of one binade and they meet in even codes. Where ties go toward zero, m
is first lowered by less than the distance to any other number of its precision.

A lane has a few dims of each group of 32, its even ones and its odd ones in a vector each: the bits
of group n are %x<n>e and %x<n>o.
"""

from __future__ import annotations

from dsv4_iree.kernels.row_kernel import Share
from dsv4_iree.spec import Format, IndexerSpec, Rounding

HALVES = ("e", "o")
TINY = 26  # scale bytes below which subnormal elements, which CPUs take for 0, have a say
SUBNORMAL = 149  # they count in units of 2^-149
LEAST = {Rounding.R: 1, Rounding.D: 112, Rounding.S: 114, Rounding.S2: 114}
"""Scale byte of an FP4 group of zeros."""
LEAST_FP8 = {Format.FP8: 105, Format.FP8_FNUZ: 106}  # 127 + ceil(log2(1e-4 / largest))
LARGEST = {Format.FP4: (2, 0x400000), Format.FP8: (8, 0x600000), Format.FP8_FNUZ: (7, 0x700000)}
"""Exponent and mantissa bits of the largest number: 6, 448 or 240."""
BIAS = {Format.FP8: 7, Format.FP8_FNUZ: 8}


def largest(n: int, share: Share) -> str:
    """%peak<n>: bits of the largest magnitude of group n; NaN is above infinity."""
    ints = share.ints
    return f"""\
%magnitude{n} = vector.broadcast %i_magnitude : i32 to {ints}
%size{n}e = arith.andi %x{n}e, %magnitude{n} : {ints}
%size{n}o = arith.andi %x{n}o, %magnitude{n} : {ints}
{_maximum(f"%peak{n}", f"%size{n}", share)}"""


def scale(n: str, spec: IndexerSpec) -> str:
    """From %peak<n>: %scale<n>, 127 + the exponent of the scale, and %finite<n>.

    ceil(log2(peak / largest)) is the exponents' difference, and one more for a larger mantissa.
    """
    exponent, mantissa = LARGEST[spec.format]
    least = LEAST[spec.rounding] if spec.is_fp4 else LEAST_FP8[spec.format]
    if spec.is_fp4 and spec.rounding is Rounding.S2:
        least = LEAST[Rounding.R]  # of the first stage
    return f"""\
%carry{n} = arith.constant {0x7FFFFF - mantissa} : i32
%carried{n} = arith.addi %peak{n}, %carry{n} : i32
%exponent{n} = arith.shrui %carried{n}, %i_23 : i32
%largest{n} = arith.constant {exponent} : i32
%least{n} = arith.constant {least} : i32
%scale_any{n} = arith.subi %exponent{n}, %largest{n} : i32
%scale{n} = arith.maxsi %scale_any{n}, %least{n} : i32
%finite{n} = arith.cmpi ult, %peak{n}, %i_inf : i32"""


def scaled(n: int, of: str, spec: IndexerSpec, share: Share, *, fp32: bool, to: str = "") -> str:
    """%m<n>e<to>, %m<n>o<to>: magnitudes %size<n> over %scale<of>; anything if not finite."""
    as_floats = "\n".join(_floats(n, h, spec, share, fp32=fp32) for h in HALVES)
    return f"{as_floats}\n{_over_scale(n, of, to, 254, share)}"


def all_scaled(groups: range, spec: IndexerSpec, share: Share, *, fp32: bool) -> str:
    """%m<n>e and %m<n>o of all groups, each over its own scale."""
    plain = [scaled(n, str(n), spec, share, fp32=fp32) for n in groups]
    if spec.rounding is not Rounding.R:  # other least scales are far from tiny
        return "\n".join(plain)
    # One branch for a row: with one for each group, none could be worked on while another waits.
    lines, last = [], ""
    for n in groups:
        lines.append(f"""\
%tiny{n} = arith.constant {TINY} : i32
%is_tiny{n} = arith.cmpi slt, %scale{n}, %tiny{n} : i32""")
        if last:
            lines.append(f"%tiny_to{n} = arith.ori {last}, %is_tiny{n} : i1")
        last = f"%tiny_to{n}" if last else f"%is_tiny{n}"
    halves = [f"{n}{h}" for n in groups for h in HALVES]
    kinds = ", ".join([share.floats] * len(halves))
    plain = [scaled(n, str(n), spec, share, fp32=fp32, to="_plain") for n in groups]
    careful = [_with_subnormals(n, spec, share, fp32=fp32) for n in groups]
    lines.append(f"""\
{", ".join(f"%m{p}" for p in halves)} = scf.if {last} -> ({kinds}) {{
{chr(10).join(careful)}
  scf.yield {", ".join(f"%m{p}_careful" for p in halves)} : {kinds}
}} else {{
{chr(10).join(plain)}
  scf.yield {", ".join(f"%m{p}_plain" for p in halves)} : {kinds}
}}""")
    return "\n".join(lines)


def _with_subnormals(n: int, spec: IndexerSpec, share: Share, *, fp32: bool) -> str:
    """%m<n>e_careful, %m<n>o_careful: where the scale is tiny, subnormal elements count in full."""
    floats = share.floats
    return f"""\
%m{n}e_careful, %m{n}o_careful = scf.if %is_tiny{n} -> ({floats}, {floats}) {{
{_lifted(n, "e", share)}
{_lifted(n, "o", share)}
{_over_scale(n, str(n), "_tiny", 254 - SUBNORMAL, share)}
  scf.yield %m{n}e_tiny, %m{n}o_tiny : {floats}, {floats}
}} else {{
{scaled(n, str(n), spec, share, fp32=fp32, to="_kept")}
  scf.yield %m{n}e_kept, %m{n}o_kept : {floats}, {floats}
}}"""


def fp4_bytes(n: int, spec: IndexerSpec, share: Share) -> str:
    """%bytes<n>, two codes each, from %m<n>e and %m<n>o; %byte<n>, the scale byte."""
    ints, floats = share.ints, share.floats
    lines, m, of, finite = [], f"%m{n}", f"%scale{n}", f"%finite{n}"
    if _toward_zero(spec):
        m = f"%low{n}"
        lines.append(f"%lowered{n} = arith.constant dense<{1 - 2.0**-13!r}> : {floats}")
        lines += [f"{m}{h} = arith.mulf %m{n}{h}, %lowered{n} : {floats}" for h in HALVES]
    lines += [_code(f"%code{n}{h}", f"{m}{h}", share) for h in HALVES]
    code = f"%code{n}"
    if spec.rounding is Rounding.S2:
        lines.append(_packed_again(n, share))
        code, of = f"%again{n}", f"%scale_again{n}"
        finite = f"%finite_again{n}"
    for h, down, up, bit in (("e", 28, 0, 8), ("o", 24, 4, 128)):
        sign, magnitude = f"%sign{n}{h}", f"{code}{h}"
        lines.append(f"""\
%sign_down{n}{h} = arith.shrui %x{n}{h}, %v_{down} : {ints}
{sign} = arith.andi %sign_down{n}{h}, %v_{bit} : {ints}""")
        if _toward_zero(spec):  # no negative zero
            lines.append(f"""\
%is_more{n}{h} = arith.cmpi ne, {magnitude}, %v_0 : {ints}
%sign_kept{n}{h} = arith.select %is_more{n}{h}, {sign}, %v_0 : {share.mask}, {ints}""")
            sign = f"%sign_kept{n}{h}"
        lines.append(f"""\
%up{n}{h} = arith.shli {magnitude}, %v_{up} : {ints}
%nibble{n}{h} = arith.ori %up{n}{h}, {sign} : {ints}""")
    lines.append(f"""\
%pair_any{n} = arith.ori %nibble{n}e, %nibble{n}o : {ints}
%pair{n} = arith.select {finite}, %pair_any{n}, %v_0 : {ints}
%bytes{n} = arith.trunci %pair{n} : {ints} to vector<{share.pairs}xi8>
%byte{n} = arith.select {finite}, {of}, %i_255 : i32""")
    return "\n".join(lines)


def fp8_bytes(n: int, of: str, spec: IndexerSpec, share: Share) -> str:
    """%bytes<n>, one code each, from %m<n>e and %m<n>o; 0 unless %finite<of>."""
    ints, floats, bias = share.ints, share.floats, BIAS[spec.format]
    unit = float(2 ** (21 - bias))  # numbers from here on are as far apart as e4m3's subnormals
    unit_bits = 127 + 21 - bias << 23
    lines = [
        f"""\
%half_unit{n} = arith.constant dense<{0x7FFFF}> : {ints}
%rebias{n} = arith.constant dense<{127 - bias << 3}> : {ints}
%first_normal{n} = arith.constant dense<{128 - bias << 23}> : {ints}
%unit{n} = arith.constant dense<{unit!r}> : {floats}
%unit_bits{n} = arith.constant dense<{unit_bits}> : {ints}"""
    ]
    for h in HALVES:
        p = f"{n}{h}"
        lines.append(f"""\
%b{p} = arith.bitcast %m{p} : {floats} to {ints}
%odd_any{p} = arith.shrui %b{p}, %v_20 : {ints}
%odd{p} = arith.andi %odd_any{p}, %v_1 : {ints}
%near{p} = arith.addi %b{p}, %half_unit{n} : {ints}
%nearest{p} = arith.addi %near{p}, %odd{p} : {ints}
%normal_any{p} = arith.shrui %nearest{p}, %v_20 : {ints}
%normal{p} = arith.subi %normal_any{p}, %rebias{n} : {ints}
%whole{p} = arith.addf %m{p}, %unit{n} : {floats}
%whole_bits{p} = arith.bitcast %whole{p} : {floats} to {ints}
%subnormal{p} = arith.subi %whole_bits{p}, %unit_bits{n} : {ints}
%is_subnormal{p} = arith.cmpi ult, %b{p}, %first_normal{n} : {ints}
%code{p} = arith.select %is_subnormal{p}, %subnormal{p}, %normal{p} : {share.mask}, {ints}
%sign_down{p} = arith.shrui %x{p}, %v_24 : {ints}
%sign{p} = arith.andi %sign_down{p}, %v_128 : {ints}""")
        sign = f"%sign{p}"
        if spec.format is Format.FP8_FNUZ:  # 0x80 would be NaN
            sign = f"%sign_kept{p}"
            lines.append(f"""\
%is_more{p} = arith.cmpi ne, %code{p}, %v_0 : {ints}
{sign} = arith.select %is_more{p}, %sign{p}, %v_0 : {share.mask}, {ints}""")
        lines.append(f"%signed_code{p} = arith.ori %code{p}, {sign} : {ints}")
    lines.append(f"""\
%up{n} = arith.shli %signed_code{n}o, %v_8 : {ints}
%pair_any{n} = arith.ori %signed_code{n}e, %up{n} : {ints}
%pair{n} = arith.select %finite{of}, %pair_any{n}, %v_0 : {ints}
%pairs{n} = arith.trunci %pair{n} : {ints} to vector<{share.pairs}xi16>
%bytes{n} = vector.bitcast %pairs{n} : vector<{share.pairs}xi16> to vector<{share.dims}xi8>""")
    return "\n".join(lines)


def _maximum(result: str, halves: str, share: Share) -> str:
    """<result>: the largest of <halves>e and <halves>o in all lanes of the row."""
    last = f"{result}_own"
    lines = [
        f"""\
{result}_both = arith.maxui {halves}e, {halves}o : {share.ints}
{last} = vector.reduction <maxui>, {result}_both : {share.ints} into i32"""
    ]
    apart = 1
    while apart < share.lanes:
        so_far = f"{result}_{apart}"
        lines.append(f"""\
{so_far}_by = arith.constant {apart} : i32
{so_far}_their, {so_far}_valid = gpu.shuffle xor {last}, {so_far}_by, %subgroup32 : i32
{so_far} = arith.maxui {last}, {so_far}_their : i32""")
        last, apart = so_far, 2 * apart
    return "\n".join([*lines, f"{result} = arith.ori {last}, {last} : i32"])


def _floats(n: int, h: str, spec: IndexerSpec, share: Share, *, fp32: bool) -> str:
    """%f<n><h>: the magnitudes, of few enough bits to be lowered if ties go toward zero."""
    ints, last, lines = share.ints, f"%size{n}{h}", []
    if _toward_zero(spec) and fp32:
        last = f"%cell{n}{h}"
        lines.append(f"""\
%cell_any{n}{h} = arith.addi %size{n}{h}, %v_below_cell : {ints}
%cell_up{n}{h} = arith.andi %cell_any{n}{h}, %v_cells : {ints}
{last} = arith.minui %cell_up{n}{h}, %v_last_cell : {ints}""")
    return "\n".join([*lines, f"%f{n}{h} = arith.bitcast {last} : {ints} to {share.floats}"])


def _lifted(n: int, h: str, share: Share) -> str:
    """%f<n><h>: the magnitudes in units of 2^-149, which no target takes for subnormal."""
    ints, floats = share.ints, share.floats
    return f"""\
%lift{n}{h} = arith.constant dense<{SUBNORMAL << 23}> : {ints}
%is_small{n}{h} = arith.cmpi ult, %size{n}{h}, %v_implicit : {ints}
%small{n}{h} = arith.sitofp %size{n}{h} : {ints} to {floats}
%lifted_bits{n}{h} = arith.addi %size{n}{h}, %lift{n}{h} : {ints}
%lifted{n}{h} = arith.bitcast %lifted_bits{n}{h} : {ints} to {floats}
%f{n}{h} = arith.select %is_small{n}{h}, %small{n}{h}, %lifted{n}{h} : {share.mask}, {floats}"""


def _over_scale(n: int, of: str, suffix: str, top: int, share: Share) -> str:
    """%m<n>e<suffix>, %m<n>o<suffix>: %f<n> times 2^(top - 127 - %scale<of>)."""
    floats = share.floats
    return f"""\
%top{n} = arith.constant {top} : i32
%power_any{n} = arith.subi %top{n}, %scale{of} : i32
{_power(f"%power{n}", f"%power_any{n}", share)}
%m{n}e{suffix} = arith.mulf %f{n}e, %power{n} : {floats}
%m{n}o{suffix} = arith.mulf %f{n}o, %power{n} : {floats}"""


def _power(result: str, exponent: str, share: Share) -> str:
    """<result>: a vector of 2^(exponent - 127)."""
    return f"""\
{result}_bits = arith.shli {exponent}, %i_23 : i32
{result}_f = arith.bitcast {result}_bits : i32 to f32
{result} = vector.broadcast {result}_f : f32 to {share.floats}"""


def _code(result: str, m: str, share: Share) -> str:
    """<result>: e2m1 codes of magnitudes up to 6."""
    ints, floats = share.ints, share.floats
    return f"""\
{result}_f0 = math.fma {m}, %v_two, %v_code0 : {floats}
{result}_f2 = arith.addf {m}, %v_code2 : {floats}
{result}_f4 = math.fma {m}, %v_half, %v_code4 : {floats}
{result}_0 = arith.bitcast {result}_f0 : {floats} to {ints}
{result}_2 = arith.bitcast {result}_f2 : {floats} to {ints}
{result}_4 = arith.bitcast {result}_f4 : {floats} to {ints}
{result}_02 = arith.minui {result}_0, {result}_2 : {ints}
{result}_any = arith.minui {result}_02, {result}_4 : {ints}
{result} = arith.andi {result}_any, %v_7 : {ints}"""


def _packed_again(n: int, share: Share) -> str:
    """%again<n>e, o and %scale_again<n>: what %code<n> and %scale<n> stand for, quantised again."""
    ints, floats = share.ints, share.floats
    lines = []
    for h in HALVES:
        p = f"{n}{h}"
        lines.append(f"""\
%high{p} = arith.shli %code{p}, %v_22 : {ints}
%normal{p} = arith.addi %high{p}, %v_e2m1 : {ints}
%is_half{p} = arith.cmpi eq, %code{p}, %v_1 : {ints}
%is_zero{p} = arith.cmpi eq, %code{p}, %v_0 : {ints}
%or_half{p} = arith.select %is_half{p}, %v_e2m1, %normal{p} : {share.mask}, {ints}
%value{p} = arith.select %is_zero{p}, %v_0, %or_half{p} : {share.mask}, {ints}""")
    exponent, mantissa = LARGEST[Format.FP4]
    lines.append(f"""\
{_maximum(f"%top_value{n}", f"%value{n}", share)}
%past{n} = arith.subi %scale{n}, %i_127 : i32
%past_bits{n} = arith.shli %past{n}, %i_23 : i32
%peak_again{n} = arith.addi %top_value{n}, %past_bits{n} : i32
%is_below{n} = arith.cmpi slt, %peak_again{n}, %i_inf : i32  // 4 * 2^126 is not a number of fp32
%finite_again{n} = arith.andi %is_below{n}, %finite{n} : i1
%carry_again{n} = arith.constant {0x7FFFFF - mantissa} : i32
%carried_again{n} = arith.addi %peak_again{n}, %carry_again{n} : i32
%exponent_again{n} = arith.shrsi %carried_again{n}, %i_23 : i32
%largest_again{n} = arith.constant {exponent} : i32
%least_again{n} = arith.constant {LEAST[Rounding.S2]} : i32
%scale_again_any{n} = arith.subi %exponent_again{n}, %largest_again{n} : i32
%scale_again{n} = arith.maxsi %scale_again_any{n}, %least_again{n} : i32
%change_any{n} = arith.subi %scale{n}, %scale_again{n} : i32
%change{n} = arith.addi %change_any{n}, %i_127 : i32
{_power(f"%factor{n}", f"%change{n}", share)}""")
    for h in HALVES:
        p = f"{n}{h}"
        lines.append(f"""\
%value_f{p} = arith.bitcast %value{p} : {ints} to {floats}
%m_again{p} = arith.mulf %value_f{p}, %factor{n} : {floats}
{_code(f"%again{p}", f"%m_again{p}", share)}""")
    return "\n".join(lines)


def _toward_zero(spec: IndexerSpec) -> bool:
    return spec.is_fp4 and spec.rounding in (Rounding.D, Rounding.S)
