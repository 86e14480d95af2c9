"""Recorded outputs of public systems, through the functions of the same names."""

from __future__ import annotations

import pytest
import torch
from recorded import recorded

from dsv4_iree.compat import deepgemm, tokenspeed, xkernels
from dsv4_iree.testing import assert_bytes_equal, assert_logits_close

E4M3 = torch.float8_e4m3fn


@pytest.mark.usefixtures("compat_backend")
def test_ragged_fp8_logits_of_deepgemm() -> None:
    peer = recorded("deepgemm_sm90_fp8_ragged")
    kv = peer["k"].view(E4M3), peer["k_scale"]
    rest = kv, peer["weights"], peer["ks"], peer["ke"]
    logits = deepgemm.fp8_mqa_logits(peer["q"].view(E4M3), *rest)
    assert_logits_close(logits, peer["logits"])
    newer = deepgemm.fp8_fp4_mqa_logits((peer["q"].view(E4M3), None), *rest)
    assert_bytes_equal(newer, logits)


@pytest.mark.usefixtures("compat_backend")
def test_compressed_logits_are_the_windows_of_deepgemms() -> None:
    peer = recorded("deepgemm_sm90_fp8_ragged")
    start, end = peer["ks"], peer["ke"]
    width = int((end - start).max())
    logits = deepgemm.fp8_mqa_logits(
        peer["q"].view(E4M3),
        (peer["k"].view(E4M3), peer["k_scale"]),
        peer["weights"],
        start,
        end,
        clean_logits=False,
        max_seqlen_k=width,
    )
    assert logits.shape == (64, width)
    expected = torch.full_like(logits, float("-inf"))
    for row in range(64):
        window = peer["logits"][row, start[row] : max(int(end[row]), int(start[row]))]
        expected[row, : len(window)] = window
    assert_logits_close(logits, expected)


@pytest.mark.usefixtures("compat_backend")
def test_paged_fp8_logits_of_deepgemm() -> None:
    peer = recorded("deepgemm_sm90_fp8_paged")
    cache = peer["cache"].view(80, 64, 1, 132)
    meta = deepgemm.get_paged_mqa_logits_metadata(peer["context_lens"], 64, 132)
    assert meta.shape == (133, 2)
    assert meta.dtype is torch.int32
    logits = deepgemm.fp8_paged_mqa_logits(
        peer["q"].view(E4M3),
        cache,
        peer["weights"],
        peer["context_lens"],
        peer["block_table"],
        meta,
        peer["logits"].shape[1],
    )
    assert_logits_close(logits, peer["logits"])


@pytest.mark.usefixtures("compat_backend")
def test_keys_written_by_tokenspeeds_names_have_the_bytes_of_deepgemms_quantiser() -> None:
    peer = recorded("deepgemm_fp4_quantiser")
    x, slots = peer["x"], torch.randperm(832, generator=torch.Generator().manual_seed(0))[:772]
    cache = torch.full((13, 4352), 0xEE, dtype=torch.uint8)
    tokenspeed.write_deepseek_v4_indexer_mxfp4_cache(x, cache, slots)
    values, scales = tokenspeed.deepseek_v4_gather_indexer_mxfp4_cache(cache, slots)
    assert_bytes_equal(values, peer["values"])
    assert_bytes_equal(scales, peer["scales"])


@pytest.mark.usefixtures("compat_backend")
def test_xkernels_logits_and_columns_masked_ones_included() -> None:
    peer = recorded("xkernels_dsa_indexer")
    window = {"lengths": peer["lengths"], "row_starts": peer["row_starts"]}
    vectors = peer["q"], peer["k"], peer["weights"]
    assert_logits_close(xkernels.dsa_indexer_logits(*vectors, **window), peer["logits_triton"])
    chosen = xkernels.dsa_indexer_topk(*vectors, topk=256, **window)
    assert_bytes_equal(chosen, peer["topk_triton"])


def gathered(peer: dict[str, torch.Tensor]) -> torch.Tensor:
    packed, scale, table = peer["kv_packed"], peer["kv_scale"], peer["block_table"]
    return xkernels.mxfp4_paged_gather(packed, scale, table, peer["sel_pos"], block_size=16)


@pytest.mark.usefixtures("compat_backend")
def test_xkernels_gather() -> None:
    peer = recorded("xkernels_mxfp4_paged_gather")
    assert torch.equal(gathered(peer), peer["out_triton"])


@pytest.mark.usefixtures("compat_emulated")
def test_xkernels_gather_on_amd_artifacts() -> None:
    peer = recorded("xkernels_mxfp4_paged_gather")
    assert torch.equal(gathered(peer), peer["out_triton"])


@pytest.mark.usefixtures("compat_emulated")
def test_recorded_logits_are_selected_on_amd_artifacts() -> None:
    peer = recorded("xkernels_dsa_indexer")
    rows = [0, 7]
    logits, start = peer["logits_triton"][rows], peer["row_starts"][rows]
    lengths = peer["lengths"][rows]
    out = torch.full((2, 512), -7, dtype=torch.int32)
    tokenspeed.indexer_topk_prefill(logits, start, start + lengths, out, 512)
    for row in range(2):
        window = logits[row, start[row] : start[row] + lengths[row]]
        best = window.argsort(descending=True, stable=True)[:512]
        seen = len(best)
        assert out[row, :seen].sort().values.equal(best.sort().values.int())
        assert out[row, seen:].eq(-1).all()
