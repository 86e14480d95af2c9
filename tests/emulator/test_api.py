"""The Python side: building, enabling, counting, importing host memory."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from compiled import compile_mlir, run
from test_faults import GATHER
from test_programs import matmul_text

import dsv4_iree.emulator as emulator
from dsv4_iree.emulator import library as build_module


def python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env, check=False
    )


BUILD = "import dsv4_iree.emulator as e; print(e.build())"


def test_no_compiler_is_a_clear_error(tmp_path):
    ran = python(BUILD, XDG_CACHE_HOME=str(tmp_path), CC="no-such-compiler")
    assert (
        "BuildError: the emulator is C source and needs a C compiler: expected 'no-such-compiler'"
        in ran.stderr
    )
    assert not list(tmp_path.rglob("*.so"))


def test_a_failing_compiler_is_a_clear_error(tmp_path):
    ran = python(BUILD, XDG_CACHE_HOME=str(tmp_path), CC="false")
    assert "BuildError: the emulator did not compile with" in ran.stderr
    assert not list(tmp_path.rglob("*.so"))


def test_the_cache_key_follows_the_sources(tmp_path, monkeypatch):
    before = build_module.library_path()
    for source in build_module.SOURCES.glob("*.[ch]"):
        (tmp_path / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(build_module, "SOURCES", tmp_path)
    assert build_module.library_path() == before
    (tmp_path / "numeric.h").write_text((tmp_path / "numeric.h").read_text() + "\n")
    assert build_module.library_path() != before


def test_building_twice_compiles_once(monkeypatch):
    emulator.build()
    monkeypatch.setattr(build_module, "_compiler", lambda: pytest.fail("compiled again"))
    assert emulator.build().name == "libamdhip64.so"


def test_enabling_beside_another_choice_is_refused():
    ran = python("import dsv4_iree.emulator as e; e.enable()", IREE_HIP_DYLIB_PATH="/opt/rocm/lib")
    assert "EmulatorError: IREE_HIP_DYLIB_PATH: expected unset or" in ran.stderr
    assert "got /opt/rocm/lib" in ran.stderr


def test_enabling_works_after_the_runtime_was_imported():
    script = (
        "import iree.runtime as rt, dsv4_iree.emulator as e; e.enable(); e.enable();"
        "print([d['name'] for d in rt.get_driver('hip').query_available_devices()])"
    )
    environment = {k: v for k, v in os.environ.items() if k != "IREE_HIP_DYLIB_PATH"}
    env = {**environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env, check=False
    )
    assert "MI300X (gfx942)" in ran.stdout and "MI355X (gfx950)" in ran.stdout, ran.stderr


def test_devices_have_the_limits_of_the_real_ones():
    library = emulator._load()
    value = ctypes.c_int()
    for device, lds in ((0, 64 << 10), (1, 160 << 10)):
        library.hipDeviceGetAttribute(ctypes.byref(value), 74, device)
        assert value.value == lds
        properties = ctypes.create_string_buffer(792)
        library.hipGetDeviceProperties(properties, device)
        assert properties.raw[396:402] == (b"gfx942", b"gfx950")[device]
        assert int.from_bytes(properties.raw[276:280], "little") == 64


def test_what_is_not_modelled_is_in_the_docstring():
    for line in emulator.NOT_MODELLED:
        assert line in emulator.__doc__


def test_counts_of_a_matmul(tmp_path, counted):
    mlir = tmp_path / "matmul.mlir"
    mlir.write_text(matmul_text(128, 128, 64, "f16"))
    a = np.ones((128, 64), np.float16)
    emulator.configure(count_distinct=True)
    try:
        run(compile_mlir(mlir, "gfx942"), "gfx942", a, a)
    finally:
        emulator.configure(count_distinct=False)
    (d,) = counted()
    assert d.target == "gfx942" and "matmul" in d.kernel
    assert d.matrix == {"v_mfma_f32_16x16x16_f16": 128 * 128 * 64 // 16**3}
    assert d.classes["mfma"] == sum(d.matrix.values())
    assert d.instructions == sum(d.opcodes.values())
    assert d.workgroups == np.prod(d.grid) and d.waves == d.workgroups * np.prod(d.block) // 64
    assert d.distinct_bytes_written == d.bytes_written == 128 * 128 * 4
    kernel_arguments = 64
    assert 2 * 128 * 64 * 2 <= d.distinct_bytes_read <= 2 * 128 * 64 * 2 + kernel_arguments
    assert d.bytes_read >= d.distinct_bytes_read and d.seconds > 0
    emulator.reset_stats()
    assert counted() == []


def rocm_capsule(t: torch.Tensor):
    """The tensor as a DLPack capsule that claims to lie on ROCm device 0."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = torch.utils.dlpack.to_dlpack(t)
    device = (ctypes.c_int32 * 2).from_address(get(capsule, b"dltensor") + 8)
    device[:] = [10, 0]
    return capsule


