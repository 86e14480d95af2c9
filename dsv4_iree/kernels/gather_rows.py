# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that read vectors, from rows or entries of the cache: as they are, or as numbers.

One dispatch; an entry is found through the block table, and read only if it is visible.
"""

from __future__ import annotations

from textwrap import indent

from dsv4_iree.kernels import copy_rows, decode, decode_bf16, dispatch
from dsv4_iree.kernels.entry import Arg, Entry
from dsv4_iree.kernels.row_kernel import Share, constants, executable, number_at, share_of
from dsv4_iree.kernels.row_memory import BYTES, Vectors, store_words
from dsv4_iree.spec import GROUP, CacheLayout, IndexerSpec

# Requests and page ids that are negative are large unsigned numbers.
ENTRY = """\
%request32 = memref.load %row_to_request[%row] : memref<?xi32>
%entry = memref.load %entries[%row] : memref<?xi32>
%request = arith.index_cast %request32 : i32 to index
%page_size = arith.constant {page_size} : i32
%zero32 = arith.constant 0 : i32
%at32 = arith.divui %entry, %page_size : i32
%token = arith.remui %entry, %page_size : i32
%at = arith.index_castui %at32 : i32 to index
%from_first = arith.cmpi sge, %entry, %zero32 : i32
%in_width = arith.cmpi ult, %at, %width : index
%in_table = arith.cmpi ult, %request, %requests : index
%in_row = arith.andi %from_first, %in_width : i1
%known = arith.andi %in_row, %in_table : i1
%page32 = scf.if %known -> (i32) {{
  %row_at = arith.muli %request, %width : index
  %table_at = arith.addi %row_at, %at : index
  %listed = memref.load %block_table[%table_at] : memref<?xi32>
  scf.yield %listed : i32
}} else {{
  %nowhere = arith.constant -1 : i32
  scf.yield %nowhere : i32
}}
%page = arith.index_cast %page32 : i32 to index
%visible = arith.cmpi ult, %page, %num_pages : index
{page_bases}"""


def reader(entry: Entry, target: str, spec: IndexerSpec) -> str:
    """`@dequantize_<dtype>_pure` or `@gather_cache..._pure`, and its kernel."""
    name, paged = f"{entry.name}_rows", entry.name.startswith("gather")
    lines, sizes = dispatch.sizes(entry.inputs)
    lines += dispatch.scalars(entry)
    numbers, outputs = (*sizes, *entry.scalars), entry.outputs
    kinds = ", ".join(map(dispatch.shaped, outputs))
    made = f"made:{len(outputs)}"
    lines.append(dispatch.dispatch(made, name, "%rows", entry.inputs, numbers, f"({kinds})"))
    results = ", ".join(f"%made#{i}" for i in range(len(outputs)))
    lines.append(f"util.return {results} : {', '.join(map(str, outputs))}")
    copies, fp32 = len(outputs) == 2, str(outputs[0]).endswith("xf32>")
    # A lane stores 16 bytes of every 32 numbers.
    lanes = spec.value_bytes // copy_rows.COLUMN if copies else 8 if fp32 else 4
    share = share_of(target, lanes)
    source = Vectors(spec, paged=paged, checks=share.checks)
    if copies:
        into = Vectors(spec, paged=False, checks=share.checks)
        body, shared = copy_rows.copy(source, "%visible", into, "%live", share), ""
    else:
        body, shared = _numbers_of(source, outputs[0], fp32, share), constants(share)
    find = "%visible = arith.constant true"
    if paged:
        find = ENTRY.format(page_size=spec.page_size, page_bases=source.page_bases())
    ahead = f"{find}\n{_prefetch(source)}" if paged else ""
    operands = (*entry.inputs, *outputs)
    kernel = executable(name, share, operands, numbers, shared, f"{find}\n{body}", ahead)
    return "\n".join([kernel, dispatch.pure(entry, lines)])


def _numbers_of(source: Vectors, numbers: Arg, fp32: bool, share: Share) -> str:
    """Dequantise the row, zeros unless %visible, and store it where %live."""
    spec, groups = source.spec, range(source.spec.head_dim // GROUP)
    size = share.pairs if spec.is_fp4 else share.dims
    lines = [_load_values(n, size, source, share) for n in groups]
    lines += _load_scales(source, share)
    if decode_bf16.fits(share):
        lines.append(decode_bf16.constants(spec, share))
        if spec.is_fp4:
            lines += [decode_bf16.fp4(n, share) for n in groups]
        else:
            lines.append(decode_bf16.fp8(groups, spec, share, fp32=fp32))
    else:
        for n in groups:
            lines.append(decode.codes(n, spec, share))
            lines.append(decode.fp4(n, share) if spec.is_fp4 else decode.fp8(n, spec, share))
            if not fp32:
                lines.append(decode.words(n, spec, share))
    stores = [_store(n, numbers, fp32, spec, share) for n in groups]
    return "\n".join([*lines, "scf.if %live {", indent("\n".join(stores), "  "), "}"])


def _load_values(n: int, size: int, source: Vectors, share: Share) -> str:
    """%bytes<n>: this lane's value bytes of group n; on CPUs the 32 of FP8 are two columns."""
    kind, part_size = f"vector<{size}xi8>", min(size, copy_rows.COLUMN)
    lines, parts = [], [f"%part{n}_{at}" for at in range(0, size, part_size)]
    for i, part in enumerate(parts):
        lines.append(f"""\
{part}_first = arith.constant {n * size * share.lanes + i * part_size} : i32
{part}_share = arith.constant {size} : i32
{part}_lane = arith.muli %lane32, {part}_share : i32
{part}_byte = arith.addi {part}_first, {part}_lane : i32
{source.value_at(f"{part}_at", f"{part}_byte")}
{source.load(part, source.values, f"{part}_at", part_size)}""")
    found = parts[0]
    if len(parts) == 2:
        found, order = f"%parts{n}", ", ".join(map(str, range(size)))
        half = f"vector<{part_size}xi8>"
        lines.append(f"{found} = vector.shuffle {', '.join(parts)} [{order}] : {half}, {half}")
    return _if_visible(f"%bytes{n}", kind, "dense<0>", lines, found)


