# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The query side in one dispatch: RoPE, rotation, quantisation, and the factors of the weights.

A row of the kernel is one head's query of one token. RoPE turns dims 2i and 2i + 1, which are a
lane's even and odd ones at the same place. Every product is looked at by `_to_zero` before it is
added to another: so no target rounds both in one, and subnormals are zero on all of them.
"""

from __future__ import annotations

import torch

from dsv4_iree.kernels import dispatch, rotate
from dsv4_iree.kernels.entry import Arg, Entry
from dsv4_iree.kernels.quantize import FLOATS, quantized
from dsv4_iree.kernels.row_kernel import Share, constants, executable, share_of
from dsv4_iree.kernels.row_memory import WORDS, Vectors, load_words
from dsv4_iree.kernels.write_rows import LANES, codes, load, stores
from dsv4_iree.spec import GROUP, IndexerSpec, Intermediate

FACTORS = ("softmax_scale", "head_scale")
"""Scalars: float32 numbers, as the integers of their bits."""

POSITION = """\
%heads = arith.constant {heads} : index
%token = arith.divui %row, %heads : index
%position_i64 = memref.load %positions[%token] : memref<?xi64>
%max_pos_i64 = arith.index_cast %max_pos : index to i64
%known = arith.cmpi ult, %position_i64, %max_pos_i64 : i64  // negative ones are large
%position_any = arith.index_cast %position_i64 : i64 to index
%position = arith.select %known, %position_any, %c0 : index
%row_angles = arith.constant {words} : index
%angles_at = arith.muli %position, %row_angles : index
%lane_angles = arith.constant {lane_words} : index
%lane_angles_at = arith.muli %lane, %lane_angles : index
%angles_from = arith.addi %angles_at, %lane_angles_at : index"""


def query_entries(spec: IndexerSpec) -> tuple[Entry, ...]:
    """One for each dtype of the queries (and their weights), of the table and between the steps."""
    rows = ("tokens", spec.num_heads)
    return tuple(
        Entry(
            f"quantize_queries_{q}_{table}_{between.value}",
            None,
            inputs=(
                Arg("q", q_dtype, (*rows, spec.head_dim)),
                Arg("weights", q_dtype, rows),
                Arg("positions", torch.int64, ("tokens",)),
                Arg("cos_sin", table_dtype, ("max_pos", spec.rope_dim)),
            ),
            outputs=(*quantized(spec, "", rows), Arg("folded", torch.float32, rows)),
            scalars=FACTORS,
        )
        for q, q_dtype in FLOATS
        for table, table_dtype in FLOATS
        for between in Intermediate
    )


def function(entry: Entry, target: str, spec: IndexerSpec) -> str:
    """`@<entry>_pure` and its kernel."""
    name, q = f"{entry.name}_rows", entry.inputs[0]
    lines, sizes = dispatch.sizes(entry.inputs)
    lines += dispatch.scalars(entry)
    lines.append(f"%heads = arith.constant {spec.num_heads} : index")
    lines.append("%rows = arith.muli %tokens, %heads : index")
    numbers = ("rows", *sizes, *entry.scalars)
    kinds = ", ".join(dispatch.shaped(arg) for arg in entry.outputs)
    lines.append(dispatch.dispatch("made:3", name, "%rows", entry.inputs, numbers, f"({kinds})"))
    lines.append(f"util.return %made#0, %made#1, %made#2 : {', '.join(map(str, entry.outputs))}")
    share = share_of(target, LANES)
    between = Intermediate(entry.name.rpartition("_")[2])
    kernel = executable(
        name,
        share,
        (*entry.inputs, *entry.outputs),
        numbers,
        constants(share),
        _body(q, entry.inputs[3], between, spec, share),
    )
    return "\n".join([kernel, dispatch.pure(entry, lines)])


def _body(q: Arg, table: Arg, between: Intermediate, spec: IndexerSpec, share: Share) -> str:
    """Everything about the row: its values, scales and weight."""
    groups, fp32 = range(spec.head_dim // GROUP), between is Intermediate.F32
    turned = spec.rope_dim // GROUP  # groups, the last ones
    result = "in" if spec.hadamard else "x"
    words = 1 if _is_f32(table) else 2  # numbers to a word
    lines = [
        POSITION.format(
            heads=spec.num_heads,
            words=spec.rope_dim // words,
            lane_words=share.pairs // words,
        )
    ]
    for n in groups:
        at = n - (len(groups) - turned)
        stays = at < 0 and (fp32 or not _is_f32(q))
        lines.append(load(n, result if stays else "q", q, share))
        if at >= 0:
            lines.append(_turn(n, at, "t" if not fp32 else result, table, spec, share))
        if not (stays or fp32):
            lines += [_round(f"%{result}{n}{h}", f"%{'qt'[at >= 0]}{n}{h}", share) for h in "eo"]
    lines.append(codes(spec, share, fp32=fp32))
    into = Vectors(spec, paged=False, checks=share.checks)
    scales = [f"%byte{n}" for n in groups]
    if not spec.is_fp4:  # the scale is in the weight; 1.0 stands for it
        scales = [f"%i_one{i}" for i in range(4)]
        lines += [f"%i_one{i} = arith.constant {byte} : i32" for i, byte in enumerate(ONE)]
    lines.append("%kept = arith.andi %live, %live : i1")
    lines.append(stores(scales, into, share))
    lines.append(_weight(q, spec))
    return "\n".join(lines)


ONE = (0, 0, 0x80, 0x3F)  # bytes of 1.0


def _turn(n: int, at: int, result: str, table: Arg, spec: IndexerSpec, share: Share) -> str:
    """%<result><n>e and o: group n, the rope group number `at`, turned; %q<n>e and o if not %known.

    (a, b) becomes (a cos - b sin, b cos + a sin).
    """
    ints, floats, half = share.ints, share.floats, spec.rope_dim // 2
    lines = [
        _angles(f"%cos{n}", at * GROUP // 2, table, share),
        _angles(f"%sin{n}", half + at * GROUP // 2, table, share),
    ]
    for name, bits in (("a", f"%q{n}e"), ("b", f"%q{n}o")):
        lines.append(_to_zero(f"%{name}{n}", bits, share))
    for name in ("a", "b", "cos", "sin"):
        lines.append(f"%{name}{n}_f = arith.bitcast %{name}{n} : {ints} to {floats}")
    for left, right in (("a", "cos"), ("b", "sin"), ("b", "cos"), ("a", "sin")):
        product = f"%{left}_{right}{n}"
        lines.append(f"{product}_any = arith.mulf %{left}{n}_f, %{right}{n}_f : {floats}")
        lines.append(_float_to_zero(product, share))
    for h, op, left, right in (("e", "subf", "a_cos", "b_sin"), ("o", "addf", "b_cos", "a_sin")):
        total = f"%turned{n}{h}"
        lines.append(f"""\
{total}_any = arith.{op} %{left}{n}_f, %{right}{n}_f : {floats}
{_float_to_zero(total, share)}
%{result}{n}{h} = arith.select %known, {total}, %q{n}{h} : {ints}""")
    return "\n".join(lines)


def _angles(result: str, first: int, table: Arg, share: Share) -> str:
    """<result>: bits of this lane's numbers of the table's row, counted from number `first`."""
    pairs = share.pairs
    per_word = 1 if _is_f32(table) else 2
    lines = [
        f"""\
{result}_first = arith.constant {first // per_word} : index
{result}_at = arith.addi %angles_from, {result}_first : index
{load_words(f"{result}_raw", "%cos_sin", f"{result}_at", pairs // per_word)}"""
    ]
    bits = f"{result}_raw"
    if per_word == 2:
        bits, half = f"{result}_bits", f"vector<{pairs // 2}xi32>"
        order = ", ".join(f"{i}, {i + pairs // 2}" for i in range(pairs // 2))
        lines.append(f"""\
{result}_up = arith.constant dense<16> : {half}
{result}_mask = arith.constant dense<{-0x10000}> : {half}
{result}_even = arith.shli {result}_raw, {result}_up : {half}
{result}_odd = arith.andi {result}_raw, {result}_mask : {half}
{bits} = vector.shuffle {result}_even, {result}_odd [{order}] : {half}, {half}""")
    lines.append(_to_zero(result, bits, share))
    return "\n".join(lines)


def _to_zero(result: str, bits: str, share: Share) -> str:
    """<result>: the fp32 numbers, zero of their sign where they are subnormal."""
    ints = share.ints
    return f"""\
{result}_exponent = arith.andi {bits}, %v_inf : {ints}
{result}_is_small = arith.cmpi eq, {result}_exponent, %v_0 : {ints}
{result}_sign = arith.andi {bits}, %v_sign : {ints}
{result} = arith.select {result}_is_small, {result}_sign, {bits} : {share.mask}, {ints}"""


def _float_to_zero(result: str, share: Share) -> str:
    """<result> and <result>_f: <result>_any, zero of its sign where it is subnormal."""
    return f"""\
{result}_bits = arith.bitcast {result}_any : {share.floats} to {share.ints}
{_to_zero(result, f"{result}_bits", share)}
{result}_f = arith.bitcast {result} : {share.ints} to {share.floats}"""


def _round(result: str, bits: str, share: Share) -> str:
    """<result>: fp32 numbers rounded to bf16."""
    p, ints = f"%one{bits[1:]}", share.ints
    return f"""\
{p}_shifted = arith.shli {bits}, %v_1 : {ints}
{p}_infinity = arith.shli %v_inf, %v_1 : {ints}
{p}_is_nan = arith.cmpi ugt, {p}_shifted, {p}_infinity : {ints}
{p} = arith.select {p}_is_nan, %v_nan, {bits} : {share.mask}, {ints}
{rotate.to_bf16(result, p, share)}"""


def _weight(q: Arg, spec: IndexerSpec) -> str:
    """The row's weight times the scale of FP8 and both factors, stored by the first lane."""
    kind = "f32" if _is_f32(q) else "bf16"
    lines = [f"%weight_any = memref.load %weights[%row] : memref<?x{kind}>"]
    if kind == "f32":
        lines.append("%weight_bits = arith.bitcast %weight_any : f32 to i32")
    else:
        lines.append("""\
%weight_short = arith.bitcast %weight_any : bf16 to i16
%weight_wide = arith.extui %weight_short : i16 to i32
%weight_bits = arith.shli %weight_wide, %i_16 : i32""")
    lines.append(_scalar_to_zero("%weight0", "%weight_bits"))
    last, factors = "%weight0", list(FACTORS)
    if not spec.is_fp4:
        lines.append("""\
%scale_number = arith.shli %scale, %i_23 : i32
%scale_bits = arith.select %finite, %scale_number, %i_nan : i32
%fp8_scale_f = arith.bitcast %scale_bits : i32 to f32""")
        factors.insert(0, "fp8_scale")
    for i, factor in enumerate(factors, 1):
        if factor != "fp8_scale":
            lines.append(f"""\
%{factor}_bits = arith.index_cast %{factor} : index to i32
%{factor}_f = arith.bitcast %{factor}_bits : i32 to f32""")
        lines.append(f"""\
{last}_f = arith.bitcast {last} : i32 to f32
%weight{i}_any = arith.mulf {last}_f, %{factor}_f : f32
%weight{i}_bits = arith.bitcast %weight{i}_any : f32 to i32
{_scalar_to_zero(f"%weight{i}", f"%weight{i}_bits")}""")
        last = f"%weight{i}"
    lines.append(f"""\
%is_first = arith.cmpi eq, %lane32, %i_0 : i32
%stores_weight = arith.andi %is_first, %live : i1
scf.if %stores_weight {{
  memref.store {last}, %folded[%row] : {WORDS}
}}""")
    return "\n".join(lines)


def _scalar_to_zero(result: str, bits: str) -> str:
    """`_to_zero` of one number."""
    return f"""\
{result}_exponent = arith.andi {bits}, %i_inf : i32
{result}_is_small = arith.cmpi eq, {result}_exponent, %i_0 : i32
{result}_sign = arith.andi {bits}, %i_sign : i32
{result} = arith.select {result}_is_small, {result}_sign, {bits} : i32"""


def _is_f32(arg: Arg) -> bool:
    return arg.dtype is torch.float32
