# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the kernels of the radix top-k share, and `rank`, the one that reads no logits.

An entry is one unsigned 64-bit number: above, a key that orders like its logit, or 0 if it cannot
be selected; below, the complement of its column. So the largest entries are the answer, equal
logits fall to the lowest column, no two entries are the same, and the order in which lanes find
them does not matter.

`radix_keep.keep` leaves the best k entries of each chunk of a row, in any order; `rank` does the
same with what is left of all the row's chunks, and sorts. Their steps are in `radix_steps`,
`radix_digits` (which entries), `radix_tile` (tiles of logits) and `radix_sort`.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent

from dsv4_iree.kernels import radix_sort
from dsv4_iree.kernels.radix_digits import first_pass, narrow
from dsv4_iree.kernels.radix_steps import (
    BUFFER,
    GATHERED,
    HELD,
    SHARED,
    Group,
    append,
    buffer_above,
    entries,
    least,
    prologue,
    shared_entries,
)

KEEPERS = 512  # threads of a workgroup of `keep`: two can be in one H200 multiprocessor
CHUNK = KEEPERS * HELD  # logits that a workgroup holds at a time

EXECUTABLE = """\
stream.executable private @{name} {{
  stream.executable.export public @{name} workgroups(
      %rows: index, %chunks: index) -> (index, index, index) {{
    %c1 = arith.constant 1 : index
    stream.return %rows, {across}, %c1 : index, index, index
  }}
  builtin.module {{
    func.func @{name}({parameters}) attributes {{
        translation_info = #iree_codegen.translation_info<
            pipeline = #iree_codegen.no_pipeline workgroup_size = [{threads}, 1, 1]
            subgroup_size = {lanes}>{resident}}} {{
{body}
      return
    }}
  }}
}}"""

WINDOW = """\
%start_memory = stream.binding.subspan %start[%c0] : !stream.binding -> memref<?xi32>{%rows}
%end_memory = stream.binding.subspan %end[%c0] : !stream.binding -> memref<?xi32>{%rows}
%start32 = memref.load %start_memory[%row] : memref<?xi32>
%end32 = memref.load %end_memory[%row] : memref<?xi32>
%start_any = arith.index_cast %start32 : i32 to index
%end_any = arith.index_cast %end32 : i32 to index
%first = arith.maxsi %start_any, %c0 : index
%stop = arith.minsi %end_any, %columns : index
%length_any = arith.subi %stop, %first : index
%length = arith.maxsi %length_any, %c0 : index"""

KEPT = """\
%kept_size_any = arith.muli %rows, %chunks : index
%kept_size = arith.muli %kept_size_any, %k : index
%kept = stream.binding.subspan %kept_binding[%c0]
    : !stream.binding -> memref<?xi64, strided<[1], offset: ?>>{%kept_size}
%row_region_any = arith.muli %row, %chunks : index
%row_region = arith.muli %row_region_any, %k : index"""

RANK = """\
%used_chunks = arith.ceildivui %length, %chunk_entries : index
%kept_count = arith.muli %used_chunks, %k : index
{first_pass}
{narrow}
{gather}
gpu.barrier
%buffer_count32 = memref.load %slots[%c0] : memref<2xi32, {shared}>
%buffer_count = arith.index_cast %buffer_count32 : i32 to index
{best}"""

# The entries of a row of one chunk are in order already.
RANK_OR_LOAD = """\
%has_more = arith.cmpi ugt, %chunks, %c1 : index
%ranked:{per} = scf.if %has_more -> ({kinds}) {{
{rank}
  scf.yield {sorted} : {kinds}
}} else {{
{load}
  scf.yield {loaded} : {kinds}
}}"""

LOAD = """\
  %place_any{e} = arith.addi %rank, %past{e} : index
  %place{e} = arith.minui %place_any{e}, %last_rank : index
  %kept_at{e} = arith.addi %row_region, %place{e} : index
  %loaded{e} = memref.load %kept[%kept_at{e}] : memref<?xi64, strided<[1], offset: ?>>"""

