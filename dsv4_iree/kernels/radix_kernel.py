# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The two kernels of the radix top-k, as `stream.executable`s.

An entry is one unsigned 64-bit number: above, a key that orders like its logit, or 0 if it cannot
be selected; below, the complement of its column. So the largest entries are the answer, equal
logits fall to the lowest column, no two entries are the same, and the order in which lanes find
them does not matter.

`keep` leaves the best k entries of each chunk of a row, in any order. `rank` does the same with
what is left of all the row's chunks, and sorts. Both parts are in `radix_steps`.
"""

from __future__ import annotations

from textwrap import indent

from dsv4_iree.kernels import radix_sort
from dsv4_iree.kernels.radix_digits import first_pass, narrow
from dsv4_iree.kernels.radix_steps import (
    BUFFER,
    GATHERED,
    HELD,
    SHARED,
    Group,
    Source,
    append,
    entries,
    hold,
    prologue,
    shared_entries,
)

KEEPERS = 512  # threads of a workgroup of `keep`: two can be in one H200 multiprocessor
CHUNK = KEEPERS * HELD  # logits of a workgroup of `keep`

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

WINDOW = (
    """\
%start_memory = stream.binding.subspan %start[%c0] : !stream.binding -> memref<?xi32>{%rows}
%end_memory = stream.binding.subspan %end[%c0] : !stream.binding -> memref<?xi32>{%rows}
%start32 = memref.load %start_memory[%row] : memref<?xi32>
%end32 = memref.load %end_memory[%row] : memref<?xi32>
%start_any = arith.index_cast %start32 : i32 to index
%end_any = arith.index_cast %end32 : i32 to index
%first = arith.maxsi %start_any, %c0 : index
%stop = arith.minsi %end_any, %columns : index
%chunk_entries = arith.constant """
    + str(CHUNK)
    + """ : index
%length_any = arith.subi %stop, %first : index
%length = arith.maxsi %length_any, %c0 : index
%kept_size_any = arith.muli %rows, %chunks : index
%kept_size = arith.muli %kept_size_any, %k : index
%kept = stream.binding.subspan %kept_binding[%c0]
    : !stream.binding -> memref<?xi64, strided<[1], offset: ?>>{%kept_size}
%row_region_any = arith.muli %row, %chunks : index
%row_region = arith.muli %row_region_any, %k : index"""
)

KEEP = """\
%chunk = stream.dispatch.workgroup.id[1] : index
%chunk_first = arith.muli %chunk, %chunk_entries : index
%chunk_left = arith.subi %length, %chunk_first : index
%logits_count_any = arith.minsi %chunk_left, %chunk_entries : index
%logits_count = arith.maxsi %logits_count_any, %c0 : index
%chunk_column = arith.addi %first, %chunk_first : index
%column32 = arith.index_cast %chunk_column : index to i32
%low_of_first = arith.subi %minus_one, %column32 : i32
%extent = arith.muli %rows, %row_stride : index
%logits = stream.binding.subspan %logits_binding[%c0]
    : !stream.binding -> memref<?x{element}, strided<[1], offset: ?>>{{%extent}}
%row_at = arith.muli %row, %row_stride : index
%origin = arith.addi %row_at, %chunk_column : index
%region_any = arith.muli %chunk, %k : index
%region = arith.addi %row_region, %region_any : index
%used = arith.cmpi sgt, %logits_count, %c0 : index
{short}
scf.if %used {{
{hold}
{first_pass}
{narrow}
{gather}
  gpu.barrier
  %buffer_count32 = memref.load %slots[%c0] : memref<2xi32, {shared}>
  %buffer_count = arith.index_cast %buffer_count32 : i32 to index
{refine}
{emit}
  gpu.barrier
  %filled32 = memref.load %slots[%c1] : memref<2xi32, {shared}>
  %filled = arith.index_cast %filled32 : i32 to index
  %blank = arith.addi %filled, %thread : index
  scf.for %slot = %blank to %k step %threads {{
    %slot_at = arith.addi %region, %slot : index
    memref.store %no_entry, %kept[%slot_at] : memref<?xi64, strided<[1], offset: ?>>
  }}
}}"""

RANK = """\
%used_chunks = arith.ceildivui %length, %chunk_entries : index
%kept_count = arith.muli %used_chunks, %k : index
{first_pass}
{narrow}
{gather}
gpu.barrier
%buffer_count32 = memref.load %slots[%c0] : memref<2xi32, {shared}>
%buffer_count = arith.index_cast %buffer_count32 : i32 to index
{refine}
{sort}
%result = stream.binding.subspan %result_binding[%c0]
    : !stream.binding -> memref<?x{k}xi32>{{%rows}}
