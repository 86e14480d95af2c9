# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Top-k on GPUs by radix selection: which specs it serves, and its functions in a module.

Two dispatches: the best k entries of each chunk of a row, then the best k of what is left, sorted.
A row is read once, and shared out over as many workgroups as it has chunks.
"""

from __future__ import annotations

from dsv4_iree.kernels import dispatch
from dsv4_iree.kernels.entry import Arg, Entry
from dsv4_iree.kernels.radix_kernel import CHUNK, KEEPERS, keep, rank
from dsv4_iree.kernels.radix_steps import GATHERED, Group
from dsv4_iree.spec import IndexerSpec

SUBGROUP = {"gfx942": 64, "gfx950": 64, "cuda": 32, "cuda-sm89": 32, "cuda-sm90": 32}

SELECT = """\
%chunk = arith.constant {chunk} : index
%k = arith.constant {k} : index
%chunks = arith.ceildivui %columns, %chunk : index
%regions = arith.muli %rows, %chunks : index
%entries = arith.muli %regions, %k : index
%kept = flow.dispatch @{name}_keep::@{name}_keep[%rows, %chunks](
    %logits, %start, %end, %rows, %chunks, %row_stride, %columns)
    : ({logits}{{%rows, %row_stride}}, tensor<?xi32>{{%rows}}, tensor<?xi32>{{%rows}},
       index, index, index, index) -> tensor<?xi64>{{%entries}}
%chosen = flow.dispatch @{name}_rank::@{name}_rank[%rows, %chunks](
    %kept, %start, %end, %rows, %chunks, %columns, %absolute)
    : (tensor<?xi64>{{%entries}}, tensor<?xi32>{{%rows}}, tensor<?xi32>{{%rows}},
       index, index, index, index) -> {out}{{%rows}}
util.return %chosen : {out}"""


SELECT_PAGED = """\
%chunk = arith.constant {chunk} : index
%k = arith.constant {k} : index
%chunks = arith.ceildivui %columns, %chunk : index
%regions = arith.muli %rows, %chunks : index
%entries = arith.muli %regions, %k : index
%kept = flow.dispatch @{name}_keep::@{name}_keep[%rows, %chunks](
    %logits, %start, %end, %block_table, %row_to_request,
    %rows, %chunks, %columns, %columns, %requests, %width, %num_pages, %skip_short)
    : (tensor<?x?xf32>{{%rows, %columns}}, tensor<?xi32>{{%rows}}, tensor<?xi32>{{%rows}},
       tensor<?x?xi32>{{%requests, %width}}, tensor<?xi32>{{%rows}},
       index, index, index, index, index, index, index, index) -> tensor<?xi64>{{%entries}}
%chosen = flow.dispatch @{name}_rank::@{name}_rank[%rows, %chunks](
    %kept, %start, %end, %block_table, %row_to_request,
    %rows, %chunks, %columns, %ids, %requests, %width)
    : (tensor<?xi64>{{%entries}}, tensor<?xi32>{{%rows}}, tensor<?xi32>{{%rows}},
       tensor<?x?xi32>{{%requests, %width}}, tensor<?xi32>{{%rows}},
       index, index, index, index, index, index) -> {out}{{%rows}}
util.return %chosen : {out}"""


def fits(op: str, target: str, spec: IndexerSpec) -> bool:
    """Whether these kernels serve `op` for `spec` on the target."""
    return op == "topk" and target in SUBGROUP and spec.topk <= GATHERED


def function(entry: Entry, target: str, spec: IndexerSpec) -> str:
    """`@<entry>_pure`, and the kernels that it dispatches."""
    (out,), logits = entry.outputs, entry.inputs[0]
    lines, _ = dispatch.sizes(entry.inputs)
    lines += dispatch.scalars(entry)
    fields = {"name": entry.name, "chunk": CHUNK, "k": spec.topk, "logits": logits, "out": out}
    lines.append(SELECT.format(**fields))
    return "\n".join([kernels(entry.name, logits, target, spec), dispatch.pure(entry, lines)])


def kernels(name: str, logits: Arg, target: str, spec: IndexerSpec, page_size: int = 0) -> str:
    """`@<name>_keep` and `@<name>_rank`."""
    element = str(logits).removesuffix(">").rpartition("x")[2]
    lanes, k = SUBGROUP[target], spec.topk
    # Many entries are left to rank, and to sort, where k is large.
    ranks = Group(1024 if k > 1024 else 512, lanes)
    kept = keep(f"{name}_keep", element, k, Group(KEEPERS, lanes), page_size)
    return "\n".join([kept, rank(f"{name}_rank", k, ranks, page_size)])


def selection(entry: Entry, target: str, spec: IndexerSpec) -> str:
    """`topk.select_entry` by these kernels, for logits that are -inf where nothing is visible."""
    (out,), operands = entry.outputs, dispatch.operands(entry)
    lines, _ = dispatch.sizes(operands)
    lines += dispatch.scalars(entry)
    fields = {"name": entry.name, "chunk": CHUNK, "k": spec.topk, "out": out}
    lines.append(SELECT_PAGED.format(**fields))
    text = kernels(entry.name, operands[0], target, spec, spec.page_size)
    return "\n".join([text, dispatch.pure(entry, lines)])
