# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Logits on CPUs with AVX512-VNNI: which specs it serves, and its functions in a module.

One dispatch goes from cache bytes to masked logits; `vnni_kernel` is what it runs. `index_topk`
dispatches it too and selects from its logits by `threshold`.
"""

from __future__ import annotations

from dsv4_iree.kernels import scoring, threshold
from dsv4_iree.kernels.entry import Entry
from dsv4_iree.kernels.scoring import OPS
from dsv4_iree.kernels.vnni_kernel import executable
from dsv4_iree.kernels.vnni_words import LANES
from dsv4_iree.spec import CacheLayout, IndexerSpec

RUN, LONG_RUN = 512, 2048  # keys per workgroup: enough of them to share out, or fewer row decodes
LONG = 1 << 15  # logits of a call from which on runs are long

RUN_LENGTH = f"""\
%short_run = arith.constant {RUN} : index
%long_run = arith.constant {LONG_RUN} : index
%many = arith.constant {LONG} : index
%count = arith.muli %rows, %columns : index
%is_long = arith.cmpi uge, %count, %many : index
%per_run = arith.select %is_long, %long_run, %short_run : index"""


def fits(op: str, spec: IndexerSpec) -> bool:
    """Whether these kernels serve `op` for `spec`."""
    natural = spec.is_fp4 and spec.head_dim == 128 and spec.num_heads % 4 == 0
    # 16 keys that are decoded together lie in one page.
    paged = spec.layout is CacheLayout.N4 and spec.page_size % LANES == 0
    return op in OPS and natural and (paged or op == "mqa_logits")


def function(entry: Entry, spec: IndexerSpec) -> str:
    """`@<entry>_pure`, and the kernels that it dispatches."""
    return scoring.function(
        entry,
        spec,
        "vnni",
        RUN_LENGTH,
        ("per_run",),
        lambda name, operands, numbers: executable(name, spec, operands, numbers),
        lambda select: threshold.selection(select, spec),
    )
