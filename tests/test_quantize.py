"""quantize and dequantize: the reference against ml_dtypes and written-out tables."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
import torch
from hard_inputs import every_code, hard_vectors

from dsv4_iree import reference
from dsv4_iree.spec import Format, IndexerSpec, Rounding
from dsv4_iree.testing import assert_bytes_equal

FP4 = IndexerSpec()
FP8 = IndexerSpec(format=Format.FP8, layout="n8")
FNUZ = IndexerSpec(format=Format.FP8_FNUZ, layout="n8")
PROFILES = {rounding: IndexerSpec(rounding=rounding) for rounding in Rounding}
by_profile = pytest.mark.parametrize("rounding", Rounding, ids=lambda r: r.name)


def group(*values: float) -> torch.Tensor:
    """A 128-vector of fp32 whose first group starts with `values`; the rest is zero."""
    x = torch.zeros(128)
    x[: len(values)] = torch.tensor(values)
    return x


def codes(x: torch.Tensor, rounding: Rounding, count: int) -> tuple[list[int], int]:
    """The first codes of the first group, and its scale byte."""
    values, scales = reference.quantize(x, PROFILES[rounding])
    both = torch.stack([values & 15, values >> 4], dim=-1).flatten()
    return both[:count].tolist(), int(scales[0])


def by_ml_dtypes(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """[..., D] float64 of packed FP4, by ml_dtypes."""
    both = np.stack([values.numpy() & 15, values.numpy() >> 4], axis=-1).reshape(len(values), -1)
    numbers = both.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    factor = scales.numpy().view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    return torch.from_numpy(numbers * factor.repeat(32, axis=1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_every_code_with_every_scale_byte_equals_ml_dtypes(dtype: torch.dtype) -> None:
    values, scales = every_code()
    expected = by_ml_dtypes(values, scales)
    assert expected.isnan().sum() == 4 * 32
    assert_bytes_equal(
        reference.dequantize(values, scales, FP4).to(dtype), expected.float().to(dtype)
    )


def test_scale_byte_0_is_a_subnormal_and_255_is_nan_even_for_zero() -> None:
    values = torch.full((1, 64), 0x12, dtype=torch.uint8)  # 1.0 and 0.5
    values[0, 48:] = 0
    x = reference.dequantize(values, torch.tensor([[0, 1, 254, 255]], dtype=torch.uint8), FP4)[0]
    assert x[:2].tolist() == [2.0**-127, 2.0**-128]
    assert x[:2].view(torch.int32).tolist() == [0x00400000, 0x00200000]
    assert x[32:34].tolist() == [2.0**-126, 2.0**-127]
    assert x[64:66].tolist() == [2.0**127, 2.0**126]
    assert x[96:].isnan().all()


@pytest.mark.parametrize(
    ("spec", "kind"),
    [(FP8, ml_dtypes.float8_e4m3fn), (FNUZ, ml_dtypes.float8_e4m3fnuz)],
    ids=["fn", "fnuz"],
)
def test_every_fp8_byte_equals_ml_dtypes(spec: IndexerSpec, kind: type) -> None:
    values = torch.arange(256, dtype=torch.uint8).view(2, 128)
    expected = torch.from_numpy(values.numpy().view(kind).astype(np.float32))
    x = reference.dequantize(values, torch.tensor([1.0, 0.25]), spec)
    expected *= torch.tensor([[1.0], [0.25]])
    assert torch.equal(x.isnan(), expected.isnan())
    assert_bytes_equal(x.nan_to_num(), expected.nan_to_num())


TIES = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]
EVEN, TOWARD_ZERO = [0, 2, 2, 4, 4, 6, 6], [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("rounding", "positive", "negative"),
    [
        ("r", EVEN, [8, 10, 10, 12, 12, 14, 14]),
        ("d", TOWARD_ZERO, [0, 9, 10, 11, 12, 13, 14]),
        ("s", TOWARD_ZERO, [0, 9, 10, 11, 12, 13, 14]),
        ("s2", EVEN, [8, 10, 10, 12, 12, 14, 14]),
    ],
    ids=["R", "D", "S", "S2"],
)
def test_ties_go_where_the_profile_says(
    rounding: str, positive: list[int], negative: list[int]
) -> None:
    up, down = group(6.0, *TIES), group(-6.0, *(-tie for tie in TIES))
    assert codes(up, Rounding(rounding), 8) == ([7, *positive], 127)
    assert codes(down, Rounding(rounding), 8) == ([15, *negative], 127)


@pytest.mark.parametrize(("rounding", "byte"), [("r", 1), ("d", 112), ("s", 114), ("s2", 114)])
def test_a_group_of_zeros_has_the_smallest_scale_byte(rounding: str, byte: int) -> None:
    assert codes(group(), Rounding(rounding), 4) == ([0, 0, 0, 0], byte)


@pytest.mark.parametrize(("rounding", "expected"), [("r", 8), ("d", 0), ("s", 0), ("s2", 8)])
def test_negative_zero_is_kept_or_dropped_as_the_profile_says(rounding: str, expected: int) -> None:
    assert codes(group(-0.0, -0.24, 6.0), Rounding(rounding), 3)[0] == [expected, expected, 7]


def test_amax_maps_to_the_smallest_scale_that_holds_it() -> None:
    just_above_6 = 6.000000476837158
    table = {
        3.0: 126, 3.0000002384185791: 127, 3.5: 127, 4.0: 127, 5.0: 127, 6.0: 127,
        just_above_6: 128, 7.0: 128, 12.0: 128, 1e-30: 25, 2.0**127: 252, 3.0e38: 253,
    }  # fmt: skip
    assert {amax: codes(group(amax), Rounding.R, 1)[1] for amax in table} == table


@pytest.mark.parametrize("rounding", [Rounding.R, Rounding.D, Rounding.S], ids=lambda r: r.name)
def test_the_scale_exponent_is_exact_on_both_sides_of_every_power_of_two(
    rounding: Rounding,
) -> None:
    edges = 1.5 * 2.0 ** torch.arange(-10, 127, dtype=torch.float64).float()
    for x, extra in ((edges, 0), (torch.nextafter(edges, torch.tensor(math.inf)), 1)):
        _, e = reference.quantize(x[:, None] * torch.ones(128), PROFILES[rounding])
        assert (e[:, 0] - torch.arange(127 - 12, 252)).unique().tolist() == [extra]


def test_subnormal_inputs_are_rounded_like_any_other() -> None:
    tiny = [2.0**-127, -(2.0**-127), 1.5 * 2.0**-127, 2.0**-128, 2.0**-149, -(2.0**-149)]
    assert codes(group(*tiny), Rounding.R, 6) == ([1, 9, 2, 0, 0, 8], 1)


@by_profile
@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf, -math.inf])
def test_nan_or_infinity_voids_its_own_group_only(rounding: Rounding, bad: float) -> None:
    x = torch.ones(128)
    x[40] = bad
    values, scales = reference.quantize(x, PROFILES[rounding])
    assert scales.tolist() == [125, 255, 125, 125]
    assert values.tolist() == [0x66] * 16 + [0] * 16 + [0x66] * 32


def test_the_second_stage_of_s2_doubles_codes_but_keeps_values() -> None:
    x = group(3.25, 1.0, -0.5)
    assert codes(x, Rounding.R, 3) == ([5, 2, 9], 127)
    assert codes(x, Rounding.S2, 3) == ([7, 4, 10], 126)
    r, s2 = (
        reference.dequantize(*reference.quantize(x, PROFILES[p]), FP4)
        for p in (Rounding.R, Rounding.S2)
    )
    assert torch.equal(r, s2)


def test_profile_r_equals_ml_dtypes_rounding_of_the_scaled_value() -> None:
    x = hard_vectors(128, torch.float32)
    x = x[x.isfinite().all(1)]
    values, scales = reference.quantize(x, FP4)
    factor = 2.0 ** (scales.double() - 127).repeat_interleave(32, dim=1)
    scaled = (x.double() / factor).numpy()
    assert np.abs(scaled).max() <= 6
    expected = scaled.astype(np.float32).astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    assert np.array_equal(values.numpy(), expected[:, 0::2] | expected[:, 1::2] << 4)


@pytest.mark.parametrize(
    ("spec", "kind", "largest"),
    [(FP8, ml_dtypes.float8_e4m3fn, 448.0), (FNUZ, ml_dtypes.float8_e4m3fnuz, 240.0)],
    ids=["fn", "fnuz"],
)
def test_fp8_equals_ml_dtypes_rounding_of_the_scaled_value(
    spec: IndexerSpec, kind: type, largest: float
) -> None:
    x = hard_vectors(128, torch.float32)
    x = x[x.isfinite().all(1)]
    values, scales = reference.quantize(x, spec)
    amax = x.abs().amax(1).double().clamp_min(1e-4)
    assert (largest * scales.double() >= amax * (1 - 1e-7)).all()
    assert (largest * scales.double() / 2 < amax).all()
    scaled = (x.double() / scales.double()[:, None]).numpy().astype(np.float32)
    assert np.array_equal(values.numpy(), scaled.astype(kind).view(np.uint8))


@pytest.mark.parametrize(
    ("spec", "table"),
    [
        (FP8, {448.0: 1.0, 449.0: 2.0, 224.0: 0.5, 1.0: 2.0**-8, 0.0: 2.0**-22}),
        (FNUZ, {240.0: 1.0, 241.0: 2.0, 120.0: 0.5, 1.0: 2.0**-7, 0.0: 2.0**-21}),
    ],
    ids=["fn", "fnuz"],
)
def test_fp8_scales_are_powers_of_two_that_hold_amax(
    spec: IndexerSpec, table: dict[float, float]
) -> None:
    got = {amax: float(reference.quantize(group(amax), spec)[1]) for amax in table}
    assert got == table


def test_fp8_keeps_negative_zero_and_fnuz_has_none() -> None:
    x = group(-0.0, -1e-9, 448.0)
    assert reference.quantize(x, FP8)[0][:3].tolist() == [0x80, 0x80, 0x7E]
    assert reference.quantize(x * (240 / 448), FNUZ)[0][:3].tolist() == [0, 0, 0x7F]


@pytest.mark.parametrize("spec", [FP8, FNUZ], ids=["fn", "fnuz"])
def test_fp8_vectors_with_nan_or_infinity_have_a_nan_scale(spec: IndexerSpec) -> None:
    values, scales = reference.quantize(torch.stack([group(1, math.inf), group(1, math.nan)]), spec)
    assert scales.isnan().all()
    assert not values.any()


def sylvester(dim: int) -> torch.Tensor:
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while matrix.shape[0] < dim:
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64), matrix)
    return matrix


@pytest.mark.parametrize("dim", [32, 64, 128])
def test_hadamard_is_the_sylvester_matrix_over_sqrt_dim(dim: int) -> None:
    factor = float(torch.tensor(dim**-0.5, dtype=torch.float32))
    rotated = reference.hadamard(torch.eye(dim))
    assert torch.equal(rotated.double(), sylvester(dim) * factor)
    assert torch.allclose(rotated @ rotated.T, torch.eye(dim), atol=1e-6)
    x = torch.randn(5, dim, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(
        reference.hadamard(x).double(), x.double() @ sylvester(dim) * dim**-0.5, atol=1e-6
    )


def test_hadamard_rounds_back_to_bfloat16_before_quantisation() -> None:
    x = torch.randn(16, 128, generator=torch.Generator().manual_seed(1)).bfloat16()
    rotated = (x.double() @ sylvester(128) * 128**-0.5).bfloat16()
    assert torch.equal(reference.hadamard(x), rotated)
    both = zip(reference.quantize(x, IndexerSpec(hadamard=True)), reference.quantize(rotated, FP4))
    assert all(torch.equal(a, b) for a, b in both)