def test_registered_host_memory_is_used_without_a_copy(tmp_path):
    emulator.enable()
    import iree.runtime as rt

    mlir = tmp_path / "gather.mlir"
    mlir.write_text(GATHER)
    device = rt.get_device("hip://0", cache=False)
    context = rt.SystemContext(config=rt.Config(device=device))
    context.add_vm_module(
        rt.VmModule.copy_buffer(context.instance, compile_mlir(mlir, "gfx942").read_bytes())
    )
    gather = context.modules.module["main"]
    table, index = torch.arange(640.0).reshape(10, 64), torch.tensor([3, 7], dtype=torch.int32)
    for t in (table, index):
        emulator.register(t.data_ptr(), t.nbytes)
    views = [
        rt.DeviceArray(device, device.from_dlpack_capsule(rocm_capsule(t))) for t in (table, index)
    ]
    assert gather(*views).to_host()[:, 0].tolist() == [192, 448]
    table[3, 0] = -1
    assert gather(*views).to_host()[0, 0] == -1
    for t in (table, index):
        emulator.unregister(t.data_ptr())
    with pytest.raises(RuntimeError, match="outside every live allocation"):
        gather(*views).to_host()


def test_unregistering_twice_is_an_error():
    with pytest.raises(
        emulator.EmulatorError, match="pointer: expected one that is registered, got 0x10"
    ):
        emulator.unregister(16)


def test_hip_host_registration_and_pointer_attributes():
    library = emulator._load()
    data = np.zeros(64, np.uint8)
    pointer = ctypes.c_void_p(data.ctypes.data)
    assert library.hipHostRegister(pointer, ctypes.c_uint64(64), 0) == 0
    attributes = (ctypes.c_uint8 * 32)()
    assert library.hipPointerGetAttributes(attributes, pointer) == 0
    assert int.from_bytes(bytes(attributes[:4]), "little") == 1  # host
    out = ctypes.c_void_p()
    assert (
        library.hipPointerGetAttribute(ctypes.byref(out), 3, pointer) == 0
        and out.value == pointer.value
    )
    assert library.hipHostUnregister(pointer) == 0
    assert library.hipPointerGetAttributes(attributes, pointer) == 1


def test_copies_past_an_allocation_fail():
    library = emulator._load()
    p = ctypes.c_void_p()
    library.hipMalloc(ctypes.byref(p), ctypes.c_uint64(100))
    host = ctypes.create_string_buffer(200)
    assert library.hipMemcpy(p, host, ctypes.c_uint64(100), 1) == 0
    assert library.hipMemcpy(p, host, ctypes.c_uint64(101), 1) == 1
    assert (
        "copy of 101 bytes" in emulator.last_error()
        and "runs 1 bytes past the end" in emulator.last_error()
    )
    assert library.hipFree(p) == 0 and library.hipFree(p) == 1


def test_every_entry_point_that_the_driver_resolves_exists():
    """IREE's runtime holds the names as strings, and does not start without them."""
    import re

    import iree._runtime_libs as libs

    blob = next(Path(libs.__path__[0]).glob("_runtime*.so")).read_bytes()
    names = set(re.findall(rb"\x00(hip[A-Z][A-Za-z0-9]+)(?=\x00)", blob))
    names = {n.decode() for n in names if not n.startswith((b"hipError", b"hipSuccess"))}
    library = emulator._load()
    missing = sorted(n for n in names if not hasattr(library, n))
    assert len(names) > 60 and not missing


def test_registered_views_may_overlap(target):
    from machine import Machine

    data = np.arange(1, 65, dtype=np.uint32)
    start = data.ctypes.data
    views = ((start, 256), (start + 64, 16), (start + 72, 4))
    for pointer, nbytes in views:
        emulator.register(pointer, nbytes)
    m = Machine(target)
    m.set_pair(2, start + 68)
    m.run("s_load_dword s8, s[2:3], 0x4", "s_load_dwordx4 s[12:15], s[2:3], 0x0")
    assert m.s[12:16].tolist() == [18, 19, 20, 21]
    for pointer, _ in views:
        emulator.unregister(pointer)
