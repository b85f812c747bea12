"""How fast a part of a stage is alone: the same small piece of work, again and again, for a fraction of a second.

In: what to run, which tells how many items it did, and how to wait for the device. Out: items a second. Stages too short to be
worth the time are not measured, and nothing that would take longer than `allowed_s` is begun.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LEAST_S = 2.0
"""A stage that took less than this is not measured: small runs pay nothing."""
_ALLOWED_S = 0.3
_ALLOWED_SHARE = 0.01
_MOST_RUNS = 64


def allowed_s(wall_s: float) -> float:
    """What one measurement may take after a stage that took `wall_s`; nothing after a short one."""
    return max(_ALLOWED_S, _ALLOWED_SHARE * wall_s) if wall_s >= LEAST_S else 0.0


def measure_rate(
    run: Callable[[], int],
    *,
    limit_s: float,
    synchronize: Callable[[], None] = lambda: None,
    now: Callable[[], float] = time.perf_counter,
) -> float:
    """Items a second of `run`, which returns how many it did: once to warm up, then as often as half of `limit_s` allows.

    The device is waited for at the end alone, as it is in a run. Where warming up took all there was, it is the measurement.
    """
    began_s = now()
    num = run()
    synchronize()
    first_s = max(now() - began_s, 1e-9)
    if first_s >= limit_s:
        return num / first_s
    times = max(1, min(_MOST_RUNS, int((limit_s - first_s) / 2 / first_s)))
    began_s = now()
    num = sum(run() for _ in range(times))
    synchronize()
    return num / max(now() - began_s, 1e-9)
