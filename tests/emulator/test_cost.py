"""The cost model: rates from data sheets, and a published kernel as an anchor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from compiled import compile_mlir, mlir_text, run
from test_programs import matmul_text

import dsv4_iree.emulator as emulator
from dsv4_iree.emulator.cost import CHIPS, cost, format_costs, lds_bytes, matrix_seconds

EMPTY = emulator.Dispatch(
    kernel="k",
    target="gfx942",
    grid=(1, 1, 1),
    block=(64, 1, 1),
    workgroups=10**6,
    waves=10**6,
    barriers=0,
    lds_bytes=0,
    scratch_bytes=0,
    vgprs=8,
    bytes_read=0,
    bytes_written=0,
    distinct_bytes_read=0,
    distinct_bytes_written=0,
    wide_f8f6f4=0,
    clamped_lanes=0,
    classes={},
    opcodes={},
    seconds=0.0,
)


@pytest.mark.parametrize(
    ("mnemonic", "target", "clocks"),
    [
        ("v_mfma_f32_16x16x16_f16", "gfx942", 4),
        ("v_mfma_f32_32x32x8_bf16", "gfx942", 8),
        ("v_mfma_f32_16x16x32_fp8_fp8", "gfx942", 4),
        ("v_mfma_i32_16x16x32_i8", "gfx942", 4),
        ("v_mfma_f32_16x16x4_f32", "gfx942", 8),
        ("v_mfma_f32_16x16x32_f16", "gfx950", 4),
        ("v_mfma_scale_f32_16x16x128_f8f6f4", "gfx950", 4),
    ],
)
def test_matrix_rates_are_whole_clocks_of_a_unit(mnemonic, target, clocks):
    """Four matrix cores a unit: 16 cycles of one are 4 clocks of the unit."""
    chip = CHIPS[target]
    seconds = matrix_seconds(mnemonic, chip, 1)
    assert seconds * chip.clock_hz == pytest.approx(clocks, rel=1e-3)


def test_vector_instructions_issue_one_a_clock_and_transcendentals_one_in_four():
    d = replace(EMPTY, classes={"valu": 304_000}, opcodes={"v_add_f32": 304_000})
    assert cost(d).vector == pytest.approx(1000 / 2.1e9)
    d = replace(EMPTY, classes={"valu": 304_000}, opcodes={"v_exp_f32": 304_000})
    assert cost(d).vector == pytest.approx(4000 / 2.1e9)
    assert cost(d).binding == "vector" and cost(d).seconds == cost(d).vector


def test_few_workgroups_leave_units_idle():
    d = replace(EMPTY, workgroups=4, classes={"valu": 4000}, opcodes={"v_add_f32": 4000})
    assert cost(d).vector == pytest.approx(1000 / 2.1e9)


def test_memory_counts_distinct_bytes_where_they_were_counted():
    d = replace(EMPTY, bytes_read=5300, bytes_written=0)
    assert cost(d).memory == pytest.approx(1e-9) and not cost(d).is_memory_distinct
    assert "nothing cached" in format_costs([cost(d)])
    d = replace(d, distinct_bytes_read=530)
    assert cost(d).memory == pytest.approx(1e-10) and cost(d).is_memory_distinct


def test_lds_bytes_of_mnemonics():
    expected = {
        "ds_read_b128": 1024,
        "ds_read2_b64": 1024,
        "ds_read2st64_b32": 512,
        "ds_write_b8": 256,
        "ds_read_u16_d16": 256,
        "ds_read_b64_tr_b16": 512,
        "ds_add_rtn_u32": 256,
        "v_add_f32": 0,
    }
    assert {name: lds_bytes(name) for name in expected} == expected


def test_a_chip_of_another_target_is_refused():
    with pytest.raises(ValueError, match="chip: expected one for gfx942, got MI355X"):
        cost(EMPTY, CHIPS["gfx950"])


def test_the_published_fp4_prefill_kernel_lies_above_the_floor_and_is_vector_bound():
    """aiter 7190bcfbf9 on gfx950: 16000 rows x 8000 keys, 64 heads of 128, in 803.46 us,
    97.6 % VALU busy; it names max + fma per score as its floor."""
    rows, keys, heads, dim, measured = 16000, 8000, 64, 128, 803.46e-6
    scores = rows * keys * heads
    vector = 2 * scores // 64
    matrix = scores * dim // (16 * 16 * 128)
    d = replace(
        EMPTY,
        target="gfx950",
        classes={"valu": vector, "mfma": matrix},
        opcodes={"v_max_f32": vector, "v_mfma_scale_f32_16x16x128_f8f6f4": matrix},
        distinct_bytes_read=keys * 68 + rows * heads * 68,
        distinct_bytes_written=4 * rows * keys,
    )
    modelled = cost(d)
    assert modelled.binding == "vector"
    assert 0.4 * measured < modelled.seconds < measured


def test_a_table_says_that_it_is_modelled(tmp_path, counted):
    mlir = tmp_path / "matmul.mlir"
    mlir.write_text(matmul_text(128, 128, 256, "f16"))
    a = np.ones((128, 256), np.float16)
    emulator.configure(count_distinct=True)
    try:
        run(compile_mlir(mlir, "gfx950"), "gfx950", a, a)
    finally:
        emulator.configure(count_distinct=False)
    text = format_costs(map(cost, counted()))
    assert text.startswith("modelled, not measured: microseconds")
    assert "MI355X" in text and "matmul" in text


def test_f8f6f4_with_8_bit_elements_is_half_as_fast(tmp_path, counted):
    rng = np.random.default_rng(0)
    mlir = tmp_path / "mxfp4.mlir"
    mlir.write_text(mlir_text("mxfp4"))
    a, b = (rng.integers(-128, 128, (128, 8, 16)).astype(np.int8) for _ in range(2))
    s = np.full((128, 8), 127, np.int8)
    run(compile_mlir(mlir, "gfx950"), "gfx950", a, b, s, s)
    (d,) = (d for d in counted() if d.matrix)
    assert d.wide_f8f6f4 == 0
    wide = replace(d, wide_f8f6f4=sum(d.matrix.values()))
    assert cost(wide).matrix == pytest.approx(2 * cost(d).matrix)
