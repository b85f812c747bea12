"""What a training on nodes refuses before it starts anything there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from errors import refused
from small_training import config
from unchoke.core.events import ignore
from unchoke.jobs.cluster.connection import Cluster
from unchoke.training.data import Problem
from unchoke.training.network.node_training import NodeTraining
from unchoke.training.network.photo_job import NetworkSpec, PhotoJob, StoredActivations


class EmptyRay:
    """Ray at its edge: a list of nodes, and nothing can be started on them."""

    def __init__(self, *cpus: int) -> None:
        self._cpus = cpus

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": str(number), "Alive": True, "NodeManagerAddress": f"10.0.0.{number}", "Resources": {"CPU": cpus}}
            for number, cpus in enumerate(self._cpus)
        ]

    def put(self, value: object) -> object:
        return value


def training(folder: Path, *cpus: int, num: int | None = None) -> NodeTraining:
    splits = {"train": np.arange(4), "val": np.arange(4, 6)}
    problem = Problem("classification", ("a", "b"), np.array([0, 1] * 3), splits, [f"sample {number}" for number in range(6)])
    network, source = NetworkSpec("test_efficientnet", "-1", bare=True), StoredActivations(None, (48, 4, 4))
    job = PhotoJob(
        network=network, source=source, problem=problem, loop=config(epochs=1, batch_size=4), metric="accuracy", device="cpu",
        folder=folder / "checkpoints",
    )  # fmt: skip
    return NodeTraining(job, Cluster("10.0.0.1:6379", EmptyRay(*cpus)), num, False, ignore, lambda: False)


def test_more_processes_than_cores_are_refused(tmp_path):
    with refused("too-many-devices", "--devices 4", "3 processes"):
        training(tmp_path, 1, 2, num=4).run()


def test_more_processes_than_samples_in_a_batch_are_refused(tmp_path):
    with refused("too-many-devices", "--devices 5", "4 samples"):
        training(tmp_path, 8, num=5).run()


def test_cluster_without_room_trains_here(tmp_path):
    assert training(tmp_path, 0).run() is None
