"""The FP8 of vLLM on gfx942, through compat: e4m3fnuz scaled to 224, as its csrc has it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from dsv4_iree import reference
from dsv4_iree.compat import aiter, vllm
from dsv4_iree.testing import assert_bytes_equal, assert_logits_close

pytestmark = pytest.mark.usefixtures("compat_backend")
FNUZ = torch.float8_e4m3fnuz


def quantized(x: torch.Tensor, scale_fmt: str, largest: float) -> tuple[torch.Tensor, torch.Tensor]:
    scales = x.float().abs().amax(-1).clamp_min(1e-4) / largest
    if scale_fmt == "ue8m0":
        scales = scales.double().log2().ceil().exp2().float()
    return (x.float() / scales[..., None]).to(FNUZ), scales


def vectors(seed: int, *shape: int) -> torch.Tensor:
    """Vectors whose largest numbers lie on both sides of 224 and 240 times a power of two."""
    x = torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) - 0.5
    x[..., 5] = torch.linspace(180, 300, x[..., 0].numel()).view(shape[:-1])
    return x.bfloat16()


@pytest.mark.parametrize("scale_fmt", ["ue8m0", ""])
@pytest.mark.parametrize("system", ["vllm", "aiter"])
def test_keys(system: str, scale_fmt: str) -> None:
    k, slots = vectors(0, 40, 128), torch.arange(40) + 3
    cache = torch.full((2, 32, 132), 0x11, dtype=torch.uint8)
    module = {"vllm": vllm, "aiter": aiter}[system]
    module.indexer_k_quant_and_cache(k, cache.view(FNUZ), slots, 128, scale_fmt)
    values, scales = quantized(k, scale_fmt, {"vllm": 224.0, "aiter": 240.0}[system])
    page, t = slots // 32, slots % 32
    flat = cache.view(2, -1)
    assert_bytes_equal(flat[:, : 32 * 128].view(2, 32, 128)[page, t], values.view(torch.uint8))
    stored = flat[:, 32 * 128 :].contiguous().view(torch.float32)
    assert_bytes_equal(stored[page, t], scales)


def test_a_step_stores_keys_in_the_dialect_of_its_queries() -> None:
    """The cache is of plain bytes, as vLLM's is."""
    q = vectors(1, 2, 64, 128)
    values, _ = quantized(q, "ue8m0", 224)
    k, cache = vectors(2, 40, 128), torch.zeros(3, 64, 132, dtype=torch.uint8)
    table, weights = torch.tensor([[2], [1]], dtype=torch.int32), torch.ones(2, 64)
    lens = torch.tensor([30, 10], dtype=torch.int32)
    slots = torch.cat([torch.arange(30) + 128, torch.arange(10) + 64])
    metadata = SimpleNamespace(
        slot_mapping=slots, max_seq_len=30, num_decode_tokens=2, prefill=None,
        decode=SimpleNamespace(block_table=table, seq_lens=lens, requires_padding=False),
    )  # fmt: skip
    ids = torch.full((40, 8), 99, dtype=torch.int32)
    vllm.rocm_aiter_sparse_attn_indexer(
        torch.zeros(40, 1), "", cache, values, k, weights, 128, "ue8m0", 8, 128, 64, 40, ids,
        attn_metadata=metadata,
    )  # fmt: skip
    logits = vllm.rocm_fp8_paged_mqa_logits(
        values[:, None], cache[:, :, None], weights, lens, table, None, 64
    )
    numbers, scales = quantized(k, "ue8m0", 224)
    exact = numbers.double() * scales.double()[:, None]
    expected = torch.full((2, 64), float("-inf"), dtype=torch.float64)
    for row, own in enumerate((exact[:30], exact[30:])):
        dot = values[row].double() @ own.T
        expected[row, : len(own)] = dot.relu().sum(0)
    assert_logits_close(logits, expected.float())
    for row in range(2):
        assert ids[row].sort().values.equal(expected[row].topk(8).indices.sort().values.int())


@pytest.mark.parametrize("other", ["Q", "KV"])
def test_two_dialects(other: str) -> None:
    """Every finite number of both; what is NaN in one operand is NaN in its row or column alone."""
    codes = torch.arange(256, dtype=torch.uint8)
    q, k = codes.view(2, 1, 128).repeat(1, 8, 1), codes.flip(0).view(2, 128).repeat(9, 1)
    kinds = (FNUZ, torch.float8_e4m3fn) if other == "Q" else (torch.float8_e4m3fn, FNUZ)
    for part, kind in ((q, kinds[0]), (k, kinds[1])):
        part[part.view(kind).float().isnan()] = 0x7B
    k[4, 9] = 0x80 if kinds[1] is FNUZ else 0xFF
    scales = torch.rand(18, generator=torch.Generator().manual_seed(0))
    weights, end = torch.linspace(0.1, 1, 16).view(2, 8), torch.tensor([18, 11], dtype=torch.int32)
    start = torch.zeros_like(end)
    logits = aiter.fp8_mqa_logits(
        q.view(kinds[0]), k.view(kinds[1]), scales[:, None], weights, start, end
    )
    numbers = k.view(kinds[1]).double() * scales.double()[:, None]
    expected = reference.mqa_logits(q.view(kinds[0]).double(), numbers, weights, start, end)
    assert expected.isnan().sum() == 2
    known = ~expected.isnan()
    assert logits.isnan().equal(~known)
    assert_logits_close(logits[known], expected[known])


def test_queries_on_gfx942(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "_takes_fnuz", lambda device: True)
    q, weights = vectors(3, 30, 8, 128), torch.rand(30, 8).bfloat16()
    angles = torch.tensor([[1.0] * 32 + [0.0] * 32])
    at = torch.zeros(30, dtype=torch.int64)
    made, folded = vllm.fused_indexer_q_rope_quant(at, q, angles, weights, 0.25, 0.5)
    values, scales = quantized(q, "ue8m0", 224)
    assert isinstance(made, torch.Tensor)
    assert made.dtype is FNUZ
    assert_bytes_equal(made.view(torch.uint8), values.view(torch.uint8))
    assert_bytes_equal(folded, weights.float() * scales * 0.25 * 0.5)
