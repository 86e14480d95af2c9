# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""AITER's rotate-quantise-write ops (dsv4_rotate_quant.cu): norm, RoPE, Hadamard, quantise.

All in fp32 up to the quantiser, profile R in MXFP4, as there. MXFP4 queries are
`Indexer.quantize_queries`; FP8 queries, norm and RoPE of keys run in plain torch. cos and sin are
[max_pos, rope_dim / 2], GPT-J pairs.
"""

from __future__ import annotations

import torch

from dsv4_iree.compat import keys
from dsv4_iree.compat.serve import FP8, made_queries
from dsv4_iree.errors import ArgumentError
from dsv4_iree.formats import hadamard, rope


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

    Without out_scale `out` has the dtype of `input`. An FP8 `out` [T, H, D] takes values of scale
    max(amax, 1e-10) / (448 or, e4m3fnuz, 240) over group_size dims, no power of two, out_scale
    fp32 [T * H, D / group_size]: plain torch. Any other takes MXFP4 bytes [T, H, D/2], with
    group_size 32, and out_scale their scales: [T, D/128, 4, 16, 4 * ceil(H / 64)] with
    shuffle_scale, else [T, H, D/32].
    """
    if out_scale is None or out.dtype in FP8:
        x = rope(input, *_angles(cos, sin, positions))
        x = hadamard(x) if do_rotate_act else x
        if out_scale is None:
            out.copy_(x)
        else:
            _write_fp8(x, out, out_scale, group_size)
        return
    if group_size != 32:
        raise ArgumentError(f"group_size: expected 32 for MXFP4, got {group_size}")
    at, table = _angles(cos, sin, positions)
    ones = input.new_ones(input.shape[:2])  # weights are another op's there
    (values, scales), _ = made_queries(
        input, ones, at, table, (1.0, 1.0), "f32", hadamard=do_rotate_act
    )
    out.view(torch.uint8).copy_(values)
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
    x = rope(x[:, None], *_angles(cos, sin, positions))[:, 0]
    keys.split_store(kvcache, scale, slot_mapping, x, hadamard=do_rotate_act)


def _write_fp8(
    x: torch.Tensor, out: torch.Tensor, out_scale: torch.Tensor, group_size: int
) -> None:
    """Quantise x [T, H, D] as AITER's per-group FP8 quantiser: times the inverse of the scale."""
    if x.shape[-1] % group_size:
        raise ArgumentError(f"group_size: expected a divisor of {x.shape[-1]}, got {group_size}")
    groups = x.unflatten(-1, (-1, group_size))
    inverse = torch.tensor(1 / torch.finfo(out.dtype).max, device=x.device)
    scale = groups.abs().amax(-1, keepdim=True).clamp_min(1e-10) * inverse
    out.copy_((groups * (1 / scale)).flatten(-2).to(out.dtype))
    out_scale.copy_(scale.reshape(out_scale.shape))


def _angles(
    cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A table of this call's positions alone, cosines and sines in one, and where each is in it."""
    rows = [t.view(t.shape[0], -1)[positions.long()] for t in (cos, sin)]
    return torch.arange(len(positions), device=cos.device), torch.cat(rows, dim=1)


def _by_lane(scales: torch.Tensor) -> torch.Tensor:
    """[T, H, D/32] as [T, D/128, 4, 16, n]: head h at [h % 16, h // 16], n = 4 * ceil(H / 64)."""
    rows, heads, groups = scales.shape
    n = -(-heads // 64) * 4
    padded = scales.new_zeros(rows, n * 16, groups)
    padded[:, :heads] = scales
    return padded.view(rows, n, 16, groups // 4, 4).permute(0, 3, 4, 2, 1).contiguous()
