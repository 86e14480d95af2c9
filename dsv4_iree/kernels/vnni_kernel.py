# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The AVX512-VNNI logits kernel as a `stream.executable`: what one workgroup does.

A workgroup takes a run of keys and a few query rows. It decodes its rows once, then walks its keys
in blocks of 64, and decodes a block again only where the next row belongs to another request.
Scores stay in registers until they are logits. The stages: `vnni_queries` and `vnni_keys` decode,
`vnni_pages` finds the keys, `vnni_scores` multiplies; `vnni_words` tells the arithmetic of it all.
"""

from __future__ import annotations

from string import Template

from dsv4_iree.kernels import vnni_keys as keys
from dsv4_iree.kernels import vnni_pages as pages
from dsv4_iree.kernels import vnni_queries as queries
from dsv4_iree.kernels.dispatch import RESULT, SIZES
from dsv4_iree.kernels.entry import Arg
from dsv4_iree.kernels.vnni_scores import scores
from dsv4_iree.kernels.vnni_words import CONSTANTS, F32, I32, MASK, fill
from dsv4_iree.spec import IndexerSpec

STACK_HEADS = 128  # decoded query heads that fit on a workgroup's stack beside the keys

EXECUTABLE = Template("""\
stream.executable private @$name {
  stream.executable.export public @$name workgroups(
      %rows: index, %columns: index, %per_run: index) -> (index, index, index) {
    %c1 = arith.constant 1 : index
    %per_group = arith.constant $together : index
    %across = arith.ceildivui %columns, %per_run : index
    %down = arith.ceildivui %rows, %per_group : index
    stream.return %across, %down, %c1 : index, index, index
  }
  builtin.module {
    func.func @$name($parameters) {
      $body
      return
    }
  }
}""")

BODY = Template("""\
$constants
%per_group = arith.constant $together : index
%all_heads = arith.constant $heads : index
$bindings
$query_room
$key_room
%q_poison = memref.alloca() : $row_f32
%first_column = memref.alloca() : $row_i32
%end_column = memref.alloca() : $row_i32
%request = memref.alloca() : $row_i32
%across = stream.dispatch.workgroup.id[0] : index
%down = stream.dispatch.workgroup.id[1] : index
%first_row = arith.muli %down, %per_group : index
%rows_left = arith.subi %rows, %first_row : index
%group_rows = arith.minui %per_group, %rows_left : index
%run = arith.muli %across, %per_run : index
%run_end_any = arith.addi %run, %per_run : index
%run_end = arith.minui %run_end_any, %columns : index
// Decode the rows. Lanes that no row's window covers do not take part in choosing a form.
%seen:4 = scf.for %r = %c0 to %group_rows step %c1
    iter_args(%from = %run_end, %to = %run, %rows_narrow = %true, %rows_ordinary = %true)
    -> (index, index, i1, i1) {
  %row = arith.addi %first_row, %r : index
  %start32 = memref.load %start[%row] : memref<?xi32>
  %end32 = memref.load %end[%row] : memref<?xi32>
  %start_any = arith.index_cast %start32 : i32 to index
  %end_any = arith.index_cast %end32 : i32 to index
  %start_column = arith.maxsi %start_any, %c0 : index
  %window = arith.subi %end_any, %start_column : index
  %end_positive = arith.maxsi %end_any, %c0 : index
  %columns_end = arith.minsi %end_positive, %columns : index
  %window_start = arith.index_cast %start_column : index to i32
  %window_end = arith.index_cast %columns_end : index to i32
  memref.store %window_start, %first_column[%r] : $row_i32
  memref.store %window_end, %end_column[%r] : $row_i32
  %long = arith.cmpi sgt, %window, %skip : index
  %begins = arith.cmpi slt, %start_column, %run_end : index
  %reaches = arith.cmpi sgt, %columns_end, %run : index
  $find_request
  %meets = arith.andi %begins, %reaches : i1
  %sees = arith.andi %meets, %exists : i1
  %wanted = arith.andi %sees, %long : i1
  %who = arith.select %wanted, %asks, %none : index
  %who32 = arith.index_cast %who : index to i32
  memref.store %who32, %request[%r] : $row_i32
  %decoded:4 = scf.if %wanted -> (index, index, i1, i1) {
    %flags:3 = scf.for %h = %c0 to %all_heads step %c1
        iter_args(%narrow_before = %rows_narrow, %ordinary_before = %rows_ordinary,
                  %nan_before = %false)
        -> (i1, i1, i1) {
      %q_bytes = vector.load %q_values[%row, %h, %c0] : $q_values, vector<64xi8>
      %q_scale = vector.load %q_scales[%row, %h, %c0] : $q_scales, vector<4xi8>
      %weight = memref.load %weights[%row, %h] : $weights
      $decode_head
      %narrow_now = arith.andi %narrow_before, %q_narrow : i1
      %ordinary_now = arith.andi %ordinary_before, %q_ordinary : i1
      %nan_now = arith.ori %nan_before, %q_nan : i1
      scf.yield %narrow_now, %ordinary_now, %nan_now : i1, i1, i1
    }
    %poison = arith.select %flags#2, %nan, %f0 : f32
    memref.store %poison, %q_poison[%r] : $row_f32
    %from_now = arith.minui %from, %start_column : index
    %to_now = arith.maxui %to, %columns_end : index
    scf.yield %from_now, %to_now, %flags#0, %flags#1 : index, index, i1, i1
  } else {
    scf.yield %from, %to, %rows_narrow, %rows_ordinary : index, index, i1, i1
  }
  scf.yield %decoded#0, %decoded#1, %decoded#2, %decoded#3 : index, index, i1, i1
}
%last_key = arith.subi %run_end, %c1 : index
%from32 = arith.index_cast %seen#0 : index to i32
%to32 = arith.index_cast %seen#1 : index to i32
%from_lanes = vector.broadcast %from32 : i32 to $i32
%to_lanes = vector.broadcast %to32 : i32 to $i32
%columns32 = arith.index_cast %columns : index to i32
%column_lanes = vector.broadcast %columns32 : i32 to $i32
%clean_flag = arith.cmpi ne, %clean, %c0 : index
%clean_lanes = vector.broadcast %clean_flag : i1 to vector<16xi1>
scf.for %block = %run to %run_end step %c64 {
  %block_end = arith.addi %block, %c64 : index
  %last:2 = scf.for %r = %c0 to %group_rows step %c1
      iter_args(%held = %none, %held_form = %i0) -> (index, i32) {
    %row = arith.addi %first_row, %r : index
    %start32 = memref.load %first_column[%r] : $row_i32
    %end32 = memref.load %end_column[%r] : $row_i32
    %who32 = memref.load %request[%r] : $row_i32
    %start_column = arith.index_cast %start32 : i32 to index
    %columns_end = arith.index_cast %end32 : i32 to index
    %who = arith.index_cast %who32 : i32 to index
    %asked = arith.cmpi sge, %who, %c0 : index
    %begins = arith.cmpi slt, %start_column, %block_end : index
    %reaches = arith.cmpi sgt, %columns_end, %block : index
    %meets = arith.andi %begins, %reaches : i1
    %wanted = arith.andi %meets, %asked : i1
    %out:6 = scf.if %wanted -> (index, i32, $four) {
      %same = arith.cmpi eq, %who, %held : index
      %form = scf.if %same -> (i32) {
        scf.yield %held_form : i32
      } else {
        $decode_keys
        scf.yield %new_form : i32
      }
      $scores
      scf.yield %who, %form, %scores#0, %scores#1, %scores#2, %scores#3 : index, i32, $four
    } else {
      scf.yield %held, %held_form, %minus_inf, %minus_inf, %minus_inf, %minus_inf
          : index, i32, $four
    }
    %start_lanes = vector.broadcast %start32 : i32 to $i32
    %end_lanes = vector.broadcast %end32 : i32 to $i32
    $stores
    scf.yield %out#0, %out#1 : index, i32
  }
}""")


def executable(
    name: str, spec: IndexerSpec, operands: tuple[Arg, ...], numbers: tuple[str, ...]
) -> str:
    """`stream.executable @<name>` that writes logits [rows, columns].

    Args:
        operands: tensors of the dispatch; with `logits` among them, columns outside the windows
            can keep what is there. The result is the binding after the last of them.
        numbers: index arguments after the bindings: rows, columns, per_run, clean, skip (windows of
            at most so many entries are not scored) and what the operands' sizes need.
    """
    names = [arg.name for arg in operands]
    source = pages.pages(spec) if "block_table" in names else pages.rows()
    heads = spec.num_heads
    together = max(1, STACK_HEADS // heads)
    types = queries.types(together, heads)
    bindings = [_binding(arg, types) for arg in operands]
    bindings.append(
        "%result = stream.binding.subspan %result_binding[%c0]"
        f" : !stream.binding -> {RESULT}{{%rows, %columns}}"
    )
    parameters = [f"%{name}_binding: !stream.binding" for name in [*names, "result"]]
    parameters += [f"%{number}: index" for number in numbers]
    body = fill(
        BODY,
        **types,
        constants=CONSTANTS,
        bindings="\n".join(bindings),
        query_room=queries.room(together, heads),
        key_room=keys.room(),
        decode_head=queries.decode_head(together, heads),
        decode_keys=keys.decode_block(source),
        scores=scores(types, heads, together, source),
        stores=_stores(keep="logits" in names),
        find_request=source.find_request,
        together=str(together),
        heads=str(heads),
        row_f32=f"memref<{together}xf32>",
        row_i32=f"memref<{together}xi32>",
        i32=I32,
        mask=MASK,
        four=", ".join([F32] * 4),
    )
    parts = {"parameters": ", ".join(parameters), "body": body}
    return fill(EXECUTABLE, name=name, together=str(together), **parts)


def _binding(arg: Arg, types: dict[str, str]) -> str:
    """%<name>, the operand's memory; its type goes into `types`."""
    rows = {"k_values": 64, "k_scales": 4}
    if arg.name in rows:  # read in runs of bytes that cross rows
        types[arg.name] = "memref<?xi8>"
        lines = [
            f"%{arg.name}_row = arith.constant {rows[arg.name]} : index",
            f"%{arg.name}_size = arith.muli %columns, %{arg.name}_row : index",
        ]
        sizes = f"%{arg.name}_size"
    else:
        types[arg.name] = "memref" + str(arg).removeprefix("tensor")
        lines = []
        sizes = ", ".join(f"%{SIZES.get(s, s)}" for s in arg.shape if isinstance(s, str))
    lines.append(
        f"%{arg.name} = stream.binding.subspan %{arg.name}_binding[%c0]"
        f" : !stream.binding -> {types[arg.name]}{{{sizes}}}"
    )
    return "\n".join(lines)


