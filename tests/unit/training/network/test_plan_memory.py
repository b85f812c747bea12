"""A training is planned under its limit, by counting or by measuring, keeps its plan, and says afterwards what it took."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from errors import refused
from unchoke.core.events import Chosen, Event, Note, Progress
from unchoke.core.settings import Settings
from unchoke.core.units import format_bytes, parse_bytes
from unchoke.core.workspace import Workspace
from unchoke.features.feature_store import Placement
from unchoke.machine.memory import memory_plan
from unchoke.machine.memory.memory_plan import StepCost
from unchoke.machine.memory.memory_watch import MemoryWatch, own_bytes
from unchoke.machine.memory.probe import Probe
from unchoke.runs.session import Session
from unchoke.training.data import Problem
from unchoke.training.fit import train
from unchoke.training.network import plan_memory as plan_module
from unchoke.training.network.loop_config import LoopConfig
from unchoke.training.network.memory_trial import MemoryTrial
from unchoke.training.network.photo_job import NetworkSpec, PhotoJob, StoredActivations
from unchoke.training.network.plan_memory import FILE, plan_memory, remember_memory
from unchoke.training.network.training_job import TrainingJob
from unchoke.training.results import FitResult

LIMIT = "4GB"  # the tests before this one may have left their process large
ROW_SHAPE = (1, 101, 64)


def open_session(folder: Path, heard: list[Event], **settings: Any) -> Session:
    return Session(Workspace(folder), Settings(data="photos", **settings), heard.append, MemoryWatch())


def job(folder: Path, *, batch: int = 2, batch_norm: str = "frozen") -> TrainingJob:
    """A training without val and test, so that only its steps are measured; its data is never looked at."""
    ids = [str(number) for number in range(8)]
    problem = Problem("classification", ("a", "b"), np.arange(8) % 2, {"train": np.arange(8)}, ids)
    loop = LoopConfig(1, batch, batch, batch, lr=1e-3, body_lr=1e-4, batch_norm=batch_norm)
    source = StoredActivations(Placement((), np.zeros(0, np.int32), np.zeros(0, np.int32)), ROW_SHAPE, 0)
    network = NetworkSpec("test_vit", "-2")
    return PhotoJob(
        network=network, source=source, problem=problem, loop=loop, metric="accuracy", device="cpu", folder=folder / "checkpoints"
    )


class Tried:
    """Stands in for the process: sizes fit up to `largest`, and what was tried is kept."""

    def __init__(self) -> None:
        self.largest = 1000
        self.sizes: list[tuple[str, int, int]] = []

    def __call__(self, target: str, trial: MemoryTrial, *, on_value: Callable[[StepCost], None], **_: Any) -> Probe:
        parts = {"weights": 1, "gradients": 1, "optimizer": 2, "baseline": 100_000_000}
        size = trial.sizes[0]
        self.sizes.append((trial.way, size, trial.eval_batch or min(2 * size, trial.most_evaluated)))
        if size > self.largest:
            return Probe([], "killed", "the process was killed")
        cost = StepCost(size, 10**8 + 10**6 * size, 0.01, parts, self.sizes[-1][2])
        on_value(cost)
        return Probe([cost])


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> Tried:
    """No limit is far away, so steps are measured."""
    monkeypatch.setattr(memory_plan, "FAR_SHARE", 0.0)
    tried = Tried()
    monkeypatch.setattr(plan_module, "probe", tried)
    return tried


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits are far away, however large the tests before this one have left their process; nothing may be measured."""
    monkeypatch.setattr(memory_plan, "FAR_SHARE", 0.9)
    monkeypatch.setattr(plan_module, "probe", lambda *_, **__: pytest.fail("a size was measured"))


def probes(heard: list[Event]) -> int:
    return max((event.done for event in heard if isinstance(event, Progress)), default=0)


def with_val(asked: TrainingJob, num: int = 8) -> TrainingJob:
    """The same with a val split of `num` samples."""
    ids = [str(number) for number in range(8 + num)]
    splits = {"train": np.arange(8), "val": np.arange(8, 8 + num)}
    return replace(asked, problem=Problem("classification", ("a", "b"), np.arange(8 + num) % 2, splits, ids))


def chosen(heard: list[Event]) -> dict[str, Any]:
    return {event.choice.name: event.choice for event in heard if isinstance(event, Chosen)}


