# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a kernel is compiled for: the indexer's numbers, formats and targets."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from functools import cached_property

from dsv4_iree.errors import ArgumentError

GROUP = 32  # dims that share one e8m0 scale (OCP MX)
ROPE_DIM = 64  # of every published model
OPS = (
    "quantize",
    "quantize_queries",
    "dequantize",
    "write_cache",
    "gather_cache",
    "mqa_logits",
    "paged_mqa_logits",
    "topk",
    "index_topk",
)
TARGETS = ("cpu", "cpu-generic", "gfx942", "gfx950", "cuda", "cuda-sm89", "cuda-sm90")
"""Artifact targets. `cpu` is code for the host that builds it, `cpu-generic` for any x86-64-v3;
`cuda` is sm_80 code, which every later NVIDIA GPU runs, `cuda-sm89` needs sm_89, and `cuda-sm90` is
sm_90a code, for H100, H200 and their like alone."""


class Format(str, Enum):
    """Number format of queries and keys.

    FP4       MXFP4: e2m1 values, two to a byte (low nibble = even dim), one e8m0 scale per 32.
    FP8       OCP e4m3fn values and one power-of-two fp32 scale per vector.
    FP8_FNUZ  the same with e4m3fnuz, the FP8 of gfx942: bias 8, largest 240, 0x80 is NaN.
    BF16      not quantised; only `mqa_logits` takes it, as the yardstick of the others.
    """

    FP4 = "fp4"
    FP8 = "fp8"
    FP8_FNUZ = "fp8-fnuz"
    BF16 = "bf16"


class CacheLayout(str, Enum):
    """Byte layout of one cache page; `layout.py` has the addresses.

    N4, N8  natural FP4 and FP8: all values of the page, then all scales.
    F4      FP4 split over two tensors, values in 16-byte columns (AITER FlyDSL).
    G4      FP4 in tiles of 16 or 32 entries, 16-byte columns (AITER Gluon).
    P8      FP8 in tiles of 16 entries x 16 bytes (AITER preshuffle).
    """

    N4 = "n4"
    N8 = "n8"
    F4 = "f4"
    G4 = "g4"
    P8 = "p8"


class Rounding(str, Enum):
    """MXFP4 rounding profile. All take the scale 2^ceil(log2(amax / 6)).

    R   reference: amax >= 6 * 2^-126, nearest even, the sign of zero kept.
    D   DeepGEMM: amax >= 1e-4, ties toward zero, never a negative zero.
    S   sglang C4: amax / 6 >= 1e-4, ties toward zero, never a negative zero.
    S2  sglang V4.1: R, then packed again with amax / 6 >= 1e-4 and nearest even.
    """

    R = "r"
    D = "d"
    S = "s"
    S2 = "s2"


class Intermediate(str, Enum):
    """Number format of queries between the steps of `quantize_queries`.

    BF16  rounded after RoPE, and again after the Hadamard rotation: DeepSeek's inference/model.py,
          tokenspeed's prepare_indexer_q, vLLM's fused_indexer_q (which does not rotate).
    F32   not rounded: AITER's dsv4_rotate_quant.cu, and with it ATOM and SGLang on HIP.
    """

    BF16 = "bf16"
    F32 = "f32"


LAYOUTS = {
    Format.FP4: (CacheLayout.N4, CacheLayout.G4, CacheLayout.F4),
    Format.FP8: (CacheLayout.N8, CacheLayout.P8),
    Format.FP8_FNUZ: (CacheLayout.N8, CacheLayout.P8),
    Format.BF16: (),
}
"""Cache layouts of each format. Logits are read from all but F4, which is gathered first."""