OUTPUT = "memref<?x?xf32>"


def _stores(*, keep: bool) -> str:
    """Write %out#2..%out#5; outside the window -inf, or what was there (`keep`, not %clean)."""
    lines = []
    for n, at in enumerate(("%c0", "%c16", "%c32", "%c48")):
        lines.append(f"""\
%column{n} = arith.addi %block, {at} : index
%column32_{n} = arith.index_cast %column{n} : index to i32
%column_splat{n} = vector.broadcast %column32_{n} : i32 to {I32}
%column_lanes{n} = arith.addi %column_splat{n}, %lane : {I32}
%in_output{n} = arith.cmpi ult, %column_lanes{n}, %column_lanes : {I32}
%from_start{n} = arith.cmpi uge, %column_lanes{n}, %start_lanes : {I32}
%before_end{n} = arith.cmpi ult, %column_lanes{n}, %end_lanes : {I32}
%inside{n} = arith.andi %from_start{n}, %before_end{n} : {MASK}
%tile{n} = arith.constant {n} : index
%found32_{n} = memref.load %key_found[%tile{n}] : {keys.KEY_FOUND}
%found{n} = arith.cmpi ne, %found32_{n}, %i0 : i32
%found_lanes{n} = vector.broadcast %found{n} : i1 to {MASK}
%visible{n} = arith.andi %inside{n}, %found_lanes{n} : {MASK}
%logit{n} = arith.select %visible{n}, %out#{n + 2}, %minus_inf : {MASK}, {F32}""")
        new = f"%logit{n}"
        if keep:
            new = f"%old_or_new{n}"
            lines.append(f"""\
%touched{n} = arith.ori %inside{n}, %clean_lanes : {MASK}
%kept_any{n} = arith.cmpi eq, %touched{n}, %no_lanes : {MASK}
%kept{n} = arith.andi %kept_any{n}, %in_output{n} : {MASK}
{new} = vector.maskedload %logits[%row, %column{n}], %kept{n}, %logit{n}
    : {OUTPUT}, {MASK}, {F32} into {F32}""")
        lines.append(
            f"vector.maskedstore %result[%row, %column{n}], %in_output{n}, {new}"
            f" : {RESULT}, {MASK}, {F32}"
        )
    return "\n".join(lines)
