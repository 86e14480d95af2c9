"""Ordinary programs for IREE to compile, with inputs and the results torch gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

BF16, F16 = torch.bfloat16, torch.float16


class Function(torch.nn.Module):
    """A function as a module, as the exporter wants it."""

    def __init__(self, f: Callable[..., object]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *args: torch.Tensor) -> object:
        return self.f(*args)


@dataclass(frozen=True)
class Program:
    """`tolerance` is relative to the largest magnitude of the result; 0 means equal."""

    name: str
    f: Callable[..., object]
    inputs: Callable[[torch.Generator], tuple[torch.Tensor, ...]]
    tolerance: float = 0.0
    dynamic: tuple[dict[int, str] | None, ...] = ()


def randn(*shape: int, dtype: torch.dtype = torch.float32):
    return lambda g: torch.randn(*shape, generator=g).to(dtype)


def integers(low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64):
    return lambda g: torch.randint(low, high, shape, generator=g).to(dtype)


def given(*makers):
    return lambda g: tuple(make(g) for make in makers)


def matmul(a, b):
    return a @ b


def matmul_i8(a, b):
    return a.to(torch.int32) @ b.to(torch.int32)


def logits(q, k, weights):
    """sum over heads of weight * relu(q . k)."""
    t, h, d = q.shape
    score = torch.relu((q.reshape(t * h, d) @ k.t()).float()).reshape(t, h, k.shape[0])
    return (weights.unsqueeze(-1) * score).sum(1)


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def quantize_i8(x):
    scale = x.abs().amax(-1, keepdim=True) / 127.0
    return torch.round(x / scale).clamp(-128, 127).to(torch.int8), scale


def top_by_bisection(x):
    """The 16 largest of each row as a mask, by halving an interval of values; no sort."""
    low, high = x.amin(-1, keepdim=True) - 1, x.amax(-1, keepdim=True)
    for _ in range(24):
        middle = (low + high) / 2
        enough = (x > middle).to(torch.int32).sum(-1, keepdim=True) >= 16
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
    return (x > low).to(torch.int32)


def scatter(x, index, update):
    return x.index_put((index,), update)


def convolution(x, weight):
    return torch.nn.functional.conv2d(x, weight, padding=1)


def attention(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def unpack_fp4(packed):
    """Two nibbles a byte through a table of values, as a block of bf16."""
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    low, high = table[(packed & 15).long()], table[(packed >> 4).long()]
    return torch.stack([low, high], -1).flatten(-2)


PROGRAMS = (
    Program(
        "matmul_f16", matmul, given(randn(128, 256, dtype=F16), randn(256, 128, dtype=F16)), 2e-3
    ),
    Program(
        "matmul_bf16", matmul, given(randn(128, 256, dtype=BF16), randn(256, 128, dtype=BF16)), 1e-2
    ),
    Program("matmul_f32", matmul, given(randn(64, 128), randn(128, 64)), 1e-5),
    Program(
        "matmul_i8",
        matmul_i8,
        given(
            integers(-128, 128, 64, 128, dtype=torch.int8),
            integers(-128, 128, 128, 64, dtype=torch.int8),
        ),
    ),
    Program(
        "logits_bf16",
        logits,
        given(randn(4, 64, 128, dtype=BF16), randn(256, 128, dtype=BF16), randn(4, 64)),
        1e-2,
    ),
    Program(
        "matmul_dynamic",
        matmul,
        given(randn(37, 96), randn(96, 45)),
        1e-5,
        ({0: "m"}, {1: "n"}),
    ),
    Program("softmax", lambda x: torch.softmax(x, -1), given(randn(16, 1024)), 1e-5),
    Program("attention_f16", attention, given(*[randn(1, 4, 128, 64, dtype=F16)] * 3), 4e-3),
    Program("sum_rows", lambda x: x.sum(-1), given(randn(33, 777)), 1e-5),
    Program("rms_norm", rms_norm, given(randn(16, 1024), randn(1024)), 1e-5),
    Program(
        "silu",
        lambda a, b: torch.nn.functional.silu(a) * b,
        given(randn(8, 1024), randn(8, 1024)),
        1e-5,
    ),
    Program("quantize_i8", quantize_i8, given(randn(16, 512)), 1e-6),
    Program(
        "gather", lambda x, i: torch.gather(x, 1, i), given(randn(8, 512), integers(0, 512, 8, 64))
    ),
    Program("embedding", lambda t, i: t[i], given(randn(100, 64), integers(0, 100, 40))),
    Program(
        "scatter",
        scatter,
        given(randn(64, 16), lambda g: torch.randperm(64, generator=g)[:8], randn(8, 16)),
    ),
    Program("argmax", lambda x: torch.argmax(x, -1), given(randn(8, 1000))),
    Program("cumsum", lambda x: torch.cumsum(x, 0), given(integers(0, 9, 64, 16))),
    Program("convolution", convolution, given(randn(1, 16, 16, 16), randn(32, 16, 3, 3)), 1e-5),
    Program("topk", lambda x: torch.topk(x, 64), given(randn(4, 256))),
    Program("top_by_bisection", top_by_bisection, given(randn(4, 1000))),
    Program("unpack_fp4", unpack_fp4, given(integers(0, 256, 64, 32, dtype=torch.uint8))),
    Program(
        "integer_division",
        lambda a, b: (a // b, a % b),
        given(integers(-5000, 5000, 512), integers(1, 90, 512)),
    ),
    Program("float_division", lambda a, b: a / b, given(randn(4096), randn(4096)), 1e-6),
    Program("exp_log", lambda x: torch.log1p(torch.exp(x)), given(randn(4096)), 1e-5),
)
