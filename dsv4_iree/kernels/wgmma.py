# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of a warpgroup on NVIDIA sm_90a: e4m3 rows in registers times columns in shared memory.

The NVVM dialect has `wgmma` for operands in shared memory alone, so this is PTX. The product runs
by itself: its registers may be read after a wait, and the empty assembly behind a wait keeps the
compiler from reading them earlier.
"""

from __future__ import annotations

from collections.abc import Sequence


def all_threads(result: str, flag: str) -> str:
    """<result>: whether the flag is set in all threads; what they stored before, wgmma may read."""
    code = (
        "{ .reg .pred mine, all; fence.proxy.async.shared::cta; setp.ne.b32 mine, $1, 0; "
        "barrier.cta.red.and.aligned.pred all, 0, mine; selp.b32 $0, 1, 0, all; }"
    )
    return f"""\
{result}_mine = arith.extui {flag} : i1 to i32
{result}_all = llvm.inline_asm has_side_effects asm_dialect = att "{code}", "=r,r,~{{memory}}"
    {result}_mine : (i32) -> i32
{result} = arith.cmpi ne, {result}_all, %i0 : i32"""


def descriptor(result: str, memory: str, kind: str, half_step: int) -> str:
    """<result>: where the columns lie, in core matrices of 8 columns x 16 bytes, not swizzled.

    Args:
        half_step: bytes from a core matrix to that of the next 8 values of its columns; the next 8
            columns come right after it.
    """
    strides = (half_step >> 4) << 16 | (128 >> 4) << 32
    return f"""\
{result}_index = memref.extract_aligned_pointer_as_index {memory} : {kind} -> index
{result}_address = arith.index_cast {result}_index : index to i64
{result}_unit = arith.constant 4 : i64
{result}_at = arith.shrui {result}_address, {result}_unit : i64
{result}_strides = arith.constant {strides} : i64
{result} = arith.ori {result}_at, {result}_strides : i64"""


def start(
    result: str,
    columns: int,
    steps: Sequence[Sequence[str]],
    descriptor: str,
    step_bytes: int,
) -> str:
    """Start <result> = rows . columns.

    Args:
        columns: of the product, a multiple of 8.
        steps: what each takes of the rows: four registers of a lane.
        descriptor: of the columns' memory.
        step_bytes: from a step to the next one there.
    """
    outputs = columns // 2
    numbers = "{" + ", ".join(f"${i}" for i in range(outputs)) + "}"
    shape = f"m64n{columns}k32.f32.e4m3.e4m3"
    code = ["{ .reg .pred more; .reg .b64 at; wgmma.fence.sync.aligned; "]
    for s in range(len(steps)):
        mine = "{" + ", ".join(f"${outputs + 4 * s + i}" for i in range(4)) + "}"
        code.append(f"setp.ne.b32 more, {min(s, 1)}, 0; ")
        code.append(f"add.s64 at, ${outputs + 4 * len(steps)}, {s * step_bytes >> 4}; ")
        code.append(f"wgmma.mma_async.sync.aligned.{shape} {numbers}, {mine}, at, more, 1, 1; ")
    code.append("wgmma.commit_group.sync.aligned; }")
    rows = [register for step in steps for register in step]
    kinds = ", ".join([*["i32"] * len(rows), "i64"])
    floats = ", ".join(["f32"] * outputs)
    constraints = ",".join([*["=&f"] * outputs, *["r"] * len(rows), "l", "~{memory}"])
    return f"""\
{result} = llvm.inline_asm has_side_effects asm_dialect = att
    "{"".join(code)}", "{constraints}"
    {", ".join(rows)}, {descriptor}
    : ({kinds}) -> !llvm.struct<({floats})>"""


def wait(result: str, product: str, columns: int) -> str:
    """<result>_<i>: the numbers of a product, once all that were started are done."""
    outputs = columns // 2
    floats = ", ".join(["f32"] * outputs)
    lines = [
        'llvm.inline_asm has_side_effects asm_dialect = att\n    "wgmma.wait_group.sync.aligned'
        ' 0;", "~{{memory}}" : () -> ()'
    ]
    for i in range(outputs):
        lines.append(
            f"{result}_early{i} = llvm.extractvalue {product}[{i}] : !llvm.struct<({floats})>"
        )
    ties = ",".join([*["=f"] * outputs, *map(str, range(outputs))])
    early = ", ".join(f"{result}_early{i}" for i in range(outputs))
    lines.append(f"""\
{result} = llvm.inline_asm has_side_effects asm_dialect = att "", "{ties}"
    {early} : ({floats}) -> !llvm.struct<({floats})>""")
    for i in range(outputs):
        lines.append(f"{result}_{i} = llvm.extractvalue {result}[{i}] : !llvm.struct<({floats})>")
    return "\n".join(lines)
