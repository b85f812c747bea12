"""What watched processes leave becomes one recording, whole or cut short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unchoke.chokes.recording import Recording, load_recording

COLUMNS = ["end_s", "wall_s", "wait_s", "evaluate_s", "steps"]


def line(pid: int, role: str, **fields: Any) -> dict[str, Any]:
    common = {"schema": 1, "pid": pid, "role": role, "elapsed_s": 5.0, "started_at": float(pid), "notes": [], "facts": {}}
    return {**common, **fields}


def call(count: int) -> dict[str, Any]:
    place = {"kind": "stat", "phase": "getitem", "file": "train.py", "line": 3, "function": "f"}
    return {**place, "count": count, "seconds": 0.1, "amount": 0.0, "distinct": count, "example": "a"}


MAIN = line(
    1,
    "main",
    cores=2,
    torch="2.13",
    steps={"columns": COLUMNS, "rows": [[1, 1, 0.5, 0, 1], [2, 1, 0.5, 0, 1], [5, 3, 1, 2, 1]], "tail": [9, 4, 0, 3, 0]},
    loaders=[{"number": 0, "dataset": "Photos", "batches": 3, "fetch_s": 0.0, "worker_pids": [2, 3], "sample_shape": [3, 8, 8]}],
    modules=[{"name": "", "class": "Net", "depth": 0, "input_shape": [4, 3], "flops": 7}],
    calls=[call(2)],
)
WORKERS = [
    line(pid, "loader", worker_id=pid - 2, calls=[call(10)], fetches={"fetch_s": 2.0, "fetched_samples": 8}) for pid in (2, 3)
]


def write(folder: Path, *records: dict[str, Any], cut: str = "") -> Recording:
    for record in records:
        (folder / f"{record['pid']}.jsonl").write_text(json.dumps(record) + "\n" + cut)
    return load_recording(folder, command=["python", "train.py"], exit_code=0, wall_s=6.0)


def test_workers_fetches_are_added_to_their_loader(tmp_path: Path) -> None:
    recording = write(tmp_path, MAIN, *WORKERS)
    (loader,) = recording.loaders
    assert (loader.fetch_s, loader.fetched_samples, loader.sample_shape) == (4.0, 16, (3, 8, 8))
    assert [(worker.worker_id, worker.loader) for worker in recording.workers] == [(0, 0), (1, 0)]
    assert recording.trained_loaders == (loader,)


def test_calls_at_one_place_are_added_over_processes(tmp_path: Path) -> None:
    (row,) = write(tmp_path, MAIN, *WORKERS).calls("stat", phases=["getitem"])
    assert (row.count, row.line) == (22, 3)


def test_a_line_that_a_kill_cut_off_is_passed_over(tmp_path: Path) -> None:
    recording = write(tmp_path, MAIN, cut='{"schema": 1, "pid": 1, "el')
    assert len(recording.steps) == 3


def test_of_two_files_of_a_process_the_newer_line_counts(tmp_path: Path) -> None:
    (tmp_path / "1.next.jsonl").write_text(json.dumps({**MAIN, "elapsed_s": 7.0}) + "\n")
    assert write(tmp_path, MAIN).main.elapsed_s == 7.0


def test_the_process_that_made_the_steps_is_the_main_one(tmp_path: Path) -> None:
    recording = write(tmp_path, {**MAIN, "role": "other"}, line(9, "main"))
    assert (recording.main.pid, [other.pid for other in recording.others]) == (1, [9])


def test_steps_sum_up_and_forget_the_first_two(tmp_path: Path) -> None:
    steps = write(tmp_path, MAIN).steps
    assert (steps.total("wait_s"), steps.mean("wait_s"), steps.column("wall_s")) == (2.0, 2 / 3, [1, 1, 3])
    assert (len(steps.steady()), steps.steady().mean("evaluate_s"), steps.after("evaluate_s")) == (1, 2.0, 3.0)


def test_a_saved_recording_comes_back_the_same(tmp_path: Path) -> None:
    recording = write(tmp_path, MAIN, *WORKERS)
    saved = json.loads(json.dumps(recording.to_dict()))
    assert Recording.from_dict(saved) == recording
    assert saved["modules"][0]["class"] == "Net"
    assert recording.modules[0].detail == {"flops": 7}


def test_nothing_watched_is_a_recording_that_says_so(tmp_path: Path) -> None:
    recording = load_recording(tmp_path, command=["ls"], exit_code=0, wall_s=0.1)
    assert (len(recording.steps), recording.loaders, recording.main.calls) == (0, (), ())
    assert "nothing was watched" in recording.notes[0]
