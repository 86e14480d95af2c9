"""A sample of the suites' scorers on the gfx942 and gfx950 artifacts, executed on the emulator."""

from __future__ import annotations

import pytest
import torch
from suites import FLYDSL, GLUON_DECODE, shrunk

from dsv4_iree import layout, reference
from dsv4_iree.compat import aiter, aiter_mxfp4, deepgemm, sglang
from dsv4_iree.formats import exact
from dsv4_iree.spec import IndexerSpec
from dsv4_iree.testing import PagedInputs, assert_logits_close, paged_inputs

pytestmark = pytest.mark.usefixtures("compat_emulated")
FLASH = IndexerSpec()


def scored(x: PagedInputs, width: int, spec: IndexerSpec = FLASH) -> torch.Tensor:
    return reference.paged_mqa_logits(
        exact(x.q, spec), x.weights, x.cache, x.block_table, x.row_to_request,
        x.start, x.end, width, spec,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["tiny", "n6"])
def test_deepgemm_paged_fp4(name: str) -> None:
    next_n, contexts = GLUON_DECODE[name]
    x = paged_inputs(FLASH, shrunk(contexts, 80), next_n=next_n, page_padding=64)
    logits = deepgemm.fp8_fp4_paged_mqa_logits(
        (
            x.q[0].view(torch.int8).unflatten(0, (-1, next_n)),
            x.q[1].view(torch.int32)[..., 0].unflatten(0, (-1, next_n)),
        ),
        x.cache.as_strided((len(x.cache), 64, 1, 68), (x.cache.stride(0), 68, 68, 1)),
        x.weights,
        x.end.clamp(0).view(-1, next_n),
        x.block_table,
        None,
        128,
    )
    assert_logits_close(logits, scored(x, 128))


def test_deepgemm_mxfp8() -> None:
    random = torch.Generator().manual_seed(0)
    q = torch.randn(3, 8, 128, generator=random).to(torch.float8_e4m3fn)
    k = torch.randn(40, 128, generator=random).to(torch.float8_e4m3fn)
    q_bytes = torch.randint(124, 131, (3, 8, 4), generator=random, dtype=torch.uint8)
    k_bytes = torch.randint(124, 131, (40, 4), generator=random, dtype=torch.uint8)
    weights, start = torch.randn(3, 8, generator=random), torch.zeros(3, dtype=torch.int32)
    end = torch.tensor([40, 0, 33], dtype=torch.int32)
    logits = deepgemm.fp8_fp4_mqa_logits(
        (q, q_bytes.view(torch.int32)[..., 0]), (k, k_bytes.view(torch.int32)[..., 0]),
        weights, start, end,
    )  # fmt: skip
    numbers = [
        v.double() * torch.exp2(e.double() - 127).repeat_interleave(32, dim=-1)
        for v, e in ((q, q_bytes), (k, k_bytes))
    ]
    assert_logits_close(logits, reference.mqa_logits(*numbers, weights, start, end))


def test_flydsl_decode_of_split_pages() -> None:
    x = paged_inputs(FLASH, [100, 33])
    scales = torch.zeros(2, 1, 1, 4, 16, 4, dtype=torch.uint8)
    for head in range(64):
        scales[:, 0, 0, :, head % 16, head // 16] = x.q[1][:, head]
    logits = aiter.flydsl_pa_mqa_logits_fp4(
        x.q[0][:, None],
        scales,
        *layout.entries_to_f4(layout.as_entries(FLASH, x.cache)),
        x.block_table,
        x.weights,
        torch.tensor([100, 33], dtype=torch.int32),
        128,
    )
    expected = scored(x, 128)
    assert_logits_close(logits, expected)
    seen = expected.isfinite()
    assert torch.cosine_similarity(logits[seen], expected[seen], dim=0) > FLYDSL


def test_gluon_candidates() -> None:
    spec = IndexerSpec(num_heads=8)
    x = paged_inputs(spec, [150, 20])
    ids = torch.tensor([[18, 3, -1, 7], [2, 9, -1, -1]], dtype=torch.int32)
    logits = aiter_mxfp4.paged_mxfp4_mqa_logits(
        x.q[0][:, None], x.q[1][:, None], x.cache.view(-1, 64, 1, 68), x.weights, x.end,
        x.block_table, 32, preshuffle=0, use_gather=True, candidates=ids,
    )  # fmt: skip
    expected = torch.full((2, 32), float("-inf"))
    dense = scored(x, 150, spec)
    expected[0, :22] = torch.cat([dense[0, 24:32], dense[0, 56:64], dense[0, 144:150]])
    expected[1, :4] = dense[1, 16:20]
    assert_logits_close(logits, expected)


def test_sglang_selects_slots() -> None:
    scores = torch.randn(2, 700, generator=torch.Generator().manual_seed(0))
    table = torch.randperm(40, generator=torch.Generator().manual_seed(1))[:22].view(2, 11).int()
    slots, raw = (torch.full((2, 512), 77, dtype=torch.int32) for _ in range(2))
    lens = torch.tensor([690, 30], dtype=torch.int32)
    sglang.topk_transform_512(scores, lens, table, slots, 64, raw)
    assert raw[0].equal(scores[0, :690].topk(512).indices.int())
    assert raw[1, 30:].eq(-1).all()
    entry = raw[0].long()
    assert slots[0].equal((table[0, entry // 64] * 64 + entry % 64).int())
