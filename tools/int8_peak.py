# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What this machine's AVX512-VNNI units do at most: vpdpbusd on registers, and nothing else.

IREE compiles it and runs it on as many threads as it runs the kernels on.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

import iree.runtime as rt
import numpy as np

from dsv4_iree.build import compiler

CHAINS = 16  # independent sums, more than the latency of the instruction needs
STEPS = 100_000
BYTES, LANES = "vector<64xi8>", "vector<16xi32>"


def int8_peak(rounds: int = 30) -> float:
    """Multiplications and additions a second, in units of 10^9; the best of `rounds` runs."""
    with tempfile.TemporaryDirectory() as folder:
        source, module = Path(folder) / "peak.mlir", Path(folder) / "peak.vmfb"
        source.write_text(_mlir())
        flags = (
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            "--iree-llvmcpu-target-cpu=host",
        )
        subprocess.run([compiler(), source, *flags, "-o", module], check=True)
        config = rt.Config("local-task")
        context = rt.SystemContext(config=config)
        context.add_vm_module(rt.VmModule.copy_buffer(config.vm_instance, module.read_bytes()))
    groups = 4 * len(os.sched_getaffinity(0))
    operands = rt.asdevicearray(config.device, np.ones((groups, 64), np.int8))
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        context.modules.module.main(operands)
        seconds.append(time.perf_counter() - began)
    return groups * STEPS * CHAINS * 128 / min(seconds) / 1e9


def _mlir() -> str:
    zeros = ", ".join(f"%in{i} = %zero" for i in range(CHAINS))
    lanes = ", ".join([LANES] * CHAINS)
    dots = "\n".join(
        f'%out{i} = llvm.call_intrinsic "llvm.x86.avx512.vpdpbusd.512"(%in{i}, %x, %y)'
        f" : ({LANES}, {BYTES}, {BYTES}) -> {LANES}"
        for i in range(CHAINS)
    )
    sums = "\n".join(
        f"%sum{i + 1} = arith.addi %sum{i}, %dots#{i} : {LANES}" for i in range(CHAINS)
    )
    return f"""\
module {{
  stream.executable private @peak {{
    stream.executable.export public @peak workgroups(%n: index) -> (index, index, index) {{
      %c1 = arith.constant 1 : index
      stream.return %n, %c1, %c1 : index, index, index
    }}
    builtin.module {{
      func.func @peak(%operands: !stream.binding, %result: !stream.binding, %n: index) {{
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %steps = arith.constant {STEPS} : index
        %zero = arith.constant dense<0> : {LANES}
        %in = stream.binding.subspan %operands[%c0] : !stream.binding -> memref<?x64xi8>{{%n}}
        %out = stream.binding.subspan %result[%c0] : !stream.binding -> memref<?x16xi32>{{%n}}
        %group = stream.dispatch.workgroup.id[0] : index
        %x = vector.load %in[%group, %c0] : memref<?x64xi8>, {BYTES}
        %y = vector.load %in[%group, %c0] : memref<?x64xi8>, {BYTES}
        %dots:{CHAINS} = scf.for %step = %c0 to %steps step %c1 iter_args({zeros}) -> ({lanes}) {{
          {dots}
          scf.yield {", ".join(f"%out{i}" for i in range(CHAINS))} : {lanes}
        }}
        %sum0 = arith.constant dense<0> : {LANES}
        {sums}
        vector.store %sum{CHAINS}, %out[%group, %c0] : memref<?x16xi32>, {LANES}
        return
      }}
    }}
  }}
  func.func @main(%operands: tensor<?x64xi8>) -> tensor<?x16xi32> {{
    %c0 = arith.constant 0 : index
    %n = tensor.dim %operands, %c0 : tensor<?x64xi8>
    %result = flow.dispatch @peak::@peak[%n](%operands, %n)
        : (tensor<?x64xi8>{{%n}}, index) -> tensor<?x16xi32>{{%n}}
    return %result : tensor<?x16xi32>
  }}
}}
"""
