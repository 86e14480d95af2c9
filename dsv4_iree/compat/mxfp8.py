# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""MXFP8 vectors as DeepGEMM has them: e4m3fn values, one e8m0 scale per 32 dims, four to an int32.

No kernel reads them. An e4m3 number times a power of two is a bfloat16 number, so they are scored
as such, exactly; keys that lie in a cache are converted a row or request at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from dsv4_iree.compat import keys
from dsv4_iree.compat.serve import Quantized, float_logits, ready
from dsv4_iree.errors import ArgumentError
from dsv4_iree.spec import GROUP


def numbers(name: str, values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """[..., D] bfloat16 of values [..., D] and scales, int32 [...] or bytes [..., D/32].

    Scale byte 255 is NaN. Exact in bfloat16's range of normal numbers.
    """
    if values.dtype is not torch.float8_e4m3fn:
        raise ArgumentError(
            f"{name}: expected dtype float8_e4m3fn beside e8m0 scales, got {values.dtype}"
        )
    groups = values.shape[-1] // GROUP
    each = {torch.int32: 1, torch.uint8: groups}.get(scales.dtype, 0)
    if scales.numel() != values.numel() // values.shape[-1] * each:
        raise ArgumentError(
            f"{name} scales: expected int32 or uint8 of {groups} groups a vector, "
            f"got {list(scales.shape)} of {scales.dtype}"
        )
    width = 4 if scales.dtype is torch.int32 else groups
    raw = ready(scales).view(torch.uint8).view(*values.shape[:-1], width)
    e = raw[..., :groups]  # the upper bytes of an int32 are unused at D = 32 and 64
    factors = torch.ldexp(torch.ones_like(e, dtype=torch.float64), e.double() - 127)
    factors = torch.where(e == 255, float("nan"), factors)
    products: torch.Tensor = values.double().unflatten(-1, (groups, GROUP)) * factors[..., None]
    return products.flatten(-2).bfloat16()


def entries(cache: torch.Tensor, page: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """[n, D] bfloat16 of entry t[i] of page[i] in a cache [pages, P, 1, D + 4], laid out as N8."""
    page_size, dim = cache.shape[1], cache.shape[3] - 4
    values, scales = keys.pages(cache).split([page_size * dim, page_size * 4], dim=1)
    k, e = (part.unflatten(1, (page_size, -1))[page, t] for part in (values, scales))
    return numbers("kv_cache", k.view(torch.float8_e4m3fn), e[:, : dim // GROUP])


def own_keys_logits(
    q: torch.Tensor,
    weights: torch.Tensor,
    end: torch.Tensor,
    width: int,
    keys_of: Callable[[int], torch.Tensor],
) -> torch.Tensor:
    """[B * n, width] fp32 logits of queries [B, n, H, D] over `keys_of(b)`, [width, D] bfloat16.

    Args:
        end: [B * n] keys that each row sees.
    """
    count = q.shape[1]
    logits = torch.empty(len(end), width, device=q.device)
    for request in range(q.shape[0]):
        rows = slice(request * count, (request + 1) * count)
        stop = ready(end[rows], torch.int32)
        start = torch.zeros_like(stop)
        logits[rows] = float_logits(q[request], keys_of(request), weights[rows], start, stop)
    return logits


def paged_logits(
    q: Quantized,
    cache: torch.Tensor,
    weights: torch.Tensor,
    end: torch.Tensor,
    block_table: torch.Tensor,
    width: int,
) -> torch.Tensor:
    """[B * n, width] fp32 logits of q [B, n, H, D] over cached keys; -inf where no page is."""
    page_size, count = cache.shape[1], q[0].shape[1]
    columns = min(width, block_table.shape[1] * page_size)
    logits = torch.full((len(end), width), float("-inf"), device=cache.device)
    if not columns or not cache.shape[0]:
        return logits
    ids, table = keys.used_pages(block_table, cache.shape[0], columns, page_size)
    column = torch.arange(columns, device=cache.device)
    pages, t = ids.view(table.shape), column % page_size
    logits[:, :columns] = own_keys_logits(
        numbers("q", *q),
        weights,
        end,
        columns,
        lambda request: entries(cache, pages[request, column // page_size], t),
    )
    missing = (table < 0)[:, column // page_size].repeat_interleave(count, dim=0)
    logits[:, :columns].masked_fill_(missing, float("-inf"))
    return logits
