"""The strip shows everything once, nothing over another, and never more than fits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import traces
from unchoke.runs.trace.trace_record import EventStrip, StripRow, lay_out, read_trace
from unchoke.runs.trace.trace_source import load_source


def busy_recording(count: int) -> traces.Recording:
    """Calls in calls, with lengths that differ a thousandfold."""
    random, made, at = np.random.default_rng(0), traces.Recording(), 0.0
    for _ in range(count):
        length = float(round(10 ** random.uniform(0, 3), 3))
        made.op("aten::outer", at, length)
        made.op("aten::inner", at + length * 0.2, length * 0.5)
        at += length + float(random.uniform(0, 5))
    return made


def overlaps(row: StripRow) -> int:
    """How many events of one line begin before the one before has ended (by more than rounding)."""
    ends: dict[int, int] = {}
    found = 0
    for start, length, depth, *_ in row.events:
        found += start < ends.get(depth, -1) - 2
        ends[depth] = start + length
    return found


def counted(strip: EventStrip) -> int:
    return sum(event[5] or 1 for row in strip.rows for event in row.events)


def test_rows_are_named_and_ordered_as_a_person_would(tmp_path: Path) -> None:
    strip = read_trace(traces.training_on_a_card().save(tmp_path / "card.json")).strip
    assert [(row.name, row.kind) for row in strip.rows] == [
        ("main thread 427 (python3)", "thread"),
        ("thread 468 (pt_autograd_0)", "thread"),
        ("GPU 0 · stream 7", "stream"),
    ]
    stream = strip.rows[2]
    copy = next(event for event in stream.events if strip.names[event[3]].startswith("Memcpy"))
    assert strip.details[copy[4]] == "launched by aten::copy_; 786,432 bytes"
    assert len(strip) == read_trace(tmp_path / "card.json").about.num_events


def test_many_events_are_merged_and_none_lost(tmp_path: Path) -> None:
    source = load_source(busy_recording(2000).save(tmp_path / "busy.json"))
    whole, small = lay_out(source, {}), lay_out(source, {}, most_events=600)
    assert (len(whole), whole.merged) == (4000, 0)
    assert len(small) <= 600
    assert counted(whole) == counted(small) == 4000
    assert not any(overlaps(row) for strip in (whole, small) for row in strip.rows)


def test_crossing_events_get_their_own_lines(tmp_path: Path) -> None:
    made = traces.Recording()
    for start, length in ((0, 100), (50, 100), (110, 20)):
        made.op("aten::crossing", start, length)
    (row,) = read_trace(made.save(tmp_path / "one.json")).strip.rows
    assert [event[2] for event in row.events] == [0, 1, 2]
