"""Steps tried in processes of their own: being killed is an answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from children import same_imports
from errors import refused
from unchoke.machine.memory.memory_watch import own_bytes
from unchoke.machine.memory.probe import ProbeFailed, probe

MB = 10**6
ENOUGH_S = 60.0


def test_values_come_one_by_one() -> None:
    told: list[int] = []
    found = probe("probe_bodies:allocate", {"sizes": [20 * MB, 80 * MB, 160 * MB]}, timeout_s=ENOUGH_S, on_value=told.append)
    assert (found.outcome, found.values) == ("ok", told)
    one, four, eight = told
    assert four - one == pytest.approx(60 * MB, rel=0.1)
    assert eight - four == pytest.approx(80 * MB, rel=0.1)


def test_process_over_its_limit_is_ended() -> None:
    found = probe("probe_bodies:keep_growing", {}, timeout_s=ENOUGH_S, limit_bytes=300 * MB)
    assert (found.outcome, found.values) == ("out of memory", ["begun"])
    assert "300.0 MB" in found.fact


def test_values_before_a_kill_stand() -> None:
    found = probe("probe_bodies:die", {}, timeout_s=ENOUGH_S)
    assert (found.outcome, found.values) == ("killed", [1])


@pytest.mark.parametrize("body", ["ask_too_much_of_torch", "ask_too_much_of_numpy", "wrap_a_lack", "abort_for_memory"])
def test_every_kind_of_out_of_memory_is_an_answer(body: str) -> None:
    found = probe(f"probe_bodies:{body}", {}, timeout_s=ENOUGH_S)
    assert found.outcome == "out of memory"
    assert found.fact


def test_a_step_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    found = probe("probe_bodies:hang_with_a_child", {"file": str(file)}, timeout_s=3)
    assert found.outcome == "timed out"
    assert is_gone(int(file.read_text()))


def test_a_bug_is_raised_with_the_traceback_of_its_process() -> None:
    with pytest.raises(ValueError, match="cannot work with three") as caught:
        probe("probe_bodies:have_a_bug", "three", timeout_s=ENOUGH_S)
    assert "have_a_bug" in caught.value.__notes__[0]


def test_a_bug_that_cannot_travel_is_raised_by_name() -> None:
    with pytest.raises(ProbeFailed, match="UnpicklableError: two needed") as caught:
        probe("probe_bodies:have_an_odd_bug", {}, timeout_s=ENOUGH_S)
    assert "have_an_odd_bug" in caught.value.__notes__[0]


def test_other_end_says_the_last_words_of_the_process() -> None:
    with pytest.raises(ProbeFailed, match="something else is wrong"):
        probe("probe_bodies:abort", {}, timeout_s=ENOUGH_S)


def test_a_function_that_is_not_there_is_a_bug() -> None:
    with pytest.raises(AttributeError):
        probe("probe_bodies:nowhere", {}, timeout_s=ENOUGH_S)


def test_our_own_errors_keep_their_three_lines() -> None:
    with refused("of-a-test") as caught:
        probe("probe_bodies:refuse", {}, timeout_s=ENOUGH_S)
    assert (caught.value.why, caught.value.try_) == ("there is none", "--device cpu")


def test_what_a_step_prints_disturbs_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    found = probe("probe_bodies:be_chatty", {}, timeout_s=ENOUGH_S)
    assert found.values == [7]
    assert capfd.readouterr() == ("", "")


def test_a_process_imports_no_more_than_the_function_needs() -> None:
    found = probe("probe_bodies:tell_what_is_imported", {}, timeout_s=ENOUGH_S)
    assert not {"torch", "numpy", "pandas", "pydantic", "multiprocessing"} & set(found.values[0])


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_no_process_outlives_the_one_that_asked(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    call = f"probe('probe_bodies:report_to_file_and_wait', {{'file': {str(file)!r}}}, timeout_s=600)"
    code = f"from unchoke.machine.memory.probe import probe; {call}"
    with subprocess.Popen([sys.executable, "-c", code], env=same_imports()) as asker:
        until = time.monotonic() + ENOUGH_S
        while not (file.exists() and file.read_text()) and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(asker.pid, signal.SIGKILL)
    assert is_gone(int(file.read_text()))


def is_gone(pid: int) -> bool:
    until = time.monotonic() + 20
    while own_bytes(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return own_bytes(pid) == 0
