"""mqa_logits and paged_mqa_logits: hand-computed cases, windows, and the compiled form against
the reference."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dsv4_iree import reference as plain
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import Format, IndexerSpec
from dsv4_iree.testing import assert_bytes_equal, assert_logits_close, paged_inputs

FP4 = IndexerSpec(num_heads=8)
FP8 = IndexerSpec(num_heads=8, format=Format.FP8, layout="n8")
FNUZ = IndexerSpec(num_heads=8, page_size=32, format=Format.FP8_FNUZ, layout="p8")
BF16 = IndexerSpec(num_heads=8, format=Format.BF16)
PAGED = {
    "fp4": FP4,
    "fp4-heads64": IndexerSpec(),
    "fp4-heads16-page1": IndexerSpec(num_heads=16, page_size=1),
    "fp4-page16": IndexerSpec(num_heads=8, page_size=16),
    "fp4-dim64-page128": IndexerSpec(num_heads=8, head_dim=64, page_size=128),
    "G4-page16": IndexerSpec(num_heads=8, page_size=16, layout="g4"),
    "G4-heads32-page32": IndexerSpec(num_heads=32, page_size=32, layout="g4"),
    "fp8": FP8,
    "P8-fnuz-page32": FNUZ,
}
RAGGED = {
    "fp4": FP4,
    "fp4-heads16": IndexerSpec(num_heads=16),
    "fp4-heads32": IndexerSpec(num_heads=32),
    "fp4-heads64": IndexerSpec(),
    "fp4-dim64": IndexerSpec(num_heads=8, head_dim=64),
    "fp8": FP8,
    "fnuz": FNUZ,
    "bf16": BF16,
}
pytestmark = pytest.mark.gpu
Backend = Callable[..., Indexer]
OPS = {"ragged": "mqa_logits", "paged": "paged_mqa_logits"}


def int32(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def vectors(spec: IndexerSpec, *shape: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Random quantised vectors; bfloat16 ones in format BF16."""
    x = torch.randn(*shape, spec.head_dim, generator=torch.Generator().manual_seed(seed))
    return x.bfloat16() if spec.format is Format.BF16 else plain.quantize(x, spec)


