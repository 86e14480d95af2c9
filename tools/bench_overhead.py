# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a call from Python costs beyond IREE's own invocation of the function."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import iree.runtime as rt
import torch

import dsv4_iree

Run = Callable[[], object]


def overhead(rows: int, keys: int, indexer: dsv4_iree.Indexer) -> dict[str, float]:
    """Microseconds of an `Indexer.topk` call above IREE's own invocation of the same function."""
    calls, device = 500, indexer.device
    logits = torch.randn(rows, keys, device=device)
    start = torch.zeros(rows, dtype=torch.int32, device=device)
    end = start + keys
    out = indexer.topk(logits, start, end)
    bare = BareCall(indexer, (logits, start, end, out))
    runs: dict[str, Run] = {
        "call": lambda: indexer.topk(logits, start, end, out=out),
        "bare": bare,
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(calls):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - began) * 1e6)
    call, bare_us = (round(statistics.median(times[name]), 1) for name in runs)
    return {"ms": call / 1e3, "bare_us": bare_us, "overhead_us": round(call - bare_us, 1)}


class BareCall:
    """The topk function through `iree.runtime` alone, its buffer views made beforehand."""

    def __init__(self, indexer: dsv4_iree.Indexer, tensors: tuple[torch.Tensor, ...]) -> None:
        self.function = indexer.function("topk", "topk")
        self.device = self.function.device
        self.views = [self.device.view("tensor", tensor) for tensor in tensors]
        self.scratch = torch.empty(1 << 24, dtype=torch.uint8, device=indexer.device)
        self.workspace = self.device.view("workspace", self.scratch).get_buffer()
        self.timeline, self.now = self.device.hal.create_semaphore(0), 0
        self.columns = tensors[0].shape[1]

    def __call__(self) -> None:
        arguments = rt.VmVariantList(10)
        for view in self.views:
            arguments.push_ref(view)
        for scalar in (self.columns, 0, 1):  # ids relative to the window, largest first
            arguments.push_int(scalar)
        arguments.push_ref(self.workspace)
        arguments.push_ref(rt.HalFence.create_at(self.timeline, self.now))
        self.now += 1
        arguments.push_ref(rt.HalFence.create_at(self.timeline, self.now))
        self.function.context.invoke(self.function.run, arguments, rt.VmVariantList(1))
        self.timeline.wait(self.now)
