"""Reported symptoms on the gfx942 and gfx950 artifacts, executed on the emulator.

Every address is checked there: a read or write outside an allocation fails the test that made it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest
import torch

from dsv4_iree import reference as plain
from dsv4_iree.formats import exact
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import SPECS
from dsv4_iree.testing import assert_bytes_equal, assert_logits_close, paged_inputs

FLASH = SPECS["flash"]
MAX, MIN, NAN = 2**31 - 1, -(2**31), float("nan")
Backend = Callable[..., Indexer]


def int32(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def one_hot_query(dim: int, rows: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """1.0 at `dim` in head 0, nothing elsewhere."""
    values = torch.zeros(rows, 64, 64, dtype=torch.uint8)
    values[:, 0, dim // 2] = 2 << 4 * (dim % 2)
    return values, torch.full((rows, 64, 4), 127, dtype=torch.uint8)


def first_head(rows: int = 1) -> torch.Tensor:
    weights = torch.zeros(rows, 64)
    weights[:, 0] = 1
    return weights


def expected(x: dict, width: int) -> torch.Tensor:
    return plain.paged_mqa_logits(
        exact(x["q"], FLASH), x["weights"], x["cache"], x["block_table"], x["row_to_request"],
        x["start"], x["end"], width, FLASH,
    )  # fmt: skip


def test_padded_rows_with_negative_lengths(on_amd: Backend) -> None:
    x = paged_inputs(FLASH, [66, 0, 66], next_n=2).arguments()
    x["end"] = int32(65, 66, -1, 0, MIN, 66)
    logits = on_amd(FLASH, "paged_mqa_logits").paged_mqa_logits(**x, width=128)
    assert_logits_close(logits, expected(x, 128))
    assert logits.isfinite().sum(1).tolist() == [65, 66, 0, 0, 0, 66]


@pytest.mark.parametrize("batch", [1, 33])
def test_nothing_but_empty_rows(on_amd: Backend, batch: int) -> None:
    x = paged_inputs(FLASH, [0] * batch).arguments()
    assert on_amd(FLASH, "paged_mqa_logits").paged_mqa_logits(**x, width=64).isneginf().all()


def test_relu_is_applied_to_each_head(on_amd: Backend) -> None:
    q = torch.zeros(2, 64, 128)
    q[0, 0, 0], q[0, 1, 0] = 3, -4
    q[1, 0, 0], q[1, 1, 0] = 3, 4
    k, weights = torch.zeros(1, 128), torch.ones(2, 64)
    k[0, 0], weights[1, 1] = 1, -2
    logits = on_amd(FLASH, "mqa_logits").mqa_logits(
        plain.quantize(q, FLASH), plain.quantize(k, FLASH), weights, None, int32(1, 1)
    )
    assert logits.flatten().tolist() == [3.0, -5.0]


def test_the_second_page_is_found_through_the_table(on_amd: Backend) -> None:
    x = paged_inputs(FLASH, [65, 130], seed=2).arguments()
    last = x["cache"].shape[0] - 1
    first = int(x["block_table"][0, 0])
    x["cache"][last] = x["cache"][first]
    logits = on_amd(FLASH, "paged_mqa_logits").paged_mqa_logits(**x, width=192)
    assert_logits_close(logits, expected(x, 192))
    x["block_table"][0, 0] = last  # the last physical page is a page like any other
    moved = on_amd(FLASH, "paged_mqa_logits").paged_mqa_logits(**x, width=192)
    assert_bytes_equal(moved, logits)


@pytest.mark.parametrize("stride", [2**31 - 2048, 2**32 - 4224], ids=["2 GiB", "4 GiB"])
def test_pages_that_straddle_2_and_4_gib(on_amd: Backend, stride: int) -> None:
    keys = torch.randn(64, 128, generator=torch.Generator().manual_seed(3))
    dense = torch.zeros(1, 4352, dtype=torch.uint8)
    plain.write_cache(dense, *plain.quantize(keys, FLASH), torch.arange(64), FLASH)
    storage = torch.empty(stride + 4352, dtype=torch.uint8)
    cache = storage.as_strided((2, 4352), (stride, 1))
    ops = on_amd(FLASH, "paged_mqa_logits", "write_cache")
    ops.write_cache(cache, keys, torch.arange(64) + 64)
    assert_bytes_equal(cache[1], dense[0])
    q = plain.quantize(torch.randn(1, 64, 128, generator=torch.Generator()), FLASH)
    near, far = (
        ops.paged_mqa_logits(q, torch.ones(1, 64), pages, int32(page)[None], int32(64))
        for pages, page in ((dense, 0), (cache, 1))
    )
    assert near.count_nonzero() >= 60
    assert_bytes_equal(far, near)


@pytest.mark.parametrize("garbage", [MAX, MIN, -1, 5])
def test_garbage_in_unused_columns_of_an_odd_table(on_amd: Backend, garbage: int) -> None:
    x = paged_inputs(FLASH, [70, 0, 64], seed=4, spare_pages=2).arguments()
    assert x["cache"].shape[0] == 5
    table = torch.full((3, 3), garbage, dtype=torch.int32)
    table[0, :2], table[2, 0] = x["block_table"][0, :2], x["block_table"][2, 0]
    x["block_table"] = table
    logits = on_amd(FLASH, "paged_mqa_logits").paged_mqa_logits(**x)
    assert_logits_close(logits, expected(x, 192))
    assert logits.isfinite().sum(1).tolist() == [70, 0, 64]


def test_pages_that_do_not_exist_and_requests_that_do_not_exist(on_amd: Backend) -> None:
    x = paged_inputs(FLASH, [130, 64], seed=5).arguments()
    x["block_table"][0, 1] = x["cache"].shape[0]
    x["row_to_request"] = int32(0, 2)
    logits = on_amd(FLASH, "paged_mqa_logits").paged_mqa_logits(**x, width=192)
    assert_logits_close(logits, expected(x, 192))
    assert logits.isfinite().sum(1).tolist() == [66, 0]


def test_a_nan_scale_passes_the_relu(on_amd: Backend) -> None:
    x = paged_inputs(FLASH, [20]).arguments()
    page = int(x["block_table"][0, 0])
    x["cache"][page, 64 * 64 + 7 * 4] = 255
    logits = on_amd(FLASH, "paged_mqa_logits").paged_mqa_logits(**x, width=64)
    assert_logits_close(logits, expected(x, 64))
    assert logits.isnan().nonzero().tolist() == [[0, 7]]


def test_each_group_has_its_own_scale(on_amd: Backend) -> None:
    order = list(permutations([126, 127, 128, 129]))
    k = torch.full((24, 64), 0x22, dtype=torch.uint8), torch.tensor(order, dtype=torch.uint8)
    ops = on_amd(FLASH, "mqa_logits")
    for group in range(4):
        q = one_hot_query(32 * group + 5)
        logits = ops.mqa_logits(q, k, first_head(), None, int32(24))
        assert logits[0].tolist() == [2.0 ** (scales[group] - 127) for scales in order]


@pytest.mark.parametrize(("dim", "shift"), [(40, 0), (41, 4)], ids=["low", "high"])
def test_bytes_from_128_on_stay_positive_and_nibbles_in_order(
    on_amd: Backend, dim: int, shift: int
) -> None:
    values = torch.zeros(256, 64, dtype=torch.uint8)
    values[:, 20] = torch.arange(256)
    k = values, torch.full((256, 4), 127, dtype=torch.uint8)
    grid = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, *[0.0] * 8]
    logits = on_amd(FLASH, "mqa_logits").mqa_logits(
        one_hot_query(dim), k, first_head(), None, int32(256)
    )
    assert logits[0].tolist() == [grid[byte >> shift & 15] for byte in range(256)]


@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (2, 3), (3, 17)], ids=str)
def test_sizes_below_a_tile(on_amd: Backend, rows: int, keys: int) -> None:
    random = torch.Generator().manual_seed(keys)
    q = plain.quantize(torch.randn(rows, 64, 128, generator=random), FLASH)
    k = plain.quantize(torch.randn(keys, 128, generator=random), FLASH)
    weights, end = torch.randn(rows, 64, generator=random), torch.full((rows,), MAX).int()
    guarded = torch.full((16 + rows * keys + 16,), 55.0)
    out = guarded[16 : 16 + rows * keys].view(rows, keys)
    on_amd(FLASH, "mqa_logits").mqa_logits(q, k, weights, None, end, out=out)
    zero = torch.zeros_like(end)
    scored = plain.mqa_logits(exact(q, FLASH), exact(k, FLASH), weights, zero, end)
    assert_logits_close(out, scored)
    assert guarded[:16].eq(55).all()
    assert guarded[16 + rows * keys :].eq(55).all()


ROWS = 1200
LADDER = (torch.arange(ROWS, dtype=torch.int32) + 0x3F800000).view(torch.float32)
HARD = {
    "one bin, ascending": LADDER,
    "one bin, descending": LADDER.flip(0),
    "all equal": torch.full((ROWS,), -5.0),
    "upper half of each 64": (torch.arange(ROWS) % 64 >= 32).float(),
    "mostly NaN": torch.where(torch.arange(ROWS) % 12 == 0, LADDER, NAN),
    "few winners, many ties": (torch.arange(ROWS) % 300 == 7).float(),
    "a narrow band": 10 + 0.2 * torch.rand(ROWS, generator=torch.Generator().manual_seed(6)),
}


def test_hard_rows_are_selected_exactly(on_amd: Backend) -> None:
    logits = torch.stack(list(HARD.values()))
    end = torch.full((len(HARD),), ROWS).int()
    chosen = on_amd(FLASH, "topk").topk(logits, None, end)
    assert chosen.equal(plain.topk(logits, 512, torch.zeros_like(end), end))


def test_long_and_short_rows_in_one_call_and_a_dirty_output(on_amd: Backend) -> None:
    logits = torch.randn(6, ROWS, generator=torch.Generator().manual_seed(7))
    end = int32(ROWS, 100, 0, 511, 512, 513)
    out = torch.full((6, 512), MAX, dtype=torch.int32)
    before = logits.clone()
    on_amd(FLASH, "topk").topk(logits, None, end, out=out)
    assert out.equal(plain.topk(logits, 512, torch.zeros_like(end), end))
    assert_bytes_equal(logits, before)
