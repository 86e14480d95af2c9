"""The suites of tokenspeed, xkernels, vLLM and SGLang through their compat modules."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from suites import XKERNELS, XKERNELS_GATHER, XKERNELS_LOGITS, XKERNELS_TOPK

from dsv4_iree import layout, reference
from dsv4_iree.compat import sglang, tokenspeed, vllm, xkernels
from dsv4_iree.formats import exact
from dsv4_iree.spec import IndexerSpec, Rounding
from dsv4_iree.testing import assert_bytes_equal, assert_logits_close, paged_inputs

pytestmark = pytest.mark.usefixtures("compat_compiled")
E4M3 = torch.float8_e4m3fn


def int32(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


# tokenspeed, test_deepseek_v4_attention_ops.py


@pytest.mark.parametrize(
    ("lengths", "width"),
    [([0, 7, 513, 9000, 33000], 33024), ([0, 17, *(520 + i % 24 for i in range(34))], 544)],
    ids=["mixed", "36 rows"],
)
def test_persistent_topk(lengths: list[int], width: int) -> None:
    logits = torch.randn(len(lengths), width, generator=torch.Generator().manual_seed(width))
    end = int32(*lengths)
    logits[torch.arange(width) >= end[:, None]] = 1e6
    out = torch.full((len(lengths), 512), 77, dtype=torch.int32)
    tokenspeed.persistent_topk(logits, end, out, torch.empty(1 << 20).byte(), 512, width)
    for row, length in enumerate(lengths):
        count = min(length, 512)
        best = logits[row, :length].topk(count).indices
        assert out[row, :count].sort().values.equal(best.sort().values.int())
        assert out[row, count:].eq(-1).all()
        if length <= 512:
            assert out[row, :count].equal(torch.arange(count).int())


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e6])
def test_short_rows_are_their_entries_whatever_the_logits_hold(poison: float) -> None:
    logits = torch.full((3, 600), poison)
    logits[1, :5] = float("-inf")
    out = torch.full((3, 512), 77, dtype=torch.int32)
    tokenspeed.indexer_topk_prefill(logits, int32(590, 0, 8), int32(600, 5, 8), out, 512)
    assert out[0].tolist() == [*range(10), *[-1] * 502]
    assert out[1].tolist() == [*range(5), *[-1] * 507]
    assert out[2].eq(-1).all()


def test_one_length_a_request() -> None:
    logits = torch.randn(6, 900, generator=torch.Generator().manual_seed(1))
    each, rows = (torch.full((6, 512), 77, dtype=torch.int32) for _ in range(2))
    tokenspeed.cute_dsl_decode_topk(logits, int32(800, 2), 512, 3, each)
    tokenspeed.persistent_topk(logits, int32(798, 799, 800, 0, 1, 2), rows, None, 512, 900)
    assert each.equal(rows)


def test_mxfp4_cache_bytes_with_a_skipped_slot() -> None:
    cache = torch.full((1, 4352), 0x77, dtype=torch.uint8)
    keys = torch.randn(3, 128, generator=torch.Generator().manual_seed(2)).bfloat16()
    tokenspeed.write_deepseek_v4_indexer_mxfp4_cache(keys, cache, torch.tensor([0, 2, -1]))
    values, scales = reference.quantize(keys, IndexerSpec(rounding=Rounding.D))
    expected = torch.full((4352,), 0x77, dtype=torch.uint8)
    expected[0:64], expected[128:192] = values[0], values[1]
    expected[4096:4100], expected[4104:4108] = scales[0], scales[1]
    assert_bytes_equal(cache[0], expected)


def test_fp8_cache_and_its_gather_over_a_strided_arena() -> None:
    arena = torch.full((7, 64 * 132 + 1024), 0x55, dtype=torch.uint8)
    cache = arena[:, : 64 * 132]
    lengths, table = [37, 64, 130], int32(6, 0, 0, 2, 0, 0, 5, 1, 3).view(3, 3)
    keys = torch.randn(231, 128, generator=torch.Generator().manual_seed(3)).bfloat16()
    slots = torch.cat([table[b].long()[torch.arange(n) // 64] * 64 + torch.arange(n) % 64
                       for b, n in enumerate(lengths)])  # fmt: skip
    tokenspeed.write_deepseek_v4_indexer_fp8_cache(keys, cache, slots)
    values, scales = tokenspeed.gather_paged_indexer_fp8_cache(
        cache, table, int32(0, 37, 101, 231), 64
    )
    spec = IndexerSpec(format="fp8", layout="n8")
    for actual, expected in zip((values.view(torch.uint8), scales), reference.quantize(keys, spec)):
        assert_bytes_equal(actual, expected)
    assert arena[:, 64 * 132 :].eq(0x55).all()


def test_paged_gather_over_pages_of_four_keeps_the_rows_behind() -> None:
    cache = torch.arange(3 * 272).view(3, 272).to(torch.uint8)
    values, scales = (torch.full((8, n), 0xAB, dtype=torch.uint8) for n in (64, 4))
    table, cu = int32(2, 0, 1, 0).view(2, 2), int32(0, 5, 7)
    tokenspeed.indexer_mxfp4_paged_gather(cache, values, scales, table, cu, 4)
    for row, (page, token) in enumerate([(2, 0), (2, 1), (2, 2), (2, 3), (0, 0), (1, 0), (1, 1)]):
        assert values[row].equal(cache[page, token * 64 : token * 64 + 64])
        assert scales[row].equal(cache[page, 256 + token * 4 : 260 + token * 4])
    assert values[7].eq(0xAB).all()
    assert scales[7].eq(0xAB).all()


def test_the_reference_topk_gives_absolute_columns_masked_ones_last() -> None:
    random = torch.Generator().manual_seed(4)
    q, k = torch.randn(4, 3, 128, generator=random), torch.randn(6, 128, generator=random)
    weights, lengths, starts = torch.ones(4, 3), int32(3, 3, 2, 1), int32(0, 1, 2, 3)
    chosen = tokenspeed._indexer_topk_reference(q, k, weights, 2, lengths, starts)
    scores = (torch.einsum("thd,kd->thk", q, k).relu() * weights[:, :, None]).sum(1)
    for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist())):
        window = scores[row, start : start + length]
        best = window.topk(min(2, length)).indices + start
        assert chosen[row, : len(best)].equal(best.int())
    assert chosen[3].tolist() == [3, 0]


def test_global_indices_and_counts() -> None:
    ids, table = int32(0, 5, -1, 3, -1, -1).view(2, 3), int32(7, 9, 4, 2).view(2, 2)
    slots, lens = tokenspeed.compute_global_topk_indices_and_lens(
        ids, int32(0, 1), table, 4, torch.tensor([True, False])
    )
    assert slots.tolist() == [[28, 37, -1], [19, -1, -1]]
    assert lens.tolist() == [2, 0]


# xkernels


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(("rows", "heads", "dim", "keys"), XKERNELS_LOGITS, ids=str)
def test_xkernels_logits(rows: int, heads: int, dim: int, keys: int, dtype: str) -> None:
    random = torch.Generator().manual_seed(dim)
    q, k = (torch.randn(*shape, generator=random).to(getattr(torch, dtype))
            for shape in ((rows, heads, dim), (keys, dim)))  # fmt: skip
    weights = torch.randn(rows, heads, generator=random)
    actual = xkernels.dsa_indexer_logits(q, k, weights[:, :, None])
    expected = torch.einsum("thd,kd->thk", q.double(), k.double()).relu()
    expected = (expected * weights.double()[:, :, None]).sum(1).float()
    bound = XKERNELS[dtype]
    torch.testing.assert_close(actual, expected, atol=bound, rtol=bound)
    assert_logits_close(actual, expected)


def test_xkernels_masks() -> None:
    q, k = torch.ones(4, 16, 64).bfloat16(), torch.ones(128, 64).bfloat16()
    starts, lengths = [0, 8, 0, 16], [64, 32, 128, 80]
    logits = xkernels.dsa_indexer_logits(
        q, k, torch.ones(4, 16), lengths=int32(*lengths), row_starts=int32(*starts)
    )
    for row, (start, length) in enumerate(zip(starts, lengths)):
        assert logits[row].isfinite().nonzero()[:, 0].tolist() == [*range(start, start + length)]
    unbounded = xkernels.dsa_indexer_logits(
        q[:1], k, torch.ones(1, 16), lengths=int32(2**31 - 1), row_starts=int32(1)
    )
    assert unbounded[0].isfinite().sum() == 127


@pytest.mark.parametrize(
    ("rows", "heads", "dim", "keys", "topk", "masked", "dtype"), XKERNELS_TOPK, ids=str
)
def test_xkernels_topk(
    rows: int, heads: int, dim: int, keys: int, topk: int, masked: bool, dtype: str
) -> None:
    random = torch.Generator().manual_seed(keys)
    q, k = (torch.randn(*shape, generator=random).to(getattr(torch, dtype))
            for shape in ((rows, heads, dim), (keys, dim)))  # fmt: skip
    weights, window = torch.randn(rows, heads, generator=random), {}
    if masked:
        starts = torch.arange(rows, dtype=torch.int32) % 9
        window = {"row_starts": starts, "lengths": (keys // 2 + starts * 5).clamp(max=keys).int()}
    chosen = xkernels.dsa_indexer_topk(q, k, weights, topk=topk, **window)
    logits = xkernels.dsa_indexer_logits(q, k, weights, **window)
    assert chosen.equal(logits.argsort(dim=1, descending=True, stable=True)[:, :topk].int())


@pytest.mark.parametrize(("pages", "page", "dim", "requests", "topk"), XKERNELS_GATHER, ids=str)
def test_xkernels_gather(pages: int, page: int, dim: int, requests: int, topk: int) -> None:
    random = torch.Generator().manual_seed(dim)
    spec = IndexerSpec(head_dim=dim, page_size=page)
    pair = reference.quantize(torch.randn(pages, page, dim, generator=random), spec)
    pair[1][0, 1, 0] = 255
    table = torch.stack([torch.randperm(pages, generator=random) for _ in range(requests)]).int()
    at = torch.randint(-2, pages * page + 3, (requests, topk), generator=random)
    at[0, 0] = page * int((table[0] == 0).nonzero()) + 1
    out = xkernels.mxfp4_paged_gather(*pair, table, at, block_size=page)
    assert out.dtype is torch.bfloat16
    numbers = exact(pair, spec).nan_to_num(0)
    for request in range(requests):
        for i, position in enumerate(at[request].tolist()):
            if 0 <= position < pages * page:
                entry = numbers[table[request, position // page], position % page]
                assert out[request, i].equal(entry.bfloat16())
            else:
                assert not out[request, i].any()
    assert not out[0, 0, :32].any()


# vLLM


@pytest.mark.parametrize("page", [16, 32])
@pytest.mark.parametrize("tokens", [1, 7, 32])
def test_vllm_keys_go_to_the_slots_of_a_compressor(tokens: int, page: int) -> None:
    keys = torch.randn(tokens, 128, generator=torch.Generator().manual_seed(tokens)).bfloat16()
    position = torch.arange(tokens) + 5
    slots = torch.where((position + 1) % 4 == 0, position // 4, -1)
    cache, expected = (torch.full((3, page, 132), 0xEE, dtype=torch.uint8) for _ in range(2))
    vllm.indexer_k_quant_and_cache(keys, cache, slots, 128, "ue8m0")
    spec, kept = IndexerSpec(page_size=page, format="fp8", layout="n8"), slots >= 0
    pair = (part[kept] for part in reference.quantize(keys, spec))
    reference.write_cache(expected.view(3, -1), *pair, slots[kept], spec)
    assert_bytes_equal(cache, expected)


def test_vllm_gathers_fp4_and_fp8_rows() -> None:
    cu, table = int32(0, 70, 71), int32(2, 0, 1, 0).view(2, 2)
    for width, kind, name in ((64, "fp4", "n4"), (128, "fp8", "n8")):
        spec = IndexerSpec(format=kind, layout=name)
        cache = torch.randint(0, 255, (3, 64, spec.entry_bytes), dtype=torch.uint8)
        dst, scale = torch.full((73, width), 7).byte(), torch.full((73, 4), 7).byte()
        vllm.cp_gather_indexer_k_quant_cache(cache, dst, scale, table, cu)
        entries = layout.as_entries(spec, cache.view(3, -1))
        rows = torch.cat([entries[2], entries[0, :6], entries[1, :1]])
        assert_bytes_equal(torch.cat([dst, scale], 1)[:71], rows)
        assert dst[71:].eq(7).all()
        assert scale[71:].eq(7).all()


def step(lengths: list[int], next_n: int, page: int) -> SimpleNamespace:
    """A decode batch and a prefill chunk of vLLM's ROCm indexer over one cache."""
    spec = IndexerSpec(
        num_heads=8, page_size=page, topk=64, format="fp8", layout="p8" if page == 64 else "n8"
    )
    x = paged_inputs(spec, lengths, next_n=next_n, spare_pages=2)
    return SimpleNamespace(spec=spec, x=x, ones=(x.q[0], torch.ones_like(x.q[1])))


