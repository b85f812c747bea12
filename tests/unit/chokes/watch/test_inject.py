"""The watcher starts in interpreters that know nothing of unchoke, and hands on to whoever would have started otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import unchoke.chokes.watch
from unchoke.chokes.recording import read_records
from unchoke.chokes.watch import stepping

INJECT = Path(unchoke.chokes.watch.__file__).parent / "inject"
PLAIN_PYTHON = getattr(sys, "_base_executable", sys.executable)


def run(code: str, records: Path, *, path: str = "", **asked: str) -> subprocess.CompletedProcess[str]:
    records.mkdir(exist_ok=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    watched = {unchoke.chokes.watch.FOLDER: str(records), unchoke.chokes.watch.PARENT: str(os.getpid())}
    environment = {**clean, **watched, **asked, "PYTHONPATH": os.pathsep.join(filter(None, [str(INJECT), path]))}
    return subprocess.run([PLAIN_PYTHON, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_an_interpreter_without_unchoke_is_watched(tmp_path: Path) -> None:
    code = """
import importlib.machinery, os, sys
print(importlib.machinery.PathFinder.find_spec("unchoke"))
for _ in range(3):
    os.path.exists("somewhere")
"""
    done = run(code, tmp_path / "records")
    assert (done.returncode, done.stdout, done.stderr) == (0, "None\n", "")
    (record,) = read_records(tmp_path / "records")
    assert (record["role"], record["torch"]) == ("main", None)
    assert [row["count"] for row in record["calls"] if row["example"] == "somewhere"] == [3]


def test_another_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.THEIRS = 'ran'\n")
    done = run("import sitecustomize; print(THEIRS, sitecustomize.__file__)", tmp_path / "records", path=str(tmp_path))
    assert done.stdout.split() == ["ran", str(tmp_path / "sitecustomize.py")]


def test_a_failing_script_fails_as_it_would_have(tmp_path: Path) -> None:
    done = run("raise ValueError('theirs')", tmp_path / "records")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ValueError: theirs"
    assert "unchoke" not in done.stderr


def test_helper_processes_without_torch_leave_no_record(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import json'], check=True)"
    assert run(code, tmp_path / "records").returncode == 0
    assert len(read_records(tmp_path / "records")) == 1


def test_script_stopped_after_steps_can_tidy_up(tmp_path: Path) -> None:
    code = """
from unchoke.chokes.watch import recorder as record
account = record.current().account
try:
    while True:
        account.begin()
        account.step(1)
finally:
    print("tidied up")
"""
    done = run(code, tmp_path / "records", **{stepping.STEPS: "5"})
    assert (done.stdout, done.stderr) == ("tidied up\n", "")
    (record,) = read_records(tmp_path / "records")
    assert (len(record["steps"]["rows"]), record["facts"]["stopped"][:13]) == (5, "after 5 steps")
