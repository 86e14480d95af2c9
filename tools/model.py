#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Model the AMD artifacts at serving shapes: executed on the emulator, counted, and priced.

    python tools/model.py                             the logits kernels, decode and prefill
    python tools/model.py --op topk --rows 64 --keys 262144 --json
    python tools/model.py --target gfx950 --op mqa_logits --rows 8192 --keys 8192

Every kernel runs with its real number of keys and as many of the rows as are quick to emulate
(top-k with all: their number decides how a row is shared out); counts are then multiplied by the
rest of the rows. The time of each resource is what those instructions take at the chip's peak
rates, and that of memory what reading every operand and writing every result once takes. The
largest binds; for `index_topk` in each of its dispatches, which follow each other. It is a floor,
and nothing here is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import dsv4_iree
from dsv4_iree import emulator, manifest
from dsv4_iree.emulator import Dispatch
from dsv4_iree.emulator.cost import CHIPS, RESOURCES, Chip, Cost, cost
from dsv4_iree.spec import SPECS

DEVICES = {"gfx942": "hip:0", "gfx950": "hip:1"}
SHAPES = {
    "paged_mqa_logits": ((256, 65536), (1, 65536)),
    "mqa_logits": ((8192, 8192),),
    "topk": ((1, 262144), (256, 262144)),
    "index_topk": ((64, 65536),),
    "index_topk_streaming": ((64, 65536),),
    "write_cache": ((1, 1 << 20),),
    "write_cache_bf16": ((1, 1 << 20),),
    "gather_cache": ((1, 1 << 20),),
    "gather_cache_bf16": ((1, 1 << 20),),
}
"""By entry point. Writes and gathers take rows x keys entries; rows are of a request each."""
SELECTS = ("index_topk", "index_topk_streaming")
MOVES = ("write_cache", "write_cache_bf16", "gather_cache", "gather_cache_bf16")
EMULATED_LOGITS = 1 << 22  # pairs of row and key: seconds of emulation
EMULATED_ENTRIES = 1 << 14


@dataclass(frozen=True)
class Line:
    """Modelled microseconds of one op at one shape."""

    chip: str
    op: str
    rows: int
    keys: int
    resources: dict[str, float]
    binds: str
    microseconds: float
    petaflops: float
    memory_share: float  # of the time, that memory is busy


