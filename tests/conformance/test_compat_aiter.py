"""AITER's suites through `compat.aiter`."""

from __future__ import annotations

import pytest
import torch
from suites import (
    AITER_FP8,
    AITER_FP8_SIZES,
    FLYDSL,
    FLYDSL_DECODE,
    FLYDSL_PREFILL,
    FLYDSL_VARLEN,
    GLUON,
    GLUON_DECODE,
    TOPK_CONTEXTS,
    TOPK_K,
    shrunk,
)

from dsv4_iree import layout, reference
from dsv4_iree.compat import aiter, aiter_mxfp4, aiter_rotate
from dsv4_iree.formats import exact, hadamard
from dsv4_iree.spec import IndexerSpec
from dsv4_iree.testing import (
    PagedInputs,
    assert_bytes_equal,
    assert_logits_close,
    calc_diff,
    paged_inputs,
)

pytestmark = pytest.mark.usefixtures("compat_compiled")
E4M3 = torch.float8_e4m3fn


def cosine(actual: torch.Tensor, expected: torch.Tensor) -> float:
    seen = expected.isfinite()
    return float(torch.cosine_similarity(actual[seen], expected[seen], dim=0))


def swizzled(scales: torch.Tensor) -> torch.Tensor:
    """Query scales [T, H, 4] where FlyDSL wants them, element by element."""
    rows, heads, _ = scales.shape
    out = torch.zeros(rows, 1, 4, 16, 4 * -(-heads // 64), dtype=torch.uint8)
    for head in range(heads):
        out[:, 0, :, head % 16, head // 16] = scales[:, head]
    return out


def split(x: PagedInputs, spec: IndexerSpec) -> tuple[torch.Tensor, torch.Tensor]:
    return layout.entries_to_f4(layout.as_entries(spec, x.cache))


def expected_logits(x: PagedInputs, spec: IndexerSpec, weights: torch.Tensor, width: int):
    return reference.paged_mqa_logits(
        exact(x.q, spec), weights, x.cache, x.block_table, x.row_to_request,
        x.start, x.end, width, spec,
    )  # fmt: skip


@pytest.mark.parametrize(("batch", "longest", "next_n", "heads"), FLYDSL_DECODE, ids=str)
def test_flydsl_decode(batch: int, longest: int, next_n: int, heads: int) -> None:
    spec = IndexerSpec(num_heads=heads)
    lengths = shrunk([longest - 37 * b for b in range(batch)])
    x = paged_inputs(spec, lengths, next_n=next_n)
    width, weights = max(lengths) + 70, x.weights.bfloat16()
    payload, scale = split(x, spec)
    arguments = (
        x.q[0].unflatten(0, (-1, next_n)),
        swizzled(x.q[1]).unflatten(0, (-1, next_n)),
        payload,
        scale,
        x.block_table,
        weights,
        torch.tensor(lengths, dtype=torch.int32),
        width,
    )
    logits = aiter.flydsl_pa_mqa_logits_fp4(*arguments, weight_scale=1.5, next_n=next_n)
    expected = expected_logits(x, spec, weights.float() * 1.5, width)
    assert cosine(logits, expected) > FLYDSL
    assert_logits_close(logits, expected)
    out = torch.full((len(x.end), width + 3), 7.0)
    given = aiter.flydsl_pa_mqa_logits_fp4(
        *arguments, weight_scale=1.5, next_n=next_n, out=out, cta_info=torch.zeros(1, 4)
    )
    assert given is out
    kept = torch.where(expected.isneginf(), 7.0, logits)
    assert out[:, :width].equal(kept)
    assert out[:, width:].eq(7).all()


def rows_of(x: PagedInputs, windows: list[list[tuple[int, int]]]) -> PagedInputs:
    """One row per window of each request."""
    flat = [(b, *window) for b, rows in enumerate(windows) for window in rows]
    request, start, end = (torch.tensor(column, dtype=torch.int32) for column in zip(*flat))
    take = torch.arange(len(flat)) % len(x.weights)
    return PagedInputs(
        q=tuple(part[take] for part in x.q), weights=x.weights[take], cache=x.cache,
        block_table=x.block_table, start=start, end=end, row_to_request=request,
    )  # fmt: skip


def varlen(queries: list[int], contexts: list[int]) -> list[list[tuple[int, int]]]:
    bounds = zip(queries, shrunk(contexts))
    return [[(0, max(0, ctx - n + i + 1)) for i in range(n)] for n, ctx in bounds]


PREFILL = [*FLYDSL_PREFILL, *(varlen(*case) for case in FLYDSL_VARLEN)]


@pytest.mark.parametrize("windows", PREFILL, ids=range(len(PREFILL)))
def test_flydsl_prefill(windows: list[list[tuple[int, int]]]) -> None:
    spec = IndexerSpec()
    longest = [max((end for _, end in rows), default=64) for rows in windows]
    x = rows_of(paged_inputs(spec, longest, next_n=2), windows)
    weights, width = x.weights.bfloat16(), max(longest)
    logits = aiter.flydsl_pa_mqa_logits_fp4_prefill(
        x.q[0], swizzled(x.q[1]), *split(x, spec), x.block_table, weights,
        x.row_to_request, x.start, x.end, width, weight_scale=1.5,
    )  # fmt: skip
    expected = expected_logits(x, spec, weights.float() * 1.5, width)
    assert cosine(logits, expected) >= FLYDSL
    assert_logits_close(logits, expected)


@pytest.mark.parametrize(("counts", "contexts"), FLYDSL_VARLEN, ids=str)
def test_flydsl_rows_of_a_number_of_their_own(counts: list[int], contexts: list[int]) -> None:
    """With three rows more than there are queries, which see nothing."""
    spec, lens = IndexerSpec(), shrunk(contexts)
    x = rows_of(paged_inputs(spec, lens, next_n=2), [*varlen(counts, contexts), [(0, 0)] * 3])
    cu = torch.tensor([0, *counts], dtype=torch.int32).cumsum(0)
    rows, width = len(x.end), max(lens)
    padded = tuple(torch.full((rows + 2,), 9, dtype=torch.int32) for _ in range(3))
    made = aiter.compute_varqlen_windows(cu, torch.tensor(lens), rows, out=padded)
    assert all(one is other for one, other in zip(made, padded))
    assert made[0][:rows].clamp(max=len(lens) - 1).equal(x.row_to_request.clamp(max=len(lens) - 1))
    assert made[1][:rows].eq(0).all()
    assert made[2][:rows].equal(x.end)
    assert all(part[rows:].eq(9).all() for part in made)
    x.row_to_request.clamp_(max=len(lens) - 1)
    given = (x.q[0], swizzled(x.q[1]), *split(x, spec), x.block_table, x.weights, width)
    logits = aiter.flydsl_pa_mqa_logits_fp4_varqlen(
        *given, cu_seq_q=cu, context_lens=torch.tensor(lens), weight_scale=1.5
    )
    assert_logits_close(logits, expected_logits(x, spec, x.weights * 1.5, width))
    windows = tuple(part[:rows] for part in made)
    again = aiter.flydsl_pa_mqa_logits_fp4_varqlen(*given, windows=windows, weight_scale=1.5)
    assert again.equal(logits)


@pytest.mark.parametrize("bad", [-1, 2**31 - 1, "pages"])
def test_pages_that_do_not_exist_stay_invisible_when_pages_are_converted(bad: int | str) -> None:
    spec = IndexerSpec(num_heads=8)
    x = paged_inputs(spec, [200, 64])
    x.block_table[0, 1] = len(x.cache) if bad == "pages" else bad
    expected = expected_logits(x, spec, x.weights, 256)
    assert expected.isfinite().sum(1).tolist() == [136, 64]
    lens = torch.tensor([200, 64], dtype=torch.int32)
    queries = x.q[0][:, None], x.q[1][:, None]
    gluon = aiter_mxfp4.paged_mxfp4_mqa_logits(
        *queries, pages(x.cache, IndexerSpec(num_heads=8, layout="g4"), "scale mode 0"),
        x.weights, lens, x.block_table, 256, scale_mode=0,
    )  # fmt: skip
    flydsl = aiter.flydsl_pa_mqa_logits_fp4(
        x.q[0][:, None], swizzled(x.q[1])[:, None], *split(x, spec), x.block_table,
        x.weights, lens, 256,
    )  # fmt: skip
    assert_logits_close(gluon, expected)
    assert_logits_close(flydsl, expected)


def pages(cache: torch.Tensor, spec: IndexerSpec, kind: str) -> torch.Tensor:
    """An N4 cache as the nominal view of N4, of G4, or of G4 with scales by group."""
    entries = layout.as_entries(IndexerSpec(page_size=spec.page_size), cache)
    out = layout.from_entries(spec, entries)
    if kind == "scale mode 0":
        n, first = spec.tokens_per_tile, spec.page_size * 64
        for t in range(spec.page_size):
            for g in range(4):
                out[:, first + t // n * n * 4 + g * n + t % n] = entries[:, t, 64 + g]
    return out.view(len(out), spec.page_size, 1, 68)


@pytest.mark.parametrize("kind", ["natural", "preshuffled", "scale mode 0"])
@pytest.mark.parametrize(("next_n", "contexts"), GLUON_DECODE.values(), ids=GLUON_DECODE)
def test_gluon_decode(next_n: int, contexts: list[int], kind: str) -> None:
    heads, page = (32, 32) if kind == "preshuffled" else (8, 64)
    lengths = shrunk(contexts, 256)
    natural = IndexerSpec(num_heads=heads, page_size=page)
    spec = IndexerSpec(num_heads=heads, page_size=page, layout="n4" if kind == "natural" else "g4")
    x = paged_inputs(natural, lengths, next_n=next_n)
    logits = aiter_mxfp4.paged_mxfp4_mqa_logits(
        x.q[0].unflatten(0, (-1, next_n)),
        x.q[1].unflatten(0, (-1, next_n)),
        pages(x.cache, spec, kind),
        x.weights,
        torch.tensor(lengths, dtype=torch.int32),
        x.block_table,
        320,
        preshuffle=int(kind != "natural"),
        scale_mode=int(kind != "scale mode 0"),
        schedule=torch.zeros(8, dtype=torch.int32),
    )
    expected = expected_logits(x, natural, x.weights, 320)
    assert_logits_close(logits, expected, GLUON)


def test_gluon_row_ends_and_uncleaned_logits() -> None:
    spec = IndexerSpec(num_heads=8)
    x = paged_inputs(spec, [230, 64], next_n=2)
    x.end.copy_(torch.tensor([3, 230, 64, 0]))
    out = torch.full((4, 320), 5.0)
    aiter_mxfp4.paged_mxfp4_mqa_logits(
        x.q[0].unflatten(0, (-1, 2)), x.q[1].unflatten(0, (-1, 2)), pages(x.cache, spec, "natural"),
        x.weights, torch.tensor([230, 64], dtype=torch.int32), x.block_table, 320,
        out_logits=out, clean_logits=False, preshuffle=0, row_ends=x.end,
    )  # fmt: skip
    assert out.ne(5).sum(1).tolist() == [3, 230, 64, 0]
    expected = expected_logits(x, spec, x.weights, 320)
    assert_logits_close(torch.where(out == 5, float("-inf"), out), expected, GLUON)


@pytest.mark.parametrize("window", ["causal", "misaligned"])
@pytest.mark.parametrize(("rows", "width"), AITER_FP8_SIZES, ids=str)
def test_fp8_mqa_logits(rows: int, width: int, window: str) -> None:
    rows, width = min(rows, 32), min(width, 512)
    random = torch.Generator().manual_seed(rows * width)
    spec = IndexerSpec(format="fp8", layout="n8")
    q = torch.randn(rows, 8, 128, generator=random).to(E4M3)
    k, scales = reference.quantize(torch.randn(width, 128, generator=random), spec)
    weights = torch.randn(rows, 8, generator=random)
    i = torch.arange(rows, dtype=torch.int32)
    start, end = torch.zeros_like(i), (width - rows + i + 1).clamp(0)
    if window == "misaligned":
        start, end = (i * 7 + 3) % width, width - (i * 5) % width
    logits = aiter.fp8_mqa_logits(q, k.view(E4M3), scales[:, None], weights, start, end)
    expected = reference.mqa_logits(q, exact((k, scales), spec), weights, start, end)
    assert_logits_close(logits, expected)
    seen = expected.isfinite()
    assert calc_diff(logits[seen], expected[seen]) < AITER_FP8


@pytest.mark.parametrize("preshuffle", [False, True])
def test_paged_fp8_writes_into_the_callers_wider_buffer(preshuffle: bool) -> None:
    spec = IndexerSpec(num_heads=8, format="fp8", layout="p8" if preshuffle else "n8")
    x = paged_inputs(spec, [130, 3], next_n=2)
    out = torch.full((4, 300), 7.0)
    aiter.deepgemm_fp8_paged_mqa_logits(
        x.q[0].view(E4M3).unflatten(0, (-1, 2)), x.cache.view(-1, 64, 1, 132), x.weights, out,
        torch.tensor([130, 3], dtype=torch.int32), x.block_table, 200,
        Preshuffle=preshuffle, KVBlockSize=64,
    )  # fmt: skip
    ones = (x.q[0], torch.ones_like(x.q[1]))
    expected = expected_logits(PagedInputs(**{**vars(x), "q": ones}), spec, x.weights, 200)
    assert_logits_close(torch.where(out == 7, float("-inf"), out)[:, :200], expected)
    assert out[:, 200:].eq(7).all()


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("k", TOPK_K)
def test_top_k_per_row_is_absolute(k: int, stable: bool) -> None:
    random = torch.Generator().manual_seed(k)
    rows, width = len(TOPK_CONTEXTS), max(TOPK_CONTEXTS) + 40
    logits = torch.randint(8 if stable else 2**20, (rows, width), generator=random).float()
    start = torch.tensor([0, 3, 40, 0, 17, 1, 40], dtype=torch.int32)
    end = start + torch.tensor(TOPK_CONTEXTS, dtype=torch.int32)
    column = torch.arange(width)
    logits[(column < start[:, None]) | (column >= end[:, None])] = 1e9
    ids = torch.full((rows, k), 99, dtype=torch.int32)
    values = torch.zeros(rows, k)
    aiter.top_k_per_row_prefill(
        logits, start, end, ids, values, rows, width, 1, k=k, stable=stable
    )  # fmt: skip
    for row in range(rows):
        window = logits[row, start[row] : end[row]]
        count = min(k, len(window))
        best = window.argsort(descending=True, stable=True)[:count].sort().values + start[row]
        assert ids[row].sort().values[-count:].equal(best.int())
        assert ids[row, count:].eq(-1).all()
        assert values[row, :count].equal(logits[row, ids[row, :count].long()])
        if stable:
            assert ids[row, :count].equal(best.int())


def test_top_k_of_decode_rows() -> None:
    logits = torch.randn(4, 700, generator=torch.Generator().manual_seed(1))
    ids = torch.full((4, 512), 99, dtype=torch.int32)
    lens = torch.tensor([700, 1], dtype=torch.int32)
    aiter.top_k_per_row_decode(logits, 2, lens, ids, 4, 700, 1, k=512)
    assert ids[0].sort().values.equal(logits[0, :699].topk(512).indices.sort().values.int())
    assert ids[3].tolist() == [0, *[-1] * 511]
    assert ids[2].eq(-1).all()


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("heads", [32, 64])
def test_rotated_queries(heads: int, rotate: bool) -> None:
    random = torch.Generator().manual_seed(heads)
    q = torch.randn(5, heads, 128, generator=random).bfloat16()
    angle = torch.rand(40, 32, generator=random)
    cos, sin, at = angle.cos().bfloat16(), angle.sin().bfloat16(), torch.tensor([3, 0, 39, 7, 7])
    turned = q.double()
    c, s = cos.double()[at][:, None], sin.double()[at][:, None]
    a, b = q.double()[..., 64::2], q.double()[..., 65::2]
    turned[..., 64::2], turned[..., 65::2] = a * c - b * s, a * s + b * c
    turned = hadamard(turned.float()) if rotate else turned.float()
    out, scale = torch.empty(5, heads, 64).byte(), torch.empty(5, 1, 4, 16, 4).byte()
    aiter_rotate.rope_rotate_activation(
        out, q, cos, sin, at, 64, out_scale=scale, group_size=32, do_rotate_act=rotate
    )
    values, scales = reference.quantize(turned, IndexerSpec())
    plain = torch.zeros(5, heads, 128)
    aiter_rotate.rope_rotate_activation(plain, q, cos, sin, at, 64, do_rotate_act=rotate)
    torch.testing.assert_close(plain, turned, rtol=1e-5, atol=1e-5)
    assert scale.equal(swizzled(scales))
    differ = (out != values).float().mean()
    assert differ < 2e-3, "beyond what the order of fp32 roundings moves across a tie"


def test_rotated_keys_land_in_split_pages() -> None:
    random = torch.Generator().manual_seed(3)
    k = torch.randn(6, 1, 128, generator=random).bfloat16()
    norm = torch.rand(128, generator=random).bfloat16()
    cos, sin = torch.ones(9, 32).bfloat16(), torch.zeros(9, 32).bfloat16()
    payload = torch.full((3, 1, 4, 64, 16), 0xEE, dtype=torch.uint8)
    scale = torch.full((3, 1, 4, 64), 0xEE, dtype=torch.uint8)
    slots = torch.tensor([5, -1, 64, 191, 0, -7])
    aiter_rotate.rmsnorm_rope_rotate_activation_fp4quant_kvcache(
        payload, scale, k, norm, cos, sin, torch.arange(6), slots, 1e-6
    )
    x = k[:, 0].float()
    x = x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6) * norm.float()
    expected = torch.cat(reference.quantize(x, IndexerSpec()), dim=1)
    entries = layout.f4_to_entries(payload, scale).flatten(0, 1)
    kept = slots >= 0
    assert_bytes_equal(entries[slots[kept]], expected[kept])
    others = torch.ones(192, dtype=torch.bool)
    others[slots[kept]] = False
    assert entries[others].eq(0xEE).all()


@pytest.mark.parametrize("preshuffle", [False, True])
@pytest.mark.parametrize("scale_fmt", ["ue8m0", ""])
def test_fp8_keys_are_stored_and_gathered(preshuffle: bool, scale_fmt: str) -> None:
    spec = IndexerSpec(format="fp8", layout="p8" if preshuffle else "n8")
    k = torch.randn(70, 128, generator=torch.Generator().manual_seed(4)).bfloat16()
    cache = torch.full((3, 64, 132), 0xEE, dtype=torch.uint8)
    slots = torch.arange(70) + 50
    aiter.indexer_k_quant_and_cache(k, cache, slots, 128, scale_fmt, preshuffle)
    table = torch.tensor([[0, 1]], dtype=torch.int32)
    whole, factors = torch.empty(120, 128).to(E4M3), torch.empty(120, 1)
    cu = torch.tensor([0, 120], dtype=torch.int32)
    aiter.cp_gather_indexer_k_quant_cache(cache, whole, factors, table, cu, preshuffle)
    got, scales = whole[50:], factors[50:]
    if scale_fmt == "ue8m0":
        values, expected = reference.quantize(k, spec)
        assert_bytes_equal(got.view(torch.uint8), values)
        assert_bytes_equal(scales[:, 0], expected)
    else:
        expected = k.float().abs().amax(1) / 448
        assert_bytes_equal(scales[:, 0], expected)
        assert_bytes_equal(got.view(torch.uint8), (k.float() / scales).to(E4M3).view(torch.uint8))
