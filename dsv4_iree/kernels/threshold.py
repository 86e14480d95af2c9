# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Top-k on CPUs with AVX-512: its functions in a module, and the selection of `index_topk`."""

from __future__ import annotations

from dataclasses import replace

from dsv4_iree.kernels import dispatch
from dsv4_iree.kernels.entry import Entry, pure_function
from dsv4_iree.kernels.threshold_kernel import GROUPS, buffer_size, executable
from dsv4_iree.kernels.topk import ids_entry, ranked_entry, slots_entry
from dsv4_iree.spec import IndexerSpec


def fits(op: str) -> bool:
    """Whether this kernel serves `op`."""
    return op == "topk"


def function(entry: Entry, spec: IndexerSpec) -> str:
    """`@<entry>_pure`, and the kernel that it dispatches; slots are made of its columns."""
    (out,), logits = entry.outputs, entry.inputs[0]
    lines, _ = dispatch.sizes(entry.inputs)
    lines += dispatch.scalars(entry)
    lines.append(_select(entry.name, dispatch.shaped(logits), "logits", "row_stride", spec))
    bf16 = str(logits).endswith("xbf16>")
    parts = [executable(f"{entry.name}_threshold", spec.topk, bf16=bf16)]
    if "page_size" in entry.scalars:
        slots = replace(slots_entry(spec), name=f"{entry.name}_of")
        parts.append(pure_function(slots))
        lines.append(dispatch.call("slots", slots, {}))
    lines.append(f"util.return %{'slots' if len(parts) > 1 else 'chosen'} : {out}")
    return "\n".join([*parts, dispatch.pure(entry, lines)])


def selection(entry: Entry, spec: IndexerSpec) -> str:
    """`@<entry>_pure` for `topk.select_entry`: the kernel between two elementwise functions."""
    (out,), ranked, ids = entry.outputs, ranked_entry(spec), ids_entry(spec)
    lines, _ = dispatch.sizes(entry.inputs)
    lines.append(dispatch.call("ranked", ranked, {}))
    lines += ["%ids = arith.constant 1 : index", "%sorted = arith.constant 1 : index"]
    kind = "tensor<?x?xf32>{%rows, %columns}"
    lines.append(_select(entry.name, kind, "ranked", "columns", spec))
    lines.append(dispatch.call("named", ids, {}))
    lines.append(f"util.return %named : {out}")
    parts = [pure_function(ranked), pure_function(ids)]
    kernel = executable(f"{entry.name}_threshold", spec.topk, bf16=False)
    return "\n".join([*parts, kernel, dispatch.pure(entry, lines)])


def _select(entry: str, kind: str, logits: str, stride: str, spec: IndexerSpec) -> str:
    """%chosen: what the kernel selects from %<logits>."""
    name = f"{entry}_threshold"
    return f"""\
%most_groups = arith.constant {GROUPS} : index
%groups = arith.minui %rows, %most_groups : index
%chosen, %buffer = flow.dispatch @{name}::@{name}[%groups](
    %{logits}, %start, %end, %rows, %{stride}, %columns, %ids, %sorted, %groups)
    : ({kind}, tensor<?xi32>{{%rows}}, tensor<?xi32>{{%rows}},
       index, index, index, index, index, index)
    -> (tensor<?x{spec.topk}xi32>{{%rows}}, tensor<?x4x{buffer_size(spec.topk)}xi32>{{%groups}})"""
