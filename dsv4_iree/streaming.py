# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which function of an `index_topk` artifact serves a call: with logits in memory, or without."""

from __future__ import annotations

from dsv4_iree.errors import ArgumentError
from dsv4_iree.runtime import Module

WRITES, STREAMS = "index_topk", "index_topk_streaming"
ROWS = {"gfx942": 1, "gfx950": 2}  # of a request, up to which its keys' bytes bind
SCORES = 1024  # of a call, for each of k: 256 of the shortest runs, about one for a compute unit


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
    which logits might wait for their selection, and it knows no latency.

    | rows, requests, keys | MI300X, k = 512 | k = 1024 | MI355X, k = 512 | k = 1024 |
    |---|---|---|---|---|
    | 1, 1, 65,536 | 6.5 / 12.9 | 7.2 / 20.2 | 5.3 / 6.5 | 6.2 / 9.1 |
    | 16, 16, 65,536 | 19.8 / 18.6 | 20.6 / 20.2 | 13.9 / 12.4 | 14.9 / 12.8 |
    | 64, 64, 8192 | 13.1 / 10.0 | 14.0 / 18.3 | 9.0 / 5.7 | 10.1 / 7.6 |
    | 64, 64, 65,536 | 62.8 / 56.1 | 63.4 / 57.8 | 43.1 / 38.4 | 44.1 / 40.4 |
    | 256, 256, 8192 | 33.3 / 29.7 | 34.5 / 30.1 | 23.4 / 19.9 | 24.6 / 20.4 |
    | 256, 256, 65,536 | 243 / 218 | 245 / 220 | 162 / 145 | 163 / 147 |
    | 512, 256, 65,536 | 384 / 377 | 385 / 388 | 177 / 145 | 178 / 148 |
    | 8192, 1, 8192 | 834 / 819 | 869 / 864 | 370 / 326 | 412 / 377 |
    | 2048, 1, 32,768 | 771 / 757 | 775 / 776 | 274 / 278 | 292 / 299 |

    Where a request has many rows, the vector unit binds, and no clear winner is left.
    """
    if target not in ROWS:
        return False
    requests, columns = table
    return rows <= ROWS[target] * requests and rows * columns >= SCORES * k
