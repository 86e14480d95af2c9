#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check, then time, the compiled ops against torch doing the same work from the same bytes.

    python tools/bench.py                                       every op, its default shapes, CPU
    python tools/bench.py --op paged_mqa_logits --rows 4 --keys 8192 --json
    python tools/bench.py --op topk --rows 1 16 64 --keys 65536 --plot topk.png
    python tools/bench.py --op paged_mqa_logits mqa_logits --warm --peak
    python tools/bench.py --op topk --rows 4 --keys 262144 --order descending --topk 2048
    python tools/bench.py --op overhead
    python tools/bench.py --target cuda --op paged_mqa_logits mqa_logits --peers eager triton
    python tools/bench.py --target cuda --op index_topk --rows 8192 --keys 8192 --requests 1

Every shape is checked against the reference first. Then the compiled op and its peers run in turn,
round after round, on random data that no cache holds from the round before (unless --warm). On a
CPU the fastest round counts, since whatever else the machine does only adds to it. On a GPU it is
the median of the time that a call's kernels take there (`device_time.py`), without launches; `op`
overhead shows those. Peers: torch eager and torch.compile, in fp32 and bf16, and on an NVIDIA GPU a
plain Triton kernel (`triton_peer.py`); none where rows share requests. `index_topk` is also set
against its logits alone (`of_logits`), and `scratch_mib` is what the indexer holds. --peak gives
the rate of the dots, and what part it is of the most that this CPU's int8 dot products reach
(`int8_peak.py`). What is timed is in `bench_cases.py`.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from bench_cases import CASES, ORDERS, Run, Shape
from bench_overhead import overhead
from device_time import device_ms

import dsv4_iree
from dsv4_iree import manifest, testing
from dsv4_iree.spec import SPECS

PEERS = ("eager", "compile", "triton")
SHAPES: dict[str, tuple[tuple[int, int], ...]] = {
    "paged_mqa_logits": ((1, 1024), (4, 8192), (1, 65536), (1, 262144)),
    "mqa_logits": ((64, 4096),),
    "index_topk": ((4, 8192), (1, 65536)),
    "topk": ((1, 65536), (4, 262144), (64, 65536)),
    "quantize": ((64, 64),),
    "quantize_queries": ((1, 64), (64, 64)),
    "dequantize": ((64, 64),),
    "write_cache": ((1, 4096), (1, 1 << 20)),
    "gather_cache": ((1, 8192), (1, 1 << 20)),
    "gather_cache_bf16": ((1, 8192), (1, 1 << 20)),
    "overhead": ((1, 64),),
}
"""(rows, keys) of each op; those that score nothing take rows x keys vectors, or rows x heads."""
GPU_SHAPES = SHAPES | {
    "paged_mqa_logits": ((1, 65536), (64, 65536), (256, 32768)),
    "mqa_logits": ((2048, 8192), (8192, 8192)),
    "index_topk": ((1, 65536), (64, 65536), (1024, 8192)),
    "topk": tuple((rows, keys) for rows in (1, 16, 64, 256) for keys in (8192, 65536, 262144)),
}
COLUMNS = {
    "op": 18,
    "rows": 5,
    "keys": 7,
    "ms": 9,
    "eager_ms": 9,
    "compile_ms": 10,
    "triton_ms": 9,
    "speedup_vs_eager": 16,
    "speedup_vs_compile": 18,
    "speedup_vs_triton": 17,
    "overhead_us": 11,
    "gops": 7,
    "of_peak": 7,
    "of_logits": 9,
    "scratch_mib": 11,
}
SCORED = ("paged_mqa_logits", "mqa_logits", "index_topk")


