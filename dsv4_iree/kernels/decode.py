# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dequantising inside a kernel: from codes and scale bytes to fp32 bits, exact on every target.

A lane has a few dims of each group of 32. Their codes come as vectors of i32, the even dims %c<n>e
and the odd ones %c<n>o of group n; the bits of the numbers leave as %x<n>e and %x<n>o.
"""

from __future__ import annotations

from dsv4_iree.kernels.encode import BIAS, HALVES
from dsv4_iree.kernels.row_kernel import Share
from dsv4_iree.spec import Format, IndexerSpec

PLAIN = (2, 252)  # scale bytes with which every e2m1 number is 0 or a normal fp32 number


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

    A code of 2 or more is an exponent and a mantissa bit, to be added to the scale; 1 is half of 2.
    """
    ints = share.ints
    lines, results = [], []
    for h in HALVES:
        p = f"{n}{h}"
        lines.append(f"""\
%size{p} = arith.andi %c{p}, %v_7 : {ints}
%sign_up{p} = arith.shli %c{p}, %v_28 : {ints}
%sign{p} = arith.andi %sign_up{p}, %v_sign : {ints}""")
        results.append(f"%x{p}")
    kinds = f"{ints}, {ints}"
    return "\n".join(
        [
            *lines,
            f"""\
%least{n} = arith.constant {PLAIN[0]} : i32
%range{n} = arith.constant {PLAIN[1] - PLAIN[0]} : i32
%above{n} = arith.subi %scale{n}, %least{n} : i32
%is_plain{n} = arith.cmpi ule, %above{n}, %range{n} : i32
%base_s{n} = arith.subi %scale{n}, %i_1 : i32
{", ".join(results)} = scf.if %is_plain{n} -> ({kinds}) {{
  %base_bits{n} = arith.shli %base_s{n}, %i_23 : i32
  %base{n} = vector.broadcast %base_bits{n} : i32 to {ints}
{_plain(n, "e", share)}
{_plain(n, "o", share)}
  scf.yield %bits{n}e, %bits{n}o : {kinds}
}} else {{
  %base{n} = vector.broadcast %base_s{n} : i32 to {ints}
{_any(n, "e", share)}
{_any(n, "o", share)}
  scf.yield %bits{n}e, %bits{n}o : {kinds}
}}""",
        ]
    )


def _plain(n: int, h: str, share: Share) -> str:
    p, ints = f"{n}{h}", share.ints
    return f"""\
  %high{p} = arith.shli %size{p}, %v_22 : {ints}
  %two_up{p} = arith.addi %high{p}, %base{n} : {ints}
  %is_one{p} = arith.cmpi eq, %size{p}, %v_1 : {ints}
  %is_zero{p} = arith.cmpi eq, %size{p}, %v_0 : {ints}
  %one_up{p} = arith.select %is_one{p}, %base{n}, %two_up{p} : {share.mask}, {ints}
  %number{p} = arith.select %is_zero{p}, %v_0, %one_up{p} : {share.mask}, {ints}
  %bits{p} = arith.ori %number{p}, %sign{p} : {ints}"""


