"""What AITER's Gluon MXFP4 scorer does beside dense decode, through compat."""

from __future__ import annotations

import pytest
import torch
from suites import GLUON, GLUON_GATHER

from dsv4_iree import layout, reference
from dsv4_iree.compat import aiter_mxfp4
from dsv4_iree.formats import exact
from dsv4_iree.spec import IndexerSpec
from dsv4_iree.testing import PagedInputs, assert_logits_close, paged_inputs

pytestmark = pytest.mark.usefixtures("compat_backend")
INF = float("inf")
GARBAGE = 2**31 - 1


def dense(x: PagedInputs, spec: IndexerSpec, width: int, end: torch.Tensor | None = None):
    return reference.paged_mqa_logits(
        exact(x.q, spec), x.weights, x.cache, x.block_table, x.row_to_request,
        x.start, x.end if end is None else end, width, spec,
    )  # fmt: skip


def pages(x: PagedInputs, natural: IndexerSpec, spec: IndexerSpec) -> torch.Tensor:
    """The N4 cache as the nominal view of another layout."""
    out = layout.from_entries(spec, layout.as_entries(natural, x.cache))
    return out.view(len(out), spec.page_size, 1, 68)


def queries(x: PagedInputs, next_n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(part.unflatten(0, (-1, next_n)) for part in x.q)


def candidates(end: torch.Tensor, block: int, count: int) -> torch.Tensor:
    """[R, count] block ids in random order; half of them out of reach: -1, or behind the keys."""
    random = torch.Generator().manual_seed(block)
    rows = []
    for n in end.clamp(0).tolist():
        total = -(-n // block)
        chosen = torch.randperm(total, generator=random)[: count // 2]
        chosen = torch.cat([chosen, torch.full((count,), -1)])[:count]
        chosen[-1] = total + 3
        rows.append(chosen[torch.randperm(count, generator=random)])
    return torch.stack(rows).int()


def listed(
    logits: torch.Tensor, ids: torch.Tensor, end: torch.Tensor, block: int, width: int
) -> torch.Tensor:
    """Columns of the row's blocks in ascending order, key by key."""
    out = torch.full((len(logits), width), -INF)
    for row, n in enumerate(end.tolist()):
        kept = sorted(i for i in ids[row].tolist() if 0 <= i * block < n)
        keys = [i * block + t for i in kept for t in range(block) if i * block + t < n]
        out[row, : len(keys)] = logits[row, keys]
    return out


@pytest.mark.parametrize(("heads", "page", "preshuffle", "block"), GLUON_GATHER, ids=str)
def test_candidate_blocks(heads: int, page: int, preshuffle: int, block: int) -> None:
    natural = IndexerSpec(num_heads=heads, page_size=page)
    spec = IndexerSpec(num_heads=heads, page_size=page, layout="g4" if preshuffle else "n4")
    x = paged_inputs(natural, [230, 64, 1], next_n=2)
    cache, lens = pages(x, natural, spec), torch.tensor([230, 64, 1], dtype=torch.int32)
    ids = candidates(x.end, block, 8)
    width = 8 * block + 5
    given = (*queries(x, 2), cache, x.weights, lens, x.block_table)
    logits = aiter_mxfp4.paged_mxfp4_mqa_logits(
        *given, width, preshuffle=preshuffle, use_gather=True, candidates=ids,
        candidate_block_size=block,
    )  # fmt: skip
    expected = listed(dense(x, natural, 256), ids, x.end, block, width)
    assert expected.isfinite().any(1).tolist() == (x.end > 0).tolist()
    assert_logits_close(logits, expected, GLUON)
    contiguous = aiter_mxfp4.paged_mxfp4_mqa_logits(*given, 256, preshuffle=preshuffle)
    # On a GPU not bit for bit: keys that are read together share one of two forms there.
    assert_logits_close(logits, listed(contiguous, ids, x.end, block, width), GLUON)

    table = x.block_table.repeat_interleave(2, dim=0)
    gather, counts = aiter_mxfp4.build_candidate_gather(ids, x.end, table, cache, heads, 128, block)
    assert counts.tolist() == expected.isfinite().sum(1).tolist()
    positions = gather["positions"].long()
    assert (positions.diff(dim=1) >= 0).all()
    slots = table.gather(1, positions // page) * page + positions % page
    assert gather["slots"].equal(slots.int())
    out = torch.full((6, width), 7.0)
    again = aiter_mxfp4.paged_mxfp4_mqa_logits(
        *given, width, out_logits=out, clean_logits=False, preshuffle=preshuffle,
        row_ends=counts, use_gather=True, candidates=gather,
    )  # fmt: skip
    assert again is out
    assert out.equal(torch.where(expected.isneginf(), 7.0, logits))


@pytest.mark.parametrize("bad", [-1, 2**31 - 1, "pages"])
@pytest.mark.parametrize("built", [False, True], ids=["ids", "gathered"])
def test_candidates_on_pages_that_do_not_exist_are_invisible(built: bool, bad: int | str) -> None:
    spec = IndexerSpec(num_heads=8)
    x = paged_inputs(spec, [200])
    x.block_table[0, 1] = len(x.cache) if bad == "pages" else bad
    cache = pages(x, spec, spec)
    ids, ends = torch.tensor([[8, 2, 17, 24]], dtype=torch.int32), None
    if built:
        ids, ends = aiter_mxfp4.build_candidate_gather(ids, x.end, x.block_table, cache, 8, 128)
    logits = aiter_mxfp4.paged_mxfp4_mqa_logits(
        *queries(x, 1), cache, x.weights, x.end, x.block_table, 40, preshuffle=0,
        row_ends=ends, use_gather=True, candidates=ids,
    )  # fmt: skip
    seen = logits.isfinite().view(5, 8).all(1).tolist()
    assert seen == [True, False, True, True, False]
    assert logits.isfinite().sum() == 24


@pytest.mark.parametrize("kind", ["natural", "shuffled", "scale mode 0"])
@pytest.mark.parametrize("gather", [False, True], ids=["dense", "candidates"])
def test_scales_in_a_tensor_of_their_own(kind: str, gather: bool) -> None:
    natural = IndexerSpec(num_heads=32)
    spec = IndexerSpec(num_heads=32, layout="n4" if kind == "natural" else "g4")
    x = paged_inputs(natural, [230, 64])
    cache = pages(x, natural, spec).view(-1, 68 * 64)
    values, scales = cache[:, : 64 * 64], cache[:, 64 * 64 :]
    if kind == "scale mode 0":  # [tile, group, entry] in tiles of 32
        entries = layout.as_entries(natural, x.cache)[..., 64:]
        scales = entries.unflatten(1, (2, 32)).transpose(2, 3).flatten(1)
    ids = candidates(x.end, 8, 8)
    logits = aiter_mxfp4.paged_mxfp4_mqa_logits(
        *queries(x, 1), values.reshape(-1, 64, 1, 64).contiguous(), x.weights, x.end,
        x.block_table, 70 if gather else 256, scales.reshape(-1, 64, 1, 4).contiguous(),
        preshuffle=int(kind != "natural"), scale_mode=int(kind != "scale mode 0"),
        use_gather=gather, candidates=ids if gather else None,
    )  # fmt: skip
    expected = dense(x, natural, 256)
    assert_logits_close(logits, listed(expected, ids, x.end, 8, 70) if gather else expected, GLUON)


def test_packed_rows() -> None:
    """3, 0 and 2 rows of three requests and one row more, which belongs to none."""
    spec = IndexerSpec(num_heads=8)
    x = paged_inputs(spec, [97, 40, 130], next_n=2)
    starts = torch.tensor([0, 3, 3, 5], dtype=torch.int32)
    x.row_to_request.copy_(torch.tensor([0, 0, 0, 2, 2, 0]))
    end = torch.tensor([95, 96, 97, 129, 130, 0], dtype=torch.int32)
    given = (*x.q, pages(x, spec, spec), x.weights, torch.tensor([97, 40, 130]).int())
    logits = aiter_mxfp4.paged_mxfp4_mqa_logits(
        *given, x.block_table, 192, preshuffle=0, query_start_loc=starts, next_n=3
    )
    assert_logits_close(logits, dense(x, spec, 192, end), GLUON)
    ends = torch.tensor([7, 0, 97, 64, 65, 0], dtype=torch.int32)
    logits = aiter_mxfp4.paged_mxfp4_mqa_logits(
        *given, x.block_table, 192, preshuffle=0, query_start_loc=starts, row_ends=ends
    )
    assert_logits_close(logits, dense(x, spec, 192, ends), GLUON)


@pytest.mark.parametrize("block", [8, 16, 32])
def test_block_scores(block: int) -> None:
    spec = IndexerSpec(num_heads=8)
    x = paged_inputs(spec, [200, 64, 1], next_n=2)
    lens, width = torch.tensor([200, 64, 1], dtype=torch.int32), 251
    blocks = -(-width // block)
    given = (*queries(x, 2), pages(x, spec, spec), x.weights, lens, x.block_table, width)
    options = {"preshuffle": 0, "calc_block_scores": True, "candidate_block_size": block}
    logits, scores = aiter_mxfp4.paged_mxfp4_mqa_logits(*given, **options)
    assert_logits_close(logits, dense(x, spec, width), GLUON)
    expected = torch.full((6, blocks), -INF)
    for row, n in enumerate(x.end.clamp(0).tolist()):
        for first in range(0, n, block):
            expected[row, first // block] = logits[row, first : min(first + block, n)].max()
        if n:
            expected[row, (n - 1) // block] = INF
    assert scores.equal(expected)
    out = torch.full((6, blocks + 2), 7.0)
    alone = aiter_mxfp4.paged_mxfp4_mqa_logits(
        *given, **options, block_scores=out, calc_logits=False
    )
    assert alone is out
    written = torch.arange(blocks + 2) < -(-lens.repeat_interleave(2) // block)[:, None]
    padded = torch.nn.functional.pad(expected, (0, 2))
    assert out.equal(torch.where(written, padded, 7.0))
    dirty = torch.full((6, width), 9e9)
    _, again = aiter_mxfp4.paged_mxfp4_mqa_logits(
        *given, **options, out_logits=dirty, clean_logits=False
    )
    assert again.equal(expected), "columns outside a window take no part"
