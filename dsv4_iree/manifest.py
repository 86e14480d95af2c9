# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The record beside each artifact: what it is, what it was made from, and whether it fits.

An artifact is code, so nothing of it is touched before its manifest has been read and the hash of
the very bytes that will be loaded has been compared.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path

from dsv4_iree.errors import ArtifactError
from dsv4_iree.spec import OPS, CacheLayout, IndexerSpec

FORMAT = 2  # of the manifest file
MAX_MANIFEST_BYTES = 64 * 1024
ABI = {**dict.fromkeys(OPS, 1), "topk": 3}
"""Per op; raised whenever its arguments, their order or their meaning change."""
_VECTOR = ("head_dim", "format")
_CACHE = ("page_size", "layout")
_FIELDS = {
    "quantize": (*_VECTOR, "rounding", "hadamard"),
    "quantize_queries": (*_VECTOR, "num_heads", "rounding", "hadamard"),
    "dequantize": _VECTOR,
    "write_cache": (*_VECTOR, *_CACHE, "rounding", "hadamard"),
    "gather_cache": (*_VECTOR, *_CACHE),
    "mqa_logits": (*_VECTOR, "num_heads"),
    "paged_mqa_logits": (*_VECTOR, *_CACHE, "num_heads"),
    "topk": ("topk",),
    "index_topk": (*_VECTOR, *_CACHE, "num_heads", "topk"),
}


@dataclass(frozen=True)
class Artifact:
    """One .vmfb and the facts about it.

    Args:
        op: one of `dsv4_iree.spec.OPS`.
        abi: number of the argument list, compared with this package's.
        target: what it was compiled for.
        spec: the fields of the IndexerSpec that the op depends on.
        form: of its kernels, from `kernels.forms`: "portable", or a name of a hand-written one.
        iree: IREE release it was compiled with; the runtime must have the same.
        flags: every flag given to iree-compile.
        cpu: instruction sets it may use (targets cpu and cpu-generic), else "".
        functions: declaration of each entry point, as IREE records it in the module.
        file, bytes, sha256: the .vmfb, beside the manifest.
        mlir, mlir_sha256: the source it was compiled from, beside it too.
    """

    op: str
    abi: int
    target: str
    spec: dict[str, int | str | bool]
    form: str
    iree: str
    flags: tuple[str, ...]
    cpu: str
    functions: dict[str, str]
    file: str
    bytes: int
    sha256: str
    mlir: str
    mlir_sha256: str

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n"


def iree_release(package: str = "iree-base-runtime") -> str:
    """Release of the installed IREE, such as "3.13"."""
    return ".".join(version(package).split(".")[:2])


def spec_fields(op: str, spec: IndexerSpec) -> dict[str, int | str | bool]:
    """What the artifact of `op` for `spec` depends on."""
    names = _FIELDS[op]
    if "layout" in names and spec.layout is CacheLayout.G4:
        names = (*names, "num_heads")  # its tiles depend on it
    return spec.describe(names)


def stem(op: str, spec: IndexerSpec) -> str:
    """File name of the artifact, without its suffix."""
    short = {"num_heads": "h", "head_dim": "d", "page_size": "p", "topk": "k"}
    parts = [op]
    for name, value in spec_fields(op, spec).items():
        if name == "hadamard":
            parts += ["hadamard"] if value else []
        else:
            parts.append(f"{short.get(name, '')}{value}")
    return "-".join(parts)


