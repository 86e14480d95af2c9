# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantising, writing, gathering and dequantising vectors row by row: its functions in a module.

One dispatch each, on every target: exported from torch they are 5 to 23, which hand the entries on
through memory and move single bytes.
"""

from __future__ import annotations

from dsv4_iree.kernels import gather_rows, query, write_rows
from dsv4_iree.kernels.entry import Entry
from dsv4_iree.spec import IndexerSpec

OPS = ("quantize", "quantize_queries", "dequantize", "write_cache", "gather_cache")


def fits(op: str) -> bool:
    """Whether these kernels serve `op`."""
    return op in OPS


def function(entry: Entry, target: str, spec: IndexerSpec) -> str:
    """`@<entry>_pure`, and the kernel that it dispatches."""
    if entry.name.startswith("quantize_queries"):
        return query.function(entry, target, spec)
    if entry.name.startswith("quantize"):
        return write_rows.quantizer(entry, target, spec)
    if entry.name.startswith("write"):
        return write_rows.writer(entry, target, spec)
    return gather_rows.reader(entry, target, spec)
