# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loading artifacts and calling them on torch tensors without a copy.

One IREE device per torch device, one timeline per device: each call waits for the one before it and
signals the next point, so calls run in order and need no other synchronisation among themselves.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import iree.runtime as rt
import torch
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined]

from dsv4_iree import emulator, manifest
from dsv4_iree.errors import ArgumentError, ArtifactError
from dsv4_iree.manifest import Artifact

SIZE_SUFFIX = "_transients_size"  # IREE's name for the function that sizes the workspace
FIXED_SIZE = "iree.abi.transients.size.constant"  # its answer, where no argument matters
EMULATED = ("gfx942", "gfx950")  # hip:0 and hip:1 of the emulator
ALIGNMENT = 64  # bytes; compiled code uses aligned vector loads
INLINE_WORK = {"vnni": 2048, "rows": 2048}
"""Per form of the kernels: work, as calls count it, that one CPU thread has done before others have
woken up."""
log = logging.getLogger("dsv4_iree")
log.addHandler(logging.NullHandler())


def artifact_folders() -> tuple[Path, ...]:
    """Where artifacts are looked for: $DSV4_IREE_ARTIFACTS, else the user's cache directory."""
    if chosen := os.environ.get("DSV4_IREE_ARTIFACTS"):
        return tuple(Path(folder) for folder in chosen.split(os.pathsep))
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return (Path(cache) / "dsv4_iree" / "artifacts",)


class Device:
    """An IREE device and the torch device whose memory it works on.

    Args:
        uri: of the IREE device, such as "local-task" or "cuda://0".
        torch_device: where the tensors of a call must live.
        targets: artifact targets it can run, best first.
        inline: a device for the same memory that runs a call on the thread that makes it.
        emulated: whether it is the emulator, whose device memory is host memory.
    """

    def __init__(
        self,
        uri: str,
        torch_device: torch.device,
        targets: tuple[str, ...],
        *,
        inline: Device | None = None,
        emulated: bool = False,
    ) -> None:
        self.uri, self.torch_device, self.targets = uri, torch_device, targets
        self.inline, self.emulated = inline, emulated
        self.lock = threading.Lock()
        self.hal = rt.get_device(uri)
        self.hal_module = rt.create_hal_module(_instance(), self.hal)
        self.timeline, self.now = self.hal.create_semaphore(0), 0

    def view(self, name: str, tensor: torch.Tensor) -> rt.HalBufferView:
        """The tensor's own memory as an IREE buffer view."""
        if tensor.data_ptr() % ALIGNMENT:
            raise ArgumentError(
                f"{name}: expected data aligned to {ALIGNMENT} bytes, got an address "
                f"{tensor.data_ptr() % ALIGNMENT} bytes past that; pass {name}.clone()"
            )
        return self.hal.from_dlpack_capsule(to_dlpack(tensor))

    def access(self, tensors: Iterable[torch.Tensor]) -> AbstractContextManager[None]:
        """While it lasts, kernels may touch the tensors."""
        return _emulator_access(tensors) if self.emulated else _NOTHING_TO_DO

    def synchronize(self) -> None:
        """Wait until every call on this device has ended."""
        self.timeline.wait(self.now)


_NOTHING_TO_DO = nullcontext()


