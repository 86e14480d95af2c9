# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `bench.py` times: for every op, the compiled call, others' ways, and the check before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import util
from typing import Any

import torch

import dsv4_iree
from dsv4_iree import baseline, reference, testing
from dsv4_iree.spec import Intermediate

Run = Callable[[], object]
ORDERS = ("random", "descending", "ascending", "equal")


@dataclass(frozen=True)
class Case:
    """One op on one shape.

    Args:
        eager: the same work in torch, by the kind of floats.
        check: compares the compiled call's result with the reference.
        triton: the same work by Triton.
        logits: the logits alone, where the op selects from them.
    """

    compiled: Run
    eager: dict[str, Run]
    check: Run
    triton: Run | None = None
    logits: Run | None = None


@dataclass(frozen=True)
class Shape:
    """Rows and keys of each, or rows x keys vectors for ops that score nothing.

    Args:
        requests: whose keys the rows score, as many rows for each; 0: each row has its own.
        order: of the logits in a row, one of `ORDERS`.
    """

    rows: int
    keys: int
    requests: int = 0
    order: str = "random"


FLOATS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def _paged_inputs(shape: Shape, indexer: dsv4_iree.Indexer) -> dict[str, Any]:
    """Random operands of the paged ops."""
    spec, device, rows = indexer.spec, indexer.device, shape.rows
    random = torch.Generator(device).manual_seed(0)
    requests, width = shape.requests or rows, -(-shape.keys // spec.page_size)

    def vectors(*sizes: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(*sizes, spec.head_dim, generator=random, device=device)
        return indexer.quantize(x)

    values, scales = vectors(requests * width, spec.page_size)
    pages = torch.randperm(requests * width, generator=random, device=device)
    return {
        "q": vectors(rows, spec.num_heads),
        "weights": torch.randn(rows, spec.num_heads, generator=random, device=device),
        "cache": torch.cat([values.flatten(1), scales.flatten(1)], dim=1),
        "block_table": pages.int().view(requests, width),
        "end": torch.full((rows,), shape.keys, dtype=torch.int32, device=device),
        "row_to_request": (torch.arange(rows, device=device) * requests // rows).int(),
    }


def _each_its_own(x: dict[str, Any]) -> tuple[Any, ...]:
    """What the peers take, which know rows with keys of their own alone."""
    return tuple(x[name] for name in ("q", "weights", "cache", "block_table", "end"))


def _triton(kernel: str, *args: Any) -> Run | None:
    """The same by Triton; None where there is none."""
    q = args[0][0]
    if q.device.type != "cuda" or torch.version.hip or not util.find_spec("triton"):
        return None
    import triton_peer

    return partial(getattr(triton_peer, kernel), *args)


def _paged_mqa_logits(shape: Shape, indexer: dsv4_iree.Indexer) -> Case:
    x, spec = _paged_inputs(shape, indexer), indexer.spec
    out = torch.empty(shape.rows, x["block_table"].shape[1] * spec.page_size, device=indexer.device)
    expected = dsv4_iree.load(spec, backend="reference", device=indexer.device)
    args = _each_its_own(x)
    peers = {
        name: partial(baseline.paged_mqa_logits, *args, spec, dtype)
        for name, dtype in FLOATS.items()
    }
    return Case(
        compiled=lambda: indexer.paged_mqa_logits(**x, out=out),
        eager={} if shape.requests else peers,
        check=lambda: testing.assert_logits_close(
            indexer.paged_mqa_logits(**x), expected.paged_mqa_logits(**x)
        ),
        triton=None if shape.requests else _triton("paged_mqa_logits", *args, out, spec.page_size),
    )


def _index_topk(shape: Shape, indexer: dsv4_iree.Indexer) -> Case:
    x, spec = _paged_inputs(shape, indexer), indexer.spec
    args = _each_its_own(x)
    logits = torch.empty(
        shape.rows, x["block_table"].shape[1] * spec.page_size, device=indexer.device
    )

    def eager(dtype: torch.dtype) -> torch.Tensor:
        return baseline.topk(baseline.paged_mqa_logits(*args, spec, dtype), spec.topk)

    def check() -> None:
        scored, end = indexer.paged_mqa_logits(**x), x["end"]
        chosen = reference.topk(scored, spec.topk, torch.zeros_like(end), end)
        testing.assert_bytes_equal(indexer.index_topk(**x), chosen)

    return Case(
        compiled=lambda: indexer.index_topk(**x),
        eager={}
        if shape.requests
        else {name: partial(eager, dtype) for name, dtype in FLOATS.items()},
        check=check,
        logits=lambda: indexer.paged_mqa_logits(**x, out=logits),
    )


def _mqa_logits(shape: Shape, indexer: dsv4_iree.Indexer) -> Case:
    rows, keys = shape.rows, shape.keys
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


def _topk(shape: Shape, indexer: dsv4_iree.Indexer) -> Case:
    rows, keys = shape.rows, shape.keys
    k, device = indexer.spec.topk, indexer.device
    logits = torch.randn(rows, keys, device=device)
    if shape.order != "random":
        logits = logits.sort(dim=1, descending=shape.order == "descending").values
    if shape.order == "equal":
        logits.zero_()
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


def _quantize(shape: Shape, indexer: dsv4_iree.Indexer) -> Case:
    rows, keys = shape.rows, shape.keys
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


def _quantize_queries(shape: Shape, indexer: dsv4_iree.Indexer) -> Case:
    rows = shape.rows
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


def _dequantize(shape: Shape, indexer: dsv4_iree.Indexer) -> Case:
    rows, keys = shape.rows, shape.keys
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


def _write_cache(shape: Shape, indexer: dsv4_iree.Indexer) -> Case:
    rows, keys = shape.rows, shape.keys
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
    shape: Shape, indexer: dsv4_iree.Indexer, dtype: torch.dtype | None = None
) -> Case:
    rows, keys = shape.rows, shape.keys
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


CASES: dict[str, Callable[[Shape, dsv4_iree.Indexer], Case]] = {
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
