# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A workgroup of the radix top-k, and what its threads do together."""

from __future__ import annotations

from dataclasses import dataclass

SHARED = "#gpu.address_space<workgroup>"


@dataclass(frozen=True)
class Group:
    """How a workgroup is made up.

    Args:
        threads: of it.
        lanes: of a subgroup.
        resident: workgroups whose registers an NVIDIA multiprocessor is to have at once.
        held: logits that a thread has in registers.
    """

    threads: int
    lanes: int
    resident: int
    held: int = 0


def scan_wave(tag: str, value: str, group: Group) -> str:
    """%<tag>upto: sum of the value over the lanes up to and with this one."""
    lines, upto, step = [], value, 1
    while step < group.lanes:
        lines.append(f"""\
%{tag}by{step} = arith.constant {step} : i32
%{tag}lower{step}, %{tag}valid{step} = gpu.shuffle up {upto}, %{tag}by{step}, %lanes_i32 : i32
%{tag}from{step} = arith.constant {step} : index
%{tag}has{step} = arith.cmpi uge, %lane, %{tag}from{step} : index
%{tag}add{step} = arith.select %{tag}has{step}, %{tag}lower{step}, %zero : i32
%{tag}upto{step} = arith.addi {upto}, %{tag}add{step} : i32""")
        upto, step = f"%{tag}upto{step}", 2 * step
    lines.append(f"%{tag}upto = arith.addi {upto}, %zero : i32")
    return "\n".join(lines)


def highest_of_wave(tag: str, value: str, group: Group) -> str:
    """%<tag>upto: the largest of the value over all lanes; %<tag>is_end in one of them."""
    lines, upto, step = [], value, 1
    while step < group.lanes:
        lines.append(f"""\
%{tag}by{step} = arith.constant {step} : i32
%{tag}other{step}, %{tag}valid{step} = gpu.shuffle xor {upto}, %{tag}by{step}, %lanes_i32 : i32
%{tag}upto{step} = arith.maxui {upto}, %{tag}other{step} : i32""")
        upto, step = f"%{tag}upto{step}", 2 * step
    lines.append(f"""\
%{tag}upto = arith.addi {upto}, %zero : i32
%{tag}is_end = arith.cmpi eq, %lane, %lane_last : index""")
    return "\n".join(lines)


def highest_of_group(tag: str, value: str, group: Group) -> str:
    """%<tag>_highest: the largest of the value over all threads. %wave_sums is used."""
    waves = group.threads // group.lanes
    sums = f"memref<{waves}xi32, {SHARED}>"
    return f"""\
{highest_of_wave(f"{tag}_", value, group)}
gpu.barrier
scf.if %{tag}_is_end {{
  memref.store %{tag}_upto, %wave_sums[%wave] : {sums}
}}
gpu.barrier
%{tag}_waves = arith.constant {waves} : index
%{tag}_highest = scf.for %of = %c0 to %{tag}_waves step %c1 iter_args(%most = %zero) -> (i32) {{
  %of_wave = memref.load %wave_sums[%of] : {sums}
  %larger = arith.maxui %most, %of_wave : i32
  scf.yield %larger : i32
}}"""


def atomic_add(result: str, pointer: str, value: str, group: Group) -> str:
    """An addition in shared memory that orders nothing but itself; memref's would fence."""
    return f"""\
%{result} = llvm.atomicrmw add {pointer}, {value} syncscope("{scope(group)}") monotonic
    : !llvm.ptr<3>, i32"""


def scope(group: Group) -> str:
    """What LLVM calls the scope of a workgroup."""
    return "workgroup" if group.lanes == 64 else "block"