def read(path: Path) -> Artifact:
    """The manifest in file `path`; ArtifactError if it is not one this package wrote."""
    raw = path.read_bytes()
    if len(raw) > MAX_MANIFEST_BYTES:
        raise ArtifactError(f"{path.name}: manifest of {len(raw)} bytes, at most 65536 are read")
    try:
        data = json.loads(raw)
    except ValueError as error:
        raise ArtifactError(f"{path.name}: not JSON ({error}); rebuild the artifact") from None
    if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
        raise ArtifactError(f"{path.name}: expected manifest format {FORMAT}; rebuild the artifact")
    kinds = {"abi": int, "bytes": int, "spec": dict, "functions": dict, "flags": list}
    for field in fields(Artifact):
        kind = kinds.get(field.name, str)
        if type(data.get(field.name)) is not kind:
            got = data.get(field.name, "nothing")
            raise ArtifactError(
                f"{path.name}: {field.name}: expected {kind.__name__}, got {got!r}; "
                "rebuild the artifact"
            )
    if unknown := sorted(set(data) - {field.name for field in fields(Artifact)}):
        raise ArtifactError(f"{path.name}: unknown field {unknown[0]!r}; rebuild the artifact")
    for name in ("file", "mlir"):
        if Path(data[name]).name != data[name] or data[name] in ("", ".", ".."):
            raise ArtifactError(f"{path.name}: {name}: expected a file name, got {data[name]!r}")
    return Artifact(**{**data, "flags": tuple(data["flags"])})


def reject_reason(artifact: Artifact, op: str, target: str, spec: IndexerSpec) -> str | None:
    """Why `artifact` cannot serve, or None if it can."""
    wanted = spec_fields(op, spec)
    if artifact.op != op:
        return f"op is {artifact.op}, need {op}"
    if artifact.abi != ABI[op]:
        return f"abi is {artifact.abi}, need {ABI[op]}"
    if artifact.target != target:
        return f"target is {artifact.target}, need {target}"
    for name, value in wanted.items():
        if artifact.spec.get(name) != value:
            return f"{name} is {artifact.spec.get(name)}, need {value}"
    if artifact.iree != iree_release():
        return f"compiled with IREE {artifact.iree}, the runtime is {iree_release()}"
    if missing := sorted(set(artifact.cpu.split()) - set(host_cpu().split())):
        return f"needs a CPU with {', '.join(missing)}"
    return None


def choose(folders: Sequence[Path], op: str, targets: Sequence[str], spec: IndexerSpec) -> Path:
    """Manifest path of the first artifact that fits; targets in order of preference.

    Raises ArtifactError with everything that was looked at and the command that builds it.
    """
    reasons: list[str] = []
    for target in targets:
        for folder in folders:
            for path in sorted((folder / target).glob(f"{op}-*.json")):
                try:
                    why = reject_reason(read(path), op, target, spec)
                except ArtifactError as error:
                    why = str(error)
                if why is None:
                    return path
                reasons.append(f"  {target}/{path.name}: {why}")
    looked = "\n".join(reasons or [f"  (none in {', '.join(map(str, folders))})"])
    raise ArtifactError(
        f"no artifact for {op} on {targets[0]}. Looked at:\n{looked}\n"
        f"Build it with: {build_command(op, targets[0], spec)}"
    )


def build_command(op: str, target: str, spec: IndexerSpec) -> str:
    numbers = ",".join(f"{name}={value}" for name, value in spec_fields(op, spec).items())
    return f"python tools/build_vmfb.py --target {target} --op {op} --spec {numbers}"


def verified_bytes(path: Path) -> tuple[Artifact, bytes]:
    """The manifest at `path` and its artifact's bytes, checked against size and hash."""
    artifact = read(path)
    vmfb = path.with_name(artifact.file)
    if not vmfb.is_file():
        raise ArtifactError(f"{artifact.file}: missing beside {path.name}; rebuild the artifact")
    code = vmfb.read_bytes()
    if len(code) != artifact.bytes:
        raise ArtifactError(
            f"{artifact.file}: expected {artifact.bytes} bytes, got {len(code)}; "
            "the file is cut short or was replaced, rebuild it"
        )
    digest = hashlib.sha256(code).hexdigest()
    if digest != artifact.sha256:
        raise ArtifactError(
            f"{artifact.file}: expected sha256 {artifact.sha256[:12]}, got {digest[:12]}; "
            "the file was changed, rebuild it"
        )
    return artifact, code


@cache
def host_cpu() -> str:
    """Machine and vector instruction sets of this host, separated by spaces."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), ":")
    kept = (
        "avx",
        "fma",
        "f16c",
        "bmi",
        "amx",
        "gfni",
        "vaes",
        "vpclmulqdq",
        "sve",
        "asimd",
        "i8mm",
    )
    return " ".join([platform.machine(), *sorted(f for f in flags.split() if f.startswith(kept))])
