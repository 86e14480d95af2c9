# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of other systems' indexers over this package: one module per system.

Names, argument order, shapes, dtypes and masking rules are theirs; what is computed is the contract
of `dsv4_iree.reference`. `compat.serve` says which Indexer a call gets.
"""

from __future__ import annotations

from typing import NamedTuple

NATIVE, CONVERTED, TORCH = "native", "converted", "torch"
"""native: our op reads the caller's tensors. converted: a layout is converted or a result
rearranged around our op. torch: plain torch alone. What is refused of a function raises, with the
reason."""

TARGETS = ("cpu", "gfx942", "gfx950", "cuda")


class Offer(NamedTuple):
    """One function of one system, and how it runs on each of TARGETS."""

    system: str
    function: str
    cpu: str
    gfx942: str
    gfx950: str
    cuda: str
    note: str = ""


def _everywhere(system: str, function: str, how: str, note: str = "") -> Offer:
    return Offer(system, function, how, how, how, how, note)


TABLE = (
    _everywhere("deepgemm", "fp8_fp4_mqa_logits", NATIVE, "max_seqlen_k, bf16, MXFP8: converted"),
    _everywhere("deepgemm", "fp8_fp4_paged_mqa_logits", NATIVE, "bf16, MXFP8: converted"),
    _everywhere("deepgemm", "fp8_mqa_logits", NATIVE),
    _everywhere("deepgemm", "fp8_paged_mqa_logits", NATIVE),
    _everywhere("deepgemm", "get_paged_mqa_logits_metadata", TORCH, "a schedule nothing reads"),
    _everywhere("deepgemm", "get_mqa_logits_metadata", TORCH, "a schedule nothing reads"),
    _everywhere("deepgemm_sparse", "fp8_fp4_sparse_mqa_logits", CONVERTED, "blocks as pages"),
    _everywhere("deepgemm_sparse", "fp8_fp4_paged_sparse_mqa_logits", CONVERTED, "blocks gathered"),
    _everywhere("deepgemm_sparse", "get_sparse_mqa_logits_metadata", TORCH),
    _everywhere("deepgemm_sparse", "get_paged_sparse_mqa_logits_metadata", TORCH),
    _everywhere("tokenspeed", "deepseek_v4_prepare_indexer_q_mxfp4", NATIVE, "profile D, rotated"),
    _everywhere("tokenspeed", "write_deepseek_v4_indexer_mxfp4_cache", NATIVE, "profile D"),
    _everywhere(
        "tokenspeed", "write_deepseek_v4_indexer_fp8_cache", CONVERTED, "quantised in torch"
    ),
    _everywhere("tokenspeed", "indexer_mxfp4_paged_gather", CONVERTED, "keeps rows past the last"),
    _everywhere("tokenspeed", "deepseek_v4_gather_indexer_mxfp4_cache", NATIVE),
    _everywhere("tokenspeed", "gather_paged_indexer_fp8_cache", NATIVE),
    _everywhere("tokenspeed", "persistent_topk", CONVERTED, "short rows in ascending order"),
    _everywhere("tokenspeed", "indexer_topk_prefill", CONVERTED, "short rows in ascending order"),
    _everywhere("tokenspeed", "cute_dsl_decode_topk", CONVERTED, "short rows in ascending order"),
    _everywhere("tokenspeed", "_indexer_topk_reference", CONVERTED, "unquantised"),
    _everywhere("tokenspeed", "compute_global_topk_indices_and_lens", TORCH),
    _everywhere("xkernels", "dsa_indexer_logits", NATIVE, "bf16; fp16 and fp32 in torch"),
    _everywhere("xkernels", "dsa_indexer_topk", CONVERTED, "masked columns follow"),
    _everywhere("xkernels", "mxfp4_paged_gather", CONVERTED, "rows picked in torch"),
    _everywhere("aiter", "flydsl_pa_mqa_logits_fp4", CONVERTED, "F4 pages to N4"),
    _everywhere("aiter", "flydsl_pa_mqa_logits_fp4_prefill", CONVERTED, "F4 pages to N4"),
    _everywhere("aiter", "deepgemm_fp8_paged_mqa_logits", NATIVE),
    _everywhere("aiter", "fp8_mqa_logits", NATIVE, "two dialects: converted"),
    _everywhere("aiter", "top_k_per_row_prefill", CONVERTED, "NaN never chosen"),
    _everywhere("aiter", "top_k_per_row_decode", CONVERTED, "NaN never chosen"),
    _everywhere("aiter", "indexer_k_quant_and_cache", NATIVE, 'scale_fmt not "ue8m0": torch'),
    _everywhere("aiter", "cp_gather_indexer_k_quant_cache", CONVERTED),
    _everywhere("aiter", "flydsl_pa_mqa_logits_fp4_varqlen", CONVERTED, "F4 pages to N4"),
    _everywhere("aiter", "compute_varqlen_windows", TORCH),
    _everywhere(
        "aiter_mxfp4",
        "paged_mxfp4_mqa_logits",
        NATIVE,
        "candidates, split scales, scale_mode 0: converted",
    ),
    _everywhere("aiter_mxfp4", "build_candidate_gather", TORCH),
    _everywhere("aiter_rotate", "rope_rotate_activation", CONVERTED, "scales turned; FP8: torch"),
    _everywhere(
        "aiter_rotate",
        "rmsnorm_rope_rotate_activation_fp4quant_kvcache",
        CONVERTED,
        "norm and RoPE in torch",
    ),
    _everywhere("vllm", "fused_indexer_q_rope_quant", NATIVE, "e4m3fnuz: torch"),
    _everywhere(
        "vllm", "indexer_k_quant_and_cache", NATIVE, 'e4m3fnuz, scale_fmt not "ue8m0": torch'
    ),
    _everywhere("vllm", "cp_gather_indexer_k_quant_cache", CONVERTED),
    _everywhere("vllm", "rocm_fp8_mqa_logits", NATIVE, "two dialects: converted"),
    _everywhere("vllm", "rocm_fp8_paged_mqa_logits", NATIVE),
    _everywhere("vllm", "top_k_per_row_prefill", CONVERTED, "short rows in ascending order"),
    _everywhere("vllm", "top_k_per_row_decode", CONVERTED, "short rows in ascending order"),
    _everywhere("vllm", "fill_short_context_topk_indices", TORCH),
    _everywhere("vllm", "rocm_aiter_sparse_attn_indexer", CONVERTED, "metadata is an argument"),
    _everywhere("sglang", "quantize_fp4_indexer_tensor", NATIVE, "profile S, rne: S2"),
    _everywhere("sglang", "store_fp4_index_k_cache", NATIVE, "profile S, rne: S2"),
    _everywhere("sglang", "store_fp4_index_k_cache_split", NATIVE, "profile S, rne: S2"),
    _everywhere("sglang", "get_index_k_fp4", NATIVE),
    _everywhere("sglang", "get_index_k_fp4_split", NATIVE),
    _everywhere("sglang", "get_index_k_dequant", NATIVE),
    _everywhere("sglang", "topk_transform_512", CONVERTED, "slots in torch"),
)
"""Every public function of the modules here."""
