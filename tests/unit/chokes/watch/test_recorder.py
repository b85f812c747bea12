"""The record of a process: what it adds up, and what is on disk at any moment."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from unchoke.chokes.watch import recorder as record
from unchoke.chokes.watch.recorder import Recorder, RecordFiles

PLACE = ("train.py", 12, "load")


def rows(recorder: Recorder) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = recorder.to_dict()["calls"]
    return found


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.iterdir()) for line in file.read_text().splitlines()]


def test_calls_are_summed_by_kind_phase_and_place() -> None:
    recorder = Recorder()
    for name in ("a.jpg", "b.jpg", "a.jpg"):
        recorder.call("open", 0.5, amount=2, key=name, place=PLACE)
    recorder.phase = "getitem"
    recorder.call("open", 1.0, place=PLACE)
    outside, getitem = rows(recorder)
    assert (outside["count"], outside["seconds"], outside["amount"], outside["distinct"]) == (3, 1.5, 6, 2)
    assert (outside["example"], outside["line"], outside["phase"]) == ("a.jpg", 12, "outside")
    assert (getitem["phase"], getitem["count"]) == ("getitem", 1)


def test_a_call_without_a_place_gets_the_line_it_came_from() -> None:
    recorder = Recorder()
    recorder.call("open", 0.5)
    assert (Path(rows(recorder)[0]["file"]).name, rows(recorder)[0]["line"] > 0) == (Path(__file__).name, True)


def test_what_the_watcher_does_is_not_counted() -> None:
    recorder = Recorder()
    recorder.phase = record.WATCHER
    recorder.call("open", 0.5, place=PLACE)
    assert rows(recorder) == []


def test_each_line_on_disk_is_the_whole_record(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path))
    recorder.register("loaders", lambda: [1, 2])
    for count in (1, 2):
        recorder.call("open", 0.5, place=PLACE)
        recorder.flush()
        assert lines(tmp_path)[-1]["calls"][0]["count"] == count
    assert lines(tmp_path)[-1]["loaders"] == [1, 2]
    assert lines(tmp_path)[-1]["watcher"]["hooks_s"] > 0


def test_failing_snapshot_is_noted_and_rest_is_written(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path))
    recorder.register("broken", lambda: [][0])
    recorder.fact("kept", True)
    recorder.flush()
    (line,) = lines(tmp_path)
    assert line["facts"] == {"kept": True}
    assert "broken" in line["notes"][0]


def test_a_forked_child_begins_with_an_empty_record() -> None:
    recorder, began = Recorder(), []
    recorder.after_fork(lambda: began.append(True))
    recorder.call("open", 0.5, place=PLACE)
    recorder.begin_again()
    assert (rows(recorder), began) == ([], [True])


def test_newest_line_is_always_there_and_files_stay_small(tmp_path: Path) -> None:
    written = RecordFiles(str(tmp_path), max_bytes=20)
    for number in range(100, 140):
        written.write(f"{number}\n".encode())
        assert max(json.loads(line) for file in tmp_path.iterdir() for line in file.read_text().split()) == number
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 60
    assert {file.name for file in tmp_path.iterdir()} == {f"{os.getpid()}.jsonl", f"{os.getpid()}.next.jsonl"}
