# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FP4 codes as e4m3 for NVIDIA sm_90a: eight codes of a word become eight bytes, scaled.

e4m3 holds e2m1 times 2^0 to 2^11, after the largest of some scales, and 2^6, are taken out. `prmt`
looks four codes up at once: its selector has a digit for each, as the packed codes do.
"""

from __future__ import annotations

from dsv4_iree.kernels.mma_fp8 import packed
from dsv4_iree.kernels.mma_int8 import prmt

ROOM = 11  # log2 of the largest factor between the scales of a table
TOP = 6  # log2 of what the largest scale becomes

# 0, 0.5, 1, 1.5 and 2, 3, 4, 6 times the smallest scale: one more is 8 more, but for zero.
CONSTANTS = f"""\
%plus_or_minus = arith.constant {packed(0x00, 0x80, 0x00, 0x80)} : i32
%least_low = arith.constant {packed(0x00, 0x08, 0x10, 0x14)} : i32
%least_high = arith.constant {packed(0x18, 0x1C, 0x20, 0x24)} : i32
%more_low = arith.constant {packed(0, 8, 8, 8)} : i32
%more_high = arith.constant {packed(8, 8, 8, 8)} : i32
%code_room = arith.constant {ROOM} : i32"""


def table(result: str, below: str) -> str:
    """<result>_low and <result>_high: bytes of the eight magnitudes.

    Args:
        below: log2 of the factor from the group's scale to the largest one, 0 to ROOM; whatever it
            is, the first byte is zero.
    """
    return f"""\
{result}_more = arith.subi %code_room, {below} : i32
{result}_low_by = arith.muli {result}_more, %more_low : i32
{result}_low = arith.addi {result}_low_by, %least_low : i32
{result}_high_by = arith.muli {result}_more, %more_high : i32
{result}_high = arith.addi {result}_high_by, %least_high : i32"""


def decoded(result: str, word: str, table: str) -> str:
    """<result>_0 and <result>_1: codes 0..3 and 4..7 of the word, by the masks of `mma_cuda`."""
    lines = [
        f"""\
{result}_size0 = arith.andi {word}, %magnitudes : i32
{result}_size1 = arith.shrui {result}_size0, %i16 : i32
{result}_up = arith.shrui {word}, %i3 : i32
{result}_sign0 = arith.andi {result}_up, %sign_digits : i32
{result}_sign1 = arith.shrui {result}_sign0, %i16 : i32"""
    ]
    for i in range(2):
        n = f"{result}_{i}"
        lines.append(f"""\
{prmt(f"{n}_magnitude", f"{table}_low", f"{table}_high", f"{result}_size{i}")}
{prmt(f"{n}_minus", "%plus_or_minus", "%i0", f"{result}_sign{i}")}
{n} = arith.ori {n}_magnitude, {n}_minus : i32""")
    return "\n".join(lines)
