# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scores of 64 heads x 32 keys on NVIDIA GPUs since sm_80: FP4 as int8, `mma.sync` m16n8k32.

Doubled e2m1 codes are integers in [-12, 12], and a byte has room for them times 2^s for s up to 3.
A vector's group scales go into its bytes where they lie within a factor of 2^3 of each other, less
the smallest one, which goes into the head's weight or the key's sum: that is the NARROW form, exact
up to the dot and with no scale per score. The EXACT form takes the groups one by one, and every
e8m0 byte, NaN included. Which one is decided by warp-uniform branches, from keys inside the windows
only.

Lane (n, g) of 8 x 4 holds group g of key n in two tiles of 8 keys, and of head n; an MMA step takes
eight codes of each group. It gets heads 2g, 2g+1 of its two keys. The accumulators start at the
bits of 1.5 * 2^23: read as a float, they are that number plus the dot, and need no conversion.
"""

from __future__ import annotations

from dsv4_iree.kernels import mma_int8 as int8
from dsv4_iree.kernels.mma_common import (
    MODERATE,
    ORDINARY,
    TILES,
    either_form,
    extremes,
    narrow_keys,
    none_exceeds,
    shared,
    word,
)
from dsv4_iree.kernels.mma_cuda_exact import exact_sums
from dsv4_iree.kernels.mma_fp8 import packed
from dsv4_iree.kernels.mma_int8 import ROOM, STEPS
from dsv4_iree.spec import IndexerSpec

LANES = 32  # of a wave
WAVES = 1  # of a workgroup
TILE_KEYS = 8  # rows of a matrix operand that a lane loads at a time
RAGGED_ROWS, PAGED_ROWS = 2, 1  # query rows of a workgroup that share their keys
STAGED = False  # lanes load the keys of a block when it is their turn
ATTRIBUTES = ""
HEADS_STEP = 8  # of heads in a tile
LANE = """\
%lane = arith.addi %thread, %c0 : index
%wave_keys = arith.constant 0 : index
%n = arith.divui %lane, %c4 : index
%g = arith.remui %lane, %c4 : index"""
PARTS = (("codes", "vector<16xi8>"), ("scales", "vector<4xi8>"))
"""What a lane loads of a key tile: the codes of group g of key n, and all scales of key n."""

BIAS = 0x4B400000  # 1.5 * 2^23
CONSTANTS = f"""\
%no_codes = arith.constant dense<0> : vector<16xi8>
%no_scales = arith.constant dense<127> : vector<4xi8>
%i0 = arith.constant 0 : i32
%i1 = arith.constant 1 : i32
%i2 = arith.constant 2 : i32
%i3 = arith.constant 3 : i32
%i8 = arith.constant 8 : i32
%i16 = arith.constant 16 : i32
%i23 = arith.constant 23 : i32
%i24 = arith.constant 24 : i32
%i32 = arith.constant 32 : i32
%i255 = arith.constant 255 : i32
%room = arith.constant {ROOM} : i32
%least = arith.constant {ORDINARY[0]} : i32
%most = arith.constant {ORDINARY[1]} : i32
%w_least = arith.constant {MODERATE[0]} : i32
%w_most = arith.constant {MODERATE[1]} : i32
%whole_warp = arith.constant -1 : i32
%magnitudes = arith.constant 0x77777777 : i32
%sign_digits = arith.constant 0x11111111 : i32
%copy_sign = arith.constant {packed(136, 136, 136, 136)} : i32
%no_or_all = arith.constant 0x00008000 : i32
%plain_low = arith.constant {packed(0, 1, 2, 3)} : i32
%plain_high = arith.constant {packed(4, 6, 8, 12)} : i32
%tops = arith.constant {packed(128, 128, 128, 128)} : i32
%bias = arith.constant dense<{BIAS}> : vector<2x2xi32>
%bias_f = arith.constant 12582912.0 : f32
%half = arith.constant 0.5 : f32
%nan = arith.constant 0x7FC00000 : f32
%c2 = arith.constant 2 : index
%group_bytes = arith.muli %g, %c16 : index
%pair_heads = arith.muli %g, %c2 : index
%upper = arith.cmpi uge, %g, %c2 : index
%g_low = arith.remui %g, %c2 : index
%odd = arith.cmpi ne, %g_low, %c0 : index
%g32 = arith.index_cast %g : index to i32
%g_bits = arith.muli %g32, %i8 : i32
"""


def load(t: int, values: str, scales: str, suffix: str) -> str:
    """%codes<t><suffix> and %scales<t><suffix>, from the rows at %value_row<t>, %scale_row<t>.

    Wide loads need aligned addresses here; pages may lie any number of bytes apart.
    """
    address = f"%value_at{t} = arith.addi %value_row{t}, %group_bytes : index"
    codes = load_bytes(f"%codes{t}{suffix}", values, f"%value_at{t}", 16)
    return f"{address}\n{codes}\n{load_bytes(f'%scales{t}{suffix}', scales, f'%scale_row{t}', 4)}"


def load_bytes(result: str, memory: str, at: str, size: int) -> str:
    """Two loads that differ in their alignment alone would become one of the lesser alignment."""
    single = []
    for i in range(size):
        single.append(f"""\
  {result}_at{i} = arith.constant {i} : index
  {result}_byte{i} = arith.addi {at}, {result}_at{i} : index
  {result}_{i} = memref.load {memory}[{result}_byte{i}] : memref<?xi8>
