# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that write vectors: quantise numbers, or take bytes, into rows or slots of the cache.

One dispatch; a slot is found, its bytes are made and stored. Nothing else of a page is touched.
"""

from __future__ import annotations

from textwrap import indent

from dsv4_iree.kernels import copy_rows, dispatch, encode, encode_bf16, rotate
from dsv4_iree.kernels.entry import Arg, Entry
from dsv4_iree.kernels.row_kernel import Share, constants, executable, number_at, share_of
from dsv4_iree.kernels.row_memory import BYTES, Vectors, load_words
from dsv4_iree.spec import GROUP, IndexerSpec

# Negative slots are large unsigned numbers, and lie past the last page.
SLOT = """\
%slot_i64 = memref.load %slot_mapping[%row] : memref<?xi64>
%page_size = arith.constant {page_size} : i64
%page_i64 = arith.divui %slot_i64, %page_size : i64
%token_i64 = arith.remui %slot_i64, %page_size : i64
%page = arith.index_cast %page_i64 : i64 to index
%token = arith.trunci %token_i64 : i64 to i32
%exists = arith.cmpi ult, %page, %num_pages : index
%kept = arith.andi %exists, %live : i1
{page_bases}"""

# Of a vector's float32 scale.
SCALE_BYTES = """\
%scale_finite = arith.shli %scale, %i_23 : i32
%scale_bits = arith.select %finite, %scale_finite, %i_nan : i32
%scale_byte0 = arith.shrui %scale_bits, %i_0 : i32
%scale_byte1 = arith.shrui %scale_bits, %i_8 : i32
%scale_byte2 = arith.shrui %scale_bits, %i_16 : i32
%scale_byte3 = arith.shrui %scale_bits, %i_24 : i32"""

LANES = 4  # of a row on GPUs: 8 dims of every 32


def quantizer(entry: Entry, target: str, spec: IndexerSpec) -> str:
    """`@quantize_<dtype>_pure` and its kernel."""
    name = f"{entry.name}_rows"
    lines, sizes = dispatch.sizes(entry.inputs)
    kinds = ", ".join(dispatch.shaped(arg) for arg in entry.outputs)
    lines.append(
        dispatch.dispatch("made:2", name, "%rows", entry.inputs, tuple(sizes), f"({kinds})")
    )
    lines.append(f"util.return %made#0, %made#1 : {', '.join(map(str, entry.outputs))}")
    share = _share(target, spec, entry.inputs[0])
    body = _numbers_to(Vectors(spec, paged=False, checks=share.checks), entry.inputs[0], share)
    kernel = executable(
        name,
        share,
        (*entry.inputs, *entry.outputs),
        tuple(sizes),
        constants(share),
        f"%kept = arith.andi %live, %live : i1\n{body}",
    )
    return "\n".join([kernel, dispatch.pure(entry, lines)])


def writer(entry: Entry, target: str, spec: IndexerSpec) -> str:
    """`@write_cache..._pure` and its kernel: the cache is updated in place."""
    name, outputs = f"{entry.name}_rows", entry.outputs
    lines, sizes = dispatch.sizes(entry.tensors)
    lines += dispatch.scalars(entry)
    numbers = (*sizes, *entry.scalars)
    tied = ", ".join(f"%{arg.name}{{%{arg.shape[0]}}}" for arg in outputs)
    written = f"written:{len(outputs)}"
    lines.append(dispatch.dispatch(written, name, "%rows", entry.tensors, numbers, f"({tied})"))
    results = ", ".join(f"%written#{i}" for i in range(len(outputs)))
    lines.append(f"util.return {results} : {', '.join(map(str, outputs))}")
    copies = entry.name == "write_cache"
    if copies:
        share = share_of(target, spec.value_bytes // copy_rows.COLUMN)
    else:
        share = _share(target, spec, entry.inputs[0])
    into = Vectors(spec, paged=True, checks=share.checks)
    if copies:
        source = Vectors(spec, paged=False, checks=share.checks)
        body, shared = copy_rows.copy(source, "%live", into, "%kept", share), ""
    else:
        body, shared = _numbers_to(into, entry.inputs[0], share), constants(share)
    slot = SLOT.format(page_size=spec.page_size, page_bases=into.page_bases())
    kernel = executable(name, share, entry.tensors, numbers, shared, f"{slot}\n{body}")
    return "\n".join([kernel, dispatch.pure(entry, lines)])


def _share(target: str, spec: IndexerSpec, numbers: Arg) -> Share:
    """How the row of numbers is shared out."""
    if encode_bf16.fits(spec, target, numbers):
        return Share(target, spec.head_dim // GROUP, whole=True)
    return share_of(target, LANES)


def _numbers_to(into: Vectors, numbers: Arg, share: Share) -> str:
    """Quantise the row of numbers and store it where %kept."""
    spec, groups = into.spec, share.groups(into.spec.head_dim)
    fp32 = str(numbers).endswith("xf32>")
    read = "in" if spec.hadamard else "x"
    lines = [load(n, read, numbers, share) for n in groups]
    if share.whole:
        lines += [encode_bf16.codes(spec, share)]
    else:
        lines.append(codes(spec, share, fp32=fp32))
    scales = [f"%byte{n}" for n in groups]
    if not spec.is_fp4:
        lines.append(SCALE_BYTES)
        scales = [f"%scale_byte{i}" for i in range(4)]
    lines.append(stores(scales, into, share))
    return "\n".join(lines)


def codes(spec: IndexerSpec, share: Share, *, fp32: bool) -> str:
    """From %x<n>e and o, or %in<n>e and o to be rotated: %bytes<n> and, of FP4, %byte<n>.

    Of FP8: %scale, 127 + the exponent of the scale, and %finite.
    """
    groups, lines = share.groups(spec.head_dim), []
    if spec.hadamard:
        lines.append(rotate.hadamard(spec.head_dim, share, fp32=fp32))
    lines += [encode.largest(n, share) for n in groups]
    if spec.is_fp4:
        lines += [encode.scale(str(n), spec) for n in groups]
        lines.append(encode.all_scaled(groups, spec, share, fp32=fp32))
        lines += [encode.fp4_bytes(n, spec, share) for n in groups]
    else:
        lines.append(_largest_of_all(len(groups)))
        lines.append(encode.scale("", spec))
        for n in groups:
            lines.append(encode.scaled(n, "", spec, share, fp32=fp32))
            lines.append(encode.fp8_bytes(n, "", spec, share))
    return "\n".join(lines)


def stores(scales: list[str], into: Vectors, share: Share) -> str:
    """Store %bytes<n> of all groups and the bytes of the scales, i32 each, where %kept."""
    lines = [_store(n, into, share) for n in share.groups(into.spec.head_dim)]
    lines += [_store_scales(i, scales, into, share) for i in range(0, len(scales), share.lanes)]
    return f"scf.if %kept {{\n{indent(chr(10).join(lines), '  ')}\n}}"


def _largest_of_all(groups: int) -> str:
    lines, last = [], "%peak0"
    for n in range(1, groups):
        lines.append(f"%peak_to{n} = arith.maxui {last}, %peak{n} : i32")
        last = f"%peak_to{n}"
    return "\n".join([*lines, f"%peak = arith.ori {last}, {last} : i32"])


def load(n: int, name: str, numbers: Arg, share: Share) -> str:
    """%<name><n>e and %<name><n>o: fp32 bits of this lane's dims of group n."""
    fp32 = str(numbers).endswith("xf32>")
    ints, pairs, x, memory = share.ints, share.pairs, f"%{name}{n}", f"%{numbers.name}"
    lines = [
        number_at(n, numbers, share),
        load_words(f"%raw{n}", memory, f"%number_at{n}", pairs),
    ]
    if not fp32:
        lines.append(f"""\
{x}e = arith.shli %raw{n}, %v_16 : {ints}
{x}o = arith.andi %raw{n}, %v_high : {ints}""")
        return "\n".join(lines)
    order = [", ".join(str(2 * i + odd) for i in range(pairs)) for odd in (0, 1)]
    lines.append(f"""\
%later{n} = arith.constant {pairs} : index
%next_at{n} = arith.addi %number_at{n}, %later{n} : index
{load_words(f"%next{n}", memory, f"%next_at{n}", pairs)}
{x}e = vector.shuffle %raw{n}, %next{n} [{order[0]}] : {ints}, {ints}
{x}o = vector.shuffle %raw{n}, %next{n} [{order[1]}] : {ints}, {ints}""")
    return "\n".join(lines)


