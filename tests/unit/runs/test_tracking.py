"""A place that cannot be written to stops nothing and spoils nothing; what it lacks is sent later, once."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import unchoke
from errors import refused
from tracked import free_port
from unchoke.core.events import Event, Note, Progress
from unchoke.core.workspace import Workspace
from unchoke.runs import tracker, tracking
from unchoke.runs.experiment_store import ExperimentStore
from unchoke.runs.tracker import End, Figure, TrackedResult, TrackedRun
from unchoke.runs.tracking import Tracking


class Shelf:
    """A tracker in memory that can be away."""

    where = "the shelf"

    def __init__(self) -> None:
        self.away: Exception | None = None
        self.figures: list[tuple[str, int]] = []
        self.runs: list[str] = []
        self.settings: dict[str, str] = {}
        self.ends: list[str] = []
        self.results: list[TrackedResult] = []

    def begin(self, run: TrackedRun) -> dict[str, set[int]]:
        self._answer()
        self.settings = dict(run.settings)
        self.runs = list(dict.fromkeys([*self.runs, run.identity]))
        return {name: {step for other, step in self.figures if other == name} for name, _ in self.figures}

    def spell(self, name: str) -> str:
        return name

    def send(self, figures: Sequence[Figure]) -> None:
        self._answer()
        self.figures += [(one.name, one.step) for one in figures]

    def hand_in(self, result: TrackedResult) -> None:
        self._answer()
        self.results.append(result)

    def end(self, how: End) -> None:
        self._answer()
        self.ends.append(how)

    def is_away(self, error: Exception) -> bool:
        return isinstance(error, ConnectionError)

    def _answer(self) -> None:
        if self.away is not None:
            raise self.away


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    one = Shelf()
    monkeypatch.setattr(tracking, "build_tracker", lambda word, workspace: one)
    return one


@pytest.fixture
def told() -> list[Event]:
    return []


def send_finished(workspace: Path, words: Sequence[str], told: list[Event]) -> None:
    """What a command typed again for a finished run sends."""
    with ExperimentStore.open(Workspace(workspace).experiments_file) as experiments:
        Tracking(words, Workspace(workspace), told.append).send_finished(experiments, experiments.run("exp_1"))


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def notes(told: Sequence[Event]) -> list[str]:
    return [event.text for event in told if isinstance(event, Note)]


def epoch(number: int) -> Progress:
    return Progress("train", 10 * number, 30, "images", extra={"loss": 0.5}, figures={"epoch": number, "train_loss": 1.0})


def test_resumed_run_sends_each_value_once(workspace: Path, shelf: Shelf, told: list[Event]) -> None:
    with ExperimentStore.open(Workspace(workspace).experiments_file) as experiments:
        row = experiments.run("exp_1")
        for first in (1, 2):
            sending = Tracking(["mlflow"], Workspace(workspace), told.append)
            listen = sending.listening(told.append)
            with pytest.raises(KeyboardInterrupt), sending.run(experiments, row):
                listen(epoch(first))
                listen(epoch(first + 1))
                raise KeyboardInterrupt
    assert len(shelf.runs) == 1 and shelf.ends == ["interrupted", "interrupted"] and not shelf.results
    assert sorted(step for name, step in shelf.figures if name == "epoch/train_loss") == [1, 2, 3]
    assert len(shelf.figures) == len(set(shelf.figures))


def test_tracker_away_is_told_once_and_at_the_end(
    workspace: Path, shelf: Shelf, told: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "_AGAIN_S", 0.01)
    shelf.away = ConnectionError("nobody at http://me:secret@shelf/")
    beside = Path(shutil.copytree(workspace, workspace.parent / "beside"))
    how = {"epochs": 2, "head": "linear"}
    done = unchoke.train(out=workspace, log=["mlflow:http://shelf"], on_event=told.append, **how)
    warned = [event.text for event in told if isinstance(event, Note) and event.level == "warning" and "shelf" in event.text]
    assert len(warned) == 2 and "secret" not in "".join(warned)
    assert "once it answers" in warned[1], "and not once something is mended"
    assert "--log mlflow:http://shelf" in warned[1] and f"--out {workspace}" in warned[1]
    unlogged = unchoke.train(out=beside, on_event=told.append, **how)
    said = [(root / "experiments" / done.run / "predictions.csv").read_bytes() for root in (workspace, beside)]
    assert unlogged.run == done.run and said[0] == said[1]

    shelf.away = None
    assert unchoke.train(out=workspace, log=["mlflow:http://shelf"], on_event=told.append, **how).already_done
    assert shelf.ends == ["done"] and ("test/accuracy", 0) in shelf.figures
    assert {"report.html", "record.json", "checkpoints/best_head.pt"} <= set(shelf.results[0].files)


def test_refusal_is_to_be_mended_and_cut_at_a_word(workspace: Path, shelf: Shelf, told: list[Event]) -> None:
    shelf.away = PermissionError("nobody may write here, " * 40)
    send_finished(workspace, ["mlflow:http://shelf"], told)
    last = notes(told)[-1]
    assert "once that is mended" in last and re.search(r"\w,? …\)", last)
    cut = last.partition("(PermissionError: ")[2].partition(" …)")[0]
    assert set(cut.replace(",", "").split()) == {"nobody", "may", "write", "here"}


def test_a_command_that_waits_says_so(workspace: Path, shelf: Shelf, told: list[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(shelf, "hand_in", lambda result: wait_until(lambda: "waiting" in "".join(notes(told))))
    send_finished(workspace, ["mlflow:http://shelf"], told)
    assert ["the shelf" in note for note in notes(told)[-2:]] == [True, True]
    assert [note.startswith("waiting for") for note in notes(told)[-2:]] == [True, False]


def test_names_stay_until_a_tracker_spells_them(
    workspace: Path, shelf: Shelf, told: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "spell", lambda name: f"<{name}>")
    with ExperimentStore.open(Workspace(workspace).experiments_file) as experiments:
        sending = Tracking(["mlflow"], Workspace(workspace), told.append)
        listen = sending.listening(told.append)
        with pytest.raises(KeyboardInterrupt), sending.run(experiments, experiments.run("exp_1")):
            for name in ("Gewicht (trocken)", "Gewicht [trocken]", "晴", "云"):
                listen(Progress("train", 1, 2, "epochs", figures={"epoch": 1, name: 0.5}))
            raise KeyboardInterrupt
    assert set(shelf.figures) == {(f"<epoch/{name}>", 1) for name in ("Gewicht (trocken)", "Gewicht [trocken]", "晴", "云")}


def test_a_run_of_the_first_fold_says_which_fold_it_is(workspace: Path, shelf: Shelf, told: list[Event]) -> None:
    with ExperimentStore.open(Workspace(workspace).experiments_file) as experiments:
        row = experiments.run("exp_1")
        for settings, fold in ({}, None), ({"folds": 3}, "0"), ({"folds": 3, "fold": 2}, "2"), ({"fold_column": "farm"}, "0"):
            sending = Tracking(["mlflow"], Workspace(workspace), told.append)
            sending.send_finished(experiments, replace(row, settings=settings))
            assert shelf.settings.get("fold") == fold


def test_closed_database_is_given_up_in_seconds(workspace: Path, told: list[Event]) -> None:
    began = time.monotonic()
    (workspace.parent / "shut").mkdir()
    send_finished(workspace, [f"mlflow:sqlite:///{workspace.parent}/shut"], told)
    last = notes(told)[-1]
    assert "unable to open database file" in last and "once that is mended" in last
    assert time.monotonic() - began < 30  # MLflow's own attempts take minutes


def test_a_server_that_is_not_there_is_no_reason_to_fail(workspace: Path, told: list[Event]) -> None:
    address = f"mlflow:http://127.0.0.1:{free_port()}"
    assert unchoke.fit(out=workspace, log=[address], on_event=told.append).already_done
    last = notes(told)[-1]
    assert address in last and "Connection refused" in last and "once it answers" in last


def test_log_is_not_remembered_and_changes_no_run(workspace: Path, shelf: Shelf, told: list[Event]) -> None:
    assert unchoke.fit(out=workspace, log=["mlflow"], on_event=told.append).already_done
    assert shelf.figures and "log" not in (workspace / "unchoke.toml").read_text("utf-8")
    shelf.figures.clear()
    unchoke.fit(out=workspace, on_event=told.append)
    assert not shelf.figures


BAD_TRACKERS = {
    **dict.fromkeys(("wandb", "tensorboard:here", "tensorboard:", "mlflow:"), "unknown-tracker"),
    "mlflow:https://me:hunter2@host": "secret-in-url",
    **dict.fromkeys(("mlflow:ftp://x/y", "mlflow:http://127.0.0.1:notaport", "mlflow:http://"), "bad-mlflow-address"),
    **dict.fromkeys(("mlflow:/tmp/folder", "mlflow:file:/tmp/folder", "mlflow:localhost:5000"), "bad-mlflow-address"),
    **dict.fromkeys(("mlflow:plain.db", "mlflow:sqlite:plain.db", "mlflow:sqlite://plain.db"), "bad-mlflow-address"),
}
OFFERED = {
    "mlflow:ftp://x/y": "--log mlflow:sqlite:///mlflow.db",
    "mlflow:plain.db": "--log mlflow:sqlite:///plain.db",
    "mlflow:localhost:5000": "--log mlflow:http://localhost:5000",
}


def test_bad_trackers_are_refused_first(tmp_path: Path) -> None:
    """Before anything is read or written, with an address that works, and without repeating a secret."""
    for word, code in BAD_TRACKERS.items():
        with refused(code) as caught:
            unchoke.fit(out=tmp_path / "out", log=[word])
        lines = f"{caught.value.what} {caught.value.why} {caught.value.try_}"
        assert "hunter2" not in lines
        assert caught.value.try_ == OFFERED.get(word, caught.value.try_)
    assert not (tmp_path / "out").exists()


def test_the_address_of_the_environment_is_looked_at_too(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "ftp://me:secret@x/y")
    with refused("bad-mlflow-address") as caught:
        unchoke.fit(out=workspace, log=["mlflow"])
    assert "MLFLOW_TRACKING_URI" in caught.value.what and "secret" not in str(caught.value)


def test_old_mlruns_folder_is_in_the_way(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mlruns" / "0").mkdir(parents=True)
    (tmp_path / "mlruns" / "0" / "meta.yaml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with refused("bad-mlflow-address") as caught:
        unchoke.fit(out=workspace, log=["mlflow"])
    assert "mlruns" in caught.value.what and caught.value.try_ == "--log mlflow:sqlite:///mlflow.db"


def test_a_missing_package_is_said_with_what_to_install(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker, "find_spec", lambda name: None)
    with refused("missing-extra") as caught:
        unchoke.fit(out=workspace, log=["mlflow"])
    assert caught.value.try_ == "pip install 'unchoke[mlflow]'"


def test_mlflow_reports_to_nobody_else() -> None:
    code = (
        "from unchoke.runs.mlflow_tracker import MlflowTracker\n"
        "MlflowTracker('http://127.0.0.1:9')._client()\n"
        "from mlflow.telemetry.utils import is_telemetry_disabled\n"
        "assert is_telemetry_disabled()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