@pytest.mark.parametrize("page", [16, 64])
def test_vllm_rocm_decode_selects_from_the_logits_of_the_reference(page: int) -> None:
    made = step([230, 70, 12], 2, page)
    x, spec = made.x, made.spec
    cache = x.cache.view(-1, page, 132)
    lens = int32(230, 70, 12)
    decode = SimpleNamespace(block_table=x.block_table, seq_lens=lens, requires_padding=False)
    metadata = SimpleNamespace(
        num_decode_tokens=6, max_seq_len=230, decode=decode, prefill=None, slot_mapping=None
    )
    buffer = torch.full((8, 64), 99, dtype=torch.int32)
    vllm.rocm_aiter_sparse_attn_indexer(
        torch.empty(6, 1), "k_cache", cache, x.q[0].view(E4M3), None, x.weights, 128, "ue8m0",
        64, 128, 256, 312, buffer, attn_metadata=metadata,
    )  # fmt: skip
    logits = reference.paged_mqa_logits(
        exact(made.ones, spec), x.weights, x.cache, x.block_table, x.row_to_request,
        x.start, x.end, 256, spec,
    )  # fmt: skip
    for row, end in enumerate(x.end.tolist()):
        count = min(end, 64)
        best = logits[row].topk(count).indices.sort().values.int()
        assert buffer[row].sort().values[64 - count :].equal(best)
        assert buffer[row, count:].eq(-1).all()
    assert buffer[6:].eq(99).all(), "rows of no token are not touched"


