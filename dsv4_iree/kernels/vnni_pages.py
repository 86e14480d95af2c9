# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where 16 keys that are decoded together lie: in a page of a cache in layout N4, or in a row.

Bytes are read only in pages that the table names and that exist. 16 keys never straddle two pages,
and the lanes past the last key of a ragged call read that key again.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Template

from dsv4_iree.kernels.vnni_words import BLOCK, fill
from dsv4_iree.spec import IndexerSpec


@dataclass(frozen=True)
class Source:
    """MLIR that finds and loads the 16 keys from key %key on.

    Args:
        find_request: %asks, the request of row %row, and whether it %exists.
        find: %address of the first key's values and whether it is %real; else %address is -1.
        find_scales: %scales_at, the address of its scales.
        load_scales: %scale_bytes, a vector<64xi8> from there on.
        load_values: $out, a vector<16xi8>: the bytes of key $key of the 16 that come after $before
            others, and after $offset bytes of the first key's.
        values, scales: the memory that the addresses are in.
    """

    find_request: str
    find: str
    find_scales: str
    load_scales: str
    load_values: Template
    values: str
    scales: str


FIND_REQUEST = """\
%asks32 = memref.load %row_to_request[%row] : memref<?xi32>
%asks = arith.index_cast %asks32 : i32 to index
%exists = arith.cmpi ult, %asks, %requests : index"""

FIND_PAGE = Template("""\
%page_size = arith.constant $page_size : index
%entry_page = arith.divui %key, %page_size : index
%token = arith.remui %key, %page_size : index
%in_table = arith.cmpi ult, %entry_page, %width : index
%page = scf.if %in_table -> (index) {
  %page32 = memref.load %block_table[%who, %entry_page] : memref<?x?xi32>
  %page_any = arith.index_cast %page32 : i32 to index
  scf.yield %page_any : index
} else {
  scf.yield %none : index
}
// Negative ids are large unsigned numbers.
%real = arith.cmpi ult, %page, %num_pages : index
%page_base = arith.muli %page, %page_stride : index
%values_before = arith.muli %token, %c64 : index
%values_at = arith.addi %page_base, %values_before : index
%address = arith.select %real, %values_at, %none : index""")

FIND_PAGE_SCALES = Template("""\
%page_values = arith.constant $page_values : index
%scales_before = arith.muli %token, %c4 : index
%page_scales = arith.addi %page_base, %page_values : index
%scales_at = arith.addi %page_scales, %scales_before : index""")

LOAD_PAGE_SCALES = """\
%scale_bytes = vector.load %cache[%scales_at] : memref<?xi8>, vector<64xi8>"""

LOAD_PAGE_VALUES = Template("""\
${out}_offset = arith.constant $offset : index
${out}_at = arith.addi %address, ${out}_offset : index
$out = vector.load %cache[${out}_at] : memref<?xi8>, vector<16xi8>""")

ONE_REQUEST = """\
%asks = arith.addi %c0, %c0 : index
%exists = arith.ori %true, %false : i1"""

FIND_ROW = """\
%keys_left = arith.subi %columns, %key : index
%last_left = arith.subi %keys_left, %c1 : index
%real = arith.cmpi sgt, %keys_left, %c0 : index
%values_at = arith.muli %key, %c64 : index
%address = arith.select %real, %values_at, %none : index"""

FIND_ROW_SCALES = "%scales_at = arith.muli %key, %c4 : index"

LOAD_ROW_SCALES = """\
%bytes_left = arith.muli %keys_left, %c4 : index
%bytes_there = vector.create_mask %bytes_left : vector<64xi1>
%no_bytes = arith.constant dense<0> : vector<64xi8>
%scale_bytes = vector.maskedload %k_scales[%scales_at], %bytes_there, %no_bytes
    : memref<?xi8>, vector<64xi1>, vector<64xi8> into vector<64xi8>"""

LOAD_ROW_VALUES = Template("""\
${out}_lane = arith.constant $key : index
${out}_there = arith.minui ${out}_lane, %last_left : index
${out}_row = arith.muli ${out}_there, %c64 : index
${out}_before = arith.constant $before : index
${out}_in = arith.addi ${out}_row, ${out}_before : index
${out}_at = arith.addi %address, ${out}_in : index
$out = vector.load %k_values[${out}_at] : memref<?xi8>, vector<16xi8>""")

# Pages lie anywhere, so the hardware does not see the next block coming. Its lines of values, one
# to a key, are asked for a few at a time in the loop over heads: all at once, they would hold up
# the rest. Where nothing is to come, the first lines of all are asked for instead.
FIND_NEXT = Template("""\
scf.for %at = %c0 to %c64 step %c16 {
  %key_any = arith.addi %block_end, %at : index
  %key = arith.minui %key_any, %last_key : index
  $find
  %next_index = arith.select %real, %values_at, %c0 : index
  %next_address = arith.index_cast %next_index : index to i64
  %tile = arith.divui %at, %c16 : index
  memref.store %next_address, %next[%tile] : memref<4xi64>
  scf.if %real {
    $find_scales
    memref.prefetch $scales[%scales_at], read, locality<3>, data : memref<?xi8>
  }
}""")

ASK_FOR_NEXT = Template("""\
%share = arith.constant $share : index
%iteration = arith.divui %h, %together : index
%first_line = arith.muli %iteration, %share : index
%last_line = arith.constant $last_line : index
scf.for %n = %c0 to %share step %c1 {
  %line_any = arith.addi %first_line, %n : index
  %line = arith.minui %line_any, %last_line : index
  %tile = arith.divui %line, %c16 : index
  %key = arith.remui %line, %c16 : index
  %offset = arith.muli %key, %c64 : index
  %next_address = memref.load %next[%tile] : memref<4xi64>
  %next_index = arith.index_cast %next_address : i64 to index
  %at = arith.addi %next_index, %offset : index
  memref.prefetch $values[%at], read, locality<3>, data : memref<?xi8>
}""")


def rows() -> Source:
    """Keys in a row; all query rows see the same ones."""
    return Source(
        ONE_REQUEST,
        FIND_ROW,
        FIND_ROW_SCALES,
        LOAD_ROW_SCALES,
        LOAD_ROW_VALUES,
        values="%k_values",
        scales="%k_scales",
    )


def pages(spec: IndexerSpec) -> Source:
    """Keys in pages: a page holds the values of all its keys, then their scales."""
    return Source(
        FIND_REQUEST,
        FIND_PAGE.substitute(page_size=spec.page_size),
        FIND_PAGE_SCALES.substitute(page_values=spec.page_size * spec.value_bytes),
        LOAD_PAGE_SCALES,
        LOAD_PAGE_VALUES,
        values="%cache",
        scales="%cache",
    )


def find_next(source: Source) -> str:
    """%next, where the tiles of the block after this one lie."""
    return fill(FIND_NEXT, find=source.find, find_scales=source.find_scales, scales=source.scales)


def ask_for_next(source: Source, heads: int, together: int) -> str:
    """Ask for the share of that block that falls to the iteration at head %h of %together."""
    share = -(-BLOCK * together // heads)
    return ASK_FOR_NEXT.substitute(share=share, last_line=BLOCK - 1, values=source.values)
