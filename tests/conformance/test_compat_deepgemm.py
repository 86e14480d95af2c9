"""DeepGEMM's sweep (tests/test_attention.py) through `compat.deepgemm`."""

from __future__ import annotations

import pytest
import torch
from suites import DEEPGEMM, DEEPGEMM_OLD, DEEPGEMM_PAGED, DEEPGEMM_PREFILL

from dsv4_iree import reference
from dsv4_iree.compat import deepgemm
from dsv4_iree.formats import exact
from dsv4_iree.spec import IndexerSpec, Rounding
from dsv4_iree.testing import assert_logits_close, calc_diff, paged_inputs

pytestmark = pytest.mark.usefixtures("compat_compiled")
DTYPE = {"fp32": torch.float32, "bf16": torch.bfloat16}
UNQUANTISED = {"fp4": 0.02, "fp8": 1e-3}  # the suite's bounds against the vectors themselves


def vectors(x: torch.Tensor, kind: str) -> tuple[tuple, torch.Tensor]:
    """What DeepGEMM's callers pass for x as queries, and the numbers it stands for."""
    if kind == "fp8":
        q = x.to(torch.float8_e4m3fn)
        return (q, None), q.double()
    spec = IndexerSpec(rounding=Rounding.D, head_dim=x.shape[-1])
    values, scales = reference.quantize(x, spec)
    packed = values.view(torch.int8), scales.view(torch.int32)[..., 0]
    return packed, exact((values, scales), spec)


def keys(x: torch.Tensor, kind: str) -> tuple[tuple, torch.Tensor]:
    if kind == "fp4":
        return vectors(x, kind)
    spec = IndexerSpec(format="fp8", layout="n8", head_dim=x.shape[-1])
    values, scales = reference.quantize(x, spec)
    return (values.view(torch.float8_e4m3fn), scales), exact((values, scales), spec)


