# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The meaning of every op, in plain torch. This file is the specification.

Slow and readable on purpose: no kernel imports it and it imports no kernel. Scores are added up in
float64 and rounded once, so every e8m0 scale from 2^-127 to 2^127 keeps its exact meaning.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import pad

from dsv4_iree import layout
from dsv4_iree.spec import GROUP, Format, IndexerSpec, Rounding

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
NEG_INF = float("-inf")
FLOOR = {  # smallest amax / 6 of a group
    Rounding.R: 2.0**-126,
    Rounding.D: 1e-4 / 6,
    Rounding.S: 1e-4,
    Rounding.S2: 1e-4,
}


def hadamard(x: torch.Tensor) -> torch.Tensor:
    """x H_D / sqrt(D) along the last dim, Sylvester order, in fp32, rounded back to x's dtype.

    The sums are taken pairwise, strides 1, 2, 4, ...: that order fixes every bit. What falls below
    2^-126 on the way becomes +0, with or without hardware that flushes subnormals.
    """
    y, dim = _flush(x.float()), x.shape[-1]
    stride = 1
    while stride < dim:
        a, b = y.unflatten(-1, (-1, 2, stride)).unbind(-2)
        y = _flush(torch.stack([a + b, a - b], dim=-2).flatten(-3))
        stride *= 2
    return _flush(y * dim**-0.5).to(x.dtype)


def _flush(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.abs() < 2.0**-126, 0.0, x)


def quantize(x: torch.Tensor, spec: IndexerSpec) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and scales of each vector in `spec.format`.

    FP4: scale byte e = 127 + ceil(log2(amax / 6)), codes = round(x / 2^(e-127)), `spec.rounding`.
    FP8: scale 2^ceil(log2(max(amax, 1e-4) / largest)), values rounded to nearest even.
    A group (FP4) or vector (FP8) with NaN or infinity gets a NaN scale and zero values.

    Args:
        x: [..., D] float32, bfloat16 or float16.

    Returns:
        values: [..., D/2] uint8 (FP4, low nibble = even dim) or [..., D] uint8 (FP8).
        scales: [..., D/32] uint8 e8m0 (FP4) or [...] float32 (FP8).
    """
    if spec.hadamard:
        x = hadamard(x)
    x = x.float()
    if not spec.is_fp4:
        return _quantize_fp8(x, spec.format)
    groups = x.unflatten(-1, (-1, GROUP))
    if spec.rounding is Rounding.S2:
        codes, e = _quantize_group(groups, Rounding.R)
        groups = (_e2m1(codes) * _e8m0(e)[..., None]).float()
    codes, e = _quantize_group(groups, spec.rounding)
    codes = codes.flatten(-2)
    return codes[..., 0::2] | codes[..., 1::2] << 4, e


def dequantize(values: torch.Tensor, scales: torch.Tensor, spec: IndexerSpec) -> torch.Tensor:
    """[..., D] float32 from values and scales; beyond the fp32 range infinity.

    e8m0 byte 0 is 2^-127 and byte 255 is NaN.
    """
    return exact((values, scales), spec).float()


def write_cache(
    cache: torch.Tensor,
    values: torch.Tensor,
    scales: torch.Tensor,
    slot_mapping: torch.Tensor,
    spec: IndexerSpec,
) -> None:
    """Put entry n into slot `slot_mapping[n]` = page * P + offset of the cache, in place.

    Slots < 0 or past the last page are skipped; no other byte changes. A slot may appear once.

    Args:
        cache: [num_pages, >= page_bytes] uint8, any page stride.
        values, scales: [N, ...] as `quantize` returns them.
        slot_mapping: [N] int64.
    """
    keep = (slot_mapping >= 0) & (slot_mapping < cache.shape[0] * spec.page_size)
    slots = slot_mapping[keep]
    scale_bytes = scales.contiguous().view(torch.uint8).view(-1, spec.scale_bytes)
    value_bytes = values.contiguous().view(torch.uint8).view(-1, spec.value_bytes)
    entries = torch.cat([value_bytes, scale_bytes], dim=1)[keep]
    offsets = layout.page_offsets(spec).to(cache.device)[slots % spec.page_size]
    cache[(slots // spec.page_size)[:, None], offsets] = entries


def gather_cache(
    cache: torch.Tensor,
    block_table: torch.Tensor,
    row_to_request: torch.Tensor,
    entries: torch.Tensor,
    spec: IndexerSpec,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Raw values and scales of entry `entries[r]` of request `row_to_request[r]`.

    Entries < 0, beyond the block table, or on a page id outside [0, num_pages) give zero bytes.

    Args:
        cache: [num_pages, >= page_bytes] uint8, any page stride.
        block_table: [B, W] int32 page ids.
        row_to_request: [R] int32 row of the block table.
        entries: [R] int32 entry numbers within the request.

    Returns:
        values [R, value_bytes] uint8; scales [R, D/32] uint8 (FP4) or [R] float32 (FP8).
    """
    page, visible = _pages(block_table, row_to_request, entries[:, None], cache.shape[0], spec)
    offsets = layout.page_offsets(spec).to(cache.device)[entries.long().clamp(0) % spec.page_size]
    found = cache[page, offsets] if cache.shape[0] else cache.new_zeros(offsets.shape)
    found = found * visible
    values, scales = found[:, : spec.value_bytes], found[:, spec.value_bytes :].contiguous()
    return values.contiguous(), scales if spec.is_fp4 else scales.view(torch.float32)[:, 0]


