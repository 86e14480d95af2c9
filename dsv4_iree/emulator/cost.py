"""Modelled time of each resource of a GPU for what the emulator counted.

For every dispatch: instructions or bytes, divided by what the chip can do at its peak clock. The
largest of these times binds, and is the modelled time: as if the resources overlapped perfectly,
so it is a floor, not a forecast. Nothing here is measured.

Left out: launch, latency and occupancy, caches (memory time counts each distinct byte once), bank
conflicts, dependencies between instructions, clocks below the peak, the last partly filled round
of workgroups.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dsv4_iree.emulator import Dispatch

__all__ = ["CHIPS", "Chip", "Cost", "cost", "format_costs"]

LANES = 64
RESOURCES = ("matrix", "vector", "scalar", "lds", "memory")


@dataclass(frozen=True, slots=True)
class Chip:
    """Peak rates. Per clock and compute unit: one vector and one scalar wave-instruction."""

    name: str
    target: str
    compute_units: int
    clock_hz: float
    memory_bytes_per_s: float
    lds_bytes_per_clock: int  # of one compute unit
    matrix_flops: Mapping[str, float]  # dense, of the whole chip, by element type
    sources: tuple[str, ...]


CHIPS = {
    "gfx942": Chip(
        name="MI300X",
        target="gfx942",
        compute_units=304,
        clock_hz=2.1e9,
        memory_bytes_per_s=5.3e12,
        lds_bytes_per_clock=128,
        matrix_flops={
            "f32": 163.4e12,
            "f16": 1307.4e12,
            "bf16": 1307.4e12,
            "8": 2614.9e12,
        },
        sources=(
            "AMD Instinct MI300X data sheet: units, clock, memory bandwidth, matrix peaks",
            "AMD CDNA 3 architecture white paper: vector issue, LDS bandwidth",
        ),
    ),
    "gfx950": Chip(
        name="MI355X",
        target="gfx950",
        compute_units=256,
        clock_hz=2.4e9,
        memory_bytes_per_s=8.0e12,
        lds_bytes_per_clock=256,
        matrix_flops={
            "f32": 157.3e12,
            "f16": 2516.6e12,
            "bf16": 2516.6e12,
            "8": 5033.2e12,
            "4": 10066.3e12,
        },
        sources=(
            "AMD Instinct MI355X data sheet: units, clock, memory bandwidth, matrix peaks",
            "Chips and Cheese, AMD's CDNA 4 Architecture Announcement: LDS read bandwidth",
        ),
    ),
}

# A quarter of the lanes have the unit for these (CDNA 3 ISA: transcendental instructions).
QUARTER_RATE = re.compile(r"v_(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_(f16|f32|f64)$")


@dataclass(frozen=True, slots=True)
class Cost:
    """Modelled seconds of each resource for one dispatch, or for several added up."""

    kernel: str
    chip: str
    matrix: float
    vector: float
    scalar: float
    lds: float
    memory: float
    is_memory_distinct: bool  # else every request counts as if nothing were cached

    @property
    def binding(self) -> str:
        """The resource that takes longest."""
        return max(RESOURCES, key=lambda resource: float(getattr(self, resource)))

    @property
    def seconds(self) -> float:
        """Modelled time, all resources overlapping."""
        return float(getattr(self, self.binding))


def cost(dispatch: Dispatch, chip: Chip | None = None) -> Cost:
    """Model one dispatch on the chip of its target, or on another one of that target."""
    chip = chip or CHIPS[dispatch.target]
    if chip.target != dispatch.target:
        raise ValueError(f"chip: expected one for {dispatch.target}, got {chip.name}")
    units = min(chip.compute_units, max(dispatch.workgroups, 1))  # a workgroup stays on one unit
    per_s = units * chip.clock_hz
    quarter = sum(n for name, n in dispatch.opcodes.items() if QUARTER_RATE.match(name))
    scalar = sum(dispatch.classes.get(c, 0) for c in ("salu", "smem", "branch"))
    is_distinct = dispatch.distinct_bytes_read + dispatch.distinct_bytes_written > 0
    touched = (
        dispatch.distinct_bytes_read + dispatch.distinct_bytes_written
        if is_distinct
        else dispatch.bytes_read + dispatch.bytes_written
    )
    return Cost(
        kernel=dispatch.kernel,
        chip=chip.name,
        matrix=_matrix(dispatch, chip, units),
        vector=(dispatch.classes.get("valu", 0) + 3 * quarter) / per_s,
        scalar=scalar / per_s,
        lds=sum(n * lds_bytes(name) for name, n in dispatch.opcodes.items())
        / (per_s * chip.lds_bytes_per_clock),
        memory=touched / chip.memory_bytes_per_s,
        is_memory_distinct=is_distinct,
    )


def _matrix(dispatch: Dispatch, chip: Chip, units: int) -> float:
    """f8f6f4 runs at the rate of fp4 unless one of its operands has 8-bit elements."""
    mixed = sum(n for name, n in dispatch.matrix.items() if "f8f6f4" in name)
    slower = 1 + dispatch.wide_f8f6f4 / max(mixed, 1)
    return sum(
        n * matrix_seconds(name, chip, units) * (slower if "f8f6f4" in name else 1)
        for name, n in dispatch.matrix.items()
    )


def matrix_seconds(mnemonic: str, chip: Chip, units: int) -> float:
    """One matrix instruction, when `units` compute units issue them at their peak."""
    shape = re.search(r"_(\d+)x(\d+)x(\d+)_", mnemonic)
    if shape is None:
        raise ValueError(f"mnemonic: expected a matrix instruction, got {mnemonic}")
    m, n, k = map(int, shape.groups())
    rate = chip.matrix_flops[_element(mnemonic)] * units / chip.compute_units
    return 2 * m * n * k / rate


def lds_bytes(mnemonic: str) -> int:
    """Bytes an LDS instruction moves with all lanes active; 0 for any other instruction."""
    if not mnemonic.startswith("ds_"):
        return 0
    found = re.search(r"_[a-z]?(\d+)(_|$)", mnemonic.replace("_d16", ""))
    bits = int(found[1]) if found else 32
    accesses = 2 if re.match(r"ds_(read|write)2", mnemonic) else 1
    return LANES * accesses * max(bits, 32) // 8


def format_costs(costs: Iterable[Cost]) -> str:
    """A table in microseconds, one line a dispatch. It says that it is modelled."""
    lines = [
        "modelled, not measured: microseconds at peak rates, resources overlapping",
        f"{'chip':8}"
        + "".join(f"{r:>10}" for r in RESOURCES)
        + f"{'modelled':>10}  binds    kernel",
    ]
    for c in costs:
        times = "".join(f"{1e6 * getattr(c, r):10.3f}" for r in RESOURCES)
        note = "" if c.is_memory_distinct else "  (memory: every request, nothing cached)"
        lines.append(f"{c.chip:8}{times}{1e6 * c.seconds:10.3f}  {c.binding:8} {c.kernel}{note}")
    return "\n".join(lines)


def _element(mnemonic: str) -> str:
    """The peak that applies; for f8f6f4 that of its narrow formats."""
    if "f8f6f4" in mnemonic:
        return "4"
    last = mnemonic.rsplit("_", 1)[-1]
    return "8" if last in ("i8", "fp8", "bf8") else last