""")
    each = ", ".join(f"{result}_{i}" for i in range(size))
    return f"""\
{result} = scf.if %aligned -> (vector<{size}xi8>) {{
  // The short form of this op has no place for the alignment.
  {result}_wide = "vector.load"({memory}, {at}) <{{alignment = {size} : i64}}>
      : (memref<?xi8>, index) -> vector<{size}xi8>
  scf.yield {result}_wide : vector<{size}xi8>
}} else {{
{"".join(single)}\
  {result}_bytes = vector.from_elements {each} : vector<{size}xi8>
  scf.yield {result}_bytes : vector<{size}xi8>
}}"""


def query(target: str, spec: IndexerSpec, r: int) -> str:
    """%q_shared<r>, and %w<r>_<m>_<j> of every 8 heads, of row r in NARROW form; %narrow_row<r>."""
    heads, excess = spec.num_heads, []
    lines = [shared(f"%q_shared{r}", _query_memory(spec))]
    for m in range(heads // 8):
        n = f"{r}_{m}"
        lines.append(f"""\
%head_base{n} = arith.constant {8 * m} : index
%head{n} = arith.addi %head_base{n}, %n : index
%q_bytes{n} = vector.load %q_values[%row{r}, %head{n}, %group_bytes]
    : memref<?x{heads}x64xi8>, vector<16xi8>
%q_scales{n} = vector.load %q_scales[%row{r}, %head{n}, %c0]
    : memref<?x{heads}x4xi8>, vector<4xi8>
{int8.shift(f"%q{n}", f"%q_scales{n}")}
{int8.words(f"%q_word{n}", f"%q_bytes{n}")}
{int8.table(f"%q{n}", f"%q{n}_shift")}""")
        for s in range(STEPS):
            lines.append(int8.decoded(f"%q{n}_{s}", f"%q_word{n}_{s}", f"%q{n}"))
        for half in range(2):
            lines.append(_store_query(spec, r, m, half))
        lines.append(f"%heads{n} = arith.addi %head_base{n}, %pair_heads : index")
        for j in range(2):
            lines.append(_weight(spec, r, n, j))
            excess.append(f"%w{n}_{j}_excess")
        excess.append(f"%q{n}_excess")
    lines.append(vote(f"%narrow_row{r}", excess))
    return "\n".join(lines) + "\n"


SHARED = "#gpu.address_space<workgroup>"


def _query_memory(spec: IndexerSpec) -> str:
    return f"memref<{spec.num_heads // 8}x2x32x4xi32, {SHARED}>"


def _store_query(spec: IndexerSpec, r: int, m: int, half: int) -> str:
    """Decoded codes go to shared memory: as registers they would leave too few warps."""
    n = f"{r}_{m}"
    words = [f"%q{n}_{s}_{part}" for s in (2 * half, 2 * half + 1) for part in ("low", "high")]
    return f"""\
%qs{n}_{half} = vector.from_elements {", ".join(words)} : vector<4xi32>
%qm{n}_{half} = arith.constant {m} : index
%qh{n}_{half} = arith.constant {half} : index
"vector.store"(%qs{n}_{half}, %q_shared{r}, %qm{n}_{half}, %qh{n}_{half}, %lane, %c0)
    <{{alignment = 16 : i64}}>
    : (vector<4xi32>, {_query_memory(spec)}, index, index, index, index) -> ()"""


def _load_query(spec: IndexerSpec, r: int, m: int, tag: str) -> str:
    """%qb<tag>_<s>: the operands of 8 heads."""
    lines = []
    for half in range(2):
        lines.append(f"""\
