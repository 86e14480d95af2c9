"""The table of compat functions against the modules, and the refusals."""

from __future__ import annotations

import importlib
import importlib.resources
import inspect
import json
import subprocess
import sys

import pytest
import torch

from dsv4_iree import ArgumentError, compat
from dsv4_iree.compat import aiter_mxfp4, aiter_rotate, deepgemm, deepgemm_sparse, keys, serve

SYSTEMS = sorted({offer.system for offer in compat.TABLE})


def functions(system: str) -> dict[str, object]:
    module = importlib.import_module(f"dsv4_iree.compat.{system}")
    own = inspect.getmembers(module, inspect.isfunction)
    return {name: f for name, f in own if f.__module__ == module.__name__}


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_function_is_in_the_table_once(system: str) -> None:
    offered = [offer.function for offer in compat.TABLE if offer.system == system]
    assert len(offered) == len(set(offered))
    public = {name for name in functions(system) if not name.startswith("_")}
    assert public <= set(offered) <= set(functions(system))
    assert all(f.__doc__ for name, f in functions(system).items() if name in offered)


def test_modules_without_a_row_are_shared_parts() -> None:
    names = {path.stem for path in importlib.resources.files("dsv4_iree.compat").iterdir()}
    assert names - {"__init__", "__pycache__"} == {*SYSTEMS, "serve", "keys", "mxfp8"}


def test_words_of_the_table_are_known() -> None:
    known = {compat.NATIVE, compat.CONVERTED, compat.TORCH}
    for offer in compat.TABLE:
        assert set(offer[2:6]) <= known, offer
    assert compat.Offer._fields[2:6] == compat.TARGETS


