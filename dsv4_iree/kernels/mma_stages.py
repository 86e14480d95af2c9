# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keys that are on their way while others are scored: the loop over blocks of NVIDIA kernels.

While a block is scored, the next one's keys come by `cp.async` into shared memory, and the page
numbers of the one after it into registers. Every lane reads what it copied itself, so no lane waits
for another. A copy of no bytes writes zeros and reads nothing: that is what a page that is not
there gets. Pages that do not lie 16 bytes apart are copied byte by byte.
"""

from __future__ import annotations

from textwrap import indent

from dsv4_iree.kernels.mma_common import TILES, Loop, shared
from dsv4_iree.spec import IndexerSpec

TILE_KEYS = 8
CODES, SCALES = 16, 4  # bytes that a lane takes of a tile
SHARED = "#gpu.address_space<workgroup>"


def loop(spec: IndexerSpec, threads: int, paged: bool, rows: int) -> Loop:
    """A loop whose blocks ask for the keys of the next ones; `codes` and `scales` load a tile's."""
    return Loop(
        _begin(spec, threads, paged),
        _carried(spec, paged),
        _ahead(spec, threads, paged, rows),
        _there(spec, paged),
        _end(spec, paged),
    )


def memory(threads: int) -> str:
    """%code_stages and %scale_stages: room for two blocks of keys."""
    return f"""\
{shared("%code_stages", _code_memory(threads))}
{shared("%scale_stages", _scale_memory(threads))}"""


def _begin(spec: IndexerSpec, threads: int, paged: bool) -> str:
    """Before the loop: the first block's keys, and the second one's pages, are asked for."""
    kinds = _code_memory(threads), _scale_memory(threads)
    lines = [
        f"""\
%threads = arith.constant {threads} : index
%code_stage_bytes = arith.constant {TILES * threads * CODES} : index
%scale_stage_bytes = arith.constant {TILES * threads * SCALES} : index
%thread_codes = arith.muli %thread, %c16 : index
%thread_scales = arith.muli %thread, %c4 : index
%code_stage_any = memref.extract_aligned_pointer_as_index %code_stages : {kinds[0]} -> index
%code_stage = arith.addi %code_stage_any, %thread_codes : index
%scale_stage_any = memref.extract_aligned_pointer_as_index %scale_stages : {kinds[1]} -> index
%scale_stage = arith.addi %scale_stage_any, %thread_scales : index
%second = arith.addi %run, %block_keys : index
{_ptx("cp.async.wait_group 0;")}"""
    ]
    for name in ("cache",) if paged else ("k_values", "k_scales"):
        lines.append(
            f"%{name}_pointer = memref.extract_aligned_pointer_as_index %{name}"
            " : memref<?xi8> -> index"
        )
    lines.append("%begins = arith.constant true")
    if paged:
        lines.append("""\
// Negative ids are large unsigned numbers.
%no_page = arith.constant -1 : i32
%most_pages = arith.constant 0x80000000 : index
%some_pages = arith.minui %num_pages, %most_pages : index
%num_pages32 = arith.index_cast %some_pages : index to i32""")
        lines.append(_pages(spec, "_a", "%run"))
    lines.append(_fetch(spec, threads, "_a", "%run", "%begins", "%c0", paged))
    if paged:
        lines.append(_pages(spec, "_b", "%second"))
    return "\n".join(lines)


def _carried(spec: IndexerSpec, paged: bool) -> str:
    """What goes from block to block: the stage of this block, its keys that are there, the next
    one's pages.
    """
    names = ["%stage = %c0", *(f"%there{t} = %there{t}_a" for t in _lookups(spec, paged))]
    if paged:
        names += [f"%page{t}_c = %page{t}_b" for t in _lookups(spec, paged)]
    return f"\n    iter_args({', '.join(names)}) -> ({_kinds(spec, paged)})"


