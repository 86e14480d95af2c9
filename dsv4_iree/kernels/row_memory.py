# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where quantised vectors lie, and loads and stores of their bytes, as the text of a kernel.

Addresses in a page come from the formulas of `layout`, which are given symbols in place of numbers:
there is one place that says where a byte lies. Page times stride is 64-bit; the rest fits 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import indent

from dsv4_iree import layout
from dsv4_iree.spec import CacheLayout, IndexerSpec

BYTES = "memref<?xi8, strided<[1], offset: ?>>"
WORDS = "memref<?xi32, strided<[1], offset: ?>>"


@dataclass(frozen=True)
class Number:
    """An i32 of a kernel; arithmetic on it appends to `lines` and gives another."""

    name: str
    prefix: str
    lines: list[str] = field(default_factory=list)

    def _op(self, op: str, other: layout.Symbol | int) -> Number:
        result = f"{self.prefix}_{len(self.lines)}"
        if isinstance(other, int):
            by = f"{result}_by"
            self.lines.append(f"{by} = arith.constant {other} : i32")
        else:
            by = str(other)
        self.lines.append(f"{result} = arith.{op} {self.name}, {by} : i32")
        return Number(result, self.prefix, self.lines)

    def __str__(self) -> str:
        return self.name

    def __add__(self, other: layout.Symbol | int) -> Number:
        return self._op("addi", other)

    __radd__ = __add__

    def __mul__(self, other: layout.Symbol | int) -> Number:
        return self._op("muli", other)

    def __floordiv__(self, other: int) -> Number:
        return self._op("divui", other)

    def __mod__(self, other: int) -> Number:
        return self._op("remui", other)


