# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scores of one query row against a decoded block of 64 keys, in the forms of `vnni_tile`.

All forms add the heads up in the same order. Accumulators live in registers: those of 4 heads x 64
keys in NARROW, which reads a key word once per 4 heads; of 2 heads where fp32 sums are needed too.
The loop over steps is a loop of the MLIR: unrolled, LLVM would move the key words out of the loop
over heads, and spill them.
"""

from __future__ import annotations

from dsv4_iree.kernels.vnni_tile import (
    BLOCK,
    BYTES,
    EXACT,
    F32,
    GROUPS,
    I32,
    K_CODES,
    K_SCALE,
    LANES,
    NARROW,
    WIDE,
    call,
)

TILES = BLOCK // LANES
COLUMNS = ("%c0", "%c16", "%c32", "%c48")
FOUR = ", ".join([F32] * TILES)
SHORTS = "vector<32xi16>"
Chains = dict[tuple[int, int], str]
"""Name of the latest value for each (head of those together, tile of 16 keys)."""


def scores(kinds: dict[str, str], heads: int, rows: int, *, ahead: bool) -> str:
    """%scores:4, the logits of 4 x 16 keys for row %r, by the form in %form.

    Args:
        kinds: types of the memrefs.
        rows: query rows of a workgroup.
        ahead: whether %next holds addresses to ask for meanwhile.
    """
    narrow, wide, exact = (_form(form, kinds, heads, rows, ahead) for form in (NARROW, WIDE, EXACT))
    return f"""\
%is_narrow = arith.cmpi eq, %form, %i{NARROW} : i32
%scores:4 = scf.if %is_narrow -> ({FOUR}) {{
{narrow}
}} else {{
  %is_wide = arith.cmpi eq, %form, %i{WIDE} : i32
  %slower:4 = scf.if %is_wide -> ({FOUR}) {{
{wide}
  }} else {{
{exact}
  }}
  scf.yield %slower#0, %slower#1, %slower#2, %slower#3 : {FOUR}
}}"""


def _form(form: int, kinds: dict[str, str], heads: int, rows: int, ahead: bool) -> str:
    """The loop over heads of one form, and what its sums become."""
    together = 4 if form == NARROW else 2
    carried = ", ".join(f"%sum_0_{tile} = %z" for tile in range(TILES))
    lines = [
        f"""\
