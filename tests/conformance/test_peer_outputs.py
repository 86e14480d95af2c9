"""The recorded outputs of public systems, by the reference and by the compiled form."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from recorded import recorded

from dsv4_iree import layout
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import Format, IndexerSpec, Rounding
from dsv4_iree.testing import assert_bytes_equal, assert_logits_close

FP8 = IndexerSpec(format=Format.FP8, layout="n8")
XKERNELS = IndexerSpec(format=Format.BF16, topk=256)
pytestmark = pytest.mark.gpu
Backend = Callable[..., Indexer]


def test_profile_d_has_the_bytes_of_deepgemm(backend: Backend) -> None:
    peer = recorded("deepgemm_fp4_quantiser")
    values, scales = backend(IndexerSpec(rounding=Rounding.D), "quantize").quantize(peer["x"])
    assert_bytes_equal(values, peer["values"])
    assert_bytes_equal(scales, peer["scales"])


def test_profile_r_has_the_bytes_of_torchao_but_for_the_scale_of_zeros(backend: Backend) -> None:
    peer = recorded("torchao_rceil_fp4_quantiser")
    values, scales = backend(IndexerSpec(), "quantize").quantize(peer["x"])
    zeros = peer["x"].view(-1, 4, 32).eq(0).all(2)
    assert int(zeros.sum()) == 13
    assert_bytes_equal(values, peer["values"])
    assert_bytes_equal(scales[~zeros], peer["scales"][~zeros])
    assert scales[zeros].eq(1).all()
    assert peer["scales"][zeros].eq(0).all()


def test_ragged_fp8_logits_are_those_of_deepgemm(backend: Backend) -> None:
    peer = recorded("deepgemm_sm90_fp8_ragged")
    logits = backend(FP8, "mqa_logits").mqa_logits(
        (peer["q"], torch.ones(64, 64)),
        (peer["k"], peer["k_scale"]),
        peer["weights"],
        peer["ks"],
        peer["ke"],
    )
    assert_logits_close(logits, peer["logits"])
    assert logits.isfinite().sum() == (peer["ke"] - peer["ks"]).clamp(min=0).sum()


def test_paged_fp8_logits_are_those_of_deepgemm(backend: Backend) -> None:
    peer = recorded("deepgemm_sm90_fp8_paged")
    logits = backend(FP8, "paged_mqa_logits").paged_mqa_logits(
        (peer["q"].view(14, 64, 128), torch.ones(14, 64)),
        peer["weights"],
        peer["cache"],
        peer["block_table"],
        peer["context_lens"].view(-1),
    )
    assert_logits_close(logits, peer["logits"])
    assert logits.isfinite().sum(1).tolist() == peer["context_lens"].view(-1).tolist()


def test_unquantised_logits_are_those_of_xkernels(backend: Backend) -> None:
    peer = recorded("xkernels_dsa_indexer")
    start = peer["row_starts"]
    logits = backend(XKERNELS, "mqa_logits").mqa_logits(
        peer["q"], peer["k"], peer["weights"], start, start + peer["lengths"]
    )
    assert_logits_close(logits, peer["logits_triton"])
    assert_logits_close(logits, peer["logits_reference"])


@pytest.mark.parametrize("scored_by", ["us", "triton", "reference"])
def test_selected_columns_are_those_of_xkernels_until_nothing_is_visible(
    backend: Backend, scored_by: str
) -> None:
    peer = recorded("xkernels_dsa_indexer")
    start, lengths = peer["row_starts"], peer["lengths"]
    indexer = backend(XKERNELS, "mqa_logits", "topk")
    if scored_by == "us":
        logits = indexer.mqa_logits(peer["q"], peer["k"], peer["weights"], start, start + lengths)
    else:
        logits = peer[f"logits_{scored_by}"]
    chosen = indexer.topk(logits, start, start + lengths, ids="entry")
    theirs = peer["topk_triton"].clone()
    theirs[torch.arange(256) >= lengths[:, None]] = -1
    assert_bytes_equal(chosen, theirs)
    assert (chosen >= 0).sum(1).tolist() == lengths.clamp(max=256).tolist()


def test_gathered_numbers_are_those_of_xkernels(backend: Backend) -> None:
    peer, spec = recorded("xkernels_mxfp4_paged_gather"), IndexerSpec(page_size=16)
    cache = layout.from_entries(spec, torch.cat([peer["kv_packed"], peer["kv_scale"]], dim=2))
    requests = torch.arange(3, dtype=torch.int32).repeat_interleave(64)
    entries = peer["sel_pos"].view(-1)
    numbers = backend(spec, "gather_cache").gather_cache(
        cache, peer["block_table"], requests, entries, dtype=torch.bfloat16
    )
    assert_bytes_equal(numbers, peer["out_reference"].view(-1, 128))
    assert torch.equal(numbers, peer["out_triton"].view(-1, 128))  # its zeros lost their sign
    assert int((entries < 0).sum()) == 2
    assert not numbers[entries < 0].any()