%first32 = arith.index_cast %first : index to i32
%is_relative = arith.cmpi eq, %ids, %c0 : index
%base = arith.select %is_relative, %first32, %zero : i32
{table}
%per = arith.constant {per} : index
%rank = arith.muli %thread, %per : index
{write}"""


# A window of at most k entries is ranked by entry number alone, if that is asked for; then its
# logits are not read.
SHORT = """\
%asks_short = arith.cmpi sgt, %skip_short, %c0 : index
%window = arith.subi %end_any, %first : index
%holds_few = arith.cmpi sle, %window, %k : index
%is_short = arith.andi %asks_short, %holds_few : i1"""

TABLE = """\
%page_size = arith.constant {page_size} : index
%block_table = stream.binding.subspan %block_table_binding[%c0]
    : !stream.binding -> memref<?x?xi32>{{%requests, %width}}
%row_to_request = stream.binding.subspan %row_to_request_binding[%c0]
    : !stream.binding -> memref<?xi32>{{%rows}}
%asks32 = memref.load %row_to_request[%row] : memref<?xi32>
%asks = arith.index_cast %asks32 : i32 to index
%asks_known = arith.cmpi ult, %asks, %requests : index"""

BY_NUMBER = """\
%$is_in = arith.cmpi ult, %$any, %logits_count : index
%$can_be = arith.andi %$is_in, %asks_known : i1
%$value = scf.if %$can_be -> (f32) {
  %$column = arith.addi %chunk_column, %$any : index
  %$entry = arith.divui %$column, %page_size : index
  %$page32 = memref.load %block_table[%asks, %$entry] : memref<?x?xi32>
  %$page = arith.index_cast %$page32 : i32 to index
  // Negative ids are large unsigned numbers.
  %$visible = arith.cmpi ult, %$page, %num_pages : index
  %$number32 = arith.index_cast %$any : index to i32
  %$number = arith.sitofp %$number32 : i32 to f32
  %$minus = arith.negf %$number : f32
  %$chosen = arith.select %$visible, %$minus, %minus_inf : f32
  scf.yield %$chosen : f32
} else {
  scf.yield %minus_inf : f32
}"""


def keep(name: str, element: str, k: int, group: Group, page_size: int = 0) -> str:
    """`@<name>`: the best k entries of every chunk, then 0 where there are fewer.

    Args:
        element: type of a logit, f32 or bf16.
        page_size: of the cache whose logits these are, for `index_topk`.
        lanes: of a subgroup.
    """
    logits, gathered = _logits(element), shared_entries(GATHERED)
    by_number = BY_NUMBER if page_size else ""
    body = KEEP.format(
        short="\n".join([TABLE.format(page_size=page_size), SHORT]) if page_size else "",
        element=element,
        shared=SHARED,
        hold=_in(hold(logits, group, by_number, k)),
        first_pass=_in(first_pass(logits, group)),
        narrow=_in(narrow(logits, "near", "digit", "%gathered", group)),
        gather=_in(append(logits, "near", "%slot0_pointer", "%buffer", gathered, "%c0", group)),
        refine=_in(narrow(BUFFER, "exact", "near", "%k32", group)),
        emit=_in(
            append(
                BUFFER,
                "exact",
                "%slot1_pointer",
                "%kept",
                "memref<?xi64, strided<[1], offset: ?>>",
                "%region",
                group,
            )
        ),
    )
    table = ("block_table_binding", "row_to_request_binding") if page_size else ()
    bindings = ("logits_binding", "start", "end", *table, "kept_binding")
    of_table = ("requests", "width", "num_pages", "skip_short") if page_size else ()
    numbers = ("rows", "chunks", "row_stride", "columns", *of_table)
    return _executable(name, bindings, numbers, "%chunks", k, group, body)


def rank(name: str, k: int, group: Group, page_size: int = 0) -> str:
    """`@<name>`: ids [rows, k] of a row's best entries among those kept of its chunks.

    The number `ids` is 0 for ids from the window's start, 1 for columns and, with a page size, 2
    for slots of the cache.
    """
    kept = entries(
        "kept",
        """\
%$index = arith.addi %row_region, %$at : index
%$raw = memref.load %kept[%$index] : memref<?xi64, strided<[1], offset: ?>>""",
        8,
    )
    size, gathered = radix_sort.size(k, group), shared_entries(GATHERED)
    body = RANK.format(
        k=k,
        per=size // group.threads,
        shared=SHARED,
        first_pass=first_pass(kept, group),
        narrow=narrow(kept, "near", "digit", "%gathered", group),
        gather=append(kept, "near", "%slot0_pointer", "%buffer", gathered, "%c0", group),
        refine=_refine(size, group),
        sort=radix_sort.sort(size, group),
        write="\n".join(_write(k, e, page_size) for e in range(size // group.threads)),
        table=TABLE.format(page_size=page_size) + "\n" + IS_SLOT if page_size else "",
    )
    table = ("block_table_binding", "row_to_request_binding") if page_size else ()
    bindings = ("kept_binding", "start", "end", *table, "result_binding")
    of_table = ("requests", "width") if page_size else ()
    numbers = ("rows", "chunks", "columns", "ids", *of_table)
    return _executable(name, bindings, numbers, "%c1", k, group, body)


def _refine(size: int, group: Group) -> str:
    """%found_count entries in %found: those gathered, or fewer where not so many can be sorted."""
    if size == GATHERED:
        return f"""\
