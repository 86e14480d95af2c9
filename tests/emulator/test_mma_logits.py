"""The MFMA logits kernels, executed: what they say, whatever the bytes, and what they cost."""

from __future__ import annotations

import re
import subprocess

import pytest
import torch
from hard_inputs import SCALES, assert_rows_close, scaled_vectors

import dsv4_iree
from dsv4_iree import IndexerSpec, build, emulator, manifest
from dsv4_iree.testing import assert_bytes_equal, assert_logits_close, paged_inputs

SPECS = {
    "heads64": IndexerSpec(),
    "heads8-page16": IndexerSpec(num_heads=8, page_size=16),
    "heads16-page128": IndexerSpec(num_heads=16, page_size=128),
    "heads32-page48": IndexerSpec(num_heads=32, page_size=48),
    "heads12-page32": IndexerSpec(num_heads=12, page_size=32),
}
SMALL = IndexerSpec(num_heads=8, page_size=16)
SMALL_FP8 = IndexerSpec(num_heads=8, page_size=16, format="fp8", layout="n8")
LAST = 2**31 - 1


def int32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("next_n", [1, 3])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_paged_scores_are_those_of_the_reference(emulated, plain, counted, spec, next_n):
    """Windows begin and end inside pages; rows are empty, tables and pages hold garbage."""
    x = paged_inputs(spec, [0, 5, 333, 128], next_n=next_n, page_padding=12, seed=30)
    x.start.copy_(torch.arange(len(x.start)) * 37 % 150)
    logits = emulated(spec, "paged_mqa_logits").paged_mqa_logits(**x.arguments())
    assert_logits_close(logits, plain(spec).paged_mqa_logits(**x.arguments()))
    assert any(dispatch.matrix for dispatch in counted())


@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (2, 63), (3, 64), (5, 65), (4, 300)])
@pytest.mark.parametrize("heads", [64, 8])
def test_ragged_scores_are_those_of_the_reference(emulated, plain, heads, rows, keys):
    """The emulator refuses any address past the last key or row."""
    spec, random = IndexerSpec(num_heads=heads), torch.Generator().manual_seed(keys)
    q = scaled_vectors((rows, heads), range(120, 130), random)
    k = scaled_vectors((keys,), range(120, 130), random)
    weights = torch.randn(rows, heads, generator=random)
    starts, ends = int32(0, 3, -7, 40, 0)[:rows], int32(LAST, 50, keys, 39, -4)[:rows]
    args = (q, k, weights, starts, ends)
    expected = plain(spec).mqa_logits(*args)
    assert_logits_close(emulated(spec, "mqa_logits").mqa_logits(*args), expected)
    kept = torch.full((rows, keys), 7.0)
    emulated(spec, "mqa_logits").mqa_logits(*args, clean=False, out=kept)
    column = torch.arange(keys)
    inside = (column >= starts[:, None]) & (column < ends[:, None])
    assert_logits_close(torch.where(inside, kept, float("-inf")), expected)
    assert (kept[~inside] == 7.0).all()


@pytest.mark.parametrize(("q_scales", "k_scales"), SCALES)
@pytest.mark.parametrize("op", ["mqa_logits", "paged_mqa_logits"])
def test_scores_whatever_the_scales(emulated, plain, op, q_scales, k_scales):
    random = torch.Generator().manual_seed(31)
    q, k = scaled_vectors((5, 8), q_scales, random), scaled_vectors((96,), k_scales, random)
    k[0][:8] = 0  # all-zero groups
    k[0][8:16] = 0x88  # negative zeros
    weights = torch.randn(5, 8, generator=random)
    args = (q, k, weights, None, torch.full((5,), 90, dtype=torch.int32))
    if op == "paged_mqa_logits":
        cache = torch.zeros(6, SMALL.page_bytes, dtype=torch.uint8)
        plain(SMALL).write_cache(cache, k, torch.arange(96))
        args = (q, weights, cache, torch.arange(6, dtype=torch.int32)[None], args[-1])
    logits, expected = (
        getattr(indexer, op)(*args) for indexer in (emulated(SMALL, op), plain(SMALL))
    )
    assert_rows_close(logits, expected)


