"""The record of runs: starting, resuming, recording, asking, and what it survives."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from errors import refused
from unchoke.core.choices import Choice
from unchoke.runs.experiment_store import ExperimentStore, MetricRow, RunRow

HOSTILE = ["'); DROP TABLE runs; --", 'a"b', "x' OR '1'='1", "naïve 🌿", "\udcff raw bytes", "nul\0inside", "", "%s ? :name"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ExperimentStore]:
    with ExperimentStore.open(tmp_path / "experiments" / "experiments.db") as store:
        yield store


def start(store: ExperimentStore, key: str = "k1", **settings: Any) -> RunRow:
    return store.start_run(
        key=key, command="fit", settings=settings, data={"num_samples": 10}, encoder="lite0", fingerprint="1a2b3c4d"
    )


def finished(store: ExperimentStore, key: str, **val: float) -> RunRow:
    run = start(store, key)
    store.record(run, metrics=[MetricRow("val", name, value) for name, value in val.items()])
    return store.finish_run(run, "done")


def test_runs_are_numbered_from_one(store: ExperimentStore) -> None:
    assert [start(store, key).name for key in ("a", "b", "c")] == ["exp_1", "exp_2", "exp_3"]


def test_the_same_key_resumes_an_unfinished_run(store: ExperimentStore) -> None:
    first = start(store, batch=64)
    store.record(first, choices=[Choice("batch", 64, "fits")])
    store.finish_run(first, "interrupted")
    again = start(store, batch=64)
    assert (again.name, again.status, again.finished_at) == ("exp_1", "running", None)
    assert again.created_at == first.created_at
    assert store.choices(again) == [Choice("batch", 64, "fits")]


def test_the_same_key_returns_a_finished_run_as_done(store: ExperimentStore) -> None:
    store.finish_run(start(store), "done")
    assert start(store).status == "done"
    assert len(store.runs()) == 1


def test_recording_twice_replaces(store: ExperimentStore) -> None:
    run = start(store)
    for accuracy in (0.5, 0.9):
        store.record(
            run, metrics=[MetricRow("test", "accuracy", accuracy, low=0.1, high=1.0), MetricRow("val", "loss", 2.0, step=3)]
        )
        store.record(run, timings={"extract": accuracy})
        store.record(run, memory=[("train", 100, int(accuracy * 10))])
        store.record(run, artefacts=[("checkpoints/best_head.pt", "ab" * 32, 12)])
        store.record(run, choices=[Choice("z", [1], "first", {"cores": 2}), Choice("a", accuracy, "second")])
    record = store.stored("latest").to_dict()
    assert record["metrics"] == {"test": {"accuracy": {"value": 0.9, "low": 0.1, "high": 1.0}}}
    assert record["history"] == [{"split": "val", "name": "loss", "step": 3, "value": 2.0}]
    assert record["timings"] == {"extract": 0.9}
    assert record["memory"] == {"train": {"planned_bytes": 100, "measured_bytes": 9}}
    assert record["artefacts"] == [{"path": "checkpoints/best_head.pt", "sha256": "ab" * 32, "size_bytes": 12}]
    assert [(choice["name"], choice["value"]) for choice in record["choices"]] == [("z", [1]), ("a", 0.9)]


def test_number_is_never_given_twice(store: ExperimentStore) -> None:
    start(store)
    (store.file.parent / "exp_7").mkdir()
    assert start(store, "b").name == "exp_8"
    (store.file.parent / "exp_7").rmdir()
    assert start(store, "c").name == "exp_9"


def test_runs_are_found_by_name_number_and_word(store: ExperimentStore) -> None:
    finished(store, "a", accuracy=0.9)
    finished(store, "b", accuracy=0.7)
    found = {which: store.run(which).number for which in ("exp_1", "2", 1, "latest", "best")}
    assert found == {"exp_1": 1, "2": 2, 1: 1, "latest": 2, "best": 1}


def test_an_unknown_run_is_answered_with_those_there_are(store: ExperimentStore) -> None:
    with refused("no-such-run", "latest"):
        store.run("latest")
    start(store, "a"), start(store, "b")
    with refused("no-such-run") as caught:
        store.run("exp_9")
    assert "exp_2, exp_1" in caught.value.why


def test_best_knows_the_direction_and_finished_runs(store: ExperimentStore) -> None:
    finished(store, "a", mae=3.0, r2=0.9)
    finished(store, "b", mae=1.0, r2=0.1)
    finished(store, "c", mae=math.nan)
    store.record(start(store, "running"), metrics=[MetricRow("val", "mae", 0.1)])
    assert store.best("mae").name == "exp_2"
    assert store.best("r2").name == "exp_1"
    assert store.run("best").name == "exp_1", "by R², which comes before the error"


def test_best_takes_the_best_step_without_a_final_value(store: ExperimentStore) -> None:
    for key, steps in {"a": (0.1, 0.8, 0.3), "b": (0.5, 0.6, 0.7)}.items():
        run = start(store, key)
        store.record(run, metrics=[MetricRow("val", "accuracy", value, step=step) for step, value in enumerate(steps)])
        store.finish_run(run, "done")
    assert store.best("accuracy").name == "exp_1"


def test_best_of_an_unknown_metric_names_those_there_are(store: ExperimentStore) -> None:
    finished(store, "a", accuracy=1.0)
    with refused("no-such-metric") as caught:
        store.best("acuracy")
    assert "accuracy" in caught.value.why
    assert caught.value.try_ == "--metric accuracy"
    assert store.best("val.accuracy").name == "exp_1", "as it is spelled in the error"


def test_the_metric_that_is_suggested_is_one_that_works(store: ExperimentStore) -> None:
    run = finished(store, "a", accuracy=1.0)
    store.record(run, metrics=[MetricRow("history", "lr", 0.1, step=0), MetricRow("test", "aaa", 0.5)])
    with refused("no-such-metric") as caught:
        store.best("foo")
    assert store.best(caught.value.try_.removeprefix("--metric ")).name == "exp_1"
    assert "history" not in caught.value.why


def test_a_metric_that_is_not_a_number_comes_back_so(store: ExperimentStore) -> None:
    run = finished(store, "a", accuracy=math.nan)
    assert math.isnan(store.metrics(run)[0].value)


@pytest.mark.parametrize("text", HOSTILE)
def test_text_never_becomes_sql(store: ExperimentStore, text: str) -> None:
    run = store.start_run(key=text, command=text, settings={text: text}, data={"classes": [text]}, encoder=text, fingerprint=text)
    store.record(run, metrics=[MetricRow(text, text, 1.0)])
    store.record(run, timings={text: 1.0})
    store.record(run, memory=[(text, 1, 2)])
    store.record(run, artefacts=[(text, text.encode("ascii", "ignore").decode(), 1)])
    store.record(run, choices=[Choice(text, text, text, {text: text})])
    store.finish_run(run, "done")
    record = store.stored("exp_1").to_dict()
    assert record["settings"] == {text: text}
    assert record["choices"][0]["value"] == text
    assert len(record["timings"]) == len(record["memory"]) == len(record["artefacts"]) == len(record["metrics"]) == 1
    assert start(store, "other").name == "exp_2"
    assert store.best(text, split=text).name == "exp_1"
    with refused("no-such-run"):
        store.run("nobody" + text)


def test_rows_of_a_run_that_does_not_exist_are_refused(store: ExperimentStore) -> None:
    stranger = RunRow(99, "exp_99", "k", "fit", "done", "", None, {}, {}, "", "")
    with pytest.raises(sqlite3.IntegrityError):
        store.record(stranger, timings={"train": 1.0})


def test_a_failed_write_leaves_nothing_of_itself(store: ExperimentStore) -> None:
    run = start(store)
    with pytest.raises(sqlite3.IntegrityError):
        store.record(run, timings={"train": 1.0, "extract": None})  # type: ignore[dict-item]
    assert store.stored("exp_1").to_dict()["timings"] == {}
    store.record(run, timings={"train": 1.0})


def test_a_full_disk_is_said_and_what_was_there_stays(store: ExperimentStore) -> None:
    run = start(store)
    store.record(run, timings={"train": 1.0})
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with refused("disk-full", "experiments.db"):
        store.record(run, timings={f"stage {number} {'x' * 500}": 1.0 for number in range(200)})
    assert store.stored("exp_1").to_dict()["timings"] == {"train": 1.0}
    store._connection.execute("PRAGMA max_page_count = 1000000")
    store.record(run, timings={"predict": 1.0})


def test_a_file_that_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "experiments.db").write_bytes(b"not a database at all" * 100)
    with refused("damaged-database", "experiments.db"):
        ExperimentStore.open(tmp_path / "experiments.db")


READER = """
import sys
from pathlib import Path
from unchoke.runs.experiment_store import ExperimentStore
with ExperimentStore.open(Path(sys.argv[1])) as store:
    for _ in range(100):
        steps = [len(store.metrics(run)) for run in store.runs()]
        assert all(count % 10 == 0 for count in steps), steps