@contextmanager
def _emulator_access(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """The emulator checks every address against the memory that is registered."""
    spans = {t.data_ptr(): t.numel() * t.element_size() for t in tensors}
    for pointer, size in spans.items():
        emulator.register(pointer, size)
    try:
        yield
    finally:
        for pointer in spans:
            emulator.unregister(pointer)


def torch_device(name: str) -> torch.device:
    """The torch device called `name`: "cpu", "cuda[:i]" or "hip[:i]".

    With the emulator enabled hip:0 (gfx942) and hip:1 (gfx950) are emulated, on CPU tensors.

    Raises:
        ArgumentError: an unknown name, or a GPU that torch does not see.
    """
    kind, _, index = name.partition(":")
    if name == "cpu":
        return torch.device("cpu")
    if kind not in ("cuda", "hip") or not (index or "0").isdigit():
        raise ArgumentError(f"device: expected cpu, cuda[:i] or hip[:i], got {name!r}")
    ordinal = int(index or 0)
    if kind == "hip" and emulator.is_enabled():
        if ordinal >= len(EMULATED):
            raise ArgumentError(
                f"device: expected hip:0 (gfx942) or hip:1 (gfx950) of the emulator, got {name!r}"
            )
        return torch.device("cpu")
    if not torch.cuda.is_available() or ordinal >= torch.cuda.device_count():
        raise ArgumentError(f"device: {name} asked for, but torch sees no such GPU")
    if (torch.version.hip is not None) != (kind == "hip"):
        other = "hip" if kind == "cuda" else "cuda"
        raise ArgumentError(f"device: {name} asked for, but this torch is built for {other}")
    return torch.device("cuda", ordinal)


def open_device(name: str) -> Device:
    """The IREE device for `torch_device(name)`, one for all who ask."""
    device = torch_device(name)  # refuses an index that is no number
    kind, _, index = name.partition(":")
    return _open(kind, int(index or 0), device)


@cache
def _open(kind: str, ordinal: int, device: torch.device) -> Device:
    if kind == "cpu":
        targets: tuple[str, ...] = ("cpu", "cpu-generic")
        return Device("local-task", device, targets, inline=Device("local-sync", device, targets))
    if kind == "hip" and device.type == "cpu":
        return Device(f"hip://{ordinal}", device, (EMULATED[ordinal],), emulated=True)
    properties = torch.cuda.get_device_properties(device)
    if kind == "hip":
        targets = (properties.gcnArchName.split(":")[0],)
    else:
        targets = cuda_targets(properties.major * 10 + properties.minor)
    return Device(f"{kind}://{ordinal}", device, targets)


def cuda_targets(capability: int) -> tuple[str, ...]:
    """What runs there, best first; sm_90a code runs on Hopper alone."""
    hopper = ("cuda-sm90",) if capability == 90 else ()
    return (*hopper, *(("cuda-sm89", "cuda") if capability >= 89 else ("cuda",)))


@dataclass(frozen=True)
class Function:
    """One exported function of a loaded artifact, ready to be called.

    Args:
        device, context: where it runs.
        run, size: the function, and the one that sizes its workspace.
        fixed_size: bytes of workspace, where no argument matters.
        inline: the same function on the device's inline device.
        inline_work: of a call, up to which `inline` is faster; 0: never.
    """

    device: Device
    context: rt.VmContext
    run: rt.VmFunction
    size: rt.VmFunction
    fixed_size: int | None
    inline: Function | None = None
    inline_work: int = 0

    def workspace_bytes(self, args: Arguments) -> int:
        """Scratch bytes a call with these arguments needs."""
        if self.fixed_size is not None:
            return self.fixed_size
        result = rt.VmVariantList(1)
        self.context.invoke(self.size, args.variants(self.device, None, 0), result)
        return int(result.get_variant(0))

    def __call__(
        self, args: Arguments, workspace: torch.Tensor, *, wait: bool, inline: bool = False
    ) -> None:
        """Run on `args`, at least `workspace_bytes(args)` of scratch given.

        Args:
            wait: return when the results are there.
            inline: on this thread, after everything that was queued before.
        """
        device = self.device
        if inline and self.inline:
            with device.lock:
                device.synchronize()
                self.inline(args, workspace, wait=True)
            return
        if device.torch_device.type == "cuda":  # the inputs may still be in the making there
            torch.cuda.current_stream(device.torch_device).synchronize()
        with device.lock, device.access((*args.tensors, workspace)):
            variants = args.variants(device, workspace, device.now)
            self.context.invoke(self.run, variants, rt.VmVariantList(1))
            device.now += 1
            if wait or device.emulated:
                device.timeline.wait(device.now)


@dataclass(frozen=True)
class Arguments:
    """Tensors in the order of the entry point, inputs then outputs, and its scalars."""

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]
    scalars: tuple[int, ...] = ()

    def variants(
        self, device: Device, workspace: torch.Tensor | None, now: int
    ) -> rt.VmVariantList:
        variants = rt.VmVariantList(len(self.tensors) + len(self.scalars) + 3)
        for name, tensor in zip(self.names, self.tensors):
            variants.push_ref(device.view(name, tensor))
        for scalar in self.scalars:
            variants.push_int(scalar)
        scratch = self.tensors[0] if workspace is None else workspace
        variants.push_ref(device.view("workspace", scratch).get_buffer())
        variants.push_ref(rt.HalFence.create_at(device.timeline, now))
        variants.push_ref(rt.HalFence.create_at(device.timeline, now + 1))
        return variants


