"""The stack sampler: what a process was busy with, by stage and line."""

from __future__ import annotations

import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from unchoke.chokes.watch.recorder import Recorder
from unchoke.chokes.watch.sampler import Sampler, _num_waits


def compute() -> None:
    total = 0
    for number in range(20_000):
        total += number


def compress(data: bytes = b"a" * 4_000_000) -> None:
    zlib.crc32(data)  # lets go of the interpreter


def sampled(work: Callable[[], None], phase: str) -> dict[str, Any]:
    recorder = Recorder()
    sampler = Sampler(recorder, period_s=0.002)
    recorder.phase = phase
    sampler.start()
    until_s = time.perf_counter() + 0.3
    while time.perf_counter() < until_s:
        work()
    sampler.stop()
    return sampler.to_dict()


def by_stage(samples: dict[str, Any]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in samples["rows"]:
        counts[row["stage"]] += row["count"]
    return counts


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how often a thread waited")
def test_running_python_is_told_from_running_in_c() -> None:
    python, in_c = sampled(compute, "getitem"), sampled(compress, "getitem")
    assert by_stage(python).most_common(1)[0][0] == "python"
    assert by_stage(in_c).most_common(1)[0][0] == "transform"


def test_rows_name_the_users_line_and_add_up() -> None:
    samples = sampled(compute, "step")
    most = max(samples["rows"], key=lambda row: row["count"])
    assert (most["file"], most["function"], most["phase"]) == (__file__, "compute", "step")
    assert sum(row["count"] for row in samples["rows"]) == samples["total"] > 3
    assert samples["stacks"][0]["stack"].endswith(":compute")
    assert samples["period_s"] > 0
    assert sys.getswitchinterval() == pytest.approx(0.005)


def test_threads_that_load_are_counted_apart() -> None:
    recorder, ending = Recorder(), threading.Event()

    def load() -> None:
        recorder.phase = "getitem"
        while not ending.is_set():
            compress()

    loading = threading.Thread(target=load)
    loading.start()
    sampler = Sampler(recorder)
    try:
        for _ in range(20):
            sampler.take(0, runs_python=False)
            time.sleep(0.001)
    finally:
        ending.set()
        loading.join()
    assert any(
        row["function"] in ("compress", "test_threads_that_load_are_counted_apart.<locals>.load")
        for row in sampler.to_dict()["threads"]
    )
    assert sum(row["count"] for row in sampler.to_dict()["rows"]) == 20


def test_waits_for_the_interpreter_are_counted() -> None:
    before = _num_waits()
    time.sleep(0.001)
    assert _num_waits() >= before


def test_after_a_fork_nothing_is_left_of_the_parents_looks() -> None:
    sampler = Sampler(Recorder())
    sampler.take(0, runs_python=True)
    sampler.clear()
    assert sampler.to_dict()["total"] == 0
    assert sampler.to_dict()["rows"] == []