"""


def test_two_processes_read_whole_transactions(store: ExperimentStore) -> None:
    run = start(store)
    readers = [subprocess.Popen([sys.executable, "-c", READER, str(store.file)], stderr=subprocess.PIPE) for _ in range(2)]
    batch = 0
    while any(reader.poll() is None for reader in readers):
        store.record(run, metrics=[MetricRow("train", "loss", 1.0, step=batch % 50 * 10 + step) for step in range(10)])
        batch += 1
    for reader in readers:
        _, errors = reader.communicate()
        assert reader.returncode == 0, errors.decode()
    assert batch > 0


WRITER = """
import sys
from pathlib import Path
from unchoke.runs.experiment_store import MetricRow
from unchoke.runs.experiment_store import ExperimentStore
store = ExperimentStore.open(Path(sys.argv[1]))
run = store.start_run(key="k", command="fit", settings={}, data={}, encoder="", fingerprint="")
step = len(store.metrics(run))
while True:
    store.record(run, metrics=[MetricRow("train", "loss", 1.0, step=step + offset) for offset in range(10)])
    step += 10
    print(step, flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_killed_writer_leaves_every_finished_transaction(tmp_path: Path) -> None:
    file = tmp_path / "experiments.db"
    for lines in (1, 3, 8, 20):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        with ExperimentStore.open(file) as store:
            stored = len(store.metrics(store.run("latest")))
            assert stored >= told[-1]
            assert stored % 10 == 0
            assert store.run("latest").status == "running"
