"""A replayed script may write what it likes: its files stay as they were. Each case runs in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from unchoke.chokes.watch.scratch import fence_version

BEFORE = """
import sys
from unchoke.chokes.watch import scratch
from unchoke.chokes.watch.recorder import Recorder
recorder = Recorder()
{fence}
scratch.put_in_front(scratch.Scratch({scratch!r}, recorder))
"""
FENCE = "assert scratch.put_up_fence([{scratch!r}, '/dev'])"

WRITES = """
import json, logging, os, pathlib, shutil, tempfile
open("old.txt", "w").write("new")
assert open("old.txt").read() == "new"
with open("log.txt", "a") as file:
    file.write("two\\n")
assert pathlib.Path("log.txt").read_text() == "one\\ntwo\\n"
os.makedirs("runs/exp_1", exist_ok=True)
assert os.path.isdir("runs/exp_1")
pathlib.Path("runs/exp_1/metrics.json").write_text(json.dumps([1]))
assert os.listdir("runs/exp_1") == ["metrics.json"]
with open("runs/last.tmp", "wb") as file:
    file.write(b"weights")
os.replace("runs/last.tmp", "runs/last.pt")
assert not os.path.exists("runs/last.tmp") and os.path.getsize("runs/last.pt") == 7
shutil.copy("runs/last.pt", "runs/best.pt")
logging.FileHandler("train.log").close()
os.remove("old.txt")
assert open("old.txt").read() == "old"
os.remove("log.txt")
shutil.rmtree("runs")
shutil.rmtree("kept")
os.rename("kept", "gone")
pathlib.Path("kept/a.txt").unlink()
descriptor = os.open("raw.bin", os.O_WRONLY | os.O_CREAT)
os.write(descriptor, b"raw")
os.close(descriptor)
try:
    open("nowhere/file.txt", "w")
except FileNotFoundError:
    print("as it should")
notes = recorder.to_dict()["notes"]
assert any("remove" in note for note in notes) and any("rename" in note for note in notes)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with files that were there before."""
    folder = tmp_path / "work"
    (folder / "kept").mkdir(parents=True)
    (folder / "old.txt").write_text("old")
    (folder / "log.txt").write_text("one\n")
    (folder / "kept" / "a.txt").write_text("a")
    return folder


def run(code: str, place: Path, *, fenced: bool) -> subprocess.CompletedProcess[str]:
    scratch = place.parent / "scratch"
    scratch.mkdir()
    before = BEFORE.format(scratch=str(scratch), fence=FENCE.format(scratch=str(scratch)) if fenced else "")
    return subprocess.run([sys.executable, "-c", before + code], cwd=place, capture_output=True, text=True, check=False)


def contents(place: Path) -> dict[str, str]:
    return {file.relative_to(place).as_posix(): file.read_text() for file in sorted(place.rglob("*")) if file.is_file()}


def test_script_finds_its_writes_and_nothing_changed(place: Path) -> None:
    before = contents(place)
    done = run(WRITES, place, fenced=False)
    assert (done.returncode, done.stdout) == (0, "as it should\n"), done.stderr
    assert contents(place) == before
    assert not (place / "runs").exists()


def test_fence_stops_writes_that_scratch_cannot_catch(place: Path) -> None:
    if fence_version() < 1:
        pytest.skip("this kernel has no Landlock")
    before = contents(place)
    code = """
import os, sqlite3, subprocess
open("old.txt", "w").write("new")
try:
    sqlite3.connect("runs.db").execute("create table t (x)")
    sys.exit("the database was written")
except sqlite3.OperationalError:
    pass
sys.exit(0 if subprocess.run(["rm", "old.txt"]).returncode else "it was removed")
"""
    done = run(code, place, fenced=True)
    assert done.returncode == 0, done.stderr
    assert contents(place) == before
