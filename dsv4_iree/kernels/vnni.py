# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Logits on CPUs with AVX512-VNNI: which specs it serves, and its functions in a module.

One dispatch goes from cache bytes to masked logits; `vnni_kernel` is what it runs. `index_topk`
dispatches it too and selects from its logits by `threshold`.
"""

from __future__ import annotations

from dsv4_iree.kernels import dispatch, threshold
from dsv4_iree.kernels.entry import Entry
from dsv4_iree.kernels.topk import select_entry
from dsv4_iree.kernels.vnni_kernel import executable
from dsv4_iree.kernels.vnni_words import LANES
from dsv4_iree.spec import CacheLayout, IndexerSpec

RUN, LONG_RUN = 512, 2048  # keys per workgroup: enough of them to share out, or fewer row decodes
LONG = 1 << 15  # logits of a call from which on runs are long
OPS = ("mqa_logits", "paged_mqa_logits", "index_topk")

RUN_LENGTH = f"""\
%short_run = arith.constant {RUN} : index
%long_run = arith.constant {LONG_RUN} : index
%many = arith.constant {LONG} : index
%count = arith.muli %rows, %columns : index
%is_long = arith.cmpi uge, %count, %many : index
%per_run = arith.select %is_long, %long_run, %short_run : index"""

# All columns of the table; windows that are ranked by entry number need no scores.
WHOLE_TABLE = """\
%page_size = arith.constant {page_size} : index
%columns = arith.muli %width, %page_size : index
%clean = arith.constant 1 : index
%topk = arith.constant {topk} : index
%skips = arith.cmpi sgt, %skip_short, %c0 : index
%skip = arith.select %skips, %topk, %c0 : index"""


def fits(op: str, spec: IndexerSpec) -> bool:
    """Whether these kernels serve `op` for `spec`."""
    natural = spec.is_fp4 and spec.head_dim == 128 and spec.num_heads % 4 == 0
    # 16 keys that are decoded together lie in one page.
    paged = spec.layout is CacheLayout.N4 and spec.page_size % LANES == 0
    return op in OPS and natural and (paged or op == "mqa_logits")


def function(entry: Entry, spec: IndexerSpec) -> str:
    """`@<entry>_pure`, and the kernel that it dispatches."""
    (out,) = entry.outputs
    operands, selects = dispatch.operands(entry), entry.name == "index_topk"
    lines, sizes = dispatch.sizes(operands)
    lines += dispatch.scalars(entry)
    if selects:
        lines.append(WHOLE_TABLE.format(page_size=spec.page_size, topk=spec.topk))
        numbers = (*sizes, "columns", "page_stride", "num_pages", "clean", "skip", "per_run")
    else:
        lines.append("%skip = arith.constant 0 : index")
        numbers = (*sizes, *entry.scalars, "skip", "per_run")
    lines.append(RUN_LENGTH)
    name, kind = f"{entry.name}_vnni", "tensor<?x?xf32>{%rows, %columns}"
    lines.append(
        dispatch.dispatch("logits_out", name, "%rows, %columns, %per_run", operands, numbers, kind)
    )
    parts = [executable(name, spec, operands, numbers)]
    if selects:
        select = select_entry(spec)
        parts.append(threshold.selection(select, spec))
        lines.append(dispatch.call("chosen", select, {"logits": "logits_out"}))
    lines.append(f"util.return %{'chosen' if selects else 'logits_out'} : {out}")
    return "\n".join([*parts, dispatch.pure(entry, lines)])
