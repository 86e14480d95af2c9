"""Cache layouts: byte addresses worked out by hand, and laws that hold for every size."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dsv4_iree import layout, reference
from dsv4_iree.errors import ArgumentError
from dsv4_iree.spec import CacheLayout, Format, IndexerSpec

N4, N4_SMALL = IndexerSpec(), IndexerSpec(page_size=16)
N8 = IndexerSpec(format=Format.FP8, layout="n8")
G4_16, G4_32 = IndexerSpec(num_heads=8, layout="g4"), IndexerSpec(layout="g4")
P8 = IndexerSpec(format=Format.FP8, layout="p8")
F4, F4_WIDE = IndexerSpec(layout="f4"), IndexerSpec(layout="f4", head_dim=256)

VALUES = [  # spec, page stride, {(page, entry, value byte): address}
    (N4, 4352, {
        (0, 0, 0): 0, (0, 1, 5): 69, (0, 63, 63): 4095,
        (2, 0, 0): 8704, (2, 1, 0): 8768, (2, 63, 63): 12799,
    }),
    (N4_SMALL, 2000, {(0, 1, 5): 69, (0, 15, 63): 1023, (2, 0, 0): 4000, (2, 15, 63): 5023}),
    (N8, 8448, {
        (0, 0, 0): 0, (0, 1, 7): 135, (0, 63, 127): 8191,
        (2, 0, 0): 16896, (2, 1, 0): 17024, (2, 63, 127): 25087,
    }),
    (G4_16, 4352, {
        (0, 0, 0): 0, (0, 1, 0): 16, (0, 1, 20): 276, (0, 63, 63): 4095,
        (2, 0, 0): 8704, (2, 17, 33): 10257, (2, 63, 63): 12799,
    }),
    (G4_32, 4352, {
        (0, 0, 0): 0, (0, 1, 20): 532, (0, 33, 63): 3615, (0, 63, 63): 4095,
        (2, 0, 0): 8704, (2, 17, 33): 10001, (2, 63, 63): 12799,
    }),
    (P8, 9000, {
        (0, 0, 0): 0, (0, 1, 0): 16, (0, 1, 17): 273, (0, 63, 127): 8191,
        (2, 0, 0): 18000, (2, 17, 33): 20577, (2, 63, 127): 26191,
    }),
]  # fmt: skip
SCALES = [  # spec, page stride, {(page, entry, scale byte): address}
    (N4, 4352, {
        (0, 0, 0): 4096, (0, 1, 2): 4102, (0, 63, 3): 4351,
        (2, 0, 0): 12800, (2, 1, 1): 12805, (2, 63, 3): 13055,
    }),
    (N4_SMALL, 2000, {(0, 0, 0): 1024, (0, 15, 3): 1087, (2, 1, 1): 5029, (2, 15, 3): 5087}),
    (N8, 8448, {
        (0, 0, 0): 8192, (0, 1, 0): 8196, (0, 63, 3): 8447,
        (2, 0, 0): 25088, (2, 1, 2): 25094, (2, 63, 3): 25343,
    }),
    (G4_16, 4352, {
        (0, 0, 0): 4096, (0, 1, 2): 4129, (0, 63, 3): 4351,
        (2, 0, 0): 12800, (2, 17, 1): 12881, (2, 63, 3): 13055,
    }),
    (G4_32, 4352, {
        (0, 0, 0): 4096, (0, 1, 1): 4162, (0, 1, 2): 4099, (0, 63, 3): 4351,
        (2, 0, 0): 12800, (2, 33, 2): 12931, (2, 63, 3): 13055,
    }),
    (P8, 9000, {(0, 0, 0): 8192, (0, 1, 0): 8196, (2, 17, 1): 26261, (2, 63, 3): 26447}),
]  # fmt: skip
NAMES = ["N4", "N4-page16", "N8", "G4-16", "G4-32", "P8"]


@pytest.mark.parametrize(("spec", "stride", "addresses"), VALUES, ids=NAMES)
def test_value_bytes_lie_where_the_formula_says(
    spec: IndexerSpec, stride: int, addresses: dict[tuple[int, int, int], int]
) -> None:
    assert_addresses(spec, stride, addresses, first_column=0)


@pytest.mark.parametrize(("spec", "stride", "addresses"), SCALES, ids=NAMES)
def test_scale_bytes_lie_where_the_formula_says(
    spec: IndexerSpec, stride: int, addresses: dict[tuple[int, int, int], int]
) -> None:
    assert_addresses(spec, stride, addresses, first_column=spec.value_bytes)


def assert_addresses(
    spec: IndexerSpec,
    stride: int,
    addresses: dict[tuple[int, int, int], int],
    first_column: int,
) -> None:
    """A byte put at each address shows up as the one byte of the one entry, and nowhere else."""
    storage = torch.zeros(3 * stride, dtype=torch.uint8)
    for (page, entry, column), address in addresses.items():
        storage.zero_()
        storage[address] = 1
        pages = storage.view(3, stride)[:, : spec.page_bytes]
        where = layout.as_entries(spec, pages).nonzero().tolist()
        assert where == [[page, entry, first_column + column]]


@pytest.mark.parametrize(
    ("spec", "addresses"),
    [
        (F4, {
            (0, 0, 0): 0, (0, 1, 0): 16, (0, 1, 17): 1041, (0, 63, 63): 4095,
            (2, 0, 0): 8192, (2, 1, 33): 10257, (2, 63, 63): 12287,
        }),
        (F4_WIDE, {(0, 1, 17): 1041, (1, 2, 100): 14372, (1, 63, 127): 16383}),
    ],
    ids=["dim128", "dim256"],
)  # fmt: skip
def test_f4_values_lie_where_the_formula_says(spec: IndexerSpec, addresses: dict) -> None:
    values, scales = empty_f4(spec)
    for (page, entry, column), address in addresses.items():
        values.zero_().view(-1)[address] = 1
        where = layout.f4_to_entries(values, scales).nonzero().tolist()
        assert where == [[page, entry, column]]


@pytest.mark.parametrize(
    ("spec", "addresses"),
    [
        (F4, {
            (0, 0, 0): 0, (0, 1, 0): 4, (0, 16, 0): 1, (0, 63, 3): 255,
            (2, 0, 0): 512, (2, 1, 2): 644, (2, 63, 3): 767,
        }),
        (F4_WIDE, {(0, 1, 4): 260, (1, 2, 6): 904, (1, 63, 7): 1023}),
    ],
    ids=["dim128", "dim256"],
)  # fmt: skip
def test_f4_scales_lie_where_the_formula_says(spec: IndexerSpec, addresses: dict) -> None:
    values, scales = empty_f4(spec)
    for (page, entry, column), address in addresses.items():
        scales.zero_().view(-1)[address] = 1
        where = layout.f4_to_entries(values, scales).nonzero().tolist()
        assert where == [[page, entry, spec.value_bytes + column]]


def empty_f4(spec: IndexerSpec) -> tuple[torch.Tensor, torch.Tensor]:
    tiles, pages = spec.head_dim // 128, 3
    return (
        torch.zeros(pages, tiles, 4, spec.page_size, 16, dtype=torch.uint8),
        torch.zeros(pages, tiles, 4, spec.page_size, dtype=torch.uint8),
    )


@st.composite
def specs(draw: st.DrawFn) -> IndexerSpec:
    kind = draw(st.sampled_from(CacheLayout))
    heads = draw(st.sampled_from([8, 31, 32, 64]))
    dims = {CacheLayout.F4: [128, 256], CacheLayout.G4: [32, 64, 128, 256]}
    dim = draw(st.sampled_from(dims.get(kind, list(range(32, 257, 32)))))
    tile = {CacheLayout.F4: 16, CacheLayout.P8: 16, CacheLayout.G4: 32}.get(kind, 1)
    page = tile * draw(st.integers(1, 128 // tile))
    is_fp8 = kind in (CacheLayout.N8, CacheLayout.P8)
    return IndexerSpec(heads, dim, page, format="fp8" if is_fp8 else "fp4", layout=kind)


@given(specs())
def test_every_byte_of_a_page_belongs_to_one_byte_of_one_entry(spec: IndexerSpec) -> None:
    offsets = layout.page_offsets(spec)
    values, scales = offsets[:, : spec.value_bytes], offsets[:, spec.value_bytes :]
    if spec.layout is CacheLayout.F4:
        assert values.flatten().sort().values.equal(torch.arange(values.numel()))
        assert scales.flatten().sort().values.equal(torch.arange(scales.numel()))
    else:
        assert offsets.flatten().sort().values.equal(torch.arange(spec.page_bytes))
        assert values.max() < spec.page_size * spec.value_bytes <= scales.min()


@given(specs(), st.data())
def test_ints_and_tensors_have_the_same_addresses(spec: IndexerSpec, data: st.DataObject) -> None:
    t = data.draw(st.integers(0, spec.page_size - 1))
    b = data.draw(st.integers(0, spec.value_bytes - 1))
    g = data.draw(st.integers(0, spec.scale_bytes - 1))
    offsets = layout.page_offsets(spec)
    assert layout.value_offset(spec, t, b) == offsets[t, b]
    assert layout.scale_offset(spec, t, g) == offsets[t, spec.value_bytes + g]


def random_entries(pages: int, page_size: int, entry_bytes: int, seed: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    shape = (pages, page_size, entry_bytes)
    return torch.randint(256, shape, dtype=torch.uint8, generator=random)


@given(specs().filter(lambda s: s.layout is not CacheLayout.F4), st.integers(0, 2**32))
def test_entries_survive_the_way_through_a_page(spec: IndexerSpec, seed: int) -> None:
    entries = random_entries(3, spec.page_size, spec.entry_bytes, seed)
    pages = layout.from_entries(spec, entries)
    assert pages.shape == (3, spec.page_bytes)
    wide = torch.full((3, spec.page_bytes + 13), 0xFF, dtype=torch.uint8)
    wide[:, : spec.page_bytes] = pages
    assert layout.as_entries(spec, wide).equal(entries)


@given(st.sampled_from([16, 32, 64, 128]), st.sampled_from([128, 256]), st.integers(0, 2**32))
def test_f4_converts_to_the_other_layouts_and_back(page: int, dim: int, seed: int) -> None:
    n4 = IndexerSpec(page_size=page, head_dim=dim)
    g4 = IndexerSpec(num_heads=8, page_size=page, head_dim=dim, layout="g4")
    entries = random_entries(2, page, n4.entry_bytes, seed)
    values, scales = layout.entries_to_f4(entries)
    assert values.shape == (2, dim // 128, 4, page, 16)
    assert scales.shape == (2, dim // 128, 4, page)
    back = layout.f4_to_entries(values, scales)
    assert back.equal(entries)
    natural = layout.from_entries(n4, back)
    tiled = layout.from_entries(g4, layout.as_entries(n4, natural))
    again = layout.entries_to_f4(layout.as_entries(g4, tiled))
    assert again[0].equal(values)
    assert again[1].equal(scales)


def test_each_entry_of_a_natural_page_keeps_its_own_scale() -> None:
    values = torch.full((64, 64), 0x22, dtype=torch.uint8)  # 1.0
    scales = (120 + torch.arange(64) % 16).to(torch.uint8)[:, None].repeat(1, 4)
    page = torch.zeros(1, 4352, dtype=torch.uint8)
    reference.write_cache(page, values, scales, torch.arange(64), N4)
    assert page[0, 4096:4112].tolist() == [120] * 4 + [121] * 4 + [122] * 4 + [123] * 4
    entries = layout.as_entries(N4, page)[0]
    assert entries[:, 64:].equal(scales)
    assert entries[:, :64].eq(0x22).all()


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"layout": "g4", "head_dim": 96}, "head_dim: expected 32, 64, 128 or 256 for layout G4"),
        ({"layout": "f4", "head_dim": 64}, "head_dim: expected 128 or 256 for layout F4"),
        ({"layout": "f4", "page_size": 8}, "page_size: expected a multiple of 16 for layout F4"),
        (
            {"layout": "g4", "page_size": 48},
            "page_size: expected a multiple of 32 for layout G4, got 48",
        ),
        ({"layout": "n8"}, "layout: expected N4 or G4 or F4 for format fp4, got N8"),
    ],
    ids=["g4-dim96", "f4-dim64", "f4-page8", "g4-page48", "fp4-n8"],
)
def test_sizes_without_a_layout_are_refused(numbers: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        IndexerSpec(**numbers)
