# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Logits on GPUs with matrix units: which specs these kernels serve, and their functions.

Written by hand, and with one skeleton for paged and ragged keys. Wave makes the ragged kernel of
gfx950 with fewer instructions (`wave`, 125.5 of the vector unit for 64 heads x 64 keys, here 142).
With pages it takes 181 and more, here 139; on gfx942 at least 1271, here 282: docs/wave.md says
why. One dispatch goes from cache bytes to masked logits; `mma_kernel` is what it runs. `index_topk`
dispatches it too and selects from its logits; `stream` scores the same way and writes none.
"""

from __future__ import annotations

from dsv4_iree.kernels import mma_e4m3, radix, scoring
from dsv4_iree.kernels.entry import Entry
from dsv4_iree.kernels.mma_kernel import block_keys, executable, tile_module
from dsv4_iree.kernels.scoring import OPS
from dsv4_iree.spec import CacheLayout, Format, IndexerSpec

WAVES = {"gfx942": 1 << 13, "gfx950": 1 << 13, "cuda": 1 << 12}
"""To fill the chip, and some more to balance: 304 and 256 compute units, or 132 multiprocessors."""
LONGEST_RUN = 2048  # keys

# Few rows are split over the context until there is a wave for every SIMD; many rows are not, as a
# wave first loads its query row.
RUN_LENGTH = """\
%waves = arith.constant {waves} : index
%block_keys = arith.constant {block} : index
%longest = arith.constant {longest} : index
%count = arith.muli %rows, %columns : index
%even = arith.ceildivui %count, %waves : index
%blocks = arith.ceildivui %even, %block_keys : index
%at_least = arith.muli %blocks, %block_keys : index
%some = arith.maxui %at_least, %block_keys : index
%per_run = arith.minui %some, %longest : index"""
TOGETHER = "%together = arith.constant {rows} : index"
# Where requests have two rows each, and more, on average.
TOGETHER_PAGED = """\
%most_together = arith.constant {rows} : index
%one_row = arith.constant 1 : index
%asked_twice = arith.muli %requests, %most_together : index
%pairs_pay = arith.cmpi uge, %rows, %asked_twice : index
%together = arith.select %pairs_pay, %most_together, %one_row : index"""


def fits(op: str, target: str, spec: IndexerSpec) -> bool:
    """Whether these kernels serve `op` for `spec` on `target`."""
    if spec.format is Format.BF16 or not (spec.is_fp4 or mma_e4m3.fits(target, spec)):
        return False
    tile = tile_module(target, spec)
    natural = spec.head_dim == 128 and spec.num_heads % tile.HEADS_STEP == 0
    # The keys of a tile lie in one page, values before scales.
    layout = CacheLayout.N4 if spec.is_fp4 else CacheLayout.N8
    paged = spec.layout is layout and spec.page_size % tile.TILE_KEYS == 0
    selects = op != "index_topk" or radix.fits("topk", target, spec)
    return op in OPS and natural and selects and (paged or op == "mqa_logits")


def function(entry: Entry, target: str, spec: IndexerSpec) -> str:
    """`@<entry>_pure`, and the kernels that it dispatches."""
    tile = tile_module(target, spec)
    waves, block = WAVES[target.partition("-")[0]] // tile.WAVES, block_keys(tile)
    paged = entry.name != "mqa_logits"
    together = TOGETHER_PAGED if paged else TOGETHER
    rows = tile.PAGED_ROWS if paged else tile.RAGGED_ROWS
    run_length = RUN_LENGTH.format(waves=waves, block=block, longest=LONGEST_RUN)
    return scoring.function(
        entry,
        spec,
        "mma",
        f"{run_length}\n{together.format(rows=rows)}",
        ("per_run", "together"),
        lambda name, operands, numbers: executable(name, target, spec, operands, numbers),
        lambda select: radix.selection(select, target, spec),
    )
