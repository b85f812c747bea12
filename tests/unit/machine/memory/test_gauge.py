"""The peak of the memory that counts, and a limit that is noticed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from errors import refused
from unchoke.machine.memory.gauge import Gauge, look_at_device
from unchoke.machine.memory.memory_watch import return_unused_memory
from unchoke.machine.memory.probe import probe

MB = 10**6
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    """What earlier tests freed may still be held for reuse; growth would then not show."""
    return_unused_memory()


def hold(size_bytes: int) -> None:
    np.ones(size_bytes, np.uint8).sum()


def test_the_peak_of_a_process_is_seen_even_if_it_is_brief() -> None:
    with Gauge(CPU) as gauge:
        hold(100 * MB)
    assert gauge.baseline_bytes > 0
    assert 90 * MB < gauge.peak_bytes - gauge.baseline_bytes < 150 * MB


def test_passing_the_limit_is_told_once_with_what_was_held() -> None:
    told: list[int] = []
    with Gauge(CPU) as gauge:
        pass
    limit_bytes = gauge.peak_bytes + 50 * MB
    with Gauge(CPU, limit_bytes=limit_bytes, on_over=told.append):
        hold(10 * MB)
    assert not told
    with Gauge(CPU, limit_bytes=limit_bytes, on_over=told.append):
        hold(150 * MB)
        hold(200 * MB)
    assert len(told) == 1
    assert told[0] > limit_bytes


def test_the_peak_is_known_after_a_failure_too() -> None:
    gauge = Gauge(CPU)
    with pytest.raises(ValueError, match="odd"), gauge:
        hold(100 * MB)
        raise ValueError("odd")
    assert gauge.peak_bytes - gauge.baseline_bytes > 90 * MB


def test_a_device_is_looked_at_from_a_process_of_its_own() -> None:
    (free,) = probe("unchoke.machine.memory.gauge:look_at_device", ("cpu", None), [1], timeout_s=120)
    assert free.measured is not None
    assert free.measured.peak_bytes > 100 * MB
    assert look_at_device(("cpu", 200 * MB), 1).peak_bytes == 200 * MB
    with refused("memory-limit-too-high", "1000.0 TB"):
        look_at_device(("cpu", 10**15), 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_card_the_allocator_keeps_to_the_limit() -> None:
    device = torch.device("cuda")
    with Gauge(device, limit_bytes=1_500 * MB) as gauge:
        torch.zeros(200 * MB, dtype=torch.uint8, device=device)
        with pytest.raises(torch.OutOfMemoryError):
            torch.zeros(1_500 * MB, dtype=torch.uint8, device=device)
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert 200 * MB <= gauge.peak_bytes - gauge.baseline_bytes < 1_500 * MB
    assert gauge.baseline_bytes > 0
