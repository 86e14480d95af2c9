# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dequantising inside a kernel: from codes and scale bytes to fp32 bits, exact on every target.

A lane has a few dims of each group of 32. Their codes come as vectors of i32, the even dims %c<n>e
and the odd ones %c<n>o of group n; the bits of the numbers leave as %x<n>e and %x<n>o, and as words
%words<n> of two bf16 numbers each.
"""

from __future__ import annotations

from dsv4_iree.kernels.encode import BIAS, HALVES
from dsv4_iree.kernels.rotate import to_bf16
from dsv4_iree.kernels.row_kernel import Share
from dsv4_iree.spec import Format, IndexerSpec

PLAIN = (2, 254)  # scale bytes with which no e2m1 number is subnormal or NaN; large ones overflow


def codes(n: int, spec: IndexerSpec, share: Share) -> str:
    """%c<n>e and %c<n>o from %bytes<n>: the lane's value bytes of the group."""
    ints = share.ints
    if spec.is_fp4:
        return f"""\
%two{n} = arith.extui %bytes{n} : vector<{share.pairs}xi8> to {ints}
%c{n}e = arith.andi %two{n}, %v_15 : {ints}
%c{n}o = arith.shrui %two{n}, %v_4 : {ints}"""
    # Not by a bitcast to i16, whose widening IREE 3.13 compiles to shifts of bytes on CPUs.
    whole, half = f"vector<{share.dims}xi8>", f"vector<{share.pairs}xi8>"
    lines = []
    for odd, h in enumerate(HALVES):
        order = ", ".join(str(2 * i + odd) for i in range(share.pairs))
        lines.append(f"""\
%c{n}{h}_bytes = vector.shuffle %bytes{n}, %bytes{n} [{order}] : {whole}, {whole}
%c{n}{h} = arith.extui %c{n}{h}_bytes : {half} to {ints}""")
    return "\n".join(lines)


def fp4(n: int, share: Share) -> str:
    """%x<n>e and %x<n>o with the scale byte %scale<n>, an i32.

    A code's bits, added to the exponent and mantissa of 0.5, give its number f if it is 2 or more;
    0 and 1, which have no 1 in front of the mantissa, are 2f - 1, less than f for them alone.
    """
    ints, floats = share.ints, share.floats
    lines = [
        f"""\
%half{n} = arith.constant dense<{126 << 23}> : {ints}
%minus_one{n} = arith.constant dense<-1.0> : {floats}
%least_plain{n} = arith.constant {PLAIN[0]} : i32
%plain_range{n} = arith.constant {PLAIN[1] - PLAIN[0]} : i32
%past_least{n} = arith.subi %scale{n}, %least_plain{n} : i32
%is_plain{n} = arith.cmpi ule, %past_least{n}, %plain_range{n} : i32"""
    ]
    for h in HALVES:
        p = f"{n}{h}"
        lines.append(f"""\
%size{p} = arith.andi %c{p}, %v_7 : {ints}
%sign_up{p} = arith.shli %c{p}, %v_28 : {ints}
%sign{p} = arith.andi %sign_up{p}, %v_sign : {ints}
%size_up{p} = arith.shli %size{p}, %v_22 : {ints}
%normal_bits{p} = arith.addi %size_up{p}, %half{n} : {ints}
{_number(p, f"%minus_one{n}", share)}""")
    lines.append(f"""\
%x{n}e, %x{n}o = scf.if %is_plain{n} -> ({ints}, {ints}) {{
  %power_bits{n} = arith.shli %scale{n}, %i_23 : i32
  %power_s{n} = arith.bitcast %power_bits{n} : i32 to f32
  %power{n} = vector.broadcast %power_s{n} : f32 to {floats}
{_plain(n, "e", share)}
{_plain(n, "o", share)}
  scf.yield %bits{n}e, %bits{n}o : {ints}, {ints}
}} else {{
  %scales{n} = vector.broadcast %scale{n} : i32 to {ints}
{_subnormal_or_nan(n, "e", share)}
{_subnormal_or_nan(n, "o", share)}
  scf.yield %bits{n}e, %bits{n}o : {ints}, {ints}
}}""")
    return "\n".join(lines)


def _number(p: str, ahead: str, share: Share) -> str:
    """%number<p>: bits of the lesser of f, of %normal_bits<p>, and 2f + <ahead>; both are >= 0."""
    ints, floats = share.ints, share.floats
    return f"""\
%normal{p} = arith.bitcast %normal_bits{p} : {ints} to {floats}
%subnormal{p} = math.fma %normal{p}, %v_two, {ahead} : {floats}
%subnormal_bits{p} = arith.bitcast %subnormal{p} : {floats} to {ints}
%number{p} = arith.minui %normal_bits{p}, %subnormal_bits{p} : {ints}"""


