"""The ragged logits kernel that Wave made for gfx950, executed: contracts, bytes and cost."""

from __future__ import annotations

import re
import subprocess

import pytest
import torch
from hard_inputs import assert_rows_close, scaled_vectors
from test_mma_logits import LAST, int32, per_tile

from dsv4_iree import IndexerSpec, build, emulator, manifest
from dsv4_iree.testing import assert_bytes_equal, assert_logits_close

SPEC = IndexerSpec()


@pytest.fixture
def target() -> str:
    return "gfx950"


@pytest.fixture
def wave(emulated, make, target):
    """An indexer whose `mqa_logits` is Wave's."""
    assert manifest.read(make(target, "mqa_logits", SPEC)).form == "wave"
    return emulated(SPEC, "mqa_logits")


def operands(rows: int, keys: int, seed: int, scales: range = range(120, 130)):
    random = torch.Generator().manual_seed(seed)
    q, k = scaled_vectors((rows, 64), scales, random), scaled_vectors((keys,), scales, random)
    return q, k, torch.randn(rows, 64, generator=random)


WINDOWS = {
    "one-key": (1, [(0, LAST)]),
    "less-than-a-block": (63, [(0, LAST), (3, 50)]),
    "a-block": (64, [(0, 64), (-7, 64), (40, 39)]),
    "a-block-and-a-key": (65, [(0, LAST), (64, 65), (5, 64), (64, 64), (0, -4)]),
    "inside": (700, [(70, 600), (1, 128), (64, 128), (127, 129), (639, 641)]),
    "far-apart": (900, [(0, 3), (800, LAST), (0, 0), (448, 449), (899, 900)]),
    "several-runs": (5000, [(0, LAST), (2047, 2050), (4990, 5000), (-LAST - 1, 1)]),
    "beyond": (100, [(100, LAST), (200, 300), (LAST, LAST)]),
    "nothing": (130, [(0, 0), (5, 5), (9, 3)]),
}


