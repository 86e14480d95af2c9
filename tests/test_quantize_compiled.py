"""quantize and dequantize, compiled: the bytes of the reference."""

from __future__ import annotations

import pytest
import torch
from hard_inputs import every_code, hard_vectors, random_bits

from dsv4_iree import reference
from dsv4_iree.spec import Format, IndexerSpec
from dsv4_iree.testing import assert_bytes_equal

pytestmark = pytest.mark.gpu
FP4 = IndexerSpec()
FP8 = IndexerSpec(format=Format.FP8, layout="n8")
FNUZ = IndexerSpec(format=Format.FP8_FNUZ, layout="n8")
COMPILED = {
    "R": FP4,
    "R-hadamard": IndexerSpec(hadamard=True),
    "D": IndexerSpec(rounding="d"),
    "D-hadamard": IndexerSpec(rounding="d", hadamard=True),
    "S": IndexerSpec(rounding="s"),
    "S2": IndexerSpec(rounding="s2"),
    "S2-hadamard": IndexerSpec(rounding="s2", hadamard=True),
    "R-hadamard-dim64": IndexerSpec(head_dim=64, hadamard=True),
    "fp8": FP8,
    "fp8-hadamard": IndexerSpec(format=Format.FP8, layout="n8", hadamard=True),
    "fnuz": FNUZ,
    "fnuz-dim64": IndexerSpec(format=Format.FP8_FNUZ, layout="n8", head_dim=64),
}
by_spec = pytest.mark.parametrize("spec", COMPILED.values(), ids=COMPILED)
FORMATS = {"fp4": FP4, "fp4-dim64": IndexerSpec(head_dim=64), "fp8": FP8, "fnuz": FNUZ}


@by_spec
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_compiled_bytes_equal_the_reference(compiled, spec: IndexerSpec, dtype) -> None:
    x = hard_vectors(spec.head_dim, dtype)
    values, scales = compiled(spec, "quantize").quantize(x)
    expected_values, expected_scales = reference.quantize(x, spec)
    assert_bytes_equal(values, expected_values)
    assert_bytes_equal(scales, expected_scales)


@by_spec
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_random_bits_are_quantised_as_the_reference_says(
    compiled, spec: IndexerSpec, dtype: torch.dtype, pytestconfig: pytest.Config
) -> None:
    count = 200_000 if pytestconfig.getoption("long") else 4000
    x = random_bits(count, spec.head_dim, seed=8).to(dtype)
    for actual, expected in zip(
        compiled(spec, "quantize").quantize(x), reference.quantize(x, spec)
    ):
        same = actual.view(torch.uint8) == expected.view(torch.uint8)
        assert same.all(), (~same).nonzero()[:3]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("name", ["R", "fp8"])
def test_any_batch_shape_is_quantised(compiled, name: str, shape: tuple[int, ...]) -> None:
    spec = COMPILED[name]
    x = torch.randn(*shape, 128, generator=torch.Generator().manual_seed(3))
    indexer = compiled(spec, "quantize", "dequantize")
    pair = indexer.quantize(x)
    for actual, expected in zip(pair, reference.quantize(x, spec)):
        assert_bytes_equal(actual, expected)
    assert_bytes_equal(indexer.dequantize(pair), reference.dequantize(*pair, spec))


@pytest.mark.parametrize("name", ["R", "fp8"])
def test_outputs_of_the_caller_are_filled_in_place(compiled, name: str) -> None:
    spec = COMPILED[name]
    indexer = compiled(spec, "quantize", "dequantize")
    x = torch.randn(3, 2, 128, generator=torch.Generator().manual_seed(4))
    expected = reference.quantize(x, spec)
    out = tuple(torch.full_like(t, 77) for t in expected)
    pointers = [t.data_ptr() for t in out]
    got = indexer.quantize(x, out=out)
    assert [t.data_ptr() for t in got] == pointers
    for actual, want in zip(out, expected):
        assert_bytes_equal(actual, want)
    numbers = torch.full((3, 2, 128), 77, dtype=torch.bfloat16)
    assert indexer.dequantize(out, dtype=torch.bfloat16, out=numbers) is numbers
    assert_bytes_equal(numbers, reference.dequantize(*out, spec).bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", FORMATS)
def test_compiled_dequantize_equals_the_reference_for_every_byte(
    compiled, name: str, dtype: torch.dtype
) -> None:
    spec = FORMATS[name]
    values, scales = every_code()
    if spec.is_fp4:
        pair = (
            values[:, : spec.value_bytes].contiguous(),
            scales[:, : spec.scale_bytes].contiguous(),
        )
    else:
        values = torch.arange(256, dtype=torch.uint8).view(2, 128).repeat(3, 1)
        pair = values, 2.0 ** torch.tensor([0.0, 0.0, -100.0, -100.0, 100.0, 100.0])
    numbers = compiled(spec, "dequantize").dequantize(pair, dtype=dtype)
    expected = reference.dequantize(*pair, spec).to(dtype)
    assert torch.equal(numbers.isnan(), expected.isnan())
    assert_bytes_equal(numbers.nan_to_num(), expected.nan_to_num())