def test_vllm_rocm_decode_with_different_numbers_of_rows() -> None:
    made = step([230, 70, 12], 2, 16)
    x = made.x
    decode = SimpleNamespace(
        block_table=x.block_table,
        seq_lens=int32(230, 70, 12),
        requires_padding=True,
        decode_lens=int32(2, 1, 2),
    )
    metadata = SimpleNamespace(
        num_decode_tokens=5, max_seq_len=230, decode=decode, prefill=None, slot_mapping=None
    )
    rows = [0, 1, 3, 4, 5]
    buffer = torch.full((5, 64), 99, dtype=torch.int32)
    vllm.rocm_aiter_sparse_attn_indexer(
        torch.empty(5, 1), "k_cache", x.cache.view(-1, 16, 132), x.q[0][rows].view(E4M3), None,
        x.weights[rows], 128, "ue8m0", 64, 128, 256, 312, buffer, attn_metadata=metadata,
    )  # fmt: skip
    logits = reference.paged_mqa_logits(
        exact(made.ones, made.spec), x.weights, x.cache, x.block_table, x.row_to_request,
        x.start, x.end, 256, made.spec,
    )  # fmt: skip
    for at, row in enumerate(rows):
        count = min(int(x.end[row]), 64)
        best = logits[row].topk(count).indices.sort().values.int()
        assert buffer[at].sort().values[64 - count :].equal(best)


