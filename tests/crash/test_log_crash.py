"""Runs in MLflow and TensorBoard: killed and gone on with, read back from MLflow's own server and by TensorBoard's own reader."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unchoke
from conftest import TINY
from tracked import lose_first_answer, serve_mlflow
from unchoke.core.events import ignore
from unchoke.runs.mlflow_tracker import MlflowTracker
from unchoke.runs.tracker import TrackedRun

EPOCHS = 40


@dataclass(frozen=True)
class TwoStretches:
    """A training that was killed once something of it was in MLflow, and then went on to its end."""

    client: Any
    workspace: Path
    num_before: int
    said: str

    @property
    def runs(self) -> list[Any]:
        experiment = self.client.get_experiment_by_name("unchoke")
        return list(self.client.search_runs([experiment.experiment_id]))

    def steps(self, name: str) -> list[int]:
        return [one.step for one in self.client.get_metric_history(self.runs[0].info.run_id, name)]


@pytest.fixture(scope="module")
def stretches(photos: Path, tiny_weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoStretches]:
    from mlflow import MlflowClient

    folder = tmp_path_factory.mktemp("tracked")
    root = folder / "out"
    with serve_mlflow(folder) as address:
        client = MlflowClient(address)
        how = ["--encoder", TINY, "--weights", str(tiny_weights), "--cut", "-2", "--epochs", str(EPOCHS), "--patience", "0"]
        where = ["--out", str(root), "--log", f"mlflow:{address}", "--log", "tensorboard", "--workers", "1"]
        command = [sys.executable, "-m", "unchoke", "train", str(photos), *how, *where, "--checkpoint-every", "0"]
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
        num_before = wait_for_epochs(client, first)
        first.kill()
        first.wait()
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        assert second.returncode == 0, second.stderr
        assert "View run" not in second.stdout  # which holds the result alone
        yield TwoStretches(client, root, num_before, second.stderr)


def wait_for_epochs(client: Any, process: subprocess.Popen[bytes]) -> int:
    """How many epochs MLflow has as soon as it has any, while the training goes on."""
    for _ in range(1200):
        assert process.poll() is None, "it ended before it could be killed"
        if (experiment := client.get_experiment_by_name("unchoke")) is not None:
            for run in client.search_runs([experiment.experiment_id]):
                if "epoch/train_loss" in run.data.metrics:
                    return len(client.get_metric_history(run.info.run_id, "epoch/train_loss"))
        time.sleep(0.1)
    raise AssertionError("MLflow never heard of an epoch")


def test_a_killed_training_is_one_run_in_mlflow_with_every_epoch_once(stretches: TwoStretches) -> None:
    assert 0 < stretches.num_before < EPOCHS
    assert [run.info.run_name for run in stretches.runs] == ["exp_1"]
    assert sorted(stretches.steps("epoch/train_loss")) == list(range(1, EPOCHS + 1))
    for name in stretches.runs[0].data.metrics:
        assert max(Counter(stretches.steps(name)).values()) == 1, name
    assert stretches.runs[0].info.status == "FINISHED"


def test_mlflow_has_the_settings_the_figures_and_the_files_of_the_run(stretches: TwoStretches) -> None:
    run, record = stretches.runs[0], unchoke.show_run("exp_1", out=stretches.workspace)
    assert run.data.params["cut"] == "-2" and run.data.params["epochs"] == str(EPOCHS)
    assert run.data.params["chosen.batch_size"] and "log" not in run.data.params
    accuracy = record.metrics["test"]["accuracy"]
    sent = [run.data.metrics[f"test/accuracy{end}"] for end in ("", ".low", ".high")]
    assert sent == pytest.approx([accuracy.value, accuracy.low, accuracy.high])
    assert any(name.startswith("running/") for name in run.data.metrics)
    names = {file.path for file in stretches.client.list_artifacts(run.info.run_id, "run")}
    assert {"run/report.html", "run/record.json", "run/predictions.csv", "run/checkpoints"} <= names
    assert "exp_1 is in MLflow" in stretches.said and "--log" not in record.command


def test_the_files_in_mlflow_are_a_model_that_answers_as_the_run(
    stretches: TwoStretches, photos: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    folder = stretches.client.download_artifacts(stretches.runs[0].info.run_id, "run", str(tmp_path))
    files = sorted(photos.rglob("*.jpg"))[::6]
    theirs = unchoke.load_model(folder, weights=tiny_weights).predict_proba(files)
    assert np.array_equal(theirs, unchoke.load_model("exp_1", out=stretches.workspace).predict_proba(files))


def test_tensorboard_reads_every_epoch_once(stretches: TwoStretches) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(stretches.workspace / "tensorboard" / "exp_1"), {"scalars": 0}, purge_orphaned_data=False)
    events.Reload()
    assert sorted(one.step for one in events.Scalars("epoch/train_loss")) == list(range(1, EPOCHS + 1))
    record = unchoke.show_run("exp_1", out=stretches.workspace)
    assert events.Scalars("test/accuracy")[0].value == pytest.approx(record.metrics["test"]["accuracy"].value)
    assert {"summary/text_summary", "_hparams_/session_start_info"} <= {*events.Tags()["tensors"], *events.summary_metadata}


def test_a_run_made_without_log_is_sent_later_and_nothing_is_sent_twice(stretches: TwoStretches, workspace: Path) -> None:
    before = {run.info.run_id for run in stretches.runs}
    log = [f"mlflow:{stretches.client.tracking_uri}"]
    for _ in range(2):
        assert unchoke.fit(out=workspace, log=log, on_event=ignore).already_done
        new = [run for run in stretches.runs if run.info.run_id not in before]
        assert len(new) == 1 and new[0].info.status == "FINISHED" and "test/accuracy" in new[0].data.metrics
    stretches.client.delete_run(new[0].info.run_id)


def test_a_lost_answer_makes_no_second_run(stretches: TwoStretches) -> None:
    before = {run.info.run_id for run in stretches.runs}
    with lose_first_answer(stretches.client.tracking_uri, "runs/create") as address:
        tracker = MlflowTracker(address)
        tracker.begin(TrackedRun("exp_lost", "an identity", {"epochs": "3"}, {}))
        tracker.end("done")
    new = [run for run in stretches.runs if run.info.run_id not in before]
    assert [(run.info.run_name, run.info.status, run.data.params) for run in new] == [("exp_lost", "FINISHED", {"epochs": "3"})]
    stretches.client.delete_run(new[0].info.run_id)