def dense_cache(spec: IndexerSpec, keys: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """A cache that holds the keys in order, from slot 0 on."""
    count = len(keys[0])
    cache = torch.zeros(-(-count // spec.page_size), spec.page_bytes, dtype=torch.uint8)
    plain.write_cache(cache, *keys, torch.arange(count), spec)
    return cache


def score(
    indexer: Indexer, op: str, q: object, k: object, weights: torch.Tensor, *window: int
) -> torch.Tensor:
    """Logits of one row over the keys, ragged or through a dense cache."""
    start, end = int32(window[0]), int32(window[1])
    if op == "ragged":
        return indexer.mqa_logits(q, k, weights, start, end)
    cache = dense_cache(indexer.spec, k)
    table = torch.arange(cache.shape[0], dtype=torch.int32)[None]
    return indexer.paged_mqa_logits(q, weights, cache, table, end, start=start, width=len(k[0]))


def fp4(rows: list[dict[int, int]], exponent: int = 127) -> tuple[torch.Tensor, torch.Tensor]:
    """FP4 vectors of 128 dims given as {dim: code}."""
    codes = torch.zeros(len(rows), 128, dtype=torch.uint8)
    for row, entries in zip(codes, rows):
        for dim, code in entries.items():
            row[dim] = code
    scales = torch.full((len(rows), 4), exponent, dtype=torch.uint8)
    return codes[:, 0::2] | codes[:, 1::2] << 4, scales


def one_query(*heads: dict[int, int], exponent: int = 127) -> tuple[torch.Tensor, torch.Tensor]:
    """A query row of 8 heads of which the first are given."""
    values, scales = fp4([*heads, *({} for _ in range(8 - len(heads)))], exponent)
    return values[None], scales[None]


def head_weights(*first: float) -> torch.Tensor:
    return torch.tensor([[*first, *(0.0 for _ in range(8 - len(first)))]])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("second_head", "weights", "expected"),
    [
        ({0: 14, 1: 10}, (1.0, 1.0), 3.0),  # dots 3 and -5
        ({0: 6, 1: 2}, (1.0, -2.0), -7.0),  # dots 3 and 5
        ({0: 14, 1: 10}, (1.0, -2.0), 3.0),
        ({0: 14, 1: 10}, (-1.5, 4.0), -4.5),
    ],
    ids=["negative-dot", "negative-weight", "both", "only-positive-dots-count"],
)
def test_each_head_passes_the_relu_before_it_is_weighted(
    backend: Backend, op: str, second_head: dict[int, int], weights: tuple, expected: float
) -> None:
    indexer, k = backend(FP4, OPS[op]), fp4([{0: 2, 1: 2}])
    q = one_query({0: 5}, second_head)
    assert score(indexer, op, q, k, head_weights(*weights), 0, 1).tolist() == [[expected]]


@pytest.mark.parametrize("op", OPS)
def test_a_one_hot_query_reads_every_dim_of_a_key_in_order(backend: Backend, op: str) -> None:
    indexer = backend(FP4, OPS[op])
    code = [1 + dim % 7 for dim in range(128)]
    value = [[0, 0.5, 1, 1.5, 2, 3, 4, 6][c] for c in code]
    scales = torch.tensor([[126, 127, 128, 130]], dtype=torch.uint8)
    factor = [0.5, 1.0, 2.0, 8.0]
    k = fp4([dict(enumerate(code))])[0], scales
    for dim in (0, 1, 2, 31, 32, 33, 63, 64, 95, 96, 126, 127):
        logits = score(indexer, op, one_query({dim: 2}), k, head_weights(1.0), 0, 1)
        assert logits.item() == value[dim] * factor[dim // 32], dim


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("q_byte", "k_byte", "factor"),
    [(254, 0, 1.0), (0, 254, 1.0), (253, 1, 1.0), (1, 254, 2.0), (200, 0, 2.0**-54)],
    ids=["254x0", "0x254", "253x1", "1x254", "200x0"],
)
def test_the_most_extreme_scales_keep_their_exact_meaning(
    backend: Backend, op: str, q_byte: int, k_byte: int, factor: float
) -> None:
    indexer = backend(FP4, OPS[op])
    k = fp4([{0: 7, 40: 1, 127: 3}], k_byte)
    q = one_query({0: 7, 40: 1}, {0: 15, 127: 5}, exponent=q_byte)
    logits = score(indexer, op, q, k, head_weights(1.0, -1.0), 0, 1)
    assert logits.item() == 36.25 * factor  # 6*6 + 0.5*0.5, and relu(-36 + 4.5)


@pytest.mark.parametrize("op", OPS)
def test_scale_byte_255_makes_the_logits_of_its_key_nan_and_no_others(
    backend: Backend, op: str
) -> None:
    indexer = backend(FP4, OPS[op])
    values, scales = fp4([{0: 2}, {0: 2}, {0: 10}, {0: 2}])
    scales[1, 3] = 255
    scales[2, 0] = 255
    logits = score(indexer, op, one_query({0: 2}), (values, scales), head_weights(1.0), 0, 4)
    assert logits.isnan().tolist() == [[False, True, True, False]]
    assert logits[0, [0, 3]].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("op", OPS)
def test_scale_byte_255_in_one_head_makes_the_row_nan(backend: Backend, op: str) -> None:
    indexer, q = backend(FP4, OPS[op]), one_query({0: 2}, {1: 2})
    q[1][0, 7, 2] = 255
    logits = score(indexer, op, q, fp4([{0: 2}, {1: 2}]), head_weights(1.0), 0, 1)
    assert logits[0, 0].isnan()
    assert logits[0, 1] == float("-inf")


@pytest.mark.parametrize("spec", [FP8, FNUZ], ids=["fn", "fnuz"])
@pytest.mark.parametrize("op", OPS)
def test_nan_in_an_fp8_key_or_its_scale_makes_its_logits_nan(
    backend: Backend, op: str, spec: IndexerSpec
) -> None:
    keys = torch.ones(4, 128)
    keys[2, 5] = float("nan")
    values, scales = plain.quantize(keys, spec)
    values[1, 3] = 0x7F if spec is FP8 else 0x80
    q = plain.quantize(torch.ones(1, 8, 128), spec)
    logits = score(backend(spec, OPS[op]), op, q, (values, scales), head_weights(1.0), 0, 4)
    assert logits.isnan().tolist() == [[False, True, True, False]]
    assert logits[0, [0, 3]].tolist() == [128.0, 128.0]


@pytest.mark.parametrize("op", OPS)
def test_zeros_of_both_signs_and_groups_of_zeros_score_zero(backend: Backend, op: str) -> None:
    indexer = backend(FP4, OPS[op])
    values, scales = fp4([{}, {0: 8, 1: 8}, {0: 2}])
    scales[0] = torch.tensor([1, 0, 112, 254])
    logits = score(
        indexer, op, one_query({0: 8}, {1: 5}), (values, scales), head_weights(1, 1), 0, 3
    )
    assert logits.abs().tolist() == [[0.0, 0.0, 0.0]]


WINDOWS = {  # (start, end): columns of 70 that are visible
    (0, 70): range(70), (0, 0): (), (5, 5): (), (10, 3): (), (0, -4): (), (-4, -1): (),
    (-3, 2): range(2), (63, 65): (63, 64), (64, 66): (64, 65), (30, 40): range(30, 40),
    (69, 1000): (69,), (70, 90): (), (0, 2**31 - 1): range(70), (1, 2**31 - 1): range(1, 70),
    (-(2**31), 2**31 - 1): range(70), (2**31 - 1, 2**31 - 1): (), (0, -(2**31)): (),
}  # fmt: skip


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "kept"])
@pytest.mark.parametrize("op", OPS)
def test_only_columns_inside_the_window_are_scored(backend: Backend, op: str, clean: bool) -> None:
    indexer, rows = backend(FP4, OPS[op]), len(WINDOWS)
    q, k = vectors(FP4, rows, 8), vectors(FP4, 70, seed=1)
    weights = torch.randn(rows, 8, generator=torch.Generator().manual_seed(2))
    start, end = (int32(*column) for column in zip(*WINDOWS))
    cache, table = dense_cache(FP4, k), int32(0, 1).repeat(rows, 1)

    def run(first: torch.Tensor, last: torch.Tensor, **how: object) -> torch.Tensor:
        if op == "ragged":
            return indexer.mqa_logits(q, k, weights, first, last, **how)
        return indexer.paged_mqa_logits(
            q, weights, cache, table, last, start=first, width=70, **how
        )

    whole = run(torch.zeros_like(start), torch.full_like(end, 70))
    out = torch.full((rows, 70), 123.0)
    got = run(start, end, clean=clean, out=out)
    assert got is out
    expected = torch.full((rows, 70), float("-inf") if clean else 123.0)
    for row, visible in enumerate(WINDOWS.values()):
        expected[row, list(visible)] = whole[row, list(visible)]
    assert_bytes_equal(out, expected)