def mqa_logits(
    q: torch.Tensor, k: torch.Tensor, weights: torch.Tensor, start: torch.Tensor, end: torch.Tensor
) -> torch.Tensor:
    """logits[t, j] = sum_h weights[t, h] * relu(sum_d q[t, h, d] * k[j, d]), start <= j < end.

    Args:
        q: [T, H, D] queries, dequantised (any float dtype; float64 is exact).
        k: [K, D] keys, dequantised.
        weights: [T, H] float32, all constant factors folded in, any sign.
        start, end: [T] int32, window of each row; empty if end <= start.

    Returns:
        [T, K] float32; -inf outside the window.
    """
    logits = torch.full((q.shape[0], k.shape[0]), NEG_INF, device=q.device)
    k64, column = k.double(), torch.arange(k.shape[0], device=k.device)
    for t in range(q.shape[0]):
        score = torch.relu(q[t].double() @ k64.T)
        inside = (column >= start[t]) & (column < end[t])
        logits[t, inside] = (weights[t].double() @ score).float()[inside]
    return logits


def paged_mqa_logits(
    q: torch.Tensor,
    weights: torch.Tensor,
    cache: torch.Tensor,
    block_table: torch.Tensor,
    row_to_request: torch.Tensor,
    start: torch.Tensor,
    end: torch.Tensor,
    width: int,
    spec: IndexerSpec,
) -> torch.Tensor:
    """`mqa_logits` over the entries of each row's own sequence: [T, width] float32.

    Column j is entry j of the sequence of request `row_to_request[t]`. Entries beyond the block
    table or on a page id outside [0, num_pages) are invisible (-inf), as is a row whose request
    is outside the block table.
    """
    logits = torch.full((q.shape[0], width), NEG_INF, device=q.device)
    column = torch.arange(width, device=q.device)
    for t in range(q.shape[0]):
        inside = (column >= start[t]) & (column < end[t])
        request = row_to_request[t].expand(width)
        _, visible = _pages(block_table, request, column[:, None], cache.shape[0], spec)
        entries = column[inside & visible[:, 0]]
        raw = gather_cache(cache, block_table, request[: len(entries)], entries, spec)
        score = torch.relu(q[t].double() @ exact(raw, spec).T)
        logits[t, entries] = (weights[t].double() @ score).float()
    return logits


