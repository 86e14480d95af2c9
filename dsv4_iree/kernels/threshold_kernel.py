# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The top-k kernel for CPUs with AVX-512: a rising threshold, and a buffer of what exceeds it.

A row is read once. What exceeds the threshold is appended to a buffer of a few k entries; when that
is full, the threshold rises to a key that at least k entries of the buffer reach, and the rest is
dropped. A full buffer keeps at most k and a quarter of its other entries, and takes at most 34
sweeps to get there: so any row takes linear time.

Keys are integers: CPUs run with subnormals flushed, which would make equals of unequal floats.
"""

from __future__ import annotations

from string import Template

GROUPS = 64  # workgroups at most; each has a buffer, and takes every 64th row
BLOCK = 64  # entries that are looked at together
BINS = 256  # of a digit of the sort

KERNEL = Template("""\
stream.executable private @$name {
  stream.executable.export public @$name workgroups(%groups: index) -> (index, index, index) {
    %c1 = arith.constant 1 : index
    stream.return %groups, %c1, %c1 : index, index, index
  }
  builtin.module {
    func.func @$name(
        %logits_binding: !stream.binding, %start_binding: !stream.binding,
        %end_binding: !stream.binding, %chosen_binding: !stream.binding,
        %buffer_binding: !stream.binding,
        %rows: index, %row_stride: index, %columns: index, %ids: index,
        %sorted: index, %groups: index) {
      $constants
      %logits = stream.binding.subspan %logits_binding[%c0]
          : !stream.binding -> $logits_type{%rows, %row_stride}
      %start = stream.binding.subspan %start_binding[%c0]
          : !stream.binding -> memref<?xi32>{%rows}
      %end = stream.binding.subspan %end_binding[%c0]
          : !stream.binding -> memref<?xi32>{%rows}
      %chosen = stream.binding.subspan %chosen_binding[%c0]
          : !stream.binding -> memref<?x${k}xi32>{%rows}
      %buffer = stream.binding.subspan %buffer_binding[%c0]
          : !stream.binding -> $buffer_type{%groups}
      %group = stream.dispatch.workgroup.id[0] : index
      scf.for %row = %group to %rows step %groups {
        %start32 = memref.load %start[%row] : memref<?xi32>
        %end32 = memref.load %end[%row] : memref<?xi32>
        %start_any = arith.index_cast %start32 : i32 to index
        %end_any = arith.index_cast %end32 : i32 to index
        %first = arith.maxsi %start_any, %c0 : index
        %last = arith.minsi %end_any, %columns : index
        $gather
        $select
        %is_sorted = arith.cmpi ne, %sorted, %c0 : index
        scf.if %is_sorted {
          $sort
        }
        $write
      }
      return
    }
  }
}""")

CONSTANTS = Template("""\
%c0 = arith.constant 0 : index
%c1 = arith.constant 1 : index
%c2 = arith.constant 2 : index
%c3 = arith.constant 3 : index
%c16 = arith.constant 16 : index
%block_size = arith.constant $block : index
%k = arith.constant $k : index
%capacity = arith.constant $capacity : index
%loose = arith.constant $loose : index
%bins = arith.constant $bins : index
%i0 = arith.constant 0 : i32
%i1 = arith.constant 1 : i32
%minus1 = arith.constant -1 : i32
%none = arith.constant -2147483648 : i32
%inf = arith.constant 0x7F800000 : i32
%minus_inf = arith.constant -0x7F800000 : i32
%high = arith.constant -32768 : i16
%no_bits = arith.constant 0 : i16
%zeros = arith.constant dense<0> : vector<16xi32>
%lowest = arith.constant dense<-2147483648> : vector<16xi32>
%infs = arith.constant dense<0x7F800000> : vector<16xi32>
%lane = vector.step : vector<16xindex>
%lane32 = arith.index_cast %lane : vector<16xindex> to vector<16xi32>""")

# One sweep of the row. %held#0 entries are in the buffer, in the order of their columns. An entry
# that only equals the threshold is not wanted: k that reach it came before.
GATHER = Template("""\
%held:2 = scf.for %at = %first to %last step %block_size
    iter_args(%count = %c0, %least = %minus_inf) -> (index, i32) {
  %threshold = vector.broadcast %least : i32 to vector<16xi32>
  $load
  %any01 = arith.ori %over0, %over1 : vector<16xi1>
  %any23 = arith.ori %over2, %over3 : vector<16xi1>
  %any_lane = arith.ori %any01, %any23 : vector<16xi1>
  %any_bits = vector.bitcast %any_lane : vector<16xi1> to vector<1xi16>
  %any_word = vector.extract %any_bits[0] : i16 from vector<1xi16>
  %any = arith.cmpi ne, %any_word, %no_bits : i16
  %after:2 = scf.if %any -> (index, i32) {
    %full_at = arith.addi %count, %block_size : index
    %full = arith.cmpi ugt, %full_at, %capacity : index
    %room:2 = scf.if %full -> (index, i32) {
      $prune
      scf.yield %kept_count, %kept_least : index, i32
    } else {
      scf.yield %count, %least : index, i32
    }
    %raised = vector.broadcast %room#1 : i32 to vector<16xi32>
    $append
    scf.yield %count4, %room#1 : index, i32
  } else {
    scf.yield %count, %least : index, i32
  }
  scf.yield %after#0, %after#1 : index, i32
}""")

LOAD = Template("""\
%offset$n = arith.constant $offset : index
%at$n = arith.addi %at, %offset$n : index
%left$n = arith.subi %last, %at$n : index
%inside$n = vector.create_mask %left$n : vector<16xi1>
%raw$n = vector.maskedload %logits[%row, %at$n], %inside$n, $passthru
    : $logits_type, vector<16xi1>, vector<16x$bits> into vector<16x$bits>