@pytest.mark.parametrize("spec", RAGGED.values(), ids=RAGGED)
def test_compiled_ragged_logits_equal_the_reference(
    compiled: Backend, reference: Backend, spec: IndexerSpec
) -> None:
    q, k = vectors(spec, 21, spec.num_heads, seed=3), vectors(spec, 333, seed=4)
    weights = torch.randn(21, spec.num_heads, generator=torch.Generator().manual_seed(5))
    start = torch.arange(21, dtype=torch.int32) * 7 - 3
    end = (torch.arange(21, dtype=torch.int32) * 29) % 350
    expected = reference(spec).mqa_logits(q, k, weights, start, end)
    logits = compiled(spec, "mqa_logits").mqa_logits(q, k, weights, start, end)
    assert_logits_close(logits, expected)
    assert expected.isfinite().sum() > 1000


@pytest.mark.parametrize("spec", PAGED.values(), ids=PAGED)
def test_compiled_paged_logits_equal_the_reference(
    compiled: Backend, reference: Backend, spec: IndexerSpec
) -> None:
    inputs = paged_inputs(spec, [0, 1, 63, 64, 65, 150], page_padding=36, seed=6)
    logits = compiled(spec, "paged_mqa_logits").paged_mqa_logits(**inputs.arguments())
    expected = reference(spec).paged_mqa_logits(**inputs.arguments())
    assert_logits_close(logits, expected)
    assert expected.isfinite().sum(1).tolist() == [0, 1, 63, 64, 65, 150]


@pytest.mark.parametrize("next_n", [1, 2, 3, 6])
def test_each_of_next_n_rows_sees_one_entry_more_than_the_one_before(
    compiled: Backend, reference: Backend, next_n: int
) -> None:
    inputs = paged_inputs(FP4, [130, 0, 2, 64], next_n=next_n, seed=7)
    arguments = inputs.arguments()
    expected = reference(FP4).paged_mqa_logits(**arguments)
    del arguments["row_to_request"], arguments["start"]  # both have a default
    logits = compiled(FP4, "paged_mqa_logits").paged_mqa_logits(**arguments)
    assert_logits_close(logits, expected)
    seen = [max(n - back, 0) for n in (130, 0, 2, 64) for back in range(next_n - 1, -1, -1)]
    assert logits.isfinite().sum(1).tolist() == seen


