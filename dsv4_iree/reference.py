# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The meaning of every op, in plain torch. This file is the specification.

Slow and readable on purpose: no kernel imports it and it imports no kernel. Scores are added up in
float64 and rounded once, so every e8m0 scale from 2^-127 to 2^127 keeps its exact meaning.
"""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from dsv4_iree import layout
from dsv4_iree.formats import exact, hadamard, quantize_fp4, quantize_fp8, rope, to_zero
from dsv4_iree.spec import IndexerSpec, Intermediate

NEG_INF = float("-inf")


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
    if spec.is_fp4:
        return quantize_fp4(x.float(), spec.rounding)
    return quantize_fp8(x.float(), spec.format)


def quantize_queries(
    q: torch.Tensor,
    weights: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    factors: tuple[float, float],
    intermediate: Intermediate,
    spec: IndexerSpec,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries and weights as the logits ops take them: RoPE, then `quantize`, factors folded in.

    weights become weights * factors[0] * factors[1], each product rounded to fp32 and to zero below
    2^-126. In FP8 they are multiplied by the vector's scale before that, and its scale is 1.

    Args:
        q: [T, H, D] float32 or bfloat16; weights: [T, H].
        positions: [T] int64; one outside the table leaves its row as it is.
        cos_sin: [max_pos, R], see `formats.rope`.
        intermediate: whether q is rounded to bf16 after RoPE and after the rotation.

    Returns:
        values, scales as of `quantize`; weights [T, H] float32.
    """
    x = rope(q, positions, cos_sin)
    x = x.bfloat16() if intermediate is Intermediate.BF16 else x
    values, scales = quantize(x, spec)
    folded = to_zero(weights.float())
    if not spec.is_fp4:
        folded = to_zero(folded * scales)
        scales = torch.ones_like(scales)
    for factor in factors:
        folded = to_zero(folded * torch.tensor(factor, dtype=torch.float32))
    return values, scales, folded


def dequantize(values: torch.Tensor, scales: torch.Tensor, spec: IndexerSpec) -> torch.Tensor:
    """[..., D] float32 from values and scales; beyond the fp32 range infinity.

    e8m0 byte 0 is 2^-127 and byte 255 is NaN.
    """
    return exact((values, scales), spec).float()