$widen
// Two's complement of sign and magnitude: both zeros are 0.
%negative$n = arith.cmpi slt, %bits$n, %zeros : vector<16xi32>
%flipped$n = arith.subi %lowest, %bits$n : vector<16xi32>
%key_any$n = arith.select %negative$n, %flipped$n, %bits$n : vector<16xi1>, vector<16xi32>
%key$n = arith.select %inside$n, %key_any$n, %lowest : vector<16xi1>, vector<16xi32>
%over$n = arith.cmpi sgt, %key$n, %threshold : vector<16xi32>""")

WIDEN_BF16 = Template("""\
%wide$n = arith.extui %raw$n : vector<16xi16> to vector<16xi32>
%bits$n = arith.shli %wide$n, %sixteen : vector<16xi32>""")

APPEND = Template("""\
%above$n = arith.cmpi sgt, %key$n, %raised : vector<16xi32>
%number$n = arith.cmpi sle, %key$n, %infs : vector<16xi32>
%take$n = arith.andi %above$n, %number$n : vector<16xi1>
%at32_$n = arith.index_cast %at$n : index to i32
%base$n = vector.broadcast %at32_$n : i32 to vector<16xi32>
%column$n = arith.addi %base$n, %lane32 : vector<16xi32>
vector.compressstore %buffer[%group, %c0, $before], %take$n, %key$n
    : $buffer_type, vector<16xi1>, vector<16xi32>
vector.compressstore %buffer[%group, %c1, $before], %take$n, %column$n
    : $buffer_type, vector<16xi1>, vector<16xi32>
