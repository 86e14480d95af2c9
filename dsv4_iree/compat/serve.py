# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which Indexer serves a call, and the few tensor forms that all systems have in common."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

import torch

from dsv4_iree import reference
from dsv4_iree.api import load
from dsv4_iree.errors import ArgumentError
from dsv4_iree.indexer import Indexer
from dsv4_iree.runtime import ALIGNMENT
from dsv4_iree.spec import CacheLayout, Format, IndexerSpec

Quantized = tuple[torch.Tensor, torch.Tensor]
FLOATS = (torch.float32, torch.bfloat16)
FP8 = {torch.float8_e4m3fn: Format.FP8, torch.float8_e4m3fnuz: Format.FP8_FNUZ}
_options: dict[str, Any] = {}


def use(**options: Any) -> None:
    """Set what every compat call passes to `dsv4_iree.load`: artifacts, backend, validate, wait.

    `device` is that of a call's tensors unless it is set here, as the emulated ones must be.
    """
    _options.clear()
    _options.update(options)
    _loaded.cache_clear()


def indexer(device: torch.device, **numbers: Any) -> Indexer:
    """The indexer of these spec numbers on a tensor's device: loaded once per thread."""
    return _loaded(IndexerSpec(**numbers), device, threading.get_ident())


@lru_cache(maxsize=64)
def _loaded(spec: IndexerSpec, device: torch.device, thread: int) -> Indexer:
    return load(spec, **{"device": device, **_options})  # one indexer serves one thread at a time


