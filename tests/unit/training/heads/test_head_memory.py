"""Features are read in pieces: memory does not grow with their number."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_process import in_own_process, peaks_of_heads


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's account of a process's memory")
def test_fifty_times_the_samples_same_memory(tmp_path: Path) -> None:
    few, many = in_own_process(peaks_of_heads, (1_000, 50_000), tmp_path / "features.bin")
    assert many - few < 100e6