def _ahead(spec: IndexerSpec, threads: int, paged: bool, rows: int) -> str:
    """At the start of a block: ask for the next one's keys, and wait for this one's."""
    lines = [
        """\
%next = arith.addi %base, %block_keys : index
%next_stage = arith.subi %c1, %stage : index
%next32 = arith.index_cast %next : index to i32
%next_end32 = arith.addi %next32, %block_keys32 : i32
%goes_on = arith.cmpi ult, %next, %run_end : index"""
    ]
    met = "%nowhere_next"
    lines.append(f"{met} = arith.constant false")
    for r in range(rows):
        lines.append(f"""\
%next_begins{r} = arith.cmpi ult, %first{r}, %next_end32 : i32
%next_reaches{r} = arith.cmpi ugt, %stop{r}, %next32 : i32
%next_overlaps{r} = arith.andi %next_begins{r}, %next_reaches{r} : i1
%next_meets{r} = arith.andi %next_overlaps{r}, %meets{r} : i1
%next_any{r} = arith.ori {met}, %next_meets{r} : i1""")
        met = f"%next_any{r}"
    lines.append(f"%next_here = arith.andi {met}, %goes_on : i1")
    lines.append(_fetch(spec, threads, "_c", "%next", "%next_here", "%next_stage", paged))
    if paged:
        lines.append("%after_next = arith.addi %next, %block_keys : index")
        lines.append(_pages(spec, "_d", "%after_next"))
    lines.append(_ptx("cp.async.wait_group 1;"))
    return "\n".join(lines)


def _there(spec: IndexerSpec, paged: bool) -> str:
    """%there: whether the key that this lane writes is visible."""
    lines = []
    each = TILES // len(_lookups(spec, paged))
    last = f"%there{TILES - each}"
    for first in reversed(range(0, TILES - each, each)):
        lines.append(f"""\
%until{first} = arith.constant {first + each} : index
%before{first} = arith.cmpi ult, %g, %until{first} : index
%there_from{first} = arith.select %before{first}, %there{first}, {last} : i1""")
        last = f"%there_from{first}"
    return "\n".join([*lines, f"%there = arith.ori {last}, {last} : i1"])


def codes(result: str, threads: int, t: int) -> str:
    """<result>: the 16 bytes of codes that this lane has of tile t."""
    return _stage(result, "%code_stages", t, _code_memory(threads), CODES)


def scales(result: str, threads: int, t: int) -> str:
    """<result>: the scales of this lane's key of tile t."""
    return _stage(result, "%scale_stages", t, _scale_memory(threads), SCALES)


def _stage(result: str, stages: str, t: int, kind: str, size: int) -> str:
    return f"""\
{result}_tile = arith.constant {t} : index
{result} = "vector.load"({stages}, %stage, {result}_tile, %thread, %c0)
    <{{alignment = {size} : i64}}> : ({kind}, index, index, index, index) -> vector<{size}xi8>"""


def _end(spec: IndexerSpec, paged: bool) -> str:
    names = ["%next_stage", *(f"%there{t}_c" for t in _lookups(spec, paged))]
    if paged:
        names += [f"%page{t}_d" for t in _lookups(spec, paged)]
    return f"scf.yield {', '.join(names)} : {_kinds(spec, paged)}"


def _kinds(spec: IndexerSpec, paged: bool) -> str:
    lookups = len(_lookups(spec, paged))
    return ", ".join(["index", *["i1"] * lookups, *["i32"] * (lookups if paged else 0)])


def _lookups(spec: IndexerSpec, paged: bool) -> range:
    """First tiles of those that lie in one page, whatever the block."""
    sizes = (tiles for tiles in (4, 2, 1) if spec.page_size % (tiles * TILE_KEYS) == 0)
    return range(0, TILES, next(sizes) if paged else TILES)


def _code_memory(threads: int) -> str:
    return f"memref<2x{TILES}x{threads}x{CODES}xi8, {SHARED}>"


def _scale_memory(threads: int) -> str:
    return f"memref<2x{TILES}x{threads}x{SCALES}xi8, {SHARED}>"


