# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels: one literal tuple. Importing this module needs the `build` extra."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dsv4_iree.kernels.cache import gather_entries, write_entries
from dsv4_iree.kernels.entry import Entry
from dsv4_iree.kernels.logits import paged_entries, ragged_entries
from dsv4_iree.kernels.quantize import dequantize_entries, quantize_entries
from dsv4_iree.kernels.query import query_entries
from dsv4_iree.kernels.topk import index_topk_entries, topk_entries
from dsv4_iree.spec import IndexerSpec


@dataclass(frozen=True)
class Kernel:
    """An op and the functions its artifact exports."""

    op: str
    entries: Callable[[IndexerSpec], tuple[Entry, ...]]


KERNELS: tuple[Kernel, ...] = (
    Kernel("quantize", quantize_entries),
    Kernel("quantize_queries", query_entries),
    Kernel("dequantize", dequantize_entries),
    Kernel("write_cache", write_entries),
    Kernel("gather_cache", gather_entries),
    Kernel("mqa_logits", ragged_entries),
    Kernel("paged_mqa_logits", paged_entries),
    Kernel("topk", topk_entries),
    Kernel("index_topk", index_topk_entries),
)