def topk(logits: torch.Tensor, k: int, start: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
    """[T, k] int32: columns of the k largest logits in each row's window, relative to its start.

    Largest first; equal logits (and +0, -0): lowest column first. NaN and -inf are never selected;
    -1 once nothing else is left. Nothing outside [start, end) is looked at.
    """
    column = torch.arange(logits.shape[1], device=logits.device)
    inside = (column >= start[:, None]) & (column < end[:, None])
    eligible = inside & (logits > NEG_INF)  # false for NaN
    ranked = torch.where(eligible, logits, NEG_INF)
    order = torch.argsort(ranked, dim=1, descending=True, stable=True)[:, :k]
    chosen = torch.where(eligible.gather(1, order), order - start.clamp(0)[:, None], -1)
    return pad(chosen, (0, k - chosen.shape[1]), value=-1).to(torch.int32)


def index_topk(
    q: torch.Tensor,
    weights: torch.Tensor,
    cache: torch.Tensor,
    block_table: torch.Tensor,
    row_to_request: torch.Tensor,
    start: torch.Tensor,
    end: torch.Tensor,
    spec: IndexerSpec,
    *,
    skip_short: bool = True,
) -> torch.Tensor:
    """`topk` of `paged_mqa_logits`: [T, k] int32 entries relative to each row's start.

    With `skip_short` a window of at most k entries is not scored: the answer is its entries in
    ascending order, those on invalid pages left out, then -1.
    """
    width = block_table.shape[1] * spec.page_size
    logits = paged_mqa_logits(
        q, weights, cache, block_table, row_to_request, start, end, width, spec
    )
    if skip_short:
        column = torch.arange(width, device=q.device)
        inside = (column >= start[:, None]) & (column < end[:, None])
        request = row_to_request[:, None].expand(-1, width).reshape(-1)
        each = column.repeat(q.shape[0])[:, None]
        _, visible = _pages(block_table, request, each, cache.shape[0], spec)
        seen = inside & visible.view(inside.shape)
        short = (end.long() - start.long().clamp(0) <= spec.topk)[:, None]
        logits = torch.where(short, torch.where(seen, -column.float(), NEG_INF), logits)
    return topk(logits, spec.topk, start, end)


def as_ids(
    chosen: torch.Tensor,
    ids: str,
    start: torch.Tensor,
    block_table: torch.Tensor,
    row_to_request: torch.Tensor,
    spec: IndexerSpec,
) -> torch.Tensor:
    """Relative entries [T, k] as `ids`: "relative", "entry" of the request, or "slot"."""
    entry = chosen + start.clamp(0)[:, None]
    if ids == "slot":
        table = block_table[row_to_request.long().clamp(0, max(block_table.shape[0] - 1, 0))]
        page = table.gather(1, (entry // spec.page_size).long().clamp(0, table.shape[1] - 1))
        entry = page * spec.page_size + entry % spec.page_size
    return chosen if ids == "relative" else torch.where(chosen < 0, -1, entry)


def _pages(
    block_table: torch.Tensor,
    row_to_request: torch.Tensor,
    entries: torch.Tensor,
    num_pages: int,
    spec: IndexerSpec,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Page of each entry [R, 1], 0 where it is not visible, and whether it is visible [R, 1]."""
    requests, width = block_table.shape
    entry, request = entries.long(), row_to_request.long()[:, None]
    known = (entry >= 0) & (entry < width * spec.page_size)
    known &= (request >= 0) & (request < requests)
    flat = request * width + entry // spec.page_size
    page = torch.zeros_like(entry)
    page[known] = block_table.reshape(-1)[flat[known]].long()
    visible = known & (page >= 0) & (page < num_pages)
    return page * visible, visible


def exact(vectors: Sequence[torch.Tensor], spec: IndexerSpec) -> torch.Tensor:
    """[..., D] float64 numbers of (values, scales) or, in format BF16, (numbers,): no rounding."""
    values, scales = vectors[0], vectors[-1]
    if spec.format is Format.BF16:
        return values.double()
    if spec.format is Format.FP4:
        codes = torch.stack([values & 15, values >> 4], dim=-1).flatten(-2)
        grouped: torch.Tensor = _e2m1(codes).unflatten(-1, (-1, GROUP)) * _e8m0(scales)[..., None]
        return grouped.flatten(-2)
    kind = torch.float8_e4m3fn if spec.format is Format.FP8 else torch.float8_e4m3fnuz
    return values.view(kind).double() * scales.double()[..., None]


def _e2m1(codes: torch.Tensor) -> torch.Tensor:
    magnitude = E2M1.to(codes.device)[(codes & 7).long()].double()
    return torch.where(codes >= 8, -magnitude, magnitude)


def _e8m0(e: torch.Tensor) -> torch.Tensor:
    scale = torch.ldexp(torch.ones_like(e, dtype=torch.float64), e.double() - 127)
    return torch.where(e == 255, float("nan"), scale)


def _ceil_exponent(x: torch.Tensor) -> torch.Tensor:
    """127 + ceil(log2(x)) of normal positive floats, by bit test: log2 itself rounds."""
    bits = x.view(torch.int32)
    return (bits >> 23) + ((bits & 0x7FFFFF) != 0).int()


def _quantize_group(x: torch.Tensor, rounding: Rounding) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [..., 32] uint8 and scale byte [...] uint8 of groups [..., 32] float32."""
    finite = x.isfinite().all(-1)
    x = torch.where(finite[..., None], x, 0.0)
    amax = x.abs().amax(-1)
    e = _ceil_exponent((amax * (1 / 6)).clamp_min(FLOOR[rounding]))
    scaled = x * ((254 - e) << 23).view(torch.float32)[..., None]
    midpoints = ((E2M1[1:] + E2M1[:-1]) / 2).to(x.device)
    above = scaled.abs()[..., None] > midpoints
    if rounding in (Rounding.R, Rounding.S2):  # a tie goes to the even code
        above |= (scaled.abs()[..., None] == midpoints) & (
            torch.arange(7, device=x.device) % 2 == 1
        )
    codes = above.sum(-1)
    negative = scaled.signbit()
    if rounding in (Rounding.D, Rounding.S):
        negative &= codes > 0
    codes = (codes + 8 * negative) * finite[..., None]
    return codes.to(torch.uint8), torch.where(finite, e, 255).to(torch.uint8)


def _quantize_fp8(x: torch.Tensor, kind: Format) -> tuple[torch.Tensor, torch.Tensor]:
    dtype = torch.float8_e4m3fn if kind is Format.FP8 else torch.float8_e4m3fnuz
    largest = torch.finfo(dtype).max
    finite = x.isfinite().all(-1)
    x = torch.where(finite[..., None], x, 0.0)
    e = _ceil_exponent(x.abs().amax(-1).clamp_min(1e-4) / largest)
    values = (x * ((254 - e) << 23).view(torch.float32)[..., None]).to(dtype).view(torch.uint8)
    scale = torch.where(finite, (e << 23).view(torch.float32), float("nan"))
    return values, scale
