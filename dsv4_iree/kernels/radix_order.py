# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The places of entries in their order, largest first, by one workgroup.

Entries fall into bins (`radix_bins`). Places of bins are sums of counts; in its bin an entry is as
far back as others of it are larger. That is few steps for each, unless many share a bin (equal
logits, or one that is far above all others): then the buffer is sorted, which takes as long for any
entries.
"""

from __future__ import annotations

from textwrap import indent

from dsv4_iree.kernels import radix_bins
from dsv4_iree.kernels.mma_common import shared
from dsv4_iree.kernels.radix_digits import bins_of_thread, clear, scan
from dsv4_iree.kernels.radix_group import SHARED, Group, atomic_add
from dsv4_iree.kernels.radix_sort import sort
from dsv4_iree.kernels.radix_steps import BINS, GATHERED, shared_entries

CROWD = 64
"""Entries of a bin that are compared each with each; more take longer than the sort of all."""

ORDER = """\
{shift}
%crowd = arith.constant {crowd} : i32
scf.if %is_first_thread {{
  memref.store %zero, %slots[%c1] : memref<2xi32, {shared}>
}}
{clear}
scf.for %slot = %thread to %order_count step %threads {{
{digit}
  %bin = llvm.getelementptr %counts_pointer[%digit] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, i32
{count}
}}
gpu.barrier
{places}
gpu.barrier
%crowds = memref.load %slots[%c1] : memref<2xi32, {shared}>
%is_crowded = arith.cmpi ne, %crowds, %zero : i32
scf.if %is_crowded {{
{sort}
}} else {{
  scf.for %slot = %thread to %order_count step %threads {{
{digit_2}
    %bin = llvm.getelementptr %counts_pointer[%digit] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, i32
{take}
    %place = arith.index_cast %taken : i32 to index
    %slot32 = arith.index_cast %slot : index to i32
    %slot16 = arith.trunci %slot32 : i32 to i16
    memref.store %slot16, %by_bin[%place] : memref<{room}xi16, {shared}>
  }}
  gpu.barrier
}}
// By places in bins, so that what is past the last falls to threads of the same subgroups.
scf.for %in_bins = %thread to %order_count step %threads {{
  %slot16 = memref.load %by_bin[%in_bins] : memref<{room}xi16, {shared}>
  %slot32 = arith.extui %slot16 : i16 to i32
  %slot_in_bin = arith.index_cast %slot32 : i32 to index
  %slot = arith.select %is_crowded, %in_bins, %slot_in_bin : index
{digit}
  %rank32 = scf.if %is_crowded -> (i32) {{
    %in_bins32 = arith.index_cast %in_bins : index to i32
    scf.yield %in_bins32 : i32
  }} else {{
    // Its bin is from the end of the next larger one to its own end.
    %bin_at = arith.index_cast %digit : i64 to index
    %larger_any = arith.addi %bin_at, %c1 : index
    %is_largest = arith.cmpi eq, %larger_any, %bins : index
    %larger = arith.select %is_largest, %bin_at, %larger_any : index
    %larger_end = memref.load %counts[%larger] : memref<{bins}xi32, {shared}>
    %bin_first = arith.select %is_largest, %zero, %larger_end : i32
    %bin_end_any = memref.load %counts[%bin_at] : memref<{bins}xi32, {shared}>
    // What is past the last place need not be in order, nor what is wanted before it is written.
    %has_place = arith.cmpi slt, %bin_first, %k32 : i32
    %is_split = arith.cmpi sgt, %bin_end_any, %k32 : i32
    %matters = arith.ori %is_last_round, %is_split : i1
    %is_compared = arith.andi %has_place, %matters : i1
    %bin_end = arith.select %is_compared, %bin_end_any, %bin_first : i32
    %bin_from = arith.index_cast %bin_first : i32 to index
    %bin_to = arith.index_cast %bin_end : i32 to index
    %before = scf.for %at = %bin_from to %bin_to step %c1
        iter_args(%so_far = %bin_first) -> (i32) {{
      %other_slot16 = memref.load %by_bin[%at] : memref<{room}xi16, {shared}>
      %other_slot32 = arith.extui %other_slot16 : i16 to i32
      %other_slot = arith.index_cast %other_slot32 : i32 to index
      %other = memref.load %buffer[%other_slot] : {buffer}
      %is_before = arith.cmpi ugt, %other, %entry : i64
      %one_before = arith.extui %is_before : i1 to i32
      %sum = arith.addi %so_far, %one_before : i32
      scf.yield %sum : i32
    }}
    scf.yield %before : i32
  }}
  %rank = arith.index_cast %rank32 : i32 to index
  %is_wanted = arith.cmpi ult, %rank, %k : index
{use}
}}"""

# In order of the logits, and then, if that is asked for, of the columns.
ROUNDS = """\
{by_value}
%by_column = arith.cmpi eq, %sorted, %c0 : index
%orders_twice = arith.andi %by_column, %of_row : i1
%last_round = arith.index_castui %orders_twice : i1 to index
scf.while (%round = %c0, %order_floor = %{of}_floor, %order_bits = %{of}_bits)
    : (index, i64, i64) -> (index, i64, i64) {{
  %has_round = arith.cmpi ule, %round, %last_round : index
  scf.condition(%has_round) %round, %order_floor, %order_bits : index, i64, i64
}} do {{
^bb0(%round: index, %order_floor: i64, %order_bits: i64):
  %order_count = arith.addi {count}, %c0 : index
  %is_last_round = arith.cmpi eq, %round, %last_round : index
  %orders_logits = arith.cmpi eq, %round, %c0 : index
  %order_by_value = arith.andi %bins_by_value, %orders_logits : i1
{order}
  // The complement of a column so far past the last that it is in no bin with one that is wanted.
  %far = arith.addi %stop, %length : index
  %far32 = arith.index_cast %far : index to i32
  %low_floor32 = arith.subi %minus_one, %far32 : i32
  %low_floor = arith.extui %low_floor32 : i32 to i64
  %twice_length = arith.addi %length, %length : index
  %length64 = arith.index_cast %twice_length : index to i64
  %length_zeros = math.ctlz %length64 : i64
  %low_bits = arith.subi %c64_i64, %length_zeros : i64
  gpu.barrier
  scf.if %is_last_round {{
  }} else {{
    %low_mask = arith.constant 0xFFFFFFFF : i64
    scf.for %slot = %thread to %order_count step %threads {{
      %entry = memref.load %buffer[%slot] : {buffer}
      %low = arith.andi %entry, %low_mask : i64
      %flag = memref.load %wanted[%slot] : memref<{room}xi8, {shared}>
      %is_wanted = arith.trunci %flag : i8 to i1
      %low_or_floor = arith.select %is_wanted, %low, %low_floor : i64
      memref.store %low_or_floor, %buffer[%slot] : {buffer}
    }}
    gpu.barrier
  }}
  %next_round = arith.addi %round, %c1 : index
  scf.yield %next_round, %low_floor, %low_bits : index, i64, i64
}}
%blank = arith.addi {count}, %thread : index
scf.for %rank = %blank to %k step %threads {{
{no_entry}
}}"""

USE = """\
scf.if %is_last_round {{
  scf.if %is_wanted {{
{entry}
  }}
}} else {{
  %flag = arith.extui %is_wanted : i1 to i8
  memref.store %flag, %wanted[%slot] : memref<{room}xi8, {shared}>
}}"""


def scratch(entries: int, room: int = GATHERED) -> str:
    """%spare for so many entries, and in the same shared memory what `in_order` needs."""
    size = max(8 * entries, 3 * room)
    memory = f"memref<{size}xi8, {SHARED}>"
    lines = [
        shared("%scratch", memory),
        f"%wanted_at = arith.constant {2 * room} : index",
        f"%by_bin = memref.view %scratch[%c0][] : {memory} to memref<{room}xi16, {SHARED}>",
        f"%wanted = memref.view %scratch[%wanted_at][] : {memory} to memref<{room}xi8, {SHARED}>",
    ]
    if entries:
        lines.append(
            f"%spare = memref.view %scratch[%c0][] : {memory} to {shared_entries(entries)}"
        )
    return "\n".join(lines)


def in_order(
    count: str, of: str, entry: str, no_entry: str, group: Group, room: int = GATHERED
) -> str:
    """Write the best k of `count` entries in %buffer, which are overwritten.

    Largest first; in order of their columns, where %sorted is 0 and %of_row says that this is the
    answer for the row.

    Args:
        of: what `span` says of the entries.
        entry: text that writes %entry as number %rank.
        no_entry: text that writes what there is in place of entry number %rank.
        room: entries that the buffer holds.
    """
    buffer = shared_entries(room)
    use = USE.format(entry=_in(_in(entry)), room=room, shared=SHARED)
    return ROUNDS.format(
        by_value=radix_bins.by_value(of),
        of=of,
        count=count,
        order=_in(_order(use, group, room)),
        no_entry=_in(no_entry),
        buffer=buffer,
        room=room,
        shared=SHARED,
    )


def _order(use: str, group: Group, room: int) -> str:
    """Do `use` for %slot, %entry, %rank and %is_wanted of %order_count (index) entries in %buffer.

    Wanted are ranks below %k. Entries are at least %order_floor (i64), and differ from it in the
    lowest %order_bits (i64) alone. Which slot has which entry may have changed before.
    """
    buffer, digit = shared_entries(room), radix_bins.digit(room)
    return ORDER.format(
        shared=SHARED,
        buffer=buffer,
        bins=BINS,
        shift=radix_bins.shift(),
        digit=_in(digit),
        digit_2=_in(_in(digit)),
        crowd=CROWD,
        room=room,
        clear=clear("order", group),
        count=_in(atomic_add("counted", "%bin", "%one32", group)),
        take=_in(_in(atomic_add("taken", "%bin", "%one32", group))),
        places=_places(group),
        sort=_in(sort(room)),
        use=_in(use),
    )


def _places(group: Group) -> str:
    """In place of the count of each bin: of all larger bins. And a mark where one is a crowd."""
    per = BINS // group.threads
    counts = [f"%obin{i}" for i in range(per)]
    lines, total = [bins_of_thread("o", group)], "%zero"
    for i, count in enumerate(counts):
        lines.append(f"%osum{i} = arith.addi {total}, {count} : i32")
        total = f"%osum{i}"
    lines.append(scan("o", total, group))
    crowd = ""
    for i, count in enumerate(counts):
        lines.append(f"""\
%oend{i} = arith.addi %obefore, %osum{i} : i32
%ofirst{i} = arith.subi %oend{i}, {count} : i32
%omany{i} = arith.cmpi sgt, {count}, %crowd : i32
%oplaced{i} = arith.cmpi slt, %ofirst{i}, %k32 : i32
%ocrowd{i} = arith.andi %omany{i}, %oplaced{i} : i1
memref.store %ofirst{i}, %counts[%obin_at{i}] : memref<{BINS}xi32, {SHARED}>""")
        if crowd:
            lines.append(f"%ocrowds{i} = arith.ori {crowd}, %ocrowd{i} : i1")
        crowd = f"%ocrowds{i}" if crowd else "%ocrowd0"
    lines.append(f"""\
scf.if {crowd} {{
{_in(atomic_add("marked", "%slot1_pointer", "%one32", group))}
}}""")
    return "\n".join(lines)


def _in(text: str) -> str:
    return indent(text, "  ")
