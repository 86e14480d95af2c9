"""The AVX512-VNNI kernels: what they are made of, and that they say what the portable form says."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import dsv4_iree
from dsv4_iree import build, manifest
from dsv4_iree import reference as plain
from dsv4_iree.indexer import Indexer
from dsv4_iree.runtime import INLINE_WORK
from dsv4_iree.spec import IndexerSpec
from dsv4_iree.testing import assert_bytes_equal, assert_logits_close, paged_inputs

pytestmark = pytest.mark.skipif(
    "avx512_vnni" not in manifest.host_cpu().split(), reason="this CPU has no AVX512-VNNI"
)
SPECS = {
    "heads64": IndexerSpec(),
    "heads8-page16": IndexerSpec(num_heads=8, page_size=16),
    "heads16-page128": IndexerSpec(num_heads=16, page_size=128),
    "heads32-page48": IndexerSpec(num_heads=32, page_size=48),
    "heads12-page32": IndexerSpec(num_heads=12, page_size=32),
}
SMALL = IndexerSpec(num_heads=8)
Load = Callable[..., Indexer]


@pytest.fixture
def portable(artifacts: Path, make: Callable, tmp_path: Path) -> Load:
    """portable(spec, op): the artifact for any x86-64-v3 CPU, which is in portable form."""

    def load(spec: IndexerSpec, op: str) -> Indexer:
        make("cpu-generic", op, spec)
        (tmp_path / "cpu-generic").symlink_to(artifacts / "cpu-generic")
        return dsv4_iree.load(spec, artifacts=tmp_path, ops=[op])

    return load


def vectors(shape: tuple[int, ...], scales: range, random: torch.Generator):
    """Random values, and scale bytes from a range."""
    values = torch.randint(0, 256, (*shape, 64), generator=random, dtype=torch.uint8)
    return values, torch.randint(scales.start, scales.stop, (*shape, 4), generator=random).byte()


def test_the_inner_loops_are_vpdpbusd_without_spills(make, tmp_path):
    """Every loop of 32 or more vpdpbusd keeps its accumulators in registers."""
    path = make("cpu", "paged_mqa_logits", IndexerSpec())
    artifact = manifest.read(path)
    assert artifact.form == "vnni"
    dump = f"--iree-hal-dump-executable-files-to={tmp_path}"
    source = path.with_name(artifact.mlir)
    subprocess.run(
        [build.compiler(), source, *artifact.flags, dump, "-o", tmp_path / "x.vmfb"], check=True
    )
    (assembly,) = tmp_path.glob("*vnni*.s")
    loops = [block.split("\n") for block in assembly.read_text().split("\n.LBB")]
    inner = [lines for lines in loops if sum("\tvpdpbusd\t" in line for line in lines) >= 32]
    # One for each form of the scores: 2 words x 4 heads x 4 tiles, and 8 words x 2 x 4 twice.
    assert sorted(sum("\tvpdpbusd\t" in x for x in lines) for lines in inner) == [32, 64, 64]
    assert all("zmm" in x for lines in inner for x in lines if "\tvpdpbusd\t" in x)
    for lines in inner:
        body = lines[: next(i for i, line in enumerate(lines) if line.startswith("\tj"))]
        stores = [x for x in body if x.startswith("\tvmov") and x.endswith("(%rsp)") and "zmm" in x]
        assert not stores


def test_forms_and_instruction_sets_are_recorded(make):
    own = manifest.read(make("cpu", "mqa_logits", SMALL))
    generic = manifest.read(make("cpu-generic", "mqa_logits", SMALL))
    assert (own.form, generic.form) == ("vnni", "portable")
    assert "avx512_vnni" in own.cpu.split()
    assert not [name for name in generic.cpu.split() if name.startswith("avx512")]
    odd = IndexerSpec(num_heads=8, page_size=8)  # 16 keys do not share a page
    assert manifest.read(make("cpu", "paged_mqa_logits", odd)).form == "portable"


@pytest.mark.parametrize("next_n", [1, 3])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_vnni_and_portable_logits_agree(compiled, portable, spec, next_n):
    """Over runs of several workgroups, and windows that begin and end inside pages."""
    lengths = [0, 5, 1111, 700] if next_n == 3 else [5, 5000, 64, 1024, 2049, 513, 4097, 1]
    inputs = paged_inputs(spec, lengths, next_n=next_n, page_padding=12, seed=30)
    inputs.start.copy_(torch.arange(len(inputs.start)) * 37 % 150)
    logits = compiled(spec, "paged_mqa_logits").paged_mqa_logits(**inputs.arguments())
    expected = portable(spec, "paged_mqa_logits").paged_mqa_logits(**inputs.arguments())
    assert_logits_close(logits, expected)
    assert expected.isfinite().sum() > 500


@pytest.mark.parametrize(
    ("q_scales", "k_scales"),
    [
        (range(120, 130), range(120, 130)),
        (range(125, 128), range(60, 200)),
        (range(90, 100), range(150, 165)),
        (range(256), range(126, 128)),
        (range(126, 128), range(256)),
        (range(3), range(250, 255)),
        (range(252, 256), range(4)),
    ],
    ids=["ordinary", "wide-keys", "at-the-edge", "any-query", "any-key", "tiny-huge", "huge-tiny"],
)
@pytest.mark.parametrize("op", ["mqa_logits", "paged_mqa_logits"])
def test_vnni_and_portable_agree_whatever_the_scales(compiled, portable, op, q_scales, k_scales):
    random = torch.Generator().manual_seed(31)
    q, k = vectors((9, 8), q_scales, random), vectors((192,), k_scales, random)
    weights = torch.randn(9, 8, generator=random)
    end = torch.full((9,), 190, dtype=torch.int32)
    args = (q, k, weights, None, end)
    if op == "paged_mqa_logits":
        cache = torch.zeros(3, SMALL.page_bytes, dtype=torch.uint8)
        plain.write_cache(cache, *k, torch.arange(192), SMALL)
        args = (q, weights, cache, torch.tensor([[0, 1, 2]], dtype=torch.int32), end)
    logits = getattr(compiled(SMALL, op), op)(*args)
    expected = getattr(portable(SMALL, op), op)(*args)
    assert torch.equal(logits.isnan(), expected.isnan())
    assert torch.equal(logits.isinf(), expected.isinf())
    finite = expected.isfinite()
    sign = torch.where(finite, 0.0, expected).nan_to_num(0.0)
    assert torch.equal(torch.where(finite, 0.0, logits).nan_to_num(0.0), sign)
    for row in range(9):  # their magnitudes are far apart
        own, other = logits[row][finite[row]].double(), expected[row][finite[row]].double()
        if len(other):
            assert (own - other).abs().max() <= 1e-5 * other.abs().max()


def test_a_scale_out_of_the_ordinary_changes_no_bit_of_its_neighbours(compiled):
    """One key moves its whole block to another form of the kernel."""
    random = torch.Generator().manual_seed(32)
    q, k = vectors((2, 8), range(126, 129), random), vectors((70,), range(125, 128), random)
    weights = torch.randn(2, 8, generator=random)
    indexer, end = compiled(SMALL, "mqa_logits"), torch.full((2,), 70, dtype=torch.int32)
    expected = indexer.mqa_logits(q, k, weights, None, end)
    others = [column for column in range(70) if column != 20]
    for byte in (100, 140, 0, 1, 254, 255):
        k[1][20, 1] = byte
        logits = indexer.mqa_logits(q, k, weights, None, end)
        assert_bytes_equal(logits[:, others], expected[:, others])


@pytest.mark.parametrize("weight", [2.0**-120, 2.0**60, float("inf"), float("nan")])
def test_weights_out_of_the_ordinary_keep_their_meaning(compiled, weight):
    random = torch.Generator().manual_seed(33)
    q, k = vectors((2, 8), range(126, 128), random), vectors((20,), range(126, 128), random)
    weights = torch.ones(2, 8)
    indexer, end = compiled(SMALL, "mqa_logits"), torch.full((2,), 20, dtype=torch.int32)
    expected = indexer.mqa_logits(q, k, weights, None, end)
    weights[1] = weight
    logits = indexer.mqa_logits(q, k, weights, None, end)
    assert_bytes_equal(logits[0], expected[0])
    if weight < float("inf"):
        assert_bytes_equal(logits[1], expected[1] * weight)
    else:
        assert not logits[1].isfinite().any()


@pytest.mark.parametrize("op", ["mqa_logits", "paged_mqa_logits"])
def test_zeros_of_both_signs_zero_groups_and_extreme_scales_equal_the_reference(
    compiled, reference, op
):
    """Groups of random codes and of zeros under scale bytes 0, 1, 254 and 255."""
    random = torch.Generator().manual_seed(35)
    q, k = vectors((4, 8), range(100, 104), random), vectors((64,), range(125, 129), random)
    weights = torch.randn(4, 8, generator=random)
    for key, byte in enumerate((0, 1, 254, 255)):
        k[1][key, 1] = byte  # under the codes that are there
        k[0][8 + key, 16:32], k[1][8 + key, 1] = 0, byte  # a group of +0
        k[0][16 + key, 16:32], k[1][16 + key, 1] = 0x88, byte  # a group of -0
        k[0][24 + key], k[1][24 + key] = 0x80, byte  # all zeros of both signs
    end = torch.full((4,), 64, dtype=torch.int32)
    args = (q, k, weights, None, end)
    if op == "paged_mqa_logits":
        cache = torch.zeros(1, SMALL.page_bytes, dtype=torch.uint8)
        plain.write_cache(cache, *k, torch.arange(64), SMALL)
        args = (q, weights, cache, torch.tensor([[0]], dtype=torch.int32), end)
    logits = getattr(compiled(SMALL, op), op)(*args)
    expected = getattr(reference(SMALL), op)(*args)
    huge = [2]  # under 254
    others = [column for column in range(64) if column not in huge]
    for columns in (huge, others):
        assert_logits_close(logits[:, columns], expected[:, columns])
    assert (expected[:, huge].abs().amax(1) > 1e20).all()
    assert expected[:, [3, 11, 19, 27]].isnan().all()
    assert expected[:, others].isfinite().sum() == 4 * 59
    assert (logits[:, 24:27] == 0).all()


def test_weights_of_both_signs_windows_inside_pages_and_garbage_equal_the_reference(
    compiled, reference
):
    """Garbage lies in unused table entries, unused entries of pages, padding and spare pages."""
    spec = IndexerSpec(num_heads=16)
    inputs = paged_inputs(spec, [0, 1, 130, 700, 64, 2500], page_padding=20, seed=36)
    start = torch.tensor([0, -5, 70, 3, 64, 2000], dtype=torch.int32)
    end = torch.tensor([0, 1, 129, 2**31 - 1, 64, 2437], dtype=torch.int32)
    arguments = {**inputs.arguments(), "start": start, "end": torch.minimum(end, inputs.end)}
    assert (inputs.weights < 0).any()
    assert (inputs.weights > 0).any()
    logits = compiled(spec, "paged_mqa_logits").paged_mqa_logits(**arguments)
    assert_logits_close(logits, reference(spec).paged_mqa_logits(**arguments))
    assert (logits[[0, 4]] == float("-inf")).all()


def test_twenty_runs_give_the_same_bits_on_one_thread_and_on_all(compiled):
    """Small calls run on the calling thread, larger ones on all: the first columns agree."""
    inputs = paged_inputs(SMALL, [1500, 900], seed=37)
    indexer, arguments = compiled(SMALL, "paged_mqa_logits"), inputs.arguments()
    expected = indexer.paged_mqa_logits(**arguments)
    assert expected.numel() > INLINE_WORK["vnni"]
    for _ in range(20):
        assert_bytes_equal(indexer.paged_mqa_logits(**arguments), expected)
        few = indexer.paged_mqa_logits(**arguments, width=1000)
        assert few.numel() <= INLINE_WORK["vnni"]
        assert_bytes_equal(few, expected[:, :1000])


def test_a_small_call_comes_after_what_was_queued_before_it(compiled):
    inputs = paged_inputs(SMALL, [40000], seed=38)
    indexer = compiled(SMALL, "paged_mqa_logits", wait=False)
    out = torch.zeros(1, inputs.block_table.shape[1] * SMALL.page_size)
    few = torch.full((1, 64), 7.0)
    indexer.paged_mqa_logits(**inputs.arguments(), out=out)
    indexer.paged_mqa_logits(**inputs.arguments(), out=few)
    # No wait: both are there.
    assert_bytes_equal(out[:, :64], few)
    assert out[0, 39999].isfinite()


def test_pages_past_two_gigabytes_are_read_where_they_lie(compiled):
    """Page 5 starts 2.5 GiB into memory that is mapped but, but for two pages, never touched."""
    stride = 1 << 29
    area = mmap.mmap(-1, 5 * stride + SMALL.page_bytes)
    memory = torch.frombuffer(area, dtype=torch.uint8)
    cache = memory.as_strided((6, SMALL.page_bytes), (stride, 1))
    random = torch.Generator().manual_seed(39)
    q, k = vectors((1, 8), range(125, 129), random), vectors((128,), range(125, 129), random)
    slots = torch.cat([torch.arange(64) + 5 * 64, torch.arange(64) + 64])
    plain.write_cache(cache, *k, slots, SMALL)
    weights, end = torch.randn(1, 8, generator=random), torch.tensor([128], dtype=torch.int32)
    table = torch.tensor([[5, 1]], dtype=torch.int32)
    logits = compiled(SMALL, "paged_mqa_logits").paged_mqa_logits(q, weights, cache, table, end)
    expected = compiled(SMALL, "mqa_logits").mqa_logits(q, k, weights, None, end)
    assert_bytes_equal(logits, expected)


def guarded(tensor: torch.Tensor) -> torch.Tensor:
    """A copy whose last byte lies just before memory that cannot be read."""
    page, size = mmap.PAGESIZE, tensor.numel() * tensor.element_size()
    length = -(-size // page) * page
    area = mmap.mmap(-1, length + page)
    memory = torch.frombuffer(area, dtype=torch.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    end = ctypes.c_void_p(memory.data_ptr() + length)
    assert libc.mprotect(end, ctypes.c_size_t(page), 0) == 0
    copy = memory[length - size : length].view(tensor.dtype).view(tensor.shape)
    return copy.copy_(tensor)


@pytest.mark.parametrize("op", ["mqa_logits", "paged_mqa_logits"])
def test_no_byte_past_the_last_key_or_page_is_read(compiled, op):
    """An address past the end would end the process."""
    inputs = paged_inputs(SMALL, [1000], spare_pages=0, seed=34)
    indexer, arguments = compiled(SMALL, op), inputs.arguments()
    if op == "paged_mqa_logits":
        expected = indexer.paged_mqa_logits(**arguments)
        arguments["cache"] = guarded(inputs.cache)
        assert_bytes_equal(indexer.paged_mqa_logits(**arguments), expected)
        return
    for count in (48, 49, 63):
        keys = vectors((count,), range(125, 128), torch.Generator().manual_seed(count))
        end = torch.tensor([count], dtype=torch.int32)
        expected = indexer.mqa_logits(inputs.q, keys, inputs.weights, None, end)
        scales = guarded(keys[1]) if count % 16 == 0 else keys[1]  # tensors are aligned to 64 bytes
        guards = (guarded(keys[0]), scales)
        logits = indexer.mqa_logits(inputs.q, guards, inputs.weights, None, end)
        assert_bytes_equal(logits, expected)
