# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which function of an `index_topk` artifact serves a call: with logits in memory, or without."""

from __future__ import annotations

from dsv4_iree.errors import ArgumentError
from dsv4_iree.runtime import Module

WRITES, STREAMS = "index_topk", "index_topk_streaming"
ROWS = {"gfx942": 1, "gfx950": 2}  # of a request, up to which its keys' bytes bind
SCORES = {"gfx942": 4096, "gfx950": 1024}  # of a call, for each of k
COLUMNS = 16  # for each of k, where a request has several rows: runs are long enough


def functions(
    module: Module, rows: int, table: tuple[int, int], k: int, streaming: bool | None
) -> tuple[str, str]:
    """The function for a call, and the other one that gives the same ids; "" if it must not run.

    Args:
        table: requests, and columns of their entries; the lengths are on the device.
        streaming: what the caller wants; None: what is faster.
    """
    if STREAMS not in module.functions:
        if streaming:
            raise ArgumentError(
                f"streaming: expected None or False, got True: the artifact for {module.target} "
                f"with k = {k} has no such function"
            )
        return WRITES, ""
    if streaming is not None:
        return (STREAMS if streaming else WRITES), ""
    if is_faster(module.target, rows, table, k):
        return STREAMS, WRITES
    return WRITES, STREAMS


def is_faster(target: str, rows: int, table: tuple[int, int], k: int) -> bool:
    """Whether a call should stream.

    Modelled microseconds, logits in memory / streaming: counts of the emulated kernels at peak
    rates, of each dispatch the resource that takes longest. There are no caches in that model, in
    which logits might wait for their selection, and it knows no latency. A star is a call that
    streams.

    | rows, requests, keys | MI300X, k = 512 | k = 1024 | MI355X, k = 512 | k = 1024 |
    |---|---|---|---|---|
    | 16, 16, 65,536 | 18.9 / 19.5 | 20.3 / 20.9 | 12.9 / 12.7 * | 14.2 / 13.0 * |
    | 32, 32, 65,536 | 32.3 / 31.0 * | 33.7 / 32.3 | 22.6 / 21.9 * | 23.9 / 22.1 * |
    | 64, 64, 8192 | 10.9 / 11.1 | 11.7 / 19.0 | 6.9 / 6.4 * | 7.5 / 8.0 |
    | 64, 64, 65,536 | 62.5 / 56.7 * | 64.4 / 58.5 * | 42.1 / 38.5 * | 43.2 / 40.5 * |
    | 256, 256, 8192 | 31.9 / 30.4 * | 32.8 / 30.5 | 22.4 / 20.3 * | 23.2 / 20.5 * |
    | 256, 256, 65,536 | 243 / 218 * | 244 / 219 * | 161 / 145 * | 163 / 146 * |
    | 512, 256, 8192 | 53.1 / 56.2 | 54.5 / 60.1 | 24.3 / 23.6 * | 25.5 / 27.6 |
    | 512, 256, 65,536 | 384 / 377 | 384 / 387 | 177 / 146 * | 177 / 148 * |
    | 8192, 1, 8192 | 776 / 816 | 801 / 856 | 301 / 317 | 324 / 356 |
    | 2048, 1, 32,768 | 769 / 754 | 771 / 772 | 273 / 275 | 278 / 294 |

    Where a request has many rows, the vector unit binds.
    """
    if target not in ROWS:
        return False
    requests, columns = table
    most_rows = ROWS[target] if columns >= COLUMNS * k else 1
    return rows <= most_rows * requests and rows * columns >= SCORES[target] * k
