"""A trace as text for a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

import traces
from unchoke.runs.trace.trace_record import compare_traces, read_trace
from unchoke.runs.trace.trace_text import format_us, render_trace


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0"),
        (0.42, "0.42 µs"),
        (64.48, "64.5 µs"),
        (999.6, "1.00 ms"),
        (20854.2, "20.9 ms"),
        (2_500_000, "2.50 s"),
        (-508, "-508 µs"),
    ],
)
def test_times_keep_the_digits_that_matter(us: float, text: str) -> None:
    assert format_us(us) == text


def test_split_operators_and_device_are_shown(tmp_path: Path) -> None:
    text = render_trace(read_trace(traces.training_on_a_card().save(tmp_path / "card.json")))
    assert "NVIDIA H200, steps 2 to 3 of the run" in text
    assert "A step takes 1.00 ms on average over 2 steps: other 27 %, backward 25 %, wait 20 %." in text
    assert "The device is busy 32 % of that time" in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "aten::cudnn_convolution 600 µs 92.3 % 2" in lines
    assert "aten::cudnn_convolution 2.1 MB 100.0 % 2" in lines


def test_without_a_device_its_table_is_left_out(tmp_path: Path) -> None:
    text = render_trace(read_trace(traces.training_on_a_processor().save(tmp_path / "one.json")))
    assert "self CPU time" in text
    assert "device time" not in text


def test_a_comparison_ends_the_text(tmp_path: Path) -> None:
    before = read_trace(traces.training_on_a_processor(log_us=10).save(tmp_path / "before.json"))
    after = read_trace(traces.training_on_a_processor(log_us=60).save(tmp_path / "after.json"))
    text = render_trace(after, compare_traces(before, after))
    assert "before.json (before) against after.json (after), in one step" in text
    rows = text.partition("before.json (before)")[2].splitlines()
    assert (
        next(" ".join(row.split()) for row in rows if row.startswith("aten::to")) == "aten::to 10.0 µs 60.0 µs +50.0 µs 0 1 → 1"
    )
