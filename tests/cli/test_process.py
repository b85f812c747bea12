"""The console script as a process of its own: what only shows from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(sys.executable).with_name("unchoke")


def test_exit_code_and_streams_of_the_script(photos: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [SCRIPT, "check", "--expect", "10x10", "rgb", "photos", "--out", tmp_path / "out"],
        cwd=photos.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "10x10" in done.stdout
    assert "Traceback" not in done.stderr


def test_reader_that_leaves(finished: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        done = subprocess.run(
            [SCRIPT, "runs", "list", "--out", finished], stdout=gone, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.stderr == ""
    assert done.returncode == 130


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device here")
@pytest.mark.parametrize("words", [["presets", "list"], ["presets", "list", "--json"], ["--help"]])
def test_answer_that_finds_no_room(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([SCRIPT, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    assert done.returncode == 3
    assert "[stdout-closed]" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a folder in use cannot be removed there")
@pytest.mark.parametrize("words", ["doctor", "fit /nowhere --out /nowhere/out"])
def test_working_folder_that_is_gone(tmp_path: Path, words: str) -> None:
    program = 'mkdir gone; cd gone; rmdir ../gone; exec "$@"'
    started = ["sh", "-c", program, "sh", sys.executable, "-m", "unchoke", *words.split()]
    done = subprocess.run(started, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert "[working-folder-gone]" in done.stderr.splitlines()[0]


def test_module_and_script_are_one_version() -> None:
    answers = {
        subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
        for command in ([SCRIPT], [sys.executable, "-c", "from unchoke.cli.main import main; main()"])
    }
    assert len(answers) == 1


def test_the_commands_are_functions_too(photos: Path, workspace: Path, tmp_path: Path) -> None:
    code = f"""
import sys
import unchoke
result = unchoke.fit({str(photos)!r}, out={str(workspace)!r})
sys.stdout.write(f"{{result.run}} {{result.already_done}}")
"""
    (tmp_path / "here").mkdir()
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "here", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "exp_1 True"), done.stderr
    assert "job_si" in done.stderr, "what was remembered"
    assert list((tmp_path / "here").iterdir()) == []
