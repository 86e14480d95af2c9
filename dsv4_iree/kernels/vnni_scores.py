# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scores of one query row against a decoded block of 64 keys, in the forms of `vnni_words`.

All forms add the heads up in the same order. Accumulators live in registers: those of 4 heads x 64
keys in NARROW, where a vector of keys that is loaded serves 4 heads; of 2 heads in the others,
which need as many registers again for their fp32 sums over groups. The loop over words is a loop
in the MLIR too: were it unrolled, LLVM would take the loads of keys out of the loop over heads, and
spill.
"""

from __future__ import annotations

from dsv4_iree.kernels.vnni_keys import KEY_POISON, KEY_SCALES, KEY_WORDS
from dsv4_iree.kernels.vnni_pages import Source, ask_for_next
from dsv4_iree.kernels.vnni_words import (
    BYTES,
    EXACT,
    F32,
    I32,
    NARROW,
    TILES,
    WIDE,
    dot,
)

COLUMNS = ("%c0", "%c16", "%c32", "%c48")
FOUR = ", ".join([F32] * TILES)
Chains = dict[tuple[int, int], str]
"""Name of the latest value of each (head of those together, tile of 16 keys)."""


def scores(types: dict[str, str], heads: int, rows: int, source: Source) -> str:
    """%scores:4, the logits of 4 x 16 keys for row %r, by the form in %form.

    Args:
        types: of the decoded queries.
        rows: query rows of a workgroup.
        source: of the keys; the next block is asked for meanwhile.
    """
    narrow, wide, exact = (
        _form(form, types, heads, rows, source) for form in (NARROW, WIDE, EXACT)
    )
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


def _form(form: int, types: dict[str, str], heads: int, rows: int, source: Source) -> str:
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
    lines.append(ask_for_next(source, heads, together))
    every = [(n, tile) for n in range(together) for tile in range(TILES)]
    dots = _whole_dots if form == NARROW else _group_dots
    chains = dots(form, every, lines, types)
    weights = "%weights[%row, %h{n}] : " + types["weights"]
    if form == NARROW:
        weights = "%q_weight[%r, %h{n}] : " + types["q_weight"]
    relu = "maximumf" if form == EXACT else "maxnumf"  # only EXACT meets NaN
    for n in range(together):
        lines.append(f"%w{n} = memref.load {weights.format(n=n)}")
        lines.append(f"%w_lanes{n} = vector.broadcast %w{n} : f32 to {F32}")
        for tile in range(TILES):
            i, after = f"{n}_{tile}", f"%sum_{n + 1}_{tile}"
            lines.append(f"%relu_{i} = arith.{relu} {chains[n, tile]}, %z : {F32}")
            lines.append(f"{after} = math.fma %relu_{i}, %w_lanes{n}, %sum_{i} : {F32}")
    last = ", ".join(f"%sum_{together}_{tile}" for tile in range(TILES))
    lines += [f"scf.yield {last} : {FOUR}", "}"]
    results = [_finished(form, tile, rows, lines) for tile in range(TILES)]
    lines.append(f"scf.yield {', '.join(results)} : {FOUR}")
    return "\n".join(lines)


def _whole_dots(
    form: int, every: list[tuple[int, int]], lines: list[str], types: dict[str, str]
) -> Chains:
    """Dots over all dims, each in one integer chain."""
    for n in sorted({n for n, _ in every}):
        lines.append(f"%start_{n} = memref.load %q_start[%r, %h{n}] : {types['q_heads']}")
        lines.append(f"%starts_{n} = vector.broadcast %start_{n} : i32 to {I32}")
    first = ", ".join(f"%in_{n}_{tile} = %starts_{n}" for n, tile in every)
    kinds = ", ".join([I32] * len(every))
    lines.append(f"""\
