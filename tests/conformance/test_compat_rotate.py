"""AITER's FP8 output of rotated queries, through compat."""

from __future__ import annotations

import pytest
import torch
from suites import ROTATED_FP8_CASES

from dsv4_iree.compat import aiter_rotate
from dsv4_iree.formats import hadamard


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e4m3fnuz], ids=str)
@pytest.mark.parametrize("rotate", [False, True], ids=["plain", "rotated"])
@pytest.mark.parametrize(("tokens", "heads", "dim", "group"), ROTATED_FP8_CASES, ids=str)
def test_fp8_queries(
    tokens: int, heads: int, dim: int, group: int, rotate: bool, dtype: torch.dtype
) -> None:
    random = torch.Generator().manual_seed(tokens * dim + group)
    q = torch.randn(tokens, heads, dim, generator=random).bfloat16()
    q[0, 1, :group] = 0
    angle = torch.rand(40, 32, generator=random)
    cos, sin = angle.cos().bfloat16(), angle.sin().bfloat16()
    at = torch.randint(40, (tokens,), generator=random)
    turned = q.double()
    c, s = cos.double()[at][:, None], sin.double()[at][:, None]
    a, b = q.double()[..., -64::2], q.double()[..., -63::2]
    turned[..., -64::2], turned[..., -63::2] = a * c - b * s, b * c + a * s
    if rotate:
        turned = hadamard(turned.float()).double()
    out = torch.empty(tokens, heads, dim, dtype=dtype)
    scale = torch.empty(tokens * heads, dim // group)
    aiter_rotate.rope_rotate_activation(
        out, q, cos, sin, at, 64, out_scale=scale, group_size=group, do_rotate_act=rotate
    )
    groups = turned.flatten(0, 1).unflatten(-1, (-1, group))
    expected = groups.abs().amax(-1).clamp_min(1e-10) / torch.finfo(dtype).max
    torch.testing.assert_close(scale.double(), expected, rtol=1e-6, atol=0)
    assert scale.log2().frac().ne(0).any(), "no power of two"
    values = out.double().flatten(0, 1).unflatten(-1, (-1, group))
    assert values.abs().max() == torch.finfo(dtype).max
    # half a step of FP8: 2^-4 of a number, 2^-10 of the scale or less below its normal numbers
    error = (values * scale[..., None] - groups).abs()
    assert (error <= groups.abs() * (2**-4 + 1e-6) + scale[..., None] * 2**-10).all()
    nearest = (groups / expected[..., None]).to(dtype).double()
    differ = (values != nearest).double().mean()
    assert differ < 2e-3, "beyond what the order of fp32 roundings moves across a tie"
    if not rotate:
        assert out[0, 1, :group].eq(0).all()
