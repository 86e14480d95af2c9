# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's ROCm sparse indexer on dsv4_iree: one decode step, on tensors shaped as vLLM passes them.

    python examples/vllm_rocm_indexer.py --backend reference

In vLLM the call goes into `SparseAttnIndexer.forward_hip`: docs/engines.md. The model part of the
step (projections, RoPE, FP8 of the queries) is stood in for by random numbers.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch

from dsv4_iree import reference
from dsv4_iree.compat import aiter, serve, vllm
from dsv4_iree.formats import exact
from dsv4_iree.spec import IndexerSpec

HEADS, DIM, PAGE, TOPK, RATIO = 64, 128, 64, 512, 4
PAGES, WIDTH = 40, 12  # of the cache, of the block table
REQUESTS = (700, 40, 1)  # compressed entries in the cache, this step's included


@dataclass
class DecodeMetadata:
    """The fields of vLLM's DeepSeekV32IndexerDecodeMetadata that the indexer reads."""

    block_table: torch.Tensor
    seq_lens: torch.Tensor
    decode_lens: torch.Tensor
    requires_padding: bool = False


@dataclass
class IndexerMetadata:
    """The fields of vLLM's DeepseekV32IndexerMetadata that the indexer reads."""

    slot_mapping: torch.Tensor
    num_decode_tokens: int
    max_seq_len: int
    decode: DecodeMetadata | None
    prefill: None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="compiled", choices=("compiled", "reference"))
    serve.use(backend=parser.parse_args().backend)
    random = torch.Generator().manual_seed(0)

    # vLLM's cache of one layer: pages of a slab that other layers share
    slab = torch.zeros(PAGES, 3, PAGE, DIM + 4, dtype=torch.uint8)
    kv_cache = slab[:, 1]
    block_table = torch.randperm(PAGES, generator=random)[: 3 * WIDTH].view(3, WIDTH).int()
    keys = [torch.randn(n, DIM, generator=random).bfloat16() for n in REQUESTS]
    for request, k in enumerate(keys):
        before = slots(block_table[request], torch.arange(len(k) - 1))
        aiter.indexer_k_quant_and_cache(k[:-1], kv_cache, before, DIM, "ue8m0", True)

    # one decode step: a query row and a new key of each request
    q_fp8 = torch.randn(3, HEADS, DIM, generator=random).to(torch.float8_e4m3fn)
    weights = torch.randn(3, HEADS, generator=random) * (DIM * HEADS) ** -0.5
    last = torch.tensor([n - 1 for n in REQUESTS])
    lens = torch.tensor(REQUESTS, dtype=torch.int32)
    new_slots = torch.stack([slots(row, at) for row, at in zip(block_table, last)])
    metadata = IndexerMetadata(
        slot_mapping=new_slots,
        num_decode_tokens=3,
        max_seq_len=max(REQUESTS) * RATIO,
        decode=DecodeMetadata(block_table, lens, torch.ones(3, dtype=torch.int32)),
    )
    topk_indices = torch.full((8, TOPK), -1, dtype=torch.int32)  # persistent, as in vLLM
    vllm.rocm_aiter_sparse_attn_indexer(
        torch.empty(3, 1),  # hidden_states: only its number of rows is read
        "model.layers.2.attn.indexer.k_cache",
        kv_cache,
        q_fp8,
        torch.stack([k[-1] for k in keys]),
        weights,
        DIM,
        "ue8m0",
        TOPK,
        DIM,
        WIDTH * PAGE,
        0,
        topk_indices,
        attn_metadata=metadata,
        positions=last * RATIO + RATIO - 1,
        compress_ratio=RATIO,
    )
    check(kv_cache, q_fp8, weights, block_table, lens, topk_indices)


def slots(row: torch.Tensor, entry: torch.Tensor) -> torch.Tensor:
    """Physical slots of a request's entries."""
    return row.long()[entry // PAGE] * PAGE + entry % PAGE


def check(
    kv_cache: torch.Tensor,
    q_fp8: torch.Tensor,
    weights: torch.Tensor,
    block_table: torch.Tensor,
    lens: torch.Tensor,
    chosen: torch.Tensor,
) -> None:
    """Print how many of the ids are among the best of scores computed in plain torch."""
    spec = IndexerSpec(format="fp8", layout="p8")  # type: ignore[arg-type]
    logits = reference.paged_mqa_logits(
        exact((q_fp8.view(torch.uint8), torch.ones(3, HEADS)), spec),
        weights,
        kv_cache.as_strided((PAGES, spec.page_bytes), (kv_cache.stride(0), 1)),
        block_table,
        torch.arange(3),
        torch.zeros(3, dtype=torch.int32),
        lens,
        WIDTH * PAGE,
        spec,
    )
    for row, length in enumerate(lens.tolist()):
        count = min(length, TOPK)
        best = set(logits[row].topk(count).indices.tolist())
        right = len(best & set(chosen[row, :count].tolist()))
        print(f"request {row}: {length} entries, {right} of {count} selected as by plain torch")


if __name__ == "__main__":
    main()