%found_count = arith.addi %buffer_count, %c0 : index
%found = memref.cast %buffer : {shared_entries(GATHERED)} to {shared_entries(GATHERED)}"""
    return f"""\
%sorted_most = arith.constant {size} : i32
%found = memref.alloc() : {shared_entries(size)}
{narrow(BUFFER, "exact", "near", "%sorted_most", group)}
{append(BUFFER, "exact", "%slot1_pointer", "%found", shared_entries(size), "%c0", group)}
gpu.barrier
%found32 = memref.load %slots[%c1] : memref<2xi32, {SHARED}>
%found_count = arith.index_cast %found32 : i32 to index"""


IS_SLOT = """\
%slots_asked = arith.constant 2 : index
%is_slot = arith.cmpi eq, %ids, %slots_asked : index"""

# What is selected is visible: its request and its page are in range.
SLOT = """\
%id{e} = scf.if %maps{e} -> (i32) {{
  %at{e} = arith.index_cast %column{e} : i32 to index
  %page_at{e} = arith.divui %at{e}, %page_size : index
  %token{e} = arith.remui %at{e}, %page_size : index
  %page32_{e} = memref.load %block_table[%asks, %page_at{e}] : memref<?x?xi32>
  %page{e} = arith.index_cast %page32_{e} : i32 to index
  %page_slot{e} = arith.muli %page{e}, %page_size : index
  %slot{e} = arith.addi %page_slot{e}, %token{e} : index
  %slot32_{e} = arith.index_cast %slot{e} : index to i32
  scf.yield %slot32_{e} : i32
}} else {{
  scf.yield %number{e} : i32
}}"""


def _write(k: int, e: int, page_size: int) -> str:
    as_id = f"%id{e} = arith.addi %number{e}, %zero : i32"
    if page_size:
        as_id = f"%maps{e} = arith.andi %is_entry{e}, %is_slot : i1\n" + SLOT.format(e=e)
    return f"""\
%next{e} = arith.constant {e} : index
%rank{e} = arith.addi %rank, %next{e} : index
%low{e} = arith.trunci %sorted{e} : i64 to i32
%column{e} = arith.subi %minus_one, %low{e} : i32
%number{e} = arith.subi %column{e}, %base : i32
%is_entry{e} = arith.cmpi ne, %sorted{e}, %no_entry : i64
{as_id}
%chosen{e} = arith.select %is_entry{e}, %id{e}, %minus_one : i32
%is_wanted{e} = arith.cmpi ult, %rank{e}, %k : index
scf.if %is_wanted{e} {{
  memref.store %chosen{e}, %result[%row, %rank{e}] : memref<?x{k}xi32>
}}"""


def _executable(
    name: str,
    bindings: tuple[str, ...],
    numbers: tuple[str, ...],
    across: str,
    k: int,
    group: Group,
    body: str,
) -> str:
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


def _logits(element: str) -> Source:
    """A chunk's logits. NaN and -inf become 0; adding +0 makes -0 and +0 one key."""
    load = f"""\
%$index = arith.addi %origin, %$at : index
%$narrow = memref.load %logits[%$index] : memref<?x{element}, strided<[1], offset: ?>>
%$raw = arith.extf %$narrow : {element} to f32"""
    if element == "f32":
        load = load.replace("%$narrow =", "%$raw =").rsplit("\n", 1)[0]
    key = """\
%$sum = arith.addf %$raw, %$plus_zero : f32
%$bits = arith.bitcast %$sum : f32 to i32
%$sign = arith.shrsi %$bits, %c31_i32 : i32
%$flip = arith.ori %$sign, %top_bit : i32
%$key32 = arith.xori %$bits, %$flip : i32
%$eligible = arith.cmpf ogt, %$raw, %minus_inf : f32"""
    low = """\
%$at32 = arith.index_cast %$at : index to i32
%$low32 = arith.subi %low_of_first, %$at32 : i32"""
    return Source(
        "logits",
        load,
        f"""\
{key}
{low}
%$key64 = arith.extui %$key32 : i32 to i64
%$low64 = arith.extui %$low32 : i32 to i64
%$high = arith.shli %$key64, %c32_i64 : i64
%$both = arith.ori %$high, %$low64 : i64
%$entry = arith.select %$eligible, %$both, %no_entry : i64""",
        f"""\
{key}
%$digit_any = arith.shrui %$key32, %c21_i32 : i32
%$digit = arith.select %$eligible, %$digit_any, %zero : i32""",
        # Under other names than those of `entry`, which may follow.
        low.replace("%$at32", "%$again_at32").replace("%$low32", "%$again_low32")
        + """
%$is_more = arith.cmpf ogt, %$raw, %least_value : f32
%$is_equal = arith.cmpf oeq, %$raw, %least_value : f32
%$is_early = arith.cmpi uge, %$again_low32, %least_low : i32
%$is_tie = arith.andi %$is_equal, %$is_early : i1
%$reaches = arith.ori %$is_more, %$is_tie : i1""",
        held=True,
    )


def _in(text: str) -> str:
    return indent(text, "  ")
