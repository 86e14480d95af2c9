# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoding the heads of a query row into what `vnni_scores` multiplies; `vnni_words` says why."""

from __future__ import annotations

from string import Template

from dsv4_iree.kernels.vnni_words import (
    BIAS,
    BYTES,
    DOUBLED,
    I32,
    MODERATE,
    ORDINARY,
    ROOM,
    dot,
    fill,
    look_up,
    scratch,
)

# From %q_bytes, %q_scale (vector<4xi8>) and %weight of head %h, in row %r of the workgroup.
# Gives %q_narrow, %q_ordinary and %q_nan beside what it stores.
HEAD = Template("""\
%e = arith.extui %q_scale : vector<4xi8> to vector<4xi32>
%e_min = vector.reduction <minsi>, %e : vector<4xi32> into i32
%e_max = vector.reduction <maxsi>, %e : vector<4xi32> into i32
%e_least = vector.broadcast %e_min : i32 to vector<4xi32>
%above = arith.subi %e, %e_least : vector<4xi32>
%head_room = arith.constant dense<$room> : vector<4xi32>
%shift = arith.minsi %above, %head_room : vector<4xi32>
%one = arith.constant dense<1> : vector<4xi32>
%power = arith.shli %one, %shift : vector<4xi32>
%power_bytes = arith.trunci %power : vector<4xi32> to vector<4xi8>
%powers = vector.shuffle %power_bytes, %power_bytes $each_16_times
    : vector<4xi8>, vector<4xi8>
// Even dims are low nibbles, odd dims high ones. Group g has bytes 16 g to 16 g + 15 of both.
%signed = arith.constant dense<$doubled> : $bytes
%even_codes = arith.andi %q_bytes, %low_nibble : $bytes
%odd_codes = arith.shrui %q_bytes, %nibble : $bytes
%even_values = $even_looked_up
%odd_values = $odd_looked_up
%even = arith.muli %even_values, %powers : $bytes
%odd = arith.muli %odd_values, %powers : $bytes
%even_words = vector.bitcast %even : $bytes to $i32
%odd_words = vector.bitcast %odd : $bytes to $i32
vector.store %even_words, %q_words[%r, %h, %c0] : $q_words, $i32
vector.store %odd_words, %q_words[%r, %h, %c16] : $q_words, $i32
// The bias of the keys times these values, which the accumulators start from minus.
%bias = arith.constant dense<$bias> : $bytes
%even_bias = $even_added
%all_bias = $all_added
%bias0 = vector.shuffle %all_bias, %all_bias [0, 4, 8, 12] : $i32, $i32
%bias1 = vector.shuffle %all_bias, %all_bias [1, 5, 9, 13] : $i32, $i32
%bias2 = vector.shuffle %all_bias, %all_bias [2, 6, 10, 14] : $i32, $i32
%bias3 = vector.shuffle %all_bias, %all_bias [3, 7, 11, 15] : $i32, $i32
%bias01 = arith.addi %bias0, %bias1 : vector<4xi32>
%bias23 = arith.addi %bias2, %bias3 : vector<4xi32>
%group_bias = arith.addi %bias01, %bias23 : vector<4xi32>
%zeros = arith.constant dense<0> : vector<4xi32>
%group_start = arith.subi %zeros, %group_bias : vector<4xi32>
vector.store %group_start, %q_group_start[%r, %h, %c0] : $q_groups, vector<4xi32>
%start_all = vector.reduction <add>, %group_start : vector<4xi32> into i32
memref.store %start_all, %q_start[%r, %h] : $q_heads
// What the scale adds to the bits of a key's scale as a float: its exponent without its bias of
// 127, and without 2, since both sides are doubled.
%w129 = arith.constant dense<129> : vector<4xi32>
%w23 = arith.constant dense<23> : vector<4xi32>
%left = arith.subi %e, %shift : vector<4xi32>
%exponent = arith.subi %left, %w129 : vector<4xi32>
%exponent_bits = arith.shli %exponent, %w23 : vector<4xi32>
vector.store %exponent_bits, %q_group_scale[%r, %h, %c0] : $q_groups, vector<4xi32>
// The same for NARROW, which has one scale left, folded into the weight.
%e_halved = arith.subi %e_min, %i2 : i32
%e_bits = arith.shli %e_halved, %i23 : i32
%e_factor = arith.bitcast %e_bits : i32 to f32
%scaled_weight = arith.mulf %weight, %e_factor : f32
memref.store %scaled_weight, %q_weight[%r, %h] : $q_weight
// What this head allows.
%i255 = arith.constant 255 : i32
%q_nan = arith.cmpi eq, %e_max, %i255 : i32
%e_first = arith.constant $e_first : i32
%e_last = arith.constant $e_last : i32
%not_low = arith.cmpi sge, %e_min, %e_first : i32
%not_high = arith.cmpi sle, %e_max, %e_last : i32
%q_ordinary = arith.andi %not_low, %not_high : i1
%w_bits = arith.bitcast %weight : f32 to i32
%w_shifted = arith.shrui %w_bits, %i23 : i32
%w_exponent = arith.andi %w_shifted, %i255 : i32
%w_first = arith.constant $w_first : i32
%w_last = arith.constant $w_last : i32
%w_not_low = arith.cmpi sge, %w_exponent, %w_first : i32
%w_not_high = arith.cmpi sle, %w_exponent, %w_last : i32
%w_moderate = arith.andi %w_not_low, %w_not_high : i1
%w_zero = arith.cmpf oeq, %weight, %f0 : f32
%w_good = arith.ori %w_moderate, %w_zero : i1
%spread = arith.subi %e_max, %e_min : i32
%most_spread = arith.constant $room : i32
%one_scale = arith.cmpi sle, %spread, %most_spread : i32
%e_good = arith.andi %one_scale, %q_ordinary : i1
%q_narrow = arith.andi %e_good, %w_good : i1""")


