"""Runs in MLflow and TensorBoard: killed and gone on with, read back from MLflow's own server and by TensorBoard's own reader."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scene

import unchoke
from conftest import TINY
from tracked import lose_first_answer, serve_mlflow
from unchoke.core.events import ignore
from unchoke.runs.mlflow_tracker import MlflowTracker
from unchoke.runs.tracker import TrackedRun

EPOCHS = 24


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of MLflow's own server."""
    from mlflow import MlflowClient

    with serve_mlflow(tmp_path_factory.mktemp("tracked")) as address:
        yield MlflowClient(address)


def all_runs(client: Any) -> list[Any]:
    experiment = client.get_experiment_by_name("unchoke")
    return [] if experiment is None else list(client.search_runs([experiment.experiment_id]))


def wait_for_epoch(client: Any, training: scene.Running) -> int:
    """How many epochs MLflow has as soon as it has any, while the training goes on."""
    for _ in range(3000):
        assert training.alive(), "it ended before it could be killed"
        for run in all_runs(client):
            if "epoch/train_loss" in run.data.metrics:
                return len(client.get_metric_history(run.info.run_id, "epoch/train_loss"))
        time.sleep(0.02)
    raise AssertionError("MLflow never heard of an epoch")


def test_killed_training_is_one_run_everywhere(client: Any, photos: Path, tiny_weights: Path, tmp_path: Path) -> None:
    """Killed once MLflow has something of it, and gone on with: MLflow and TensorBoard have every epoch once."""
    root = tmp_path / "out"
    how = ["--encoder", TINY, "--weights", str(tiny_weights), "--cut", "-2", "--epochs", str(EPOCHS), "--patience", "0"]
    where = ["--out", str(root), "--log", f"mlflow:{client.tracking_uri}", "--log", "tensorboard", "--workers", "1"]
    command = ["train", str(photos), *how, *where, "--checkpoint-every", "0"]
    first = scene.start(*command)
    num_before = wait_for_epoch(client, first)
    first.kill()
    assert 0 < num_before < EPOCHS
    second = scene.unchoke(*command)
    assert second.code == 0, second.stderr
    assert client.tracking_uri not in second.stdout  # which holds the result alone
    assert any("exp_1" in line and "MLflow" in line for line in second.stderr.splitlines())

    (run,) = all_runs(client)
    assert (run.info.run_name, run.info.status) == ("exp_1", "FINISHED")
    histories = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    steps = {name: [one.step for one in history] for name, history in histories.items()}
    assert sorted(steps["epoch/train_loss"]) == list(range(1, EPOCHS + 1))
    assert {name: max(Counter(seen).values()) for name, seen in steps.items()} == dict.fromkeys(steps, 1)

    record = unchoke.show_run("exp_1", out=root)
    check_run(client, run, record)
    folder = client.download_artifacts(run.info.run_id, "run", str(tmp_path))
    files = sorted(photos.rglob("*.jpg"))[::6]
    theirs = unchoke.load_model(folder, weights=tiny_weights).predict_proba(files)
    assert np.array_equal(theirs, unchoke.load_model("exp_1", out=root).predict_proba(files))
    check_tensorboard(root, record)


def check_run(client: Any, run: Any, record: Any) -> None:
    """The settings, the figures and the files of the run are in MLflow."""
    assert run.data.params["cut"] == "-2" and run.data.params["epochs"] == str(EPOCHS)
    assert run.data.params["chosen.batch_size"] and "log" not in run.data.params
    accuracy = record.metrics["test"]["accuracy"]
    sent = [run.data.metrics[f"test/accuracy{end}"] for end in ("", ".low", ".high")]
    assert sent == pytest.approx([accuracy.value, accuracy.low, accuracy.high])
    assert any(name.startswith("running/") for name in run.data.metrics)
    names = {file.path for file in client.list_artifacts(run.info.run_id, "run")}
    assert {"run/report.html", "run/record.json", "run/predictions.csv", "run/checkpoints"} <= names
    assert "--log" not in record.command


def check_tensorboard(root: Path, record: Any) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(root / "tensorboard" / "exp_1"), {"scalars": 0}, purge_orphaned_data=False)
    events.Reload()
    assert sorted(one.step for one in events.Scalars("epoch/train_loss")) == list(range(1, EPOCHS + 1))
    assert events.Scalars("test/accuracy")[0].value == pytest.approx(record.metrics["test"]["accuracy"].value)
    assert {"summary/text_summary", "_hparams_/session_start_info"} <= {*events.Tags()["tensors"], *events.summary_metadata}


def test_sent_later_and_never_twice(client: Any, workspace: Path) -> None:
    """A run made without --log; and one whose answer was lost when it was made in MLflow."""
    before = {run.info.run_id for run in all_runs(client)}
    for _ in range(2):
        assert unchoke.fit(out=workspace, log=[f"mlflow:{client.tracking_uri}"], on_event=ignore).already_done
        (sent,) = (run for run in all_runs(client) if run.info.run_id not in before)
        assert sent.info.status == "FINISHED" and "test/accuracy" in sent.data.metrics
    client.delete_run(sent.info.run_id)

    with lose_first_answer(client.tracking_uri, "runs/create") as address:
        tracker = MlflowTracker(address)
        tracker.begin(TrackedRun("exp_lost", "an identity", {"epochs": "3"}, {}))
        tracker.end("done")
    (lost,) = (run for run in all_runs(client) if run.info.run_id not in before)
    assert (lost.info.run_name, lost.info.status, lost.data.params) == ("exp_lost", "FINISHED", {"epochs": "3"})
    client.delete_run(lost.info.run_id)
