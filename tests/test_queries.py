"""quantize_queries: RoPE against complex float64, the rounding points of public systems written
out, then the compiled form against the reference, byte for byte."""

from __future__ import annotations

import math

import pytest
import torch
from hard_inputs import hard_vectors

from dsv4_iree import ArgumentError, IndexerSpec, baseline
from dsv4_iree.formats import hadamard, rope
from dsv4_iree.spec import Intermediate, Rounding
from dsv4_iree.testing import assert_bytes_equal

pytestmark = pytest.mark.gpu
HEADS = 8
SPECS = {
    "R": IndexerSpec(num_heads=HEADS),
    "R-hadamard": IndexerSpec(num_heads=HEADS, hadamard=True),
    "D-hadamard": IndexerSpec(num_heads=HEADS, rounding="d", hadamard=True),
    "S": IndexerSpec(num_heads=HEADS, rounding="s"),
    "S2": IndexerSpec(num_heads=HEADS, rounding="s2"),
    "R-dim64": IndexerSpec(num_heads=HEADS, head_dim=64),
    "R-dim32-hadamard": IndexerSpec(num_heads=HEADS, head_dim=32, hadamard=True),
    "S2-dim256-heads3": IndexerSpec(num_heads=3, head_dim=256, rounding="s2", hadamard=True),
    "fp8": IndexerSpec(num_heads=HEADS, format="fp8", layout="n8"),
    "fp8-hadamard": IndexerSpec(num_heads=HEADS, format="fp8", layout="n8", hadamard=True),
    "fnuz-dim96": IndexerSpec(num_heads=5, head_dim=96, format="fp8-fnuz", layout="n8"),
}
POSITIONS = 4096
by_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
by_intermediate = pytest.mark.parametrize("between", Intermediate, ids=lambda i: i.name)


def table(dims: int, dtype: torch.dtype = torch.float32, theta: float = 160000.0) -> torch.Tensor:
    """cos and sin of positions 0 .. 4095, and of one at 2^20."""
    frequency = theta ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)
    position = torch.tensor([*range(POSITIONS - 1), 2**20], dtype=torch.float64)
    angle = position[:, None] * frequency
    return torch.cat([angle.cos(), angle.sin()], dim=1).to(dtype)


