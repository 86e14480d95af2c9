# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which form of a kernel a target gets: a hand-written or generated one, or the portable one."""

from __future__ import annotations

from dsv4_iree.kernels import mfma, vnni
from dsv4_iree.kernels.entry import Entry, pure_function
from dsv4_iree.spec import IndexerSpec

VNNI = {"avx512f", "avx512bw", "avx512vl", "avx512_vnni"}


def form(op: str, target: str, spec: IndexerSpec, cpu: str) -> str:
    """The form of `op` for a target: "vnni", or "portable" where no better one fits.

    Args:
        cpu: instruction sets of this host, for which target cpu is compiled.
    """
    if target == "cpu" and set(cpu.split()) >= VNNI and vnni.fits(op, spec):
        return "vnni"
    if target in ("gfx942", "gfx950") and mfma.fits(op, spec):
        return "mfma"
    return "portable"


def function(entry: Entry, target: str, spec: IndexerSpec, form: str) -> str:
    """`@<entry>_pure` in the given form, with the kernels it dispatches."""
    if form == "vnni":
        return vnni.function(entry, spec)
    if form == "mfma":
        return mfma.function(entry, target, spec)
    return pure_function(entry)
