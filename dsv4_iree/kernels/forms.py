# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which form of a kernel a target gets: a hand-written or generated one, or the portable one."""

from __future__ import annotations

from dsv4_iree.kernels import mma, radix, rows, stream, threshold, vnni, wave
from dsv4_iree.kernels.entry import Entry, pure_function
from dsv4_iree.spec import IndexerSpec

AVX512 = {"avx512f", "avx512bw", "avx512vl"}
VNNI = AVX512 | {"avx512_vnni"}


def form(op: str, target: str, spec: IndexerSpec, cpu: str) -> str:
    """The form of `op` for a target: the best that fits, "portable" if none does.

    Args:
        cpu: instruction sets of this host, for which target cpu is compiled.
    """
    if target == "cpu" and set(cpu.split()) >= VNNI and vnni.fits(op, spec):
        return "vnni"
    if target == "cpu" and set(cpu.split()) >= AVX512 and threshold.fits(op):
        return "threshold"
    if wave.fits(op, target, spec):
        return "wave"
    if not target.startswith("cpu") and mma.fits(op, target, spec):
        return "mma"
    if radix.fits(op, target, spec):
        return "radix"
    if rows.fits(op):
        return "rows"
    return "portable"


def offers(entry: Entry, target: str, spec: IndexerSpec, form: str) -> bool:
    """Whether the form has a function for the entry."""
    if entry.name == "index_topk_streaming":
        return form == "mma" and stream.fits(target, spec)
    return True


def function(entry: Entry, target: str, spec: IndexerSpec, form: str) -> str:
    """`@<entry>_pure` in the given form, with the kernels it dispatches."""
    if form == "vnni":
        return vnni.function(entry, spec)
    if form == "threshold":
        return threshold.function(entry, spec)
    if form == "wave":
        return wave.function(entry, target, spec)
    if entry.name == "index_topk_streaming":
        return stream.function(entry, target, spec)
    if form == "mma":
        return mma.function(entry, target, spec)
    if form == "radix":
        return radix.function(entry, target, spec)
    if form == "rows":
        return rows.function(entry, target, spec)
    return pure_function(entry)
