# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""AITER's Gluon MXFP4 scorer (pa_mqa_logits_mxfp4.py): dense, over candidate blocks, block maxima.

A list of candidates is a block table over pages of one block each, into which the listed keys are
gathered. Schedules are accepted and not read.
"""

from __future__ import annotations

from typing import Any

import torch

from dsv4_iree import layout, windows
from dsv4_iree.compat import keys
from dsv4_iree.compat.aiter import compute_varqlen_windows
from dsv4_iree.compat.serve import Quantized, filled, fp4, given, indexer, ready
from dsv4_iree.errors import ArgumentError
from dsv4_iree.spec import CacheLayout, IndexerSpec

Gather = dict[str, Any]


def paged_mxfp4_mqa_logits(
    q: torch.Tensor,
    q_scales: torch.Tensor,
    kv_cache: torch.Tensor,
    weights: torch.Tensor,
    context_lens: torch.Tensor,
    block_table: torch.Tensor,
    max_model_len: int,
    kv_scale_cache: torch.Tensor | None = None,
    out_logits: torch.Tensor | None = None,
    clean_logits: bool = True,
    preshuffle: int = 1,
    scale_mode: int = 1,
    dynamic: int = 0,
    schedule: torch.Tensor | None = None,
    row_ends: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
    next_n: int | None = None,
    use_gather: bool = False,
    candidates: torch.Tensor | Gather | None = None,
    block_scores: torch.Tensor | None = None,
    calc_logits: bool = True,
    calc_block_scores: bool = False,
    candidate_block_size: int = 8,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """[R, max_model_len] fp32 logits of R = B * next_n rows, block scores, or both.

    Row n of request b sees keys up to context_lens[b] - next_n + n, or those before row_ends.

    Args:
        q: [B, next_n, H, D/2] bytes; q_scales: [B, next_n, H, D/32] bytes. Without their first
            dim, [R, H, ...], with query_start_loc.
        kv_cache: [pages, P, 1, 17 * D / 32] uint8: G4 pages, or N4 with preshuffle=0.
        kv_scale_cache: [pages, P, 1, D/32], the scales where kv_cache is [pages, P, 1, D/2] values
            alone; both are put together on every call.
        scale_mode: 1 as the kernels read G4, or 0, which is converted on every call.
        clean_logits: False leaves `out_logits` as it is outside the windows.
        query_start_loc: [B + 1] int32, where each request's rows start; the last row of a request
            sees its whole context. `next_n` only plans work there and is not read.
        candidates: [R, K] int32 block ids in any order, those < 0 or behind a row's keys left out,
            or what `build_candidate_gather` gave, with row_ends its counts. With use_gather column
            j is key j % block of the block j // block in ascending order; columns behind are -inf.
        block_scores: [R, ceil(max_model_len / candidate_block_size)] fp32: with calc_block_scores
            the largest logit of each block, +inf in the block of a row's last key. Blocks behind
            context_lens are -inf, or stay as they are in the caller's tensor.
    """
    _consistent(use_gather, candidates, query_start_loc, calc_logits, calc_block_scores, out_logits)
    request, end = _rows(q, context_lens, query_start_loc)
    end = end if row_ends is None else ready(row_ends.flatten(), torch.int32)
    packed = query_start_loc is not None
    queries = fp4("q", *((q, q_scales) if packed else (q.flatten(0, 1), q_scales.flatten(0, 1))))
    heads, dim = queries[0].shape[1], 2 * queries[0].shape[2]
    table = ready(block_table, torch.int32)
    if isinstance(candidates, dict):  # slots of the cache as it is: all of its pages, in order
        table = torch.arange(len(kv_cache), dtype=torch.int32, device=q.device)[None]
    width = table.shape[1] * kv_cache.shape[1] if use_gather else max_model_len
    cache, table, numbers = _readable(
        (kv_cache, kv_scale_cache), table, width, (heads, dim), preshuffle, scale_mode
    )
    if use_gather:
        if isinstance(candidates, dict):
            block, slots = candidates["block"], candidates["slots"]
            if row_ends is None:
                raise ArgumentError("row_ends: expected the counts beside gathered candidates")
        else:
            assert candidates is not None
            block = candidate_block_size
            _, slots, end = _slots(
                candidates, end, table[request.long()], numbers["page_size"], block
            )
        cache, table = _block_pages(cache, slots, block, numbers)
        numbers = {"num_heads": heads, "head_dim": dim, "page_size": block}
        request = torch.arange(len(table), dtype=torch.int32, device=q.device)
    out, copied = (None, False) if out_logits is None else filled(out_logits, max_model_len)
    logits = indexer(q.device, **numbers).paged_mqa_logits(
        queries,
        ready(weights, torch.float32),
        cache,
        table,
        ready(end),
        row_to_request=ready(request),
        width=max_model_len,
        clean=clean_logits or out is None,
        out=out,
    )
    if not calc_block_scores:
        return given(out_logits, logits, copied)
    context = context_lens[request.long()]
    scores = _maxima(logits, end, context, candidate_block_size, block_scores)
    return (given(out_logits, logits, copied), scores) if calc_logits else scores


def build_candidate_gather(
    candidates: torch.Tensor,
    ends: torch.Tensor,
    block_table: torch.Tensor,
    kv_cache: torch.Tensor,
    num_heads: int,
    head_size: int,
    block: int = 8,
    kv_scale_cache: torch.Tensor | None = None,
) -> tuple[Gather, torch.Tensor]:
    """What several `paged_mxfp4_mqa_logits` calls take as `candidates`, and their row_ends.

    Args:
        candidates: [R, K] int32 block ids in any order; those < 0 or behind `ends` are left out.
        ends: [R] int32 keys that each row sees.
        block_table: [R, W] int32, a row of the table for each query row.
    """
    positions, slots, counts = _slots(candidates, ends, block_table, kv_cache.shape[1], block)
    return {"slots": slots, "block": block, "positions": positions}, counts


def _consistent(
    use_gather: bool,
    candidates: object,
    query_start_loc: object,
    calc_logits: bool,
    calc_block_scores: bool,
    out_logits: object,
) -> None:
    """AITER's rules of which arguments go together."""
    if use_gather == (candidates is None):
        raise ArgumentError("candidates: expected a list with use_gather=True, and only then")
    if use_gather and (query_start_loc is not None or calc_block_scores):
        raise ArgumentError(
            "use_gather: expected False with query_start_loc or calc_block_scores, got True"
        )
    if not calc_logits and (not calc_block_scores or out_logits is not None):
        raise ArgumentError(
            "calc_logits: expected True without calc_block_scores or with out_logits, got False"
        )