def test_vllm_rocm_prefill_and_insert() -> None:
    """Keys of two requests are inserted, gathered back and scored causally at ratio 1."""
    random = torch.Generator().manual_seed(5)
    lengths, spec = (90, 7), IndexerSpec(num_heads=8, page_size=16, format="fp8", layout="n8")
    k = torch.randn(97, 128, generator=random).bfloat16()
    q = torch.randn(97, 8, 128, generator=random).to(E4M3)
    weights = torch.randn(97, 8, generator=random)
    table = int32(3, 0, 5, 1, 6, 7, 4, 0, 0, 0, 0, 0).view(2, 6)
    request = torch.tensor([0] * 90 + [1] * 7)
    at = torch.cat([torch.arange(n) for n in lengths])
    slots = table[request, at // 16].long() * 16 + at % 16
    cache = torch.zeros(8, 16, 132, dtype=torch.uint8)
    starts = torch.tensor([0] * 90 + [90] * 7, dtype=torch.int32)
    ends = starts + at.int() + 1
    chunk = SimpleNamespace(
        token_start=0, token_end=97, block_table=table, cu_seq_lens=int32(0, 90, 97),
        total_seq_lens=97, cu_seqlen_ks=starts, cu_seqlen_ke=ends,
    )  # fmt: skip
    metadata = SimpleNamespace(
        num_decode_tokens=0, max_seq_len=90, decode=None, slot_mapping=slots,
        prefill=SimpleNamespace(chunks=[chunk]),
    )  # fmt: skip
    buffer = torch.full((97, 64), 99, dtype=torch.int32)
    arguments = (torch.empty(97, 1), "k_cache", cache, q, k, weights, 128, "ue8m0", 64, 128, 96, 97)
    vllm.rocm_aiter_sparse_attn_indexer(*arguments, buffer, attn_metadata=metadata)
    numbers = exact(reference.quantize(k, spec), spec)
    logits = reference.mqa_logits(q, numbers, weights, starts, ends)
    for row in range(97):
        count = min(int(at[row]) + 1, 64)
        best = logits[row].topk(count).indices.sort().values - starts[row]
        assert buffer[row].sort().values[64 - count :].equal(best.int())


def test_vllm_skips_a_batch_whose_entries_all_fit() -> None:
    positions = torch.tensor([0, 2, 3, 7, 255])
    metadata = SimpleNamespace(max_seq_len=256, slot_mapping=None, prefill=None, decode=None)
    buffer = torch.full((6, 64), 99, dtype=torch.int32)
    vllm.rocm_aiter_sparse_attn_indexer(
        torch.empty(5, 1), "", torch.empty(1, 16, 132).byte(), torch.empty(0), None, torch.empty(0),
        128, "ue8m0", 64, 128, 256, 0, buffer,
        attn_metadata=metadata, positions=positions, compress_ratio=4,
    )  # fmt: skip
    assert (buffer >= 0).sum(1).tolist() == [0, 0, 1, 2, 64, 64]
    assert buffer[4].equal(torch.arange(64).int())
    assert buffer[5].eq(99).all()


# SGLang

TIES = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0])


