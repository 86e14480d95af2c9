# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The same work as ordinary torch code, from the same bytes, for the compiled ops to be timed by.

Not the specification (`reference.py` is) and not an implementation the package offers: it is what
a torch user would write for speed, with matmuls in fp32 or bf16 and torch.topk.
"""

from __future__ import annotations

import torch

from dsv4_iree.checks import Quantized
from dsv4_iree.spec import GROUP, IndexerSpec

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def decode(pair: Quantized, dtype: torch.dtype) -> torch.Tensor:
    """[..., D] numbers of MXFP4 values and scales by a table of all 256 bytes."""
    values, scales = pair
    e2m1 = torch.tensor([*_E2M1, *(-x for x in _E2M1)], dtype=dtype, device=values.device)
    byte = torch.arange(256, device=values.device)
    table = torch.stack([e2m1[byte & 15], e2m1[byte >> 4]], dim=1)
    codes = table[values.int()].flatten(-2)
    factor = (scales.int() << 23).view(torch.float32).to(dtype)
    grouped: torch.Tensor = codes.unflatten(-1, (-1, GROUP)) * factor[..., None]
    return grouped.flatten(-2)


def quantize(x: torch.Tensor) -> Quantized:
    """MXFP4 values and scales of [N, D] by profile R, codes by a table of what lies between."""
    groups = x.float().unflatten(-1, (-1, GROUP))
    sixth = (groups.abs().amax(-1) / 6).clamp(min=2.0**-126).view(torch.int32)
    e = (sixth >> 23) + ((sixth & 0x7FFFFF) != 0).int()
    scaled = groups * (254 - e << 23).view(torch.float32)[..., None]
    # A tie at 0.75, 1.75 or 3.5 goes up: it is above the next number below.
    between = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], device=x.device)
    between[1::2] = torch.nextafter(between[1::2], between.new_zeros(3))
    code = torch.bucketize(scaled.abs(), between, out_int32=True).to(torch.uint8)
    code |= torch.signbit(scaled).to(torch.uint8) << 3
    low, high = code.flatten(-2).unflatten(-1, (-1, 2)).unbind(-1)
    return low | high << 4, e.to(torch.uint8)


def quantize_queries(
    q: torch.Tensor, weights: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries [T, H, D] turned by RoPE, rounded to bf16 and quantised, and their weights."""
    _, heads, dim = q.shape
    cos, sin = cos_sin[positions].float()[:, None].chunk(2, dim=-1)
    first = dim - cos_sin.shape[1]
    a, b = q[..., first:].float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)
    x = torch.cat([q[..., :first].bfloat16(), turned.bfloat16()], dim=-1)
    return *quantize(x), weights.float() * dim**-0.5 * heads**-0.5


def natural_rows(cache: torch.Tensor, spec: IndexerSpec) -> Quantized:
    """Values [num_pages, P, D/2] and scales [num_pages, P, D/32] of an N4 cache, as views."""
    pages, size, row, scales = cache.shape[0], spec.page_size, spec.value_bytes, spec.scale_bytes
    stride, first = cache.stride(0), cache.storage_offset()
    return (
        cache.as_strided((pages, size, row), (stride, row, 1)),
        cache.as_strided((pages, size, scales), (stride, scales, 1), first + size * row),
    )


def write_cache(
    cache: torch.Tensor, pair: Quantized, slots: torch.Tensor, spec: IndexerSpec
) -> None:
    """Put quantised keys into the slots of an N4 cache, all of which exist."""
    page, token = slots // spec.page_size, slots % spec.page_size
    for memory, rows in zip(natural_rows(cache, spec), pair):
        memory[page, token] = rows


def gather_cache(
    cache: torch.Tensor,
    block_table: torch.Tensor,
    row_to_request: torch.Tensor,
    entries: torch.Tensor,
    spec: IndexerSpec,
) -> Quantized:
    """Values and scales of entries of an N4 cache, all of which exist."""
    entry = entries.long()
    page = block_table[row_to_request.long(), entry // spec.page_size].long()
    values, scales = natural_rows(cache, spec)
    return values[page, entry % spec.page_size], scales[page, entry % spec.page_size]


def weighted_scores(q: torch.Tensor, k: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """sum_h weights * relu(q . k): [B, n, N] float32 for q [B, n, H, D] and k [B, N, D]."""
    batch, rows, heads, _ = q.shape
    score = torch.relu(q.flatten(1, 2) @ k.transpose(1, 2)).view(batch * rows, heads, -1)
    summed = weights.to(score.dtype).view(batch * rows, 1, heads) @ score
    return summed.view(batch, rows, -1).float()


def mqa_logits(
    q: Quantized, k: Quantized, weights: torch.Tensor, end: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """[T, K] float32, -inf from `end` on."""
    logits = weighted_scores(decode(q, dtype)[None], decode(k, dtype)[None], weights)[0]
    column = torch.arange(logits.shape[1], device=logits.device)
    return logits.masked_fill_(column >= end[:, None], float("-inf"))


def paged_mqa_logits(
    q: Quantized,
    weights: torch.Tensor,
    cache: torch.Tensor,
    block_table: torch.Tensor,
    end: torch.Tensor,
    spec: IndexerSpec,
    dtype: torch.dtype,
) -> torch.Tensor:
    """[T, W * P] float32 of B requests with T / B rows each, layout N4; -inf from `end` on."""
    requests, width = block_table.shape
    pages = cache[block_table.long()]
    cut = spec.page_size * spec.value_bytes
    values = pages[..., :cut].reshape(requests, width * spec.page_size, spec.value_bytes)
    scales = pages[..., cut : spec.page_bytes]
    scales = scales.reshape(requests, width * spec.page_size, spec.scale_bytes)
    queries = decode(q, dtype).unflatten(0, (requests, -1))
    logits = weighted_scores(queries, decode((values, scales), dtype), weights).flatten(0, 1)
    column = torch.arange(logits.shape[1], device=logits.device)
    return logits.masked_fill_(column >= end[:, None], float("-inf"))


def topk(logits: torch.Tensor, k: int) -> torch.Tensor:
    """[T, k] int32 columns, -1 where only -inf is left."""
    values, columns = logits.topk(min(k, logits.shape[1]), dim=1)
    return columns.masked_fill(values == float("-inf"), -1).int()