@pytest.mark.parametrize("width", [1, 37, 64, 128, 300], ids=str)
def test_the_width_may_be_below_or_above_that_of_the_table(backend: Backend, width: int) -> None:
    inputs = paged_inputs(FP4, [100, 20], seed=8)
    indexer = backend(FP4, "paged_mqa_logits")
    whole = indexer.paged_mqa_logits(**inputs.arguments())
    assert whole.shape == (2, 192)
    logits = indexer.paged_mqa_logits(**inputs.arguments(), width=width)
    expected = torch.full((2, width), float("-inf"))
    shared = min(width, 192)
    expected[:, :shared] = whole[:, :shared]
    assert_bytes_equal(logits, expected)


def test_rows_may_name_their_request_and_unknown_requests_see_nothing(backend: Backend) -> None:
    inputs = paged_inputs(FP4, [70, 40], next_n=4, seed=9)
    arguments = inputs.arguments()
    arguments["end"] = torch.full((8,), 40, dtype=torch.int32)
    arguments["row_to_request"] = int32(1, 0, -1, 1, 2, 2**31 - 1, 0, -(2**31))
    logits = backend(FP4, "paged_mqa_logits").paged_mqa_logits(**arguments)
    assert logits.isfinite().sum(1).tolist() == [40, 40, 0, 40, 0, 0, 40, 0]
    for row, request in enumerate([1, 0, None, 1, None, None, 0, None]):
        if request is not None:
            one = dict(arguments, row_to_request=torch.full((8,), request, dtype=torch.int32))
            alone = backend(FP4, "paged_mqa_logits").paged_mqa_logits(**one)
            assert_bytes_equal(logits[row], alone[row])


def test_entries_on_pages_that_do_not_exist_are_invisible(backend: Backend) -> None:
    inputs = paged_inputs(FP4, [300], seed=10)
    indexer = backend(FP4, "paged_mqa_logits")
    expected = indexer.paged_mqa_logits(**inputs.arguments())
    pages = inputs.cache.shape[0]
    for column, garbage in enumerate((-1, pages, 2**31 - 1)):
        inputs.block_table[0, column + 1] = garbage
        expected[0, 64 * (column + 1) : 64 * (column + 2)] = float("-inf")
    assert_bytes_equal(indexer.paged_mqa_logits(**inputs.arguments()), expected)


@pytest.mark.parametrize("spec", [FP8, FNUZ], ids=["fn", "fnuz"])
def test_fp8_scales_of_queries_and_keys_are_applied_once(
    backend: Backend, spec: IndexerSpec
) -> None:
    q = torch.zeros(2, 8, 128, dtype=torch.uint8)
    k = torch.zeros(2, 128, dtype=torch.uint8)
    one = 0x38 if spec is FP8 else 0x40
    q[:, :, 3] = k[:, 3] = one
    q_scale = torch.tensor([[1.0], [8.0]]) * torch.tensor([1.0, 2.0, *[0.0] * 6])
    k_scale = torch.tensor([0.25, 3.0])
    weights = torch.tensor([[1.0, 10.0, *[1.0] * 6]]).repeat(2, 1)
    logits = backend(spec, "mqa_logits").mqa_logits(
        (q, q_scale), (k, k_scale), weights, None, int32(2, 2)
    )
    assert logits.tolist() == [[5.25, 63.0], [42.0, 504.0]]


def test_batches_without_rows_keys_or_columns_are_legal(backend: Backend) -> None:
    ragged, paged = (backend(FP4, op) for op in OPS.values())
    none, two = vectors(FP4, 0, 8), vectors(FP4, 2, 8)
    w0, w2, end0, end2 = torch.zeros(0, 8), torch.ones(2, 8), int32(), int32(5, 5)
    assert ragged.mqa_logits(none, vectors(FP4, 3), w0, None, end0).shape == (0, 3)
    assert ragged.mqa_logits(two, vectors(FP4, 0), w2, None, end2).shape == (2, 0)
    cache, table = dense_cache(FP4, vectors(FP4, 3)), int32(0)[None]
    empty = torch.zeros(2, 0, dtype=torch.int32)
    assert paged.paged_mqa_logits(none, w0, cache, table, end0).shape == (0, 64)
    assert paged.paged_mqa_logits(two, w2, cache, table, end2, width=0).shape == (2, 0)
    for unseen in (
        paged.paged_mqa_logits(two, w2, cache[:0], table, end2),
        paged.paged_mqa_logits(two, w2, cache, empty, end2, width=9),
    ):
        assert unseen.isneginf().all()
        assert unseen.numel()
