"""Whether another machine can train a job: it sees the folder, loads the network and reads samples; or says why not."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from small_training import config
from unchoke.features.feature_store import Placement
from unchoke.training.data import Problem
from unchoke.training.network.distributed import meeting_place, why_unfit
from unchoke.training.network.photo_job import NetworkSpec, PhotoJob, StoredActivations
from unchoke.training.network.training_job import TrainingJob

SHAPE = (48, 4, 4)


@pytest.fixture
def job(tmp_path: Path) -> TrainingJob:
    splits = {"train": np.arange(4), "val": np.arange(4, 6)}
    problem = Problem("classification", ("a", "b"), np.array([0, 1] * 3), splits, [f"sample {number}" for number in range(6)])
    network = NetworkSpec("test_efficientnet", "-1", input_px=64, bare=True)
    return PhotoJob(
        network=network, source=StoredActivations(None, SHAPE), problem=problem, loop=config(epochs=1, batch_size=2),
        metric="accuracy", device="cpu", folder=tmp_path / "checkpoints",
    )  # fmt: skip


def test_machine_that_reads_everything_takes_part(job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with meeting_place(job) as place:
        monkeypatch.chdir("/")
        assert why_unfit(job, place, writes=True) == ""
        assert Path.cwd() == tmp_path, "paths count from where the leader stands"
    assert os.listdir(tmp_path / "checkpoints") == [], "the mark is gone, and what was written on trial"


def test_another_folder_under_the_same_name_is_not_the_same(job):
    with meeting_place(job) as place:
        (job.folder / place.shared.mark).write_text("another machine's")
        assert "does not see the folder" in why_unfit(job, place)


def test_unreadable_inputs_named_by_path(job, tmp_path):
    zeros = np.zeros(6, np.int32)
    stored = StoredActivations(Placement((tmp_path / "gone.npz",), zeros, zeros), SHAPE, 0)
    unread = replace(job, source=stored)
    with meeting_place(unread) as place:
        assert "gone.npz" in why_unfit(unread, place)


def test_weights_that_are_not_there_are_said(job, tmp_path):
    network = replace(job.network, bare=False, weights=str(tmp_path / "gone.pt"))
    unloaded = replace(job, network=network)
    with meeting_place(unloaded) as place:
        assert "gone.pt" in why_unfit(unloaded, place)