def _store(n: int, into: Vectors, share: Share) -> str:
    """Store %bytes<n>: on CPUs the 32 of FP8 are two columns of a page."""
    size = share.pairs if into.spec.is_fp4 else share.dims
    lines, parts = [], [(f"%bytes{n}", 0)]
    if size > 16:
        kind = f"vector<{size}xi8>"
        parts = [(f"%bytes{n}_{at}", at) for at in range(0, size, 16)]
        for part, at in parts:
            order = ", ".join(str(at + i) for i in range(16))
            lines.append(f"{part} = vector.shuffle %bytes{n}, %bytes{n} [{order}] : {kind}, {kind}")
    for part, at in parts:
        p = f"{n}_{at}"
        lines.append(f"""\
%column{p} = arith.constant {n * size * share.lanes + at} : i32
%lane_bytes{p} = arith.constant {size} : i32
%lane_at{p} = arith.muli %lane32, %lane_bytes{p} : i32
%value_byte{p} = arith.addi %column{p}, %lane_at{p} : i32
{into.value_at(f"%value_at{p}", f"%value_byte{p}")}
{into.store_values(part, f"%value_at{p}", min(size, 16))}""")
    return "\n".join(lines)


def _store_scales(first: int, scales: list[str], into: Vectors, share: Share) -> str:
    """Store scale byte first + lane."""
    some = scales[first : first + share.lanes]
    lines, last = [], some[0]
    for lane, byte in enumerate(some[1:], 1):
        chosen = f"%own_scale{first}_{lane}"
        lines.append(f"""\
{chosen}_lane = arith.constant {lane} : i32
{chosen}_is = arith.cmpi eq, %lane32, {chosen}_lane : i32
{chosen} = arith.select {chosen}_is, {byte}, {last} : i32""")
        last = chosen
    lines.append(f"""\
%own_scale{first} = arith.trunci {last} : i32 to i8
%scale_first{first} = arith.constant {first} : i32
%scale_number{first} = arith.addi %scale_first{first}, %lane32 : i32
{into.scale_at(f"%scale_at{first}", f"%scale_number{first}")}
memref.store %own_scale{first}, {into.scales}[%scale_at{first}] : {BYTES}""")
    text = "\n".join(lines)
    if share.whole or len(some) == share.lanes:
        return text
    return f"""\
%scale_lanes{first} = arith.constant {len(some)} : i32
%has_scale{first} = arith.cmpi ult, %lane32, %scale_lanes{first} : i32
scf.if %has_scale{first} {{
{indent(text, "  ")}
}}"""
