#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write the kernels that are kept as MLIR, from their source in Wave below.

    python tools/generate_wave.py            write dsv4_iree/kernels/mlir/
    python tools/generate_wave.py --check    compare with what is there, write nothing

Only this script needs Wave. wave-lang 3.9.1 asks for IREE 3.9, and runs with the IREE of this
package after `shim`, so it has to be installed without what it asks for:

    pip install '.[build]' dill && pip install --no-deps wave-lang==3.9.1

docs/wave.md says what was tried, what the kernels cost, and what Wave could not say.
"""

import argparse
import re
import sys
from importlib.metadata import version

import iree.compiler.dialects.iree_codegen as codegen
from iree.compiler import ir
from iree.compiler.dialects import arith, llvm, rocdl, vector


def shim() -> None:
    """Give IREE 3.13's Python bindings back the names of 3.9 that Wave uses."""

    class NoPipeline:
        None_ = None

    class NoPipelineAttr:
        get = staticmethod(lambda _: codegen.NoPipelineAttr.get())

    codegen.DispatchLoweringPassPipeline = NoPipeline
    codegen.DispatchLoweringPassPipelineAttr = NoPipelineAttr
    for kind in vars(ir).values():
        is_kind = isinstance(kind, type) and issubclass(kind, (ir.Type, ir.Attribute, ir.Value))
        if is_kind and "isinstance" not in vars(kind):
            kind.isinstance = staticmethod(lambda value, kind=kind: isinstance(value, kind))


shim()

import sympy  # noqa: E402
import wave_lang.kernel.lang as tkl  # noqa: E402
import wave_lang.kernel.wave as tkw  # noqa: E402
import wave_lang.kernel.wave.compile as wave_compile  # noqa: E402
import wave_lang.kernel.wave.decompose_reduce_ops as reduction  # noqa: E402
from sympy import And, Max, Min, Or, Piecewise, ceiling, floor  # noqa: E402
from wave_lang.kernel.compiler.builder import IRProxyValue  # noqa: E402
from wave_lang.kernel.lang.global_symbols import (  # noqa: E402
    GLOBAL_ADDRESS_SPACE,
    THREAD_0,
    WORKGROUP_0,
    WORKGROUP_1,
)
from wave_lang.kernel.ops.wave_ops import Extract, ShuffleOp  # noqa: E402
from wave_lang.kernel.wave.codegen.emitter import WaveEmitter, cast_py_value  # noqa: E402
from wave_lang.kernel.wave.constraints import ScaledMMAType  # noqa: E402
from wave_lang.kernel.wave.utils.classes import ShuffleMode  # noqa: E402
from wave_lang.kernel.wave.utils.symbol_utils import get_induction_symbol  # noqa: E402

from dsv4_iree.kernels import wave  # noqa: E402

BLOCK = 64  # keys
LANES_OF_A_KEY = 32  # lanes n and n + 32 hold key n of a tile, and half of its heads each
FAR = 2**31 - 1


# What three of Wave's operations become. Its own maximum drops NaN, and with its own choice for all
# three 64 heads x 64 keys take 219.5 vector instructions in place of 125.5.


def maximum(emitter, node) -> None:
    """`llvm.intr.maximum`, which stays NaN where an operand is; IREE makes maximumf a max_num."""
    operands = [cast_py_value(emitter, operand).ir_value for operand in node.args]
    if str(operands[0].type).endswith("xf32>"):
        emitter.bind_node_proxy(node, IRProxyValue(llvm.intr_maximum(*operands)))
    else:
        waves_maximum(emitter, node)


def lane_sum(binary, source, graph, size, location):
    """Stands for the sum of a lane's `size` numbers in place of a chain of scalar additions."""
    node = reduction.get_graph_node(Extract(source, [0]), graph, location)
    node.meta["sum_of"] = size
    return node


