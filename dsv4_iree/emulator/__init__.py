"""A stand-in HIP runtime that interprets gfx942 and gfx950 machine code on the host.

`enable()` compiles it (once) and points IREE's own, unmodified HIP driver at it. Then `hip://0` is
a gfx942 with 64 KiB of LDS and `hip://1` a gfx950 with 160 KiB, and real `.vmfb` artifacts run:

    from dsv4_iree import emulator
    emulator.enable()
    device = iree.runtime.get_device("hip://1")

What runs is checked: every global access against the live allocations, every LDS access against
the workgroup's share, LDS races, unknown opcodes and modifiers, code objects of another target.
A fault fails the HIP call; its message is in IREE's error, in `last_error()` and on stderr.
Registers and LDS start as NaN, and waves take turns in an order that `set_seed` decides.

Results of an emulated run are never results of a GPU. Not modelled, see also NOT_MODELLED:
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsv4_iree.emulator.library import LIBRARY, BuildError, build, library_path

NOT_MODELLED = (
    "time: no clocks, latencies, occupancy, bank conflicts or caches",
    "wait counts: memory is instantaneous, so a missing s_waitcnt does not show",
    "hazards: a missing s_nop does not show",
    "memory order between workgroups: each runs to its end, in an order given by the seed,"
    " and one that waits for another runs into the instruction limit",
    "races in global memory, and bounds of buffers that IREE packs into one allocation",
    "the last bits of exp, log, sin, cos, rcp, rsq and of sums inside a matrix instruction",
    "floating-point exceptions, traps, rounding modes other than to nearest",
    "smfmac, f64, xf32, 4x4 and multi-block matrix instructions, image and tbuffer access",
)
__doc__ = f"{__doc__}{''.join(f'  - {line}{chr(10)}' for line in NOT_MODELLED)}"

__all__ = [
    "DEVICES",
    "NOT_MODELLED",
    "BuildError",
    "Dispatch",
    "EmulatorError",
    "build",
    "check_code_object",
    "clear_error",
    "configure",
    "enable",
    "is_enabled",
    "last_error",
    "library_path",
    "register",
    "reset_stats",
    "set_seed",
    "stats",
    "unregister",
]

DEVICES = {"gfx942": "hip://0", "gfx950": "hip://1"}


class EmulatorError(RuntimeError):
    """The emulator cannot be used, or refused something."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What one kernel launch did. Instructions are per wave: 64 lanes count once."""

    kernel: str
    target: str
    grid: tuple[int, int, int]  # workgroups
    block: tuple[int, int, int]  # threads
    workgroups: int
    waves: int
    barriers: int  # per workgroup, added up
    lds_bytes: int  # of one workgroup
    scratch_bytes: int  # of one lane
    vgprs: int  # allocated, accumulation registers included
    bytes_read: int  # of global memory, as requested by the lanes
    bytes_written: int
    distinct_bytes_read: int  # 0 unless configure(count_distinct=True)
    distinct_bytes_written: int
    wide_f8f6f4: int  # f8f6f4 instructions with an operand of 8-bit elements: half the rate
    clamped_lanes: int  # lanes whose buffer access was out of range, wholly or in part
    classes: dict[str, int]  # mfma, valu, salu, smem, lds, global, scratch, branch, sync
    opcodes: dict[str, int]  # by mnemonic
    seconds: float  # of interpretation; says nothing about a GPU

    @property
    def instructions(self) -> int:
        """All wave-instructions executed."""
        return sum(self.classes.values())

    @property
    def matrix(self) -> dict[str, int]:
        """The matrix instructions among `opcodes`."""
        return {name: n for name, n in self.opcodes.items() if name.startswith("v_mfma")}


@dataclass
class _State:
    library: ctypes.CDLL | None = None
    enabled: Path | None = None  # the library that IREE's driver was pointed at
    seed: int = 0
    threads: int = 2
    instruction_limit: int = 2_000_000_000
    check_races: bool = True
    count_distinct: bool = False


_state = _State()
_lock = threading.Lock()


def enable() -> Path:
    """Make IREE's HIP driver use the emulator; return the library's path.

    Call it before the first HIP device of the process is made. Calling it again does nothing.

    Raises:
        BuildError: there is no C compiler, or it failed.
        EmulatorError: another HIP runtime was chosen or loaded before.
    """
    with _lock:
        if _state.enabled is not None:
            return _state.enabled
        path = library_path()
        chosen = os.environ.get("IREE_HIP_DYLIB_PATH")
        if chosen and chosen not in (str(path), str(path.parent)):
            raise EmulatorError(
                f"IREE_HIP_DYLIB_PATH: expected unset or {path}, got {chosen};"
                " unset it to use the emulator"
            )
        if (other := _loaded_hip(path)) is not None:
            raise EmulatorError(
                f"another HIP runtime is loaded in this process: expected {path}, got {other};"
                " call emulator.enable() before the first HIP device is made"
            )
        _load()
        os.environ["IREE_HIP_DYLIB_PATH"] = str(path.parent)  # for child processes too
        _set_driver_flag(path)
        _state.enabled = path
        return path


