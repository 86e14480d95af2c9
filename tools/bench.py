#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check, then time, the compiled ops against torch doing the same work from the same bytes.

    python tools/bench.py                                       every op, its default shapes, CPU
    python tools/bench.py --op paged_mqa_logits --rows 4 --keys 8192 --json
    python tools/bench.py --op topk --rows 1 16 64 --keys 65536 --plot topk.png
    python tools/bench.py --op paged_mqa_logits mqa_logits --warm --peak
    python tools/bench.py --op overhead
    python tools/bench.py --target cuda --op paged_mqa_logits mqa_logits --peers eager triton

Every shape is checked against the reference first. Then the compiled op and its peers run in turn,
round after round, on random data that no cache holds from the round before (unless --warm). On a
CPU the fastest round counts, since whatever else the machine does only adds to it. On a GPU it is
the median of the time that a call's kernels take there (`device_time.py`), without launches; `op`
overhead shows those. Peers: torch eager and torch.compile, in fp32 and bf16, and on an NVIDIA GPU a
plain Triton kernel (`triton_peer.py`). --peak also gives the rate of the dots, and what part it is
of the most that this CPU's int8 dot products reach (`int8_peak.py`).
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import util
from pathlib import Path
from typing import Any

import iree.runtime as rt
import torch
from device_time import device_ms

import dsv4_iree
from dsv4_iree import baseline, manifest, reference, testing
from dsv4_iree.spec import SPECS, Intermediate

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
}
SCORED = ("paged_mqa_logits", "mqa_logits", "index_topk")
Run = Callable[[], object]


