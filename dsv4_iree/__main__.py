# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""python -m dsv4_iree info | verify | demo: what is here, whether it is right, and what it does."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import iree.runtime
import torch

from dsv4_iree import compat, emulator, manifest, runtime
from dsv4_iree.errors import IndexerError
from dsv4_iree.spec import TARGETS

if TYPE_CHECKING:
    from dsv4_iree.verify import Verdict

PACKAGES = ("dsv4_iree", "torch", "iree-base-runtime", "iree-base-compiler", "iree-turbine")


def main() -> int:
    args = _arguments()
    folders = (args.artifacts,) if args.artifacts else runtime.artifact_folders()
    try:
        return {"info": _info, "verify": _verify, "demo": _demo}[args.command](args, folders)
    except IndexerError as error:
        print(f"dsv4_iree: {error}", file=sys.stderr)
        return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dsv4_iree", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    words = {
        "info": "versions, devices and the artifacts that are found",
        "verify": "check hashes, signatures and known answers of the artifacts",
        "demo": "select top-512 and top-1024 on real text, compiled and with eager torch",
    }
    for name, text in words.items():
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--json", action="store_true", help="one JSON object on stdout")
        command.add_argument(
            "--artifacts",
            type=Path,
            help="folder of artifacts (default: $DSV4_IREE_ARTIFACTS or the user's cache)",
        )
        if name == "info":
            command.add_argument(
                "--compat", action="store_true", help="the functions of other systems on offer"
            )
        if name == "verify":
            command.add_argument("--target", nargs="+", choices=TARGETS, default=TARGETS)
            command.add_argument(
                "--emulate", action="store_true", help="run gfx942 and gfx950 on the emulator"
            )
            command.add_argument(
                "--stats", action="store_true", help="counts and modelled times of emulated runs"
            )
        if name == "demo":
            command.add_argument("--jobs", type=int, default=2, help="compiles at a time")
    return parser.parse_args()


def _info(args: argparse.Namespace, folders: Sequence[Path]) -> int:
    if args.compat:
        return _info_compat(args)
    found = [
        {"target": target, "file": path.stem, "folder": str(folder)}
        for folder in folders
        for target in TARGETS
        for path in sorted((folder / target).glob("*.json"))
    ]
    drivers = list(iree.runtime.query_available_drivers())
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "cpu": manifest.host_cpu(),
        "iree_drivers": drivers,
        "devices": {target: runtime.device_for(target) for target in TARGETS},
        "folders": [str(folder) for folder in folders],
        "artifacts": found,
    }
    if args.json:
        print(json.dumps(report, indent=2))
        return 0
    _table([("python", report["python"]), *report["packages"].items()])
    print("IREE drivers:", ", ".join(drivers))
    _table([(t, name or "no device here") for t, name in report["devices"].items()])
    print(f"{len(found)} artifacts in {', '.join(map(str, folders))}")
    _table([(one["target"], one["file"]) for one in found])
    return 0


def _info_compat(args: argparse.Namespace) -> int:
    if args.json:
        print(json.dumps([offer._asdict() for offer in compat.TABLE], indent=2))
    else:
        _table([compat.Offer._fields, *compat.TABLE])
    return 0


def _verify(args: argparse.Namespace, folders: Sequence[Path]) -> int:
    from dsv4_iree.verify import verify

    if args.emulate or args.stats:
        emulator.enable()
    if args.stats:
        emulator.configure(count_distinct=True)
    verdicts = verify(folders, args.target)
    failed = [verdict for verdict in verdicts if not verdict.ok]
    if args.json:
        rows = [{**asdict(verdict), "ok": verdict.ok} for verdict in verdicts]
        for row in rows:
            launches = row.pop("launches")
            row |= {"launches": launches} if args.stats else {}
        print(json.dumps({"ok": not failed, "artifacts": rows}, indent=2))
    else:
        header = ("artifact", "hash", "signature", "known answer")
        _table([header, *((v.file, v.hash, v.signature, v.answer) for v in verdicts)])
        print(f"{len(verdicts) - len(failed)} of {len(verdicts)} artifacts are right")
        if args.stats:
            _print_stats(verdicts)
    return int(bool(failed) or not verdicts)


def _print_stats(verdicts: Sequence[Verdict]) -> None:
    """What the emulator counted in each known answer, and the times modelled from it."""
    from dsv4_iree.emulator.cost import RESOURCES, cost

    classes = ("mfma", "valu", "salu", "lds", "global")
    header = ("emulated", "launches", *classes, "bytes read", "written", "modelled us", "binds")
    rows: list[tuple[object, ...]] = []
    for verdict in verdicts:
        if not (launches := verdict.launches):
            continue
        costs = [cost(launch) for launch in launches]
        times = {name: sum(getattr(one, name) for one in costs) for name in RESOURCES}
        counts = [sum(launch.classes.get(name, 0) for launch in launches) for name in classes]
        read = sum(launch.distinct_bytes_read for launch in launches)
        written = sum(launch.distinct_bytes_written for launch in launches)
        modelled = f"{sum(one.seconds for one in costs) * 1e6:.2f}"
        binds = max(times, key=lambda name: times[name])
        rows.append((verdict.file, len(launches), *counts, read, written, modelled, binds))
    _table([header, *rows])
    print("modelled: peak rates of MI300X (gfx942) and MI355X (gfx950); nothing here was measured")


def _demo(args: argparse.Namespace, folders: Sequence[Path]) -> int:
    try:
        from dsv4_iree import demo
    except ModuleNotFoundError as error:
        raise IndexerError(
            f"demo: {error.name} is missing; pip install 'dsv4_iree[demo]'"
        ) from None
    report = demo.run(folders[0], args.jobs)
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        _print_demo(report, folders[0])
    return int(not report["ids_equal"])


def _print_demo(report: dict[str, Any], folder: Path) -> None:
    print(f"{report['rows']} queries x {report['keys']} keys of real text, 64 heads, MXFP4, CPU")
    yes = {True: "yes", False: "NO"}
    rows: list[tuple[object, ...]] = [("", "top-512 (Flash)", "top-1024 (Pro)")]
    rows.append(("ids equal to torch on the same logits", *[yes[report["ids_equal"]]] * 2))
    for label, key in (
        ("overlap with eager torch, scoring included", "eager_overlap"),
        ("overlap with the selection before quantising", "overlap"),
        ("milliseconds, compiled", "compiled_ms"),
        ("milliseconds, eager torch fp32", "eager_ms"),
    ):
        rows.append((label, report[f"{key}_512"], report[f"{key}_1024"]))
    _table(rows)
    sizes: dict[str, dict[str, int]] = {}
    for one in report["artifacts"]:
        sizes.setdefault(Path(one["file"]).stem, {})[one["target"]] = one["bytes"]
    targets = sorted({one["target"] for one in report["artifacts"]})
    print(f"artifact bytes, in {folder}")
    _table([("", *targets), *((name, *(row[t] for t in targets)) for name, row in sizes.items())])


def _table(rows: Sequence[Sequence[object]]) -> None:
    """Print columns, two spaces apart."""
    if not rows:
        return
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [str(cell).ljust(width) for cell, width in zip(row, widths)]
        print("  " + "  ".join(cells).rstrip())


def _version(package: str) -> str:
    if package == "torch":
        return str(torch.__version__)
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    sys.exit(main())