%take_bits$n = vector.bitcast %take$n : vector<16xi1> to vector<1xi16>
%take_word$n = vector.extract %take_bits$n[0] : i16 from vector<1xi16>
%taken$n = math.ctpop %take_word$n : i16
%taken_index$n = arith.index_castui %taken$n : i16 to index
%count$next = arith.addi $before, %taken_index$n : index""")

# From %count > k entries to between k and %$limit, the best ones, still in the order of their
# columns. Bisects keys: at least k reach %lo, fewer than k reach %hi. All in the buffer reach
# %least, and those kept earlier may equal it.
PRUNE = Template("""\
vector.store %lowest, %buffer[%group, %c0, %count] : $buffer_type, vector<16xi32>
%peaks = scf.for %i = %c0 to %count step %c16 iter_args(%peak = %lowest) -> (vector<16xi32>) {
  %keys = vector.load %buffer[%group, %c0, %i] : $buffer_type, vector<16xi32>
  %higher = arith.maxsi %peak, %keys : vector<16xi32>
  scf.yield %higher : vector<16xi32>
}
%top = vector.reduction <maxsi>, %peaks : vector<16xi32> into i32
%hi_first = arith.addi %top, %i1 : i32
%found:4 = scf.while (%lo = %least, %hi = %hi_first, %reach_lo = %count, %reach_hi = %c0)
    : (i32, i32, index, index) -> (i32, i32, index, index) {
  %gap = arith.subi %hi, %lo : i32
  %open = arith.cmpi ugt, %gap, %i1 : i32
  %many = arith.cmpi ugt, %reach_lo, $limit : index
  %go = arith.andi %open, %many : i1
  scf.condition(%go) %lo, %hi, %reach_lo, %reach_hi : i32, i32, index, index
} do {
^bb0(%lo: i32, %hi: i32, %reach_lo: index, %reach_hi: index):
  %gap = arith.subi %hi, %lo : i32
  %half = arith.shrui %gap, %i1 : i32
  %middle = arith.addi %lo, %half : i32
  %middles = vector.broadcast %middle : i32 to vector<16xi32>
  %counts = scf.for %i = %c0 to %count step %c16 iter_args(%sum = %zeros) -> (vector<16xi32>) {
    %keys = vector.load %buffer[%group, %c0, %i] : $buffer_type, vector<16xi32>
    %reaches = arith.cmpi sge, %keys, %middles : vector<16xi32>
    %ones = arith.extui %reaches : vector<16xi1> to vector<16xi32>
    %more = arith.addi %sum, %ones : vector<16xi32>
    scf.yield %more : vector<16xi32>
  }
  %reach32 = vector.reduction <add>, %counts : vector<16xi32> into i32
  %reach = arith.index_cast %reach32 : i32 to index
  %enough = arith.cmpi uge, %reach, %k : index
  %new_lo = arith.select %enough, %middle, %lo : i32
  %new_hi = arith.select %enough, %hi, %middle : i32
  %new_reach_lo = arith.select %enough, %reach, %reach_lo : index
  %new_reach_hi = arith.select %enough, %reach_hi, %reach : index
  scf.yield %new_lo, %new_hi, %new_reach_lo, %new_reach_hi : i32, i32, index, index
}
// Of those equal to %lo the first, where all are too many.
%kept_least = arith.addi %found#0, %i0 : i32
%all_fit = arith.cmpi ule, %found#2, $limit : index
%few = arith.subi %k, %found#3 : index
%equals_first = arith.select %all_fit, %count, %few : index
%kth = vector.broadcast %found#0 : i32 to vector<16xi32>
%kept:2 = scf.for %i = %c0 to %count step %c16
    iter_args(%to = %c0, %equals_left = %equals_first) -> (index, index) {
  %keys = vector.load %buffer[%group, %c0, %i] : $buffer_type, vector<16xi32>
  %whose = vector.load %buffer[%group, %c1, %i] : $buffer_type, vector<16xi32>
  %more = arith.cmpi sgt, %keys, %kth : vector<16xi32>
  %same = arith.cmpi eq, %keys, %kth : vector<16xi32>
  %same_bits = vector.bitcast %same : vector<16xi1> to vector<1xi16>
  %same_word = vector.extract %same_bits[0] : i16 from vector<1xi16>
  %same_count16 = math.ctpop %same_word : i16
  %same_count = arith.index_castui %same_count16 : i16 to index
  %equals_taken = arith.minui %same_count, %equals_left : index
  %excess = arith.subi %same_count, %equals_taken : index
  %fitting = scf.for %e = %c0 to %excess step %c1 iter_args(%word = %same_word) -> (i16) {
    %above_it = math.ctlz %word : i16
    %highest = arith.shrui %high, %above_it : i16
    %less = arith.xori %word, %highest : i16
    scf.yield %less : i16
  }
  %fitting_bits = vector.broadcast %fitting : i16 to vector<1xi16>
  %fits = vector.bitcast %fitting_bits : vector<1xi16> to vector<16xi1>
  %keep = arith.ori %more, %fits : vector<16xi1>
  vector.compressstore %buffer[%group, %c0, %to], %keep, %keys
      : $buffer_type, vector<16xi1>, vector<16xi32>
  vector.compressstore %buffer[%group, %c1, %to], %keep, %whose
      : $buffer_type, vector<16xi1>, vector<16xi32>
  %keep_bits = vector.bitcast %keep : vector<16xi1> to vector<1xi16>
  %keep_word = vector.extract %keep_bits[0] : i16 from vector<1xi16>
  %keep_count16 = math.ctpop %keep_word : i16
  %keep_count = arith.index_castui %keep_count16 : i16 to index
  %new_to = arith.addi %to, %keep_count : index
  %new_left = arith.subi %equals_left, %equals_taken : index
  scf.yield %new_to, %new_left : index, index
}
%kept_count = arith.addi %kept#0, %c0 : index""")

SELECT = Template("""\
%too_many = arith.cmpi ugt, %held#0, %k : index
%n = scf.if %too_many -> (index) {
  %count = arith.addi %held#0, %c0 : index
  %least = arith.addi %held#1, %i0 : i32
  $prune
  scf.yield %kept_count : index
} else {
  scf.yield %held#0 : index
}""")

