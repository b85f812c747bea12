"""Two traces side by side."""

from __future__ import annotations

from pathlib import Path

import traces
from unchoke.runs.trace.trace_record import TraceDiff, compare_traces, read_trace
from unchoke.runs.trace.trace_text import render_diff


def compared(before: traces.Recording, after: traces.Recording, folder: Path) -> TraceDiff:
    return compare_traces(*(read_trace(made.save(folder / f"{name}.json")) for name, made in (("a", before), ("b", after))))


def test_planted_difference_comes_first(tmp_path: Path) -> None:
    diff = compared(traces.training_on_a_card(steps=2), traces.training_on_a_card(steps=3, convolution_us=100), tmp_path)
    first = diff.operators[0]
    assert (first["name"], first["before_device_us"], first["after_device_us"], first["device_change_us"]) == (
        "aten::cudnn_convolution", 300, 100, -200,
    )  # fmt: skip
    assert (diff.per_step, first["before_calls"], first["after_calls"], first["state"]) == (True, 1, 1, "both")
    assert all(change["change_us"] == 0 for change in diff.stages)


def test_new_and_vanished_operators_are_told(tmp_path: Path) -> None:
    after = traces.training_on_a_processor()
    after.events = [event for event in after.events if event["name"] != "aten::relu"]
    after.op("aten::gelu", 460, 35)
    states = {change["name"]: change["state"] for change in compared(traces.training_on_a_processor(), after, tmp_path).operators}
    assert (states["aten::relu"], states["aten::gelu"], states["aten::conv2d"]) == ("gone", "new", "both")


def test_without_steps_whole_recordings_are_compared(tmp_path: Path) -> None:
    after = traces.Recording()
    after.op("aten::conv2d", 0, 700)
    diff = compared(traces.training_on_a_processor(), after, tmp_path)
    assert not diff.per_step
    assert next(change["cpu_change_us"] for change in diff.operators if change["name"] == "aten::conv2d") == 700 - 2 * 150


def cut_in_the_last_step(steps: int) -> traces.Recording:
    """The last step ends after its forward pass, as when a signal comes."""
    made = traces.training_on_a_processor(steps=steps)
    made.events = [event for event in made.events if event["ts"] < traces.BEGAN_US + 1000 * (steps - 1) + 500]
    next(event for event in made.events if event["name"] == f"ProfilerStep#{steps - 1}")["dur"] = 500
    return made


def test_cut_recording_is_compared_with_a_warning(tmp_path: Path) -> None:
    diff = compared(traces.training_on_a_processor(steps=3), cut_in_the_last_step(3), tmp_path)
    assert not diff.before.cut_off
    assert "no backward and no optimizer" in diff.after.cut_off
    assert "warning: b.json was cut off" in render_diff(diff)
    assert all(change["change_us"] == 0 for change in diff.stages), "the half step must not count"


def test_fewer_steps_than_planned_are_told(tmp_path: Path) -> None:
    made = traces.training_on_a_processor(steps=2)
    made.head["unchoke"] = {"steps": 5, "unseen": ""}
    assert "2 of 5 planned steps" in read_trace(made.save(tmp_path / "a.json")).about.cut_off


def test_whole_recordings_are_compared_without_a_word(tmp_path: Path) -> None:
    diff = compared(traces.training_on_a_card(), traces.training_on_a_card(steps=1), tmp_path)
    assert not diff.before.cut_off and not diff.after.cut_off
    assert "warning" not in render_diff(diff)
