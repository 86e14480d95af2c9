# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch.ops.dsv4_iree.*: the ops for torch.compile, with fakes; importing this registers them.

Eager code calls an `Indexer`; the detour over the dispatcher costs it microseconds for nothing.
Each op takes the spec's numbers that its tensors do not show. FP4 in layout N4 only; `artifacts`
is looked up as `dsv4_iree.load` does. All allocate their result, so a graph may reuse its memory.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from dsv4_iree.api import load
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import IndexerSpec


@torch.library.custom_op("dsv4_iree::quantize", mutates_args=())
def quantize(x: Tensor, rounding: str = "r", hadamard: bool = False) -> tuple[Tensor, Tensor]:
    """values [..., D/2] and scales [..., D/32] uint8 of x [..., D]; see `Indexer.quantize`."""
    spec = IndexerSpec(head_dim=x.shape[-1], rounding=rounding, hadamard=hadamard)  # type: ignore[arg-type]
    return _indexer(spec, x.device).quantize(x)


@quantize.register_fake
def _(x: Tensor, rounding: str = "r", hadamard: bool = False) -> tuple[Tensor, Tensor]:
    rows, dim = x.shape[:-1], x.shape[-1]
    return (
        x.new_empty((*rows, dim // 2), dtype=torch.uint8),
        x.new_empty((*rows, dim // 32), dtype=torch.uint8),
    )


@torch.library.custom_op("dsv4_iree::quantize_queries", mutates_args=())
def quantize_queries(
    q: Tensor,
    weights: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    rounding: str = "r",
    hadamard: bool = False,
    intermediate: str = "bf16",
) -> tuple[Tensor, Tensor, Tensor]:
    """values, scales and weights of q [T, H, D]; see `Indexer.quantize_queries`."""
    _, heads, dim = q.shape
    spec = IndexerSpec(
        num_heads=heads,
        head_dim=dim,
        rounding=rounding,  # type: ignore[arg-type]
        hadamard=hadamard,
    )
    pair, folded = _indexer(spec, q.device).quantize_queries(
        q, weights, positions=positions, cos_sin=cos_sin, intermediate=intermediate
    )
    return *pair, folded


@quantize_queries.register_fake
def _(
    q: Tensor,
    weights: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    rounding: str = "r",
    hadamard: bool = False,
    intermediate: str = "bf16",
) -> tuple[Tensor, Tensor, Tensor]:
    rows, dim = q.shape[:2], q.shape[2]
    return (
        q.new_empty((*rows, dim // 2), dtype=torch.uint8),
        q.new_empty((*rows, dim // 32), dtype=torch.uint8),
        q.new_empty(rows, dtype=torch.float32),
    )


@torch.library.custom_op("dsv4_iree::write_cache", mutates_args=("cache",))
def write_cache(
    cache: Tensor,
    keys: Tensor,
    slot_mapping: Tensor,
    page_size: int,
    rounding: str = "r",
    hadamard: bool = False,
) -> None:
    """Quantise keys [N, D] and write them into the cache; see `Indexer.write_cache`."""
    spec = IndexerSpec(
        head_dim=keys.shape[-1],
        page_size=page_size,
        rounding=rounding,  # type: ignore[arg-type]
        hadamard=hadamard,
    )
    _indexer(spec, keys.device).write_cache(cache, keys, slot_mapping)


@write_cache.register_fake
def _(
    cache: Tensor,
    keys: Tensor,
    slot_mapping: Tensor,
    page_size: int,
    rounding: str = "r",
    hadamard: bool = False,
) -> None:
    return None


@torch.library.custom_op("dsv4_iree::mqa_logits", mutates_args=())
def mqa_logits(
    q_values: Tensor,
    q_scales: Tensor,
    k_values: Tensor,
    k_scales: Tensor,
    weights: Tensor,
    start: Tensor,
    end: Tensor,
) -> Tensor:
    """[T, K] float32, -inf outside the windows; see `Indexer.mqa_logits`."""
    spec = _spec(q_values)
    queries, keys = (q_values, q_scales), (k_values, k_scales)
    return _indexer(spec, q_values.device).mqa_logits(queries, keys, weights, start, end)


@mqa_logits.register_fake
def _(
    q_values: Tensor,
    q_scales: Tensor,
    k_values: Tensor,
    k_scales: Tensor,
    weights: Tensor,
    start: Tensor,
    end: Tensor,
) -> Tensor:
    return weights.new_empty((q_values.shape[0], k_values.shape[0]))


@torch.library.custom_op("dsv4_iree::paged_mqa_logits", mutates_args=())
def paged_mqa_logits(
    q_values: Tensor,
    q_scales: Tensor,
    weights: Tensor,
    cache: Tensor,
    block_table: Tensor,
    row_to_request: Tensor,
    start: Tensor,
    end: Tensor,
    page_size: int,
    width: int,
) -> Tensor:
    """[T, width] float32, -inf where nothing is visible; see `Indexer.paged_mqa_logits`."""
    return _indexer(_spec(q_values, page_size), q_values.device).paged_mqa_logits(
        (q_values, q_scales),
        weights,
        cache,
        block_table,
        end,
        start=start,
        row_to_request=row_to_request,
        width=width,
    )


@paged_mqa_logits.register_fake
def _(
    q_values: Tensor,
    q_scales: Tensor,
    weights: Tensor,
    cache: Tensor,
    block_table: Tensor,
    row_to_request: Tensor,
    start: Tensor,
    end: Tensor,
    page_size: int,
    width: int,
) -> Tensor:
    return weights.new_empty((q_values.shape[0], width))


@torch.library.custom_op("dsv4_iree::topk", mutates_args=())
def topk(
    logits: Tensor,
    start: Tensor,
    end: Tensor,
    k: int,
    sorted: bool = True,
    ids: str = "relative",
    block_table: Tensor | None = None,
    row_to_request: Tensor | None = None,
    page_size: int = 64,
) -> Tensor:
    """[T, k] int32 columns, or slots of pages of page_size; see `Indexer.topk`."""
    return _indexer(IndexerSpec(topk=k, page_size=page_size), logits.device).topk(
        logits,
        start,
        end,
        sorted=sorted,
        ids=ids,
        block_table=block_table,
        row_to_request=row_to_request,
    )


@topk.register_fake
def _(
    logits: Tensor,
    start: Tensor,
    end: Tensor,
    k: int,
    sorted: bool = True,
    ids: str = "relative",
    block_table: Tensor | None = None,
    row_to_request: Tensor | None = None,
    page_size: int = 64,
) -> Tensor:
    return logits.new_empty((logits.shape[0], k), dtype=torch.int32)


@torch.library.custom_op("dsv4_iree::index_topk", mutates_args=())
def index_topk(
    q_values: Tensor,
    q_scales: Tensor,
    weights: Tensor,
    cache: Tensor,
    block_table: Tensor,
    row_to_request: Tensor,
    start: Tensor,
    end: Tensor,
    page_size: int,
    k: int,
) -> Tensor:
    """[T, k] int32 entries relative to the windows' starts; see `Indexer.index_topk`."""
    return _indexer(_spec(q_values, page_size, k), q_values.device).index_topk(
        (q_values, q_scales),
        weights,
        cache,
        block_table,
        end,
        start=start,
        row_to_request=row_to_request,
    )


@index_topk.register_fake
def _(
    q_values: Tensor,
    q_scales: Tensor,
    weights: Tensor,
    cache: Tensor,
    block_table: Tensor,
    row_to_request: Tensor,
    start: Tensor,
    end: Tensor,
    page_size: int,
    k: int,
) -> Tensor:
    return weights.new_empty((q_values.shape[0], k), dtype=torch.int32)


def _spec(q_values: Tensor, page_size: int = 64, k: int = 512) -> IndexerSpec:
    _, heads, value_bytes = q_values.shape
    return IndexerSpec(num_heads=heads, head_dim=2 * value_bytes, page_size=page_size, topk=k)


@cache
def _indexer(spec: IndexerSpec, device: torch.device) -> Indexer:
    return load(spec, device=device)
