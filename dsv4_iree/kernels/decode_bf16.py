# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dequantising on NVIDIA GPUs, two in each instruction: the numbers of codes are bf16 numbers.

The bits of a code without its sign, where bf16 has the last of its exponent and the first of its
mantissa, are a bf16 number that is smaller by a power of two; codes without a 1 in front of their
mantissa are subnormal there too. bf16 arithmetic counts subnormals in full.
"""

from __future__ import annotations

from textwrap import indent

from dsv4_iree.kernels import decode
from dsv4_iree.kernels.encode import BIAS, HALVES
from dsv4_iree.kernels.encode_bf16 import byte_permute
from dsv4_iree.kernels.row_kernel import Share
from dsv4_iree.spec import Format, IndexerSpec


def fits(share: Share) -> bool:
    """Whether rows are dequantised so."""
    return share.target.startswith("cuda")


def constants(spec: IndexerSpec, share: Share) -> str:
    """%p_<name>, vectors of words that repeat a pair."""
    pairs = {"sign": 0x80008000, "code": 0x01C001C0, "down": 6, "rebias": 0x7E807E80}
    if not spec.is_fp4:
        exponent = 254 - BIAS[spec.format]
        pairs |= {"code": 0x07F007F0, "down": 4, "rebias": exponent * 0x00800080}
    pairs |= {"nan": 0x7FC07FC0}
    lines = [f"%p_{n} = arith.constant dense<{bits}> : {share.ints}" for n, bits in pairs.items()]
    lines.append(f"%p_nothing = arith.constant dense<-0.0> : vector<{share.dims}xbf16>")
    return "\n".join(lines)


def fp4(n: int, share: Share) -> str:
    """%words<n>, two bf16 numbers each, from %bytes<n> and the scale byte %scale<n>, an i32."""
    ints, floats = share.ints, f"vector<{share.dims}xbf16>"
    lines = _words(n, share.pairs)
    lines += [
        f"%even{n}_{w} = arith.shli %word{n}_{w}, %i_4 : i32" for w in range(-(-share.pairs // 4))
    ]
    for i in range(share.pairs):
        p, of, byte = f"{n}_{i}", f"{n}_{i // 4}", i % 4
        # Both halves begin with a nibble: its sign, its code.
        lines.append(_tops(p, f"%even{of}", f"%word{of}", 0x4400 + 0x1111 * byte))
    lines.append(f"""\
{_numbers(n, share)}
%one_exponent{n} = arith.constant {0x00800080} : i32
%least{n} = arith.constant {0x00400040} : i32  // 2^-127
%factor_any{n} = arith.muli %scale{n}, %one_exponent{n} : i32
%factor{n} = arith.maxui %factor_any{n}, %least{n} : i32
%factors{n} = vector.broadcast %factor{n} : i32 to {ints}
%factors_f{n} = vector.bitcast %factors{n} : {ints} to {floats}
%scaled{n} = llvm.intr.fma(%both{n}, %factors_f{n}, %p_nothing)
    : ({floats}, {floats}, {floats}) -> {floats}
%scaled_bits{n} = vector.bitcast %scaled{n} : {floats} to {ints}
%is_nan{n} = arith.cmpi eq, %scale{n}, %i_255 : i32
%words{n} = arith.select %is_nan{n}, %p_nan, %scaled_bits{n} : {ints}""")
    return "\n".join(lines)


def fp8(groups: range, spec: IndexerSpec, share: Share, *, fp32: bool) -> str:
    """%x<n>e and %x<n>o, or %words<n>, of all groups from %bytes<n> and %scale_f.

    Where there may be a NaN, by `decode.fp8`.
    """
    ints, floats = share.ints, share.floats
    lines = [_may_be_nan(groups, spec, share)]
    for n in groups:
        for i in range(share.pairs):
            of, first = f"%word{n}_{i // 2}", 2 * (i % 2)
            lines.append(_tops(f"{n}_{i}", of, of, 0x1100 * (first + 1) + 0x11 * first))
        lines.append(f"""\
{_numbers(n, share)}
%both_bits{n} = vector.bitcast %both{n} : vector<{share.dims}xbf16> to {ints}
%bits{n}e = arith.shli %both_bits{n}, %v_16 : {ints}
%bits{n}o = arith.andi %both_bits{n}, %v_high : {ints}""")
        lines += [
            f"""\
