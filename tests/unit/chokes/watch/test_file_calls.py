"""The file system is asked through watched functions: counts, keys and places are those of the script's own calls.

Counting that would cost too much is thinned out, and still adds up.
"""

from __future__ import annotations

import gc
import glob
import io
import os
import shutil
import time
import types
from pathlib import Path
from typing import Any

import pytest

from unchoke.chokes.watch import file_calls as files
from unchoke.chokes.watch.file_calls import Ration
from unchoke.chokes.watch.hooks import Hook
from unchoke.chokes.watch.recorder import Recorder


@pytest.fixture
def recorder(hooks_made: list[Hook]) -> Recorder:
    made = Recorder()
    files.install(made)
    return made


def here(recorder: Recorder, kind: str) -> list[dict[str, Any]]:
    """The rows that this file's own lines caused."""
    return [row for row in recorder.to_dict()["calls"] if row["kind"] == kind and row["file"] == __file__]


def test_every_file_query_counts_also_if_missing(recorder: Recorder, tmp_path: Path) -> None:
    missing = tmp_path / "missing.jpg"
    for path in (str(missing), str(tmp_path)):
        os.path.exists(path)  # noqa: PTH110
    missing.is_file()
    os.access(missing, os.R_OK)
    rows = here(recorder, "stat")
    assert sum(row["count"] for row in rows) == 4
    assert rows[0]["distinct"] == 2
    assert rows[0]["function"] == test_every_file_query_counts_also_if_missing.__name__
    with pytest.raises(FileNotFoundError):
        os.stat(missing)


def test_listing_counts_entries_however_it_is_done(recorder: Recorder, tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number}.jpg").touch()
    assert len(os.listdir(tmp_path)) == 300
    assert len(glob.glob(f"{tmp_path}/*.jpg")) == 300  # noqa: PTH207
    assert len(list(tmp_path.rglob("*.jpg"))) == 300
    assert sum(len(names) for _, _, names in os.walk(tmp_path)) == 300
    with os.scandir(tmp_path) as entries:
        assert next(entries).name.endswith(".jpg")
    assert [row["amount"] for row in here(recorder, "list")][:2] == [300, 300]


def test_reading_and_writing_are_told_apart(recorder: Recorder, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    with open(path, "w") as file:  # noqa: PTH123
        file.write("one")
    for _ in range(3):
        assert path.read_text() == "one"
    with io.open(path, mode="rb") as file:  # noqa: UP020
        assert file.read() == b"one"
    assert sum(row["count"] for row in here(recorder, "write_open")) == 1
    opened = here(recorder, "open")
    assert sum(row["count"] for row in opened) == 4
    assert opened[0]["distinct"] == 1
    assert opened[0]["example"] == str(path)


def test_code_relying_on_system_functions_still_works(recorder: Recorder, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        assert os.stat("a", dir_fd=descriptor).st_mode
        assert os.listdir(descriptor) == ["a"]
    finally:
        os.close(descriptor)
    assert os.stat in os.supports_dir_fd
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    shutil.rmtree(tmp_path / "a")
    assert os.listdir(tmp_path) == ["copy"]


def test_waiting_and_collecting_are_timed(recorder: Recorder) -> None:
    time.sleep(0.01)
    gc.collect()
    assert here(recorder, "sleep")[0]["seconds"] >= 0.01
    assert here(recorder, "gc")[0]["count"] == 1


def test_everything_can_be_put_back(hooks_made: list[Hook]) -> None:
    before = (open, io.open, os.stat, os.scandir, time.sleep)
    files.install(Recorder())
    assert open is io.open is not before[0]
    for hook in reversed(hooks_made):
        hook.undo()
    assert (open, io.open, os.stat, os.scandir, time.sleep) == before


def counting(ration: Ration, counted: list[int]) -> types.ModuleType:
    owner = types.ModuleType("owner")

    def plain() -> None:
        return None

    def count() -> None:
        ration.counted += 1
        counted.append(ration.times)

    count.__wrapped__ = plain  # type: ignore[attr-defined]
    owner.work = count  # type: ignore[attr-defined]
    ration.switch(owner, "work")
    return owner


def fetch(ration: Ration, owner: Any, calls: int) -> None:
    ration.begin()
    for _ in range(calls):
        owner.work()
    ration.end()


def test_few_calls_are_all_counted() -> None:
    counted: list[int] = []
    ration = Ration(Recorder())
    owner = counting(ration, counted)
    for _ in range(50):
        fetch(ration, owner, 20)
    assert counted == [1] * 1000


def test_many_calls_are_counted_in_sampled_fetches() -> None:
    counted: list[int] = []
    recorder = Recorder()
    ration = Ration(recorder)
    owner = counting(ration, counted)
    for _ in range(400):
        fetch(ration, owner, 1500)
    assert len(counted) < 400 * 1500 / 4
    assert abs(sum(counted) - 400 * 1500) < 0.1 * 400 * 1500
    assert recorder.num_let_pass == sum(counted) - len(counted)
    assert hasattr(owner.work, "__wrapped__")


def test_calls_outside_of_fetches_always_count_one_by_one() -> None:
    counted: list[int] = []
    ration = Ration(Recorder())
    owner = counting(ration, counted)
    for _ in range(4):
        fetch(ration, owner, 1500)
    counted.clear()
    owner.work()
    assert counted == [1]
