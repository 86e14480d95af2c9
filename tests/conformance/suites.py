"""The sweeps of the public suites as data, and the rule that makes them small.

Sizes: rows are capped at 32, keys of a row at 512, requests at 8 and cached requests' lengths are
divided by the least power of two that brings the longest to at most 512 (`shrunk`); what a case
says about windows, next_n, heads, page sizes and k is kept. Of a full product of axes a fixed
sample is taken that has every value of every axis (`sample`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random

ROWS, KEYS, REQUESTS = 32, 512, 8


def shrunk(lengths: Sequence[int], longest: int = KEYS) -> list[int]:
    """Lengths divided by one power of two, never to zero unless they were."""
    by = 1
    while max(lengths) // by > longest:
        by *= 2
    return [max(1, length // by) if length else 0 for length in lengths]


def sample(cases: int, **axes: Sequence[object]) -> list[dict[str, object]]:
    """`cases` points of a product of axes, the same ones on every run, all values among them."""
    points = [dict(zip(axes, values)) for values in product(*axes.values())]
    taken = Random(0).sample(points, cases)
    for name, values in axes.items():
        assert {str(point[name]) for point in taken} == {str(value) for value in values}, name
    return taken


# DeepGEMM, tests/test_attention.py; diff bound 5e-6, 3e-5 with bf16 logits or weights
DEEPGEMM = {"fp32": 5e-6, "bf16": 3e-5}
DEEPGEMM_PREFILL = sample(
    12,
    heads=(8, 16, 32, 64),
    kind=("fp4", "fp8"),
    window=("causal", "context parallel"),
    compressed=(False, True),
    dtypes=(("fp32", "fp32"), ("bf16", "fp32"), ("bf16", "bf16")),  # logits, weights
)
DEEPGEMM_PAGED = sample(
    10,
    page=(32, 64),
    next_n=(1, 6, "varlen"),
    heads=(8, 64),
    kind=("fp4", "fp8"),
    dtypes=(("fp32", "fp32"), ("bf16", "fp32"), ("bf16", "bf16")),
    lens=("2-D", "1-D"),
)
DEEPGEMM_MXFP8 = sample(  # its FP8 with a scale per 32 dims
    6,
    heads=(8, 32, 64),
    dim=(64, 128),
    compressed=(False, True),
    dtypes=(("fp32", "fp32"), ("bf16", "fp32"), ("bf16", "bf16")),
)
DEEPGEMM_MXFP8_PAGED = sample(6, page=(32, 64, 128), next_n=(1, 6, "varlen"), heads=(8, 32))
DEEPGEMM_OLD = [(1, 32), (2, 64), (4, 64), (1, 64)]  # next_n, page; fp8, 1-D lengths, clean

# vLLM, test_fused_indexer_q_rope_quant.py: bytes, scales and weights bit for bit
VLLM_QUERIES = (1, 7, 32, 257)  # tokens; 64 heads

# AITER, op_tests/test_flydsl_pa_mqa_logits_fp4*.py; cosine above 0.99, -inf past the context
FLYDSL = 0.99
FLYDSL_DECODE = [  # requests, longest context, next_n, heads
    (2, 512, 1, 64), (3, 1024, 1, 64), (2, 512, 2, 64), (2, 768, 1, 128), (4, 2048, 1, 64),
]  # fmt: skip
FLYDSL_PREFILL = [  # windows of each request
    [[(0, 50), (0, 120), (0, 200)], [(0, 40), (0, 100)]],
    [[(0, 30)], [(0, 200)], [(0, 100), (0, 150)]],
    [[(0, 16), (0, 200)], [(0, 64), (0, 128)]],
    [[(10, 50), (64, 200)], [(0, 100), (130, 256)]],
]
FLYDSL_VARLEN = [  # queries and contexts of each request
    ([3, 1, 2], [512, 320, 768]), ([10, 1, 5, 2], [1024, 256, 2048, 512]),
    ([2, 0, 3], [384, 256, 640]), ([4, 3], [512, 768]),
]  # fmt: skip

# AITER, Gluon MXFP4 scorer; calc_diff 1e-12 against the dequantised reference
GLUON = 1e-12
GLUON_DECODE = {  # next_n and contexts
    "b1": (1, [1047]),
    "b8": (1, [2048, 1024, 4096, 512, 3000, 777, 64, 129]),
    "n2": (2, [1024, 2048, 999, 100]),
    "n6": (6, [2048, 1500, 601, 64]),
    "n7": (7, [3000, 64]),
    "n8": (8, [4096, 513, 64]),
    "tiny": (1, [1, 33, 64]),
    "ragged n3": (3, [97, 4096, 1, 2049, 512]),
    "short n16": (16, [8, 12, 4, 16]),
}

GLUON_GATHER = [  # heads, page, preshuffle, block; bit for bit what the dense scorer gives
    (8, 64, 0, 8), (32, 64, 1, 8), (32, 32, 1, 16), (64, 64, 0, 32), (32, 64, 1, 32),
]  # fmt: skip

# AITER, fp8_mqa_logits; calc_diff below 1e-3
AITER_FP8 = 1e-3
AITER_FP8_SIZES = [
    (1, 1), (1, 16), (1, 113), (17, 76), (61, 113), (61, 1024), (128, 1024), (1024, 1024),
    (1024, 1560), (64, 8192),
]  # fmt: skip

# AITER, op_tests/test_dsv4_rotate_quant.py: FP8 output, scales to 1e-3
ROTATED_FP8_CASES = [  # tokens, heads, dim, group
    (1, 64, 128, 128), (7, 16, 128, 128), (5, 16, 256, 128), (5, 8, 128, 64), (9, 8, 128, 32),
]  # fmt: skip

# AITER, top_k_per_row: the set, or values within 1e-5
TOPK = 1e-5
TOPK_CONTEXTS = (8, 128, 1024, 3072, 4096, 8192, 16384)
TOPK_K = (512, 1024, 2048)

# xkernels: logits to 2e-2 (bf16) or 1e-3 (fp32, fp16); ids as sets
XKERNELS = {"bfloat16": 2e-2, "float32": 1e-3, "float16": 1e-3}
XKERNELS_LOGITS = [(4, 16, 32, 96), (2, 64, 128, 128), (3, 32, 64, 200)]  # T, H, D, K
XKERNELS_TOPK = [  # T, H, D, K, k, masked, dtype
    (4, 16, 64, 96, 8, False, "bfloat16"), (1, 64, 128, 128, 16, False, "bfloat16"),
    (37, 5, 64, 200, 32, True, "bfloat16"), (8, 32, 128, 256, 64, False, "float16"),
    (4, 16, 64, 96, 8, False, "float32"), (2, 32, 128, 256, 64, True, "float32"),
    (2, 64, 128, 1024, 512, True, "bfloat16"),
]  # fmt: skip
XKERNELS_GATHER = [(8, 16, 128, 2, 12), (6, 8, 64, 3, 5), (4, 32, 256, 1, 20)]  # NB, P, D, S, k
