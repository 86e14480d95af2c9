# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Around a hand-written logits kernel: `@<entry>_pure` of the logits ops and of `index_topk`."""

from __future__ import annotations

from collections.abc import Callable

from dsv4_iree.kernels import dispatch
from dsv4_iree.kernels.entry import Arg, Entry
from dsv4_iree.kernels.topk import select_entry
from dsv4_iree.spec import IndexerSpec

OPS = ("mqa_logits", "paged_mqa_logits", "index_topk")

# All columns of the table; windows that are ranked by entry number need no scores.
WHOLE_TABLE = """\
%page_size = arith.constant {page_size} : index
%columns = arith.muli %width, %page_size : index
%clean = arith.constant 1 : index
%topk = arith.constant {topk} : index
%skips = arith.cmpi sgt, %skip_short, %c0 : index
%skip = arith.select %skips, %topk, %c0 : index"""


def function(
    entry: Entry,
    spec: IndexerSpec,
    form: str,
    cut: str,
    pieces: tuple[str, ...],
    kernel: Callable[[str, tuple[Arg, ...], tuple[str, ...]], str],
    selection: Callable[[Entry], str],
) -> str:
    """`@<entry>_pure`, and what it dispatches.

    Args:
        form: ends the kernel's name.
        cut: lines that define the `pieces` from the sizes, how a call is cut into workgroups.
        kernel: text of the executable, from its name, operands and index numbers.
        selection: text of the pure function of `topk.select_entry`, for `index_topk`.
    """
    (out,) = entry.outputs
    operands, selects = dispatch.operands(entry), entry.name == "index_topk"
    lines, sizes = dispatch.sizes(operands)
    lines += dispatch.scalars(entry)
    if selects:
        lines.append(WHOLE_TABLE.format(page_size=spec.page_size, topk=spec.topk))
        numbers = (*sizes, "columns", "page_stride", "num_pages", "clean", "skip", *pieces)
    else:
        lines.append("%skip = arith.constant 0 : index")
        numbers = (*sizes, *entry.scalars, "skip", *pieces)
    lines.append(cut)
    name, kind = f"{entry.name}_{form}", "tensor<?x?xf32>{%rows, %columns}"
    grid = ", ".join(f"%{number}" for number in ("rows", "columns", *pieces))
    lines.append(dispatch.dispatch("scored", name, grid, operands, numbers, kind))
    parts = [kernel(name, operands, numbers)]
    if selects:
        select = select_entry(spec)
        parts.append(selection(select))
        lines.append(dispatch.call("chosen", select, {"logits": "scored"}))
    lines.append(f"util.return %{'chosen' if selects else 'scored'} : {out}")
    return "\n".join([*parts, dispatch.pure(entry, lines)])
