# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scores of 64 heads x 128 keys on NVIDIA sm_90a: FP4 as e4m3, `wgmma` m64nNk32.

e4m3 holds e2m1 times a power of two of 0 to 11: scales go into the bytes where they lie that close,
less the largest of a head's scales, which goes into its weight, or of 32 keys', which goes into
their sums. That is the NARROW form. Its products are exact; the tensor cores add them with 13 bits
after the largest one's leading bit. The EXACT form of `mma_cuda_exact` takes the others, a warp by
itself.

Keys are the rows of a product: a lane decodes what the tensor cores take from its registers. Query
rows are its columns and lie in shared memory, decoded once for a run of keys.

A warpgroup of four warps takes 128 keys. Lane (n, g) of 8 x 4 in a warp holds group g of key n in
four tiles of 8 keys; a step of the product takes eight codes of each group, and a lane gets heads
8j + 2g, 8j + 2g + 1 of its keys.
"""

from __future__ import annotations

from dsv4_iree.kernels import mma_cuda, mma_stages, wgmma
from dsv4_iree.kernels import mma_sm90_codes as e4m3
from dsv4_iree.kernels.mma_common import TILES, lane_sum, none_exceeds, seen, shared, word
from dsv4_iree.kernels.mma_cuda_exact import exact_sums
from dsv4_iree.kernels.mma_int8 import words
from dsv4_iree.spec import IndexerSpec

LANES = 32  # of a warp
WAVES = 4  # of a workgroup: a warpgroup
THREADS = LANES * WAVES
TILE_KEYS = 8  # rows of a matrix operand that a lane loads at a time
RAGGED_ROWS, PAGED_ROWS = 2, 2  # query rows of a workgroup that share their keys
STAGED = True  # keys come through shared memory, a block ahead
ATTRIBUTES = ", nvvm.maxnreg = 128 : i32"  # four warpgroups to a multiprocessor
HEADS_STEP = 8  # of heads, of which the product's columns are a multiple
LANE = """\
%c32 = arith.constant 32 : index
%lane = arith.remui %thread, %c32 : index
%wave = arith.divui %thread, %c32 : index
%wave_keys = arith.muli %wave, %c32 : index
%n = arith.divui %lane, %c4 : index
%g = arith.remui %lane, %c4 : index"""
CONSTANTS = f"""\
{mma_cuda.CONSTANTS}
{e4m3.CONSTANTS}
%unit_scale = arith.constant 127 : i32
%top_scale = arith.constant {e4m3.TOP} : i32
%half_top_scale = arith.constant {e4m3.TOP + 1} : i32
%c8 = arith.constant 8 : index"""


def memory(spec: IndexerSpec, rows: int) -> str:
    """What a workgroup shares: query rows, their weights, and the keys on their way."""
    lines = [mma_stages.memory(THREADS)]
    for r in range(rows):
        lines.append(shared(f"%q_shared{r}", _query_memory(spec)))
        lines.append(shared(f"%w_shared{r}", _weight_memory(spec)))
    return "\n".join(lines)


def query(target: str, spec: IndexerSpec, r: int) -> str:
    """Row r decoded into %q_shared, its weights into %w_shared; %narrow_row<r>."""
    heads, n = spec.num_heads, f"{r}"
    lines = [
        "gpu.barrier" if r == 0 else "",  # other warps may still read the rows of a turn before
        f"""\