class Module:
    """A verified and loaded artifact: its target, and its exported functions by name."""

    def __init__(self, path: Path, device: Device) -> None:
        began = time.perf_counter()
        artifact, code = manifest.verified_bytes(path)
        module = parse_module(artifact, code)
        check_module(artifact, module)
        self.target = artifact.target
        self.functions = _functions(artifact, module, device)
        took = (time.perf_counter() - began) * 1e3
        log.debug("loaded %s for %s in %.1f ms", artifact.file, artifact.target, took)


def _functions(artifact: Artifact, module: rt.VmModule, device: Device) -> dict[str, Function]:
    """The artifact's exported functions on a device."""
    try:
        context = rt.VmContext(_instance(), [device.hal_module, module])
    except Exception as error:
        raise ArtifactError(
            f"{artifact.file}: made for {artifact.target}, which {device.uri} does not run "
            f"({str(error).splitlines()[0]})"
        ) from None
    work = INLINE_WORK.get(artifact.form, 0) if device.inline else 0
    inline = _functions(artifact, module, device.inline) if device.inline and work else {}
    found: dict[str, Function] = {}
    for name in artifact.functions:
        run = module.lookup_function(name)
        size = module.lookup_function(f"{name}{SIZE_SUFFIX}")
        fixed = run.reflection.get(FIXED_SIZE)
        fixed_size = None if fixed is None else int(fixed)
        # IREE 3.13 does not let local-sync use a torch tensor as workspace.
        most = work if fixed_size == 0 else 0
        found[name] = Function(device, context, run, size, fixed_size, inline.get(name), most)
    return found


@cache
def _instance() -> rt.VmInstance:
    return rt.VmInstance()


def parse_module(artifact: Artifact, code: bytes) -> rt.VmModule:
    """The IREE module in `code`; no device is needed and nothing of it runs yet."""
    try:
        return rt.VmModule.copy_buffer(_instance(), code)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ArtifactError(f"{artifact.file}: not an IREE module ({reason})") from None


def signatures(module: rt.VmModule) -> dict[str, str]:
    """Declaration of each entry point, as IREE recorded it."""
    return {
        name: module.lookup_function(name).reflection.get("iree.abi.declaration", "")
        for name in module.function_names
        if f"{name}{SIZE_SUFFIX}" in module.function_names
    }


def check_module(artifact: Artifact, module: rt.VmModule) -> None:
    """Raise ArtifactError unless the module says of itself what its manifest says."""
    inside = signatures(module)
    for name, declaration in artifact.functions.items():
        if inside.get(name) != declaration:
            raise ArtifactError(
                f"{artifact.file}: expected the function {declaration}, "
                f"got {inside.get(name, 'none of that name')}; rebuild the artifact"
            )
        facts = module.lookup_function(name).reflection
        wanted = reflection(artifact.op, artifact.target, artifact.abi, artifact.spec)
        for key, value in wanted.items():
            if facts.get(key) != value:
                raise ArtifactError(
                    f"{artifact.file}: the manifest says {key} = {value}, "
                    f"the module {facts.get(key)}; rebuild the artifact"
                )


def device_for(target: str) -> str | None:
    """Name of a device of this machine that runs artifacts for `target`, if there is one."""
    for name in ("cpu", "cuda", "hip:0", "hip:1"):
        try:
            device = open_device(name)
        except ArgumentError:
            continue
        if target in device.targets:
            return name
    return None


def reflection(op: str, target: str, abi: int, spec: dict[str, int | str | bool]) -> dict[str, str]:
    """The facts that an artifact carries inside itself (`iree.reflection`)."""
    numbers = ",".join(f"{name}={value}" for name, value in spec.items())
    return {"dsv4.op": op, "dsv4.target": target, "dsv4.abi": str(abi), "dsv4.spec": numbers}
