# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FP4 codes as fp8 for gfx942: eight codes of a word become eight e4m3 FNUZ bytes, scaled or not.

A table of eight magnitudes lies in two registers and `v_perm_b32` looks four codes up at once. To
scale by 2^s, 8 s is added to every magnitude but zero: the exponent starts at bit 3.
"""

from __future__ import annotations

from dsv4_iree.kernels.mma_common import ORDINARY, extremes, word

STEPS = 11  # NARROW: the largest step of a group's scale under the vector's largest


def packed(*values: int) -> int:
    """Four bytes, lowest first, as the i32 that MLIR prints."""
    return int.from_bytes(bytes(values), "little", signed=True)


# e4m3 FNUZ magnitudes of the codes 0..7, four to a register: as they are, and times 2^-6.
PLAIN = (packed(0, 0x38, 0x40, 0x44), packed(0x48, 0x4C, 0x50, 0x54))
LOWEST = (packed(0, 0x08, 0x10, 0x14), packed(0x18, 0x1C, 0x20, 0x24))

CONSTANTS = f"""\
%i0 = arith.constant 0 : i32
%i3 = arith.constant 3 : i32
%i4 = arith.constant 4 : i32
%i8 = arith.constant 8 : i32
%i16 = arith.constant 16 : i32
%i23 = arith.constant 23 : i32
%i24 = arith.constant 24 : i32
%i255 = arith.constant 255 : i32
%below = arith.constant {STEPS} : i32
// Scale byte e stands for 2^(e - 127), and the largest group was raised by 2^5.
%raised = arith.constant 5 : i32
%least = arith.constant {ORDINARY[0]} : i32
%most = arith.constant {ORDINARY[1]} : i32
%magnitude = arith.constant 0x07070707 : i32
%sign_bits = arith.constant {packed(128, 128, 128, 128)} : i32
%not_zero = arith.constant 0x7F7F7F7F : i32
%plain_low = arith.constant {PLAIN[0]} : i32
%plain_high = arith.constant {PLAIN[1]} : i32
%all_but_first = arith.constant {packed(12, 0, 0, 0)} : i32
%lowest_low = arith.constant {LOWEST[0]} : i32
%lowest_high = arith.constant {LOWEST[1]} : i32
"""


def power(n: str) -> str:
    """<n>_factor: bits of 2^(max - 127 - 5), the power that the codes' bytes leave out."""
    return f"""\
{n}_exponent = arith.subi {n}_max, %raised : i32
{n}_factor = arith.shli {n}_exponent, %i23 : i32"""


def step(n: str, scales: str) -> str:
    """<n>_step: what group g adds to the bytes of LOWEST; <n>_factor; <n>_excess: above zero where
    NARROW does not take these scales.
    """
    return f"""\
{word(f"{n}_word", scales)}
{extremes(n, f"{n}_word")}
{power(n)}
{n}_spread = arith.subi {n}_max, {n}_min : i32
{n}_far = arith.subi {n}_spread, %below : i32
{n}_low = arith.subi %least, {n}_min : i32
{n}_high = arith.subi {n}_max, %most : i32
{n}_range = arith.maxsi {n}_low, {n}_high : i32
{n}_excess = arith.maxsi {n}_range, {n}_far : i32
{n}_mine_up = arith.shrui {n}_word, %g_bits : i32
{n}_mine = arith.andi {n}_mine_up, %i255 : i32
{n}_base = arith.subi {n}_max, %below : i32
{n}_over = arith.subi {n}_mine, {n}_base : i32
{n}_step = arith.shli {n}_over, %i3 : i32"""


def permute(result: str, high: str, low: str, selector: str) -> str:
    """Bytes 0..3 of `low` and 4..7 of `high`, as each byte of the selector says; 12 gives 0."""
    return (
        f'{result} = llvm.call_intrinsic "llvm.amdgcn.perm"({high}, {low}, {selector})'
        " : (i32, i32, i32) -> i32"
    )


def table(n: str, vector: str) -> str:
    """<n>_low and <n>_high: magnitudes of the codes in group g, times its power of two."""
    step = f"{vector}_step"
    return f"""\
{permute(f"{n}_add_low", step, step, "%all_but_first")}
{permute(f"{n}_add_high", step, step, "%i0")}
{n}_low = arith.addi %lowest_low, {n}_add_low : i32
{n}_high = arith.addi %lowest_high, {n}_add_high : i32"""


def decoded(result: str, word: str, table: str) -> str:
    """<result>: eight codes of a word as fp8 in an i64, even ones in its low half."""
    lines = [
        f"{result}_shifted = arith.shrui {word}, %i4 : i32",
        f"{result}_raised = arith.shli {word}, %i4 : i32",
    ]
    halves = (("even", word, f"{result}_raised"), ("odd", f"{result}_shifted", word))
    for half, codes, signs in halves:
        n = f"{result}_{half}"
        lines.append(f"""\
{n}_index = arith.andi {codes}, %magnitude : i32
{permute(f"{n}_size", f"{table}_high", f"{table}_low", f"{n}_index")}
// A sign on zero would be the NaN of FNUZ.
{n}_carry = arith.addi {n}_size, %not_zero : i32
{n}_signed = arith.andi {n}_carry, {signs} : i32
{n}_sign = arith.andi {n}_signed, %sign_bits : i32
{n} = arith.ori {n}_sign, {n}_size : i32""")
    lines.append(f"""\
{result}_pair = vector.from_elements {result}_even, {result}_odd : vector<2xi32>
{result}_long = vector.bitcast {result}_pair : vector<2xi32> to vector<1xi64>
{result} = vector.extract {result}_long[0] : i64 from vector<1xi64>""")
    return "\n".join(lines)
