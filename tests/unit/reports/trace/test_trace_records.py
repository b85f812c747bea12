"""Two traces side by side."""

from __future__ import annotations

from pathlib import Path

import traces
from unchoke.reports.trace import read_trace
from unchoke.reports.trace.trace_records import TraceDiff, compare_traces


def compared(before: traces.Recording, after: traces.Recording, folder: Path) -> TraceDiff:
    return compare_traces(*(read_trace(made.save(folder / f"{name}.json")) for name, made in (("a", before), ("b", after))))


def test_the_planted_difference_comes_first_and_is_counted_for_one_step(tmp_path: Path) -> None:
    diff = compared(traces.training_on_a_card(steps=2), traces.training_on_a_card(steps=3, convolution_us=100), tmp_path)
    first = diff.operators[0]
    assert (first.name, first.before_device_us, first.after_device_us, first.device_change_us) == (
        "aten::cudnn_convolution", 300, 100, -200,
    )  # fmt: skip
    assert (diff.per_step, first.before_calls, first.after_calls, first.state) == (True, 1, 1, "both")
    assert all(change.change_us == 0 for change in diff.stages)


def test_new_and_vanished_operators_are_told(tmp_path: Path) -> None:
    after = traces.training_on_a_processor()
    after.events = [event for event in after.events if event["name"] != "aten::relu"]
    after.op("aten::gelu", 460, 35)
    states = {change.name: change.state for change in compared(traces.training_on_a_processor(), after, tmp_path).operators}
    assert (states["aten::relu"], states["aten::gelu"], states["aten::conv2d"]) == ("gone", "new", "both")


def test_without_steps_whole_recordings_are_compared(tmp_path: Path) -> None:
    after = traces.Recording()
    after.op("aten::conv2d", 0, 700)
    diff = compared(traces.training_on_a_processor(), after, tmp_path)
    assert not diff.per_step
    assert next(change.cpu_change_us for change in diff.operators if change.name == "aten::conv2d") == 700 - 2 * 150