def _load_scales(source: Vectors, share: Share) -> list[str]:
    """%scale<n> of every group, as an i32; for FP8 %scale_f, a vector that repeats it."""
    spec = source.spec
    if not spec.is_fp4:
        lines = [
            f"""\
%scale_number = arith.constant 0 : i32
{source.scale_at("%scale_at", "%scale_number")}
{source.load("%scale_bytes", source.scales, "%scale_at", 4)}"""
        ]
        return [
            f"""\
{_if_visible("%scale", "vector<4xi8>", "dense<0>", lines, "%scale_bytes")}
%scale_word = vector.bitcast %scale : vector<4xi8> to vector<1xf32>
%scale_s = vector.extract %scale_word[0] : f32 from vector<1xf32>
%scale_f = vector.broadcast %scale_s : f32 to {share.floats}"""
        ]
    loads = []
    for n in range(spec.scale_bytes):
        lines = [
            f"""\
%scale_number{n} = arith.constant {n} : i32
{source.scale_at(f"%scale_at{n}", f"%scale_number{n}")}
%scale_loaded{n} = memref.load {source.scales}[%scale_at{n}] : {BYTES}"""
        ]
        loads.append(f"""\
{_if_visible(f"%scale_byte{n}", "i8", "0", lines, f"%scale_loaded{n}")}
%scale{n} = arith.extui %scale_byte{n} : i8 to i32""")
    return loads


def _if_visible(result: str, kind: str, zero: str, lines: list[str], found: str) -> str:
    return f"""\
{result}_none = arith.constant {zero} : {kind}
{result} = scf.if %visible -> ({kind}) {{
{indent(chr(10).join(lines), "  ")}
  scf.yield {found} : {kind}
}} else {{
  scf.yield {result}_none : {kind}
}}"""


def _store(n: int, numbers: Arg, fp32: bool, spec: IndexerSpec, share: Share) -> str:
    """Store this lane's numbers of group n, a run of neighbours."""
    ints, pairs = share.ints, share.pairs
    lines = [number_at(n, numbers, share)]
    memory = f"%{numbers.name}"
    if not fp32:
        lines.append(store_words(f"%words{n}", memory, f"%number_at{n}", pairs))
        return "\n".join(lines)
    if spec.is_fp4 and decode_bf16.fits(share):
        lines.append(f"""\
%x{n}e = arith.shli %words{n}, %v_16 : {ints}
%x{n}o = arith.andi %words{n}, %v_high : {ints}""")
    run = min(share.dims, 16)
    for i, first in enumerate(range(0, share.dims, run)):
        order = ", ".join(str(d // 2 + d % 2 * pairs) for d in range(first, first + run))
        lines.append(f"""\
%run{n}_{i} = vector.shuffle %x{n}e, %x{n}o [{order}] : {ints}, {ints}
%run_by{n}_{i} = arith.constant {first} : index
%run_at{n}_{i} = arith.addi %number_at{n}, %run_by{n}_{i} : index
{store_words(f"%run{n}_{i}", memory, f"%run_at{n}_{i}", run)}""")
    return "\n".join(lines)


def _prefetch(source: Vectors) -> str:
    """Ask for the cache lines of the entry, if it is visible."""
    spec, lines = source.spec, []
    in_a_row = spec.layout in (CacheLayout.N4, CacheLayout.N8)
    for i in range(0, spec.value_bytes, 64 if in_a_row else copy_rows.COLUMN):
        lines.append(f"""\
%wanted_byte{i} = arith.constant {i} : i32
{source.value_at(f"%wanted{i}", f"%wanted_byte{i}")}
memref.prefetch {source.values}[%wanted{i}], read, locality<3>, data : {BYTES}""")
    apart = spec.layout in (CacheLayout.G4, CacheLayout.F4)
    for i in range(spec.scale_bytes if apart else 1):
        lines.append(f"""\
%wanted_number{i} = arith.constant {i} : i32
{source.scale_at(f"%wanted_scale{i}", f"%wanted_number{i}")}
memref.prefetch {source.scales}[%wanted_scale{i}], read, locality<3>, data : {BYTES}""")
    return "\n".join(["scf.if %visible {", indent("\n".join(lines), "  "), "}"])