def windows(name: str, rows: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    i = torch.arange(rows // 2, dtype=torch.int32)
    start = torch.zeros(rows, dtype=torch.int32)
    if name == "causal":
        return start, width - rows + torch.arange(rows, dtype=torch.int32)
    ranks, half = width // rows, rows // 2
    rank = ranks // 3
    return start, torch.cat([rank * half + i, (2 * ranks - 1 - rank) * half + i])


def rounded(weights: torch.Tensor, dtypes: tuple[str, str]) -> torch.Tensor:
    return weights.to(DTYPE[dtypes[1]])


def inside(start: torch.Tensor, end: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Each row's window at column 0, -inf behind it, as wide as the longest."""
    width = int((end - start).max())
    out = torch.full((len(logits), width), float("-inf"))
    for row, (s, e) in enumerate(zip(start.tolist(), end.tolist())):
        out[row, : max(e - s, 0)] = logits[row, s : max(e, s)]
    return out


def compare(actual: torch.Tensor, expected: torch.Tensor, dtypes: tuple[str, str]) -> None:
    assert actual.dtype is DTYPE[dtypes[0]]
    bound = DEEPGEMM["bf16" if "bf16" in dtypes else "fp32"]
    assert_logits_close(actual.float(), expected, bound)


@pytest.mark.parametrize(
    "case", DEEPGEMM_PREFILL, ids=lambda case: "-".join(map(str, case.values()))
)
def test_prefill(case: dict) -> None:
    rows, width, heads, kind = 32, 256, case["heads"], case["kind"]
    random = torch.Generator().manual_seed(heads)
    q = torch.randn(rows, heads, 128, generator=random).bfloat16()
    k = torch.randn(width, 128, generator=random).bfloat16()
    weights = rounded(torch.randn(rows, heads, generator=random), case["dtypes"])
    (queries, q_numbers), (kv, k_numbers) = vectors(q, kind), keys(k, kind)
    start, end = windows(case["window"], rows, width)
    expected = reference.mqa_logits(q_numbers, k_numbers, weights.float(), start, end)
    longest = int((end - start).max())
    compressed = case["compressed"]
    logits = [
        deepgemm.fp8_fp4_mqa_logits(
            queries,
            kv,
            weights,
            start,
            end,
            clean_logits=not compressed,
            max_seqlen_k=longest if compressed else 0,
            logits_dtype=DTYPE[case["dtypes"][0]],
            schedule_meta=deepgemm.get_mqa_logits_metadata(start, end, width, heads),
        )
        for _ in range(2)
    ]
    shown = inside(start, end, expected) if compressed else expected
    compare(logits[0], shown, case["dtypes"])
    assert logits[0].equal(logits[1])
    plain = reference.mqa_logits(q, k, weights.float(), start, end)
    seen = plain.isfinite()
    assert calc_diff(expected[seen], plain[seen]) < UNQUANTISED[kind]


@pytest.mark.parametrize("heads", [8, 16])
@pytest.mark.parametrize("kind", ["fp4", "fp8"])
def test_a_head_dim_of_64(heads: int, kind: str) -> None:
    """FP4 scales of two groups come in the lower half of an int32."""
    random = torch.Generator().manual_seed(heads)
    q, k = torch.randn(9, heads, 64, generator=random), torch.randn(70, 64, generator=random)
    weights, end = torch.randn(9, heads, generator=random), torch.full((9,), 70).int()
    if kind == "fp8":
        (queries, q_numbers), (kv, k_numbers) = vectors(q, kind), keys(k, kind)
    else:
        spec = IndexerSpec(rounding=Rounding.D, head_dim=64)
        q_pair, k_pair = reference.quantize(q, spec), reference.quantize(k, spec)
        queries, kv = (
            (v.view(torch.int8), torch.cat([s, 255 - s], -1).view(torch.int32)[..., 0])
            for v, s in (q_pair, k_pair)
        )
        q_numbers, k_numbers = exact(q_pair, spec), exact(k_pair, spec)
    logits = deepgemm.fp8_fp4_mqa_logits(queries, kv, weights, torch.zeros_like(end), end)
    expected = reference.mqa_logits(q_numbers, k_numbers, weights, torch.zeros_like(end), end)
    compare(logits, expected, ("fp32", "fp32"))


def paged(kind: str, page: int, heads: int, lengths: list[int], next_n: int) -> tuple:
    spec = IndexerSpec(
        num_heads=heads, page_size=page, format=kind, layout="n4" if kind == "fp4" else "n8"
    )
    x = paged_inputs(spec, lengths, next_n=next_n, page_padding=64)
    values, scales = x.q
    if kind == "fp4":
        q = values.view(torch.int8), scales.view(torch.int32)[..., 0]
    else:
        q = values.view(torch.float8_e4m3fn), None
        x = type(x)(**{**vars(x), "q": (values, torch.ones_like(scales))})
    nominal = (len(x.cache), page, 1, spec.entry_bytes)
    row = spec.entry_bytes
    return spec, x, q, x.cache.as_strided(nominal, (x.cache.stride(0), row, row, 1))


@pytest.mark.parametrize("case", DEEPGEMM_PAGED, ids=lambda case: "-".join(map(str, case.values())))
def test_paged(case: dict) -> None:
    varlen = case["next_n"] == "varlen"
    next_n = 1 if varlen else case["next_n"]
    lengths = [230, 230, 161, 255, 7] if varlen else [230, 161, 255, 7]
    spec, x, q, cache = paged(case["kind"], case["page"], case["heads"], lengths, next_n)
    weights = rounded(x.weights, case["dtypes"])
    indices = None
    if varlen:  # rows 0 and 1 are one request, which reads the table row of row 0
        indices = torch.tensor([4, 4, 0, 7, 1], dtype=torch.int32)
        x.end[1] = 200
        x.row_to_request.copy_(torch.tensor([0, 0, 2, 3, 4]))
    lens = x.end.clamp(0).view(-1, next_n)
    if case["lens"] == "1-D" and not varlen:
        lens = torch.tensor(lengths, dtype=torch.int32)
    pair = tuple(None if part is None else part.unflatten(0, (-1, next_n)) for part in q)
    actual = deepgemm.fp8_fp4_paged_mqa_logits(
        pair,
        cache,
        weights,
        lens,
        x.block_table,
        deepgemm.get_paged_mqa_logits_metadata(lens, case["page"], 132, indices),
        288,
        False,
        DTYPE[case["dtypes"][0]],
        indices,
    )
    expected = reference.paged_mqa_logits(
        exact(x.q, spec), weights.float(), x.cache, x.block_table, x.row_to_request,
        x.start, x.end, 288, spec,
    )  # fmt: skip
    compare(actual, expected, case["dtypes"])


@pytest.mark.parametrize(("next_n", "page"), DEEPGEMM_OLD, ids=str)
def test_the_older_paged_name_with_one_length_a_request(next_n: int, page: int) -> None:
    spec, x, (values, _), cache = paged("fp8", page, 8, [230, 64, 1], next_n)
    actual = deepgemm.fp8_paged_mqa_logits(
        values.unflatten(0, (-1, next_n)),
        cache,
        x.weights,
        torch.tensor([230, 64, 1], dtype=torch.int32),
        x.block_table,
        None,
        256,
        clean_logits=True,
    )
    expected = reference.paged_mqa_logits(
        exact(x.q, spec), x.weights, x.cache, x.block_table, x.row_to_request,
        x.start, x.end, 256, spec,
    )  # fmt: skip
    compare(actual, expected, ("fp32", "fp32"))
