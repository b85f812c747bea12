"""A machine whose steps take known amounts: the plan is checked against what they would really take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from unchoke.machine.memory.probe import ProbeResult, StepCost
from unchoke.machine.memory.search import Way

MB = 10**6


@dataclass
class FakeMachine:
    """Bytes and seconds of a step by way of stepping: (fixed, per sample) each. Every measurement is kept in `asked`."""

    limit_bytes: int = 10**12
    memory: dict[Way, tuple[int, int]] = field(
        default_factory=lambda: {
            "train": (1000 * MB, 100 * MB),
            "train_ckpt": (1000 * MB, 20 * MB),
            "evaluation": (900 * MB, 10 * MB),
        }
    )
    seconds: dict[Way, tuple[float, float]] = field(
        default_factory=lambda: {"train": (0.01, 0.010), "train_ckpt": (0.01, 0.013), "evaluation": (0.01, 0.003)}
    )
    asked: list[tuple[Way, int]] = field(default_factory=list)

    def peak_bytes(self, way: Way, batch: int) -> int:
        fixed, per_sample = self.memory[way]
        return fixed + per_sample * batch

    def measure(self, way: Way, batches: Sequence[int]) -> list[ProbeResult]:
        found: list[ProbeResult] = []
        for batch in batches:
            self.asked.append((way, batch))
            found.append(self.one(way, batch))
            if not found[-1].fits:
                break
        return found

    def one(self, way: Way, batch: int) -> ProbeResult:
        peak = self.peak_bytes(way, batch)
        if peak > self.limit_bytes:
            return ProbeResult(batch, "out of memory", fact=f"{peak} bytes")
        fixed_s, per_sample_s = self.seconds[way]
        parts = {"weights": 100 * MB, "gradients": 100 * MB, "optimizer": 200 * MB, "baseline": 300 * MB}
        return ProbeResult(batch, "ok", StepCost(peak, fixed_s + per_sample_s * batch, parts), "fine")


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine()
