# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`load`: from a spec and a device name to an `Indexer`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from dsv4_iree.calls import Caller
from dsv4_iree.errors import ArgumentError
from dsv4_iree.indexer import Indexer
from dsv4_iree.runtime import artifact_folders, open_device, torch_device
from dsv4_iree.spec import SPECS, IndexerSpec

BACKENDS = ("compiled", "reference")


def load(
    spec: IndexerSpec | str = "flash",
    *,
    device: str | torch.device = "cpu",
    backend: str = "compiled",
    ops: Sequence[str] = (),
    artifacts: str | os.PathLike[str] | None = None,
    validate: bool = False,
    wait: bool = True,
    workspace_limit: int | None = None,
) -> Indexer:
    """An `Indexer` for hot loops: artifacts are verified and loaded once.

    Args:
        spec: what the kernels are compiled for, or "flash", "pro", "v41".
        device: "cpu", "cuda[:i]" or "hip[:i]".
        backend: "compiled", or "reference" for plain torch; there is no silent fall-back.
        ops: ops to load now; the others load at their first call.
        artifacts: folder of artifacts; default $DSV4_IREE_ARTIFACTS, else the user's cache.
        validate: check values as well as shapes on every call (it waits for the device).
        wait: return from a call when its results are there. Without it a call only queues the
            work: inputs must be ready, and `synchronize()` waits for all outputs.
        workspace_limit: bytes of its own scratch that a call may take. One that needs more is cut
            into runs of at least 16 rows; ArgumentError if 16 rows need more. None: 256 MiB, or
            what 16 rows need. Hand-written forms of `index_topk` need 4 to 6 bytes for each row and
            entry: at most 24 MiB for 16 rows of 262,144 entries, a million tokens at ratio 4.

    Raises:
        ArgumentError: an unknown name; ArtifactError: an op in `ops` has no fitting artifact.
    """
    if isinstance(spec, str):
        if spec not in SPECS:
            raise ArgumentError(f"spec: expected one of {', '.join(SPECS)}, got {spec!r}")
        spec = SPECS[spec]
    if backend not in BACKENDS:
        raise ArgumentError(f"backend: expected compiled or reference, got {backend!r}")
    name = str(device)
    if isinstance(device, torch.device) and device.type == "cuda" and torch.version.hip:
        name = name.replace("cuda", "hip")
    folders = artifact_folders() if artifacts is None else (Path(artifacts),)
    if backend == "reference":
        return Indexer(spec, torch_device(name), None, validate)
    opened = open_device(name)
    caller = Caller(spec, opened, folders, wait=wait, workspace_limit=workspace_limit)
    for op in ops:
        caller.module(op)
    return Indexer(spec, opened.torch_device, caller, validate)