%dots:{len(every)} = scf.for %word = %c0 to %c32 step %c2
    iter_args({first}) -> ({kinds}) {{""")
    chains = {(n, tile): f"%in_{n}_{tile}" for n, tile in every}
    for offset in range(2):
        _add_word(offset, chains, lines, types)
    lines += [f"scf.yield {', '.join(chains.values())} : {kinds}", "}"]
    for place, (n, tile) in enumerate(every):
        lines.append(f"%dot_{n}_{tile} = arith.sitofp %dots#{place} : {I32} to {F32}")
        chains[n, tile] = f"%dot_{n}_{tile}"
    return chains


def _group_dots(
    form: int, every: list[tuple[int, int]], lines: list[str], types: dict[str, str]
) -> Chains:
    """Dots as sums over groups, each group's integer chain times its scales."""
    first = ", ".join(f"%before_{n}_{tile} = %z" for n, tile in every)
    kinds = ", ".join([F32] * len(every))
    lines.append(f"""\
%groups:{len(every)} = scf.for %g = %c0 to %c4 step %c1
    iter_args({first}) -> ({kinds}) {{
%word = arith.muli %g, %c4 : index""")
    for n in sorted({n for n, _ in every}):
        for name in ("start", "scale"):
            place = f"%q_group_{name}[%r, %h{n}, %g] : {types['q_groups']}"
            lines.append(f"%{name}_{n} = memref.load {place}")
            lines.append(f"%{name}s_{n} = vector.broadcast %{name}_{n} : i32 to {I32}")
    chains = {(n, tile): f"%starts_{n}" for n, tile in every}
    for offset in (0, 1, 2, 3, 16, 17, 18, 19):  # even dims, odd dims
        _add_word(offset, chains, lines, types)
    for tile in range(TILES):
        place = f"%key_scales[%g, {COLUMNS[tile]}] : {KEY_SCALES}, {I32}"
        lines.append(f"%bits_{tile} = vector.load {place}")
    scale = _two_factors if form == EXACT else _one_factor
    for n, tile in every:
        i = f"{n}_{tile}"
        lines.append(f"%part_{i} = arith.sitofp {chains[n, tile]} : {I32} to {F32}")
        part, factor = scale(i, f"%bits_{tile}", f"%scales_{n}", lines)
        lines.append(f"%after_{i} = math.fma {part}, {factor}, %before_{i} : {F32}")
    last = ", ".join(f"%after_{n}_{tile}" for n, tile in every)
    lines += [f"scf.yield {last} : {kinds}", "}"]
    return {where: f"%groups#{i}" for i, where in enumerate(every)}


def _one_factor(i: str, k_bits: str, q_bits: str, lines: list[str]) -> tuple[str, str]:
    """The part, and both scales as one factor."""
    lines.append(f"""\
%sum_bits_{i} = arith.addi {k_bits}, {q_bits} : {I32}
%factor_{i} = vector.bitcast %sum_bits_{i} : {I32} to {F32}""")
    return f"%part_{i}", f"%factor_{i}"


def _two_factors(i: str, k_bits: str, q_bits: str, lines: list[str]) -> tuple[str, str]:
    """The part times 2^x, x as near the exponent as a normal float allows; and the rest.

    A part is an integer, so times 2^-126 it is a normal float: only the last step may round.
    """
    lines.append(f"""\
%biased_{i} = arith.shrui {k_bits}, %v23 : {I32}
%added_{i} = arith.shrsi {q_bits}, %v23 : {I32}
%biased_sum_{i} = arith.addi %biased_{i}, %added_{i} : {I32}
%power_{i} = arith.subi %biased_sum_{i}, %most_power : {I32}
%near_up_{i} = arith.maxsi %power_{i}, %least_power : {I32}
%near_{i} = arith.minsi %near_up_{i}, %most_power : {I32}
%rest_{i} = arith.subi %power_{i}, %near_{i} : {I32}
%far_up_{i} = arith.maxsi %rest_{i}, %least_power : {I32}
%far_{i} = arith.minsi %far_up_{i}, %most_power : {I32}""")
    for name in ("near", "far"):
        lines.append(f"""\
%{name}_e_{i} = arith.addi %{name}_{i}, %most_power : {I32}
%{name}_bits_{i} = arith.shli %{name}_e_{i}, %v23 : {I32}
%{name}_factor_{i} = vector.bitcast %{name}_bits_{i} : {I32} to {F32}""")
    lines.append(f"%once_{i} = arith.mulf %part_{i}, %near_factor_{i} : {F32}")
    return f"%once_{i}", f"%far_factor_{i}"


def _add_word(offset: int, chains: Chains, lines: list[str], types: dict[str, str]) -> None:
    """Four dims, `offset` words after %word: one vpdpbusd for each chain."""
    lines.append(f"%offset_{offset} = arith.constant {offset} : index")
    lines.append(f"%word_{offset} = arith.addi %word, %offset_{offset} : index")
    for tile in range(TILES):
        i = f"{offset}_{tile}"
        place = f"%key_words[%word_{offset}, {COLUMNS[tile]}] : {KEY_WORDS}, {I32}"
        lines.append(f"%k_lanes_{i} = vector.load {place}")
        lines.append(f"%k_bytes_{i} = vector.bitcast %k_lanes_{i} : {I32} to {BYTES}")
    for n, tile in chains:
        i, after = f"{offset}_{n}", f"%chain_{offset}_{n}_{tile}"
        if tile == 0:
            lines.append(f"""\
%q_word_{i} = memref.load %q_words[%r, %h{n}, %word_{offset}] : {types["q_words"]}
%q_lanes_{i} = vector.broadcast %q_word_{i} : i32 to {I32}
%q_bytes_{i} = vector.bitcast %q_lanes_{i} : {I32} to {BYTES}""")
        added = dot(chains[n, tile], f"%k_bytes_{offset}_{tile}", f"%q_bytes_{i}")
        lines.append(f"{after} = {added}")
        chains[n, tile] = after


def _finished(form: int, tile: int, rows: int, lines: list[str]) -> str:
    """The sums: scaled by the key in NARROW, NaN where a scale is NaN in EXACT."""
    if form == NARROW:
        lines.append(f"""\
%k_bits_{tile} = vector.load %key_scales[%c0, {COLUMNS[tile]}] : {KEY_SCALES}, {I32}
%k_factor_{tile} = vector.bitcast %k_bits_{tile} : {I32} to {F32}
%result_{tile} = arith.mulf %total#{tile}, %k_factor_{tile} : {F32}""")
    elif form == EXACT:
        lines.append(f"""\
%k_poison_{tile} = vector.load %key_poison[{COLUMNS[tile]}] : {KEY_POISON}, {F32}
%with_k_{tile} = arith.addf %total#{tile}, %k_poison_{tile} : {F32}
%poison_{tile} = memref.load %q_poison[%r] : memref<{rows}xf32>
%q_poison_{tile} = vector.broadcast %poison_{tile} : f32 to {F32}
%result_{tile} = arith.addf %with_k_{tile}, %q_poison_{tile} : {F32}""")
    return f"%total#{tile}" if form == WIDE else f"%result_{tile}"
