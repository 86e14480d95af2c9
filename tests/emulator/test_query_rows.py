"""quantize_queries of gfx942 and gfx950, executed: bytes exact, one dispatch, no access outside."""

from __future__ import annotations

import pytest
import torch
from test_queries import SPECS, assert_same, inputs, table

from dsv4_iree import IndexerSpec
from dsv4_iree.spec import Intermediate

CHOSEN = ("R", "D-hadamard", "S2-dim256-heads3", "fp8-hadamard", "fnuz-dim96", "R-dim32-hadamard")


@pytest.mark.parametrize("spec", [SPECS[name] for name in CHOSEN], ids=CHOSEN)
@pytest.mark.parametrize("between", Intermediate, ids=lambda i: i.name)
def test_hard_queries_give_the_bytes_of_the_reference(
    emulated, plain, counted, spec: IndexerSpec, between: Intermediate
) -> None:
    indexer = emulated(spec, "quantize_queries")
    for dtype, angles in ((torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)):
        q, weights, positions = (x[::3].contiguous() for x in inputs(spec, dtype))
        call = {"positions": positions, "cos_sin": table(spec.rope_dim, angles)}
        call["intermediate"] = between
        actual = indexer.quantize_queries(q, weights, **call)
        assert_same(actual, plain(spec).quantize_queries(q, weights, **call))
    assert [dispatch.scratch_bytes for dispatch in counted()] == [0, 0]


def test_the_table_is_read_at_its_ends_and_nowhere_else(emulated, plain) -> None:
    """The emulator refuses any read outside the table."""
    spec = SPECS["R"]
    q, weights = torch.randn(6, 8, 128), torch.randn(6, 8)
    positions = torch.tensor([0, 4, 5, -1, 2**62, -(2**63)])
    for dtype in (torch.float32, torch.bfloat16):
        call = {"positions": positions, "cos_sin": table(64, dtype)[1:6].contiguous()}
        assert_same(
            emulated(spec, "quantize_queries").quantize_queries(q, weights, **call),
            plain(spec).quantize_queries(q, weights, **call),
        )