def extract(emitter, node) -> None:
    """`lane_sum` by halves: additions of vectors, for which no register has to be copied."""
    size = node.meta.get("sum_of")
    if size is None:
        waves_extract(emitter, node)
        return
    value = cast_py_value(emitter, node.args[0]).ir_value
    while size > 1:
        size //= 2
        half = ir.VectorType.get([size], ir.F32Type.get())
        low, high = (
            vector.extract_strided_slice(half, value, [first], [size], [1]) for first in (0, size)
        )
        value = arith.addf(low, high)
    emitter.bind_node_proxy(node, IRProxyValue(value))


def wave_sum(binary, source, graph, lanes, count, stride, location):
    """Stands for shuffles and additions over `count` lanes that are `stride` apart."""
    while count > 1:
        shuffle = ShuffleOp(source, stride, lanes, ShuffleMode.XOR)
        source = reduction.get_graph_node(shuffle, graph, location)
        source.meta["adds"] = True
        count, stride = count // 2, stride * 2
    return source


def shuffle(emitter, node) -> None:
    """`wave_sum` by one swap: its two results are this lane's number and the other's."""
    if not node.meta.get("adds"):
        waves_shuffle(emitter, node)
        return
    source, apart, _, _ = node.args
    swap = {16: rocdl.permlane16_swap, 32: rocdl.permlane32_swap}[apart]
    value = cast_py_value(emitter, source).ir_value
    number = vector.extract(value, dynamic_position=[], static_position=[0])
    bits = arith.bitcast(ir.IntegerType.get_signless(32), number)
    both = swap(ir.Type.parse("!llvm.struct<(i32, i32)>"), bits, bits, False, False)
    halves = [
        arith.bitcast(ir.F32Type.get(), llvm.extractvalue(bits.type, both, [half]))
        for half in (0, 1)
    ]
    total = vector.broadcast(value.type, arith.addf(*halves))
    emitter.bind_node_proxy(node, IRProxyValue(total))


waves_maximum = WaveEmitter.OP_HANDLERS["maximum"]
waves_extract = WaveEmitter.OP_HANDLERS["extract"]
waves_shuffle = WaveEmitter.OP_HANDLERS["shuffle"]
WaveEmitter.OP_HANDLERS.update(maximum=maximum, extract=extract, shuffle=shuffle)
reduction.emit_variable_reduction = lane_sum
reduction.emit_intrawave_reduction = wave_sum
# The function that would dispatch the kernel wants every number as the size of a tensor.
wave_compile.host_codegen.isolated_test_call = lambda *args, **kwargs: None


T, N, H, D = tkl.sym.T, tkl.sym.N, tkl.sym.H, tkl.sym.D  # rows, keys, heads, dims
CLEAN, SKIP, PER_RUN = tkl.sym.CLEAN, tkl.sym.SKIP, tkl.sym.PER_RUN
SYMBOLS = {"rows": T, "columns": N, "clean": CLEAN, "skip": SKIP, "per_run": PER_RUN}
P, U = tkl.sym.P, tkl.sym.U  # groups of rows, runs of keys: the grid of workgroups
L, M = tkl.sym.L, tkl.sym.M  # columns of the last block, columns that are not scored
ONE, BLOCK_N, BLOCK_L, BLOCK_M = tkl.sym.ONE, tkl.sym.BLOCK_N, tkl.sym.BLOCK_L, tkl.sym.BLOCK_M
ZERO = tkl.sym.ZERO
FIRST, BLOCKS, TAIL = tkl.sym.FIRST, tkl.sym.BLOCKS, tkl.sym.TAIL
SIZES = {
    H: wave.HEADS, D: 128, ONE: 1, BLOCK_N: BLOCK, BLOCK_L: BLOCK, BLOCK_M: BLOCK, ZERO: 0,
    P: FAR, U: FAR,
}  # fmt: skip


def mapping(inputs, outputs, iterators=2):
    return tkw.IndexMapping(num_iterators=iterators, inputs=inputs, outputs=outputs)


def memory(*shape, of):
    return tkl.Memory[(*shape, GLOBAL_ADDRESS_SPACE, of)]


