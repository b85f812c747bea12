"""Two real processes against one. They are started once; each test looks at one of the trainings they ran together."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import parallel_driver
import pytest
import torch
from torch import nn

from small_training import distance
from unchoke.features.encoders import digest_tensors
from unchoke.training.network.parallel import ALONE, Ranks, joined

PATIENCE_S = 120.0
Found = dict[str, dict[int, dict[str, Any]]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def folder(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Where two processes left what they found."""
    return once("training-parallel", run_both)


def run_both(folder: Path) -> None:
    import scene

    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    started = [scene.fork(parallel_driver.run_as, {**variables, "RANK": str(rank)}, folder) for rank in (0, 1)]
    try:
        for process in started:
            process.join(PATIENCE_S)
            assert process.exitcode == 0
    finally:
        for process in started:
            process.kill()
            process.join()


@pytest.fixture(scope="module")
def together(folder: Path) -> Found:
    """What two processes found, by scene and rank."""
    return {
        name: {rank: torch.load(folder / f"{name}-{rank}.pt", weights_only=False) for rank in (0, 1)}
        for name in parallel_driver.SCENES
    }


def alone(name: str, tmp_path: Path) -> Any:
    return parallel_driver.SCENES[name](ALONE, tmp_path)


def losses(curve: list[dict[str, float]]) -> list[float]:
    return [row["train_loss"] for row in curve]


@pytest.mark.parametrize("name", sorted({*parallel_driver.SCENES} - {"batch_statistics"}))
def test_two_processes_train_weights_of_one(name, together, tmp_path):
    wanted, found = alone(name, tmp_path), together[name][0]
    assert distance(found["state"], wanted.state) < 1e-5
    assert losses(found["curve"]) == pytest.approx(losses(wanted.curve), rel=1e-5)
    for split, outputs in wanted.outputs.items():
        np.testing.assert_allclose(found["outputs"][split], outputs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(parallel_driver.SCENES))
def test_all_processes_same_bytes_and_history(name, together):
    leader, other = together[name][0], together[name][1]
    assert digest_tensors(leader["state"]) == digest_tensors(other["state"])
    assert leader["curve"] == other["curve"]
    assert all(np.array_equal(leader["outputs"][split], other["outputs"][split]) for split in leader["outputs"])


def test_fifty_step_losses_of_two_equal_one(together, tmp_path):
    found, wanted = losses(together["fifty_steps"][0]["curve"]), losses(alone("fifty_steps", tmp_path).curve)
    assert len(found) == 50
    assert found[-1] < 0.1 * found[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_oom_in_one_process_repeats_its_share(together):
    assert [together["one_is_hungry"][rank]["halvings"] > 0 for rank in (0, 1)] == [False, True]


def test_one_stop_request_stops_all_processes(together, folder):
    assert [(folder / f"stopped-{rank}").exists() for rank in (0, 1)] == [True, True]
    assert [together["one_stops"][rank]["resumed_step"] for rank in (0, 1)] == [7, 7]


def test_divergence_known_in_all_processes(together, folder):
    told = [(folder / f"diverged-{rank}").read_text() for rank in (0, 1)]
    assert told[0] == told[1]
    assert told[0].startswith("diverged: ")
    assert told[0].endswith("epoch 1, by step 2")


def test_batch_statistics_same_in_all_processes(together, folder):
    found = together["batch_statistics"][0]
    assert found["resumed_step"] == 7
    assert f"{digest_tensors(found['state'])} {found['curve']}" == (folder / "unbroken-0").read_text()


@pytest.mark.parametrize(("world", "count"), [(1, 7), (2, 1), (3, 7), (5, 0), (5, 15)])
def test_shares_make_up_batch_in_order(world, count):
    batch = np.arange(count)
    shares = [Ranks(rank, world).share(batch) for rank in range(world)]
    assert np.array_equal(np.concatenate(shares), batch)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_alone_every_exchange_is_free():
    network = nn.Linear(2, 1)
    network.weight.grad = torch.ones(1, 2)
    also, statistics = torch.tensor([1.0, 2.0]), torch.tensor([3.0])
    assert ALONE.sum_gradients(network.parameters(), also) is also
    ALONE.average([statistics])
    assert torch.equal(network.weight.grad, torch.ones(1, 2))
    assert network.bias.grad is None
    assert statistics == 3.0
    assert ALONE.gather("mine") == ["mine"]
    assert ALONE.leads


def test_without_a_launcher_a_process_is_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined() as ranks:
        assert ranks == ALONE
