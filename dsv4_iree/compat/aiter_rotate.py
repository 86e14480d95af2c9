# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""AITER's rotate-quantise-write ops (dsv4_rotate_quant.cu): norm, RoPE, Hadamard, quantise.

Norm and RoPE run in plain torch, in fp32 up to the quantiser as there; rotation and rounding are
`Indexer.quantize` in profile R. cos and sin are [max_pos, rope_dim / 2], GPT-J pairs.
"""

from __future__ import annotations

import torch

from dsv4_iree.compat import keys
from dsv4_iree.compat.serve import Quantized, indexer, not_offered, ready
from dsv4_iree.errors import ArgumentError
from dsv4_iree.formats import hadamard


def rope_rotate_activation(
    out: torch.Tensor,
    input: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    rope_dim: int,
    out_scale: torch.Tensor | None = None,
    group_size: int = 128,
    shuffle_scale: bool = True,
    do_rotate_act: bool = True,
) -> None:
    """Queries [T, H, D]: RoPE on the last rope_dim dims, then Hadamard, into `out`.

    Without out_scale `out` has the dtype of `input`. With group_size 32 it takes MXFP4 bytes
    [T, H, D/2] and out_scale their scales: [T, D/128, 4, 16, 4 * ceil(H / 64)] with shuffle_scale,
    else [T, H, D/32]. FP8 output (group_size 128) is not offered.
    """
    x = _rope(input.float(), cos, sin, positions, rope_dim)
    if out_scale is None:
        out.copy_(hadamard(x) if do_rotate_act else x)
        return
    if group_size != 32:
        reason = "FP8 queries with a scale that is no power of two have no quantiser here"
        not_offered("rope_rotate_activation", reason, "use group_size=32, or quantise its bf16")
    rows, heads, head_dim = input.shape
    values, scales = _quantize(x.view(-1, head_dim), do_rotate_act)
    out.view(torch.uint8).copy_(values.view(rows, heads, -1))
    scales = scales.view(rows, heads, -1)
    if shuffle_scale:
        scales = _by_lane(scales)
    out_scale.view(torch.uint8).copy_(scales.view(out_scale.shape))


def rmsnorm_rope_rotate_activation_fp4quant_kvcache(
    kvcache: torch.Tensor,
    scale: torch.Tensor,
    input: torch.Tensor,
    norm_weight: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    slot_mapping: torch.Tensor,
    epsilon: float,
    rope_dim: int = 64,
    kv_block_size: int = 64,
    group_size: int = 32,
    shuffle_scale: bool = True,
    do_rotate_act: bool = False,
) -> None:
    """Keys [n, 1, D] bf16: RMSNorm, RoPE, Hadamard if asked, MXFP4 into the slots of F4 pages.

    Slots < 0 are skipped and no other byte changes.
    """
    if group_size != 32 or not shuffle_scale:
        given = f"group_size={group_size}, shuffle_scale={shuffle_scale}"
        raise ArgumentError(f"group_size: expected 32 with shuffle_scale=True, got {given}")
    if kvcache.shape[3] != kv_block_size:
        raise ArgumentError(f"kv_block_size: expected {kvcache.shape[3]}, got {kv_block_size}")
    x = input.float().flatten(0, 1)
    x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * norm_weight.float()
    x = _rope(x[:, None], cos, sin, positions, rope_dim)[:, 0]
    keys.split_store(kvcache, scale, slot_mapping, _quantize(x, do_rotate_act))


def _quantize(x: torch.Tensor, rotate: bool) -> Quantized:
    return indexer(x.device, head_dim=x.shape[-1], hadamard=rotate).quantize(ready(x))


def _rope(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor, dims: int
) -> torch.Tensor:
    """x [T, H, D] fp32 with pairs (2i, 2i + 1) of its last `dims` dims turned by the position."""
    c, s = (t.float().view(t.shape[0], -1)[positions.long()][:, None] for t in (cos, sin))
    a, b = x[..., -dims:].unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([a * c - b * s, a * s + b * c], dim=-1).flatten(-2)
    return torch.cat([x[..., :-dims], turned], dim=-1)


def _by_lane(scales: torch.Tensor) -> torch.Tensor:
    """[T, H, D/32] as [T, D/128, 4, 16, n]: head h at [h % 16, h // 16], n = 4 * ceil(H / 64)."""
    rows, heads, groups = scales.shape
    n = -(-heads // 64) * 4
    padded = scales.new_zeros(rows, n * 16, groups)
    padded[:, :heads] = scales
    return padded.view(rows, n, 16, groups // 4, 4).permute(0, 3, 4, 2, 1).contiguous()