def _rows(
    q: torch.Tensor, context_lens: torch.Tensor, query_start_loc: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Request and end of each row, both [R] int32."""
    lens = ready(context_lens, torch.int32)
    if query_start_loc is None:
        end = windows.from_context_lens(lens, q.shape[1])
        row = torch.arange(len(end), dtype=torch.int32, device=q.device)
        return row // q.shape[1], end
    request, _, end = compute_varqlen_windows(query_start_loc, lens, q.shape[0])
    return request, end


def _readable(
    caches: tuple[torch.Tensor, torch.Tensor | None],
    table: torch.Tensor,
    width: int,
    sizes: tuple[int, int],
    preshuffle: int,
    scale_mode: int,
) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Pages as a kernel reads them, their block table and spec numbers.

    Scales in tensors of their own or in mode 0 are brought into N4: of the pages that columns
    below `width` can name.
    """
    kv_cache, scale_cache = caches
    page_size, (heads, dim) = kv_cache.shape[1], sizes
    numbers: dict[str, Any] = {"num_heads": heads, "head_dim": dim, "page_size": page_size}
    shuffled = IndexerSpec(**numbers, layout=CacheLayout.G4 if preshuffle else CacheLayout.N4)
    if scale_cache is None and (scale_mode == 1 or not preshuffle):
        return keys.pages(kv_cache), table, {**numbers, "layout": shuffled.layout}
    ids, table = keys.used_pages(table, kv_cache.shape[0], width, page_size)
    parts = [keys.pages(part)[ids] for part in caches if part is not None]
    narrow = preshuffle and scale_mode == 0
    offsets = _narrow_scales(shuffled) if narrow else layout.page_offsets(shuffled)
    entries = torch.cat(parts, dim=1)[:, offsets.to(kv_cache.device)]
    return layout.from_entries(IndexerSpec(**numbers), entries), table, numbers


def _narrow_scales(spec: IndexerSpec) -> torch.Tensor:
    """`layout.page_offsets` of G4 pages whose scales are ordered [tile, group, entry]: mode 0."""
    offsets = layout.page_offsets(spec)
    n, groups = spec.tokens_per_tile, spec.scale_bytes
    t, g = torch.arange(spec.page_size)[:, None], torch.arange(groups)[None, :]
    first = spec.page_size * spec.value_bytes
    offsets[:, spec.value_bytes :] = first + t // n * n * groups + g * n + t % n
    return offsets


def _slots(
    candidates: torch.Tensor, end: torch.Tensor, table: torch.Tensor, page_size: int, block: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """First keys of the blocks in ascending order and their slots [R, K], keys in all [R]: int32.

    The blocks of a row that has fewer than K are followed by its last one, which the count leaves
    out. A slot is page * page_size + key % page_size, or -1 where the table has no page.
    """
    if page_size % block:
        raise ArgumentError(f"block: expected a divisor of {page_size}, got {block}")
    end = end.long()[:, None]
    total = -(-end // block)
    listed = (candidates >= 0) & (candidates < total)
    last = (total - 1).clamp(0)
    none = torch.iinfo(torch.int32).max
    ordered = torch.where(listed, candidates.long(), none).sort(dim=1).values
    first = torch.where(ordered == none, last, ordered) * block
    highest = torch.where(listed, candidates.long(), -1).amax(1)
    tail = (end[:, 0] - highest * block).clamp(max=block)
    count = listed.sum(1)
    counts = torch.where(count > 0, (count - 1) * block + tail, 0)
    column = first // page_size
    inside = column < table.shape[1]
    page = table.gather(1, torch.where(inside, column, 0)).long()
    slots = torch.where(inside & (page >= 0), page * page_size + first % page_size, -1)
    return first.int(), slots.clamp(max=none).int(), counts.int()


def _block_pages(
    cache: torch.Tensor, slots: torch.Tensor, block: int, numbers: dict[str, Any]
) -> Quantized:
    """The listed blocks as N4 pages of `block` keys, and their block table [R, K]."""
    known = (slots >= 0) & (slots < len(cache) * numbers["page_size"])
    slot = slots[:, :, None] + torch.arange(block, dtype=torch.int32, device=slots.device)
    slot = ready(torch.where(known[:, :, None], slot, -1).flatten(), torch.int32)
    whole = torch.arange(len(cache), dtype=torch.int32, device=cache.device)[None]
    found = indexer(cache.device, **numbers).gather_cache(
        cache, whole, torch.zeros_like(slot), slot
    )
    entries = torch.cat(tuple(found), dim=1).unflatten(0, (-1, block))
    spec = IndexerSpec(head_dim=numbers["head_dim"], page_size=block)
    number = torch.arange(slots.numel(), device=slots.device).view(slots.shape)
    return layout.from_entries(spec, entries), torch.where(known, number, -1).int()


def _maxima(
    logits: torch.Tensor,
    end: torch.Tensor,
    context: torch.Tensor,
    block: int,
    out: torch.Tensor | None,
) -> torch.Tensor:
    """Largest logit of each block, +inf in that of the row's last key; into `out` up to context."""
    width = logits.shape[1]
    column = torch.arange(width, device=logits.device)
    seen = logits.masked_fill(column >= end[:, None], float("-inf"))
    blocks = -(-width // block)
    padded = torch.nn.functional.pad(seen, (0, blocks * block - width), value=float("-inf"))
    scores: torch.Tensor = padded.unflatten(1, (blocks, block)).amax(2)
    number = torch.arange(blocks, device=logits.device)
    newest = (number == ((end - 1) // block)[:, None]) & (end > 0)[:, None]
    scores = scores.masked_fill(newest, float("inf"))
    if out is None:
        return scores
    written = number < -(-context // block)[:, None]
    out[:, :blocks] = torch.where(written, scores, out[:, :blocks])
    return out
