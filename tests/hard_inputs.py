"""Vectors on which quantising, dequantising and scoring go wrong."""

from __future__ import annotations

import math

import torch


def every_code() -> tuple[torch.Tensor, torch.Tensor]:
    """Values and scales of 256 vectors in which every code meets every scale byte."""
    code = torch.arange(16)
    group_bytes = (code | (7 * code + 3) % 16 << 4).to(torch.uint8)
    values = group_bytes.repeat(4).expand(256, 64).contiguous()
    scales = (torch.arange(256)[:, None] + torch.tensor([0, 64, 128, 192])) % 256
    return values, scales.to(torch.uint8)


def hard_vectors(dim: int, dtype: torch.dtype) -> torch.Tensor:
    """Vectors of every magnitude, ties, boundaries of the scale, zeros, NaN and infinity."""
    random = torch.Generator().manual_seed(7)
    exponents = torch.arange(-149, 126, dtype=torch.float64)[:, None]
    spread = torch.randn(275, dim, generator=random).double() * 2**exponents
    mixed = torch.randn(64, dim, generator=random).double()
    mixed *= 2.0 ** torch.randint(-30, 30, (64, dim), generator=random)
    grid = torch.tensor([0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 448])
    ties = grid[torch.randint(len(grid), (64, dim), generator=random)].double()
    ties *= torch.randint(2, (64, dim), generator=random) * 2 - 1
    ties *= 2.0 ** torch.randint(-20, 20, (64, 1), generator=random)
    ties[:, 0] = torch.copysign(6 * ties[:, 0].abs().amax(), ties[:, 0])
    finite = torch.cat([spread, mixed, ties]).float()
    edges = torch.tensor([6.0, 3.0, 1.0, 448.0, 240.0, 6e-4, 1e-4]).repeat_interleave(3)
    edges = torch.nextafter(edges, torch.tensor([0.0, math.inf, 0.0]).repeat(7))
    edges[2::3] = torch.tensor([6.0, 3.0, 1.0, 448.0, 240.0, 6e-4, 1e-4])
    special = torch.zeros(8, dim)
    special[1] = -0.0
    special[2, 5], special[3, 6], special[4, 7] = math.nan, math.inf, -math.inf
    special[5] = -(2.0**-149)
    special[6, ::2], special[7] = torch.finfo(torch.float32).max, 2.0**-127
    return torch.cat([finite, edges[:, None] * torch.ones(dim), special]).to(dtype)


def random_bits(count: int, dim: int, seed: int) -> torch.Tensor:
    """Vectors of one magnitude or many, at ties, near them and anywhere; NaN and infinity too."""
    random = torch.Generator().manual_seed(seed)
    draw = lambda high, *shape: torch.randint(high, shape, generator=random).int()  # noqa: E731
    exponent = (draw(256, count, 1) - draw(2**30, count, dim) % (draw(40, count, 1) + 1)).clamp(0)
    mantissa = draw(2**23, count, dim) & ~((1 << draw(24, count, 1)) - 1)
    bits = exponent << 23 | mantissa
    moved = (bits + draw(5, count, dim) - 2).clamp(0, 0x7FFFFFFF)
    bits = torch.where(draw(2, count, dim) == 1, bits, moved)
    return (bits | draw(2, count, dim) << 31).view(torch.float32)


def scaled_vectors(
    shape: tuple[int, ...], scales: range, random: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random FP4 vectors of 128 dims with scale bytes from a range."""
    values = torch.randint(0, 256, (*shape, 64), generator=random, dtype=torch.uint8)
    return values, torch.randint(scales.start, scales.stop, (*shape, 4), generator=random).byte()


def assert_rows_close(logits: torch.Tensor, expected: torch.Tensor, bound: float = 1e-5) -> None:
    """NaN and infinities where they are expected, and each row close by its own largest logit."""
    assert torch.equal(logits.isnan(), expected.isnan())
    assert torch.equal(logits.isinf(), expected.isinf())
    for row in range(len(expected)):  # their magnitudes are far apart
        finite = expected[row].isfinite()
        own, other = logits[row][finite].double(), expected[row][finite].double()
        if len(other):
            assert (own - other).abs().max() <= max(bound * other.abs().max(), 1e-43)


SCALES = [
    (range(125, 128), range(60, 194)),
    (range(60, 194), range(125, 128)),
    (range(256), range(4)),
    (range(4), range(256)),
    (range(3), range(250, 255)),
    (range(252, 256), range(3)),
    (range(1), range(1)),
]
"""Bytes of query and of key scales that are drawn from, together: every extreme byte is met."""
