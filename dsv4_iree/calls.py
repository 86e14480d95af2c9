# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One op call on loaded artifacts: scratch memory, and a cut into rows where that is too much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from dsv4_iree.errors import ArgumentError, check_tensor
from dsv4_iree.manifest import choose
from dsv4_iree.runtime import ALIGNMENT, Arguments, Device, Function, Module
from dsv4_iree.spec import IndexerSpec

ROWS_STEP = ALIGNMENT // 4  # rows of int32 that fill one aligned line
WORKSPACE_LIMIT = 256 << 20  # bytes


@dataclass(frozen=True)
class Call:
    """What to run.

    Args:
        op: names the artifact.
        entry: the function in it.
        inputs, outputs: tensors by the name that errors use, in the function's order.
        scalars: its integers.
        by_rows: names of the tensors with one row per query row; a call may be cut along them.
        work: scores that it computes, or rows: four whose bytes are only moved count as one that
            is converted; 0: it is never done inline.
        or_entry: a function with the same result, for a workspace in which `entry` has no room.
    """

    op: str
    entry: str
    inputs: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]
    scalars: tuple[int, ...] = ()
    by_rows: tuple[str, ...] = ()
    work: int = 0
    or_entry: str = ""

    def arguments(self, rows: slice | None = None) -> Arguments:
        """The function's arguments, all of them or a run of rows."""
        tensors = {**self.inputs, **self.outputs}
        if rows is not None:
            tensors = {n: t[rows] if n in self.by_rows else t for n, t in tensors.items()}
        return Arguments(tuple(tensors), tuple(tensors.values()), self.scalars)


class Caller:
    """Runs calls of one spec on one device; loads each artifact once and keeps the scratch."""

    def __init__(
        self,
        spec: IndexerSpec,
        device: Device,
        folders: Sequence[Path],
        *,
        wait: bool,
        workspace_limit: int | None,
    ) -> None:
        self.spec, self.device, self.folders = spec, device, tuple(folders)
        self.wait, self.is_limited = wait, workspace_limit is not None
        self.workspace_limit = WORKSPACE_LIMIT if workspace_limit is None else workspace_limit
        self._modules: dict[str, Module] = {}
        self.scratch = torch.empty(ALIGNMENT, dtype=torch.uint8, device=device.torch_device)

    def module(self, op: str) -> Module:
        """The artifact of `op`; the first call verifies and loads it."""
        if op not in self._modules:
            path = choose(self.folders, op, self.device.targets, self.spec)
            self._modules[op] = Module(path, self.device)
        return self._modules[op]

    def run(self, call: Call, workspace: torch.Tensor | None) -> None:
        """Run `call` with the given scratch, or with as much of our own as it needs."""
        arguments = call.arguments()
        function, need = self._function(call, arguments, workspace)
        inline = 0 < call.work <= function.inline_work
        if workspace is not None or inline:
            scratch = self._own(need) if workspace is None else self._given(workspace, need)
            function(arguments, scratch, wait=self.wait, inline=inline)
            return
        if need <= self.workspace_limit:
            function(arguments, self._own(need), wait=self.wait)
            return
        rows = call.outputs["out"].shape[0] if call.by_rows else 0
        step = self._run_of_rows(call, function, rows, need)
        for first in range(0, max(rows, 1), max(step, 1)):
            part = call.arguments(slice(first, first + step) if call.by_rows else None)
            function(part, self._own(function.workspace_bytes(part)), wait=self.wait)

    def _function(
        self, call: Call, arguments: Arguments, workspace: torch.Tensor | None
    ) -> tuple[Function, int]:
        """What runs the call, and the bytes of workspace that it needs."""
        functions = self.module(call.op).functions
        function, other = functions[call.entry], functions.get(call.or_entry)
        need = function.workspace_bytes(arguments)
        if other and workspace is not None and workspace.numel() < need:
            other_need = other.workspace_bytes(arguments)
            if other_need < need:
                return other, other_need
        return function, need

    def _run_of_rows(self, call: Call, function: Function, rows: int, need: int) -> int:
        """As many rows as the limit holds. Tensors of a run start at an aligned line."""
        step = rows
        while need > self.workspace_limit and step > ROWS_STEP:
            fitting = step * self.workspace_limit // need // ROWS_STEP * ROWS_STEP
            step = max(ROWS_STEP, fitting)
            need = function.workspace_bytes(call.arguments(slice(0, step)))
        if need > self.workspace_limit and self.is_limited:
            raise ArgumentError(
                f"workspace_limit: expected at least {need} bytes for {step or 'all'} rows of "
                f"{call.op}, got {self.workspace_limit}"
            )
        return step

    def _given(self, workspace: torch.Tensor, need: int) -> torch.Tensor:
        device = self.device.torch_device
        check_tensor("workspace", workspace, shape=("bytes",), dtype=torch.uint8, device=device)
        if workspace.shape[0] < max(need, 1):
            raise ArgumentError(
                f"workspace: expected at least {max(need, 1)} bytes for this call, "
                f"got {workspace.shape[0]}"
            )
        return workspace

    def _own(self, need: int) -> torch.Tensor:
        if self.scratch.shape[0] < need:
            self.device.synchronize()  # the old scratch may still be in use
            self.scratch = torch.empty(need, dtype=torch.uint8, device=self.device.torch_device)
        return self.scratch


def flat_vectors(
    name: str, pair: Sequence[torch.Tensor], spec: IndexerSpec
) -> dict[str, torch.Tensor]:
    """Values [N, value_bytes] and scales [N, scale_bytes] or [N] of any batch of vectors."""
    values, scales = pair
    flat = scales.view(-1, spec.scale_bytes) if spec.is_fp4 else scales.view(-1)
    return {f"{name} values": values.view(-1, spec.value_bytes), f"{name} scales": flat}


def named(name: str, vectors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The parts of checked vectors by the names that errors use."""
    parts = ("",) if len(vectors) == 1 else (" values", " scales")
    return {f"{name}{part}": tensor for part, tensor in zip(parts, vectors)}


def page_scalars(*pages: torch.Tensor) -> tuple[int, ...]:
    """Page stride in bytes of each memory, and num_pages, as the entry points take them."""
    return *(part.stride(0) for part in pages), pages[0].shape[0]