def ready(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The tensor as kernels take it (dense, aligned, of this dtype); a copy if it is not."""
    dense = (tensor if dtype is None else tensor.to(dtype)).contiguous()
    return dense if dense.data_ptr() % ALIGNMENT == 0 else dense.clone()


def fp4(name: str, values: torch.Tensor, scales: torch.Tensor) -> Quantized:
    """Packed FP4 bytes [..., D/2] and e8m0 bytes [..., D/32] from any of their public views.

    Values may be int8, uint8 or float4_e2m1fn_x2; scales uint8 or float8_e8m0fnu, or packed into
    int32, group g in byte g: [...] or [..., D/128]. The upper half of an int32 is unused at D = 64.
    """
    groups = values.shape[-1] // 16
    raw = ready(scales).view(torch.uint8)
    if groups == 2 and scales.dtype is torch.int32:
        raw = raw.view(-1, 4)[:, :2].contiguous()
    if raw.numel() * 16 != values.numel():
        raise ArgumentError(
            f"{name} scales: expected {groups} bytes a vector for {values.shape[-1]} value bytes, "
            f"got {list(scales.shape)} of {scales.dtype}"
        )
    return ready(values).view(torch.uint8), raw.view(*values.shape[:-1], groups)


def fp8(name: str, values: torch.Tensor, scales: torch.Tensor | None) -> tuple[Quantized, Format]:
    """FP8 values with one fp32 scale a vector (ones if None), and their format by dtype."""
    if values.dtype not in FP8:
        raise ArgumentError(
            f"{name}: expected dtype float8_e4m3fn or float8_e4m3fnuz, got {values.dtype}; "
            "view the bytes as the dialect they were written in"
        )
    if scales is None:
        scales = torch.ones(values.shape[:-1], device=values.device)
    scales = ready(scales, torch.float32).view(values.shape[:-1])
    return (ready(values), scales), FP8[values.dtype]


def made_queries(
    q: torch.Tensor,
    weights: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    factors: tuple[float, float],
    intermediate: str,
    **numbers: Any,
) -> tuple[Quantized, torch.Tensor]:
    """`Indexer.quantize_queries` of the spec numbers, whatever floats the tensors hold."""
    dtype = q.dtype if q.dtype is weights.dtype and q.dtype in FLOATS else torch.float32
    table = cos_sin if cos_sin.dtype in FLOATS else cos_sin.float()
    served = indexer(q.device, num_heads=q.shape[1], head_dim=q.shape[2], **numbers)
    return served.quantize_queries(
        ready(q, dtype),
        ready(weights, dtype),
        positions=ready(positions, torch.int64),
        cos_sin=ready(table),
        softmax_scale=factors[0],
        head_scale=factors[1],
        intermediate=intermediate,
    )


def first_rows(indices: torch.Tensor, rows: int) -> torch.Tensor:
    """[rows] int32: the first row of the run of equal `indices` that each row is in."""
    if indices.shape != (rows,):
        raise ArgumentError(
            f"indices: expected shape [{rows}] with next_n 1, got {list(indices.shape)}"
        )
    row = torch.arange(rows, device=indices.device)
    starts = torch.ones_like(row, dtype=torch.bool)
    starts[1:] = indices[1:] != indices[:-1]
    return torch.where(starts, row, 0).cummax(0).values.int()


def page_format(cache: torch.Tensor, head_dim: int, kind: Format) -> dict[str, Any]:
    """Spec numbers of a cache [pages, P, 1, entry bytes] in a natural layout."""
    layout = CacheLayout.N4 if kind is Format.FP4 else CacheLayout.N8
    numbers: dict[str, Any] = {"head_dim": head_dim, "format": kind, "layout": layout}
    entry = IndexerSpec(**numbers).entry_bytes
    if cache.dim() != 4 or cache.shape[2:] != (1, entry):
        raise ArgumentError(
            f"kv_cache: expected shape [pages, P, 1, {entry}] for head_dim {head_dim} in format "
            f"{kind.value}, got {list(cache.shape)}"
        )
    return {**numbers, "page_size": cache.shape[1]}


def select(
    logits: torch.Tensor,
    k: int,
    start: torch.Tensor | None,
    end: torch.Tensor,
    ids: str = "relative",
) -> torch.Tensor:
    """[T, k] int32 as production top-k ops give them, on logits with any row stride.

    A window of at most k columns is 0, 1, ... in order whatever it holds; a longer one its k
    largest, best first. Then -1. NaN and -inf are never among the chosen of a longer window.
    """
    end = ready(end, torch.int32)
    start = torch.zeros_like(end) if start is None else ready(start, torch.int32)
    ranked = ready(logits, torch.float32)
    chosen = indexer(logits.device, topk=k).topk(ranked, start, end)
    length = (end.long().clamp(max=logits.shape[1]) - start.long().clamp(0))[:, None]
    column = torch.arange(k, device=logits.device)
    iota = torch.where(column < length, column, -1)
    chosen = torch.where(length <= k, iota, chosen).int()
    if ids == "entry":
        chosen = torch.where(chosen < 0, -1, chosen + start.clamp(0)[:, None])
    return chosen


def float_logits(
    q: torch.Tensor,
    k: torch.Tensor,
    weights: torch.Tensor,
    start: torch.Tensor,
    end: torch.Tensor,
) -> torch.Tensor:
    """[T, K] fp32 logits of vectors not quantised: bf16 compiled, others in plain torch."""
    weights = ready(weights, torch.float32)
    if q.dtype is not torch.bfloat16 or k.dtype is not torch.bfloat16:
        return reference.mqa_logits(q, k, weights, start, end)
    served = indexer(q.device, num_heads=q.shape[1], head_dim=q.shape[2], format=Format.BF16)
    return served.mqa_logits(ready(q), ready(k), weights, start, end)


def filled(out: torch.Tensor, width: int) -> tuple[torch.Tensor, bool]:
    """`out`'s first `width` columns as a call can fill them, and whether that is a copy."""
    columns = out[:, :width]
    dense = ready(columns)
    return dense, dense.data_ptr() != columns.data_ptr()


def given(out: torch.Tensor | None, logits: torch.Tensor, copied: bool) -> torch.Tensor:
    """The caller's tensor, filled, if there is one."""
    if out is None:
        return logits
    if copied:
        out[:, : logits.shape[1]] = logits
    return out
