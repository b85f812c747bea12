"""A step's parts add up to it, and each second is where it belongs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import traces
from unchoke.runs.trace.trace_record import read_trace
from unchoke.runs.trace.trace_steps import Step

if TYPE_CHECKING:
    from tests.unit.reports.trace.conftest import Profiled


def steps_of(made: traces.Recording, folder: Path) -> tuple[Step, ...]:
    return read_trace(made.save(folder / "one.json")).steps


def test_a_real_training_is_split_by_what_torch_marks(profiled: Profiled) -> None:
    record = read_trace(profiled.file)
    assert [step.name for step in record.steps] == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
    assert (record.about.split_by, record.about.schedule) == ("names", "steps 2 to 4")
    for step in record.steps:
        assert sum(step.stages.values()) == pytest.approx(step.wall_us)
        assert {"wait", "forward", "backward", "optimizer"} <= step.stages.keys()
        assert min(step.stages["forward"], step.stages["backward"]) > 0
        assert step.device_busy_us == 0


def test_cpu_gradients_are_on_the_same_thread(tmp_path: Path) -> None:
    first, _ = steps_of(traces.training_on_a_processor(), tmp_path)
    assert first.stages == {"wait": 300, "forward": 200, "backward": 300, "optimizer": 100, "other": 100}


def test_gpu_gradients_and_waiting_are_stages(tmp_path: Path) -> None:
    _, second = steps_of(traces.training_on_a_card(), tmp_path)
    expected = {"wait": 200, "copy": 50, "forward": 40, "backward": 250, "optimizer": 100, "synchronise": 90, "other": 270}
    assert second.stages == expected
    assert second.device_busy_us == 325


def test_marks_win_and_inner_ones_take_their_time(tmp_path: Path) -> None:
    made = traces.training_on_a_processor(steps=1)
    made.mark("unchoke.forward", 290, 200)
    made.mark("unchoke.evaluate", 600, 300)
    made.mark("unchoke.wait", 700, 50)
    record = read_trace(made.save(tmp_path / "one.json"))
    assert record.about.split_by == "marks"
    assert record.steps[0].stages == {"wait": 50, "forward": 200, "evaluate": 250, "other": 500}


def test_waiting_for_the_card_between_marks_is_seen(tmp_path: Path) -> None:
    made = traces.training_on_a_card(steps=1)
    made.mark("unchoke.forward", 255, 50)
    assert steps_of(made, tmp_path)[0].stages == {"forward": 50, "synchronise": 70, "other": 880}


def test_recording_without_steps_is_one(tmp_path: Path) -> None:
    made = traces.Recording()
    made.op("aten::conv2d", 100, 50)
    made.op("aten::relu", 160, 40)
    record = read_trace(made.save(tmp_path / "one.json"))
    assert [(step.name, step.wall_us, step.stages) for step in record.steps] == [("whole recording", 100, {"forward": 100})]
    assert "never called the profiler's step()" in record.about.notes[0]


def test_annotations_of_other_programs_are_looked_into(tmp_path: Path) -> None:
    made = traces.training_on_a_processor(steps=1)
    made.mark("[pl][profile]run_training_batch", 295, 700)
    assert steps_of(made, tmp_path)[0].stages["backward"] == 300


def test_optimizer_that_calls_forward_keeps_its_part(tmp_path: Path) -> None:
    made = traces.Recording()
    made.mark("ProfilerStep#1", 0, 1000)
    made.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 100)
    made.mark("Optimizer.step#Adam.step", 100, 900)
    made.mark("[pl][profile][Strategy]SingleDeviceStrategy.training_step", 110, 300)
    made.op("aten::conv2d", 110, 290)
    made.op("autograd::engine::evaluate_function: ConvolutionBackward0", 450, 350)
    made.op("aten::_fused_adam_", 850, 100)
    assert steps_of(made, tmp_path)[0].stages == {"wait": 100, "forward": 290, "backward": 350, "optimizer": 100, "other": 160}
