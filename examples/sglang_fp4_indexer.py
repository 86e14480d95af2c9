# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SGLang's FP4 indexer on dsv4_iree: store keys, score, select, on tensors shaped as SGLang's.

    python examples/sglang_fp4_indexer.py --backend reference

In SGLang the calls go where its C4 indexer stores keys and scores them: docs/engines.md. The model
part of the step is stood in for by random numbers.
"""

from __future__ import annotations

import argparse

import torch

from dsv4_iree.compat import deepgemm, serve, sglang

HEADS, PAGE, TOPK, RATIO = 64, 64, 512, 4
POSITIONS = (2999, 700, 3)  # raw positions of this step's queries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="compiled", choices=("compiled", "reference"))
    serve.use(backend=parser.parse_args().backend)
    random = torch.Generator().manual_seed(0)

    # the pool of one layer, [pages, 64 * 68], and each request's pages of compressed entries
    pool = torch.zeros(40, PAGE * 68, dtype=torch.uint8)
    page_tables = torch.randperm(40, generator=random)[:36].view(3, 12).int()
    seq_lens = torch.tensor([(position + 1) // RATIO for position in POSITIONS]).int()
    keys = []
    for request, length in enumerate(seq_lens.tolist()):
        k = torch.randn(length, 128, generator=random).bfloat16()
        entry = torch.arange(length)
        loc = page_tables[request].long()[entry // PAGE] * PAGE + entry % PAGE
        sglang.store_fp4_index_k_cache(k, pool, loc, page_size=PAGE)
        keys.append(sglang.get_index_k_dequant(pool, loc).float())

    q = torch.randn(3, HEADS, 128, generator=random).bfloat16()
    weights = torch.randn(3, HEADS, generator=random) * (128 * HEADS) ** -0.5
    q_fp4, q_scale = sglang.quantize_fp4_indexer_tensor(q)
    logits = deepgemm.fp8_fp4_paged_mqa_logits(
        (q_fp4.view(3, 1, HEADS, 64), q_scale.view(3, 1, HEADS)),
        pool.view(40, PAGE, 1, 68),
        weights,
        seq_lens[:, None],
        page_tables,
        deepgemm.get_paged_mqa_logits_metadata(seq_lens[:, None], PAGE, 132),
        12 * PAGE,
    )
    slots = torch.empty(3, TOPK, dtype=torch.int32)
    raw = torch.empty_like(slots)
    sglang.topk_transform_512(logits, seq_lens, page_tables, slots, PAGE, raw)

    numbers = serve.indexer(q.device).dequantize(
        (q_fp4.view(torch.uint8).view(3, HEADS, 64), q_scale.view(torch.uint8).view(3, HEADS, 4))
    )
    for row, k in enumerate(keys):
        score = weights[row] @ torch.relu(numbers[row] @ k.T)
        count = min(len(k), TOPK)
        best = set(score.topk(count).indices.tolist())
        right = len(best & set(raw[row, :count].tolist()))
        print(f"request {row}: {len(k)} entries, {right} of {count} selected as by plain torch")


if __name__ == "__main__":
    main()