WRITE = """\
%result = stream.binding.subspan %result_binding[%c0]
    : !stream.binding -> memref<?x{k}xi32>{{%rows}}
%first32 = arith.index_cast %first : index to i32
%is_relative = arith.cmpi eq, %ids, %c0 : index
%base = arith.select %is_relative, %first32, %zero : i32
{is_slot}
{write}"""

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
    """What `rank` can write of an entry.

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


def rank(name: str, k: int, group: Group, ids: Ids) -> str:
    """`@<name>`: ids [rows, k] of a row's best entries among the k kept of each of its chunks.

    The number `chunk_entries` is the length of a chunk. Those of a row's only chunk are in the
    order of the result.
    """
    kept = entries(
        "kept",
        """\
%$index = arith.addi %row_region, %$at : index
%$raw = memref.load %kept[%$index] : memref<?xi64, strided<[1], offset: ?>>""",
        8,
    )
    memory, per = shared_entries(GATHERED), radix_sort.size(k, group) // group.threads
    text = RANK.format(
        shared=SHARED,
        first_pass=first_pass(kept, group),
        narrow=narrow(kept, "near", "digit", "%gathered", group),
        gather=append(kept, "near", "%slot0_pointer", "%buffer", memory, "%c0", group),
        best=best(k, "near", group),
    )
    text = RANK_OR_LOAD.format(
        per=per,
        kinds=", ".join(["i64"] * per),
        rank=indent(text, "  "),
        sorted=", ".join(f"%sorted{e}" for e in range(per)),
        load="\n".join(LOAD.format(e=e) for e in range(per)),
        loaded=", ".join(f"%loaded{e}" for e in range(per)),
    )
    write = WRITE.format(
        k=k,
        is_slot=IS_SLOT if ids.table else "",
        write="\n".join(_write(k, e, f"%ranked#{e}", ids.table) for e in range(per)),
    )
    bindings = ("kept_binding", "start", "end", *ids.bindings, "result_binding")
    numbers = ("rows", "chunks", "columns", "ids", *ids.numbers, "chunk_entries")
    body = "\n".join([KEPT, ids.constants(), places(per), text, write])
    return executable(name, bindings, numbers, "%c1", k, group, body)


def places(per: int) -> str:
    """%rank: the first of the thread's `per` places in the order; %past<e>: how much later e is."""
    lines = [
        f"""\
%per = arith.constant {per} : index
%rank = arith.muli %thread, %per : index
%last_rank = arith.subi %k, %c1 : index"""
    ]
    return "\n".join([*lines, *(f"%past{e} = arith.constant {e} : index" for e in range(per))])


def best(
    k: int,
    of: str,
    group: Group,
    above: str = "%no_entry",
    spare: int = 0,
) -> str:
    """%sorted<e>: the best k of %buffer_count entries in %buffer, in order, by the search %<of>_...

    Args:
        above: what is taken from entries in that search.
        spare: entries of the shared memory %spare, to be used; 0: there is none.
    """
    size = radix_sort.size(k, group)
    room = size if size == GATHERED else spare or size
    refine = _refine(size, of, group, above, room, bool(spare))
    return f"{refine}\n{radix_sort.sort(size, group, room)}"


def _refine(size: int, of: str, group: Group, above: str, room: int, has_spare: bool) -> str:
    """%found_count entries in %found, no more than can be sorted, of which those below
    %exact_least do not count. By column none but the k best may be sorted."""
    kind = shared_entries(room)
    found = f"memref.cast %spare : {kind} to {kind}" if has_spare else f"memref.alloc() : {kind}"
    search = f"""\
%is_sorted = arith.cmpi ne, %sorted, %c0 : index
%most_sorted = arith.constant {size} : i32
%most_found = arith.select %is_sorted, %most_sorted, %k32 : i32
%all_bits = arith.constant -1 : i64
%low_bits = arith.constant 0xFFFFFFFF : i64
%order_bits = arith.select %is_sorted, %all_bits, %low_bits : i64
{narrow(buffer_above(above), "exact", of, "%most_found", group)}"""
    if size == GATHERED:
        return f"""\
{search}
{least("exact", above)}
%found_count = arith.addi %buffer_count, %c0 : index
%found = memref.cast %buffer : {kind} to {kind}"""
    return f"""\
{search}
%found = {found}
{append(BUFFER, "exact", "%slot1_pointer", "%found", kind, "%c0", group, above)}
gpu.barrier
%found32 = memref.load %slots[%c1] : memref<2xi32, {SHARED}>
%found_count = arith.index_cast %found32 : i32 to index"""


