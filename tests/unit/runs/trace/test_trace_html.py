"""The trace viewer's page: one file, every view, nothing from the trace effective."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import traces
from unchoke.runs.trace.trace_html import render_trace_html, save_trace_html
from unchoke.runs.trace.trace_record import compare_traces, read_trace
from unchoke.runs.trace.trace_text import render_trace

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\u202e&amp;"


def page_of(made: traces.Recording, folder: Path) -> str:
    return render_trace_html(read_trace(made.save(folder / "one.pt.trace.json")))


def data_of(page: str) -> dict[str, Any]:
    """What the page's own script reads."""
    found: dict[str, Any] = json.loads(re.findall(r'<script type="application/json" id="trace-data">(.*?)</script>', page)[0])
    return found


def test_the_five_views_are_there_and_nothing_is_loaded(tmp_path: Path) -> None:
    page = page_of(traces.training_on_a_card(), tmp_path)
    assert re.findall(r'<section id="(\w+)"', page) == ["steps", "operators", "kernels", "strip", "memory"]
    assert "default-src 'none'" in page
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", page)
    assert "NVIDIA H200" in page


def test_names_from_a_trace_cannot_leave_the_data(tmp_path: Path) -> None:
    made = traces.training_on_a_card(head={"deviceProperties": [{"name": HOSTILE}]})
    made.op(HOSTILE, 2000, 10, dims=[[HOSTILE]])
    page = page_of(made, tmp_path)
    assert page.count("<script") == page.count("</script>") == 2
    assert "<img" not in page and "\u202e" not in page
    assert HOSTILE.replace("\u202e", "\\u202e") in data_of(page)["strip"]["names"]


def test_the_strips_events_come_back_from_the_packed_form(tmp_path: Path) -> None:
    record = read_trace(traces.training_on_a_card().save(tmp_path / "one.json"))
    for packed, row in zip(data_of(render_trace_html(record))["strip"]["rows"], record.strip.rows, strict=True):
        at, starts = 0, []
        for step in packed["starts"]:
            at += step
            starts.append(at)
        assert starts == [event[0] for event in row.events]
        assert packed["durations"] == [event[1] for event in row.events]


def test_what_a_trace_lacks_is_said_with_how_to_record_it(tmp_path: Path) -> None:
    made = traces.Recording()
    made.op("aten::relu", 0, 10)
    page = page_of(made, tmp_path)
    assert "no work of a device" in page
    assert "record_shapes=True" in page
    assert "profile_memory=True" in page
    assert "never called the profiler" in page


def test_a_comparison_adds_its_view_with_before_and_after(tmp_path: Path) -> None:
    before = traces.training_on_a_card().save(tmp_path / "before.json")
    after = traces.training_on_a_card(convolution_us=100).save(tmp_path / "after.json")
    page = save_trace_html(after, tmp_path / "page.html", against=before).read_text(encoding="utf-8")
    assert "before: before.json" in page
    changes = page.partition('<section id="diff"')[2]
    assert re.search(r"<th scope=\"row\">aten::cudnn_convolution</th>.*?-200 µs", changes, re.DOTALL)
    assert compare_traces(read_trace(before), read_trace(after)).to_dict()["operators"][0]["device_change_us"] == -200


def test_where_kernels_cannot_be_seen_the_view_says_so(tmp_path: Path) -> None:
    ours, theirs = traces.training_on_a_processor(), traces.training_on_a_processor()
    ours.head["unchoke"] = {"steps": 2, "unseen": "MPS"}
    theirs.op("aten::_mps_convolution", 310, 20)
    for made in (ours, theirs):
        record = read_trace(made.save(tmp_path / "metal.json"))
        assert "cannot see the kernels" in render_trace_html(record)
        assert "MPS, whose kernels the profiler cannot see" in render_trace(record)
    plain = render_trace_html(read_trace(traces.training_on_a_processor().save(tmp_path / "plain.json")))
    assert "cannot see the kernels" not in plain


def test_comparison_of_a_cut_recording_says_so(tmp_path: Path) -> None:
    after = traces.training_on_a_processor()
    after.head["unchoke"] = {"steps": 9}
    records = [read_trace(made.save(tmp_path / f"{n}.json")) for n, made in enumerate((traces.training_on_a_processor(), after))]
    assert "1.json was cut off" in render_trace_html(records[1], compare_traces(*records))