def ragged_logits():
    """One wave: a few query rows against a run of keys, in blocks of 64.

    Three loops over the run: blocks of 64 keys that a row sees, the block that is cut off by the
    last key, and the columns of all other blocks.
    """
    rows = range(wave.ROWS)
    starts = [tkl.sym.START0, tkl.sym.START1]
    ends = [tkl.sym.END0, tkl.sym.END1]
    run = WORKGROUP_1 * PER_RUN
    run_end = Min(run + PER_RUN, N)
    whole = floor(N / BLOCK) * BLOCK  # keys of blocks that are full
    constraints = [
        tkw.WorkgroupConstraint(P, ONE, 0),
        tkw.WorkgroupConstraint(U, ONE, 1),
        tkw.TilingConstraint(N, BLOCK_N, iters=BLOCKS, start=run + FIRST * BLOCK),
        tkw.TilingConstraint(L, BLOCK_L, iters=TAIL, start=whole),
        tkw.TilingConstraint(M, BLOCK_M, iters=ceiling((run_end - run) / BLOCK), start=run),
        tkw.HardwareConstraint(
            threads_per_wave=64,
            waves_per_block=(1, 1, 1),
            mma_type=ScaledMMAType.F32_32x32x64_F8F6F4,
            vector_shapes={P: 0, U: 0, M: BLOCK},
        ),
    ]
    i, j, l = (tkw.IndexMapping.iterator(axis) for axis in range(3))  # noqa: E741
    number = [wave.ROWS * WORKGROUP_0 + r for r in rows]
    # A group may have fewer rows: its last row stands in for those that are not there.
    row = [Min(wave.ROWS * i + r, T - 1) for r in rows]
    of_row = [mapping({T: row[r]}, {P: i}, 1) for r in rows]
    of_heads = [mapping({T: row[r], H: j}, {P: i, H: j}) for r in rows]
    of_query = [mapping({T: row[r], H: j, D: l}, {P: i, H: j, D: l}, 3) for r in rows]
    last_keys = mapping({N: Min(i, N - 1), D: j}, {L: i, D: j})
    # An index of Wave has one name: + ZERO makes L a column. M counts blocks; a lane adds its own.
    column = {N: j, L: j + ZERO, M: j + THREAD_0}

    def there(n):
        return [mapping({P: i, n: j}, {T: wave.ROWS * i + r, N: column[n]}) for r in rows]

    def back(n):
        return [mapping({T: wave.ROWS * i + r, N: column[n]}, {P: i, n: j}) for r in rows]

    def if_scored(r, value, otherwise):
        """A function of start and end: the value where row r exists and its window is not skipped.

        A function that makes functions, since Wave calls them after the loop over r.
        """

        def choose(start, end):
            scored = And(end - start > SKIP, number[r] < T)
            return Piecewise((value(start, end), scored), (otherwise, True))

        return choose

    def inside(r):
        return lambda x: And(x >= starts[r], x < ends[r])

    @tkw.wave(constraints)
    def mqa_logits_wave(
        q_values: memory(T, H, D / 2, of=tkl.i8),
        q_scales: memory(T, H, D / 32, of=tkl.i8),
        k_values: memory(N, D / 2, of=tkl.i8),
        k_scales: memory(N, D / 32, of=tkl.i8),
        weights: memory(T, H, of=tkl.f32),
        start: memory(T, of=tkl.i32),
        end: memory(T, of=tkl.i32),
        logits: memory(T, N, of=tkl.f32),
        result: memory(T, N, of=tkl.f32),
    ):
        def minus_inf(n):
            return tkl.Register[P, n, tkl.f32](float("-inf"))

        def bound(tensor, r):
            """Symbols are never negative to Wave, which drops Max(x, 0): so it is done here."""
            read = tkw.read(tensor, elements_per_thread=1, mapping=of_row[r], bounds={})
            return tkw.maximum(read, tkl.Register[P, tkl.i32](0))

        def score(n, r, k, k_scale):
            """Logits of row r."""
            q = tkw.bitcast(tkw.read(q_values, mapping=of_query[r], bounds={}), tkl.f4e2m1fn)
            q_scale = tkw.bitcast(tkw.read(q_scales, mapping=of_query[r], bounds={}), tkl.f8e8m0fnu)
            weight = tkw.read(weights, mapping=of_heads[r], bounds={})
            dots = tkw.scaled_mma(q, q_scale, k, k_scale, tkl.Register[P, H, n, tkl.f32](0.0))
            # relu before permute keeps one of the tiles of heads in place of all of them.
            dots = tkw.permute(dots, target_shape=[P, n, H])
            positive = tkw.maximum(dots, tkl.Register[P, n, H, tkl.f32](0.0))
            weighted = positive * tkw.broadcast(weight, target_shape=[P, n, H])
            return tkw.sum(weighted, tkl.Register[P, n, tkl.f32](0.0), dim=H)

        def seen(n, r):
            flags = tkw.cast(tkw.apply_expr(tkw.self_index(n, tkl.i32), inside(r)), tkw.i1)
            return tkw.broadcast(flags, target_shape=[P, n])

        def scores(n, **keys):
            """Scores of a block of keys, for all rows."""
            k = tkw.bitcast(tkw.read(k_values, bounds={}, **keys), tkl.f4e2m1fn)
            k_scale = tkw.bitcast(tkw.read(k_scales, bounds={}, **keys), tkl.f8e8m0fnu)
            return [score(n, r, k, k_scale) for r in rows]

        def store(n, r, scored, when, bounds):
            """Write what row r sees of a block; elsewhere -inf, or what was there.

            One condition each: inside two of them, a value of several tiles would be that of one.
            """
            here = And(when, number[r] < T, THREAD_0 < LANES_OF_A_KEY)

            @tkw.conditional(And(here, CLEAN > 0))
            def fill():
                value = tkw.select(seen(n, r), scored, minus_inf(n))
                tkw.write(value, result, mapping=there(n)[r], bounds=bounds)

            @tkw.conditional(And(here, CLEAN <= 0))
            def keep():
                old = tkw.read(logits, mapping=back(n)[r], bounds=bounds)
                value = tkw.select(seen(n, r), scored, old)
                tkw.write(value, result, mapping=there(n)[r], bounds=bounds)

        def store_nothing(r, when):
            """-inf, or what was there, in the 64 columns of a block."""
            bounds = {M: N - THREAD_0}

            @tkw.conditional(And(when, number[r] < T, CLEAN > 0))
            def fill():
                tkw.write(minus_inf(M), result, mapping=there(M)[r], bounds=bounds)

            @tkw.conditional(And(when, number[r] < T, CLEAN <= 0))
            def keep():
                old = tkw.read(logits, mapping=back(M)[r], bounds=bounds)
                tkw.write(old, result, mapping=there(M)[r], bounds=bounds)

        for r in rows:
            window = [bound(start, r), bound(end, r)]
            tkw.set_symbol(
                starts[r], tkw.apply_expr(window, if_scored(r, lambda first, _: first, FAR))
            )
            tkw.set_symbol(ends[r], tkw.apply_expr(window, if_scored(r, lambda _, stop: stop, 0)))
        # The loops are over blocks that some row sees: symbols, of a register that Wave asks for.
        first = tkw.apply_expr(window[0], lambda _: Max(0, floor((Min(*starts, N) - run) / BLOCK)))
        tkw.set_symbol(FIRST, first)
        stop = ceiling((Min(run_end, Max(*ends), whole) - run) / BLOCK)
        tkw.set_symbol(BLOCKS, tkw.apply_expr(first, lambda x: Max(0, stop - x)))
        has_tail = And(whole >= run, whole < run_end, whole < Max(*ends))
        tkw.set_symbol(TAIL, tkw.apply_expr(first, lambda _: Piecewise((1, has_tail), (0, True))))

        # Conditions around the loops, so that a run without work reads no query.
        @tkw.conditional(BLOCKS + TAIL > 0)
        def some_are_seen():
            @tkw.iterate(N, init_args=[])
            def full_blocks():
                block = run + (FIRST + get_induction_symbol(N)) * BLOCK
                scored = scores(N)
                within = And(block >= Max(*starts), block + BLOCK <= Min(*ends))

                @tkw.conditional(And(within, THREAD_0 < LANES_OF_A_KEY))
                def all_rows_see_all():
                    for r in rows:
                        tkw.write(scored[r], result, mapping=there(N)[r], bounds={})

                across = Or(block < Max(*starts), block + BLOCK > Min(*ends))
                for r in rows:
                    store(N, r, scored[r], across, {})

            @tkw.iterate(L, init_args=[])
            def last_block():
                scored = scores(L, mapping=last_keys)
                for r in rows:
                    store(L, r, scored[r], sympy.true, {L: N})

        @tkw.conditional(sympy.Lt(BLOCKS + TAIL, ceiling((run_end - run) / BLOCK)))
        def some_are_not():
            @tkw.iterate(M, init_args=[])
            def not_scored():
                block = run + get_induction_symbol(M) * BLOCK
                before = block < run + FIRST * BLOCK
                after = block >= run + (FIRST + BLOCKS) * BLOCK
                for r in rows:
                    store_nothing(r, And(Or(before, after), Or(TAIL < 1, block < whole)))

    return mqa_logits_wave


