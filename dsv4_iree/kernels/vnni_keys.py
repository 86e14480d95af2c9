# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the AVX512-VNNI kernels find and read the keys of a block: paged in layout N4, or in a row.

Key bytes are only read in pages that the table names and that exist: 16 keys lie in one page, and
the lanes past the last key of a ragged call read that key again.
"""

from __future__ import annotations

from string import Template

from dsv4_iree.kernels import vnni_tile as tile
from dsv4_iree.spec import IndexerSpec

DECODE_KEYS = Template("""\
%flags:2 = scf.for %at = %c0 to %c64 step %c16
    iter_args(%narrow_before = %group#2, %ordinary_before = %group#3) -> (i1, i1) {
  %key = arith.addi %block, %at : index
  %tile = arith.divui %at, %c16 : index
  $find_keys
  %usable = arith.cmpi sge, %address, %c0 : index
  %address64 = arith.index_cast %address : index to i64
  memref.store %address64, %base[%tile] : memref<4xi64>
  %raw = scf.if %usable -> ($i32) {
    $load_scales
    %bytes_as_words = vector.bitcast %scale_bytes : vector<64xi8> to $i32
    scf.yield %bytes_as_words : $i32
  } else {
    %ordinary_words = arith.constant dense<0x7F7F7F7F> : $i32
    scf.yield %ordinary_words : $i32
  }
  %at_raw = arith.constant 0 : index
  vector.store %raw, %k_lift[%at_raw, %at] : $k_lift, $i32
  $scale_bytes
  %key32 = arith.index_cast %key : index to i32
  %key_splat = vector.broadcast %key32 : i32 to $i32
  %column = arith.addi %key_splat, %lane : $i32
  %before = arith.cmpi ult, %column, %from_lanes : $i32
  %after = arith.cmpi uge, %column, %to_lanes : $i32
  %outside = arith.ori %before, %after : vector<16xi1>
  %spread = arith.subi %e_max, %e_min : $i32
  %close = arith.cmpi sle, %spread, %v3 : $i32
  %not_low = arith.cmpi sge, %e_min, %vleast : $i32
  %not_high = arith.cmpi sle, %e_max, %vmost : $i32
  %in_range = arith.andi %not_low, %not_high : vector<16xi1>
  %range_or_out = arith.ori %in_range, %outside : vector<16xi1>
  %close_or_out = arith.ori %close, %outside : vector<16xi1>
  %both = arith.andi %range_or_out, %close_or_out : vector<16xi1>
  %all_ordinary = vector.reduction <and>, %range_or_out : vector<16xi1> into i1
  %all_narrow = vector.reduction <and>, %both : vector<16xi1> into i1
  %narrow_now = arith.andi %narrow_before, %all_narrow : i1
  %ordinary_now = arith.andi %ordinary_before, %all_ordinary : i1
  scf.yield %narrow_now, %ordinary_now : i1, i1
}
%narrow = arith.select %flags#0, %true, %false : i1
scf.for %at = %c0 to %c64 step %c16 {
  %tile = arith.divui %at, %c16 : index
  %address64 = memref.load %base[%tile] : memref<4xi64>
  %address = arith.index_cast %address64 : i64 to index
  %at_raw = arith.constant 0 : index
  %raw = vector.load %k_lift[%at_raw, %at] : $k_lift, $i32
  $last_key
  $store_scales
  %usable = arith.cmpi sge, %address, %c0 : index
  scf.if %usable {
    $store_codes
  }
}
$ahead
%wide_or_exact = arith.select %flags#1, %i1, %i2 : i32
%new_form = arith.select %narrow, %i0, %wide_or_exact : i32""")

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
%values_at = arith.muli %token, %c64 : index
%values_base = arith.addi %page_base, %values_at : index
%address = arith.select %real, %values_base, %none : index""")

