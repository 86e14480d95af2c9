# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From entries to ids: relative to the window, columns, or slots of a cache."""

from __future__ import annotations

from dataclasses import dataclass

IDS_KIND = "memref<?xi32, strided<[1], offset: ?>>"

TABLE = """\
%block_table = stream.binding.subspan %block_table_binding[%c0]
    : !stream.binding -> memref<?x?xi32>{%requests, %width}
%row_to_request = stream.binding.subspan %row_to_request_binding[%c0]
    : !stream.binding -> memref<?xi32>{%rows}
%asks32 = memref.load %row_to_request[%row] : memref<?xi32>
%asks = arith.index_cast %asks32 : i32 to index
%asks_known = arith.cmpi ult, %asks, %requests : index"""


@dataclass(frozen=True)
class Ids:
    """What is written of an entry.

    The number `ids` is 0 for ids from the window's start, 1 for columns and, with a table, 2 for
    slots of the cache.

    Args:
        table: whether there are a block table and a request for each row.
        page_size: of the cache of that table; 0: a number of the dispatch.
        orders: whether the number `sorted` says that the largest come first, and 0 that the lowest
            columns do; else the largest do.
    """

    table: bool = False
    page_size: int = 0
    orders: bool = False

    @property
    def bindings(self) -> tuple[str, ...]:
        return ("block_table_binding", "row_to_request_binding") if self.table else ()

    @property
    def numbers(self) -> tuple[str, ...]:
        """Numbers of the dispatch, after `ids`."""
        of_table = ("requests", "width") if self.table else ()
        page_size = ("page_size",) if self.table and not self.page_size else ()
        return (*of_table, *page_size, *(("sorted",) if self.orders else ()))

    def constants(self) -> str:
        """What is not a number of the dispatch."""
        lines = [TABLE] if self.table else []
        if self.page_size:
            lines.append(f"%page_size = arith.constant {self.page_size} : index")
        if not self.orders:
            lines.append("%sorted = arith.constant 1 : index")
        return "\n".join(lines)


ID = """\
%low = arith.trunci %entry : i64 to i32
%column = arith.subi %minus_one, %low : i32
%number = arith.subi %column, %base : i32
{slot}
%id_at = arith.addi %row_ids, %rank : index
memref.store %id, %out[%id_at] : {ids}"""

NO_ID = """\
%id_at = arith.addi %row_ids, %rank : index
memref.store %minus_one, %out[%id_at] : {ids}"""

# In `index_topk` what is selected is visible, so there is a page; logits alone may have none.
SLOT = """\
%slots_asked = arith.constant 2 : index
%is_slot = arith.cmpi eq, %ids, %slots_asked : index
%id = scf.if %is_slot -> (i32) {
  %column_at = arith.index_cast %column : i32 to index
  %page_at = arith.divui %column_at, %page_size : index
  %token = arith.remui %column_at, %page_size : index
  %in_table = arith.cmpi ult, %page_at, %width : index
  %has_page = arith.andi %in_table, %asks_known : i1
  %page32 = scf.if %has_page -> (i32) {
    %page_any = memref.load %block_table[%asks, %page_at] : memref<?x?xi32>
    scf.yield %page_any : i32
  } else {
    scf.yield %minus_one : i32
  }
  %page = arith.index_cast %page32 : i32 to index
  %page_slot = arith.muli %page, %page_size : index
  %cache_slot = arith.addi %page_slot, %token : index
  %cache_slot32 = arith.index_cast %cache_slot : index to i32
  %is_page = arith.cmpi sge, %page32, %zero : i32
  %slot_or_none = arith.select %is_page, %cache_slot32, %minus_one : i32
  scf.yield %slot_or_none : i32
} else {
  scf.yield %number : i32
}"""


def write_id(ids: Ids) -> str:
    """Write the id of %entry as number %rank of the row."""
    slot = SLOT if ids.table else "%id = arith.addi %number, %zero : i32"
    return ID.format(slot=slot, ids=IDS_KIND)


def write_no_id() -> str:
    return NO_ID.format(ids=IDS_KIND)
