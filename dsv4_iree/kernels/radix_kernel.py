# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the two kernels of the radix top-k share: a row's window and what is kept of it.

An entry is one unsigned 64-bit number: above, a key that orders like its logit, or 0 if it cannot
be selected; below, the complement of its column. So the largest entries are the answer, equal
logits fall to the lowest column, no two entries are the same, and the order in which lanes find
them does not matter.

`radix_keep.keep` selects from logits: ids of a row that is one run, or the best k entries of each
of several. From these `radix_rank.rank` selects. Their steps are in `radix_steps`, `radix_tile` and
`radix_peaks` (from logits to candidates), `radix_digits` (the k-th largest), `radix_order` and
`radix_sort`; what is written is in `radix_ids`.
"""

from __future__ import annotations

from textwrap import indent

from dsv4_iree.kernels.radix_group import Group
from dsv4_iree.kernels.radix_ids import IDS_KIND, Ids
from dsv4_iree.kernels.radix_steps import prologue

EXECUTABLE = """\
stream.executable private @{name} {{
  stream.executable.export public @{name} workgroups(
      %rows: index, %chunks: index) -> (index, index, index) {{
    %c1 = arith.constant 1 : index
    {grid}
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

KEPT_KIND = "memref<?xi64, strided<[1], offset: ?>>"

# The entries that are kept of a row's runs; and the row's ids, from %row_ids on in memory %out.
MEMORY = """\
%is_of_runs = arith.cmpi ugt, %chunks, %c1 : index
%kept_runs = arith.muli %rows, %chunks : index
%kept_size = arith.muli %kept_runs, %k : index
%kept = stream.binding.subspan %kept_binding[%c0]
    : !stream.binding -> {kept}{{%kept_size}}
%row_region_any = arith.muli %row, %chunks : index
%row_region = arith.muli %row_region_any, %k : index
%all_ids = arith.muli %rows, %k : index
%kept_ids = stream.binding.subspan %kept_binding[%c0] : !stream.binding -> {ids}{{%all_ids}}
%row_ids = arith.muli %row, %k : index
%first32 = arith.index_cast %first : index to i32
%is_relative = arith.cmpi eq, %ids, %c0 : index
%base = arith.select %is_relative, %first32, %zero : i32
{constants}"""


def memory(ids: Ids) -> str:
    """%kept from %row_region on, or %kept_ids if not %is_of_runs; what ids are made from."""
    return MEMORY.format(kept=KEPT_KIND, ids=IDS_KIND, constants=ids.constants())


def executable(
    name: str,
    bindings: tuple[str, ...],
    numbers: tuple[str, ...],
    grid: str,
    k: int,
    group: Group,
    body: str,
) -> str:
    """A kernel from its arguments and its body, for row %row.

    Args:
        grid: text that returns the numbers of workgroups, for rows and for runs.
    """
    parameters = [f"%{binding}: !stream.binding" for binding in bindings]
    parameters += [f"%{number}: index" for number in numbers]
    text = "\n".join([prologue(k, group), WINDOW, body])
    resident = f",\n        nvvm.minctasm = {group.resident} : i32"
    return EXECUTABLE.format(
        name=name,
        grid=indent(grid, " " * 4).lstrip(),
        parameters=", ".join(parameters),
        threads=group.threads,
        lanes=group.lanes,
        resident=resident if group.lanes == 32 else "",
        body=indent(text, " " * 6),
    )