@pytest.mark.parametrize(("keys", "windows"), WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("clean", [True, False])
def test_windows_are_those_of_the_reference(wave, plain, keys, windows, clean):
    """The emulator refuses any address past the last key or row."""
    start, end = (int32(*bounds) for bounds in zip(*windows))
    args = (*operands(len(windows), keys, seed=keys), start, end)
    expected = plain(SPEC).mqa_logits(*args)
    out = torch.full((len(windows), keys), 7.0)
    wave.mqa_logits(*args, clean=clean, out=out)
    column = torch.arange(keys)
    inside = (column >= start[:, None]) & (column < end[:, None])
    assert clean or (out[~inside] == 7.0).all()
    assert_logits_close(torch.where(inside | torch.tensor(clean), out, float("-inf")), expected)


@pytest.mark.parametrize(
    ("q_scales", "k_scales"),
    [(range(256), range(4)), (range(4), range(256)), (range(252, 256), range(3)), (range(1),) * 2],
)
def test_scores_whatever_the_scales(wave, plain, q_scales, k_scales):
    """Byte 255 is NaN, in every logit it belongs to and in no other."""
    random = torch.Generator().manual_seed(31)
    q, k = scaled_vectors((5, 64), q_scales, random), scaled_vectors((96,), k_scales, random)
    k[0][:8], k[0][8:16] = 0, 0x88  # all-zero groups, negative zeros
    q[1][4], k[1][:9] = q_scales.start, k_scales.start  # some logits are numbers
    args = (q, k, torch.randn(5, 64, generator=random), None, int32(90, 90, 90, 90, 90))
    logits, expected = wave.mqa_logits(*args), plain(SPEC).mqa_logits(*args)
    assert_rows_close(logits, expected)
    assert expected[4, :9].isfinite().all() or q_scales.start == 252


@pytest.mark.parametrize("weight", [2.0**-120, 2.0**60, float("inf"), float("nan")])
def test_weights_out_of_the_ordinary_keep_their_meaning(wave, plain, weight):
    q, k, weights = operands(2, 70, seed=33)
    weights[:] = 1
    weights[1] = weight
    args = (q, k, weights, None, int32(70, 70))
    logits, expected = wave.mqa_logits(*args), plain(SPEC).mqa_logits(*args)
    assert_logits_close(logits[:1], expected[:1])
    if weight < float("inf"):
        assert_logits_close(logits[1:] / weight, expected[1:] / weight)
    else:
        assert torch.equal(logits.isnan(), expected.isnan())
        assert torch.equal(logits.isposinf(), expected.isposinf())


def test_garbage_outside_the_window_changes_no_bit(wave):
    q, k, weights = operands(3, 200, seed=34)
    args = (q, k, weights, None, int32(140, 33, 5))
    expected = wave.mqa_logits(*args)
    for byte in (0, 1, 254, 255):
        k[0][140:], k[1][140:] = 0xFF, byte
        assert_bytes_equal(wave.mqa_logits(*args), expected)


def test_a_row_does_not_depend_on_the_row_beside_it(wave):
    """Rows are scored in pairs, whole blocks of them by another path than parts of blocks."""
    q, k, weights = operands(2, 256, seed=37)
    start, end = int32(0, 0), int32(256, 256)
    expected = wave.mqa_logits(q, k, weights, start, end)
    for other in ((0, 0), (10, 70), (255, 256)):
        start[1], end[1] = other
        assert_bytes_equal(wave.mqa_logits(q, k, weights, start, end)[0], expected[0])


def test_orders_of_waves_are_equal_bit_for_bit(wave):
    args = (*operands(5, 300, seed=38), int32(0, 9, 0, 0, 64), int32(300, 200, 0, 64, 128))
    expected = wave.mqa_logits(*args)
    for seed in range(20):
        emulator.set_seed(seed)
        assert_bytes_equal(wave.mqa_logits(*args), expected)
    emulator.set_seed(0)


def test_keys_and_logits_beyond_two_gibibytes_are_found(wave, plain, pytestconfig):
    """The storage of the keys is never touched but where the windows lie; logits with --long."""
    rows, keys = 17 if pytestconfig.getoption("long") else 1, 2**25 + 100
    near = operands(rows, 130, seed=39)
    q, (values, scales), weights = near
    far = torch.empty(keys, 64, dtype=torch.uint8), torch.empty(keys, 4, dtype=torch.uint8)
    far[0][-130:], far[1][-130:] = values, scales
    out, end = torch.empty(rows, keys), torch.full((rows,), keys, dtype=torch.int32)
    wave.mqa_logits(q, far, weights, end - 130, end, out=out)
    expected = plain(SPEC).mqa_logits(*near, None, int32(*[130] * rows))
    assert_logits_close(out[:, -130:], expected)
    assert out[:, :-130].isneginf().all()


def test_logits_are_written_where_they_are_asked_for(wave, plain):
    """Into the caller's tensor, which may lie inside of another one."""
    args = (*operands(3, 160, seed=42), int32(0, 70, 0), int32(64, 160, 3))
    several = torch.full((4, 3, 160), 5.0)
    wave.mqa_logits(*args, out=several[2])
    assert_logits_close(several[2], plain(SPEC).mqa_logits(*args))
    assert (several[[0, 1, 3]] == 5.0).all()


def test_empty_windows_are_not_scored(wave, counted):
    """Nothing but windows is read."""
    wave.mqa_logits(*operands(4, 300, seed=40), int32(0, 9, 50, 0), int32(0, 9, 20, -1))
    dispatch = counted()[-1]
    assert not dispatch.matrix
    assert dispatch.bytes_read <= dispatch.waves * 64 * 16


def test_bytes_are_read_once_and_only_logits_are_written(wave, counted):
    q, k, weights = operands(2, 640, seed=41)
    emulator.configure(count_distinct=True)
    logits = wave.mqa_logits(q, k, weights, None, int32(640, 640))
    emulator.configure(count_distinct=False)
    dispatch = counted()[-1]
    need = 68 * 640 + sum(t.numel() for t in q) + 4 * weights.numel() + 16
    assert dispatch.distinct_bytes_read <= 1.1 * need
    assert dispatch.bytes_written == dispatch.distinct_bytes_written == logits.numel() * 4


def test_a_tile_takes_no_more_instructions_than_it_should(emulated, counted):
    """64 max, 16 packed products and 16 packed fma are the least; mma takes 142 in all."""
    spent = per_tile(emulated, "mqa_logits", counted, SPEC)
    assert spent["mfma"] == 8
    assert spent["valu"] <= 128
    assert spent["scratch"] == spent["lds"] == 0


def test_the_kernel_is_what_was_meant(make, tmp_path):
    """One kind of MFMA, three loads of keys and query beside it, and nothing that spills."""
    artifact = manifest.read(path := make("gfx950", "mqa_logits", SPEC))
    flags = [*artifact.flags, f"--iree-hal-dump-executable-files-to={tmp_path}"]
    command = [build.compiler(), path.with_name(artifact.mlir), *flags, "-o", tmp_path / "x.vmfb"]
    subprocess.run(command, check=True, capture_output=True)
    (found,) = tmp_path.glob("*wave*.rocmasm")
    text = found.read_text()
    numbers = dict(re.findall(r"\.(\w+_count|private_segment_fixed_size):\s+(\d+)", text))
    assert numbers["vgpr_spill_count"] == numbers["private_segment_fixed_size"] == "0"
    assert int(numbers["vgpr_count"]) <= 256
    assert set(re.findall(r"\t(v_mfma\w+)", text)) == {"v_mfma_scale_f32_32x32x64_f8f6f4"}
    # A block of keys has four, in each of the two loops that score; a query row has four codes.
    assert text.count("global_load_dwordx4") >= 2 * 4 + 2 * 4
    assert "scratch_" not in text
