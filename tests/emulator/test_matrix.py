"""Matrix instructions: operands are laid out lane by lane as the ISA documents say."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from machine import AGPR, Machine

RNG = np.random.default_rng


@dataclass(frozen=True)
class Shape:
    """`run`: consecutive k of one lane. Lane groups take turns through k."""

    name: str
    mn: int
    k: int
    a: type
    b: type
    targets: tuple[str, ...] = ("gfx942", "gfx950")

    @property
    def run(self) -> int:
        return self.k // (64 // self.mn)


BF16, F16, F32, I8 = ml_dtypes.bfloat16, np.float16, np.float32, np.int8
NEW = ("gfx950",)
SHAPES = [
    Shape("v_mfma_f32_16x16x4_f32", 16, 4, F32, F32),
    Shape("v_mfma_f32_32x32x2_f32", 32, 2, F32, F32),
    Shape("v_mfma_f32_16x16x16_f16", 16, 16, F16, F16),
    Shape("v_mfma_f32_32x32x8_f16", 32, 8, F16, F16),
    Shape("v_mfma_f32_16x16x32_f16", 16, 32, F16, F16, NEW),
    Shape("v_mfma_f32_32x32x16_f16", 32, 16, F16, F16, NEW),
    Shape("v_mfma_f32_16x16x16_bf16", 16, 16, BF16, BF16),
    Shape("v_mfma_f32_32x32x8_bf16", 32, 8, BF16, BF16),
    Shape("v_mfma_f32_16x16x32_bf16", 16, 32, BF16, BF16, NEW),
    Shape("v_mfma_f32_32x32x16_bf16", 32, 16, BF16, BF16, NEW),
    Shape("v_mfma_i32_16x16x32_i8", 16, 32, I8, I8),
    Shape("v_mfma_i32_32x32x16_i8", 32, 16, I8, I8),
    Shape("v_mfma_i32_16x16x64_i8", 16, 64, I8, I8, NEW),
    Shape("v_mfma_i32_32x32x32_i8", 32, 32, I8, I8, NEW),
]
Z8, Z5 = ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz
O8, O5 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
for mn, k in ((16, 32), (32, 16)):
    for target, kinds in (("gfx942", {"fp8": Z8, "bf8": Z5}), ("gfx950", {"fp8": O8, "bf8": O5})):
        for a in kinds:
            for b in kinds:
                name = f"v_mfma_f32_{mn}x{mn}x{k}_{a}_{b}"
                SHAPES.append(Shape(name, mn, k, kinds[a], kinds[b], (target,)))


def pack(matrix: np.ndarray, mn: int, run: int) -> np.ndarray:
    """[mn, k] to registers [n, 64]: lane l holds row l % mn and k from (l // mn) * run on."""
    lanes = np.stack([matrix[n % mn, n // mn * run : (n // mn + 1) * run] for n in range(64)])
    return np.ascontiguousarray(lanes).view(np.uint32).T


def result_rows(mn: int, r: int, lane: int) -> int:
    """The row of D in register r of a lane; its column is lane % mn."""
    return 4 * (lane // 16) + r if mn == 16 else 8 * (r // 4) + 4 * (lane // 32) + r % 4


def unpack_result(v: np.ndarray, mn: int) -> np.ndarray:
    d = np.zeros((mn, mn), np.uint32)
    for r in range(mn * mn // 64):
        for lane in range(64):
            d[result_rows(mn, r, lane), lane % mn] = v[r, lane]
    return d


def pack_result(d: np.ndarray, mn: int) -> np.ndarray:
    bits = d.view(np.uint32)
    return np.array(
        [
            [bits[result_rows(mn, r, lane), lane % mn] for lane in range(64)]
            for r in range(mn * mn // 64)
        ],
        np.uint32,
    )


def small_integers(shape, dtype, seed):
    low, high = (-128, 128) if dtype is I8 else (-4, 5)
    return RNG(seed).integers(low, high, shape).astype(np.float32).astype(dtype)


@pytest.mark.parametrize("acc", [False, True], ids=["v", "a"])
@pytest.mark.parametrize(
    ("shape", "target"),
    [pytest.param(s, t, id=f"{s.name}-{t}") for s in SHAPES for t in s.targets],
)
def test_lane_layout_and_sums(shape, target, acc):
    mn, k = shape.mn, shape.k
    a, b = small_integers((mn, k), shape.a, 1), small_integers((mn, k), shape.b, 2)
    is_int = shape.a is I8
    out = np.int32 if is_int else np.float32
    c = RNG(3).integers(-50, 50, (mn, mn)).astype(out)
    wide = np.int64 if is_int else np.float64
    want = (a.astype(wide) @ b.astype(wide).T + c).astype(out)
    pa, pb, pc = pack(a, mn, shape.run), pack(b, mn, shape.run), pack_result(c, mn)
    m = Machine(target)
    m.v[0 : len(pa)], m.v[8 : 8 + len(pb)] = pa, pb
    base = AGPR + 32 if acc else 32
    m.v[base : base + len(pc)] = pc
    letter, wa, wb, wd = "a" if acc else "v", len(pa), len(pb), len(pc)
    regs = [f"v[0:{wa - 1}]" if wa > 1 else "v0", f"v[8:{7 + wb}]" if wb > 1 else "v8"]
    d = f"{letter}[32:{31 + wd}]"
    m.run(f"{shape.name} {d}, {regs[0]}, {regs[1]}, {d}")
    assert np.array_equal(unpack_result(m.v[base : base + wd], mn).view(out), want)


def test_accumulator_may_be_a_constant_and_operands_accumulation_registers(target):
    a, b = small_integers((16, 16), F16, 1), small_integers((16, 16), F16, 2)
    m = Machine(target)
    m.v[AGPR : AGPR + 2], m.v[8:10] = pack(a, 16, 4), pack(b, 16, 4)
    m.run("v_mfma_f32_16x16x16_f16 v[32:35], a[0:1], v[8:9], 2.0")
    want = a.astype(np.float32) @ b.astype(np.float32).T + 2
    assert np.array_equal(unpack_result(m.v[32:36], 16).view(np.float32), want)


def test_integer_accumulator_wraps(target):
    m = Machine(target)
    m.v[0:2] = m.v[8:10] = 0x01010101
    m.v[32:36] = 0x7FFFFFFF
    m.run("v_mfma_i32_16x16x32_i8 v[32:35], v[0:1], v[8:9], v[32:35]")
    assert (m.v[32:36] == 0x8000001F).all()


def test_exec_does_not_matter(target):
    m = Machine(target)
    m.v[0], m.v[8] = np.float32(1).view(np.uint32), np.float32(1).view(np.uint32)
    m.set_pair(126, 1)
    m.run("v_mfma_f32_16x16x4_f32 v[32:35], v0, v8, 0")
    assert (m.v[32:36].view(np.float32) == 4).all()


# ---- f8f6f4 -----------------------------------------------------------------------------------

FORMATS = {
    "fp8": (0, 8, ml_dtypes.float8_e4m3fn),
    "bf8": (1, 8, ml_dtypes.float8_e5m2),
    "fp6": (2, 6, ml_dtypes.float6_e2m3fn),
    "bf6": (3, 6, ml_dtypes.float6_e3m2fn),
    "fp4": (4, 4, ml_dtypes.float4_e2m1fn),
}


def k_of(bits: int, mn: int, k: int, lane: int, n: int) -> int:
    """Which k element n of a lane is: 8-bit formats come as two runs of 16."""
    group = lane // mn
    if bits < 8:
        return 32 * group + n
    return 16 * group + n if n < 16 else k // 2 + 16 * group + n - 16


def pack_small(codes: np.ndarray, bits: int, mn: int, k: int) -> np.ndarray:
    out = np.zeros((bits, 64), np.uint32)
    for lane in range(64):
        whole = 0
        for n in range(32):
            whole |= int(codes[lane % mn, k_of(bits, mn, k, lane, n)]) << bits * n
        out[:, lane] = [whole >> 32 * w & 0xFFFFFFFF for w in range(bits)]
    return out


def random_codes(fmt: str, shape, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes whose values are small enough for exact sums."""
    _, bits, dtype = FORMATS[fmt]
    codes = RNG(seed).integers(0, 1 << bits, shape).astype(np.uint8)
    values = codes.view(dtype).astype(np.float64)
    bad = (
        ~np.isfinite(values) | (np.abs(values) > 64) | ((np.abs(values) < 2.0**-5) & (values != 0))
    )
    codes[bad] = 0
    return codes, codes.view(dtype).astype(np.float64)


def registers(first: int, count: int) -> str:
    return f"v[{first}:{first + count - 1}]"


@pytest.mark.parametrize("mn", [16, 32])
@pytest.mark.parametrize(
    ("fa", "fb"),
    [
        ("fp8", "fp8"),
        ("fp4", "fp4"),
        ("fp8", "fp4"),
        ("bf8", "fp6"),
        ("bf6", "bf8"),
        ("fp6", "bf6"),
    ],
)
def test_f8f6f4_unscaled(fa, fb, mn):
    k = 2048 // mn
    ca, a = random_codes(fa, (mn, k), 1)
    cb, b = random_codes(fb, (mn, k), 2)
    (na, wa, _), (nb, wb, _) = FORMATS[fa], FORMATS[fb]
    m = Machine("gfx950")
    m.v[0:wa], m.v[8 : 8 + wb] = pack_small(ca, wa, mn, k), pack_small(cb, wb, mn, k)
    n = mn * mn // 64
    modifiers = (f" cbsz:{na}" if na else "") + (f" blgp:{nb}" if nb else "")
    d = registers(32, n)
    m.run(
        f"v_mfma_f32_{mn}x{mn}x{k}_f8f6f4 {d}, {registers(0, wa)}, {registers(8, wb)}, 0{modifiers}"
    )
    got = unpack_result(m.v[32 : 32 + n], mn).view(np.float32)
    assert np.allclose(got, a @ b.T, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("mn", [16, 32])
@pytest.mark.parametrize("fmt", ["fp4", "fp8", "fp6"])
@pytest.mark.parametrize("byte", range(4))
def test_f8f6f4_scales_blocks_of_32(fmt, byte, mn):
    """A scale byte of lane row + mn * block belongs to k from 32 * block on."""
    k = 2048 // mn
    ca, a = random_codes(fmt, (mn, k), 1)
    cb, b = random_codes(fmt, (mn, k), 2)
    number, width, _ = FORMATS[fmt]
    sa, sb = RNG(3).integers(123, 131, (2, mn, k // 32))
    other = 3 - byte
    m = Machine("gfx950")
    m.v[0:width], m.v[8 : 8 + width] = pack_small(ca, width, mn, k), pack_small(cb, width, mn, k)
    for lane in range(64):
        m.v[20, lane] = int(sa[lane % mn, lane // mn]) << 8 * byte | 0x7B << 8 * other
        m.v[21, lane] = int(sb[lane % mn, lane // mn]) << 8 * other | 0x7B << 8 * byte
    scale_a, scale_b = (np.repeat(2.0 ** (s - 127.0), 32, axis=1) for s in (sa, sb))
    want = (a * scale_a) @ (b * scale_b).T
    n = mn * mn // 64
    low, high = (f"[{byte >> s & 1},{other >> s & 1},0]" for s in (0, 1))
    modifiers = f" op_sel:{low} op_sel_hi:{high}" + (
        f" cbsz:{number} blgp:{number}" if number else ""
    )
    d = registers(32, n)
    m.run(
        f"v_mfma_scale_f32_{mn}x{mn}x{k}_f8f6f4 {d}, {registers(0, width)}, "
        f"{registers(8, width)}, 0, v20, v21{modifiers}"
    )
    assert np.allclose(
        unpack_result(m.v[32 : 32 + n], mn).view(np.float32), want, rtol=2e-6, atol=1e-3
    )


def test_extreme_scales(target="gfx950"):
    line = (
        "v_mfma_scale_f32_16x16x128_f8f6f4 v[32:35], v[0:3], v[8:11], 0, v20, v21"
        " op_sel_hi:[0,0,0] cbsz:4 blgp:4"
    )
    ones = 0x22222222
    for sa, sb, want in (
        (0, 254, 128.0),
        (254, 0, 128.0),
        (254, 254, np.inf),
        (0, 0, 0.0),
        (255, 127, np.nan),
    ):
        m = Machine(target)
        m.v[0:4] = m.v[8:12] = ones
        m.v[20], m.v[21] = sa, sb
        got = m.run(line).v[32:36].view(np.float32)
        assert np.array_equal(got, np.full((4, 64), want, np.float32), equal_nan=True), (sa, sb)