@pytest.mark.parametrize("weight", [2.0**-120, 2.0**60, float("inf"), float("nan")])
def test_weights_out_of_the_ordinary_keep_their_meaning(emulated, plain, weight):
    random = torch.Generator().manual_seed(33)
    q, k = (
        scaled_vectors((2, 8), range(126, 128), random),
        scaled_vectors((20,), range(126, 128), random),
    )
    weights = torch.ones(2, 8)
    weights[1] = weight
    args = (q, k, weights, None, int32(20, 20))
    logits = emulated(SMALL, "mqa_logits").mqa_logits(*args)
    expected = plain(SMALL).mqa_logits(*args)
    assert_logits_close(logits[:1], expected[:1])
    if weight < float("inf"):
        assert_logits_close(logits[1:] / weight, expected[1:] / weight)
    else:
        assert not logits[1].isfinite().any()


@pytest.mark.parametrize("heads", [8, 12])
def test_an_infinite_weight_of_a_last_head_is_no_nan(emulated, plain, heads):
    """The tile of 16 heads is filled up with the last four, which must not weigh twice."""
    spec, random = IndexerSpec(num_heads=heads, page_size=16), torch.Generator().manual_seed(36)
    q, k = (
        scaled_vectors((2, heads), range(126, 128), random),
        scaled_vectors((40,), range(126, 128), random),
    )
    weights = torch.randn(2, heads, generator=random)
    weights[0, -1], weights[1, -3] = float("inf"), float("-inf")
    args = (q, k, weights, None, int32(40, 40))
    logits = emulated(spec, "mqa_logits").mqa_logits(*args)
    expected = plain(spec).mqa_logits(*args)
    assert torch.equal(logits.isnan(), expected.isnan())
    assert torch.equal(logits.isposinf(), expected.isposinf())
    assert torch.equal(logits.isneginf(), expected.isneginf())
    assert expected.isinf().any()


def test_garbage_outside_the_window_changes_no_bit(emulated):
    random = torch.Generator().manual_seed(34)
    q, k = (
        scaled_vectors((3, 8), range(120, 130), random),
        scaled_vectors((64,), range(120, 130), random),
    )
    weights, end = torch.randn(3, 8, generator=random), int32(40, 33, 5)
    indexer = emulated(SMALL, "mqa_logits")
    expected = indexer.mqa_logits(q, k, weights, None, end)
    for byte in (0, 1, 254, 255):
        k[0][40:], k[1][40:] = 0xFF, byte
        assert_bytes_equal(indexer.mqa_logits(q, k, weights, None, end), expected)


@pytest.mark.parametrize("spec", [SMALL, SMALL_FP8], ids=["fp4", "fp8"])
def test_repeats_and_orders_of_waves_are_equal_bit_for_bit(emulated, spec):
    x = paged_inputs(spec, [200, 64, 7], next_n=2).arguments()
    indexer = emulated(spec, "paged_mqa_logits")
    expected = indexer.paged_mqa_logits(**x)
    for seed in range(20):
        emulator.set_seed(seed)
        assert_bytes_equal(indexer.paged_mqa_logits(**x), expected)
    emulator.set_seed(0)


@pytest.mark.parametrize("spec", [SMALL, SMALL_FP8], ids=["fp4", "fp8"])
def test_pages_beyond_four_gibibytes_are_found(emulated, plain, spec):
    """The storage is never touched but where the pages lie."""
    x = paged_inputs(spec, [30], seed=35)
    stride = 2**31 + 4
    near = x.cache.clone()
    storage = torch.empty(len(near) * stride, dtype=torch.uint8)
    far = storage.as_strided(near.shape, (stride, 1))
    far.copy_(near)
    expected = plain(spec).paged_mqa_logits(**x.arguments())
    arguments = {**x.arguments(), "cache": far}
    logits = emulated(spec, "paged_mqa_logits").paged_mqa_logits(**arguments)
    assert_logits_close(logits, expected)


