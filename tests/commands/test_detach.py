"""Commands in the background: they outlive who started them, and can be watched from anywhere."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.conftest import TINY

from errors import refused
from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, Interrupted, MachineError, UnchokeError, UsageError
from unchoke.core.events import Chosen, Event, Note, Progress, StageDone, StageStarted, ignore
from unchoke.core.workspace import Workspace
from unchoke.runs.report.json import dump_event, dump_line
from unchoke.training.detach import BackgroundResult, detach, find_detached, watch_run
from unchoke.training.fit import fit

EVENTS: list[Event] = [
    StageStarted("train", "20 epochs"),
    Chosen(Choice("device", "cpu", "no other")),
    Progress("train", 1, 20, "epochs", rate_per_s=2.0, left_s=9.5, extra={"loss": 0.5}),
    Note("slow disk", "warning"),
    StageDone("train", 10.0),
]
RESULT = {"run": "exp_7", "metrics": {"test": {"accuracy": 0.9}}, "intervals": {"test": {"accuracy": [0.8, 0.95]}}}
LAST = dump_line({"schema": 1, "command": "fit", "ok": True, "result": RESULT})


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a run at work."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def leave_log(root: Path, *lines: str, pid: int = 2**22 + 1, created_s: float = 0.0, stamp: str = "20261115T120000") -> Path:
    """What a detached command leaves behind."""
    log = Workspace(root).logs / f"{stamp}-fit.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(f"{line}\n" for line in lines))
    log.with_suffix(".log").write_text("")
    started = {"command": "unchoke fit 'my photos' --epochs 3", "pid": pid, "created_s": created_s}
    log.with_suffix(".json").write_text(json.dumps(started))
    return log


def of(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    return {"pid": process.pid, "created_s": psutil.Process(process.pid).create_time()}


def options(tiny_weights: Path) -> dict[str, Any]:
    return {"encoder": TINY, "weights": str(tiny_weights), "engine": "torch", "workers": 1, "epochs": 3}


STARTER = """
import json, sys, time
import unchoke
typed = json.loads(sys.argv[1])
started = unchoke.detach("fit", typed.pop("data"), out=typed.pop("out"), **typed)
sys.stdout.write(f"{started.pid}\\n")
sys.stdout.flush()
time.sleep(600)
"""


@pytest.mark.skipif(os.name != "posix", reason="process groups and hang-ups are those of POSIX")
def test_run_outlives_a_kill_of_the_group_that_started_it(photos: Path, tiny_weights: Path, tmp_path: Path) -> None:
    root = tmp_path / "out"
    typed = {"data": str(photos), "out": str(root), **options(tiny_weights)}
    command = [sys.executable, "-c", STARTER, json.dumps(typed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert os.getsid(pid) == pid
        os.killpg(starter.pid, signal.SIGHUP)
        os.killpg(starter.pid, signal.SIGKILL)
    assert starter.returncode < 0
    assert find_detached(Workspace(root)).pid == pid
    assert find_detached(Workspace(root)).alive

    with refused("workspace-in-use", str(pid), f"unchoke runs watch --out {root}"):
        fit(str(photos), out=root, on_event=ignore)
    with refused("workspace-in-use"):
        detach("train", photos, out=root)

    seen: list[Event] = []
    watched = watch_run(out=root, on_event=seen.append)
    assert (watched.ok, watched.result["run"], watched.exit_code) == (True, "exp_1", 0)
    assert [event.stage for event in seen if isinstance(event, StageStarted)][-1] == "report"
    assert any(isinstance(event, Chosen) for event in seen)
    assert "exp_1" in watched.to_text()
    again: list[Event] = []
    assert watch_run(out=root, on_event=again.append) == watched
    assert again == seen


def test_what_was_started_can_be_typed_again(workspace: Path, photos: Path) -> None:
    started = detach("fit", photos, out=workspace, label_smoothing=None, images=())
    assert shlex.split(started.command) == ["unchoke", "fit", str(photos), "--out", str(workspace)]
    assert started.to_dict()["watch"] == f"unchoke runs watch --out {workspace}"
    assert str(started.pid) in started.to_text()
    assert str(started.log) in started.to_text()
    watched = watch_run(out=workspace, on_event=ignore)
    assert watched.result["already_done"]
    assert started.stderr.read_text() == ""


def test_mistakes_are_errors_at_once(tmp_path: Path, photos: Path) -> None:
    with refused("bad-settings", "epochs"):
        detach("fit", photos, out=tmp_path / "out", epochs=0)
    with refused("no-data-given"):
        detach("fit", out=tmp_path / "out")
    with refused("cannot-detach", "predict"):
        detach("predict", photos, out=tmp_path / "out")
    with refused("workspace-inside-data", str(photos / "out")):
        detach("fit", photos, out=photos / "out")
    assert not (tmp_path / "out" / "logs").exists()


def test_mistakes_the_command_finds_itself_are_told(tmp_path: Path) -> None:
    with refused("no-such-file", "photoz"):
        detach("fit", tmp_path / "photoz", out=tmp_path / "out")
    with refused("no-such-weights", "nowhere"):
        detach("fit", tmp_path, out=tmp_path.parent / "out", weights=tmp_path / "nowhere")
    assert not (tmp_path / "out").exists(), "nothing is left of a command that could not begin"
    assert not (tmp_path.parent / "out").exists()


def test_events_are_followed_as_they_are_written(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    log = leave_log(tmp_path, **of(sleeper))
    text = "".join(f"{dump_event(event)}\n" for event in EVENTS) + LAST + "\n"

    def write() -> None:
        with log.open("a") as file:
            for start in range(0, len(text), 97):  # lines arrive in pieces
                file.write(text[start : start + 97])
                file.flush()
                time.sleep(0.02)

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[Event] = []
    watched = watch_run(out=tmp_path, on_event=seen.append)
    writer.join()
    assert seen == EVENTS
    assert watched == BackgroundResult(True, RESULT, tmp_path)


def test_lines_are_passed_on_and_foreign_ones_dropped(tmp_path: Path) -> None:
    lines = [dump_event(event) for event in EVENTS]
    leave_log(tmp_path, lines[0], "a library said something", '["not", "ours"]', *lines[1:], LAST)
    passed: list[str] = []
    assert watch_run(out=tmp_path, on_line=passed.append).ok
    assert passed == lines


def test_the_newest_is_watched(tmp_path: Path) -> None:
    leave_log(tmp_path, LAST, stamp="20261115T120001")
    other = {"schema": 1, "command": "fit", "ok": True, "result": {"run": "exp_8"}}
    leave_log(tmp_path, dump_line(other), stamp="20261115T120002")
    assert watch_run(out=tmp_path, on_event=ignore).result == {"run": "exp_8"}


@pytest.mark.parametrize("reused", [False, True], ids=["no such process", "another process has the number"])
def test_process_gone_without_a_result(reused: bool, tmp_path: Path) -> None:
    pid = os.getpid() if reused else 2**22 + 1
    log = leave_log(tmp_path, *(dump_event(event) for event in EVENTS[:3]), LAST[:-9], pid=pid)
    log.write_text(log.read_text().removesuffix("\n"))  # it was killed in the middle of a line
    log.with_suffix(".log").write_text("loading\nSegmentation fault\n\n")
    seen: list[Event] = []
    with refused("detached-run-gone", str(pid), "Segmentation fault", "unchoke fit 'my photos' --epochs 3 --detach"):
        watch_run(out=tmp_path, on_event=seen.append)
    assert seen == EVENTS[:3]


@pytest.mark.parametrize(
    ("code", "kind"), [(1, DataError), (2, UsageError), (3, MachineError), (130, Interrupted), (70, UnchokeError)]
)
def test_its_error_is_raised_as_if_it_had_run_here(code: int, kind: type[UnchokeError], tmp_path: Path) -> None:
    told = {"what": "no room", "code": "disk-full", "why": "the disk is full", "try": "make room", "exit_code": code}
    log = leave_log(tmp_path, dump_line({"schema": 1, "command": "fit", "ok": False, "error": told}))
    with refused("disk-full") as caught:
        watch_run(out=tmp_path, on_event=ignore)
    assert type(caught.value) is kind
    assert (caught.value.what, caught.value.try_, caught.value.exit_code) == ("no room", "make room", code)
    assert (str(log.with_suffix(".log")) in caught.value.why) == (code == 70)


def test_without_anything_detached_it_says_how_to(tmp_path: Path) -> None:
    with refused("nothing-detached", "unchoke fit DATA --detach"):
        watch_run(out=tmp_path)


def test_result_without_a_record_is_shown(tmp_path: Path) -> None:
    result = {**RESULT, "run": "folds_ab", "reports": ["a.html", "b.html"], "timings": {"train": 2.0}}
    text = BackgroundResult(True, result, tmp_path).to_text()
    assert all(part in text for part in ("folds_ab", "90.0 %", "80.0–95.0 %", "a.html, b.html"))


@pytest.mark.parametrize("text", ["{", "[1]", "", "[" * 100_000])
def test_damaged_note_of_a_detached_run(tmp_path: Path, text: str) -> None:
    logs = Workspace(tmp_path).logs
    logs.mkdir(parents=True)
    (logs / "20260101T000000-fit.json").write_text(text)
    with refused("damaged-file", "fit.json", "fit.jsonl"):
        find_detached(Workspace(tmp_path))