def _pages(spec: IndexerSpec, tag: str, base: str) -> str:
    """%page<t><tag>: the pages of the block at `base`, or one that is not there."""
    lines = [f"%block{tag}p = arith.addi {base}, %wave_keys : index"]
    for first in _lookups(spec, True):
        n = f"{first}{tag}"
        lines.append(f"""\
%key_at{n} = arith.constant {first * TILE_KEYS} : index
%key{n} = arith.addi %block{tag}p, %key_at{n} : index
%page_size{n} = arith.constant {spec.page_size} : index
%entry{n} = arith.divui %key{n}, %page_size{n} : index
%in_table{n} = arith.cmpi ult, %entry{n}, %width : index
%page{n} = scf.if %in_table{n} -> (i32) {{
  %page_any = memref.load %block_table[%asks, %entry{n}] : memref<?x?xi32>
  scf.yield %page_any : i32
}} else {{
  scf.yield %no_page : i32
}}""")
    return "\n".join(lines)


def _fetch(
    spec: IndexerSpec, threads: int, tag: str, base: str, here: str, stage: str, paged: bool
) -> str:
    """Ask for the keys of the block at `base`, if it is `here`; %there<t><tag>."""
    lines = [
        f"""\
%block{tag} = arith.addi {base}, %wave_keys : index
%code_bytes{tag} = arith.muli {stage}, %code_stage_bytes : index
%code_to{tag} = arith.addi %code_stage, %code_bytes{tag} : index
%scale_bytes{tag} = arith.muli {stage}, %scale_stage_bytes : index
%scale_to{tag} = arith.addi %scale_stage, %scale_bytes{tag} : index
%code_to32{tag} = arith.index_cast %code_to{tag} : index to i32
%scale_to32{tag} = arith.index_cast %scale_to{tag} : index to i32"""
    ]
    lookups = _lookups(spec, paged)
    for first in lookups:
        tiles = range(first, first + TILES // len(lookups))
        row = _paged_row if paged else _ragged_row
        lines.append(row(spec, f"{first}{tag}", f"%block{tag}", first, here))
        lines.append(_copies(threads, f"{first}{tag}", tag, tiles, paged, stage))
    return "\n".join([*lines, _ptx("cp.async.commit_group;")])


def _paged_row(spec: IndexerSpec, n: str, block: str, first: int, here: str) -> str:
    """%value_row<n>, %scale_row<n>: of this lane's key of tile `first`; %there<n>."""
    return f"""\
%key_at{n}r = arith.constant {first * TILE_KEYS} : index
%key{n}r = arith.addi {block}, %key_at{n}r : index
%page_size{n}r = arith.constant {spec.page_size} : index
%token{n} = arith.remui %key{n}r, %page_size{n}r : index
%real{n} = arith.cmpi ult, %page{n}, %num_pages32 : i32
%page64{n} = arith.index_castui %page{n} : i32 to index
%there{n} = arith.andi %real{n}, {here} : i1
%page_base{n} = arith.muli %page64{n}, %page_stride : index
%lane_token{n} = arith.addi %token{n}, %n : index
%row_in{n} = arith.muli %lane_token{n}, %value_bytes : index
%value_row{n} = arith.addi %page_base{n}, %row_in{n} : index
%page_values{n} = arith.constant {spec.page_size * spec.value_bytes} : index
%scales_base{n} = arith.addi %page_base{n}, %page_values{n} : index
%scale_in{n} = arith.muli %lane_token{n}, %c4 : index
%scale_row{n} = arith.addi %scales_base{n}, %scale_in{n} : index"""


def _ragged_row(spec: IndexerSpec, n: str, block: str, first: int, here: str) -> str:
    return f"""\
%there{n} = arith.ori {here}, {here} : i1
%lane_key{n} = arith.addi {block}, %n : index
%value_row{n} = arith.muli %lane_key{n}, %value_bytes : index
%scale_row{n} = arith.muli %lane_key{n}, %c4 : index"""


def _copies(threads: int, n: str, tag: str, tiles: range, paged: bool, stage: str) -> str:
    """Copies of the tiles' keys, from the rows of the first of them."""
    values, scales = ("cache", "cache") if paged else ("k_values", "k_scales")
    wide, single = [], []
    for t in tiles:
        at = (t - tiles[0]) * TILE_KEYS
        there = f"%there{n}"
        if not paged:
            there = f"%there{n}_{t}"
            wide.append(f"""\
%tile_at{n}_{t} = arith.constant {at} : index
%tile_key{n}_{t} = arith.addi %lane_key{n}, %tile_at{n}_{t} : index
%before_last{n}_{t} = arith.cmpi ult, %tile_key{n}_{t}, %columns : index
{there} = arith.andi %there{n}, %before_last{n}_{t} : i1""")
        for part, size, row in (("code", CODES, 64), ("scale", SCALES, SCALES)):
            p = f"{n}_{t}_{part}"
            to, source = t * threads * size, at * row
            level = "cg" if size == 16 else "ca"
            code = f"cp.async.{level}.shared.global [$0+{to}], [$1+{source}], {size}, $2;"
            wide.append(f"""\
%all{p} = arith.constant {size} : i32
%size{p} = arith.select {there}, %all{p}, %i0 : i32
llvm.inline_asm has_side_effects asm_dialect = att "{code}", "r,l,r,~{{memory}}"
    %{part}_to32{tag}, %{part}_from{n}, %size{p} : (i32, i64, i32) -> ()""")
        if paged:
            single.append(_bytes(threads, n, t, at, stage))
    lines = [
        f"""\
%code_at{n} = arith.addi %value_row{n}, %group_bytes : index
%code_pointer{n} = arith.addi %{values}_pointer, %code_at{n} : index
%scale_pointer{n} = arith.addi %{scales}_pointer, %scale_row{n} : index
%code_from{n} = arith.index_cast %code_pointer{n} : index to i64
%scale_from{n} = arith.index_cast %scale_pointer{n} : index to i64"""
    ]
    if not paged:
        return "\n".join([*lines, *wide])
    return "\n".join([*lines, "scf.if %aligned {", _in(wide), "} else {", _in(single), "}"])


def _bytes(threads: int, n: str, t: int, at: int, stage: str) -> str:
    """The copies of a tile by single bytes."""
    lines = []
    for part, size, row, start in (
        ("code", CODES, 64, f"%code_at{n}"),
        ("scale", SCALES, SCALES, f"%scale_row{n}"),
    ):
        kind = _code_memory(threads) if part == "code" else _scale_memory(threads)
        p = f"{part}b{n}_{t}"
        names = ", ".join(f"%{p}{i}" for i in range(size))
        lines.append(f"""\
%tile{p} = arith.constant {t} : index
%zeros{p} = arith.constant dense<0> : vector<{size}xi8>
%bytes{p} = scf.if %there{n} -> (vector<{size}xi8>) {{""")
        for i in range(size):
            lines.append(f"""\
  %{p}_at{i} = arith.constant {at * row + i} : index
  %{p}_from{i} = arith.addi {start}, %{p}_at{i} : index
  %{p}{i} = memref.load %cache[%{p}_from{i}] : memref<?xi8>""")
        lines.append(f"""\
  %loaded{p} = vector.from_elements {names} : vector<{size}xi8>
  scf.yield %loaded{p} : vector<{size}xi8>
}} else {{
  scf.yield %zeros{p} : vector<{size}xi8>
}}
"vector.store"(%bytes{p}, %{part}_stages, {stage}, %tile{p}, %thread, %c0)
    <{{alignment = {size} : i64}}>
    : (vector<{size}xi8>, {kind}, index, index, index, index) -> ()""")
    return "\n".join(lines)


def _ptx(code: str) -> str:
    return f'llvm.inline_asm has_side_effects asm_dialect = att "{code}", "~{{memory}}" : () -> ()'


def _in(lines: list[str]) -> str:
    return indent("\n".join(lines), "  ")
