"""Every op's gfx942 and gfx950 artifact, executed, to the thresholds of the CPU artifacts."""

from __future__ import annotations

import pytest
import torch
from compiled import code_object
from llvm import disassemble_object
from machine import decode

import dsv4_iree
from dsv4_iree import IndexerSpec, emulator, reference
from dsv4_iree.spec import OPS, SPECS
from dsv4_iree.testing import assert_bytes_equal, assert_logits_close, paged_inputs
from dsv4_iree.verify import known_answer

SMALL = IndexerSpec(num_heads=8, page_size=16, topk=8)
FP8 = {
    "gfx942": IndexerSpec(num_heads=8, page_size=16, topk=8, format="fp8-fnuz", layout="n8"),
    "gfx950": IndexerSpec(num_heads=8, page_size=16, topk=8, format="fp8", layout="n8"),
}


@pytest.mark.parametrize("op", OPS)
def test_known_answers_of_the_shipped_artifacts(emulated, op, counted):
    assert known_answer(op, emulated(SPECS["flash"], op))
    assert counted(), "nothing ran on the emulator"


@pytest.mark.parametrize("op", OPS)
def test_decoder_agrees_with_llvm_on_every_instruction_shipped(make, target, op, tmp_path):
    code = code_object(make(target, op, SPECS["flash"]).with_suffix(".vmfb").read_bytes())[1]
    path = tmp_path / "kernel.o"
    path.write_bytes(code)
    listing = disassemble_object(path, target)
    for address, name, words in listing:
        assert decode(words, target) == (name, len(words), None), f"at 0x{address:x}"
    assert len(listing) > 100


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("op", ["paged_mqa_logits", "index_topk", "write_cache"])
def test_the_order_of_waves_changes_nothing(emulated, op, seed):
    emulator.set_seed(seed)
    try:
        assert known_answer(op, emulated(SMALL, op))
    finally:
        emulator.set_seed(0)


def test_paged_scores_with_padding_poison_and_garbage(emulated, plain):
    x = paged_inputs(SMALL, [40, 0, 17], next_n=2, page_padding=28).arguments()
    actual = emulated(SMALL, "paged_mqa_logits").paged_mqa_logits(**x)
    assert_logits_close(actual, plain(SMALL).paged_mqa_logits(**x))


def test_selection_is_that_of_its_own_scores(emulated):
    x = paged_inputs(SMALL, [100, 5]).arguments()
    indexer = emulated(SMALL, "paged_mqa_logits", "index_topk")
    expected = reference.topk(indexer.paged_mqa_logits(**x), 8, x["start"], x["end"])
    assert_bytes_equal(indexer.index_topk(**x, skip_short=False), expected)


def test_adversarial_rows_are_ranked_exactly(emulated):
    ladder = (torch.arange(40, dtype=torch.int32) + 0x3F800000).view(torch.float32)
    rows = [
        ladder,
        ladder.flip(0),
        torch.zeros(40),
        torch.where(torch.arange(40) % 3 == 0, float("nan"), ladder),
        torch.where(torch.arange(40) % 10 == 0, ladder, float("-inf")),
        torch.tensor([0.0, -0.0]).repeat(20),
        torch.arange(40, dtype=torch.int32).flip(0).view(torch.float32),  # subnormals
    ]
    logits = torch.stack(rows)
    end = torch.tensor([40, 40, 40, 40, 40, 39, 40], dtype=torch.int32)
    start = torch.tensor([0, 1, 2, 0, 0, 7, 0], dtype=torch.int32)
    actual = emulated(SMALL, "topk").topk(logits, start, end)
    assert_bytes_equal(actual, reference.topk(logits, 8, start, end))


def test_every_scale_byte_dequantises_bit_for_bit(emulated, plain):
    values = torch.arange(256, dtype=torch.uint8).repeat(16).view(64, 64)
    scales = torch.arange(256, dtype=torch.uint8).view(64, 4)
    for dtype in (torch.float32, torch.bfloat16):
        actual = emulated(SMALL, "dequantize").dequantize((values, scales), dtype=dtype)
        expected = plain(SMALL).dequantize((values, scales), dtype=dtype)
        assert torch.equal(actual.isnan(), expected.isnan())
        assert_bytes_equal(actual.nan_to_num(7.0), expected.nan_to_num(7.0))


def test_quantising_subnormals_infinities_and_ties_gives_the_same_bytes(emulated, plain):
    x = torch.randn(12, 128)
    x[1] *= 2.0**-126
    x[2, 5], x[3, 40] = float("inf"), float("nan")
    x[4, :8] = torch.tensor([6.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    x[5] = -0.0
    for given in (x, x.bfloat16()):
        actual = emulated(SMALL, "quantize").quantize(given)
        for one, other in zip(actual, plain(SMALL).quantize(given)):
            assert_bytes_equal(one, other)


def test_finite_fp8_vectors_get_nan_scales(emulated, target, plain):
    spec, keys = FP8[target], torch.randn(9, 128)
    for one, other in zip(emulated(spec, "quantize").quantize(keys), plain(spec).quantize(keys)):
        assert_bytes_equal(one, other)


def test_fp8_scores(emulated, target, plain):
    spec = FP8[target]
    x = paged_inputs(spec, [40, 17]).arguments()
    actual = emulated(spec, "paged_mqa_logits").paged_mqa_logits(**x)
    assert_logits_close(actual, plain(spec).paged_mqa_logits(**x))


def test_a_write_touches_its_slots_and_nothing_else(emulated, plain):
    keys, slots = torch.randn(5, 128), torch.tensor([3, -1, 47, 16, 999])
    storage = torch.full((3, SMALL.page_bytes + 64), 0xAB, dtype=torch.uint8)
    expected = storage.clone()
    emulated(SMALL, "write_cache").write_cache(storage[:, : SMALL.page_bytes], keys, slots)
    plain(SMALL).write_cache(expected[:, : SMALL.page_bytes], keys, slots)
    assert_bytes_equal(storage, expected)


def test_a_third_emulated_device_does_not_exist():
    emulator.enable()
    words = r"device: expected hip:0 \(gfx942\) or hip:1 \(gfx950\) of the emulator, got 'hip:2'"
    with pytest.raises(dsv4_iree.ArgumentError, match=words):
        dsv4_iree.load(device="hip:2")