def main() -> int:
    args = _arguments()
    spec = SPECS[args.spec]
    if args.topk:
        spec = replace(spec, topk=args.topk)
    indexer = dsv4_iree.load(
        spec, device=args.target, artifacts=args.artifacts, workspace_limit=args.workspace_limit
    )
    rows: list[dict[str, Any]] = []
    for op in args.op:
        shapes = (SHAPES if args.target == "cpu" else GPU_SHAPES)[op]
        if args.rows or args.keys:
            shapes = tuple(
                (r, k) for r in args.rows or {s[0] for s in shapes} for k in args.keys or [8192]
            )
        for shape in shapes:
            rows.append(_measure(op, Shape(*shape, args.requests, args.order), indexer, args))
            _show(rows[-1], args.json, rows[-2] if len(rows) > 1 else None)
    if args.plot:
        _plot(rows, args.plot)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--op", nargs="+", choices=tuple(SHAPES), default=list(SHAPES))
    parser.add_argument("--target", choices=("cpu", "cuda", "hip"), default="cpu")
    parser.add_argument("--spec", choices=tuple(SPECS), default="flash")
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--keys", type=int, nargs="+")
    parser.add_argument("--requests", type=int, default=0, help="that the rows belong to")
    parser.add_argument("--order", choices=ORDERS, default="random", help="of topk's logits")
    parser.add_argument("--topk", type=int, help="k, if not that of the spec")
    parser.add_argument("--workspace-limit", type=int, help="bytes")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm", action="store_true", help="leave the caches as they are")
    parser.add_argument("--peak", action="store_true", help="measure the CPU's int8 peak too")
    parser.add_argument("--artifacts", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--plot", type=Path, help="bar chart of the times, as PNG or SVG")
    return parser.parse_args()


def _measure(
    op: str, shape: Shape, indexer: dsv4_iree.Indexer, args: argparse.Namespace
) -> dict[str, Any]:
    """Check `op` on the shape, time it and its peers, and describe the outcome."""
    rows, keys = shape.rows, shape.keys
    result: dict[str, Any] = {"op": op, "target": args.target, "rows": rows, "keys": keys}
    if op == "overhead":
        return result | overhead(rows, keys, indexer) | _environment(indexer)
    if shape.requests:
        result["requests"] = shape.requests
    if op.endswith("topk"):
        result |= {"topk": indexer.spec.topk, "order": shape.order}
    case = CASES[op](shape, indexer)
    case.check()
    runs: dict[str, Run] = {"compiled": case.compiled}
    if "eager" in args.peers:
        runs |= {f"eager_{name}": run for name, run in case.eager.items()}
    if "compile" in args.peers:
        for name, run in case.eager.items():
            torch.compiler.reset()  # else the last of many shapes run as they are
            compiled = torch.compile(run, dynamic=False)
            compiled()
            runs[f"compile_{name}"] = compiled
    if "triton" in args.peers and case.triton:
        testing.assert_logits_close(case.triton(), case.compiled())
        runs["triton"] = case.triton
    if case.logits:
        runs["logits"] = case.logits
    times = _interleaved(runs, args.rounds, indexer, warm=args.warm)
    result["ms"] = times.pop("compiled")
    result |= {f"{name}_ms": ms for name, ms in times.items()}
    for peer in PEERS:
        best = min((ms for name, ms in times.items() if name.startswith(peer)), default=None)
        if best is not None:
            result[f"{peer}_ms"] = best
            result[f"speedup_vs_{peer}"] = round(best / result["ms"], 3)
    if case.logits:
        result["of_logits"] = round(result["ms"] / result["logits_ms"], 3)
        result["scratch_mib"] = round(indexer.scratch_bytes / 2**20, 1)
    if args.peak and op in SCORED:
        spec = indexer.spec
        result["gops"] = round(2e-6 * rows * keys * spec.num_heads * spec.head_dim / result["ms"])
        result["peak_gops"] = round(_peak())
        result["of_peak"] = round(result["gops"] / result["peak_gops"], 3)
    return result | _environment(indexer)


@cache
def _peak() -> float:
    from int8_peak import int8_peak

    return int8_peak()


def _interleaved(
    runs: dict[str, Run], rounds: int, indexer: dsv4_iree.Indexer, *, warm: bool
) -> dict[str, float]:
    """Milliseconds of each, run in turn so that a slow spell hits all alike."""
    gpu = indexer.device.type == "cuda"
    times: dict[str, list[float]] = {name: [] for name in runs}
    spill = torch.empty(1 << 25, device=indexer.device)  # 128 MiB, more than the last-level cache
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            if warm:
                run()
            else:
                spill.add_(1)
                time.sleep(0.01)  # torch's threads spin for a while after that
            if gpu:
                times[name].append(device_ms(run, partial(_wait, indexer)))
                continue
            began = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - began) * 1e3)
    choice = statistics.median if gpu else min
    return {name: round(choice(ms), 4) for name, ms in times.items()}


def _wait(indexer: dsv4_iree.Indexer) -> None:
    indexer.synchronize()
    if indexer.device.type == "cuda":
        torch.cuda.synchronize(indexer.device)


def _environment(indexer: dsv4_iree.Indexer) -> dict[str, str]:
    gpu = indexer.device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(indexer.device) if gpu else _cpu_name(),
        "torch": str(torch.__version__),
        "iree": manifest.iree_release(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _cpu_name() -> str:
    """Model name and cores of this CPU."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {torch.get_num_threads()} threads"


def _show(row: dict[str, Any], as_json: bool, before: dict[str, Any] | None) -> None:
    """A line of a table, under a header where other columns are filled than in the row before."""
    if as_json:
        print(json.dumps(row), flush=True)
        return
    columns = {name: width for name, width in COLUMNS.items() if name in row}
    if before is None or columns != {name: w for name, w in COLUMNS.items() if name in before}:
        print("  ".join(name.rjust(width) for name, width in columns.items()))
    print("  ".join(str(row[name]).rjust(width) for name, width in columns.items()), flush=True)


def _plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Times of all measured forms, one group of bars per shape."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    timed = [row for row in rows if row["op"] != "overhead"]
    forms = ("ms", "eager_ms", "compile_ms")
    figure, axes = pyplot.subplots(figsize=(1.5 + 1.4 * len(timed), 4.5), layout="constrained")
    for i, form in enumerate(forms):
        heights = [row.get(form, float("nan")) for row in timed]
        axes.bar([x + 0.27 * (i - 1) for x in range(len(timed))], heights, 0.25, label=form)
    axes.set_xticks(range(len(timed)), [f"{r['op']}\n{r['rows']} x {r['keys']}" for r in timed])
    axes.set(yscale="log", ylabel="milliseconds", title=timed[0]["device"] if timed else "")
    axes.legend(["compiled", "torch eager", "torch.compile"])
    figure.savefig(path)


if __name__ == "__main__":
    sys.exit(main())