# Four stable passes over digits of 8 bits, of what falls as the key rises: back and forth between
# parts 0, 1 of the buffer (keys, columns) and 2, 3. Equal keys stay in the order of their columns.
DIGIT = Template("""\
%shift$n = arith.constant $shift : i32
scf.for %bin = %c0 to %bins step %c1 {
  memref.store %i0, %tally[%bin] : memref<${bins}xi32>
}
scf.for %i = %c0 to %n step %c1 {
  %key = memref.load %buffer[%group, $keys, %i] : $buffer_type
  %rank = arith.subi %top_key, %key : i32
  %shifted = arith.shrui %rank, %shift$n : i32
  %digit32 = arith.andi %shifted, %digit_mask : i32
  %digit = arith.index_cast %digit32 : i32 to index
  %old = memref.load %tally[%digit] : memref<${bins}xi32>
  %new = arith.addi %old, %i1 : i32
  memref.store %new, %tally[%digit] : memref<${bins}xi32>
}
%all$n = scf.for %bin = %c0 to %bins step %c1 iter_args(%sum = %i0) -> (i32) {
  %here = memref.load %tally[%bin] : memref<${bins}xi32>
  memref.store %sum, %tally[%bin] : memref<${bins}xi32>
  %next = arith.addi %sum, %here : i32
  scf.yield %next : i32
}
scf.for %i = %c0 to %n step %c1 {
  %key = memref.load %buffer[%group, $keys, %i] : $buffer_type
  %whose = memref.load %buffer[%group, $columns, %i] : $buffer_type
  %rank = arith.subi %top_key, %key : i32
  %shifted = arith.shrui %rank, %shift$n : i32
  %digit32 = arith.andi %shifted, %digit_mask : i32
  %digit = arith.index_cast %digit32 : i32 to index
  %to32 = memref.load %tally[%digit] : memref<${bins}xi32>
  %new = arith.addi %to32, %i1 : i32
  memref.store %new, %tally[%digit] : memref<${bins}xi32>
  %to = arith.index_cast %to32 : i32 to index
  memref.store %key, %buffer[%group, $other_keys, %to] : $buffer_type
  memref.store %whose, %buffer[%group, $other_columns, %to] : $buffer_type
}""")

WRITE = Template("""\
%counts_from_0 = arith.cmpi ne, %ids, %c0 : index
%base = arith.select %counts_from_0, %c0, %first : index
%base32 = arith.index_cast %base : index to i32
scf.for %i = %c0 to %n step %c1 {
  %whose = memref.load %buffer[%group, %c1, %i] : $buffer_type
  %id = arith.subi %whose, %base32 : i32
  memref.store %id, %chosen[%row, %i] : memref<?x${k}xi32>
}
scf.for %i = %n to %k step %c1 {
  memref.store %minus1, %chosen[%row, %i] : memref<?x${k}xi32>
}""")


def _capacity(k: int) -> int:
    """Entries a buffer holds; to prune it to k + a quarter of the rest frees most of it."""
    return 4 * k + 1024


def buffer_size(k: int) -> int:
    return _capacity(k) + 16  # a sweep ends in a whole vector


def executable(name: str, k: int, *, bf16: bool) -> str:
    capacity, size = _capacity(k), buffer_size(k)
    bits = "i16" if bf16 else "i32"
    # Both may lie anywhere in the workspace.
    types = {
        "logits_type": f"memref<?x?x{bits}, strided<[?, 1], offset: ?>>",
        "buffer_type": f"memref<?x4x{size}xi32, strided<[{4 * size}, {size}, 1], offset: ?>>",
    }
    loads, appends = [], []
    for n in range(BLOCK // 16):
        widen = (
            WIDEN_BF16.substitute(n=n)
            if bf16
            else f"%bits{n} = arith.addi %raw{n}, %zeros : vector<16xi32>"
        )
        loads.append(
            LOAD.substitute(types, n=n, offset=16 * n, bits=bits, passthru="%unread", widen=widen)
        )
        before = f"%count{n}" if n else "%room#0"
        appends.append(APPEND.substitute(types, n=n, next=n + 1, before=before))
    constants = CONSTANTS.substitute(
        block=BLOCK, k=k, capacity=capacity, loose=k + (capacity - k) // 4, bins=BINS
    )
    constants += f"""
%unread = arith.constant dense<0> : vector<16x{bits}>
%sixteen = arith.constant dense<16> : vector<16xi32>
%top_key = arith.constant 0x7FFFFFFF : i32
%digit_mask = arith.constant {BINS - 1} : i32
%tally = memref.alloca() : memref<{BINS}xi32>"""
    parts = (("%c0", "%c1"), ("%c2", "%c3"))
    digits = [
        DIGIT.substitute(
            types, n=n, shift=8 * n, bins=BINS,
            keys=parts[n % 2][0], columns=parts[n % 2][1],
            other_keys=parts[1 - n % 2][0], other_columns=parts[1 - n % 2][1],
        )
        for n in range(4)
    ]  # fmt: skip
    return KERNEL.substitute(
        types,
        name=name,
        k=k,
        bits=bits,
        constants=constants,
        gather=GATHER.substitute(
            load="\n".join(loads),
            append="\n".join(appends),
            prune=PRUNE.substitute(types, limit="%loose"),
        ),
        select=SELECT.substitute(prune=PRUNE.substitute(types, limit="%k")),
        sort="\n".join(digits),
        write=WRITE.substitute(types, k=k),
    )
