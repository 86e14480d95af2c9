# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ops that make keys and queries and keep keys in the paged cache."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import torch

from dsv4_iree import checks, reference
from dsv4_iree.calls import Call, Caller, flat_vectors, page_scalars
from dsv4_iree.checks import FLOATS, Quantized
from dsv4_iree.errors import ArgumentError, check_tensor
from dsv4_iree.formats import exact
from dsv4_iree.runtime import Function
from dsv4_iree.spec import IndexerSpec, Intermediate

SUFFIX = {torch.float32: "f32", torch.bfloat16: "bf16"}  # of entry points that take or give floats

COPIES = 4  # rows that are copied in the time that one is converted


class CacheOps:
    """The first half of `Indexer`, which says what holds for all ops."""

    def __init__(
        self, spec: IndexerSpec, device: torch.device, caller: Caller | None, validate: bool
    ) -> None:
        self.spec, self.device, self.validate = spec, device, validate
        self._caller = caller  # None: the reference
        self._ops = frozenset(spec.ops)

    def function(self, op: str, entry: str) -> Function:
        """An entry point of the loaded artifact of `op`, for callers with buffers of their own."""
        if self._caller is None:
            raise ArgumentError(f"{op}: the reference backend has no artifacts")
        return self._caller.module(op).functions[entry]

    @property
    def scratch_bytes(self) -> int:
        """Scratch memory that the calls so far made it allocate, and that it keeps."""
        return 0 if self._caller is None else self._caller.scratch.shape[0]

    def synchronize(self) -> None:
        """Wait for every call made so far."""
        if self._caller is not None:
            self._caller.device.synchronize()

    def _require(self, op: str) -> None:
        if op not in self._ops:
            spec = self.spec
            raise ArgumentError(
                f"{op}: not available for format {spec.format.value} and layout "
                f"{spec.layout.value}, which have {', '.join(spec.ops)}"
            )

    def quantize(
        self,
        x: torch.Tensor,
        *,
        out: Quantized | None = None,
        workspace: torch.Tensor | None = None,
    ) -> Quantized:
        """Values and scales of vectors, in the spec's format, rounding profile and rotation.

        FP4: scale byte e = 127 + ceil(log2(amax / 6)) per 32 dims, codes round(x / 2^(e-127)),
        low nibble = even dim. FP8: one scale 2^ceil(log2(max(amax, 1e-4) / largest)) per vector.
        NaN or infinity makes the scale of its group (FP4) or vector (FP8) NaN.

        Args:
            x: [..., D] float32 or bfloat16.

        Returns:
            values: [..., D/2] uint8 (FP4) or [..., D] uint8 (FP8).
            scales: [..., D/32] uint8 e8m0 (FP4) or [...] float32 (FP8).
        """
        self._require("quantize")
        spec, rows = self.spec, _leading(x)
        check_tensor("x", x, shape=(*rows, spec.head_dim), dtype=FLOATS, device=self.device)
        values, scales = checks.quantized_output(out, rows, spec, self.device)
        if self._caller is None:
            _fill((values, scales), reference.quantize(x, spec))
            return values, scales
        outputs = flat_vectors("out", (values, scales), spec)
        inputs = {"x": x.view(-1, spec.head_dim)}
        entry = f"quantize_{SUFFIX[x.dtype]}"
        call = Call("quantize", entry, inputs, outputs, work=inputs["x"].shape[0])
        if x.numel():
            self._caller.run(call, workspace)
        return values, scales

    def quantize_queries(
        self,
        q: torch.Tensor,
        weights: torch.Tensor,
        *,
        positions: torch.Tensor | None = None,
        cos_sin: torch.Tensor | None = None,
        softmax_scale: float | None = None,
        head_scale: float | None = None,
        intermediate: Intermediate | str = Intermediate.BF16,
        out: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
        workspace: torch.Tensor | None = None,
    ) -> tuple[Quantized, torch.Tensor]:
        """Queries and weights as the logits ops take them, from what a model's layers give.

        RoPE turns pairs (2i, 2i + 1) of the last 64 dims by the row's position, then comes what
        `quantize` does. The weights are multiplied by both factors; in FP8 the queries' scales are
        folded into them too, and come out as ones.

        Args:
            q: [T, H, D] float32 or bfloat16.
            weights: [T, H] of q's dtype.
            positions: [T] int64; a row whose position is outside the table is not turned.
            cos_sin: [max_pos, 64] float32 or bfloat16: 32 cosines, then 32 sines; None: no RoPE.
            softmax_scale, head_scale: factors of the weights, in this order; None: D^-0.5 and
                H^-0.5.
            intermediate: what q is between the steps, see `spec.Intermediate`.
            out: values, scales and weights.

        Returns:
            (values, scales) as `quantize` returns them, and weights [T, H] float32.
        """
        self._require("quantize_queries")
        spec, device = self.spec, self.device
        shape = ("T", spec.num_heads, spec.head_dim)
        check_tensor("q", q, shape=shape, dtype=FLOATS, device=device)
        rows = (q.shape[0], spec.num_heads)
        check_tensor("weights", weights, shape=rows, dtype=q.dtype, device=device)
        positions, cos_sin = checks.angles(positions, cos_sin, rows[0], spec, device)
        if self.validate:
            checks.positions_are_valid(positions, cos_sin)
        checks.choice("intermediate", intermediate, tuple(Intermediate))
        between = Intermediate(intermediate)
        factors = (
            spec.head_dim**-0.5 if softmax_scale is None else softmax_scale,
            spec.num_heads**-0.5 if head_scale is None else head_scale,
        )
        values, scales = checks.quantized_output(out and out[:2], rows, spec, device)
        folded = checks.output("out weights", out and out[2], rows, torch.float32, device)
        outputs = {"out values": values, "out scales": scales, "out weights": folded}
        if self._caller is None:
            found = reference.quantize_queries(
                q, weights, positions, cos_sin, factors, between, spec
            )
            _fill(tuple(outputs.values()), found)
        elif rows[0]:
            inputs = {"q": q, "weights": weights, "positions": positions, "cos_sin": cos_sin}
            entry = f"quantize_queries_{SUFFIX[q.dtype]}_{SUFFIX[cos_sin.dtype]}_{between.value}"
            bits = tuple(map(_f32_bits, factors))
            call = Call("quantize_queries", entry, inputs, outputs, bits)
            self._caller.run(call, workspace)
        return (values, scales), folded

    def dequantize(
        self,
        x: Quantized,
        *,
        dtype: torch.dtype = torch.float32,
        out: torch.Tensor | None = None,
        workspace: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """[..., D] numbers of quantised vectors; e8m0 byte 0 is 2^-127, byte 255 NaN.

        Args:
            x: values and scales as `quantize` returns them.
            dtype: float32 or bfloat16, of the result; beyond its range infinity.
        """
        self._require("dequantize")
        spec, rows = self.spec, _leading(x[0] if isinstance(x, tuple) and x else x)
        given = checks.vectors("x", x, rows, spec, self.device)
        checks.float_dtype("dtype", dtype)
        result = checks.output("out", out, (*rows, spec.head_dim), dtype, self.device)
        if self._caller is None:
            return result.copy_(exact(given, spec))
        outputs = {"out": result.view(-1, spec.head_dim)}
        call = Call(
            "dequantize",
            f"dequantize_{SUFFIX[dtype]}",
            flat_vectors("x", given, spec),
            outputs,
            work=outputs["out"].shape[0],
        )
        if result.numel():
            self._caller.run(call, workspace)
        return result

    def write_cache(
        self,
        cache: torch.Tensor | Quantized,
        keys: torch.Tensor | Quantized,
        slot_mapping: torch.Tensor,
        *,
        workspace: torch.Tensor | None = None,
    ) -> None:
        """Put key n into slot `slot_mapping[n]` = page * P + offset of the cache, in place.

        Slots < 0 or past the last page are skipped and no other byte changes.

        Args:
            cache: [num_pages, >= page_bytes] uint8, any page stride; in layout F4 a pair of values
                [num_pages, D/128, 4, P, 16] and scales [num_pages, D/128, 4, P].
            keys: [N, D] float32 or bfloat16, quantised on the way as `quantize` does; or a pair
                (values, scales), stored as it is.
            slot_mapping: [N] int64, each slot at most once.
        """
        self._require("write_cache")
        spec, device = self.spec, self.device
        pages = checks.cache_memory(cache, spec, device)
        num_pages = pages[0].shape[0]
        if isinstance(keys, tuple):
            entry, given = "write_cache", checks.vectors("keys", keys, ("N",), spec, device)
            inputs = flat_vectors("keys", given, spec)
        else:
            check_tensor("keys", keys, shape=("N", spec.head_dim), dtype=FLOATS, device=device)
            entry, inputs = f"write_cache_{SUFFIX[keys.dtype]}", {"keys": keys}
        rows = next(iter(inputs.values())).shape[0]
        check_tensor("slot_mapping", slot_mapping, shape=(rows,), dtype=torch.int64, device=device)
        if self.validate:
            checks.slots_are_valid(slot_mapping, num_pages * spec.page_size)
        if self._caller is None:
            pair = keys if isinstance(keys, tuple) else reference.quantize(keys, spec)
            reference.write_cache(pages, *pair, slot_mapping, spec)
        elif rows and num_pages:
            inputs["slot_mapping"] = slot_mapping
            outputs = checks.flat_memory(pages)
            scalars = page_scalars(*pages)
            work = -(-rows // COPIES) if isinstance(keys, tuple) else rows
            call = Call("write_cache", entry, inputs, outputs, scalars, work=work)
            self._caller.run(call, workspace)

    def gather_cache(
        self,
        cache: torch.Tensor | Quantized,
        block_table: torch.Tensor,
        row_to_request: torch.Tensor,
        entries: torch.Tensor,
        *,
        dtype: torch.dtype | None = None,
        out: Quantized | torch.Tensor | None = None,
        workspace: torch.Tensor | None = None,
    ) -> Quantized | torch.Tensor:
        """Entry `entries[r]` of request `row_to_request[r]`: its raw bytes, or its numbers.

        An entry < 0, beyond the block table or on a page id outside [0, num_pages) gives zeros.

        Args:
            cache: as in `write_cache`.
            block_table: [B, W] int32 page ids.
            row_to_request: [R] int32 row of the block table.
            entries: [R] int32 entry numbers within the request.
            dtype: None for raw bytes, else float32 or bfloat16.

        Returns:
            (values, scales) of R vectors as `quantize` returns them, or [R, D] numbers.
        """
        self._require("gather_cache")
        spec, device = self.spec, self.device
        pages = checks.cache_memory(cache, spec, device)
        checks.int32("block_table", block_table, ("B", "W"), device)
        rows = checks.int32("entries", entries, ("R",), device).shape[0]
        checks.int32("row_to_request", row_to_request, (rows,), device)
        if dtype is None:
            raw_out = checks.quantized_output(out, (rows,), spec, device)
            outputs, entry = flat_vectors("out", raw_out, spec), "gather_cache"
        else:
            checks.float_dtype("dtype", dtype)
            numbers = checks.output("out", out, (rows, spec.head_dim), dtype, device)
            outputs, entry = {"out": numbers}, f"gather_cache_{SUFFIX[dtype]}"
        if self._caller is None or not (pages[0].shape[0] and block_table.numel()):
            raw = reference.gather_cache(pages, block_table, row_to_request, entries, spec)
            found = raw if dtype is None else (reference.dequantize(*raw, spec),)
            _fill(tuple(outputs.values()), found)
        elif rows:
            inputs = {
                **checks.flat_memory(pages),
                "block_table": block_table,
                "row_to_request": row_to_request,
                "entries": entries,
            }
            scalars = page_scalars(*pages)
            work = -(-rows // COPIES) if dtype is None else rows
            call = Call("gather_cache", entry, inputs, outputs, scalars, work=work)
            self._caller.run(call, workspace)
        return raw_out if dtype is None else numbers


def _f32_bits(number: float) -> int:
    """The number rounded to float32, as the integer of its bits."""
    return int(struct.unpack("<i", struct.pack("<f", number))[0])


def _leading(x: object) -> tuple[int, ...]:
    """The shape of a batch of vectors."""
    return tuple(x.shape[:-1]) if isinstance(x, torch.Tensor) else ()


def _fill(outputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
    for output, result in zip(outputs, results):
        output.copy_(result.reshape(output.shape))
