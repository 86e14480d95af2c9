# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long a call keeps an NVIDIA GPU busy: the kernels' own times, as CUPTI records them.

Neither launches nor waiting count. CUPTI sees every kernel of the process, whoever starts it, so
that compiled ops and torch are measured alike.
"""

from __future__ import annotations

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def device_ms(run: Callable[[], object], wait: Callable[[], None]) -> float:
    """Milliseconds of all kernels and copies of one `run`.

    Args:
        wait: returns once the GPU has done everything that was started.
    """
    wait()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        run()
        wait()
    return sum(event.self_device_time_total for event in recorded.key_averages()) / 1e3
