# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FP4 codes as int8 for NVIDIA GPUs: eight codes of a word become eight bytes, scaled or not.

`prmt` looks four codes up at once: its selector has a digit for each, as the packed codes do. One
table of eight bytes holds the doubled magnitudes times a power of two, one their negatives.
"""

from __future__ import annotations

from dsv4_iree.kernels.mma_common import extremes, word

STEPS = 4  # of 32 codes in an MMA, eight of each group
ROOM = 3  # NARROW: log2 of the largest factor between a vector's scales


def words(result: str, sixteen_bytes: str) -> str:
    lines = [f"{result} = vector.bitcast {sixteen_bytes} : vector<16xi8> to vector<4xi32>"]
    for s in range(STEPS):
        lines.append(f"{result}_{s} = vector.extract {result}[{s}] : i32 from vector<4xi32>")
    return "\n".join(lines)


def shift(n: str, scales: str) -> str:
    """<n>_shift: what group g's codes are raised by; <n>_min: the scale left; <n>_excess: above
    zero where NARROW does not take these scales.
    """
    return f"""\
{word(f"{n}_word", scales)}
{extremes(n, f"{n}_word")}
{n}_spread = arith.subi {n}_max, {n}_min : i32
{n}_far = arith.subi {n}_spread, %room : i32
{n}_low = arith.subi %least, {n}_min : i32
{n}_high = arith.subi {n}_max, %most : i32
{n}_range = arith.maxsi {n}_low, {n}_high : i32
{n}_excess = arith.maxsi {n}_range, {n}_far : i32
{n}_mine_up = arith.shrui {n}_word, %g_bits : i32
{n}_mine = arith.andi {n}_mine_up, %i255 : i32
{n}_above = arith.subi {n}_mine, {n}_min : i32
{n}_shift = arith.andi {n}_above, %i3 : i32"""


def power(result: str, exponent: str) -> str:
    """2^(e - 128): the scale, and 1/2 for the doubled codes."""
    return f"""\
{result}_less = arith.subi {exponent}, %i1 : i32
{result}_bits = arith.shli {result}_less, %i23 : i32
{result} = arith.bitcast {result}_bits : i32 to f32"""


def table(n: str, shift: str) -> str:
    """Doubled codes 0..7 times 2^shift, and their negatives: 128 - x, less 128."""
    lines = []
    for half in ("low", "high"):
        lines.append(f"""\
{n}_pos_{half} = arith.shli %plain_{half}, {shift} : i32
{n}_top_{half} = arith.subi %tops, {n}_pos_{half} : i32
{n}_neg_{half} = arith.xori {n}_top_{half}, %tops : i32""")
    return "\n".join(lines)


def prmt(result: str, low: str, high: str, selector: str) -> str:
    """The byte that each of the selector's low four digits names; of 8 or more: the byte's sign."""
    return (
        f'{result} = llvm.call_intrinsic "llvm.nvvm.prmt"({low}, {high}, {selector})'
        " : (i32, i32, i32) -> i32"
    )


def decoded(result: str, word: str, table: str) -> str:
    """<result>_low and <result>_high: eight codes of a word as bytes; the word's digits select."""
    lines = [
        f"""\
{result}_size_low = arith.andi {word}, %magnitudes : i32
{result}_size_high = arith.shrui {result}_size_low, %i16 : i32
{result}_sign_up = arith.shrui {word}, %i3 : i32
{result}_sign_digit = arith.andi {result}_sign_up, %sign_digits : i32
{result}_sign_low = arith.ori {result}_sign_digit, %copy_sign : i32
{result}_sign_high = arith.shrui {result}_sign_low, %i16 : i32"""
    ]
    for half in ("low", "high"):
        n = f"{result}_{half}"
        lines.append(f"""\
{prmt(f"{n}_pos", f"{table}_pos_low", f"{table}_pos_high", f"{result}_size_{half}")}
{prmt(f"{n}_neg", f"{table}_neg_low", f"{table}_neg_high", f"{result}_size_{half}")}
{prmt(f"{n}_mask", "%no_or_all", "%i0", f"{result}_sign_{half}")}
{n}_differ = arith.xori {n}_pos, {n}_neg : i32
{n}_flip = arith.andi {n}_differ, {n}_mask : i32
{n} = arith.xori {n}_pos, {n}_flip : i32""")
    return "\n".join(lines)


def operand(result: str, words: list[str]) -> str:
    """<result>: the registers of a matrix operand, as the MMA op takes them."""
    size = len(words)
    return f"""\
{result}_words = vector.from_elements {", ".join(words)} : vector<{size}xi32>
{result}_bytes = vector.bitcast {result}_words : vector<{size}xi32> to vector<{4 * size}xi8>
{result} = vector.shape_cast {result}_bytes : vector<{4 * size}xi8> to vector<{size}x4xi8>"""


def mma(result: str, k: str, q: str, before: str) -> str:
    return (
        f"{result} = nvgpu.mma.sync ({k}, {q}, {before}) mmaShape = [16, 8, 32]"
        " : (vector<4x4xi8>, vector<2x4xi8>, vector<2x2xi32>) -> vector<2x2xi32>"
    )