@pytest.mark.parametrize("number", [{}, {"format": "fp8", "layout": "n8"}], ids=["fp4", "fp8"])
def test_index_topk_selects_from_these_scores(emulated, plain, number):
    spec = IndexerSpec(num_heads=8, page_size=16, topk=8, **number)
    x = paged_inputs(spec, [100, 5, 0]).arguments()
    for skip in (True, False):
        ids = emulated(spec, "index_topk").index_topk(**x, skip_short=skip)
        assert_bytes_equal(ids, plain(spec).index_topk(**x, skip_short=skip))


def heads(op: str, target: str, fp8: bool = False) -> int:
    """64, or as many as leave the call to these kernels: test_wave_logits.py has the others."""
    return 48 if (op, target, fp8) == ("mqa_logits", "gfx950", False) else 64


@pytest.fixture
def assembly(make, target, tmp_path):
    """assembly(op, spec): what the compiler made of the kernel."""

    def dump(op: str, spec: IndexerSpec) -> str:
        path = make(target, op, spec)
        artifact = manifest.read(path)
        assert artifact.form == "mma"
        flags = [*artifact.flags, f"--iree-hal-dump-executable-files-to={tmp_path}"]
        source = path.with_name(artifact.mlir)
        subprocess.run(
            [build.compiler(), source, *flags, "-o", tmp_path / "x.vmfb"],
            check=True,
            capture_output=True,
        )
        (found,) = tmp_path.glob("*mma*.rocmasm")
        return found.read_text()

    return dump


@pytest.mark.parametrize("op", ["mqa_logits", "paged_mqa_logits"])
@pytest.mark.parametrize("number", [{}, {"format": "fp8", "layout": "n8"}], ids=["fp4", "fp8"])
def test_the_kernel_is_what_was_meant(assembly, target, op, number):
    """MFMA of one kind, 16-byte loads, and nothing that spills."""
    text = assembly(op, IndexerSpec(num_heads=heads(op, target, bool(number)), **number))
    numbers = dict(re.findall(r"\.(\w+_count|private_segment_fixed_size):\s+(\d+)", text))
    assert numbers["vgpr_spill_count"] == numbers["private_segment_fixed_size"] == "0"
    assert int(numbers["vgpr_count"]) <= 256
    kinds = set(re.findall(r"\t(v_mfma\w+)", text))
    scaled = target == "gfx950" and not number
    assert kinds == {
        "v_mfma_scale_f32_16x16x128_f8f6f4" if scaled else "v_mfma_f32_16x16x32_fp8_fp8"
    }
    assert text.count("global_load_dwordx4") >= 8
    assert "scratch_" not in text