%one{n}{h} = arith.bitcast %bits{n}{h} : {ints} to {floats}
%times{n}{h} = arith.mulf %one{n}{h}, %scale_f : {floats}"""
            for h in HALVES
        ]
        if fp32:
            lines += [
                f"%plain{n}{h} = arith.bitcast %times{n}{h} : {floats} to {ints}" for h in HALVES
            ]
        else:
            lines.append(_rounded(n, share))
    parts = [f"{n}{h}" for n in groups for h in (HALVES if fp32 else ("",))]
    found = [f"%{'x' if fp32 else 'words'}{part}" for part in parts]
    kinds = ", ".join([ints] * len(parts))
    lines.append(f"""\
{", ".join(found)} = scf.if %may_be_nan -> ({kinds}) {{
{indent(_by_fp32(groups, spec, share, fp32=fp32), "  ")}
  scf.yield {", ".join(found)} : {kinds}
}} else {{
  scf.yield {", ".join(f"%plain{part}" for part in parts)} : {kinds}
}}""")
    return "\n".join(lines)


def _words(n: int, size: int) -> list[str]:
    """%word<n>_<i>: %bytes<n> as i32, two of them alone as one."""
    width = min(8 * size, 32)
    some, count = f"vector<{8 * size // width}xi{width}>", 8 * size // width
    lines = [f"%packed{n} = vector.bitcast %bytes{n} : vector<{size}xi8> to {some}"]
    for i in range(count):
        part = f"%word{n}_{i}" if width == 32 else f"%half_word{n}_{i}"
        lines.append(f"{part} = vector.extract %packed{n}[{i}] : i{width} from {some}")
        if width < 32:
            lines.append(f"%word{n}_{i} = arith.extui {part} : i{width} to i32")
    return lines


def _tops(p: str, low: str, high: str, selector: int) -> str:
    """%tops<p>: a word whose halves begin with the bits of a code, its sign first."""
    return f"""\
%bytes_of{p} = arith.constant {selector} : i32
{byte_permute(f"%tops{p}", low, high, f"%bytes_of{p}")}"""


def _numbers(n: int, share: Share) -> str:
    """%both<n>: those of the codes at the tops of the halves of %tops<n>_<i>."""
    ints, floats = share.ints, f"vector<{share.dims}xbf16>"
    found = ", ".join(f"%tops{n}_{i}" for i in range(share.pairs))
    return f"""\
%tops{n} = vector.from_elements {found} : {ints}
%codes_any{n} = arith.shrui %tops{n}, %p_down : {ints}
%codes{n} = arith.andi %codes_any{n}, %p_code : {ints}
%signs{n} = arith.andi %tops{n}, %p_sign : {ints}
%small_bits{n} = arith.ori %codes{n}, %signs{n} : {ints}
%small{n} = vector.bitcast %small_bits{n} : {ints} to {floats}
%raise{n} = vector.bitcast %p_rebias : {ints} to {floats}
%both{n} = llvm.intr.fma(%small{n}, %raise{n}, %p_nothing)
    : ({floats}, {floats}, {floats}) -> {floats}"""


def _may_be_nan(groups: range, spec: IndexerSpec, share: Share) -> str:
    """%may_be_nan: whether a code is, or the scale is NaN or infinite; %word<n>_<i>."""
    lines, last = [], "%i_0"
    is_fnuz = spec.format is Format.FP8_FNUZ
    lines.append(f"""\
%tops = arith.constant {0x80808080} : i32
%ones = arith.constant {0x01010101} : i32
%below_tops = arith.constant {0x7F7F7F7F} : i32""")
    for n in groups:
        lines += _words(n, share.dims)
        for i in range(share.dims // 4):
            p = f"{n}_{i}"
            # 127 becomes 128; of fnuz, 128 alone has a top bit and none below.
            lines.append(f"""\
%low7{p} = arith.andi %word{p}, %below_tops : i32
%past{p} = arith.addi %low7{p}, {"%below_tops" if is_fnuz else "%ones"} : i32""")
            past = f"%past{p}"
            if is_fnuz:
                past = f"%nan{p}"
                lines.append(f"""\
%no_nan{p} = arith.xori %past{p}, %tops : i32
{past} = arith.andi %no_nan{p}, %word{p} : i32""")
            lines.append(f"%nans{p} = arith.ori {last}, {past} : i32")
            last = f"%nans{p}"
    lines.append(f"""\
%nan_tops = arith.andi {last}, %tops : i32
%has_nan = arith.cmpi ne, %nan_tops, %i_0 : i32
%scale_word32 = arith.bitcast %scale_s : f32 to i32
%scale_size = arith.andi %scale_word32, %i_magnitude : i32
%scale_special = arith.cmpi uge, %scale_size, %i_inf : i32
%may_be_nan = arith.ori %has_nan, %scale_special : i1""")
    return "\n".join(lines)


def _rounded(n: int, share: Share) -> str:
    """%plain<n>: %times<n>e and %times<n>o rounded to bf16, in words."""
    pairs, dims, floats = share.pairs, share.dims, share.floats
    order = ", ".join(f"{i}, {pairs + i}" for i in range(pairs))
    return f"""\
%times{n} = vector.shuffle %times{n}e, %times{n}o [{order}] : {floats}, {floats}
%rounded{n} = llvm.fptrunc %times{n} : vector<{dims}xf32> to vector<{dims}xbf16>
%plain{n} = vector.bitcast %rounded{n} : vector<{dims}xbf16> to {share.ints}"""


def _by_fp32(groups: range, spec: IndexerSpec, share: Share, *, fp32: bool) -> str:
    lines = []
    for n in groups:
        lines += [decode.codes(n, spec, share), decode.fp8(n, spec, share)]
        if not fp32:
            lines.append(decode.words(n, spec, share))
    return "\n".join(lines)
