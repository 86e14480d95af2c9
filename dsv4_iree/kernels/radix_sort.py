# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A sort of the buffer by one workgroup, largest first, which takes as long for any entries."""

from __future__ import annotations

from dsv4_iree.kernels.radix_steps import shared_entries

# A bitonic sort of the next power of two, with entries that are below all others.
SORT = """\
%order_last = arith.subi %order_count, %c1 : index
%order_last32 = arith.index_cast %order_last : index to i32
%order_zeros = math.ctlz %order_last32 : i32
%order_width32 = arith.subi %c32_i32, %order_zeros : i32
%order_width = arith.index_cast %order_width32 : i32 to index
%sorted_count = arith.shli %c1, %order_width : index
%pairs = arith.shrui %sorted_count, %c1 : index
%past_last = arith.addi %order_count, %thread : index
scf.for %slot = %past_last to %sorted_count step %threads {{
  memref.store %no_entry, %buffer[%slot] : {buffer}
}}
gpu.barrier
scf.while (%sorted_run = %c2) : (index) -> (index) {{
  %has_run = arith.cmpi ule, %sorted_run, %sorted_count : index
  scf.condition(%has_run) %sorted_run : index
}} do {{
^bb0(%sorted_run: index):
  %half = arith.shrui %sorted_run, %c1 : index
  scf.while (%apart = %half) : (index) -> (index) {{
    %has_step = arith.cmpi ne, %apart, %c0 : index
    scf.condition(%has_step) %apart : index
  }} do {{
  ^bb0(%apart: index):
    %apart_mask = arith.subi %apart, %c1 : index
    scf.for %pair = %thread to %pairs step %threads {{
      %in_half = arith.andi %pair, %apart_mask : index
      %twice = arith.muli %pair, %c2 : index
      %one_at = arith.subi %twice, %in_half : index
      %other_at = arith.addi %one_at, %apart : index
      %one = memref.load %buffer[%one_at] : {buffer}
      %other = memref.load %buffer[%other_at] : {buffer}
      %run_bit = arith.andi %one_at, %sorted_run : index
      %falls = arith.cmpi eq, %run_bit, %c0 : index
      %is_larger = arith.cmpi ugt, %one, %other : i64
      %stays = arith.cmpi eq, %is_larger, %falls : i1
      %first_of_pair = arith.select %stays, %one, %other : i64
      %second_of_pair = arith.select %stays, %other, %one : i64
      memref.store %first_of_pair, %buffer[%one_at] : {buffer}
      memref.store %second_of_pair, %buffer[%other_at] : {buffer}
    }}
    gpu.barrier
    %next_apart = arith.shrui %apart, %c1 : index
    scf.yield %next_apart : index
  }}
  %next_run = arith.muli %sorted_run, %c2 : index
  scf.yield %next_run : index
}}"""


def sort(room: int) -> str:
    """The first %order_count (index) entries of %buffer in order; there are two at least.

    The buffer holds `room` of them.
    """
    return SORT.format(buffer=shared_entries(room))