def is_enabled() -> bool:
    """Whether `enable` has been called in this process."""
    return _state.enabled is not None


def stats() -> list[Dispatch]:
    """Every kernel launch since the start or the last `reset_stats`, oldest first."""
    library = _load()
    text = library.emulator_stats()
    try:
        records: list[dict[str, Any]] = json.loads(ctypes.string_at(text))
    finally:
        library.emulator_free(text)
    return [_dispatch(record) for record in records]


def reset_stats() -> None:
    """Forget the launches counted so far."""
    _load().emulator_reset_stats()


def last_error() -> str:
    """The message of the last fault or refusal; empty if there was none."""
    out = ctypes.create_string_buffer(4096)
    _load().emulator_last_error(out, len(out))
    return out.value.decode(errors="replace")


def clear_error() -> None:
    """Forget the last error."""
    _load().emulator_clear_error()


def set_seed(seed: int) -> None:
    """Choose the order of waves and workgroups, and what registers and LDS hold at the start."""
    configure(seed=seed)


def configure(
    *,
    seed: int | None = None,
    threads: int | None = None,
    instruction_limit: int | None = None,
    check_races: bool | None = None,
    count_distinct: bool | None = None,
) -> None:
    """Change settings; those left out stay as they are.

    Args:
        seed: see `set_seed`.
        threads: workgroups executed at a time (kernels with global atomics: always one).
        instruction_limit: instructions of one wave after which it is taken for endless.
        check_races: look for LDS races.
        count_distinct: count the distinct bytes of global memory touched; slow.
    """
    library = _load()
    given = {
        "seed": seed,
        "threads": threads,
        "instruction_limit": instruction_limit,
        "check_races": check_races,
        "count_distinct": count_distinct,
    }
    for name, value in given.items():
        if value is not None:
            setattr(_state, name, value)
    _apply(library)


def register(pointer: int, nbytes: int) -> None:
    """Let kernels use host memory, so that it can be imported as a device buffer without a copy."""
    _load().emulator_register(pointer, nbytes)


def unregister(pointer: int) -> None:
    """End what `register` began; the memory may be freed then."""
    if not _load().emulator_unregister(pointer):
        raise EmulatorError(f"pointer: expected one that is registered, got 0x{pointer:x}")


def check_code_object(image: bytes, target: str) -> None:
    """Raise EmulatorError unless `image` is a whole code object for `target`."""
    library = _load()
    if library.emulator_load(image, len(image), list(DEVICES).index(target)):
        raise EmulatorError(last_error())


def _load() -> ctypes.CDLL:
    """The library, loaded once. IREE's driver opens the same file, so it shares the same state."""
    if _state.library is not None:
        return _state.library
    library = ctypes.CDLL(str(build()))
    library.emulator_stats.restype = ctypes.c_void_p
    library.emulator_free.argtypes = [ctypes.c_void_p]
    library.emulator_last_error.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.emulator_register.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.emulator_unregister.argtypes = [ctypes.c_void_p]
    library.emulator_load.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int]
    library.emulator_set.argtypes = [
        ctypes.c_uint64,
        ctypes.c_int,
        ctypes.c_uint64,
        ctypes.c_int,
        ctypes.c_int,
    ]
    _state.threads = min(16, os.cpu_count() or 1)
    _apply(library)
    _state.library = library
    return library


def _apply(library: ctypes.CDLL) -> None:
    library.emulator_set(
        _state.seed & (2**64 - 1),
        _state.threads,
        _state.instruction_limit,
        int(_state.check_races),
        int(_state.count_distinct),
    )


def _dispatch(record: dict[str, Any]) -> Dispatch:
    record["grid"] = tuple(record["grid"])
    record["block"] = tuple(record["block"])
    return Dispatch(**record)


def _loaded_hip(ours: Path) -> str | None:
    """The path of a HIP runtime in this process that is not the emulator."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if LIBRARY in line}
    return next((path for path in sorted(paths) if path != str(ours)), None)


def _set_driver_flag(path: Path) -> None:
    """For a process that imported IREE's runtime before the environment was changed."""
    try:
        import iree.runtime as runtime
    except ImportError:
        return
    runtime.flags.parse_flags(f"--hip_dylib_path={path.parent}")