@dataclass(frozen=True)
class Vectors:
    """The quantised vectors that a kernel reads or writes, one for each of its rows.

    Args:
        paged: entry %token of a cache page at %values_base of %cache, or of %cache_values and, its
            scales, at %scales_base of %cache_scales; otherwise row %row of %values and %scales.
        checks: whether wide accesses need aligned addresses, which %aligned then tells of pages.
    """

    spec: IndexerSpec
    paged: bool
    checks: bool

    @property
    def values(self) -> str:
        return self._paged("values") if self.paged else "%values"

    @property
    def scales(self) -> str:
        return self._paged("scales") if self.paged else "%scales"

    @property
    def is_split(self) -> bool:
        """Whether values and scales of a page are in two memories."""
        return self.spec.layout is CacheLayout.F4

    def page_bases(self) -> str:
        """%values_base and %scales_base of %page; %aligned: whether pages keep wide alignment."""
        stride = "%scales_stride" if self.is_split else "%page_stride"
        return f"""\
%values_base = arith.muli %page, %page_stride : index
%scales_base = arith.muli %page, {stride} : index
%line = arith.constant 16 : index
%past_line = arith.remui %page_stride, %line : index
%aligned = arith.cmpi eq, %past_line, %c0 : index"""

    def value_at(self, result: str, byte: str) -> str:
        """<result>, an index: where value byte <byte>, an i32, of the row lies."""
        if self.paged:
            token, number = self._symbols(result, byte)
            offset = layout.value_offset(self.spec, token, number)
            return _in_page(result, "%values_base", offset, token)
        return _in_row(result, byte, self.spec.value_bytes)

    def scale_at(self, result: str, byte: str) -> str:
        """<result>, an index: where scale byte <byte>, an i32, of the row lies."""
        if self.paged:
            token, number = self._symbols(result, byte)
            offset = layout.scale_offset(self.spec, token, number)
            return _in_page(result, "%scales_base", offset, token)
        return _in_row(result, byte, self.spec.scale_bytes)

    def load(self, result: str, memory: str, at: str, size: int) -> str:
        """<result>: vector<size x i8> at <at> of the values or scales, a multiple of size there."""
        kind = f"vector<{size}xi8>"
        if not self._may_be_unaligned:
            return self._load(result, memory, at, size)
        lines, names = [], []
        for i in range(size):
            n = f"{result}_{i}"
            names.append(f"{n}_byte")
            lines.append(f"""\
{n}_by = arith.constant {i} : index
{n} = arith.addi {at}, {n}_by : index
{n}_byte = memref.load {memory}[{n}] : {BYTES}""")
        # Two loads that differ in their alignment alone would become one of the lesser.
        return f"""\
{result} = scf.if %aligned -> ({kind}) {{
  {self._load(f"{result}_wide", memory, at, size)}
  scf.yield {result}_wide : {kind}
}} else {{
{_in(lines)}
  {result}_bytes = vector.from_elements {", ".join(names)} : {kind}
  scf.yield {result}_bytes : {kind}
}}"""

    def store_values(self, vector: str, at: str, size: int) -> str:
        """Store vector<size x i8> of value bytes at <at>, a multiple of size there."""
        alignment = size if self.checks or not self.paged else 1
        wide = (
            f'"vector.store"({vector}, {self.values}, {at}) <{{alignment = {alignment} : i64}}>'
            f" : (vector<{size}xi8>, {BYTES}, index) -> ()"
        )
        if not self._may_be_unaligned:
            return wide
        lines = []
        for i in range(size):
            n = f"{vector}_{i}"
            lines.append(f"""\
{n}_by = arith.constant {i} : index
{n} = arith.addi {at}, {n}_by : index
{n}_byte = vector.extract {vector}[{i}] : i8 from vector<{size}xi8>
memref.store {n}_byte, {self.values}[{n}] : {BYTES}""")
        return f"scf.if %aligned {{\n  {wide}\n}} else {{\n{_in(lines)}\n}}"

    @property
    def _may_be_unaligned(self) -> bool:
        return self.paged and self.checks

    def _paged(self, part: str) -> str:
        return f"%cache_{part}" if self.is_split else "%cache"

    def _symbols(self, result: str, byte: str) -> tuple[layout.Symbol, layout.Symbol]:
        token = Number("%token", f"{result}_in")
        return token, Number(byte, token.prefix, token.lines)

    def _load(self, result: str, memory: str, at: str, size: int) -> str:
        # The short form of this op has no place for the alignment.
        alignment = size if self.checks or not self.paged else 1
        return (
            f'{result} = "vector.load"({memory}, {at}) <{{alignment = {alignment} : i64}}>'
            f" : ({BYTES}, index) -> vector<{size}xi8>"
        )


def load_words(result: str, memory: str, at: str, count: int) -> str:
    """<result>: vector<count x i32> at <at>, a multiple of count."""
    return (
        f'{result} = "vector.load"({memory}, {at}) <{{alignment = {4 * count} : i64}}>'
        f" : ({WORDS}, index) -> vector<{count}xi32>"
    )


def store_words(vector: str, memory: str, at: str, count: int) -> str:
    """Store vector<count x i32> at <at>, a multiple of count."""
    return (
        f'"vector.store"({vector}, {memory}, {at}) <{{alignment = {4 * count} : i64}}>'
        f" : (vector<{count}xi32>, {WORDS}, index) -> ()"
    )


def _in_page(result: str, base: str, offset: layout.Symbol, token: layout.Symbol) -> str:
    assert isinstance(token, Number)
    return "\n".join(
        [
            *token.lines,
            f"{result}_offset = arith.index_castui {offset} : i32 to index",
            f"{result} = arith.addi {base}, {result}_offset : index",
        ]
    )


def _in_row(result: str, byte: str, row_bytes: int) -> str:
    return f"""\
{result}_size = arith.constant {row_bytes} : index
{result}_row = arith.muli %row, {result}_size : index
{result}_offset = arith.index_castui {byte} : i32 to index
{result} = arith.addi {result}_row, {result}_offset : index"""


def _in(lines: list[str]) -> str:
    return indent("\n".join(lines), "  ")
