# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The top-k kernel of CPUs with AVX-512: rows that fill its buffer again and again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dsv4_iree import manifest
from dsv4_iree import reference as plain
from dsv4_iree.indexer import Indexer
from dsv4_iree.kernels.forms import AVX512
from dsv4_iree.kernels.threshold import GROUPS
from dsv4_iree.spec import IndexerSpec
from dsv4_iree.testing import assert_bytes_equal

Load = Callable[..., Indexer]
SPEC = IndexerSpec(topk=8)  # a buffer of 1056 entries
MILLION = 1048576

pytestmark = pytest.mark.skipif(
    not set(manifest.host_cpu().split()) >= AVX512, reason="this CPU has no AVX-512"
)


def patterns(columns: int, seed: int) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    normal = torch.randn(columns, generator=random)
    bits = torch.randint(-(2**31), 2**31, (columns,), generator=random).to(torch.int32)
    number = torch.arange(columns)
    levels = torch.randint(0, 4, (columns,), generator=random)
    denormal = (number % 2**23).to(torch.int32).view(torch.float32)
    return [
        normal,
        -normal.abs(),
        normal.sort().values,
        normal.sort(descending=True).values,
        bits.view(torch.float32),  # every kind of number there is
        levels.float(),
        -levels.float() * 0.0,
        levels.float() + (number > columns - 5),  # the last few are better than a heap of equals
        torch.where(levels == 0, normal, float("-inf")),
        torch.where(levels == 0, normal, float("nan")),
        denormal,
        -denormal,
        10 + 1e-5 * normal,
        torch.exp(normal * 20),
    ]


@given(
    columns=st.sampled_from([0, 1, 7, 8, 9, 63, 64, 65, 1055, 1056, 1057, 4000, 20011]),
    first=st.integers(-3, 90),
    cut=st.integers(-90, 90),
    ids=st.sampled_from(["relative", "entry", "slot"]),
    ascending=st.booleans(),
    bf16=st.booleans(),
    gap=st.sampled_from([0, 1, 70]),
    seed=st.integers(0, 999),
)
def test_any_row_in_any_window(
    compiled: Load,
    columns: int,
    first: int,
    cut: int,
    ids: str,
    ascending: bool,
    bf16: bool,
    gap: int,
    seed: int,
) -> None:
    logits = torch.stack(patterns(columns + gap, seed)).to(
        torch.bfloat16 if bf16 else torch.float32
    )
    logits[:, columns:] = torch.inf
    logits = logits[:, :columns]
    start = torch.full((len(logits),), first, dtype=torch.int32)
    end = torch.full((len(logits),), columns - cut, dtype=torch.int32)
    table = torch.arange(len(logits) * 4, dtype=torch.int32).view(len(logits), 4).flip(1)
    rows = torch.arange(len(logits), dtype=torch.int32)
    options = {"block_table": table, "row_to_request": rows} if ids == "slot" else {}
    chosen = compiled(SPEC, "topk").topk(
        logits, start, end, sorted=not ascending, ids=ids, **options
    )
    expected = plain.topk(logits, 8, start, end, sorted=not ascending)
    assert_bytes_equal(chosen, plain.as_ids(expected, ids, start, table, rows, SPEC))


@pytest.mark.parametrize("k", [8, 512, 4096])
def test_a_million_columns(compiled: Load, k: int) -> None:
    kinds = patterns(MILLION, seed=k)
    logits = torch.stack([kinds[i] for i in (2, 4, 7)])
    end = torch.full((3,), MILLION, dtype=torch.int32)
    chosen = compiled(IndexerSpec(topk=k), "topk").topk(logits, None, end)
    assert_bytes_equal(chosen, plain.topk(logits, k, torch.zeros_like(end), end))


def test_a_long_row_leaves_nothing_to_the_short_one_after_it(compiled: Load) -> None:
    # Rows 0 and GROUPS, 1 and GROUPS + 1 share a buffer.
    logits = torch.randn(2 * GROUPS, 3000, generator=torch.Generator().manual_seed(0))
    end = torch.arange(2 * GROUPS, dtype=torch.int32).flip(0) % 7
    end[:GROUPS] = 3000
    chosen = compiled(SPEC, "topk").topk(logits, None, end)
    assert_bytes_equal(chosen, plain.topk(logits, 8, torch.zeros_like(end), end))


def test_this_kernel_is_what_runs(make: Callable[..., Path]) -> None:
    artifact = manifest.read(make("cpu", "topk", SPEC))
    assert artifact.form == "threshold"
    assert manifest.read(make("cpu-generic", "topk", SPEC)).form == "portable"
