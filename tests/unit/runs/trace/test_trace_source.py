"""Trace files of any age and origin; what cannot be read is explained."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import traces
from errors import refused
from unchoke.runs.trace.trace_record import read_trace


def test_a_gzipped_file_and_a_bare_list_say_the_same(tmp_path: Path) -> None:
    plain = traces.training_on_a_card().save(tmp_path / "one.pt.trace.json")
    packed, bare = tmp_path / "one.pt.trace.json.gz", tmp_path / "bare.json"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    bare.write_text(json.dumps(json.loads(plain.read_text())["traceEvents"]))
    first = read_trace(plain)
    assert first.about.devices == ("NVIDIA H200",)
    for other in (read_trace(packed), read_trace(bare)):
        assert (other.steps, other.operators, other.kernels) == (first.steps, first.operators, first.kernels)


@pytest.mark.parametrize(
    ("content", "code", "fact"),
    [
        (b'{"traceEvents": [{"ph": "X", "na', "damaged-trace", "ends in the middle"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03cut", "damaged-trace", "compressed"),
        (b"\xff\xfe\x00 no text", "damaged-trace", "not text"),
        (b"name,seconds\nconv,3\n", "damaged-trace", "JSON"),
        (b'{"events": []}', "not-a-trace", "traceEvents"),
        (b'[{"ph": "X", "cat": "FEE", "name": "main", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]', "not-a-trace", "1 event"),
        (b'{"traceEvents": []}', "not-a-trace", "0 events"),
    ],
)
def test_what_is_no_trace_is_explained(tmp_path: Path, content: bytes, code: str, fact: str) -> None:
    file = tmp_path / "odd.json"
    file.write_bytes(content)
    with refused(code, str(file), fact, "export_chrome_trace"):
        read_trace(file)


def test_missing_file_or_folder_is_refused(tmp_path: Path) -> None:
    for path, code in ((tmp_path / "none.json", "no-such-file"), (tmp_path, "not-a-trace")):
        with refused(code, str(path)):
            read_trace(path)


def test_events_that_make_no_sense_are_left_out_and_counted(tmp_path: Path) -> None:
    made = traces.training_on_a_processor()
    good = read_trace(made.save(tmp_path / "good.json"))
    odd = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1}
    made.events += [
        {**odd, "name": "no time", "dur": 3},
        {**odd, "name": "ends before it begins", "ts": traces.BEGAN_US, "dur": -5},
        {**odd, "name": ["no", "text"], "ts": traces.BEGAN_US, "dur": 1},
        {**odd, "name": "endless", "ts": 10**400, "dur": 1},
        {"ph": "X", "cat": ["odd"], "name": "?"},
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": traces.BEGAN_US, "args": {"Bytes": "many"}},
    ]
    made.events.append("no event at all")  # type: ignore[arg-type]
    record = read_trace(made.save(tmp_path / "odd.json"))
    assert record.operators == good.operators
    assert record.about.notes[-1].endswith("5.")


def test_old_trace_with_whole_microseconds_is_nested(tmp_path: Path) -> None:
    began = 1659437000123456
    rows = [("aten::conv2d", began, 100), ("aten::convolution", began + 1, 100), ("aten::fill_", began + 50, 20)]
    events = [{"ph": "X", "cat": "Operator", "name": name, "pid": 9, "tid": 9, "ts": ts, "dur": dur} for name, ts, dur in rows]
    events.append({**events[0], "cat": "Kernel", "pid": 0, "tid": 7, "name": "gemm"})
    file = tmp_path / "old.json"
    file.write_text(json.dumps({"traceEvents": events}))
    record = read_trace(file)
    assert {row.name: row.self_cpu_us for row in record.operators} == {
        "aten::conv2d": 1,
        "aten::convolution": 79,
        "aten::fill_": 20,
    }
    assert [row.name for row in record.kernels] == ["gemm"]


def test_a_hostile_depth_of_brackets_is_an_error_too(tmp_path: Path) -> None:
    file = tmp_path / "deep.json"
    file.write_text("[" * 200_000)
    with refused("damaged-trace"):
        read_trace(file)
