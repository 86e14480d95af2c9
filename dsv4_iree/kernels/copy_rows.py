# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Taking quantised vectors as they are from rows to cache pages, or back: 16 value bytes at a time.

In every layout 16 value bytes of an entry lie side by side. On GPUs each lane of a row has 16 of
them and a scale byte or two; on CPUs one lane has all.
"""

from __future__ import annotations

from textwrap import indent

from dsv4_iree.kernels.row_kernel import Share
from dsv4_iree.kernels.row_memory import BYTES, Vectors

COLUMN = 16  # bytes


def copy(source: Vectors, readable: str, into: Vectors, kept: str, share: Share) -> str:
    """Store, where <kept>, the row's bytes in `source`, or zeros unless <readable>."""
    spec = source.spec
    columns = range(0, spec.value_bytes, COLUMN * share.lanes)
    scales = range(0, spec.scale_bytes, share.lanes)
    lines = [_load_values(i, source, readable) for i in columns]
    lines += [_load_scale(i, source, readable, share) for i in scales]
    stores = [
        f"""\
{into.value_at(f"%to{i}", f"%byte{i}")}
{into.store_values(f"%bytes{i}", f"%to{i}", COLUMN)}"""
        for i in columns
    ]
    stores += [_store_scale(i, into) for i in scales]
    return "\n".join([*lines, f"scf.if {kept} {{", indent("\n".join(stores), "  "), "}"])


def _load_values(i: int, source: Vectors, readable: str) -> str:
    """%bytes<i>: value bytes from i on, 16 a lane; %byte<i>, the first one's number."""
    load = f"""\
{source.value_at(f"%from{i}", f"%byte{i}")}
{source.load(f"%bytes{i}_loaded", source.values, f"%from{i}", COLUMN)}"""
    return f"""\
%first_byte{i} = arith.constant {i} : i32
%column_bytes{i} = arith.constant {COLUMN} : i32
%lane_byte{i} = arith.muli %lane32, %column_bytes{i} : i32
%byte{i} = arith.addi %first_byte{i}, %lane_byte{i} : i32
%no_bytes{i} = arith.constant dense<0> : vector<{COLUMN}xi8>
%bytes{i} = scf.if {readable} -> (vector<{COLUMN}xi8>) {{
{indent(load, "  ")}
  scf.yield %bytes{i}_loaded : vector<{COLUMN}xi8>
}} else {{
  scf.yield %no_bytes{i} : vector<{COLUMN}xi8>
}}"""


def _load_scale(i: int, source: Vectors, readable: str, share: Share) -> str:
    """%scale<i>: scale byte %number<i> = i + lane; %has<i>: whether there is one."""
    return f"""\
%first{i} = arith.constant {i} : i32
%number{i} = arith.addi %first{i}, %lane32 : i32
%count{i} = arith.constant {source.spec.scale_bytes} : i32
%has{i} = arith.cmpi ult, %number{i}, %count{i} : i32
%reads{i} = arith.andi %has{i}, {readable} : i1
%no_scale{i} = arith.constant 0 : i8
%scale{i} = scf.if %reads{i} -> (i8) {{
{indent(source.scale_at(f"%scale_from{i}", f"%number{i}"), "  ")}
  %scale{i}_loaded = memref.load {source.scales}[%scale_from{i}] : {BYTES}
  scf.yield %scale{i}_loaded : i8
}} else {{
  scf.yield %no_scale{i} : i8
}}"""


def _store_scale(i: int, into: Vectors) -> str:
    return f"""\
scf.if %has{i} {{
{indent(into.scale_at(f"%scale_to{i}", f"%number{i}"), "  ")}
  memref.store %scale{i}, {into.scales}[%scale_to{i}] : {BYTES}
}}"""