def _any(n: int, h: str, share: Share) -> str:
    """Subnormal results, infinity and NaN too; %base<n> is the scale byte less 1."""
    p, ints, mask = f"{n}{h}", share.ints, share.mask
    return f"""\
  %is_one{p} = arith.cmpi eq, %size{p}, %v_1 : {ints}
  %is_zero{p} = arith.cmpi eq, %size{p}, %v_0 : {ints}
  %up{p} = arith.shrui %size{p}, %v_1 : {ints}
  %exponent_up{p} = arith.addi %up{p}, %base{n} : {ints}
  %exponent{p} = arith.select %is_one{p}, %base{n}, %exponent_up{p} : {mask}, {ints}
  %last{p} = arith.andi %size{p}, %v_1 : {ints}
  %fraction_any{p} = arith.shli %last{p}, %v_22 : {ints}
  %fraction{p} = arith.select %is_one{p}, %v_0, %fraction_any{p} : {mask}, {ints}
  // Exponents are -1 at least.
  %full{p} = arith.addi %fraction{p}, %v_implicit : {ints}
  %shift{p} = arith.subi %v_1, %exponent{p} : {ints}
  %shift_kept{p} = arith.maxsi %shift{p}, %v_0 : {ints}
  %subnormal{p} = arith.shrui %full{p}, %shift_kept{p} : {ints}
  %exponent_bits{p} = arith.shli %exponent{p}, %v_23 : {ints}
  %normal{p} = arith.addi %exponent_bits{p}, %fraction{p} : {ints}
  %is_normal{p} = arith.cmpi sgt, %exponent{p}, %v_0 : {ints}
  %finite{p} = arith.select %is_normal{p}, %normal{p}, %subnormal{p} : {mask}, {ints}
  %is_large{p} = arith.cmpi sgt, %exponent{p}, %v_254 : {ints}
  %limited{p} = arith.select %is_large{p}, %v_inf, %finite{p} : {mask}, {ints}
  %number{p} = arith.select %is_zero{p}, %v_0, %limited{p} : {mask}, {ints}
  %signed{p} = arith.ori %number{p}, %sign{p} : {ints}
  %is_nan{p} = arith.cmpi eq, %base{n}, %v_254 : {ints}
  %bits{p} = arith.select %is_nan{p}, %v_nan, %signed{p} : {mask}, {ints}"""


def fp8(n: int, spec: IndexerSpec, share: Share) -> str:
    """%y<n>e and %y<n>o, floats, with the scale %scale_f, a vector of one number; one NaN for all.

    With 1 in front of its mantissa a subnormal code c is 2^(1 - bias) (1 + c / 8) / 2.
    """
    ints, floats, mask, bias = share.ints, share.floats, share.mask, BIAS[spec.format]
    nan_code = 128 if spec.format is Format.FP8_FNUZ else 127
    lines = [f"""\
%rebias{n} = arith.constant dense<{127 - bias << 23}> : {ints}
%ahead{n} = arith.constant dense<{-(2.0 ** (1 - bias))!r}> : {floats}
%nan_code{n} = arith.constant dense<{nan_code}> : {ints}"""]
    for h in HALVES:
        p = f"{n}{h}"
        tested = f"%c{p}" if nan_code == 128 else f"%size{p}"
        lines.append(f"""\
%size{p} = arith.andi %c{p}, %v_127 : {ints}
%up{p} = arith.shli %size{p}, %v_20 : {ints}
%normal_bits{p} = arith.addi %up{p}, %rebias{n} : {ints}
%normal{p} = arith.bitcast %normal_bits{p} : {ints} to {floats}
%subnormal{p} = math.fma %normal{p}, %v_two, %ahead{n} : {floats}
%is_subnormal{p} = arith.cmpi ult, %size{p}, %v_8 : {ints}
%value{p} = arith.select %is_subnormal{p}, %subnormal{p}, %normal{p} : {mask}, {floats}
%value_bits{p} = arith.bitcast %value{p} : {floats} to {ints}
%sign_up{p} = arith.shli %c{p}, %v_24 : {ints}
%sign{p} = arith.andi %sign_up{p}, %v_sign : {ints}
%signed{p} = arith.ori %value_bits{p}, %sign{p} : {ints}
%signed_f{p} = arith.bitcast %signed{p} : {ints} to {floats}
%product{p} = arith.mulf %signed_f{p}, %scale_f : {floats}
%product_bits{p} = arith.bitcast %product{p} : {floats} to {ints}
%is_code{p} = arith.cmpi eq, {tested}, %nan_code{n} : {ints}
%is_unordered{p} = arith.cmpf uno, %product{p}, %product{p} : {floats}
%is_nan{p} = arith.ori %is_code{p}, %is_unordered{p} : {mask}
%x{p} = arith.select %is_nan{p}, %v_nan, %product_bits{p} : {mask}, {ints}""")
    return "\n".join(lines)
