# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check artifacts: manifest and hash, signatures inside the module, and known answers.

A known answer is a small call whose result the reference gives as well; it runs where this machine
has the device, or on the emulator once that is enabled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch

from dsv4_iree import emulator, manifest, runtime, testing
from dsv4_iree.api import load
from dsv4_iree.emulator import Dispatch
from dsv4_iree.errors import IndexerError
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import TARGETS, CacheLayout, Format, IndexerSpec


@dataclass(frozen=True)
class Verdict:
    """One artifact's checks: "ok", "not run: ..." or what is wrong."""

    file: str
    op: str
    target: str
    hash: str
    signature: str
    answer: str
    launches: tuple[Dispatch, ...] = ()  # of the known answer, if it ran on the emulator

    @property
    def ok(self) -> bool:
        words = (self.hash, self.signature, self.answer)
        return all(word == "ok" or word.startswith("not run") for word in words)


def verify(folders: Sequence[Path], targets: Sequence[str] = TARGETS) -> list[Verdict]:
    """Verdicts on every artifact of `targets` in `folders`."""
    return [
        _verify_one(path, target, folder)
        for folder in folders
        for target in targets
        for path in sorted((folder / target).glob("*.json"))
    ]


def _verify_one(path: Path, target: str, folder: Path) -> Verdict:
    name, op, skipped = f"{target}/{path.stem}.vmfb", path.stem.split("-")[0], "not run"
    try:
        artifact, code = manifest.verified_bytes(path)
    except (IndexerError, OSError) as error:
        return Verdict(name, op, target, str(error), skipped, skipped)
    try:
        runtime.check_module(artifact, runtime.parse_module(artifact, code))
    except IndexerError as error:
        return Verdict(name, artifact.op, target, "ok", str(error), skipped)
    spec = spec_of(artifact)
    if why := manifest.reject_reason(artifact, artifact.op, target, spec):
        return Verdict(name, artifact.op, target, "ok", why, skipped)
    if (device := runtime.device_for(target)) is None:
        return Verdict(name, artifact.op, target, "ok", "ok", f"not run: no {target} device here")
    emulated = device.startswith("hip") and emulator.is_enabled()
    if emulated:
        emulator.reset_stats()
    try:
        compiled = load(spec, device=device, artifacts=folder, ops=[artifact.op])
        answer = "ok" if known_answer(artifact.op, compiled) else "differs from the reference"
    except (IndexerError, RuntimeError) as error:
        answer = str(error)
    launches = tuple(emulator.stats()) if emulated else ()
    return Verdict(name, artifact.op, target, "ok", "ok", answer, launches)


def spec_of(artifact: manifest.Artifact) -> IndexerSpec:
    """A spec that the artifact serves; what it does not depend on has its default."""
    numbers = dict(artifact.spec)
    if str(numbers.get("format", "")).startswith("fp8"):
        numbers.setdefault("layout", "n8")
    known = {field.name for field in fields(IndexerSpec)}
    return IndexerSpec(**{k: v for k, v in numbers.items() if k in known})  # type: ignore[arg-type]


def known_answer(op: str, compiled: Indexer) -> bool:
    """Whether `op` agrees with the reference on a small input: bytes, or logits by calc_diff."""
    expected = load(compiled.spec, backend="reference", device="cpu")
    actual, wanted = (_answers(op, indexer) for indexer in (compiled, expected))
    try:
        for one, other in zip(actual, wanted):
            if op.endswith("mqa_logits"):
                testing.assert_logits_close(one.cpu(), other)
            else:
                testing.assert_bytes_equal(one.cpu(), other)
    except AssertionError:
        return False
    return True


def _answers(op: str, indexer: Indexer) -> tuple[torch.Tensor, ...]:
    """Results of one small call of `op`."""
    spec, device = indexer.spec, indexer.device
    random = torch.Generator().manual_seed(0)
    x = torch.randn(20, spec.head_dim, generator=random).to(device)
    if op == "quantize":
        return indexer.quantize(x)
    if op == "quantize_queries":
        heads = torch.randn(3, spec.num_heads, spec.head_dim, generator=random)
        weights = torch.randn(3, spec.num_heads, generator=random)
        angle = torch.rand(9, spec.rope_dim // 2, generator=random) * 6.28
        table = torch.cat([angle.cos(), angle.sin()], dim=1).to(device)
        positions = torch.tensor([0, 8, -1]).to(device)
        pair, folded = indexer.quantize_queries(
            heads.to(device), weights.to(device), positions=positions, cos_sin=table
        )
        return (*pair, folded)
    if op == "topk":
        logits = torch.randn(3, 3 * spec.topk, generator=random).round(decimals=2).to(device)
        lengths = torch.tensor([0, spec.topk // 2, 3 * spec.topk], dtype=torch.int32).to(device)
        return (indexer.topk(logits, None, lengths),)
    reference = load(spec, backend="reference", device=str(device))
    heads = torch.randn(4, spec.num_heads, spec.head_dim, generator=random).to(device)
    weights = torch.randn(4, spec.num_heads, generator=random).to(device)
    if op == "mqa_logits":
        end = torch.tensor([0, 7, 20, 21], dtype=torch.int32).to(device)
        pair = (heads.bfloat16(), x.bfloat16())
        if spec.format is not Format.BF16:
            pair = (reference.quantize(heads), reference.quantize(x))  # type: ignore[assignment]
        return (indexer.mqa_logits(*pair, weights, None, end),)
    if op == "dequantize":
        return (indexer.dequantize(reference.quantize(x)),)
    if spec.layout is CacheLayout.F4:
        return _split_answers(op, x, indexer, reference)
    paged = testing.paged_inputs(spec, [2 * spec.page_size + 1, 0], next_n=2).to(device)
    if op == "write_cache":
        slots = torch.arange(20).flip(0).to(device) * 2 - 3
        indexer.write_cache(paged.cache, x, slots)
        return (paged.cache.contiguous(),)
    if op == "gather_cache":
        entries = torch.arange(-2, 18, dtype=torch.int32).to(device)
        request = torch.zeros(20, dtype=torch.int32).to(device)
        found = indexer.gather_cache(paged.cache, paged.block_table, request, entries)
        return found if isinstance(found, tuple) else (found,)
    if op == "paged_mqa_logits":
        return (indexer.paged_mqa_logits(**paged.arguments()),)  # type: ignore[arg-type]
    return (indexer.index_topk(**paged.arguments()),)  # type: ignore[arg-type]


def _split_answers(
    op: str, x: torch.Tensor, indexer: Indexer, reference: Indexer
) -> tuple[torch.Tensor, ...]:
    """The same for a cache whose values and scales are apart."""
    spec, page = indexer.spec, (indexer.spec.head_dim // 128, 4, indexer.spec.page_size)
    cache = (
        torch.zeros(2, *page, 16, dtype=torch.uint8, device=x.device),
        torch.zeros(2, *page, dtype=torch.uint8, device=x.device),
    )
    slots = torch.arange(20).flip(0).to(x.device) * 2 - 3
    (indexer if op == "write_cache" else reference).write_cache(cache, x, slots)
    if op == "write_cache":
        return cache
    table = torch.tensor([[1, 0, 7]], dtype=torch.int32, device=x.device)
    entries = torch.arange(-2, 3 * spec.page_size, dtype=torch.int32, device=x.device)
    found = indexer.gather_cache(cache, table, torch.zeros_like(entries), entries)
    return found if isinstance(found, tuple) else (found,)