@pytest.mark.usefixtures("far")
def test_far_below_limit_nothing_measured(tmp_path: Path) -> None:
    heard: list[Event] = []
    asked = job(tmp_path)
    planned = plan_memory(open_session(tmp_path, heard, memory=LIMIT), asked, tmp_path / FILE)
    assert planned is not None
    plan = planned.plan
    assert (plan.counted, plan.batch, plan.sub_batch, plan.grad_ckpt) == (True, 2, 2, False)
    assert sum(plan.parts.values()) == plan.planned_bytes < plan.limit_bytes
    assert plan.planned_bytes > own_bytes()
    assert (probes(heard), plan.measured) == (0, ())
    choice = chosen(heard)["memory_plan"]
    assert choice.value == format_bytes(plan.planned_bytes)
    assert choice.value in choice.reason
    assert format_bytes(plan.limit_bytes) in choice.reason
    assert any(choice.value in event.text for event in heard if isinstance(event, Note))
    again = plan_memory(open_session(tmp_path, heard, memory=LIMIT), asked, tmp_path / FILE)
    assert again is not None
    assert again.plan == plan


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("grad_ckpt", [True, False])
def test_given_sizes_stand_when_counted(tmp_path: Path, grad_ckpt: bool) -> None:
    asked, heard = with_val(job(tmp_path, batch=4)), list[Event]()
    session = open_session(tmp_path, heard, memory=LIMIT, sub_batch=1, eval_batch=3, grad_ckpt=grad_ckpt)
    planned = plan_memory(session, asked, tmp_path / FILE)
    assert planned is not None
    plan = planned.plan
    assert (plan.sub_batch, plan.eval_batch, plan.grad_ckpt) == (1, 3, grad_ckpt)
    assert {chosen(heard)[name].reason for name in ("sub_batch", "eval_batch", "grad_ckpt")} == {"given"}


@pytest.mark.usefixtures("far")
def test_evaluation_batch_larger_than_training(tmp_path: Path) -> None:
    asked = with_val(job(tmp_path, batch=4), num=64)
    planned = plan_memory(open_session(tmp_path, [], memory=LIMIT), asked, tmp_path / FILE)
    assert planned is not None
    assert planned.plan.eval_batch == 8  # an eighth of what is judged


@pytest.mark.usefixtures("far")
def test_evaluation_batch_on_gpu_far_below_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module.backend, "has_own_memory", lambda device: True)
    heard: list[Event] = []
    asked = with_val(job(tmp_path, batch=1), num=320)
    planned = plan_memory(open_session(tmp_path, heard, memory=LIMIT), asked, tmp_path / FILE)
    assert planned is not None
    assert (planned.plan.counted, planned.plan.eval_batch) == (True, 4)