def _plain(n: int, h: str, share: Share) -> str:
    p, ints, floats = f"{n}{h}", share.ints, share.floats
    return f"""\
  %number_f{p} = arith.bitcast %number{p} : {ints} to {floats}
  %scaled{p} = arith.mulf %number_f{p}, %power{n} : {floats}
  %scaled_bits{p} = arith.bitcast %scaled{p} : {floats} to {ints}
  %bits{p} = arith.ori %scaled_bits{p}, %sign{p} : {ints}"""


def _subnormal_or_nan(n: int, h: str, share: Share) -> str:
    """Scale bytes 0, 1 and 255, in integers: some targets would flush what comes of 0 and 1."""
    p, ints, mask = f"{n}{h}", share.ints, share.mask
    return f"""\
  %field{p} = arith.shrui %number{p}, %v_23 : {ints}
  %field_scaled{p} = arith.addi %field{p}, %scales{n} : {ints}
  %exponent{p} = arith.subi %field_scaled{p}, %v_127 : {ints}
  %fraction{p} = arith.andi %number{p}, %v_fraction : {ints}
  %full{p} = arith.addi %fraction{p}, %v_implicit : {ints}
  // Exponents are -1 at least.
  %shift_any{p} = arith.subi %v_1, %exponent{p} : {ints}
  %shift{p} = arith.maxsi %shift_any{p}, %v_0 : {ints}
  %lowered{p} = arith.shrui %full{p}, %shift{p} : {ints}
  %exponent_bits{p} = arith.shli %exponent{p}, %v_23 : {ints}
  %raised{p} = arith.addi %exponent_bits{p}, %fraction{p} : {ints}
  %is_normal{p} = arith.cmpi sgt, %exponent{p}, %v_0 : {ints}
  %finite{p} = arith.select %is_normal{p}, %raised{p}, %lowered{p} : {mask}, {ints}
  %is_zero{p} = arith.cmpi eq, %size{p}, %v_0 : {ints}
  %or_zero{p} = arith.select %is_zero{p}, %v_0, %finite{p} : {mask}, {ints}
  %signed{p} = arith.ori %or_zero{p}, %sign{p} : {ints}
  %is_nan{p} = arith.cmpi eq, %scales{n}, %v_255 : {ints}
  %bits{p} = arith.select %is_nan{p}, %v_nan, %signed{p} : {mask}, {ints}"""


def fp8(n: int, spec: IndexerSpec, share: Share) -> str:
    """%x<n>e and %x<n>o, with the scale %scale_f, a vector of one number; one NaN for all.

    As in `fp4`; without a 1 in front of the mantissa a code is 2f - 2^(1 - bias).
    """
    ints, floats, mask, bias = share.ints, share.floats, share.mask, BIAS[spec.format]
    is_fnuz = spec.format is Format.FP8_FNUZ
    lines = [
        f"""\
%rebias{n} = arith.constant dense<{127 - bias << 23}> : {ints}
%ahead{n} = arith.constant dense<{-(2.0 ** (1 - bias))!r}> : {floats}
%nan_code{n} = arith.constant dense<{128 if is_fnuz else 127}> : {ints}"""
    ]
    for h in HALVES:
        p = f"{n}{h}"
        lines.append(f"""\
%size{p} = arith.andi %c{p}, %v_127 : {ints}
%size_up{p} = arith.shli %size{p}, %v_20 : {ints}
%normal_bits{p} = arith.addi %size_up{p}, %rebias{n} : {ints}
{_number(p, f"%ahead{n}", share)}
%sign_up{p} = arith.shli %c{p}, %v_24 : {ints}
%sign{p} = arith.andi %sign_up{p}, %v_sign : {ints}
%signed{p} = arith.ori %number{p}, %sign{p} : {ints}
%signed_f{p} = arith.bitcast %signed{p} : {ints} to {floats}
%product{p} = arith.mulf %signed_f{p}, %scale_f : {floats}
%product_bits{p} = arith.bitcast %product{p} : {floats} to {ints}
%is_code{p} = arith.cmpi eq, {f"%c{p}" if is_fnuz else f"%size{p}"}, %nan_code{n} : {ints}
%is_unordered{p} = arith.cmpf uno, %product{p}, %product{p} : {floats}
%is_nan{p} = arith.ori %is_code{p}, %is_unordered{p} : {mask}
%x{p} = arith.select %is_nan{p}, %v_nan, %product_bits{p} : {mask}, {ints}""")
    return "\n".join(lines)


def words(n: int, spec: IndexerSpec, share: Share) -> str:
    """%words<n>: bf16 numbers of the fp32 bits %x<n>e and %x<n>o."""
    lines, ints, even, odd = [], share.ints, f"%x{n}e", f"%x{n}o"
    if not spec.is_fp4:  # FP4 numbers are bf16 numbers
        lines += [to_bf16(f"%near{n}{h}", f"%x{n}{h}", share) for h in HALVES]
        even, odd = f"%near{n}e", f"%near{n}o"
    lines.append(f"""\
%even{n} = arith.shrui {even}, %v_16 : {ints}
%odd{n} = arith.andi {odd}, %v_high : {ints}
%words{n} = arith.ori %even{n}, %odd{n} : {ints}""")
    return "\n".join(lines)