def test_info_prints_the_table() -> None:
    command = [sys.executable, "-m", "dsv4_iree", "info", "--compat"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert len(text.splitlines()) == len(compat.TABLE) + 1
    assert text.split()[:6] == ["system", "function", *compat.TARGETS]
    rows = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
    assert [tuple(row.values()) for row in json.loads(rows)] == [tuple(o) for o in compat.TABLE]


SIGNATURES = {  # argument names in order, as published
    "deepgemm.fp8_fp4_mqa_logits": "q kv weights cu_seq_len_k_start cu_seq_len_k_end clean_logits "
    "max_seqlen_k logits_dtype schedule_meta",
    "deepgemm.fp8_fp4_paged_mqa_logits": "q kv_cache weights context_lens block_table "
    "schedule_meta max_context_len clean_logits logits_dtype indices",
    "deepgemm_sparse.fp8_fp4_sparse_mqa_logits": "q kv weights metadata num_max_sparse_blocks "
    "sparse_block_kv use_unaligned_ks",
    "deepgemm_sparse.get_sparse_mqa_logits_metadata": "cu_seq_len_k_start cu_seq_len_k_end "
    "num_kv_tokens sparse_kv_block_indices qk_dtype sparse_block_kv use_unaligned_ks",
    "deepgemm_sparse.get_paged_sparse_mqa_logits_metadata": "context_lens block_table indices "
    "page_kv sparse_kv_block_indices qk_dtype sparse_block_kv",
    "deepgemm.get_paged_mqa_logits_metadata": "context_lens block_kv num_sms indices",
    "tokenspeed.deepseek_v4_prepare_indexer_q_mxfp4": "index_q positions cos_sin_cache weights "
    "softmax_scale head_scale",
    "vllm.fused_indexer_q_rope_quant": "positions index_q index_q_cos_sin_cache index_weights "
    "index_weights_softmax_scale index_weights_head_scale use_fp4",
    "tokenspeed.indexer_mxfp4_paged_gather": "kv_cache values_out scales_out block_table "
    "cu_seq_lens cache_block_size",
    "tokenspeed.persistent_topk": "logits lengths output workspace k max_seq_len q_len_per_req",
    "xkernels.dsa_indexer_topk": "q k weights topk lengths row_starts backend",
    "xkernels.mxfp4_paged_gather": "kv_packed kv_scale block_table sel_pos block_size group_size "
    "out_dtype backend",
    "aiter.fp8_mqa_logits": "Q KV kv_scales weights cu_starts cu_ends clean_logits",
    "aiter.deepgemm_fp8_paged_mqa_logits": "q_fp8 kv_cache weights out_logits context_lens "
    "kv_indices max_model_len Preshuffle KVBlockSize ChunkK TotalCuCount WavePerEU VarCtxSchedule",
    "aiter_mxfp4.paged_mxfp4_mqa_logits": "q q_scales kv_cache weights context_lens block_table "
    "max_model_len kv_scale_cache out_logits clean_logits preshuffle scale_mode dynamic schedule "
    "row_ends query_start_loc next_n use_gather candidates block_scores calc_logits "
    "calc_block_scores candidate_block_size",
    "aiter.flydsl_pa_mqa_logits_fp4_varqlen": "q_fp4 q_scale kv_cache kv_scale block_tables "
    "weights max_seq_len cu_seq_q context_lens windows weight_scale block_k kv_block_size "
    "num_warps parallel_unit_num out cta_info n_ctas stream",
    "aiter.compute_varqlen_windows": "cu_seq_q context_lens total_q out",
    "aiter_mxfp4.build_candidate_gather": "candidates ends block_table kv_cache num_heads "
    "head_size block kv_scale_cache",
    "aiter_rotate.rope_rotate_activation": "out input cos sin positions rope_dim out_scale "
    "group_size shuffle_scale do_rotate_act",
    "vllm.rocm_fp8_paged_mqa_logits": "q_fp8 kv_cache_fp8 weights context_lens block_tables "
    "schedule_metadata max_model_len",
    "sglang.topk_transform_512": "scores seq_lens page_tables out_page_indices page_size "
    "out_raw_indices",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_have_the_published_names_and_order(name: str) -> None:
    system, function = name.split(".")
    parameters = inspect.signature(functions(system)[function]).parameters
    assert list(parameters) == SIGNATURES[name].split()


E4M3 = torch.float8_e4m3fn
Q8, K8, W, END = torch.zeros(2, 8, 128).to(E4M3), torch.zeros(5, 128).to(E4M3), torch.ones(2, 8), \
    torch.ones(2, dtype=torch.int32)  # fmt: skip
REFUSED = {
    "bf16 weights with fp32 logits": (
        lambda: deepgemm.fp8_mqa_logits(Q8, (K8, torch.ones(5)), W.bfloat16(), END, END),
        r"^weights: expected dtype float32, or bfloat16 with bfloat16 logits, got",
    ),
    "compressed and clean": (
        lambda: deepgemm.fp8_mqa_logits(Q8, (K8, torch.ones(5)), W, END, END, True, 4),
        r"^clean_logits: expected False with max_seqlen_k=4, got True;",
    ),
    "two dialects": (
        lambda: deepgemm.fp8_mqa_logits(
            Q8, (torch.zeros(5, 128).to(torch.float8_e4m3fnuz), torch.ones(5)), W, END, END
        ),
        r"^kv: expected the dtype of q, torch.float8_e4m3fn, got torch.float8_e4m3fnuz$",
    ),
    "MXFP8 in e4m3fnuz": (
        lambda: deepgemm.fp8_fp4_mqa_logits(
            (Q8.view(torch.float8_e4m3fnuz), END[:, None]), (K8, torch.ones(5).int()), W, END, END
        ),
        r"^q: expected dtype float8_e4m3fn beside e8m0 scales, got torch.float8_e4m3fnuz$",
    ),
    "MXFP8 queries, FP8 keys": (
        lambda: deepgemm.fp8_fp4_mqa_logits(
            (Q8, END[:, None].expand(2, 8)), (K8, torch.ones(5)), W, END, END
        ),
        r"^kv scales: expected int32 or uint8 of 4 groups a vector, got \[5\] of torch.float32$",
    ),
    "another page": (
        lambda: deepgemm.fp8_paged_mqa_logits(
            Q8[:, None], torch.zeros(3, 64, 1, 68).byte(), W, END, END[:, None], None, 64
        ),
        r"^kv_cache: expected shape \[pages, P, 1, 132\] for head_dim 128 in format fp8, got",
    ),
    "bytes of no dialect": (
        lambda: deepgemm.fp8_mqa_logits(
            Q8.view(torch.uint8), (K8, torch.ones(5)), W, END, END
        ),
        r"^q: expected dtype float8_e4m3fn or float8_e4m3fnuz, got torch.uint8; view the bytes",
    ),
    "candidates without use_gather": (
        lambda: aiter_mxfp4.paged_mxfp4_mqa_logits(*[torch.empty(0)] * 6, 8, candidates=END),
        r"^candidates: expected a list with use_gather=True, and only then$",
    ),
    "candidates of packed rows": (
        lambda: aiter_mxfp4.paged_mxfp4_mqa_logits(
            *[torch.empty(0)] * 6, 8, use_gather=True, candidates=END, query_start_loc=END
        ),
        r"^use_gather: expected False with query_start_loc or calc_block_scores, got True$",
    ),
    "nothing to calculate": (
        lambda: aiter_mxfp4.paged_mxfp4_mqa_logits(*[torch.empty(0)] * 6, 8, calc_logits=False),
        r"^calc_logits: expected True without calc_block_scores or with out_logits, got False$",
    ),
    "blocks that pages do not hold": (
        lambda: aiter_mxfp4.build_candidate_gather(
            END[:, None], END, END[:, None], torch.empty(3, 60, 1, 68), 64, 128
        ),
        r"^block: expected a divisor of 60, got 8$",
    ),
    "MXFP4 in groups of 128": (
        lambda: aiter_rotate.rope_rotate_activation(
            torch.empty(1, 8, 64).byte(), torch.ones(1, 8, 128), torch.ones(3, 32),
            torch.ones(3, 32), torch.zeros(1), 64, out_scale=torch.ones(8).byte(),
        ),
        r"^group_size: expected 32 for MXFP4, got 128$",
    ),
    "sparse FP8 without scales": (
        lambda: deepgemm_sparse.fp8_fp4_sparse_mqa_logits(
            (Q8, None), (K8, torch.ones(5)), W.bfloat16(), END, 4, 8
        ),
        r"^q: expected int32 scales beside the values, got None$",
    ),
    "metadata of another call": (
        lambda: deepgemm_sparse.fp8_fp4_sparse_mqa_logits(
            (Q8.view(torch.int8)[..., :64], END[:, None].expand(2, 8)), (K8, END), W.bfloat16(),
            END, 4, 8,
        ),
        r"^metadata: expected that of 2 rows of 4 blocks, got 2 bytes$",
    ),
    "sparse blocks of 4": (
        lambda: deepgemm_sparse.fp8_fp4_sparse_mqa_logits(
            (Q8.view(torch.int8), END), (K8, END), W.bfloat16(), END, 4, 4
        ),
        r"^sparse_block_kv: expected 8 or 16, got 4$",
    ),
    "sparse fp32 weights": (
        lambda: deepgemm_sparse.fp8_fp4_sparse_mqa_logits(
            (Q8.view(torch.int8), END), (K8, END), W, END, 4, 8
        ),
        r"^weights: expected dtype bfloat16, got torch.float32$",
    ),
    "pages that blocks do not fill": (
        lambda: deepgemm_sparse.get_paged_sparse_mqa_logits_metadata(
            END, END[:, None], None, 60, END[:, None], torch.int8, 8
        ),
        r"^page_kv: expected a multiple of sparse_block_kv=8, got 60$",
    ),
    "a split cache of another shape": (
        lambda: keys.split_spec(torch.empty(3, 64, 64)),
        r"^payload: expected shape \[pages, D/128, 4, P, 16\], got \[3, 64, 64\]$",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals_name_the_argument(call, words: str) -> None:
    serve.use(backend="reference")
    with pytest.raises(ArgumentError, match=words):
        call()
    serve.use()


def test_an_indexer_is_loaded_once_per_spec_device_and_thread() -> None:
    serve.use(backend="reference")
    cpu = torch.device("cpu")
    first = serve.indexer(cpu, topk=8)
    assert serve.indexer(cpu, topk=8) is first
    assert serve.indexer(cpu, topk=16) is not first
    serve.use(backend="reference")
    assert serve.indexer(cpu, topk=8) is not first
    serve.use()
