"""What vLLM's and tokenspeed's suites ask of prepared queries, through compat."""

from __future__ import annotations

import pytest
import torch
from suites import VLLM_QUERIES

from dsv4_iree import reference
from dsv4_iree.compat import tokenspeed, vllm
from dsv4_iree.formats import hadamard
from dsv4_iree.spec import IndexerSpec
from dsv4_iree.testing import assert_bytes_equal

pytestmark = pytest.mark.usefixtures("compat_compiled")
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def table(positions: int, dtype: torch.dtype) -> torch.Tensor:
    frequency = 160000.0 ** (-torch.arange(0, 64, 2).double() / 64)
    angle = torch.arange(positions)[:, None] * frequency
    return torch.cat([angle.cos(), angle.sin()], dim=1).to(dtype)


def turned(q: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """GPT-J RoPE on the last 64 dims in fp32, then bf16, as the suites write it."""
    x, (cos, sin) = q.float().clone(), angles.float()[:, None].chunk(2, dim=-1)
    even, odd = x[..., 64::2].clone(), x[..., 65::2].clone()
    x[..., 64::2], x[..., 65::2] = even * cos - odd * sin, even * sin + odd * cos
    return x.bfloat16()


@pytest.mark.parametrize("tokens", VLLM_QUERIES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("use_fp4", [True, False], ids=["fp4", "fp8"])
def test_vllm_queries(tokens: int, dtype: str, use_fp4: bool) -> None:
    random = torch.Generator().manual_seed(tokens)
    q = torch.randn(tokens, 64, 128, generator=random).bfloat16()
    weights = torch.randn(tokens, 64, generator=random).bfloat16()
    positions = torch.randint(4096, (tokens,), generator=random)
    angles = table(4096, DTYPES[dtype])
    made, folded = vllm.fused_indexer_q_rope_quant(
        positions, q, angles, weights, 128**-0.5, 64**-0.5, use_fp4=use_fp4
    )
    x, expected = turned(q, angles[positions]), weights.float()
    if use_fp4:
        values, scales = reference.quantize(x, IndexerSpec())
        assert isinstance(made, tuple)
        assert made[1].shape == (tokens, 64)
        assert_bytes_equal(made[0], values)
        assert_bytes_equal(made[1], scales.view(torch.int32)[..., 0])
    else:
        values, scales = reference.quantize(x, IndexerSpec(format="fp8", layout="n8"))
        assert isinstance(made, torch.Tensor)
        assert made.dtype is torch.float8_e4m3fn
        assert_bytes_equal(made.view(torch.uint8), values)
        expected = expected * scales
    assert_bytes_equal(folded, expected * 128**-0.5 * 64**-0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_tokenspeed_queries(dtype: torch.dtype) -> None:
    """Two tokens of three heads; weights [T, H, 1] of another dtype than the queries."""
    q, weights = torch.randn(2, 3, 128).to(dtype), torch.randn(2, 3, 1)
    positions, angles = torch.tensor([1, 5], dtype=torch.int32), table(8, torch.float32)
    (values, scales), folded = tokenspeed.deepseek_v4_prepare_indexer_q_mxfp4(
        q, positions, angles, weights, 0.25, 3**-0.5
    )
    x = hadamard(turned(q, angles[positions.long()]))
    expected = reference.quantize(x, IndexerSpec(rounding="d"))
    assert_bytes_equal(values, expected[0])
    assert_bytes_equal(scales, expected[1].view(torch.int32)[..., 0])
    torch.testing.assert_close(folded, weights[..., 0] * (0.25 * 3**-0.5), rtol=1e-6, atol=0)
