"""Steps tried in processes of their own: being killed is an answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from children import same_imports
from errors import refused
from unchoke.machine.memory.memory_watch import own_bytes
from unchoke.machine.memory.probe import ProbeFailed, ProbeResult, StepCost, probe

MB = 10**6
ENOUGH_S = 60.0


def test_peak_grows_with_the_batch() -> None:
    found = probe("probe_bodies:allocate", {"bytes_per_sample": 20 * MB}, [4, 1, 8], timeout_s=ENOUGH_S)
    assert [(one.batch, one.outcome) for one in found] == [(1, "ok"), (4, "ok"), (8, "ok")]
    one, four, eight = (probed.measured.peak_bytes for probed in found if probed.measured)
    assert four - one == pytest.approx(60 * MB, rel=0.1)
    assert eight - four == pytest.approx(80 * MB, rel=0.1)
    assert all(0 < probed.start_s < probed.seconds for probed in found)


def test_torch_step_is_measured_above_its_baseline() -> None:
    (found,) = probe("probe_bodies:train", {"px": 64}, [8], timeout_s=ENOUGH_S)
    assert found.measured is not None
    activations = 2 * 8 * 32 * 62 * 62 * 4
    assert found.measured.peak_bytes - found.measured.parts["baseline"] > activations
    assert found.measured.parts["baseline"] > 30 * MB
    assert found.measured.seconds_per_step > 0


def test_step_over_the_limit_is_stopped() -> None:
    (found,) = probe("probe_bodies:keep_growing", {}, [1, 2], timeout_s=ENOUGH_S, limit_bytes=300 * MB)
    assert found.outcome == "out of memory"
    assert "300.0 MB" in found.fact


def test_killed_process_ends_the_search() -> None:
    found = probe("probe_bodies:die", {}, [1, 2, 4], timeout_s=ENOUGH_S)
    assert [(one.batch, one.outcome, one.fits) for one in found] == [(1, "ok", True), (2, "killed", False)]


@pytest.mark.parametrize("body", ["ask_too_much_of_torch", "ask_too_much_of_numpy", "wrap_a_lack", "abort_for_memory"])
def test_every_kind_of_out_of_memory_is_an_answer(body: str) -> None:
    (found,) = probe(f"probe_bodies:{body}", {}, [1, 2], timeout_s=ENOUGH_S)
    assert found.outcome == "out of memory"
    assert found.fact


def test_a_step_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    (found,) = probe("probe_bodies:hang_with_a_child", {"file": str(file)}, [1, 2], timeout_s=3)
    assert found.outcome == "timed out"
    assert found.seconds < 30
    assert is_gone(int(file.read_text()))


def test_abandoned_step_is_ended_with_its_children(tmp_path: Path) -> None:
    file, given_up = tmp_path / "pid", threading.Event()
    threading.Thread(target=lambda: (wait_for(file), given_up.set())).start()
    (found,) = probe("probe_bodies:hang_with_a_child", {"file": str(file)}, [1], timeout_s=ENOUGH_S, given_up=given_up)
    assert found.outcome == "timed out" and found.seconds < ENOUGH_S
    assert is_gone(int(file.read_text()))


def wait_for(file: Path) -> None:
    until = time.monotonic() + ENOUGH_S
    while not (file.exists() and file.read_text()) and time.monotonic() < until:
        time.sleep(0.02)


def test_a_bug_is_raised_with_the_traceback_of_its_process() -> None:
    with pytest.raises(ValueError, match="cannot work with 3") as caught:
        probe("probe_bodies:have_a_bug", {}, [3], timeout_s=ENOUGH_S)
    assert "have_a_bug" in caught.value.__notes__[0]
    assert "batch of 3" in caught.value.__notes__[0]


def test_a_bug_that_cannot_travel_is_raised_by_name() -> None:
    with pytest.raises(ProbeFailed, match="UnpicklableError: two needed") as caught:
        probe("probe_bodies:have_an_odd_bug", {}, [1], timeout_s=ENOUGH_S)
    assert "have_an_odd_bug" in caught.value.__notes__[0]


def test_other_end_says_the_last_words_of_the_process() -> None:
    with pytest.raises(ProbeFailed, match="something else is wrong"):
        probe("probe_bodies:abort", {}, [1], timeout_s=ENOUGH_S)


def test_a_function_that_is_not_there_is_a_bug() -> None:
    with pytest.raises(AttributeError):
        probe("probe_bodies:nowhere", {}, [1], timeout_s=ENOUGH_S)


def test_our_own_errors_keep_their_three_lines() -> None:
    with refused("of-a-test") as caught:
        probe("probe_bodies:refuse", {}, [1], timeout_s=ENOUGH_S)
    assert (caught.value.why, caught.value.try_) == ("there is none", "--device cpu")


def test_what_a_step_prints_disturbs_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    (found,) = probe("probe_bodies:be_chatty", {}, [7], timeout_s=ENOUGH_S)
    assert found.measured == StepCost(7, 1.0)
    assert capfd.readouterr() == ("", "")


def test_a_process_imports_no_more_than_the_function_needs() -> None:
    (found,) = probe("probe_bodies:tell_what_is_imported", {}, [1], timeout_s=ENOUGH_S)
    assert found.measured is not None
    assert not {"torch", "numpy", "pandas", "pydantic", "multiprocessing"} & set(found.measured.parts)


def test_every_probe_is_told_as_it_ends() -> None:
    told: list[ProbeResult] = []
    assert probe("probe_bodies:die", {}, [1, 2, 3], timeout_s=ENOUGH_S, on_probed=told.append) == told
    assert len(told) == 2


def test_a_probe_is_read_back_from_plain_values() -> None:
    for one in (ProbeResult(2, "ok", StepCost(5, 0.1, {"weights": 3}), "fine", 1.0, 0.5), ProbeResult(4, "killed", fact="gone")):
        assert ProbeResult.from_dict(one.to_dict()) == one


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_no_process_outlives_the_one_that_asked(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    call = f"probe('probe_bodies:report_to_file_and_wait', {{'file': {str(file)!r}}}, [1], timeout_s=600)"
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