def types(rows: int, heads: int) -> dict[str, str]:
    """Types of a workgroup's decoded rows."""
    return {
        "q_words": f"memref<{rows}x{heads}x32xi32>",
        "q_groups": f"memref<{rows}x{heads}x4xi32>",
        "q_heads": f"memref<{rows}x{heads}xi32>",
        "q_weight": f"memref<{rows}x{heads}xf32>",
    }


def room(rows: int, heads: int) -> str:
    """The memory of decoded rows.

    %q_words: dims 8 w .. 8 w + 6 of one parity in word w: even dims first, 16 words on odd ones.
    %q_start: where the accumulators of a head start, %q_group_start those of one of its groups.
    %q_weight: weight times the scale that is left, %q_group_scale what a group's scale adds.
    """
    kind = types(rows, heads)
    places = {
        "%q_words": "q_words",
        "%q_start": "q_heads",
        "%q_group_start": "q_groups",
        "%q_weight": "q_weight",
        "%q_group_scale": "q_groups",
    }
    return "\n".join(scratch(name, kind[place]) for name, place in places.items())


def decode_head(rows: int, heads: int) -> str:
    return fill(
        HEAD,
        **types(rows, heads),
        doubled=str(DOUBLED * 4),
        even_looked_up=look_up("%signed", "%even_codes"),
        odd_looked_up=look_up("%signed", "%odd_codes"),
        even_added=dot("%v0", "%bias", "%even"),
        all_added=dot("%even_bias", "%bias", "%odd"),
        bytes=BYTES,
        i32=I32,
        room=str(ROOM),
        bias=str(BIAS),
        each_16_times=str([i // 16 for i in range(64)]),
        e_first=str(ORDINARY[0]),
        e_last=str(ORDINARY[1]),
        w_first=str(MODERATE[0]),
        w_last=str(MODERATE[1]),
    )