def write_cache(
    cache: torch.Tensor | tuple[torch.Tensor, ...],
    values: torch.Tensor,
    scales: torch.Tensor,
    slot_mapping: torch.Tensor,
    spec: IndexerSpec,
) -> None:
    """Put entry n into slot `slot_mapping[n]` = page * P + offset of the cache, in place.

    Slots < 0 or past the last page are skipped; no other byte changes. A slot may appear once.

    Args:
        cache: [num_pages, >= page_bytes] uint8, any page stride; for layout F4 a pair of them, of
            P * D/2 bytes of values and P * D/32 of scales.
        values, scales: [N, ...] as `quantize` returns them.
        slot_mapping: [N] int64.
    """
    memory = cache if isinstance(cache, tuple) else (cache,)
    keep = (slot_mapping >= 0) & (slot_mapping < memory[0].shape[0] * spec.page_size)
    slots = slot_mapping[keep]
    scale_bytes = scales.contiguous().view(torch.uint8).view(-1, spec.scale_bytes)
    value_bytes = values.contiguous().view(torch.uint8).view(-1, spec.value_bytes)
    entries = torch.cat([value_bytes, scale_bytes], dim=1)[keep]
    offsets = layout.page_offsets(spec).to(slots.device)[slots % spec.page_size]
    for part, columns in zip(memory, _columns(memory, spec)):
        part[(slots // spec.page_size)[:, None], offsets[:, columns]] = entries[:, columns]


def gather_cache(
    cache: torch.Tensor | tuple[torch.Tensor, ...],
    block_table: torch.Tensor,
    row_to_request: torch.Tensor,
    entries: torch.Tensor,
    spec: IndexerSpec,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Raw values and scales of entry `entries[r]` of request `row_to_request[r]`.

    Entries < 0, beyond the block table, or on a page id outside [0, num_pages) give zero bytes.

    Args:
        cache: as in `write_cache`.
        block_table: [B, W] int32 page ids.
        row_to_request: [R] int32 row of the block table.
        entries: [R] int32 entry numbers within the request.

    Returns:
        values [R, value_bytes] uint8; scales [R, D/32] uint8 (FP4) or [R] float32 (FP8).
    """
    memory = cache if isinstance(cache, tuple) else (cache,)
    num_pages, token = memory[0].shape[0], entries.long().clamp(0) % spec.page_size
    page, visible = _pages(block_table, row_to_request, entries[:, None], num_pages, spec)
    offsets = layout.page_offsets(spec).to(entries.device)[token]
    found = torch.zeros(offsets.shape, dtype=torch.uint8, device=entries.device)
    for part, columns in zip(memory, _columns(memory, spec)):
        if num_pages:
            found[:, columns] = part[page, offsets[:, columns]] * visible
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
    inside, k64 = _inside(start, end, k.shape[0]), k.double()
    for t in range(q.shape[0]):
        score = torch.relu(q[t].double() @ k64[inside[t]].T)
        logits[t, inside[t]] = (weights[t].double() @ score).float()
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
    seen = _visible(block_table, row_to_request, start, end, width, cache.shape[0], spec)
    for t in range(q.shape[0]):
        entries = seen[t].nonzero()[:, 0]
        request = row_to_request[t].expand(len(entries))
        raw = gather_cache(cache, block_table, request, entries, spec)
        score = torch.relu(q[t].double() @ exact(raw, spec).T)
        logits[t, entries] = (weights[t].double() @ score).float()
    return logits


def topk(
    logits: torch.Tensor,
    k: int,
    start: torch.Tensor,
    end: torch.Tensor,
    *,
    sorted: bool = True,
) -> torch.Tensor:
    """[T, k] int32: columns of the k largest logits in each row's window, relative to its start.

    Largest first; equal logits (and +0, -0): lowest column first. NaN and -inf are never selected;
    -1 once nothing else is left. Nothing outside [start, end) is looked at. Not `sorted`: the same
    columns in ascending order.
    """
    eligible = _inside(start, end, logits.shape[1]) & (logits > NEG_INF)  # false for NaN
    ranked = torch.where(eligible, logits, NEG_INF)
    order = torch.argsort(ranked, dim=1, descending=True, stable=True)[:, :k]
    found = eligible.gather(1, order)
    if not sorted:
        order = torch.where(found, order, logits.shape[1]).sort(dim=1).values
        found = order < logits.shape[1]
    chosen = torch.where(found, order - start.clamp(0)[:, None], -1)
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
    rows = (block_table, row_to_request, start, end)
    logits = paged_mqa_logits(q, weights, cache, *rows, width, spec)
    if skip_short:
        seen = _visible(*rows, width, cache.shape[0], spec)
        ascending = torch.where(seen, -torch.arange(width, device=q.device).float(), NEG_INF)
        short = end.long() - start.long().clamp(0) <= spec.topk
        logits = torch.where(short[:, None], ascending, logits)
    return topk(logits, spec.topk, start, end)


def as_ids(
    chosen: torch.Tensor,
    ids: str,
    start: torch.Tensor,
    block_table: torch.Tensor | None,
    row_to_request: torch.Tensor | None,
    spec: IndexerSpec,
) -> torch.Tensor:
    """Relative entries [T, k] as `ids`: "relative", "entry" of the request, or "slot".

    A slot is page * P + offset; -1 for an entry without a page: beyond the block table, of a
    request outside it, or on a negative page id.
    """
    if ids == "relative":
        return chosen
    entry = torch.where(chosen < 0, -1, chosen + start.clamp(0)[:, None])
    if ids == "entry":
        return entry
    assert block_table is not None
    assert row_to_request is not None
    page, _ = _pages(block_table, row_to_request, entry, 2**31, spec, missing=-1)
    return torch.where(page < 0, -1, page * spec.page_size + entry % spec.page_size).int()


def _columns(memory: tuple[torch.Tensor, ...], spec: IndexerSpec) -> tuple[slice, ...]:
    """The bytes of an entry that each memory of the cache holds: all, or values and scales."""
    cut = spec.value_bytes
    return (slice(None),) if len(memory) == 1 else (slice(cut), slice(cut, None))


def _inside(start: torch.Tensor, end: torch.Tensor, width: int) -> torch.Tensor:
    """[T, width]: whether column j is in row t's window."""
    column = torch.arange(width, device=start.device)
    return (column >= start[:, None]) & (column < end[:, None])


def _visible(
    block_table: torch.Tensor,
    row_to_request: torch.Tensor,
    start: torch.Tensor,
    end: torch.Tensor,
    width: int,
    num_pages: int,
    spec: IndexerSpec,
) -> torch.Tensor:
    """[T, width]: whether entry j is in row t's window, in its table and on a page that exists."""
    entries = torch.arange(width, device=start.device).repeat(len(start), 1)
    _, visible = _pages(block_table, row_to_request, entries, num_pages, spec)
    return visible & _inside(start, end, width)


def _pages(
    block_table: torch.Tensor,
    row_to_request: torch.Tensor,
    entries: torch.Tensor,
    num_pages: int,
    spec: IndexerSpec,
    missing: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Page of each entry [R, n], `missing` if it is not visible, and whether it is [R, n]."""
    requests, width = block_table.shape
    entry, request = entries.long(), row_to_request.long()[:, None]
    known = (entry >= 0) & (entry < width * spec.page_size)
    known &= (request >= 0) & (request < requests)
    flat = request * width + entry // spec.page_size
    page = torch.zeros_like(entry)
    page[known] = block_table.reshape(-1)[flat[known]].long()
    visible = known & (page >= 0) & (page < num_pages)
    return torch.where(visible, page, missing), visible