def inputs(spec: IndexerSpec, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Hard vectors as queries, weights of every magnitude, positions in and outside the table."""
    vectors = hard_vectors(spec.head_dim, dtype)
    vectors = vectors[: len(vectors) // spec.num_heads * spec.num_heads]
    q = vectors.view(-1, spec.num_heads, spec.head_dim)
    random = torch.Generator().manual_seed(3)
    weights = torch.randn(q.shape[:2], generator=random)
    weights[1] *= 2.0 ** torch.linspace(-140, 100, spec.num_heads)
    weights[2, :3] = torch.tensor([math.nan, math.inf, -0.0])
    positions = torch.randint(POSITIONS, (len(q),), generator=random)
    positions[:7] = torch.tensor([0, POSITIONS - 1, -1, POSITIONS, 2**40, -(2**63), 1])
    return q, weights.to(dtype), positions


def assert_same(actual: object, expected: object) -> None:
    ((values, scales), weights), ((values_, scales_), weights_) = actual, expected
    for one, other in ((values, values_), (scales, scales_), (weights, weights_)):
        if one.is_floating_point():  # which NaN it is does not matter
            assert torch.equal(one.isnan(), other.isnan())
            one, other = one.nan_to_num(7.0), other.nan_to_num(7.0)
        assert_bytes_equal(one, other)


def test_rope_is_a_product_of_complex_numbers() -> None:
    x = torch.randn(5, 3, 128, dtype=torch.float64)
    positions = torch.tensor([0, 1, 77, POSITIONS - 2, POSITIONS - 1])
    angles = table(64, torch.float64)[positions][:, None]
    turned = torch.view_as_complex(x[..., 64:].unflatten(-1, (-1, 2)).contiguous())
    turned = torch.view_as_real(turned * torch.complex(angles[..., :32], angles[..., 32:]))
    expected = torch.cat([x[..., :64], turned.flatten(-2)], dim=-1)
    actual = rope(x.float(), positions, table(64))
    assert (actual.double() - expected).abs().max() < 1e-6
    assert torch.equal(actual[..., :64], x[..., :64].float())


def test_position_0_turns_nothing_and_a_quarter_turn_swaps_the_pair() -> None:
    x = torch.randn(3, 2, 128)
    quarter = torch.cat([torch.zeros(1, 32), torch.ones(1, 32)], dim=1)
    angles = torch.cat([table(64)[:1], quarter])
    actual = rope(x, torch.tensor([0, 1, 2]), angles)
    assert torch.equal(actual[0], x[0])
    assert torch.equal(actual[1, :, 64::2], -x[1, :, 65::2])
    assert torch.equal(actual[1, :, 65::2], x[1, :, 64::2])
    assert torch.equal(actual[2], x[2])  # outside the table


def plain_rope(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """The formula as public systems write it, in fp32."""
    x, (cos, sin) = x.float().clone(), angles.float()[:, None].chunk(2, dim=-1)
    even, odd = x[..., 64::2].clone(), x[..., 65::2].clone()
    x[..., 64::2], x[..., 65::2] = even * cos - odd * sin, odd * cos + even * sin
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_each_system_rounds_where_it_is_said_to(reference, dtype: torch.dtype) -> None:
    q, weights = torch.randn(33, 8, 128).bfloat16(), torch.randn(33, 8).bfloat16()
    positions, angles = torch.randint(POSITIONS, (33,)), table(64, dtype)
    turned = plain_rope(q, angles[positions])
    steps = {  # system: rounding, rotation, what the quantiser gets
        "vllm": ("r", False, "bf16", turned.bfloat16()),
        "deepseek": ("r", True, "bf16", hadamard(turned.bfloat16())),
        "tokenspeed": ("d", True, "bf16", hadamard(turned.bfloat16())),
        "aiter": ("r", True, "f32", hadamard(turned)),
        "atom": ("r", False, "f32", turned),
    }
    seen = set()
    for rounding, rotated, between, x in steps.values():
        spec = IndexerSpec(num_heads=8, rounding=rounding, hadamard=rotated)
        (values, scales), folded = reference(spec).quantize_queries(
            q, weights, positions=positions, cos_sin=angles, intermediate=between
        )
        plain = IndexerSpec(num_heads=8, rounding=rounding)
        for actual, expected in zip((values, scales), reference(plain).quantize(x.float())):
            assert_bytes_equal(actual, expected)
        assert_bytes_equal(folded, weights.float() * 128**-0.5 * 8**-0.5)
        seen.add(values.numpy().tobytes())
    assert len(seen) == len(steps)


def test_the_scale_of_fp8_queries_moves_into_the_weights(reference) -> None:
    spec = SPECS["fp8"]
    q, weights = torch.randn(3, HEADS, 128) * 100, torch.randn(3, HEADS)
    (values, ones), folded = reference(spec).quantize_queries(q, weights, head_scale=0.25)
    values_, scales = reference(spec).quantize(q.bfloat16())
    assert_bytes_equal(values, values_)
    assert ones.unique().tolist() == [1.0]
    assert_bytes_equal(folded, weights * scales * torch.tensor(128**-0.5) * 0.25)
    end, k = torch.full((3,), 9, dtype=torch.int32), reference(spec).quantize(torch.randn(9, 128))
    plain = weights * torch.tensor(128**-0.5) * 0.25
    torch.testing.assert_close(
        reference(spec).mqa_logits((values, ones), k, folded, None, end),
        reference(spec).mqa_logits((values_, scales), k, plain, None, end),
        rtol=1e-6,
        atol=0,
    )


@by_spec
@by_intermediate
def test_compiled_bytes_equal_the_reference(
    compiled, reference, spec: IndexerSpec, between: Intermediate
) -> None:
    indexer, plain = compiled(spec, "quantize_queries"), reference(spec)
    for dtype in (torch.float32, torch.bfloat16):
        q, weights, positions = inputs(spec, dtype)
        for angles in (table(spec.rope_dim), table(spec.rope_dim, torch.bfloat16), None):
            at = {} if angles is None else {"positions": positions, "cos_sin": angles}
            call = {**at, "intermediate": between}
            assert_same(
                indexer.quantize_queries(q, weights, **call),
                plain.quantize_queries(q, weights, **call),
            )


def test_the_peer_of_the_benchmark_gives_the_same_bytes(compiled) -> None:
    q, weights = torch.randn(33, HEADS, 128).bfloat16(), torch.randn(33, HEADS).bfloat16()
    positions = torch.randint(POSITIONS, (33,))
    pair, folded = compiled(SPECS["R"], "quantize_queries").quantize_queries(
        q, weights, positions=positions, cos_sin=table(64)
    )
    peer = baseline.quantize_queries(q, weights, positions, table(64))
    assert_same((pair, folded), (peer[:2], peer[2]))


@pytest.mark.parametrize("rounding", Rounding, ids=lambda r: r.name)
def test_without_rope_it_is_quantize(reference, rounding: Rounding) -> None:
    spec = IndexerSpec(num_heads=HEADS, rounding=rounding, hadamard=True)
    q = torch.randn(4, HEADS, 128).bfloat16()
    actual, _ = reference(spec).quantize_queries(q, torch.ones(4, HEADS).bfloat16())
    for one, other in zip(actual, reference(spec).quantize(q)):
        assert_bytes_equal(one, other)


def test_rows_and_tables_may_be_empty(compiled) -> None:
    indexer = compiled(SPECS["R"], "quantize_queries")
    nothing = torch.empty(0, dtype=torch.int64)
    (values, scales), weights = indexer.quantize_queries(
        torch.empty(0, HEADS, 128), torch.empty(0, HEADS), positions=nothing, cos_sin=table(64)
    )
    assert (values.shape, scales.shape, weights.shape) == ((0, 8, 64), (0, 8, 4), (0, 8))
    q, weights = torch.randn(2, HEADS, 128), torch.randn(2, HEADS)
    empty = {"positions": torch.tensor([0, 5]), "cos_sin": torch.empty(0, 64)}
    assert_same(indexer.quantize_queries(q, weights, **empty), indexer.quantize_queries(q, weights))


def test_results_go_where_they_are_wanted_and_factors_are_the_callers(compiled, reference) -> None:
    spec = SPECS["R"]
    indexer = compiled(spec, "quantize_queries")
    q, weights = torch.randn(5, HEADS, 128), torch.randn(5, HEADS)
    out = (
        torch.empty(5, HEADS, 64, dtype=torch.uint8),
        torch.empty(5, HEADS, 4, dtype=torch.uint8),
        torch.empty(5, HEADS),
    )
    scales = {"softmax_scale": 0.3, "head_scale": -1 / 3}
    pair, folded = indexer.quantize_queries(q, weights, out=out, **scales)
    assert (pair[0] is out[0], pair[1] is out[1], folded is out[2]) == (True, True, True)
    assert_same((pair, folded), reference(spec).quantize_queries(q, weights, **scales))


REFUSED = {
    "weights of another dtype": (
        {"weights": torch.ones(2, HEADS)},
        r"^weights: expected dtype bfloat16, got float32",
    ),
    "positions alone": (
        {"positions": torch.zeros(2, dtype=torch.int64)},
        r"^cos_sin: expected it with positions, got None$",
    ),
    "a table alone": ({"cos_sin": table(64)}, r"^positions: expected it with cos_sin, got None$"),
    "int32 positions": (
        {"positions": torch.zeros(2, dtype=torch.int32), "cos_sin": table(64)},
        r"^positions: expected dtype int64, got int32",
    ),
    "half a table": (
        {"positions": torch.zeros(2, dtype=torch.int64), "cos_sin": torch.ones(9, 32)},
        r"^cos_sin: expected shape \[max_pos, 64\], got \[9, 32\]",
    ),
    "another format between": (
        {"intermediate": "f16"},
        r"^intermediate: expected ",
    ),
    "a position past the table": (
        {"positions": torch.tensor([3, 9]), "cos_sin": torch.ones(9, 64)},
        r"^positions: expected positions below 9, got 9$",
    ),
}


@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED)
def test_wrong_arguments_are_named(change: dict[str, object], words: str, reference) -> None:
    given = {"weights": torch.ones(2, HEADS, dtype=torch.bfloat16), **change}
    with pytest.raises(ArgumentError, match=words):
        reference(SPECS["R"], validate=True).quantize_queries(
            torch.zeros(2, HEADS, 128, dtype=torch.bfloat16), **given
        )
