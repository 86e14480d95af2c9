"""The rows kernels: one dispatch of wide accesses each, split caches, all layouts at scale."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest
import torch

from dsv4_iree import baseline, build, layout, manifest, reference
from dsv4_iree.errors import ArgumentError
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import CacheLayout, IndexerSpec
from dsv4_iree.testing import assert_bytes_equal

OPS = ("quantize", "dequantize", "write_cache", "gather_cache")
N4, F4 = IndexerSpec(), IndexerSpec(layout="f4")
MILLION = 1 << 20
POISON = 0xA5
Load = Callable[..., Indexer]


def compiled_again(path: Path, folder: Path) -> tuple[str, str]:
    """What an artifact runs, as IREE's stream dialect, and its kernels' assembly."""
    artifact = manifest.read(path)
    assert artifact.form == "rows"
    source = path.with_name(artifact.mlir)
    flags = [
        *artifact.flags,
        f"--dump-compilation-phases-to={folder}",
        f"--iree-hal-dump-executable-files-to={folder}",
    ]
    command = [build.compiler(), source, *flags, "-o", folder / "again.vmfb"]
    subprocess.run(command, check=True, capture_output=True)
    (stream,) = folder.glob("*.stream.mlir")
    (assembly,) = [p for p in folder.iterdir() if p.suffix in (".s", ".rocmasm", ".ptx")]
    return stream.read_text(), assembly.read_text()


@pytest.mark.parametrize("target", ["cpu", "cpu-generic", "gfx942", "gfx950", "cuda", "cuda-sm90"])
@pytest.mark.parametrize("op", [*OPS, "quantize_queries"])
def test_a_call_is_one_dispatch_of_wide_accesses(make, tmp_path, target, op):
    path = make(target, op, N4)
    stream, assembly = compiled_again(path, tmp_path)
    calls = re.findall(r"stream\.cmd\.(dispatch|copy|fill|call|flush) ?", stream)
    assert calls == ["dispatch"] * len(manifest.read(path).functions)
    if target.startswith("gfx"):
        assert "scratch_" not in assembly
        assert "global_load_dwordx4" in assembly or op == "dequantize"
        assert "global_store_dwordx4" in assembly or op.startswith("quantize")
    elif target.startswith("cuda"):
        assert ".local" not in assembly
        assert re.search(r"ld\.global\.(nc\.)?v4", assembly) or op == "dequantize"
        assert re.search(r"st\.global\.v4", assembly) or op.startswith("quantize")
    else:
        register = {"cpu": "zmm", "cpu-generic": "ymm"}[target]
        loop = assembly.split("_rows:\n")[1]
        assert register in loop or op in ("write_cache", "gather_cache")


def f4_cache(spec: IndexerSpec, pages: int, padding: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Poisoned values and scales whose pages are `padding` bytes apart."""
    tiles, size = spec.head_dim // 128, spec.page_size
    parts = []
    for shape in ((tiles, 4, size, 16), (tiles, 4, size)):
        page_bytes = torch.Size(shape).numel()
        storage = torch.full((pages, page_bytes + padding), POISON, dtype=torch.uint8)
        parts.append(storage[:, :page_bytes].view(pages, *shape))
    return parts[0], parts[1]


@pytest.mark.parametrize(
    "spec", [F4, IndexerSpec(layout="f4", head_dim=256, page_size=32)], ids=str
)
@pytest.mark.parametrize("padding", [0, 28])
@pytest.mark.gpu
def test_split_caches_hold_what_the_conversion_says(
    backend: Load, spec: IndexerSpec, padding: int
) -> None:
    indexer = backend(spec, *OPS)
    random = torch.Generator().manual_seed(0)
    keys = torch.randn(100, spec.head_dim, generator=random)
    slots = torch.randperm(5 * spec.page_size, generator=random)[:100]
    slots[3], slots[4], slots[5] = -1, 5 * spec.page_size, 2**62
    pair = reference.quantize(keys, spec)
    expected = torch.full((5, spec.page_size, spec.entry_bytes), POISON, dtype=torch.uint8)
    kept = (slots >= 0) & (slots < 5 * spec.page_size)
    expected.flatten(0, 1)[slots[kept]] = torch.cat(pair, dim=1)[kept]
    for given in (keys, keys.bfloat16().float(), pair):
        cache = f4_cache(spec, 5, padding)
        indexer.write_cache(cache, given, slots)
        if given is keys or isinstance(given, tuple):
            assert_bytes_equal(layout.f4_to_entries(*cache), expected)
        for part in cache:
            storage = part.untyped_storage()
            whole = torch.tensor([], dtype=torch.uint8).set_(storage).view(5, -1)
            assert whole[:, part[0].numel() :].eq(POISON).all()
    table = torch.tensor([[4, -1, 2], [5, 0, 1]], dtype=torch.int32)
    requests = torch.arange(100, dtype=torch.int32) % 4 - 1
    entries = torch.arange(100, dtype=torch.int32) * 7 % (3 * spec.page_size + 9) - 2
    found = indexer.gather_cache(cache, table, requests, entries)
    flat = tuple(part.flatten(1) for part in cache)
    wanted = reference.gather_cache(flat, table, requests, entries, spec)
    for one, other in zip(found, wanted):
        assert_bytes_equal(one, other)
    assert wanted[0].any(1).sum() > 10
    for dtype in (torch.float32, torch.bfloat16):
        numbers = indexer.gather_cache(cache, table, requests, entries, dtype=dtype)
        assert_bytes_equal(numbers, reference.dequantize(*wanted, spec).to(dtype))