%lm{tag}_{half} = arith.constant {m} : index
%lh{tag}_{half} = arith.constant {half} : index
%ls{tag}_{half} = "vector.load"(%q_shared{r}, %lm{tag}_{half}, %lh{tag}_{half}, %lane, %c0)
    <{{alignment = 16 : i64}}>
    : ({_query_memory(spec)}, index, index, index, index) -> vector<4xi32>""")
        for i in range(4):
            word = f"%lw{tag}_{half}_{i}"
            lines.append(f"{word} = vector.extract %ls{tag}_{half}[{i}] : i32 from vector<4xi32>")
        for i in range(2):
            words = [f"%lw{tag}_{half}_{2 * i}", f"%lw{tag}_{half}_{2 * i + 1}"]
            lines.append(int8.operand(f"%qb{tag}_{2 * half + i}", words))
    return "\n".join(lines)


def keys(target: str, spec: IndexerSpec, together: int) -> str:
    """%ka<m>_<s> of every two key tiles, and %kf<t>, in NARROW form; %narrow_keys."""
    # Without a barrier the compiler would load the query's codes once, and keep them in registers.
    barrier = 'llvm.call_intrinsic "llvm.nvvm.bar.warp.sync"(%whole_warp) : (i32) -> ()'
    lines = [barrier]
    for t in range(TILES):
        lines.append(f"""\
{int8.shift(f"%k{t}", f"%scales{t}")}
{int8.words(f"%k_word{t}", f"%codes{t}")}
{int8.table(f"%k{t}", f"%k{t}_shift")}
{int8.power(f"%kf{t}", f"%k{t}_min")}""")
        lines += [int8.decoded(f"%k{t}_{s}", f"%k_word{t}_{s}", f"%k{t}") for s in range(STEPS)]
    for m in range(TILES // 2):
        for s in range(STEPS):
            a, b = f"%k{2 * m}_{s}", f"%k{2 * m + 1}_{s}"
            rows = [f"{a}_low", f"{b}_low", f"{a}_high", f"{b}_high"]
            lines.append(int8.operand(f"%ka{m}_{s}", rows))
    lines.append(narrow_keys(together, 8, vote))
    return "\n".join(lines)


def scores(target: str, spec: IndexerSpec, together: int) -> str:
    """%score<r>: the weighted sum over heads, for key n of tile g."""
    return "".join(_score(spec, r) for r in range(together))


def _score(spec: IndexerSpec, r: int) -> str:
    return either_form(r, _narrow_sums(spec, r), exact_sums(spec, r), "%i2", "%i1", "%i32")


def vote(result: str, excess: list[str]) -> str:
    return f"""\
{none_exceeds(f"{result}_lane", excess)}
{result} = llvm.call_intrinsic "llvm.nvvm.vote.all.sync"(%whole_warp, {result}_lane)
    : (i32, i1) -> i1"""


def _weight(spec: IndexerSpec, r: int, n: str, j: int) -> str:
    """%w<n>_<j>: half the weight of head 2g + j times its smallest scale; %w<n>_<j>_excess."""
    heads, w = spec.num_heads, f"%w{n}_{j}"
    return f"""\
{w}_add = arith.constant {j} : index
{w}_head = arith.addi %heads{n}, {w}_add : index
{w}_raw = memref.load %weights[%row{r}, {w}_head] : memref<?x{heads}xf32>
{w}_scales = vector.load %q_scales[%row{r}, {w}_head, %c0] : memref<?x{heads}x4xi8>, vector<4xi8>
{word(f"{w}_word", f"{w}_scales")}
{extremes(w, f"{w}_word")}
{int8.power(f"{w}_factor", f"{w}_min")}
{w}_scaled = arith.mulf {w}_raw, {w}_factor : f32
{w} = arith.mulf {w}_scaled, %half : f32
{w}_bits = arith.bitcast {w}_raw : f32 to i32
{w}_up = arith.shrui {w}_bits, %i23 : i32
{w}_exponent = arith.andi {w}_up, %i255 : i32
{w}_below = arith.subi %w_least, {w}_exponent : i32
{w}_above = arith.subi {w}_exponent, %w_most : i32
{w}_far = arith.maxsi {w}_below, {w}_above : i32
{w}_is_zero = arith.cmpf oeq, {w}_raw, %zero : f32
{w}_excess = arith.select {w}_is_zero, %i0, {w}_far : i32"""


def _narrow_sums(spec: IndexerSpec, r: int) -> str:
    """%part<r>_<t>a: sums over this lane's heads for its key of tile t.

    relu(x) = (x + |x|) / 2: two additions, where a maximum goes at half their rate.
    """
    lines, last = [], ["%zero"] * TILES
    for h in range(spec.num_heads // 8):
        lines.append(_load_query(spec, r, h, f"{r}_{h}"))
        for m in range(TILES // 2):
            n, before = f"{r}_{m}_{h}", "%bias"
            for s in range(STEPS):
                lines.append(int8.mma(f"%dot{n}_{s}", f"%ka{m}_{s}", f"%qb{r}_{h}_{s}", before))
                before = f"%dot{n}_{s}"
            lines.append(f"%dots{n} = vector.bitcast {before} : vector<2x2xi32> to vector<2x2xf32>")
            for i in range(2):
                for j in range(2):
                    p, t = f"{n}_{i}{j}", 2 * m + i
                    lines.append(f"""\
%biased{p} = vector.extract %dots{n}[{i}, {j}] : f32 from vector<2x2xf32>
%x{p} = arith.subf %biased{p}, %bias_f : f32
%size{p} = math.absf %x{p} : f32
%relu{p} = arith.addf %x{p}, %size{p} : f32
%sum{p} = math.fma %relu{p}, %w{r}_{h}_{j}, {last[t]} : f32""")
                    last[t] = f"%sum{p}"
    for t in range(TILES):
        lines.append(f"%part{r}_{t}a = arith.mulf {last[t]}, %kf{t} : f32")
    return "\n".join(lines)


def memory(spec: IndexerSpec, rows: int) -> str:
    """What a workgroup shares: nothing that is known before its rows."""
    return ""