WAVE, IREE = "3.9.1", "3.13.0"  # another release may give another text
HEADER = f"""\
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Written by tools/generate_wave.py with wave-lang {WAVE} and IREE {IREE}; not by hand.
"""
EXPORT = """\
  stream.executable.export public @{name} workgroups(
      %rows: index, %columns: index, %per_run: index) -> (index, index, index) {{
    %c1 = arith.constant 1 : index
    %together = arith.constant {rows} : index
    %down = arith.ceildivui %rows, %together : index
    %across = arith.ceildivui %columns, %per_run : index
    // Neighbours in x run at the same time: they read the same keys.
    stream.return %down, %across, %c1 : index, index, index
  }}
"""


def generate() -> str:
    """The text of `wave.TEXT`."""
    options = wave_compile.WaveCompileOptions(
        subs=SIZES,
        dynamic_symbols=[SYMBOLS[number] for number in wave.NUMBERS],
        canonicalize=True,
        compile_to_mlir=True,
        device="hip",
        target="gfx950",
        func_name=wave.NAME,
        iree_launch_async=False,
        use_fast_math=True,
    )
    text = wave_compile.wave_compile(options, ragged_logits()).asm
    # Of what "fast" allows, a product that goes unrounded into a sum: -inf and NaN have a meaning.
    text = text.replace("fastmath<fast>", "fastmath<contract>")
    return HEADER + executable(text)


def executable(text: str) -> str:
    """The `stream.executable` of a module, which stands by itself: its own grid, no aliases."""
    aliases = dict(re.findall(r"^(#\w+) = (.*)$", text, re.M))
    begin, end = text.index("  stream.executable "), text.rindex("}")
    body = re.sub(r"#\w+\b(?!\.|<)", lambda m: aliases[m[0]], text[begin:end].rstrip())
    body = re.sub(r"^  ", "", body, flags=re.M)
    body = re.sub(
        r"^  stream\.executable\.export .*?^  \}\n",
        lambda _: EXPORT.format(name=wave.NAME, rows=wave.ROWS),
        body,
        flags=re.M | re.S,
    )
    return "\n".join(line.rstrip() for line in body.splitlines()) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    args = parser.parse_args()
    for package, wanted in (("wave-lang", WAVE), ("iree-base-compiler", IREE)):
        if (found := version(package)) != wanted:
            sys.exit(f"{package}: expected {wanted}, got {found}")
    path, text = wave.TEXT, generate()
    if not args.check:
        path.write_text(text)
    elif path.read_text() != text:
        sys.exit(f"{path} is not what tools/generate_wave.py makes; run it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