def main() -> int:
    args = _arguments()
    indexer = dsv4_iree.load(SPECS[args.spec], device=args.target, artifacts=args.artifacts)
    rows: list[dict[str, Any]] = []
    for op in args.op:
        shapes = (SHAPES if args.target == "cpu" else GPU_SHAPES)[op]
        if args.rows or args.keys:
            shapes = tuple(
                (r, k) for r in args.rows or {s[0] for s in shapes} for k in args.keys or [8192]
            )
        for shape in shapes:
            rows.append(_measure(op, *shape, indexer, args))
            _show(rows[-1], args.json, first=len(rows) == 1)
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
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm", action="store_true", help="leave the caches as they are")
    parser.add_argument("--peak", action="store_true", help="measure the CPU's int8 peak too")
    parser.add_argument("--artifacts", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--plot", type=Path, help="bar chart of the times, as PNG or SVG")
    return parser.parse_args()


def _measure(
    op: str, rows: int, keys: int, indexer: dsv4_iree.Indexer, args: argparse.Namespace
) -> dict[str, Any]:
    """Check `op` on the shape, time it and its peers, and describe the outcome."""
    result: dict[str, Any] = {"op": op, "target": args.target, "rows": rows, "keys": keys}
    if op == "overhead":
        return result | _overhead(rows, keys, indexer) | _environment(indexer)
    case = CASES[op](rows, keys, indexer)
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
    times = _interleaved(runs, args.rounds, indexer, warm=args.warm)
    result["ms"] = times.pop("compiled")
    result |= {f"{name}_ms": ms for name, ms in times.items()}
    for peer in PEERS:
        best = min((ms for name, ms in times.items() if name.startswith(peer)), default=None)
        if best is not None:
            result[f"{peer}_ms"] = best
            result[f"speedup_vs_{peer}"] = round(best / result["ms"], 3)
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


@dataclass(frozen=True)
class Case:
    """One op on one shape: the compiled call, others' ways, and the check that comes first."""

    compiled: Run
    eager: dict[str, Run]
    check: Run
    triton: Run | None = None


FLOATS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def _paged_inputs(rows: int, keys: int, indexer: dsv4_iree.Indexer) -> tuple[Any, ...]:
    """Random q, weights, cache, block_table and end: every row its own request."""
    spec, device = indexer.spec, indexer.device
    random = torch.Generator(device).manual_seed(0)
    width = -(-keys // spec.page_size)

    def vectors(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(*shape, spec.head_dim, generator=random, device=device)
        return indexer.quantize(x)

    values, scales = vectors(rows * width, spec.page_size)
    cache = torch.cat([values.flatten(1), scales.flatten(1)], dim=1)
    pages = torch.randperm(rows * width, generator=random, device=device)
    end = torch.full((rows,), keys, dtype=torch.int32, device=device)
    weights = torch.randn(rows, spec.num_heads, generator=random, device=device)
    return vectors(rows, spec.num_heads), weights, cache, pages.int().view(rows, width), end


def _triton(kernel: str, *args: Any) -> Run | None:
    """The same by Triton; None where there is none."""
    q = args[0][0]
    if q.device.type != "cuda" or torch.version.hip or not util.find_spec("triton"):
        return None
    import triton_peer

    return partial(getattr(triton_peer, kernel), *args)


def _paged_mqa_logits(rows: int, keys: int, indexer: dsv4_iree.Indexer) -> Case:
    args, spec = _paged_inputs(rows, keys, indexer), indexer.spec
    out = torch.empty(rows, args[3].shape[1] * spec.page_size, device=indexer.device)
    expected = dsv4_iree.load(spec, backend="reference", device=indexer.device)
    return Case(
        compiled=lambda: indexer.paged_mqa_logits(*args, out=out),
        eager={
            name: partial(baseline.paged_mqa_logits, *args, spec, dtype)
            for name, dtype in FLOATS.items()
        },
        check=lambda: testing.assert_logits_close(
            indexer.paged_mqa_logits(*args), expected.paged_mqa_logits(*args)
        ),
        triton=_triton("paged_mqa_logits", *args, out, spec.page_size),
    )


def _index_topk(rows: int, keys: int, indexer: dsv4_iree.Indexer) -> Case:
    args, spec = _paged_inputs(rows, keys, indexer), indexer.spec

    def eager(dtype: torch.dtype) -> torch.Tensor:
        return baseline.topk(baseline.paged_mqa_logits(*args, spec, dtype), spec.topk)

    def check() -> None:
        logits, end = indexer.paged_mqa_logits(*args), args[4]
        chosen = reference.topk(logits, spec.topk, torch.zeros_like(end), end)
        testing.assert_bytes_equal(indexer.index_topk(*args), chosen)

    return Case(
        compiled=lambda: indexer.index_topk(*args),
        eager={name: partial(eager, dtype) for name, dtype in FLOATS.items()},
        check=check,
    )


def _mqa_logits(rows: int, keys: int, indexer: dsv4_iree.Indexer) -> Case:
    spec, device = indexer.spec, indexer.device
    q = indexer.quantize(torch.randn(rows, spec.num_heads, spec.head_dim, device=device))
    k = indexer.quantize(torch.randn(keys, spec.head_dim, device=device))
    weights = torch.randn(rows, spec.num_heads, device=device)
    end = torch.full((rows,), keys, dtype=torch.int32, device=device)
    out = torch.empty(rows, keys, device=device)
    expected = dsv4_iree.load(spec, backend="reference", device=device)
    return Case(
        compiled=lambda: indexer.mqa_logits(q, k, weights, None, end, out=out),
        eager={
            name: partial(baseline.mqa_logits, q, k, weights, end, dtype)
            for name, dtype in FLOATS.items()
        },
        check=lambda: testing.assert_logits_close(
            indexer.mqa_logits(q, k, weights, None, end),
            expected.mqa_logits(q, k, weights, None, end),
        ),
        triton=_triton("mqa_logits", q, k, weights, end, out),
    )


def _topk(rows: int, keys: int, indexer: dsv4_iree.Indexer) -> Case:
    k, device = indexer.spec.topk, indexer.device
    logits = torch.randn(rows, keys, device=device)
    start = torch.zeros(rows, dtype=torch.int32, device=device)
    end = start + keys
    out = torch.empty(rows, k, dtype=torch.int32, device=device)
    return Case(
        compiled=lambda: indexer.topk(logits, start, end, out=out),
        eager={"fp32": lambda: torch.topk(logits, min(k, keys))},
        check=lambda: testing.assert_bytes_equal(
            indexer.topk(logits, start, end), reference.topk(logits, k, start, end)
        ),
    )


def _quantize(rows: int, keys: int, indexer: dsv4_iree.Indexer) -> Case:
    spec = indexer.spec
    x = torch.randn(rows, keys, spec.head_dim, device=indexer.device).bfloat16()
    out = indexer.quantize(x)

    def check() -> None:
        for actual, expected in zip(indexer.quantize(x), reference.quantize(x, spec)):
            testing.assert_bytes_equal(actual, expected)

    return Case(
        compiled=lambda: indexer.quantize(x, out=out),
        eager={"fp32": lambda: baseline.quantize(x)},
        check=check,
    )


def _quantize_queries(rows: int, keys: int, indexer: dsv4_iree.Indexer) -> Case:
    spec, device = indexer.spec, indexer.device
    q = torch.randn(rows, spec.num_heads, spec.head_dim, device=device).bfloat16()
    weights = torch.randn(rows, spec.num_heads, device=device).bfloat16()
    angle = torch.rand(1 << 16, spec.rope_dim // 2, device=device) * 6.28
    table = torch.cat([angle.cos(), angle.sin()], dim=1)
    positions = torch.randint(1 << 16, (rows,), device=device)
    (values, scales), folded = indexer.quantize_queries(
        q, weights, positions=positions, cos_sin=table
    )

    def compiled() -> object:
        return indexer.quantize_queries(
            q, weights, positions=positions, cos_sin=table, out=(values, scales, folded)
        )

    def check() -> None:
        between, factors = Intermediate.BF16, (spec.head_dim**-0.5, spec.num_heads**-0.5)
        expected = reference.quantize_queries(q, weights, positions, table, factors, between, spec)
        compiled()
        for one, other in zip((values, scales, folded), expected):
            testing.assert_bytes_equal(one, other)

    return Case(
        compiled=compiled,
        eager={"fp32": lambda: baseline.quantize_queries(q, weights, positions, table)},
        check=check,
    )


def _dequantize(rows: int, keys: int, indexer: dsv4_iree.Indexer) -> Case:
    spec = indexer.spec
    pair = indexer.quantize(torch.randn(rows, keys, spec.head_dim, device=indexer.device))
    out = indexer.dequantize(pair)
    return Case(
        compiled=lambda: indexer.dequantize(pair, out=out),
        eager={"fp32": lambda: baseline.decode(pair, torch.float32)},
        check=lambda: testing.assert_bytes_equal(
            indexer.dequantize(pair), reference.dequantize(*pair, spec)
        ),
    )


def _write_cache(rows: int, keys: int, indexer: dsv4_iree.Indexer) -> Case:
    spec, device = indexer.spec, indexer.device
    x = torch.randn(rows * keys, spec.head_dim, device=device).bfloat16()
    pages = 2 * (-(-rows * keys // spec.page_size))
    cache = torch.zeros(pages, spec.page_bytes, dtype=torch.uint8, device=device)
    slots = torch.randperm(pages * spec.page_size, device=device)[: rows * keys]

    def check() -> None:
        expected = cache.clone()
        for some, where in zip(x.split(1 << 16), slots.split(1 << 16)):
            reference.write_cache(expected, *reference.quantize(some, spec), where, spec)
        indexer.write_cache(cache, x, slots)
        testing.assert_bytes_equal(cache, expected)

    return Case(
        compiled=lambda: indexer.write_cache(cache, x, slots),
        eager={"fp32": lambda: baseline.write_cache(cache, baseline.quantize(x), slots, spec)},
        check=check,
    )


def _gather_cache(
    rows: int, keys: int, indexer: dsv4_iree.Indexer, dtype: torch.dtype | None = None
) -> Case:
    spec, device = indexer.spec, indexer.device
    width = -(-keys // spec.page_size)
    cache = torch.randint(256, (rows * width, spec.page_bytes), device=device).to(torch.uint8)
    cache[:, spec.page_size * spec.value_bytes :].clamp_(100, 150)
    table = torch.randperm(rows * width, device=device).int().view(rows, width)
    entries = torch.randperm(keys, device=device).int().repeat(rows)
    request = torch.arange(rows, device=device).int().repeat_interleave(keys)
    args = (cache, table, request, entries)
    out = indexer.gather_cache(*args, dtype=dtype)

    def eager() -> object:
        pair = baseline.gather_cache(*args, spec)
        return pair if dtype is None else baseline.decode(pair, dtype)

    def check() -> None:
        found = reference.gather_cache(*args, spec)
        if dtype is None:
            for actual, expected in zip(indexer.gather_cache(*args), found):
                testing.assert_bytes_equal(actual, expected)
            return
        numbers = indexer.gather_cache(*args, dtype=dtype)
        for some, *pair in zip(*(part.split(1 << 16) for part in (numbers, *found))):
            testing.assert_bytes_equal(some, reference.dequantize(*pair, spec).to(dtype))

    return Case(
        compiled=lambda: indexer.gather_cache(*args, dtype=dtype, out=out),
        eager={"fp32" if dtype is None else "bf16": eager},
        check=check,
    )


CASES: dict[str, Callable[[int, int, dsv4_iree.Indexer], Case]] = {
    "paged_mqa_logits": _paged_mqa_logits,
    "index_topk": _index_topk,
    "mqa_logits": _mqa_logits,
    "topk": _topk,
    "quantize": _quantize,
    "quantize_queries": _quantize_queries,
    "dequantize": _dequantize,
    "write_cache": _write_cache,
    "gather_cache": _gather_cache,
    "gather_cache_bf16": partial(_gather_cache, dtype=torch.bfloat16),
}


def _overhead(rows: int, keys: int, indexer: dsv4_iree.Indexer) -> dict[str, float]:
    """Microseconds of an `Indexer.topk` call above IREE's own invocation of the same function."""
    calls, device = 500, indexer.device
    logits = torch.randn(rows, keys, device=device)
    start = torch.zeros(rows, dtype=torch.int32, device=device)
    end = start + keys
    out = indexer.topk(logits, start, end)
    bare = BareCall(indexer, (logits, start, end, out))
    runs: dict[str, Run] = {
        "call": lambda: indexer.topk(logits, start, end, out=out),
        "bare": bare,
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(calls):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - began) * 1e6)
    call, bare_us = (round(statistics.median(times[name]), 1) for name in runs)
    return {"ms": call / 1e3, "bare_us": bare_us, "overhead_us": round(call - bare_us, 1)}


class BareCall:
    """The topk function through `iree.runtime` alone, its buffer views made beforehand."""

    def __init__(self, indexer: dsv4_iree.Indexer, tensors: tuple[torch.Tensor, ...]) -> None:
        self.function = indexer.function("topk", "topk")
        self.device = self.function.device
        self.views = [self.device.view("tensor", tensor) for tensor in tensors]
        self.scratch = torch.empty(1 << 24, dtype=torch.uint8, device=indexer.device)
        self.workspace = self.device.view("workspace", self.scratch).get_buffer()
        self.timeline, self.now = self.device.hal.create_semaphore(0), 0
        self.columns = tensors[0].shape[1]

    def __call__(self) -> None:
        arguments = rt.VmVariantList(10)
        for view in self.views:
            arguments.push_ref(view)
        for scalar in (self.columns, 0, 1):  # ids relative to the window, largest first
            arguments.push_int(scalar)
        arguments.push_ref(self.workspace)
        arguments.push_ref(rt.HalFence.create_at(self.timeline, self.now))
        self.now += 1
        arguments.push_ref(rt.HalFence.create_at(self.timeline, self.now))
        self.function.context.invoke(self.function.run, arguments, rt.VmVariantList(1))
        self.timeline.wait(self.now)


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


def _show(row: dict[str, Any], as_json: bool, first: bool) -> None:
    if as_json:
        print(json.dumps(row), flush=True)
        return
    if first:
        print("  ".join(name.rjust(width) for name, width in COLUMNS.items()))
    print("  ".join(str(row.get(name, "")).rjust(width) for name, width in COLUMNS.items()))
    sys.stdout.flush()


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