def test_sglang_odd_ties_go_toward_zero_or_to_even_by_pool() -> None:
    x = torch.zeros(1, 128)
    x[0, :8] = TIES
    spec = IndexerSpec()
    for rne, expected in ((False, [0, 0.5, 1, 1.5, 2, 3, 4, 6]), (True, [0, 1, 1, 2, 2, 4, 4, 6])):
        values, scales = sglang.quantize_fp4_indexer_tensor(x, rne=rne)
        assert (values.dtype, scales.dtype) == (torch.int8, torch.int32)
        pair = values.view(torch.uint8), scales.view(torch.uint8).view(1, 4)
        assert exact(pair, spec)[0, :8].tolist() == expected
        assert pair[1][0, 1] == 114  # the floor of the SGLang profiles


@pytest.mark.parametrize("rne", [False, True])
def test_sglang_pools_give_back_the_bytes_they_took_in_both_page_forms(rne: bool) -> None:
    x = torch.randn(70, 128, generator=torch.Generator().manual_seed(6)).bfloat16()
    loc = torch.randperm(3 * 64, generator=torch.Generator().manual_seed(7))[:70]
    values, scales = sglang.quantize_fp4_indexer_tensor(x, rne=rne)
    cache = torch.full((3, 4352), 0xEE, dtype=torch.uint8)
    sglang.store_fp4_index_k_cache(x, cache, loc, page_size=64, rne=rne)
    payload = torch.full((3, 1, 4, 64, 16), 0xEE, dtype=torch.uint8)
    scale = torch.full((3, 1, 4, 64), 0xEE, dtype=torch.uint8)
    sglang.store_fp4_index_k_cache_split(x, payload, scale, loc, page_size=64, rne=rne)
    for got in (
        sglang.get_index_k_fp4(cache, loc),
        sglang.get_index_k_fp4_split(payload, scale, loc),
    ):
        assert got[0].equal(values)
        assert got[1].equal(scales)
    entries = layout.as_entries(IndexerSpec(), cache)
    assert_bytes_equal(layout.f4_to_entries(payload, scale), entries)
    numbers = sglang.get_index_k_dequant(cache, loc)
    pair = values.view(torch.uint8), scales.view(torch.uint8).view(70, 4)
    assert numbers.equal(exact(pair, IndexerSpec()).bfloat16())
    assert not sglang.get_index_k_dequant(cache, torch.tensor([-1])).any()


def test_sglang_topk_gives_physical_slots_and_drops_minus_infinity() -> None:
    scores = torch.randn(3, 700, generator=torch.Generator().manual_seed(8))
    scores[0, 10:20] = float("-inf")
    table = torch.stack(
        [torch.randperm(40, generator=torch.Generator().manual_seed(9))[:11] for _ in range(3)]
    ).int()
    slots, raw = (torch.full((3, 512), 77, dtype=torch.int32) for _ in range(2))
    sglang.topk_transform_512(scores, int32(600, 30, -2), table, slots, 64, raw)
    assert raw[1, :30].sort().values.equal(torch.arange(30).int())
    assert raw[2].eq(-1).all()
    assert not torch.isin(raw[0], torch.arange(10, 20)).any()
    for row in range(3):
        for i, (slot, entry) in enumerate(zip(slots[row].tolist(), raw[row].tolist())):
            wanted = -1 if entry < 0 else int(table[row, entry // 64]) * 64 + entry % 64
            assert slot == wanted, (row, i)
