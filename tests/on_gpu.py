"""Tests of CPU tensors on the CUDA GPU of this machine: its targets, and calls that go there."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import dsv4_iree
from dsv4_iree import runtime

_away = False  # whether a call is on the GPU already


def targets(config: pytest.Config) -> list[str]:
    """The best target of the GPU here and the one of all GPUs; those of --build-for if given."""
    if chosen := config.getoption("build_for"):
        return chosen
    if not torch.cuda.is_available() or torch.version.hip:
        return []
    major, minor = torch.cuda.get_device_capability()
    able = runtime.cuda_targets(10 * major + minor)
    return list(dict.fromkeys((able[0], able[-1])))


def cases(config: pytest.Config) -> list[object]:
    """The targets as parameters of tests; `-m cuda` selects what runs on the GPU."""
    return [pytest.param(target, marks=pytest.mark.cuda) for target in targets(config)]


def device(config: pytest.Config) -> str:
    """Where `moved` calls go: with --build-for into other CPU memory."""
    return "cpu" if config.getoption("build_for") else "cuda"


class Trip:
    """The memory that the tensors of one call lie in, copied to a device and back byte for byte.

    Strides, offsets, padding and memory that tensors share are there what they are here.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.memory: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.tensors: list[tuple[torch.Tensor, torch.Tensor]] = []

    def send(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._send_tensor(value)
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.send, value))
        if isinstance(value, dict):
            return {name: self.send(part) for name, part in value.items()}
        if isinstance(value, SimpleNamespace):
            return SimpleNamespace(**{name: self.send(part) for name, part in vars(value).items()})
        return value

    def _send_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.memory:
            here = torch.empty(0, dtype=torch.uint8).set_(storage)
            self.memory[storage.data_ptr()] = here, here.to(self.device, copy=True)
        there = self.memory[storage.data_ptr()][1]
        sent = _like(tensor, there)
        self.tensors.append((tensor, sent))
        return sent

    def bring(self, value: Any) -> Any:
        """A result here; what the call was given, or a view of it, is the caller's own."""
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.bring, value))
        if isinstance(value, dict):
            return {name: self.bring(part) for name, part in value.items()}
        if not isinstance(value, torch.Tensor):
            return value
        for tensor, sent in self.tensors:
            if value is sent:
                return tensor
        for here, there in self.memory.values():
            if value.numel() and value.untyped_storage().data_ptr() == there.data_ptr():
                return _like(value, here)
        return value.cpu()

    def end(self) -> None:
        for here, there in self.memory.values():
            here.copy_(there)


def _like(tensor: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    empty = torch.empty(0, dtype=tensor.dtype, device=memory.device)
    where = tensor.storage_offset(), tensor.shape, tensor.stride()
    return empty.set_(memory.untyped_storage(), *where)


def moved(function: Callable[..., Any], device: str) -> Callable[..., Any]:
    """The function for CPU tensors, called on `device`. What it calls itself stays there."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        global _away
        if _away:
            return function(*args, **options)
        trip = Trip(device)
        sent = trip.send(args), {name: trip.send(value) for name, value in options.items()}
        _away = True
        try:
            result = function(*sent[0], **sent[1])
        finally:
            _away = False
        trip.end()
        return trip.bring(result)

    return call


class Moved:
    """An indexer of a GPU as one of the CPU."""

    def __init__(self, indexer: dsv4_iree.Indexer, device: str) -> None:
        self._indexer, self._device = indexer, device

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._indexer, name)
        return moved(found, self._device) if inspect.ismethod(found) else found
