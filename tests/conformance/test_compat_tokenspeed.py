"""What tokenspeed's own references give where other systems differ, through compat."""

from __future__ import annotations

import pytest
import torch

from dsv4_iree.compat import tokenspeed
from dsv4_iree.testing import assert_bytes_equal

pytestmark = pytest.mark.usefixtures("compat_backend")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_fp8_keys_down_to_zero(dtype: torch.dtype) -> None:
    """amax 0 and around 448e-10, under which the scale stays 2^-33; other systems stop at 1e-4."""
    sizes = torch.tensor([0.0, 1e-9, 4.4e-8, 4.6e-8, 1e-6, 9e-5, 1.1e-4, 3.0, 448.0, 449.0, 9e3])
    random = torch.Generator().manual_seed(0)
    k = torch.rand(len(sizes), 128, generator=random) - 0.5
    k[:, 3] = 1
    k = (k * sizes[:, None]).to(dtype)
    cache = torch.full((1, 16 * 132), 0x5A, dtype=torch.uint8)
    slots = torch.arange(len(sizes)) + 2
    slots[6] = -1
    tokenspeed.write_deepseek_v4_indexer_fp8_cache(k, cache, slots, 16)
    scale = (k.double().abs().amax(1) / 448).clamp_min(1e-10).log2().ceil().exp2()
    values = (k.double() / scale[:, None]).float().to(torch.float8_e4m3fn)
    expected = torch.full((16, 132), 0x5A, dtype=torch.uint8)
    kept = slots >= 0
    expected[slots[kept], :128] = values.view(torch.uint8)[kept]
    expected[slots[kept], 128:] = scale.float().view(torch.uint8).view(-1, 4)[kept]
    assert scale[0] == 2.0**-33
    assert_bytes_equal(cache[0, : 16 * 128].view(16, 128), expected[:, :128].contiguous())
    assert_bytes_equal(cache[0, 16 * 128 :].view(16, 4), expected[:, 128:].contiguous())


def test_the_reference_topk_without_lengths_sees_every_column() -> None:
    random = torch.Generator().manual_seed(4)
    q, k = torch.randn(4, 3, 128, generator=random), torch.randn(9, 128, generator=random)
    weights = torch.rand(4, 3, 1, generator=random)
    scores = (torch.einsum("thd,kd->thk", q, k).relu() * weights).sum(1)
    chosen = tokenspeed._indexer_topk_reference(q, k, weights, 5)
    assert chosen.equal(scores.topk(5).indices.int())
    lengths = torch.tensor([9, 6, 5, 5], dtype=torch.int32)
    chosen = tokenspeed._indexer_topk_reference(q, k, weights, 5, lengths)
    column = torch.arange(9)
    hidden = column >= lengths[:, None]
    expected = scores.masked_fill(hidden, float("-inf")).topk(5).indices.int()
    assert chosen.equal(expected)
