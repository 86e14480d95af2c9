# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Hadamard rotation inside a kernel: sums and differences of dims 1, 2, 4, ... apart.

Dims one apart are a lane's even and odd ones; those that are less than a lane's share apart are in
one vector, those less than a group of 32 in two lanes, the others in two groups. Subnormal results
count as +0 everywhere, as some targets would flush them by themselves.
"""

from __future__ import annotations

import torch

from dsv4_iree.kernels.encode import HALVES
from dsv4_iree.kernels.row_kernel import Share
from dsv4_iree.spec import GROUP


def hadamard(dim: int, share: Share, *, fp32: bool) -> str:
    """%x<n>e and %x<n>o: %in<n>e and %in<n>o times H / sqrt(dim), as bf16 if they were."""
    ints, floats, groups = share.ints, share.floats, range(dim // GROUP)
    names = {(n, h): f"%in{n}{h}" for n in groups for h in HALVES}
    lines = [
        f"""\
%least_normal = arith.constant dense<{2.0**-126!r}> : {floats}
%zero_f = arith.constant dense<0.0> : {floats}"""
    ]
    for key, bits in names.items():
        name = f"%h{key[0]}{key[1]}"
        lines.append(f"{name}_any = arith.bitcast {bits} : {ints} to {floats}")
        lines.append(_flush(name, f"{name}_any", share))
        names[key] = name
    apart = 1
    while apart < dim:
        lines.append(_step(names, apart, share))
        apart *= 2
    factor = torch.tensor(dim**-0.5, dtype=torch.float32).item()
    lines.append(f"%norm = arith.constant dense<{factor!r}> : {floats}")
    for (n, h), name in names.items():
        p = f"{n}{h}"
        lines.append(f"%rotated{p}_any = arith.mulf {name}, %norm : {floats}")
        lines.append(_flush(f"%rotated{p}", f"%rotated{p}_any", share))
        bits = f"%x{p}" if fp32 else f"%rotated_bits{p}"
        lines.append(f"{bits} = arith.bitcast %rotated{p} : {floats} to {ints}")
        if not fp32:
            lines.append(f"""\
%is_nan{p} = arith.cmpf uno, %rotated{p}, %rotated{p} : {floats}
%one_nan{p} = arith.select %is_nan{p}, %v_nan, {bits} : {share.mask}, {ints}
{to_bf16(f"%x{p}", f"%one_nan{p}", share)}""")
    return "\n".join(lines)


def to_bf16(result: str, bits: str, share: Share) -> str:
    """<result>: fp32 bits rounded to bf16, nearest even; NaNs must be 0x7FC00000."""
    ints = share.ints
    return f"""\
{result}_down = arith.shrui {bits}, %v_16 : {ints}
{result}_odd = arith.andi {result}_down, %v_1 : {ints}
{result}_near = arith.addi {bits}, %v_half_bf16 : {ints}
{result}_nearest = arith.addi {result}_near, {result}_odd : {ints}
{result} = arith.andi {result}_nearest, %v_high : {ints}"""


def _step(names: dict[tuple[int, str], str], apart: int, share: Share) -> str:
    """Put sums in place of the lower, differences in place of the upper of each pair."""
    if apart == 1:
        return _pairs(names, [((n, "e"), (n, "o")) for n, h in names if h == "e"], apart, share)
    if apart >= GROUP:
        by = apart // GROUP
        pairs = [((n, h), (n + by, h)) for n, h in names if not n & by]
        return _pairs(names, pairs, apart, share)
    return "\n".join(_exchange(names, key, apart // 2, share) for key in names)


def _pairs(
    names: dict[tuple[int, str], str],
    pairs: list[tuple[tuple[int, str], tuple[int, str]]],
    apart: int,
    share: Share,
) -> str:
    lines = []
    for low, high in pairs:
        a, b = names[low], names[high]
        for key, op in ((low, "addf"), (high, "subf")):
            name = f"%h{key[0]}{key[1]}_{apart}"
            lines.append(f"{name}_any = arith.{op} {a}, {b} : {share.floats}")
            lines.append(_flush(name, f"{name}_any", share))
            names[key] = name
    return "\n".join(lines)


def _exchange(
    names: dict[tuple[int, str], str], key: tuple[int, str], by: int, share: Share
) -> str:
    """The other of a pair is `by` elements of its half of the group away: here, or in a lane."""
    own, floats, per = names[key], share.floats, share.pairs
    name = f"%h{key[0]}{key[1]}_{2 * by}"
    if by < per:
        order = ", ".join(str(i ^ by) for i in range(per))
        upper = ", ".join("true" if i & by else "false" for i in range(per))
        lines = [
            f"""\
{name}_other = vector.shuffle {own}, {own} [{order}] : {floats}, {floats}
{name}_upper = arith.constant dense<[{upper}]> : {share.mask}"""
        ]
    else:
        lines = [f"%by{name[1:]} = arith.constant {by // per} : i32"]
        others = []
        for i in range(per):
            part = f"{name}_part{i}"
            others.append(f"{part}_other")
            lines.append(f"""\
{part} = vector.extract {own}[{i}] : f32 from {floats}
{part}_other, {part}_valid = gpu.shuffle xor {part}, %by{name[1:]}, %subgroup32 : f32""")
        lines.append(f"""\
{name}_other = vector.from_elements {", ".join(others)} : {floats}
{name}_lane = arith.andi %lane32, %by{name[1:]} : i32
{name}_is_upper = arith.cmpi ne, {name}_lane, %i_0 : i32
{name}_upper = vector.broadcast {name}_is_upper : i1 to {share.mask}""")
    lines.append(f"""\
{name}_sum = arith.addf {own}, {name}_other : {floats}
{name}_difference = arith.subf {name}_other, {own} : {floats}
{name}_any = arith.select {name}_upper, {name}_difference, {name}_sum : {share.mask}, {floats}
{_flush(name, f"{name}_any", share)}""")
    names[key] = name
    return "\n".join(lines)


def _flush(result: str, x: str, share: Share) -> str:
    """<result>: <x>, or +0 where that is subnormal."""
    return f"""\
{result}_size = math.absf {x} : {share.floats}
{result}_is_small = arith.cmpf olt, {result}_size, %least_normal : {share.floats}
{result} = arith.select {result}_is_small, %zero_f, {x} : {share.mask}, {share.floats}"""