def per_tile(emulated, op: str, counted, spec: IndexerSpec) -> dict[str, float]:
    """Instructions by class for all heads x 64 keys: what a second block costs each workgroup."""
    totals = []
    indexer, together = emulated(spec, op), 2 if op == "mqa_logits" else 1
    for columns in (2**19, 2**20):  # one and two blocks in each of 8192 workgroups
        emulator.reset_stats()
        end = torch.full((together,), columns // together, dtype=torch.int32)
        keys = columns // together
        q = (
            torch.zeros(together, spec.num_heads, 64, dtype=torch.uint8),
            torch.full((together, spec.num_heads, 4), 127).byte(),
        )
        weights = torch.ones(together, spec.num_heads)
        if op == "mqa_logits":
            k = torch.zeros(keys, 64, dtype=torch.uint8), torch.full((keys, 4), 127).byte()
            indexer.mqa_logits(q, k, weights, None, end)
        else:
            cache = torch.full((1, spec.page_bytes), 127, dtype=torch.uint8)
            table = torch.zeros(1, keys // 64, dtype=torch.int32)
            indexer.paged_mqa_logits(q, weights, cache, table, end)
        totals.append(counted()[-1])
    few, many = totals
    tiles = (2**20 - 2**19) / 64
    return {name: (many.classes[name] - few.classes[name]) / tiles for name in few.classes}


@pytest.mark.parametrize("op", ["mqa_logits", "paged_mqa_logits"])
def test_a_tile_takes_no_more_instructions_than_it_should(emulated, target, op, counted):
    """For 64 heads on gfx950, 64 max and 32 packed fma would be the least; 128 with plain fma."""
    spec = IndexerSpec(num_heads=heads(op, target))
    spent = per_tile(emulated, op, counted, spec)
    assert spent["mfma"] == spec.num_heads * {"gfx942": 64, "gfx950": 16}[target] / 64
    most = {
        "gfx942": {"mqa_logits": 300, "paged_mqa_logits": 450},
        "gfx950": {"mqa_logits": 118, "paged_mqa_logits": 200},
    }
    assert spent["valu"] <= most[target][op]
    assert spent["scratch"] == 0


def test_bytes_are_read_once_and_only_logits_are_written(emulated, counted):
    spec = IndexerSpec()
    x = paged_inputs(spec, [640], spare_pages=0).arguments()
    indexer = emulated(spec, "paged_mqa_logits")
    emulator.configure(count_distinct=True)
    logits = indexer.paged_mqa_logits(**x)
    emulator.configure(count_distinct=False)
    dispatch = counted()[-1]
    tables = 4 * x["block_table"].numel() + 64
    need = 68 * 640 + sum(t.numel() for t in x["q"]) + 4 * 64 + tables
    assert dispatch.distinct_bytes_read <= 1.1 * need
    assert dispatch.bytes_written == dispatch.distinct_bytes_written == logits.numel() * 4


FP8 = [("gfx942", "fp8"), ("gfx942", "fp8-fnuz"), ("gfx950", "fp8")]


@pytest.fixture
def fp8(emulated, make, target, request):
    """fp8(heads, page_size): compiled and plain indexers of a format that the MFMA takes."""

    def load(heads: int, page_size: int):
        spec = IndexerSpec(format=request.param, layout="n8", num_heads=heads, page_size=page_size)
        ops = ("paged_mqa_logits", "mqa_logits")
        assert {manifest.read(make(target, op, spec)).form for op in ops} == {"mma"}
        return emulated(spec, *ops), dsv4_iree.load(spec, backend="reference")

    return load


@pytest.mark.parametrize(("target", "fp8"), FP8, indirect=["fp8"])
@pytest.mark.parametrize(("heads", "page_size"), [(64, 64), (8, 16), (12, 32)])
def test_paged_fp8_scores_are_those_of_the_reference(fp8, counted, heads, page_size):
    compiled, expected = fp8(heads, page_size)
    x = paged_inputs(compiled.spec, [40, 0, 300], next_n=2, page_padding=28)
    x.start.copy_(torch.arange(6, dtype=torch.int32) * 7)
    logits = compiled.paged_mqa_logits(**x.arguments())
    assert_logits_close(logits, expected.paged_mqa_logits(**x.arguments()))
    assert list(counted()[-1].matrix) == ["v_mfma_f32_16x16x32_fp8_fp8"]


@pytest.mark.parametrize(("target", "fp8"), FP8, indirect=["fp8"])
def test_fp8_bytes_whatever_they_are(fp8):
    """Among them NaN, and the byte that is -0 in one format and NaN in the other."""
    compiled, expected = fp8(8, 16)
    random = torch.Generator().manual_seed(1)
    k = torch.randint(0, 256, (70, 128), generator=random, dtype=torch.uint8)
    q = torch.randint(0, 0x78, (3, 8, 128), generator=random, dtype=torch.uint8)
    q[2, 5, :4] = torch.tensor([0x80, 0x7F, 0xFF, 0x80], dtype=torch.uint8)
    k[::2] &= 0x77  # half of the keys are finite numbers
    k[4] = 0x80
    scales = torch.rand(3, 8, generator=random), torch.rand(70, generator=random)
    weights, end = torch.randn(3, 8, generator=random), int32(70, 65, 3)
    args = ((q, scales[0]), (k, scales[1]), weights, None, end)
    logits = expected.mqa_logits(*args)
    assert_logits_close(compiled.mqa_logits(*args), logits)
    assert logits.isnan().any() and logits.isfinite().sum() > 60
