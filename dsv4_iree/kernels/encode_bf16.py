# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantising bf16 numbers to FP4 on NVIDIA GPUs, two in each instruction.

The arithmetic is that of `encode`, in bf16: a fused multiply-add rounds once, subnormals count in
full, and from 2^7 to 2^8 neighbours are 1 apart, so that there the sum with a number is rounded to
a whole one, ties to even. Dividing by the scale is part of the multiplication.
"""

from __future__ import annotations

import torch

from dsv4_iree.kernels import encode
from dsv4_iree.kernels.entry import Arg
from dsv4_iree.kernels.row_kernel import Share
from dsv4_iree.spec import IndexerSpec, Rounding

BITS = {"magnitude": 0x7FFF7FFF, "code0": 0x43004300, "code2": 0x43024302, "code4": 0x43044304}
"""Among them 128 + the first code of each binade."""


def fits(spec: IndexerSpec, target: str, numbers: Arg) -> bool:
    """Whether rows of these numbers are quantised so, a lane having a whole group."""
    plain = spec.is_fp4 and spec.rounding is Rounding.R and not spec.hadamard
    return plain and numbers.dtype is torch.bfloat16 and target.startswith("cuda")


def codes(spec: IndexerSpec, share: Share) -> str:
    """%bytes0, two codes each, and %byte0, the scale byte, from the words %raw0 of the group."""
    lines = [
        f"%p_{name} = arith.constant dense<{bits}> : {share.ints}" for name, bits in BITS.items()
    ]
    return "\n".join([*lines, _largest(share), encode.scale("0", spec), _fp4_bytes(share)])


def _largest(share: Share) -> str:
    """%size0, the magnitudes, and %peak0, the fp32 bits of the largest."""
    ints, shorts = share.ints, f"vector<{share.dims}xi16>"
    return f"""\
%size0 = arith.andi %raw0, %p_magnitude : {ints}
%shorts0 = vector.bitcast %size0 : {ints} to {shorts}
%peak_short0 = vector.reduction <maxui>, %shorts0 : {shorts} into i16
%peak_high0 = arith.extui %peak_short0 : i16 to i32
%peak0 = arith.shli %peak_high0, %i_16 : i32"""


def _fp4_bytes(share: Share) -> str:
    """%bytes0 and %byte0 from %raw0, %size0 and %scale0."""
    ints, shorts, floats = share.ints, f"vector<{share.dims}xi16>", f"vector<{share.dims}xbf16>"
    words = share.pairs // 4
    lines = [
        f"""\
%one_exponent0 = arith.constant {0x00800080} : i32
%of_none0 = arith.constant {0x7F807F80} : i32
%least_factor0 = arith.constant {0x00400040} : i32  // 2^-127
%exponents0 = arith.muli %scale0, %one_exponent0 : i32
%double0 = arith.subi %of_none0, %exponents0 : i32
%once0 = arith.subi %double0, %one_exponent0 : i32
%half_any0 = arith.subi %once0, %one_exponent0 : i32
%half0 = arith.maxsi %half_any0, %least_factor0 : i32
%size_f0 = vector.bitcast %size0 : {ints} to {floats}"""
    ]
    for code, by in (("0", "double"), ("2", "once"), ("4", "half")):
        p = f"0_{code}"
        lines.append(f"""\
%factors{p} = vector.broadcast %{by}0 : i32 to {ints}
%factors_f{p} = vector.bitcast %factors{p} : {ints} to {floats}
%first{p} = vector.bitcast %p_code{code} : {ints} to {floats}
%near{p} = llvm.intr.fma(%size_f0, %factors_f{p}, %first{p})
    : ({floats}, {floats}, {floats}) -> {floats}
%near_bits{p} = arith.bitcast %near{p} : {floats} to {shorts}""")
    lines.append(f"""\
%less0 = arith.minui %near_bits0_0, %near_bits0_2 : {shorts}
%code0 = arith.minui %less0, %near_bits0_4 : {shorts}
%codes0 = vector.bitcast %code0 : {shorts} to {ints}
%low_bytes0 = arith.constant {0x6240} : i32
%high_bytes0 = arith.constant {0x7351} : i32
%even_dims0 = arith.constant {0x5410} : i32
%odd_dims0 = arith.constant {0x7632} : i32
%signs0 = arith.constant {0x08080808} : i32
%nibble0 = arith.constant 4 : i32""")
    for w in range(words):
        p = f"0_{w}"
        for i in range(2):
            lines.append(_two_words(f"{p}_{i}", 4 * w + 2 * i, share))
        both = f"%nibbles{p}_0", f"%nibbles{p}_1"
        lines.append(f"""\
{byte_permute(f"%even{p}", *both, "%even_dims0")}
{byte_permute(f"%odd{p}", *both, "%odd_dims0")}
%odd_up{p} = arith.shli %odd{p}, %nibble0 : i32
%word_any{p} = arith.addi %odd_up{p}, %even{p} : i32
%word{p} = arith.select %finite0, %word_any{p}, %i_0 : i32""")
    found = ", ".join(f"%word0_{w}" for w in range(words))
    lines.append(f"""\
%words0 = vector.from_elements {found} : vector<{words}xi32>
%bytes0 = vector.bitcast %words0 : vector<{words}xi32> to vector<{share.pairs}xi8>
%byte0 = arith.select %finite0, %scale0, %i_255 : i32""")
    return "\n".join(lines)


def _two_words(p: str, first: int, share: Share) -> str:
    """%nibbles<p>: codes with signs, a byte each, of words first and first + 1: even, odd dims."""
    lines = [
        f"%{part}{p}_{i} = vector.extract %{part}0[{first + i}] : i32 from {share.ints}"
        for part in ("codes", "raw")
        for i in range(2)
    ]
    return "\n".join(
        [
            *lines,
            byte_permute(f"%codes{p}", f"%codes{p}_0", f"%codes{p}_1", "%low_bytes0"),
            byte_permute(f"%tops{p}", f"%raw{p}_0", f"%raw{p}_1", "%high_bytes0"),
            f"%tops_down{p} = arith.shrui %tops{p}, %nibble0 : i32",
            f"%signs{p} = arith.andi %tops_down{p}, %signs0 : i32",
            f"%nibbles{p} = arith.ori %signs{p}, %codes{p} : i32",
        ]
    )


def byte_permute(result: str, low: str, high: str, selector: str) -> str:
    """<result>: four of the eight bytes of <low> and <high>."""
    return (
        f'{result} = llvm.call_intrinsic "llvm.nvvm.prmt"({low}, {high}, {selector})'
        " : (i32, i32, i32) -> i32"
    )