def test_a_split_cache_that_does_not_fit_is_refused(reference: Load) -> None:
    indexer, (values, scales) = reference(F4), f4_cache(F4, 3)
    keys, slots = torch.randn(1, 128), torch.tensor([0])
    for cache, words in {
        "one tensor": (
            values,
            r"cache: expected a pair \(values, scales\) in layout F4, got Tensor",
        ),
        "pages": ((values, scales[:2]), r"cache scales: expected shape \[3, 1, 4, 64\]"),
        "order": ((values.transpose(3, 4), scales), r"cache values: expected shape"),
        "strides": (
            (values, scales.permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2)),
            r"cache scales: expected dense pages at least 256 bytes apart, got strides",
        ),
    }.values():
        with pytest.raises(ArgumentError, match=words):
            indexer.write_cache(cache, keys, slots)


def test_torch_peers_make_the_same_bytes() -> None:
    """What `bench.py` times the ops against does all of their work."""
    random = torch.Generator().manual_seed(2)
    x = (
        torch.randn(3 * 64, 128, generator=random)
        * torch.tensor([1.0, 1e-3, 4.0]).repeat(64)[:, None]
    )
    x[0], x[1, :14] = 0, torch.tensor([6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5] * 2)[:14]
    x[1, 7:14] *= -1
    pair, expected = baseline.quantize(x), reference.quantize(x, N4)
    cache, wanted = (torch.full((4, 4352 + 8), POISON, dtype=torch.uint8) for _ in range(2))
    slots = torch.randperm(4 * 64, generator=random)[: len(x)]
    baseline.write_cache(cache[:, :4352], pair, slots, N4)
    reference.write_cache(wanted[:, :4352], *expected, slots, N4)
    assert_bytes_equal(cache, wanted)
    table = torch.tensor([[2, 0], [3, 1]], dtype=torch.int32)
    rows = torch.arange(256, dtype=torch.int32)
    args = (cache[:, :4352], table, rows // 128, rows.flip(0) % 128)
    found, gathered = baseline.gather_cache(*args, N4), reference.gather_cache(*args, N4)
    for one, other in zip(found, gathered):
        assert_bytes_equal(one, other)


LAYOUTS = {
    "fp4": (N4, IndexerSpec(layout="g4"), IndexerSpec(num_heads=8, layout="g4"), F4),
    "fp8": (IndexerSpec(format="fp8", layout="n8"), IndexerSpec(format="fp8", layout="p8")),
}


def pages_of(spec: IndexerSpec, count: int) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    if spec.layout is CacheLayout.F4:
        return f4_cache(spec, count)
    return torch.full((count, spec.page_bytes), POISON, dtype=torch.uint8)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_cache_of_a_million_entries_survives_the_way_through_every_layout(
    compiled: Load, kind: str, pytestconfig: pytest.Config
) -> None:
    """From one layout to the next, all around, or from each to each other (--long): gathered from
    shuffled pages, written, gathered again."""
    specs, is_long = LAYOUTS[kind], pytestconfig.getoption("long")
    entries = MILLION * (4 if is_long else 1)
    count = entries // specs[0].page_size
    indexers = [compiled(spec, "write_cache", "gather_cache") for spec in specs]
    random = torch.Generator().manual_seed(1)
    table = torch.randperm(count, generator=random).int()[None]
    order = torch.arange(entries)
    slots = table[0].long()[order // 64] * 64 + order % 64
    request = torch.zeros(entries, dtype=torch.int32)
    shape = (entries, specs[0].value_bytes)
    values = torch.randint(-(2**63), 2**63 - 1, (shape[0], shape[1] // 8), generator=random)
    scales = torch.randint(-(2**31), 2**31 - 1, (entries,), generator=random).int()
    dtype = torch.uint8 if specs[0].is_fp4 else torch.float32
    pair = (
        values.view(torch.uint8),
        scales.view(dtype).view(entries, *([4] if kind == "fp4" else [])),
    )
    around = [(i, (i + 1) % len(specs)) for i in range(len(specs))]
    for a, b in permutations(range(len(specs)), 2) if is_long else around:
        first, second = (pages_of(specs[i], count) for i in (a, b))
        indexers[a].write_cache(first, pair, slots)
        raw = indexers[a].gather_cache(first, table, request, order.int())
        indexers[b].write_cache(second, raw, slots)
        back = indexers[b].gather_cache(second, table, request, order.int())
        for one, other in zip(back, pair):
            assert_bytes_equal(one, other)
        sample = torch.randint(count, (64,), generator=random)
        for spec, cache in ((specs[a], first), (specs[b], second)):
            if isinstance(cache, tuple):
                found = layout.f4_to_entries(*(part[sample] for part in cache))
            else:
                found = layout.as_entries(spec, cache[sample])
            at = torch.argsort(table[0].long())[sample][:, None] * 64 + torch.arange(64)
            bytes_of_scales = pair[1].view(entries, -1).view(torch.uint8)
            assert_bytes_equal(found, torch.cat([pair[0][at], bytes_of_scales[at]], dim=2))
