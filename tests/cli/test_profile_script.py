"""`unchoke profile -- COMMAND` as it is typed: whose output goes where, and whose exit code it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from unchoke.cli.profile_commands import name_script

SCRIPT = Path(sys.executable).with_name("unchoke")
THEIRS = "import sys; print('theirs'); print('told', file=sys.stderr); sys.exit(7)"


def typed(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [SCRIPT, "profile", *options, "--out", folder / "out", "--", sys.executable, "-c", THEIRS]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_output_and_exit_code_are_the_scripts(tmp_path: Path) -> None:
    done = typed(tmp_path)
    assert done.returncode == 7, done.stderr
    assert done.stdout.startswith("theirs\n")
    assert "exit code 7" in done.stdout
    assert "told\n" in done.stderr


def test_json_has_stdout_for_itself(tmp_path: Path) -> None:
    done = typed(tmp_path, "--json", "--no-replay")
    assert done.returncode == 7, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["command"], last["ok"], last["result"]["exit_code"]) == ("profile", False, 7)
    assert all(json.loads(line) for line in done.stdout.splitlines())
    assert "theirs\n" in done.stderr


@pytest.mark.parametrize(
    ("typed_words", "meant"),
    [
        (["profile", "--", "python", "a.py"], ["profile", "script", "--", "python", "a.py"]),
        (["profile", "--steps", "9", "--", "python"], ["profile", "script", "--steps", "9", "--", "python"]),
        (["profile", "script", "--", "python"], ["profile", "script", "--", "python"]),
        (["profile", "tile", "scenes"], ["profile", "tile", "scenes"]),
        (["profile", "--help"], ["profile", "--help"]),
        (["fit", "--", "photos"], ["fit", "--", "photos"]),
    ],
)
def test_what_stands_after_two_dashes_is_a_script(typed_words: list[str], meant: list[str]) -> None:
    assert name_script(typed_words) == meant
