# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors that name the argument, what was expected, what came, and the next step."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class IndexerError(Exception):
    """Base of every error this package raises on purpose."""


class ArgumentError(IndexerError, ValueError):
    """An argument has the wrong shape, dtype, stride, device or value."""


class ArtifactError(IndexerError, RuntimeError):
    """A compiled artifact is missing, damaged, or made for something else."""


class BuildError(IndexerError, RuntimeError):
    """An artifact could not be built."""


def check_tensor(
    name: str,
    tensor: object,
    *,
    shape: Sequence[int | str | None],
    dtype: torch.dtype | Sequence[torch.dtype],
    device: torch.device | None = None,
    contiguous: bool = True,
) -> torch.Tensor:
    """Return `tensor`, or raise ArgumentError with one fixed wording.

    Args:
        name: the argument's name, as the caller wrote it.
        tensor: the argument.
        shape: expected sizes; None or a name such as "T" matches any size.
        dtype: the dtype, or the accepted ones.
        device: where it must live; None accepts any device.
        contiguous: whether the elements must be dense in row-major order.
    """
    if not isinstance(tensor, torch.Tensor):
        raise ArgumentError(f"{name}: expected a torch.Tensor, got {type(tensor).__name__}")
    sizes = tensor.shape
    fits = len(sizes) == len(shape)
    if fits:
        for want, size in zip(shape, sizes):  # a plain loop: every argument of every call is here
            if want != size and isinstance(want, int):
                fits = False
    if not fits:
        wanted = "[" + ", ".join("*" if size is None else str(size) for size in shape) + "]"
        raise ArgumentError(f"{name}: expected shape {wanted}, got {list(tensor.shape)}")
    given = tensor.dtype
    if given is not dtype and (isinstance(dtype, torch.dtype) or given not in dtype):
        dtypes = (dtype,) if isinstance(dtype, torch.dtype) else dtype
        wanted = " or ".join(str(d).removeprefix("torch.") for d in dtypes)
        got = str(given).removeprefix("torch.")
        raise ArgumentError(f"{name}: expected dtype {wanted}, got {got}")
    if device is not None and tensor.device != device:
        raise ArgumentError(
            f"{name}: expected device {device}, got {tensor.device}; "
            f"move it with {name}.to({str(device)!r})"
        )
    if contiguous and not tensor.is_contiguous():
        raise ArgumentError(
            f"{name}: expected a contiguous tensor, got strides {list(tensor.stride())} "
            f"for shape {list(tensor.shape)}; pass {name}.contiguous()"
        )
    return tensor


def check_range(name: str, value: object, low: int, high: int) -> int:
    """Return `value` if it is an int in [low, high], else raise ArgumentError."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ArgumentError(f"{name}: expected an int in [{low}, {high}], got {value!r}")
    return value