# Pages lie anywhere, so the hardware does not see the next block coming: its addresses are kept for
# the loop over heads, which asks for a few lines at a time. 0 stands for what will not be read.
AHEAD = Template("""\
scf.for %at = %c0 to %c64 step %c16 {
  %ahead = arith.addi %block_end, %at : index
  %key = arith.minui %ahead, %last_key : index
  %tile = arith.divui %at, %c16 : index
  $find_page
  %next_address = arith.select %real, %values_base, %c0 : index
  %next_address64 = arith.index_cast %next_address : index to i64
  memref.store %next_address64, %next[%tile] : memref<4xi64>
  scf.if %real {
    $scales_base
    memref.prefetch %cache[%scales_base], read, locality<3>, data : memref<?xi8>
  }
}""")

PAGE_SCALES = Template("""\
%page_values = arith.constant $page_values : index
%scales_at = arith.muli %token, %c4 : index
%scales_page = arith.addi %page_base, %page_values : index
%scales_base = arith.addi %scales_page, %scales_at : index""")

LOAD_SCALES = Template("""\
$scales_base
%scale_bytes = vector.load %cache[%scales_base] : memref<?xi8>, vector<64xi8>""")

PAGE_VALUES = Template("""\
${out}_offset = arith.constant $offset : index
${out}_at = arith.addi %address, ${out}_offset : index
$out = vector.load %cache[${out}_at] : memref<?xi8>, vector<16xi8>""")

FIND_REQUEST = """\
%asks32 = memref.load %row_to_request[%row] : memref<?xi32>
%asks = arith.index_cast %asks32 : i32 to index
%exists = arith.cmpi ult, %asks, %requests : index"""

FIND_ENTRY = """\
%entries_left = arith.subi %columns, %key : index
%last_left = arith.subi %entries_left, %c1 : index
%real = arith.cmpi sgt, %entries_left, %c0 : index
%values_base = arith.muli %key, %c64 : index
%address = arith.select %real, %values_base, %none : index"""

ENTRY_SCALES = """\
%scales_base = arith.muli %key, %c4 : index
%bytes_left = arith.muli %entries_left, %c4 : index
%bytes_there = vector.create_mask %bytes_left : vector<64xi1>
%no_bytes = arith.constant dense<0> : vector<64xi8>
%scale_bytes = vector.maskedload %k_scales[%scales_base], %bytes_there, %no_bytes
    : memref<?xi8>, vector<64xi1>, vector<64xi8> into vector<64xi8>"""

LAST_ENTRY = """\
%key = arith.addi %block, %at : index
%after_key = arith.subi %columns, %key : index
%last_left = arith.subi %after_key, %c1 : index
"""

# Lanes past the last key read the last key again.
ENTRY_VALUES = Template("""\
${out}_lane = arith.constant $key : index
${out}_there = arith.minui ${out}_lane, %last_left : index
${out}_row = arith.muli ${out}_there, %c64 : index
${out}_group = arith.constant $before : index
${out}_in = arith.addi ${out}_row, ${out}_group : index
${out}_at = arith.addi %address, ${out}_in : index
$out = vector.load %k_values[${out}_at] : memref<?xi8>, vector<16xi8>""")

ONE_REQUEST = """\
%asks = arith.addi %c0, %c0 : index
%exists = arith.ori %true, %false : i1"""


def decode_block(spec: IndexerSpec, *, paged: bool) -> str:
    """Decode the block at key %block of request %who; %new_form is what it can be scored in."""
    find_page = FIND_PAGE.substitute(page_size=spec.page_size)
    page_scales = PAGE_SCALES.substitute(page_values=spec.page_size * spec.value_bytes)
    if paged:
        load_scales = tile.fill(LOAD_SCALES, {}, scales_base=page_scales)
        ahead = tile.fill(AHEAD, {}, find_page=find_page, scales_base=page_scales)
    else:
        load_scales, ahead = ENTRY_SCALES, ""
    return tile.fill(
        DECODE_KEYS,
        {},
        i32=tile.I32,
        k_lift=tile.K_LIFT,
        scale_bytes=tile.scale_bytes("%raw"),
        find_keys=find_page if paged else FIND_ENTRY,
        load_scales=load_scales,
        last_key="" if paged else LAST_ENTRY,
        store_scales=tile.store_scales(),
        store_codes=tile.store_codes(PAGE_VALUES if paged else ENTRY_VALUES),
        ahead=ahead,
    )