%head_blocks{n} = arith.constant {heads // 8} : index
%q_excess{n} = scf.for %hb = %wave to %head_blocks{n} step %c4 iter_args(%worst = %i0) -> (i32) {{
  %head_base = arith.muli %hb, %c8 : index
  %head = arith.addi %head_base, %n : index
  %bytes = vector.load %q_values[%row{r}, %head, %group_bytes]
      : memref<?x{heads}x64xi8>, vector<16xi8>
  %scale8 = memref.load %q_scales[%row{r}, %head, %g] : memref<?x{heads}x4xi8>
  %scale = arith.extui %scale8 : i8 to i32
{words("%word", "%bytes")}
{_zero("%absent", "%word", "%scale")}
  %counts = arith.select %absent, %i0, %scale : i32
  %counts1, %valid1 = gpu.shuffle xor %counts, %i1, %i32 : i32
  %most1 = arith.maxui %counts, %counts1 : i32
  %counts2, %valid2 = gpu.shuffle xor %most1, %i2, %i32 : i32
  %most2 = arith.maxui %most1, %counts2 : i32
  %nothing = arith.cmpi eq, %most2, %i0 : i32
  %reference = arith.select %nothing, %unit_scale, %most2 : i32
  %below = arith.subi %least, %reference : i32
  %above = arith.subi %reference, %most : i32
  %less = arith.subi %reference, %scale : i32
  %too_far = arith.subi %less, %code_room : i32
  %far = arith.select %absent, %i0, %too_far : i32
  %outside = arith.maxsi %below, %above : i32
  %q_excess = arith.maxsi %outside, %far : i32
{_weight(spec, r)}
{e4m3.table("%table", "%less")}""",
    ]
    for v in range(4):
        lines.append(e4m3.decoded(f"%d{v}", f"%word_{v}", "%table"))
        for i in range(2):
            lines.append(f"""\
  %at{v}_{i} = arith.constant {2 * v + i} : index
  memref.store %d{v}_{i}, %q_shared{n}[%at{v}_{i}, %hb, %lane] : {_query_memory(spec)}""")
    lines.append(f"""\
  %worst0 = arith.maxsi %worst, %q_excess : i32
  %worst1 = arith.maxsi %worst0, %w_excess : i32
  scf.yield %worst1 : i32
}}
%narrow_lane{n} = arith.cmpi sle, %q_excess{n}, %i0 : i32
{wgmma.all_threads(f"%narrow_row{n}", f"%narrow_lane{n}")}
{wgmma.descriptor(f"%q_descriptor{n}", f"%q_shared{n}", _query_memory(spec), 16 * heads)}""")
    return "\n".join(lines) + "\n"


def _query_memory(spec: IndexerSpec) -> str:
    """Eight codes of each group make a step; half of them, of 8 heads, are a core matrix."""
    return f"memref<8x{spec.num_heads // 8}x32xi32, {mma_stages.SHARED}>"


def _weight_memory(spec: IndexerSpec) -> str:
    """In the order in which lane g takes them."""
    return f"memref<4x{spec.num_heads // 4}xf32, {mma_stages.SHARED}>"


def _zero(result: str, word: str, scale: str) -> str:
    """<result>: whether a group's codes are all zero, and its scale is a number."""
    return f"""\
{result}_01 = arith.ori {word}_0, {word}_1 : i32
{result}_23 = arith.ori {word}_2, {word}_3 : i32
{result}_any = arith.ori {result}_01, {result}_23 : i32
{result}_sizes = arith.andi {result}_any, %magnitudes : i32
{result}_zero = arith.cmpi eq, {result}_sizes, %i0 : i32
{result}_number = arith.cmpi ne, {scale}, %i255 : i32
{result} = arith.andi {result}_zero, {result}_number : i1"""


def _weight(spec: IndexerSpec, r: int) -> str:
    """Head %head's weight to %w_shared<r>, times its %reference scale and half; %w_excess."""
    return f"""\
  %w = memref.load %weights[%row{r}, %head] : memref<?x{spec.num_heads}xf32>
  %w_exponent_up = arith.subi %reference, %half_top_scale : i32
  %w_factor_bits = arith.shli %w_exponent_up, %i23 : i32
  %w_factor = arith.bitcast %w_factor_bits : i32 to f32
  %w_scaled = arith.mulf %w, %w_factor : f32
  %w_lane = arith.divui %n, %c2 : index
  %w_odd = arith.remui %n, %c2 : index
  %w_pair = arith.muli %hb, %c2 : index
  %w_at = arith.addi %w_pair, %w_odd : index
  memref.store %w_scaled, %w_shared{r}[%w_lane, %w_at] : {_weight_memory(spec)}
  %w_bits = arith.bitcast %w : f32 to i32
  %w_up = arith.shrui %w_bits, %i23 : i32
  %w_exponent = arith.andi %w_up, %i255 : i32
  %w_below = arith.subi %w_least, %w_exponent : i32
  %w_above = arith.subi %w_exponent, %w_most : i32
  %w_far = arith.maxsi %w_below, %w_above : i32
  %w_is_zero = arith.cmpf oeq, %w, %zero : f32
  %w_excess = arith.select %w_is_zero, %i0, %w_far : i32"""


def keys(target: str, spec: IndexerSpec, together: int) -> str:
    """%k_largest, of the scales of the warp's keys; %narrow_keys."""
    lines = []
    for t in range(TILES):
        lines.append(f"""\
{mma_stages.scales(f"%scales{t}", THREADS, t)}
{word(f"%scale_word{t}", f"%scales{t}")}
%e{t}_up = arith.shrui %scale_word{t}, %g_bits : i32
%e{t} = arith.andi %e{t}_up, %i255 : i32""")
    each = [f"%e{t}" for t in range(TILES)]
    lines.append(f"""\
{_extremes("%all", each, each)}
%k_largest, %narrow_keys = scf.if %all_narrow -> (i32, i1) {{
  scf.yield %all_largest, %all_narrow : i32, i1
}} else {{
  // Keys that no row sees, and groups without codes, may have any scales.
{_scales_that_count(together)}
{_extremes("%some", [f"%high{t}" for t in range(TILES)], [f"%low{t}" for t in range(TILES)])}
  %some_scale = arith.maxui %some_largest, %least : i32
  scf.yield %some_scale, %some_narrow : i32, i1
}}
%key_exponent = arith.subi %k_largest, %top_scale : i32
%key_factor_bits = arith.shli %key_exponent, %i23 : i32
%key_factor = arith.bitcast %key_factor_bits : i32 to f32""")
    return "\n".join(lines)


def _extremes(n: str, highs: list[str], lows: list[str]) -> str:
    """<n>_largest of the warp's numbers; <n>_narrow: whether the NARROW form takes them."""
    lines = []
    for name, numbers in (("max", highs), ("min", lows)):
        last = numbers[0]
        for t, number in enumerate(numbers[1:]):
            lines.append(f"{n}_{name}{t} = arith.{name}ui {last}, {number} : i32")
            last = f"{n}_{name}{t}"
        result = f"{n}_{'largest' if name == 'max' else 'smallest'}"
        lines.append(
            f'{result} = llvm.call_intrinsic "llvm.nvvm.redux.sync.u{name}"({last}, %whole_warp)'
            " : (i32, i32) -> i32"
        )
    return "\n".join(
        [
            *lines,
            f"""\
{n}_spread = arith.subi {n}_largest, {n}_smallest : i32
{n}_far = arith.subi {n}_spread, %code_room : i32
{n}_below = arith.subi %least, {n}_smallest : i32
{n}_above = arith.subi {n}_largest, %most : i32
{none_exceeds(f"{n}_narrow", [f"{n}_far", f"{n}_below", f"{n}_above"])}""",
        ]
    )


def _scales_that_count(together: int) -> str:
    """%high<t>, %low<t>: the scale of a group that has codes, in a key that a row sees.

    Of others 0 and 255, which change neither extreme.
    """
    lines = []
    for t in range(TILES):
        lines.append(f"""\
{mma_stages.codes(f"%k{t}_codes", THREADS, t)}
{words(f"%k{t}_any", f"%k{t}_codes")}
{_zero(f"%k{t}_absent", f"%k{t}_any", f"%e{t}")}
%k{t}_one = arith.select %k{t}_absent, %i0, %i1 : i32
{seen(f"%k{t}_counts32", t, together, 8, f"%k{t}_one")}
%k{t}_counts = arith.cmpi ne, %k{t}_counts32, %i0 : i32
%high{t} = arith.select %k{t}_counts, %e{t}, %i0 : i32
%low{t} = arith.select %k{t}_counts, %e{t}, %i255 : i32""")
    return "\n".join(lines)


def scores(target: str, spec: IndexerSpec, together: int) -> str:
    """%score<r>: the weighted sum over heads, for key n of tile g.

    One product at a time: what other warpgroups do meanwhile hides more than a second one in the
    registers that it would take from them.
    """
    lines = []
    for m in range(TILES // 2):
        lines.append(_operands(m))
        for r in range(together):
            lines += [_product(spec, m, r), _sums(spec, m, r)]
    return "\n".join([*lines, *(_either_form(spec, r) for r in range(together))]) + "\n"


def _operands(m: int) -> str:
    """%k<t>_<v>_<i>: the keys of tiles 2m and 2m + 1 as registers."""
    lines = []
    for t in (2 * m, 2 * m + 1):
        lines.append(f"""\
{mma_stages.codes(f"%codes{t}", THREADS, t)}
{words(f"%code_word{t}", f"%codes{t}")}
%below{t} = arith.subi %k_largest, %e{t} : i32
{e4m3.table(f"%table{t}", f"%below{t}")}""")
        for v in range(4):
            lines.append(e4m3.decoded(f"%k{t}_{v}", f"%code_word{t}_{v}", f"%table{t}"))
    return "\n".join(lines)


def _product(spec: IndexerSpec, m: int, r: int) -> str:
    """Start %product<m>_<r>: q . k of all heads and 64 keys."""
    steps = []
    for v in range(4):
        steps.append([f"%k{t}_{v}_{i}" for i in range(2) for t in (2 * m, 2 * m + 1)])
    step_bytes = 32 * spec.num_heads
    return wgmma.start(f"%product{m}_{r}", spec.num_heads, steps, f"%q_descriptor{r}", step_bytes)


def _sums(spec: IndexerSpec, m: int, r: int) -> str:
    """%part<r>_<t>a of the keys of tiles 2m and 2m + 1: sums over this lane's heads.

    relu(x) = (x + |x|) / 2: two additions, where a maximum goes at half their rate.
    """
    n, mine, last = f"{m}_{r}", spec.num_heads // 4, ["%zero"] * 4
    lines = [wgmma.wait(f"%dot{n}", f"%product{n}", spec.num_heads)]
    size = 4 if mine % 4 == 0 else 2
    for h in range(0, mine, size):
        some = f"%w_some{n}_{h}"
        lines.append(f"""\
%w_at{n}_{h} = arith.constant {h} : index
{some} = "vector.load"(%w_shared{r}, %g, %w_at{n}_{h}) <{{alignment = {4 * size} : i64}}>
    : ({_weight_memory(spec)}, index, index) -> vector<{size}xf32>""")
        for i in range(size):
            w = f"%w{n}_{h + i}"
            lines.append(f"{w} = vector.extract {some}[{i}] : f32 from vector<{size}xf32>")
            j, odd = divmod(h + i, 2)
            for half in range(2):
                x, p = f"%dot{n}_{4 * j + 2 * half + odd}", f"{n}_{h + i}_{half}"
                chain = 2 * odd + half
                lines.append(f"""\
%size{p} = math.absf {x} : f32
%relu{p} = arith.addf {x}, %size{p} : f32
%sum{p} = math.fma %relu{p}, {w}, {last[chain]} : f32""")
                last[chain] = f"%sum{p}"
    for half in range(2):
        part = f"%part{r}_{2 * m + half}"
        lines.append(f"""\
{part}_both = arith.addf {last[half]}, {last[half + 2]} : f32
{part}a = arith.mulf {part}_both, %key_factor : f32""")
    return "\n".join(lines)


def _either_form(spec: IndexerSpec, r: int) -> str:
    """%score<r>: NARROW's, which is there for all warps, or EXACT's where keys or row need it.

    EXACT reads its keys again: held until here, they would leave too few registers.
    """
    again = []
    for t in range(TILES):
        again.append(f"""\
{mma_stages.codes(f"%k{t}_bytes{r}", THREADS, t)}
{words(f"%k_word{t}", f"%k{t}_bytes{r}")}
{mma_stages.scales(f"%k{t}_scales{r}", THREADS, t)}
{word(f"%k{t}_word", f"%k{t}_scales{r}")}""")
    return f"""\
{lane_sum(r, "a", "%i2", "%i1", "%i32")}
%is_narrow{r} = arith.andi %narrow_keys, %narrow_row{r} : i1
%score{r} = scf.if %is_narrow{r} -> (f32) {{
  scf.yield %total{r}a : f32
}} else {{
{chr(10).join(again)}
{exact_sums(spec, r)}
{lane_sum(r, "b", "%i2", "%i1", "%i32")}
  scf.yield %total{r}b : f32
}}"""
