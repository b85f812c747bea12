"""torch.profiler on some steps: what is written, what is found, and that nothing else changes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from small_training import CPU, STEPS_PER_EPOCH, Small, config, fingerprint, small
from unchoke.core.errors import Interrupted
from unchoke.core.events import ignore
from unchoke.runs.trace.trace_record import read_trace
from unchoke.training.data import ArraySource, Problem
from unchoke.training.heads.heads import HeadConfig
from unchoke.training.heads.train_heads import train_heads
from unchoke.training.network.finetune import finetune
from unchoke.training.network.loop_config import LoopContext, LoopResult
from unchoke.training.step_profiler import ProfilePlan, StepProfiler


def train(made: Small, profiler: StepProfiler) -> LoopResult:
    where = LoopContext(CPU, None, ignore, stop=lambda: profiler.wants_stop, profiler=profiler)
    return finetune(made.network, made.source, made.problem, made.objective, config(), metric=made.metric, where=where)


@dataclass(frozen=True)
class Profiled:
    profiler: StepProfiler
    done: LoopResult
    events: list[dict[str, Any]]


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory, one_torch_thread: None) -> Profiled:
    """A training of 15 steps, of which the third and the sixth are recorded."""
    plan = ProfilePlan(tmp_path_factory.mktemp("profiler"), "exp_7", wait=1, warmup=1, active=1, repeat=2)
    profiler = StepProfiler(plan)
    done = train(small(), profiler)  # on one thread, as every test here; sums over two threads round differently
    return Profiled(profiler, done, json.loads(profiler.traces[0].read_text())["traceEvents"])


def test_profiling_changes_nothing_that_is_computed(profiled: Profiled) -> None:
    assert fingerprint(profiled.done) == fingerprint(small().train())


def test_one_trace_per_cycle_nothing_left(profiled: Profiled) -> None:
    files = sorted(file.name for file in profiled.profiler.plan.folder.iterdir())
    assert [file.name for file in profiled.profiler.traces] == files
    assert all(name.startswith("exp_7_") and name.endswith(f"_{n}.pt.trace.json") for n, name in enumerate(files, start=1))


def test_stages_and_steps_are_annotated(profiled: Profiled) -> None:
    names = [event.get("name", "") for event in profiled.events if event.get("cat") == "user_annotation"]
    assert {f"unchoke.{stage}" for stage in ("wait", "copy", "prepare", "forward", "backward", "optimizer")} <= set(names)
    assert [name for name in names if name.startswith("ProfilerStep")] == ["ProfilerStep#2"]


def test_operators_with_times_and_memory(profiled: Profiled) -> None:
    found = {one.name: one for one in profiled.profiler.operators}
    assert found["aten::addmm"].calls > 0
    assert 0 < found["aten::addmm"].self_cpu_s <= found["aten::addmm"].cpu_s
    assert any(one.self_cpu_bytes > 0 for one in found.values())
    assert not [name for name in found if name.startswith(("unchoke.", "ProfilerStep"))]


def test_steps_after_profile_timed_undisturbed(profiled: Profiled) -> None:
    profiler = profiled.profiler
    assert (profiler.num_steps, profiler.num_recorded, profiler.num_timed) == (3 * STEPS_PER_EPOCH, 2, 3 * STEPS_PER_EPOCH - 6)
    assert profiler.timed["forward"][1] == profiler.num_timed
    assert not profiler.wants_stop


def test_profile_only_training_ends_early(tmp_path: Path) -> None:
    profiler = StepProfiler(ProfilePlan(tmp_path, "train", wait=0, warmup=1, active=2, stops=True))
    with pytest.raises(Interrupted):
        train(small(), profiler)
    assert len(profiler.traces) == 1
    assert 2 <= profiler.num_timed <= 3


def test_too_short_training_gives_no_trace(tmp_path: Path) -> None:
    profiler = StepProfiler(ProfilePlan(tmp_path, "train", wait=100))
    train(small(), profiler)
    assert (profiler.traces, profiler.operators, profiler.over) == ([], [], False)


def test_profiled_heads_same_bytes(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    classes = generator.integers(0, 3, 60)
    feats = generator.normal(size=(60, 8)) + np.eye(8)[classes]
    splits = {"train": np.arange(40), "val": np.arange(40, 60)}
    problem = Problem("classification", tuple("abc"), classes, splits, [str(number) for number in range(60)])
    configs = [HeadConfig(kind="linear", epochs=3, batch_size=8)]
    profiler = StepProfiler(ProfilePlan(tmp_path, "exp_1", active=2))
    found, plain = (
        train_heads(ArraySource(feats), problem, configs, device=CPU, on_event=ignore, **options)
        for options in ({"profiler": profiler}, {})
    )
    assert all(torch.equal(found.best.params[name], value) for name, value in plain.best.params.items())
    assert len(profiler.traces) == 1
    assert profiler.num_steps == 15
    stages = {row.stage: row.calls for row in plain.timeline.stages}
    assert (stages["forward"], stages["backward"], stages["optimizer"], stages["evaluate"]) == (15, 15, 15, 3)
    assert [row["epoch"] for row in plain.timeline.epochs] == [1, 2, 3]
    assert {row.stage for row in plain.timeline.loading} == {"read", "collate"}


def test_cut_off_profile_is_recognised(tmp_path: Path) -> None:
    profiler = StepProfiler(ProfilePlan(tmp_path, "cut", wait=1, warmup=1, active=6))
    made = small()
    where = LoopContext(CPU, None, ignore, stop=lambda: profiler.num_steps >= 4, profiler=profiler)
    with pytest.raises(Interrupted):
        finetune(made.network, made.source, made.problem, made.objective, config(), metric=made.metric, where=where)
    assert "of 6 planned steps" in read_trace(profiler.traces[0]).about.cut_off


def test_a_whole_recording_is_not_called_cut_off(profiled: Profiled) -> None:
    assert [read_trace(trace).about.cut_off for trace in profiled.profiler.traces] == ["", ""]