%together = arith.constant {together} : index
%heads = arith.constant {heads} : index
%total:4 = scf.for %h = %c0 to %heads step %together iter_args({carried}) -> ({FOUR}) {{"""
    ]
    for n in range(together):
        lines.append(f"%n{n} = arith.constant {n} : index")
        lines.append(f"%h{n} = arith.addi %h, %n{n} : index")
    lines += _asked_ahead(heads, together) if ahead else []
    every = [(n, tile) for n in range(together) for tile in range(TILES)]
    dots = _narrow(every, lines, kinds) if form == NARROW else _grouped(form, every, lines, kinds)
    weights = f"%q_weights[%r, %h{{n}}] : {kinds['q_one']}"
    if form != NARROW:
        weights = f"%weights[%row, %h{{n}}] : {kinds['weights']}"
    relu = "maximumf" if form == EXACT else "maxnumf"  # only EXACT meets NaN
    for n in range(together):
        lines.append(f"%w{n} = memref.load {weights.format(n=n)}")
        lines.append(f"%w_lanes{n} = vector.broadcast %w{n} : f32 to {F32}")
        for tile in range(TILES):
            i, after = f"{n}_{tile}", f"%sum_{n + 1}_{tile}"
            lines.append(f"%relu_{i} = arith.{relu} {dots[n, tile]}, %z : {F32}")
            lines.append(f"{after} = math.fma %relu_{i}, %w_lanes{n}, %sum_{i} : {F32}")
    last = ", ".join(f"%sum_{together}_{tile}" for tile in range(TILES))
    lines += [f"scf.yield {last} : {FOUR}", "}"]
    results = [_finished(form, tile, rows, lines) for tile in range(TILES)]
    lines.append(f"scf.yield {', '.join(results)} : {FOUR}")
    return "\n".join(lines)


def _asked_ahead(heads: int, together: int) -> list[str]:
    """Ask for this iteration's share of the next block's 64 lines, one to a key."""
    share = -(-BLOCK * together // heads)
    lines = [
        f"""\
%share = arith.constant {share} : index
%iteration = arith.divui %h, %together : index
%first_line = arith.muli %iteration, %share : index
%last_line = arith.constant {BLOCK - 1} : index"""
    ]
    for n in range(share):
        lines.append(f"""\
%place{n} = arith.constant {n} : index
%line_any{n} = arith.addi %first_line, %place{n} : index
%line{n} = arith.minui %line_any{n}, %last_line : index
%line_tile{n} = arith.divui %line{n}, %c16 : index
%line_in{n} = arith.remui %line{n}, %c16 : index
%line_bytes{n} = arith.muli %line_in{n}, %c64 : index
%line_base64_{n} = memref.load %next[%line_tile{n}] : memref<4xi64>
%line_base{n} = arith.index_cast %line_base64_{n} : i64 to index
%line_at{n} = arith.addi %line_base{n}, %line_bytes{n} : index
memref.prefetch %cache[%line_at{n}], read, locality<3>, data : memref<?xi8>""")
    return lines


def _narrow(every: list[tuple[int, int]], lines: list[str], kinds: dict[str, str]) -> Chains:
    """Dots over all dims in one integer chain, from minus what the keys' bias adds to them."""
    chains = {}
    for n, tile in every:
        if tile == 0:
            lines.append(f"%start_{n} = memref.load %q_start[%r, %h{n}] : {kinds['q_int']}")
            lines.append(f"%starts_{n} = vector.broadcast %start_{n} : i32 to {I32}")
        chains[n, tile] = f"%starts_{n}"
    first = ", ".join(f"%in_{n}_{tile} = {chains[n, tile]}" for n, tile in every)
    sixteen = ", ".join([I32] * len(every))
    lines.append(f"""\
%dots:{len(every)} = scf.for %step = %c0 to %c32 step %c2
    iter_args({first}) -> ({sixteen}) {{""")
    chains = {(n, tile): f"%in_{n}_{tile}" for n, tile in every}
    for offset in range(2):
        _step(offset, chains, lines, kinds)
    lines += [f"scf.yield {', '.join(chains.values())} : {sixteen}", "}"]
    for place, (n, tile) in enumerate(every):
        lines.append(f"%dot_{n}_{tile} = arith.sitofp %dots#{place} : {I32} to {F32}")
        chains[n, tile] = f"%dot_{n}_{tile}"
    return chains


def _grouped(
    form: int, every: list[tuple[int, int]], lines: list[str], kinds: dict[str, str]
) -> Chains:
    """Dots as sums over groups, each group's integer chain times its scales."""
    first = ", ".join(f"%before_{n}_{tile} = %z" for n, tile in every)
    eight = ", ".join([F32] * len(every))
    lines.append(f"""\
%groups:{len(every)} = scf.for %g = %c0 to %c4 step %c1
    iter_args({first}) -> ({eight}) {{
%step = arith.muli %g, %c4 : index""")
    for n in sorted({n for n, _ in every}):
        for name in ("first", "delta"):
            place = f"%q_{name}[%r, %h{n}, %g] : {kinds['q_four']}"
            lines.append(f"%{name}_{n} = memref.load {place}")
            lines.append(f"%{name}s_{n} = vector.broadcast %{name}_{n} : i32 to {I32}")
    chains = {(n, tile): f"%firsts_{n}" for n, tile in every}
    for offset in (0, 1, 2, 3, 16, 17, 18, 19):  # even dims, odd dims
        _step(offset, chains, lines, kinds)
    for tile in range(TILES):
        lines.append(f"%bits_{tile} = vector.load %k_scale[%g, {COLUMNS[tile]}] : {K_SCALE}, {I32}")
    scale = _two_factors if form == EXACT else _one_factor
    for n, tile in every:
        i = f"{n}_{tile}"
        lines.append(f"%part_{i} = arith.sitofp {chains[n, tile]} : {I32} to {F32}")
        part, factor = scale(i, f"%bits_{tile}", f"%deltas_{n}", lines)
        lines.append(f"%after_{i} = math.fma {part}, {factor}, %before_{i} : {F32}")
    last = ", ".join(f"%after_{n}_{tile}" for n, tile in every)
    lines += [f"scf.yield {last} : {eight}", "}"]
    return {where: f"%groups#{i}" for i, where in enumerate(every)}


def _one_factor(i: str, bits: str, delta: str, lines: list[str]) -> tuple[str, str]:
    """The part, and both scales as one factor."""
    lines.append(f"""\
%sum_bits_{i} = arith.addi {bits}, {delta} : {I32}
%factor_{i} = vector.bitcast %sum_bits_{i} : {I32} to {F32}""")
    return f"%part_{i}", f"%factor_{i}"


def _two_factors(i: str, bits: str, delta: str, lines: list[str]) -> tuple[str, str]:
    """The part times 2^x, x as near the exponent as a normal float allows; and the rest.

    A part is an integer, so times 2^-126 it is a normal float: only the last step may round.
    """
    lines.append(f"""\
%biased_{i} = arith.shrui {bits}, %v23 : {I32}
%less_{i} = arith.shrsi {delta}, %v23 : {I32}
%biased_sum_{i} = arith.addi %biased_{i}, %less_{i} : {I32}
%power_{i} = arith.subi %biased_sum_{i}, %most_power : {I32}
%near_up_{i} = arith.maxsi %power_{i}, %least_power : {I32}
%near_{i} = arith.minsi %near_up_{i}, %most_power : {I32}
%left_{i} = arith.subi %power_{i}, %near_{i} : {I32}
%far_up_{i} = arith.maxsi %left_{i}, %least_power : {I32}
%far_{i} = arith.minsi %far_up_{i}, %most_power : {I32}""")
    for name in ("near", "far"):
        lines.append(f"""\
%{name}_e_{i} = arith.addi %{name}_{i}, %most_power : {I32}
%{name}_bits_{i} = arith.shli %{name}_e_{i}, %v23 : {I32}
%{name}_factor_{i} = vector.bitcast %{name}_bits_{i} : {I32} to {F32}""")
    lines.append(f"%once_{i} = arith.mulf %part_{i}, %near_factor_{i} : {F32}")
    return f"%once_{i}", f"%far_factor_{i}"


def _step(offset: int, chains: Chains, lines: list[str], kinds: dict[str, str]) -> None:
    """Four dims, `offset` words after %step: one vpdpbusd for each chain."""
    lines.append(f"%offset_{offset} = arith.constant {offset} : index")
    lines.append(f"%step_{offset} = arith.addi %step, %offset_{offset} : index")
    for tile in range(TILES):
        i = f"{offset}_{tile}"
        place = f"%k_codes[%step_{offset}, {COLUMNS[tile]}] : {K_CODES}, {I32}"
        lines.append(f"%k_words_{i} = vector.load {place}")
        lines.append(f"%k_bytes_{i} = vector.bitcast %k_words_{i} : {I32} to {BYTES}")
    for n, tile in chains:
        i, after = f"{offset}_{n}", f"%acc_{offset}_{n}_{tile}"
        if tile == 0:
            lines.append(f"""\
%q_word_{i} = memref.load %q_codes[%r, %h{n}, %step_{offset}] : {kinds["q_codes"]}
%q_words_{i} = vector.broadcast %q_word_{i} : i32 to {I32}
%q_bytes_{i} = vector.bitcast %q_words_{i} : {I32} to {BYTES}""")
        operands = (chains[n, tile], f"%k_bytes_{offset}_{tile}", f"%q_bytes_{i}")
        lines.append(f"{after} = {call('vpdpbusd', operands, (I32, BYTES, BYTES, I32))}")
        chains[n, tile] = after


def _finished(form: int, tile: int, rows: int, lines: list[str]) -> str:
    """The sums: scaled by the key in NARROW, NaN where a scale is NaN in EXACT."""
    if form == WIDE:
        return f"%total#{tile}"
    if form == NARROW:
        lines.append(f"""\
%k_bits_{tile} = vector.load %k_scale[%c0, {COLUMNS[tile]}] : {K_SCALE}, {I32}
%k_factor_{tile} = vector.bitcast %k_bits_{tile} : {I32} to {F32}
%result_{tile} = arith.mulf %total#{tile}, %k_factor_{tile} : {F32}""")
        return f"%result_{tile}"
    for g in range(GROUPS):
        i, before = f"{g}_{tile}", f"%most_{g - 1}_{tile}" if g else "%v0"
        lines.append(f"""\
%own_{i} = arith.constant {g} : index
%scales_{i} = vector.load %k_scale[%own_{i}, {COLUMNS[tile]}] : {K_SCALE}, {I32}
%most_{i} = arith.maxsi {before}, %scales_{i} : {I32}""")
    lines.append(f"""\
%is_nan_{tile} = arith.cmpi eq, %most_{GROUPS - 1}_{tile}, %nan_bits : {I32}
%k_poison_{tile} = arith.select %is_nan_{tile}, %nans, %z : vector<16xi1>, {F32}
%with_k_{tile} = arith.addf %total#{tile}, %k_poison_{tile} : {F32}
%poison_{tile} = memref.load %q_poison[%r] : memref<{rows}xf32>
%q_poison_{tile} = vector.broadcast %poison_{tile} : f32 to {F32}
%result_{tile} = arith.addf %with_k_{tile}, %q_poison_{tile} : {F32}""")
    return f"%result_{tile}"