IS_SLOT = """\
%slots_asked = arith.constant 2 : index
%is_slot = arith.cmpi eq, %ids, %slots_asked : index"""

# In `index_topk` what is selected is visible, so there is a page; logits alone may have none.
SLOT = """\
%maps{e} = arith.andi %is_entry{e}, %is_slot : i1
%id{e} = scf.if %maps{e} -> (i32) {{
  %at{e} = arith.index_cast %column{e} : i32 to index
  %page_at{e} = arith.divui %at{e}, %page_size : index
  %token{e} = arith.remui %at{e}, %page_size : index
  %in_table{e} = arith.cmpi ult, %page_at{e}, %width : index
  %has_page{e} = arith.andi %in_table{e}, %asks_known : i1
  %page32_{e} = scf.if %has_page{e} -> (i32) {{
    %page_any{e} = memref.load %block_table[%asks, %page_at{e}] : memref<?x?xi32>
    scf.yield %page_any{e} : i32
  }} else {{
    scf.yield %minus_one : i32
  }}
  %page{e} = arith.index_cast %page32_{e} : i32 to index
  %page_slot{e} = arith.muli %page{e}, %page_size : index
  %slot{e} = arith.addi %page_slot{e}, %token{e} : index
  %slot32_{e} = arith.index_cast %slot{e} : index to i32
  %is_page{e} = arith.cmpi sge, %page32_{e}, %zero : i32
  %slot_or_none{e} = arith.select %is_page{e}, %slot32_{e}, %minus_one : i32
  scf.yield %slot_or_none{e} : i32
}} else {{
  scf.yield %number{e} : i32
}}"""


def _write(k: int, e: int, entry: str, table: bool) -> str:
    as_id = SLOT.format(e=e) if table else f"%id{e} = arith.addi %number{e}, %zero : i32"
    return f"""\
%rank{e} = arith.addi %rank, %past{e} : index
%low{e} = arith.trunci {entry} : i64 to i32
%column{e} = arith.subi %minus_one, %low{e} : i32
%number{e} = arith.subi %column{e}, %base : i32
%is_entry{e} = arith.cmpi ne, {entry}, %no_entry : i64
{as_id}
%chosen{e} = arith.select %is_entry{e}, %id{e}, %minus_one : i32
%is_wanted{e} = arith.cmpi ult, %rank{e}, %k : index
scf.if %is_wanted{e} {{
  memref.store %chosen{e}, %result[%row, %rank{e}] : memref<?x{k}xi32>
}}"""


def executable(
    name: str,
    bindings: tuple[str, ...],
    numbers: tuple[str, ...],
    across: str,
    k: int,
    group: Group,
    body: str,
) -> str:
    """A kernel of one row by (%c1 or %chunks) workgroups, from its arguments and its body."""
    parameters = [f"%{binding}: !stream.binding" for binding in bindings]
    parameters += [f"%{number}: index" for number in numbers]
    text = "\n".join([prologue(k, group), WINDOW, body])
    # Registers for the workgroups that fill half of a multiprocessor.
    resident = f",\n        nvvm.minctasm = {1024 // group.threads} : i32"
    return EXECUTABLE.format(
        name=name,
        across=across,
        parameters=", ".join(parameters),
        threads=group.threads,
        lanes=group.lanes,
        resident=resident if group.lanes == 32 else "",
        body=indent(text, " " * 6),
    )