def model(op: str, target: str, rows: int, keys: int, artifacts: Path | None) -> Line:
    """Emulate part of the rows, scale the counts, and price them."""
    name = op.removesuffix("_bf16").removesuffix("_streaming")
    indexer = dsv4_iree.load("flash", device=DEVICES[target], artifacts=artifacts, ops=[name])
    if op in MOVES:
        fewer = min(rows * keys, EMULATED_ENTRIES)
        times = rows * keys / fewer
        traffic = [_move(op, indexer, fewer) * times]
    elif op in SELECTS:
        times = 1.0
        traffic = _select(op, indexer, rows, keys)
    else:
        fewer = rows if op == "topk" else min(rows, max(8, EMULATED_LOGITS // keys))
        times = rows / fewer
        traffic = [_run(op, indexer, fewer, keys, times)]
    chip = CHIPS[target]
    costs = [cost(_scaled(d, times), chip) for d in emulator.stats()]
    steps = [_resources([c], n, chip) for c, n in zip(costs, traffic)]
    resources = _resources(costs, sum(traffic), chip)
    binds = max(resources, key=lambda name: resources[name])
    time = sum(max(step.values()) for step in steps) if op in SELECTS else resources[binds]
    flops = 2 * rows * keys * 64 * 128 if op.endswith("logits") else 0
    share = resources["memory"] / time
    return Line(chip.name, op, rows, keys, resources, binds, time, flops / time / 1e9, share)


def _resources(costs: list[Cost], traffic: float, chip: Chip) -> dict[str, float]:
    """Microseconds of each resource."""
    resources = {name: 1e6 * sum(getattr(c, name) for c in costs) for name in RESOURCES}
    return {**resources, "memory": 1e6 * traffic / chip.memory_bytes_per_s}


def _select(op: str, indexer: dsv4_iree.Indexer, rows: int, keys: int) -> list[float]:
    """Run `index_topk` in one of its two ways; bytes that each dispatch has to move."""
    spec, random = indexer.spec, torch.Generator().manual_seed(0)
    q = _vectors((rows, spec.num_heads), random)
    weights = torch.randn(rows, spec.num_heads, generator=random)
    # The pages of one request serve every row; memory is priced as if each row had its own.
    width = keys // spec.page_size
    values, scales = _vectors((width, spec.page_size), random)
    cache = torch.cat([values.view(width, -1), scales.view(width, -1)], 1)
    table = torch.arange(width).int().repeat(rows, 1)
    end = torch.full((rows,), keys, dtype=torch.int32)
    emulator.reset_stats()
    indexer.index_topk(q, weights, cache, table, end, streaming=op.endswith("_streaming"))
    read = float(rows * (spec.num_heads * (68 + 4) + 8 + 68 * keys + 4 * width))
    traffic = []
    for dispatch in emulator.stats():
        traffic.append(read + dispatch.bytes_written)
        read = float(dispatch.bytes_written)  # by the next one
    return traffic


def _run(op: str, indexer: dsv4_iree.Indexer, rows: int, keys: int, times: float) -> float:
    """Run `op` once; bytes of all its operands and results, for `times` as many rows."""
    spec = indexer.spec
    random = torch.Generator().manual_seed(0)
    end = torch.full((rows,), keys, dtype=torch.int32)
    emulator.reset_stats()
    if op == "topk":
        logits = torch.randn(rows, keys, generator=random)
        indexer.topk(logits, None, end)
        return rows * times * 4 * (keys + spec.topk)
    q = _vectors((rows, spec.num_heads), random)
    weights = torch.randn(rows, spec.num_heads, generator=random)
    row_bytes = spec.num_heads * (68 + 4) + 8
    if op == "mqa_logits":
        indexer.mqa_logits(q, _vectors((keys,), random), weights, None, end)
        return rows * times * (row_bytes + 4 * keys) + 68 * keys
    # One page serves every row: instructions are the same, and memory is priced by its size.
    cache = torch.full((1, spec.page_bytes), 127, dtype=torch.uint8)
    table = torch.zeros(rows, keys // spec.page_size, dtype=torch.int32)
    indexer.paged_mqa_logits(q, weights, cache, table, end)
    return rows * times * (row_bytes + (68 + 4) * keys + 4 * table.shape[1])


def _move(op: str, indexer: dsv4_iree.Indexer, entries: int) -> float:
    """Write or gather so many entries of shuffled pages; bytes of all that has to be moved."""
    spec, random = indexer.spec, torch.Generator().manual_seed(0)
    pages = entries // spec.page_size
    table = torch.randperm(pages, generator=random).int()[None]
    order = torch.arange(entries)
    cache = torch.full((pages, spec.page_bytes), 127, dtype=torch.uint8)
    emulator.reset_stats()
    if op.startswith("write"):
        slots = table[0].long()[order // spec.page_size] * spec.page_size + order % spec.page_size
        keys = torch.randn(entries, spec.head_dim, generator=random).bfloat16()
        pair = _vectors((entries,), random)
        indexer.write_cache(cache, keys if op.endswith("bf16") else pair, slots)
        given = 2 * spec.head_dim if op.endswith("bf16") else spec.entry_bytes
        return float(entries * (given + spec.entry_bytes + 8))
    dtype = torch.bfloat16 if op.endswith("bf16") else None
    indexer.gather_cache(cache, table, torch.zeros(entries).int(), order.int(), dtype=dtype)
    made = 2 * spec.head_dim if dtype else spec.entry_bytes
    return float(entries * (spec.entry_bytes + made + 8))


def _vectors(shape: tuple[int, ...], random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.randint(0, 256, (*shape, 64), generator=random, dtype=torch.uint8)
    return values, torch.randint(124, 128, (*shape, 4), generator=random).byte()


def _scaled(dispatch: Dispatch, times: float) -> Dispatch:
    """The same, done by `times` as many workgroups."""
    return replace(
        dispatch,
        workgroups=round(dispatch.workgroups * times),
        classes={name: round(n * times) for name, n in dispatch.classes.items()},
        opcodes={name: round(n * times) for name, n in dispatch.opcodes.items()},
    )


def table(lines: list[Line]) -> str:
    head = f"{'chip':8}{'op':21}{'rows':>6}{'keys':>8}" + "".join(f"{r:>10}" for r in RESOURCES)
    text = ["modelled, not measured: microseconds at peak rates, resources overlapping"]
    text.append(f"{head}{'modelled':>10}  {'binds':8}{'PF':>6}{'memory busy':>13}")
    for line in lines:
        numbers = "".join(f"{line.resources[r]:10.1f}" for r in RESOURCES)
        text.append(
            f"{line.chip:8}{line.op:21}{line.rows:6}{line.keys:8}{numbers}"
            f"{line.microseconds:10.1f}  {line.binds:8}{line.petaflops:6.2f}"
            f"{100 * line.memory_share:11.0f} %"
        )
    return "\n".join(text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", nargs="+", choices=DEVICES, default=list(DEVICES))
    parser.add_argument(
        "--op", nargs="+", choices=SHAPES, default=["paged_mqa_logits", "mqa_logits"]
    )
    parser.add_argument("--rows", type=int, help="query rows (default: serving shapes)")
    parser.add_argument("--keys", type=int, help="keys, a multiple of 64; with --rows")
    parser.add_argument("--artifacts", type=Path, help="folder (default: the user's cache)")
    parser.add_argument("--json", action="store_true", help="one object a line")
    args = parser.parse_args()
    emulator.enable()
    lines = []
    for op in args.op:
        for rows, keys in ((args.rows, args.keys),) if args.rows and args.keys else SHAPES[op]:
            for target in args.target:
                try:
                    lines.append(model(op, target, rows, keys, args.artifacts))
                except dsv4_iree.ArtifactError as error:
                    sys.exit(f"{error}\n{manifest.build_command(op, target, SPECS['flash'])}")
    if args.json:
        for line in lines:
            sys.stdout.write(json.dumps({**vars(line), "modelled": True}) + "\n")
    else:
        sys.stdout.write(table(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