@dataclass(frozen=True)
class IndexerSpec:
    """The numbers a kernel is compiled for; every other size is dynamic.

    Args:
        num_heads: index heads H, 1 to 128.
        head_dim: D, a multiple of 32 up to 256.
        page_size: cache entries per page P, 1 to 1024.
        topk: entries selected per row k, 1 to 4096.
        format: number format of queries and keys.
        layout: byte layout of a cache page.
        rounding: MXFP4 rounding profile; FP8 has only R (nearest even).
        hadamard: whether vectors are rotated by H_D / sqrt(D) before they are quantised.
    """

    num_heads: int = 64
    head_dim: int = 128
    page_size: int = 64
    topk: int = 512
    format: Format = Format.FP4
    layout: CacheLayout = CacheLayout.N4
    rounding: Rounding = Rounding.R
    hadamard: bool = False

    def __post_init__(self) -> None:
        for name, kind in (("format", Format), ("layout", CacheLayout), ("rounding", Rounding)):
            _coerce(self, name, kind)
        _require("num_heads", self.num_heads, range(1, 129), "an int in [1, 128]")
        _require("head_dim", self.head_dim, range(32, 257, 32), "a multiple of 32 in [32, 256]")
        _require("page_size", self.page_size, range(1, 1025), "an int in [1, 1024]")
        _require("topk", self.topk, range(1, 4097), "an int in [1, 4096]")
        _require("hadamard", self.hadamard, (False, True), "a bool")
        if self.hadamard:
            _require("head_dim", self.head_dim, (32, 64, 128, 256), "a power of two for hadamard")
        if self.format is not Format.FP4:
            _require("rounding", self.rounding, (Rounding.R,), f"R for format {self.format.value}")
        if self.format is not Format.BF16:
            self._check_layout()

    def _check_layout(self) -> None:
        allowed = LAYOUTS[self.format]
        names = " or ".join(layout.name for layout in allowed)
        _require("layout", self.layout, allowed, f"{names} for format {self.format.value}")
        tiles = {CacheLayout.P8: 16, CacheLayout.F4: 16, CacheLayout.G4: self.tokens_per_tile}
        tile = tiles.get(self.layout, 1)
        words = f"a multiple of {tile} for layout {self.layout.name}"
        _require("page_size", self.page_size, range(tile, 1025, tile), words)
        if self.layout is CacheLayout.G4:  # its scales interleave by powers of two
            words = "32, 64, 128 or 256 for layout G4"
            _require("head_dim", self.head_dim, (32, 64, 128, 256), words)
        if self.layout is CacheLayout.F4:
            _require("head_dim", self.head_dim, (128, 256), "128 or 256 for layout F4")

    @cached_property
    def is_fp4(self) -> bool:
        return self.format is Format.FP4

    @property
    def ops(self) -> tuple[str, ...]:
        """The ops that exist for this format and layout."""
        if self.format is Format.BF16:
            return ("mqa_logits", "topk")
        if self.layout is CacheLayout.F4:
            return tuple(op for op in OPS if op not in ("paged_mqa_logits", "index_topk"))
        return OPS

    @property
    def rope_dim(self) -> int:
        """Dims that RoPE turns, the last of a vector."""
        return min(ROPE_DIM, self.head_dim)

    @cached_property
    def value_bytes(self) -> int:
        """Bytes of one vector's values."""
        return self.head_dim * {Format.FP4: 1, Format.BF16: 4}.get(self.format, 2) // 2

    @cached_property
    def scale_bytes(self) -> int:
        """Bytes of one vector's scales: e8m0 per 32 dims, one fp32, or none."""
        if self.format is Format.BF16:
            return 0
        return self.head_dim // GROUP if self.is_fp4 else 4

    @cached_property
    def entry_bytes(self) -> int:
        """Bytes of one cached key: 68 in FP4, 132 in FP8 for head_dim 128."""
        return self.value_bytes + self.scale_bytes

    @cached_property
    def page_bytes(self) -> int:
        """Bytes of one page that hold data; the page stride may be larger."""
        return self.page_size * self.entry_bytes

    @property
    def tokens_per_tile(self) -> int:
        """Entries that G4 keeps together; it depends on the number of heads."""
        return 32 if self.num_heads >= 32 or self.head_dim <= 64 else 16

    def describe(self, names: tuple[str, ...]) -> dict[str, int | str | bool]:
        """The named fields as JSON values, in field order."""
        chosen = {f.name: getattr(self, f.name) for f in fields(self) if f.name in names}
        return {k: v.value if isinstance(v, Enum) else v for k, v in chosen.items()}


def _coerce(spec: IndexerSpec, name: str, kind: type[Enum]) -> None:
    value = getattr(spec, name)
    try:
        object.__setattr__(spec, name, kind(value))
    except ValueError:
        choices = ", ".join(str(member.value) for member in kind)
        raise ArgumentError(f"{name}: expected one of {choices}, got {value!r}") from None


def _require(name: str, value: object, allowed: object, words: str) -> None:
    whole = type(value) is not bool or name == "hadamard"
    if not whole or value not in allowed:  # type: ignore[operator]
        shown = value.name if isinstance(value, Enum) else repr(value)
        raise ArgumentError(f"{name}: expected {words}, got {shown}")


SPECS = {
    "flash": IndexerSpec(topk=512),
    "pro": IndexerSpec(topk=1024),
    "v41": IndexerSpec(num_heads=32, topk=512),
}
"""Published models: V4-Flash, V4-Pro, V4.1-Flash (their config.json)."""
