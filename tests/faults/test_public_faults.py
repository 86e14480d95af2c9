"""Symptoms that users of sparse indexers have reported in public, each as a small trigger."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest
import torch

from dsv4_iree import reference as plain
from dsv4_iree.errors import ArgumentError
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import Format, IndexerSpec
from dsv4_iree.testing import assert_bytes_equal, assert_logits_close, paged_inputs

FP4, K64 = IndexerSpec(num_heads=8), IndexerSpec(num_heads=8, page_size=16, topk=64)
FP8 = IndexerSpec(num_heads=8, format=Format.FP8, layout="n8")
PAGES = {
    1: IndexerSpec(num_heads=16, page_size=1),
    16: K64,
    64: FP4,
    128: IndexerSpec(num_heads=8, head_dim=64, page_size=128),
}
MAX, MIN, INF, NAN = 2**31 - 1, -(2**31), float("inf"), float("nan")
pytestmark = pytest.mark.gpu
Backend = Callable[..., Indexer]


def int32(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def one_hot_query(dim: int, rows: int = 1, exponent: int = 127) -> tuple[torch.Tensor, ...]:
    """1.0 at `dim` in head 0, nothing elsewhere."""
    values = torch.zeros(rows, 8, 64, dtype=torch.uint8)
    values[:, 0, dim // 2] = 2 << 4 * (dim % 2)
    return values, torch.full((rows, 8, 4), exponent, dtype=torch.uint8)


def first_head(rows: int = 1) -> torch.Tensor:
    weights = torch.zeros(rows, 8)
    weights[:, 0] = 1
    return weights


def slab(stride: int, pages: list[int], spec: IndexerSpec) -> tuple[torch.Tensor, torch.Tensor]:
    """Untouched memory with pages far apart, the named ones holding the same entries."""
    storage = torch.empty(max(pages) * stride + spec.page_bytes, dtype=torch.uint8)
    cache = storage.as_strided((max(pages) + 1, spec.page_bytes), (stride, 1))
    keys = torch.randn(64, 128, generator=torch.Generator().manual_seed(0))
    dense = torch.zeros(1, spec.page_bytes, dtype=torch.uint8)
    plain.write_cache(dense, *plain.quantize(keys, spec), torch.arange(64), spec)
    cache[pages] = dense[0]
    return cache, dense


@pytest.mark.parametrize(
    ("stride", "pages"),
    [
        (1_002_240, [2142, 2143, 4285, 4286]),
        (2**31 - 2048, [1]),  # values below 2^31, scales above
        (2**32 - 4200, [1]),  # the last scales above 2^32
    ],
    ids=["pages around 2 and 4 GiB", "scales alone beyond 2 GiB", "scales alone beyond 4 GiB"],
)
@pytest.mark.parametrize("spec", [FP4, FP8], ids=["fp4", "fp8"])
def test_scores_are_zero_or_garbage_beyond_2_gib_of_cache(
    compiled: Backend, spec: IndexerSpec, stride: int, pages: list[int]
) -> None:
    cache, dense = slab(stride, pages, spec)
    q = plain.quantize(torch.randn(1, 8, 128, generator=torch.Generator().manual_seed(1)), spec)
    scores = compiled(spec, "paged_mqa_logits").paged_mqa_logits
    expected = scores(q, torch.ones(1, 8), dense, int32(0)[None], int32(64))
    assert expected.isfinite().all()
    assert expected.count_nonzero() >= 60
    for page in pages:
        far = scores(q, torch.ones(1, 8), cache, int32(page)[None], int32(64))
        assert_bytes_equal(far, expected)


def test_all_entries_of_a_page_take_the_scale_of_the_first(compiled: Backend) -> None:
    cache = torch.zeros(1, 4352, dtype=torch.uint8)
    values = torch.full((64, 64), 0x22, dtype=torch.uint8)
    scales = (120 + torch.arange(64) % 16).to(torch.uint8)[:, None].repeat(1, 4)
    compiled(FP4, "write_cache").write_cache(cache, (values, scales), torch.arange(64))
    logits = compiled(FP4, "paged_mqa_logits").paged_mqa_logits(
        one_hot_query(70), first_head(), cache, int32(0)[None], int32(64)
    )
    assert logits[0].tolist() == [2.0 ** (t % 16 - 7) for t in range(64)]


@pytest.mark.parametrize("size", PAGES)
def test_the_first_entry_of_the_second_page_comes_from_elsewhere(
    compiled: Backend, reference: Backend, size: int
) -> None:
    spec, dim = PAGES[size], PAGES[size].head_dim
    cache = torch.full((9, spec.page_bytes), 0xFF, dtype=torch.uint8)
    keys = plain.quantize(torch.randn(size + 1, dim, generator=torch.Generator()), spec)
    slots = torch.cat([7 * size + torch.arange(size), torch.tensor([3 * size])])
    plain.write_cache(cache, *keys, slots, spec)
    q = plain.quantize(torch.randn(1, spec.num_heads, dim, generator=torch.Generator()), spec)
    weights = torch.ones(1, spec.num_heads)
    logits = compiled(spec, "paged_mqa_logits").paged_mqa_logits(
        q, weights, cache, int32(7, 3)[None], int32(size + 1), width=size + 1
    )
    whole = reference(spec).mqa_logits(q, keys, weights, None, int32(size + 1))
    assert_logits_close(logits, whole)
    assert logits.unique().numel() > size // 2


@pytest.mark.parametrize(("length", "next_n"), [(0, 2), (1, 6), (0, 1), (-3, 2)], ids=str)
def test_a_padded_row_with_a_negative_length_hangs_or_faults(
    compiled: Backend, length: int, next_n: int
) -> None:
    padded = [130, 0, 130]
    inputs = paged_inputs(FP4, padded, next_n=next_n, seed=2)
    ends = torch.tensor([130, length, 130]).repeat_interleave(next_n)
    inputs.end.copy_(ends - next_n + 1 + torch.arange(next_n).repeat(3))
    indexer = compiled(FP4, "paged_mqa_logits", "topk")
    logits = indexer.paged_mqa_logits(**inputs.arguments())
    chosen = indexer.topk(logits, inputs.start, inputs.end)
    middle = slice(next_n, 2 * next_n)
    empty = inputs.end[middle] <= 0
    assert logits[middle][empty].isneginf().all()
    assert chosen[middle][empty].eq(-1).all()
    real = [*range(next_n), *range(2 * next_n, 3 * next_n)]
    assert logits[real].isfinite().sum(1).equal(inputs.end[real].long())


@pytest.mark.parametrize("batch", [1, 31, 32, 33, 64])
def test_a_batch_of_nothing_but_empty_rows_runs_out_of_bounds(
    compiled: Backend, batch: int
) -> None:
    inputs = paged_inputs(K64, [0] * batch)
    indexer = compiled(K64, "paged_mqa_logits", "index_topk")
    assert indexer.paged_mqa_logits(**inputs.arguments()).isneginf().all()
    for skip in (True, False):
        assert indexer.index_topk(**inputs.arguments(), skip_short=skip).eq(-1).all()


def test_bytes_from_128_on_turn_negative_as_data(compiled: Backend) -> None:
    values = torch.zeros(256, 64, dtype=torch.uint8)
    values[:, 20] = torch.arange(256)
    k = values, torch.full((256, 4), 127, dtype=torch.uint8)
    grid = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, *[0.0] * 8]
    for dim, shift in ((40, 0), (41, 4)):
        logits = compiled(FP4, "mqa_logits").mqa_logits(
            one_hot_query(dim), k, first_head(), None, int32(256)
        )
        assert logits[0].tolist() == [grid[byte >> shift & 15] for byte in range(256)]


def test_bytes_from_128_on_turn_negative_as_scales(compiled: Backend) -> None:
    values = torch.zeros(256, 64, dtype=torch.uint8)
    values[:, 63] = 0x20
    scales = torch.full((256, 4), 127, dtype=torch.uint8)
    scales[:, 3] = torch.arange(256)
    score = compiled(FP4, "mqa_logits").mqa_logits
    logits = score(one_hot_query(127), (values, scales), first_head(), None, int32(256))[0]
    assert logits[1:255].tolist() == [2.0 ** (e - 127) for e in range(1, 255)]
    assert logits[255].isnan()
    up = score(one_hot_query(127, exponent=137), (values, scales), first_head(), None, int32(1))
    assert up[0, 0] == 2.0**-117


def test_groups_take_the_scale_of_their_neighbour(compiled: Backend) -> None:
    order = list(permutations([126, 127, 128, 129]))
    k = torch.full((24, 64), 0x22, dtype=torch.uint8), torch.tensor(order, dtype=torch.uint8)
    for group in range(4):
        logits = compiled(FP4, "mqa_logits").mqa_logits(
            one_hot_query(32 * group + 5), k, first_head(), None, int32(24)
        )
        assert logits[0].tolist() == [2.0 ** (scales[group] - 127) for scales in order]


def test_unused_table_columns_are_followed(compiled: Backend) -> None:
    inputs = paged_inputs(FP4, [257], seed=3)
    indexer = compiled(FP4, "paged_mqa_logits")
    tight = inputs.block_table[:, :5].clone()
    expected = indexer.paged_mqa_logits(**{**inputs.arguments(), "block_table": tight})
    for garbage in (MAX, -1, MIN, inputs.cache.shape[0]):
        table = torch.cat([tight, torch.full((1, 3), garbage, dtype=torch.int32)], dim=1)
        logits = indexer.paged_mqa_logits(**{**inputs.arguments(), "block_table": table}, width=320)
        assert_bytes_equal(logits, expected)


@pytest.mark.parametrize("width", [1, 3, 5, 7])
def test_an_odd_table_width_shifts_the_rows_behind(
    compiled: Backend, reference: Backend, width: int
) -> None:
    for lengths in ([0, 16 * width - 3, 33 % (16 * width)], [16 * width, 1, 0]):
        inputs = paged_inputs(K64, lengths, seed=width)
        arguments = {**inputs.arguments(), "block_table": inputs.block_table[:, :width].clone()}
        logits = compiled(K64, "paged_mqa_logits").paged_mqa_logits(**arguments)
        assert_logits_close(logits, reference(K64).paged_mqa_logits(**arguments))
        assert logits.isfinite().sum(1).tolist() == lengths


def test_the_word_behind_the_lengths_is_read(compiled: Backend) -> None:
    inputs = paged_inputs(FP4, [1], seed=4)
    lengths = torch.full((64,), MAX, dtype=torch.int32)
    lengths[0] = 1
    logits = compiled(FP4, "paged_mqa_logits").paged_mqa_logits(
        **{**inputs.arguments(), "end": lengths[:1]}
    )
    assert logits.isfinite().sum() == 1


@pytest.mark.parametrize("length", [1, 17, 63, 65])
def test_masked_lanes_write_around_the_output(compiled: Backend, length: int) -> None:
    inputs = paged_inputs(FP4, [length] * 3, seed=5)
    guarded = torch.full((16 + 3 * length + 16,), 55.0)
    out = guarded[16 : 16 + 3 * length].view(3, length)
    compiled(FP4, "paged_mqa_logits").paged_mqa_logits(**inputs.arguments(), out=out)
    assert out.isfinite().all()
    assert out.ne(55.0).all()
    assert guarded[:16].eq(55).all()
    assert guarded[16 + 3 * length :].eq(55).all()


@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (1, 17), (2, 3), (5, 16), (3, 7)], ids=str)
def test_sizes_below_a_tile_read_what_lies_behind(
    compiled: Backend, reference: Backend, rows: int, keys: int
) -> None:
    k = plain.quantize(torch.randn(keys, 128, generator=torch.Generator().manual_seed(6)), FP4)
    behind = tuple(torch.cat([part, torch.full((64, part.shape[1]), 255).byte()]) for part in k)
    q = plain.quantize(torch.randn(rows, 8, 128, generator=torch.Generator()), FP4)
    arguments = (tuple(part[:keys] for part in behind), torch.ones(rows, 8), None)
    end = torch.full((rows,), keys, dtype=torch.int32)
    logits = compiled(FP4, "mqa_logits").mqa_logits(q, *arguments, end)
    assert_logits_close(logits, reference(FP4).mqa_logits(q, *arguments, end))


def test_the_view_of_a_later_layer_reads_the_first_layer(compiled: Backend) -> None:
    storage = torch.full((2, 3, 4352), 0xFF, dtype=torch.uint8)
    for layer, exponent in ((0, 127), (1, 130)):
        pair = torch.full((1, 64), 0x22).byte(), torch.full((1, 4), exponent).byte()
        plain.write_cache(storage[layer], *pair, torch.tensor([64]), FP4)
    first, later = (
        compiled(FP4, "paged_mqa_logits").paged_mqa_logits(
            one_hot_query(9), first_head(), layer, int32(1)[None], int32(1), width=1
        )
        for layer in storage
    )
    assert (first.item(), later.item()) == (1.0, 8.0)


def test_rows_of_two_requests_in_one_chunk_use_one_table(compiled: Backend) -> None:
    inputs = paged_inputs(FP4, [64, 64], next_n=2, seed=7)
    for part in (*inputs.q, inputs.weights):
        part[2:] = part[:2]
    inputs.end.fill_(64)
    logits = compiled(FP4, "paged_mqa_logits").paged_mqa_logits(**inputs.arguments())
    inputs.row_to_request.copy_(int32(1, 1, 0, 0))
    swapped = compiled(FP4, "paged_mqa_logits").paged_mqa_logits(**inputs.arguments())
    assert_bytes_equal(swapped, logits[[2, 3, 0, 1]])
    assert not logits[0].equal(logits[2])


def test_a_window_past_the_table_takes_pages_of_the_next_request(compiled: Backend) -> None:
    inputs = paged_inputs(FP4, [128, 128], seed=8)
    arguments = {**inputs.arguments(), "block_table": inputs.block_table[:, :2].clone()}
    arguments["start"], arguments["end"] = int32(128, 63), int32(193, 128)
    logits = compiled(FP4, "paged_mqa_logits").paged_mqa_logits(**arguments, width=256)
    assert logits.isfinite().sum(1).tolist() == [0, 65]
    assert logits[1, 63:128].isfinite().all()


def test_the_largest_scores_overflow_or_tie(compiled: Backend) -> None:
    q = torch.full((1, 64, 64), 0x77).byte(), torch.full((1, 64, 4), 131).byte()
    k = torch.full((2, 64), 0x77).byte(), torch.full((2, 4), 131).byte()
    k[0][1, 0] = 0x76
    logits = compiled(IndexerSpec(), "mqa_logits").mqa_logits(
        q, k, torch.ones(1, 64), None, int32(2)
    )
    assert logits.tolist() == [[64 * 128 * 36 * 256.0, 64 * (128 * 36 - 12) * 256.0]]


def test_rotating_queries_and_keys_alike_moves_the_best_match(compiled: Backend) -> None:
    for hadamard in (False, True):
        spec = IndexerSpec(num_heads=8, hadamard=hadamard)
        k = plain.quantize(torch.eye(128), spec)
        q = plain.quantize(torch.eye(128)[:, None].repeat(1, 8, 1), spec)
        logits = compiled(spec, "mqa_logits").mqa_logits(
            q, k, torch.ones(128, 8), None, torch.full((128,), 128).int()
        )
        assert logits.argmax(1).equal(torch.arange(128))


@pytest.mark.parametrize("context", [8191, 8192, 8193])
def test_contexts_around_8192_differ(compiled: Backend, reference: Backend, context: int) -> None:
    inputs = paged_inputs(FP4, [context], seed=9)
    logits = compiled(FP4, "paged_mqa_logits").paged_mqa_logits(**inputs.arguments())
    assert_logits_close(logits, reference(FP4).paged_mqa_logits(**inputs.arguments()))


def test_no_call_changes_its_inputs(compiled: Backend) -> None:
    inputs = paged_inputs(K64, [100, 7], next_n=2, seed=10)
    indexer = compiled(K64, "paged_mqa_logits", "index_topk", "gather_cache", "dequantize")
    tensors = [*inputs.q, *(t for t in vars(inputs).values() if isinstance(t, torch.Tensor))]
    before = [tensor.clone() for tensor in tensors]
    indexer.paged_mqa_logits(**inputs.arguments())
    indexer.index_topk(**inputs.arguments())
    indexer.gather_cache(inputs.cache, inputs.block_table, int32(0, 1), int32(5, 6))
    indexer.dequantize(inputs.q)
    for tensor, old in zip(tensors, before):
        assert_bytes_equal(tensor, old)


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers with every second column of a wider tensor."""
    return torch.stack([tensor, tensor], dim=-1)[..., 0]


