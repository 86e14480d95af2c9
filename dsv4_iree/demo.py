# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The whole job on real data: quantise, write a paged cache, score, select, and compare."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dsv4_iree import baseline, build, reference
from dsv4_iree.api import load
from dsv4_iree.errors import BuildError
from dsv4_iree.manifest import read
from dsv4_iree.spec import OPS, SPECS

DATA = Path(__file__).parent / "data" / "real_text_indexer.safetensors"
TARGETS = ("cpu", "gfx942", "gfx950")
MODELS = ("flash", "pro")
REPEATS = 3


def run(out: Path, workers: int = 2) -> dict[str, Any]:
    """Build what is missing in `out`, run top-512 and top-1024 on the CPU, compare with torch."""
    from safetensors.torch import load_file

    jobs = build.plan(OPS, TARGETS, [SPECS[model] for model in MODELS])
    if absent := build.missing(jobs, out):
        _build(absent, out, workers)
    # clone: the file's tensors lie in a memory map, at any address
    inputs = _cached({name: tensor.clone() for name, tensor in load_file(DATA).items()}, out)
    report: dict[str, Any] = {"ids_equal": True, "rows": 64, "keys": 16384}
    for model in MODELS:
        one = _select(model, inputs, out)
        k = SPECS[model].topk
        report["ids_equal"] &= one["ids_equal"]
        report[f"overlap_{k}"] = one["overlap"]
        report[f"compiled_ms_{k}"], report[f"eager_ms_{k}"] = one["compiled_ms"], one["eager_ms"]
        report[f"eager_overlap_{k}"] = one["eager_overlap"]
    report["compiled_ms"], report["eager_ms"] = report["compiled_ms_512"], report["eager_ms_512"]
    report["artifacts"] = [
        {"op": job.op, "target": job.target, "file": f"{job.name}.vmfb", "bytes": size}
        for job in jobs
        for size in (read(out / f"{job.name}.json").bytes,)
    ]
    return report


def _build(jobs: tuple[build.Job, ...], out: Path, workers: int) -> None:
    from dsv4_iree.progress import build_visibly, describe

    def say(result: build.Result) -> None:
        sys.stderr.write(describe(result) + "\n")

    results = build_visibly(jobs, out, workers, say)
    if errors := [result.error for result in results if result.artifact is None]:
        raise BuildError("\n".join(errors))


def _cached(data: dict[str, torch.Tensor], out: Path) -> dict[str, torch.Tensor]:
    """Quantised queries and a cache with the keys on shuffled pages, made by the CPU artifacts."""
    spec = SPECS["flash"]
    indexer = load(spec, artifacts=out)
    keys = data["index_k"]
    pages = keys.shape[0] // spec.page_size
    order = torch.randperm(pages + 8, generator=torch.Generator().manual_seed(0))[:pages]
    cache = torch.full((pages + 8, spec.page_bytes), 0xFF, dtype=torch.uint8)  # NaN where unused
    entry = torch.arange(keys.shape[0])
    slots = order[entry // spec.page_size] * spec.page_size + entry % spec.page_size
    indexer.write_cache(cache, keys, slots)
    values, scales = indexer.quantize(data["index_q"])
    return {
        **data,
        "q_values": values,
        "q_scales": scales,
        "cache": cache,
        "block_table": order.int()[None],
        "end": data["positions"] + 1,
    }


def _select(model: str, x: dict[str, torch.Tensor], out: Path) -> dict[str, Any]:
    """Select with the artifacts, with eager torch, and from the vectors before quantisation."""
    spec = SPECS[model]
    indexer = load(spec, artifacts=out)
    q, weights, end = (x["q_values"], x["q_scales"]), x["weights"], x["end"]
    paged = (q, weights, x["cache"], x["block_table"], end)

    def eager_logits() -> torch.Tensor:
        return baseline.paged_mqa_logits(*paged, spec, torch.float32)

    def best(logits: torch.Tensor) -> torch.Tensor:
        return reference.topk(logits, spec.topk, torch.zeros_like(end), end)

    ids, compiled_ms = _timed(lambda: indexer.index_topk(*paged))
    _, eager_ms = _timed(lambda: baseline.topk(eager_logits(), spec.topk))
    unquantised = reference.mqa_logits(
        x["index_q"], x["index_k"], weights, torch.zeros_like(end), end
    )
    return {
        # On the same logits every id must be the same. Logits added up in another order differ in
        # their last bits, and with them the order of entries whose scores are that close.
        "ids_equal": torch.equal(ids, best(indexer.paged_mqa_logits(*paged))),
        "eager_overlap": _overlap(ids, best(eager_logits())),
        "overlap": _overlap(ids, best(unquantised)),
        "compiled_ms": compiled_ms,
        "eager_ms": eager_ms,
    }


def _timed(function: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, float]:
    """The result and the median of a few runs in milliseconds."""
    result, times = function(), []
    for _ in range(REPEATS):
        began = time.perf_counter()
        function()
        times.append((time.perf_counter() - began) * 1e3)
    return result, round(sorted(times)[REPEATS // 2], 2)


def _overlap(a: torch.Tensor, b: torch.Tensor) -> float:
    """Share of the selected entries of `b` that `a` selects too."""
    hits = (a[:, :, None] == b[:, None, :]) & (b[:, None, :] >= 0)
    return round(float(hits.any(1).sum() / (b >= 0).sum()), 4)