def test_uncountable_network_is_measured(tmp_path: Path, near: Tried, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("it looks at values\nand says more")

    monkeypatch.setattr("unchoke.training.network.plan_memory.estimate_memory", refuse)
    heard: list[Event] = []
    planned = plan_memory(open_session(tmp_path, heard, memory=LIMIT), job(tmp_path, batch=1), tmp_path / FILE)
    assert planned is not None
    assert (planned.plan.counted, probes(heard)) == (False, 1)
    assert "it looks at values" in chosen(heard)["memory_count"].reason


def test_near_limit_one_process_measures_steps_and_evaluation(tmp_path: Path, near: Tried) -> None:
    asked = with_val(job(tmp_path, batch=8), num=256)
    planned = plan_memory(open_session(tmp_path, [], memory=LIMIT), asked, tmp_path / FILE)
    assert planned is not None
    assert near.sizes == [("train", 8, 16)]
    assert (planned.plan.sub_batch, planned.plan.eval_batch, planned.plan.counted) == (8, 16, False)


def test_killed_process_is_followed_by_one_with_half(tmp_path: Path, near: Tried) -> None:
    near.largest = 2
    asked = with_val(job(tmp_path, batch=7), num=256)
    planned = plan_memory(open_session(tmp_path, [], memory=LIMIT, grad_ckpt=False), asked, tmp_path / FILE)
    assert planned is not None
    assert near.sizes == [("train", 7, 14), ("train", 4, 8), ("train", 2, 4)]
    assert (planned.plan.sub_batch, planned.plan.eval_batch) == (2, 4)
    with refused("batch-does-not-fit") as caught:
        plan_memory(open_session(tmp_path, [], memory=LIMIT, sub_batch=4), asked, tmp_path / "other.json")
    assert caught.value.try_ == "--sub-batch 2"


@pytest.mark.usefixtures("near")
def test_plan_below_limit_kept_until_limit_changes(tmp_path: Path) -> None:
    heard: list[Event] = []
    file = tmp_path / FILE
    planned = plan_memory(open_session(tmp_path, heard, memory=LIMIT), job(tmp_path), file)
    assert planned is not None
    plan = planned.plan
    assert (plan.batch, plan.sub_batch, plan.limit_bytes) == (2, 2, parse_bytes(LIMIT))
    assert plan.planned_bytes <= plan.limit_bytes - plan.margin_bytes
    assert sum(plan.parts.values()) == plan.planned_bytes
    assert plan.parts["cache"] > 0
    assert probes(heard) == 1
    table = next(event.text for event in heard if isinstance(event, Note))
    assert all(word in table for word in ("weights", "activations", "overhead", "planned", "limit", "margin"))
    assert {"memory", "sub_batch", "grad_ckpt"} <= set(chosen(heard))

    heard.clear()
    again = plan_memory(open_session(tmp_path, heard, memory=LIMIT), job(tmp_path), file)
    assert again is not None
    assert (probes(heard), again.plan) == (0, plan)
    assert FILE in chosen(heard)["memory_plan"].reason
    assert chosen(heard)["memory_plan"].evidence["parts"] == plan.parts

    heard.clear()
    other = plan_memory(open_session(tmp_path, heard, memory="5GB"), job(tmp_path), file)
    assert other is not None
    assert probes(heard) == 1
    assert other.plan.limit_bytes == parse_bytes("5GB")
    assert json.loads(file.read_text())["made_for"]["limit_bytes"] == parse_bytes("5GB")


@pytest.mark.usefixtures("near")
def test_plan_stands_if_batch_statistics_train(tmp_path: Path) -> None:
    heard: list[Event] = []
    file, trained = tmp_path / FILE, job(tmp_path, batch=1, batch_norm="train")
    first = plan_memory(open_session(tmp_path, heard, memory=LIMIT), trained, file)
    heard.clear()
    second = plan_memory(open_session(tmp_path, heard, memory="5GB"), trained, file)
    assert first is not None
    assert second is not None
    assert (second.plan, probes(heard)) == (first.plan, 0)


@pytest.mark.usefixtures("near")
def test_plan_changes_micro_batch_not_identity(tmp_path: Path) -> None:
    heard: list[Event] = []
    asked = job(tmp_path, batch=4)
    planned = plan_memory(open_session(tmp_path, heard, memory=LIMIT, sub_batch=1, eval_batch=3), asked, tmp_path / FILE)
    assert planned is not None
    applied = planned.applied_to(asked)
    assert (applied.loop.sub_batch, applied.loop.eval_batch, applied.loop.batch_size) == (1, 3, 4)
    assert applied.loop.identity() == asked.loop.identity()
    assert applied.limit_bytes == parse_bytes(LIMIT)


def test_too_small_limit_is_refused(tmp_path: Path) -> None:
    with refused("training-does-not-fit", "100.0 MB"):
        plan_memory(open_session(tmp_path, [], memory="100MB"), job(tmp_path, batch=1), tmp_path / FILE)
    assert not (tmp_path / FILE).exists()


@pytest.mark.usefixtures("near")
def test_processes_on_one_cpu_share_limit(tmp_path: Path) -> None:
    heard: list[Event] = []
    total = own_bytes() + 2 * parse_bytes("700MB")
    planned = plan_memory(open_session(tmp_path, heard, memory=f"{total}B", devices=2), job(tmp_path, batch=2), tmp_path / FILE)
    assert planned is not None
    assert planned.plan.batch == 1  # each takes half of every batch
    assert planned.limit_bytes == pytest.approx(parse_bytes("700MB"), rel=0.1)
    assert "2 processes" in chosen(heard)["memory_of_each"].reason


def test_cpu_without_limit_not_planned(tmp_path: Path) -> None:
    heard: list[Event] = []
    session = open_session(tmp_path, heard)
    assert plan_memory(session, job(tmp_path), tmp_path / FILE) is None
    assert probes(heard) == 0
    assert chosen(heard)["memory"].value is None
    assert "--memory" in chosen(heard)["memory"].reason
    kept = remember_memory(session, None, job(tmp_path))["memory"]
    assert (kept["planned_bytes"], kept["measured_bytes"]) == (None, None)


@pytest.mark.parametrize("far_share", [0.0, 0.9], ids=["measured", "counted"])
def test_run_records_planned_against_measured(
    photos: Path, tiny_weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, far_share: float
) -> None:
    heard: list[Event] = []
    options = {"encoder": "test_resnet", "input_px": 64, "engine": "torch", "precision": "f32", "workers": 1, "cut": "-1"}
    sizes = {"memory": LIMIT, "epochs": 1, "batch_size": 4}
    monkeypatch.setattr(memory_plan, "FAR_SHARE", far_share)
    result = train(photos, out=tmp_path / "out", on_event=heard.append, weights=str(tiny_weights), **sizes, **options)
    assert isinstance(result, FitResult)
    memory = result.to_dict()["memory"]
    assert memory["plan"]["counted"] == bool(far_share)
    if memory["plan"]["counted"]:
        assert memory["measured_bytes"] <= memory["planned_bytes"]
    else:
        assert memory["measured_bytes"] == pytest.approx(memory["planned_bytes"], rel=0.25)
    assert memory["plan"]["limit_bytes"] == parse_bytes(LIMIT)
    assert memory["planned_bytes"] <= memory["plan"]["limit_bytes"] - memory["plan"]["margin_bytes"]
    assert sum(memory["plan"]["parts"].values()) == memory["planned_bytes"]
    assert (result.folder / FILE).exists()
    figures = [format_bytes(memory[name]) for name in ("planned_bytes", "measured_bytes")]
    assert any(all(figure in event.text for figure in figures) for event in heard if isinstance(event, Note))
    record = result.record
    loop, plan = record["training"]["loop"], record["memory"]["plan"]
    assert {name: loop[name] for name in ("sub_batch", "eval_batch", "grad_ckpt")} == {
        name: plan[name] for name in ("sub_batch", "eval_batch", "grad_ckpt")
    }
    assert loop["batch_size"] == 4
    assert record["training"]["out_of_memory_halvings"] == 0
    assert record["training"]["seconds"]["planning memory"] > 0