@pytest.mark.parametrize("name", ["end", "start", "row_to_request", "block_table", "weights"])
def test_strides_of_arguments_are_ignored(compiled: Backend, name: str) -> None:
    inputs = paged_inputs(FP4, [70, 9], seed=11)
    arguments = {**inputs.arguments(), name: strided(vars(inputs)[name])}
    with pytest.raises(ArgumentError, match=rf"^{name}: expected a contiguous tensor, got strides"):
        compiled(FP4, "paged_mqa_logits").paged_mqa_logits(**arguments)


def test_a_page_size_that_is_not_that_of_the_cache_is_accepted(compiled: Backend) -> None:
    inputs = paged_inputs(FP4, [70], seed=12)
    cache = torch.zeros(4, 128, 1, 68, dtype=torch.uint8)
    words = r"^cache: expected shape \[num_pages, 64, 1, 68\], got \[4, 128, 1, 68\]$"
    with pytest.raises(ArgumentError, match=words):
        compiled(FP4, "paged_mqa_logits").paged_mqa_logits(**{**inputs.arguments(), "cache": cache})


@pytest.mark.parametrize("offset", [1, 3, 17, 68])
def test_a_base_address_between_lines_crashes(compiled: Backend, offset: int) -> None:
    inputs = paged_inputs(FP4, [70], seed=13)
    moved = torch.zeros(inputs.cache.numel() + 128, dtype=torch.uint8)[offset:]
    cache = moved[: inputs.cache.numel()].view_as(inputs.cache)
    words = rf"^cache: expected data aligned to 64 bytes, got an address {offset % 64} bytes past"
    with pytest.raises(ArgumentError, match=words):
        compiled(FP4, "paged_mqa_logits").paged_mqa_logits(**{**inputs.arguments(), "cache": cache})


@pytest.mark.parametrize(
    ("spec", "kind"), [(FP8, torch.float8_e4m3fnuz), (FP8, torch.int8)], ids=["fnuz", "int8"]
)
def test_the_other_fp8_dialect_is_taken_for_this_one(
    compiled: Backend, spec: IndexerSpec, kind: torch.dtype
) -> None:
    k = torch.zeros(4, 128, dtype=torch.uint8).view(kind), torch.ones(4)
    q = torch.zeros(1, 8, 128, dtype=torch.uint8), torch.ones(1, 8)
    words = r"^k values: expected dtype uint8 or float8_e4m3fn, got "
    with pytest.raises(ArgumentError, match=words):
        compiled(spec, "mqa_logits").mqa_logits(q, k, torch.ones(1, 8), None, int32(4))
