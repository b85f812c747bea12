"""Results go to stdout, everything else to stderr, and each command ends with the next one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Type


def test_finished_fit(unchoke: Type, workspace: Path) -> None:
    answer = unchoke("fit", "--out", workspace)
    assert answer.code == 0
    assert "exp_1" in answer.stdout
    assert "accuracy" in answer.stdout
    assert str(workspace / "experiments" / "exp_1" / "report.html") in answer.stdout
    assert f"unchoke predict exp_1 PHOTOS --out {workspace}" in answer.stdout
    assert "job_size 16" in answer.stderr and "job_size" not in answer.stdout
    assert "job_size = 16  (remembered" in unchoke("fit", "--out", workspace, "--verbose").stderr
    quiet = unchoke("fit", "--out", workspace, "--quiet")
    assert quiet.stdout.partition("Time")[0] == answer.stdout.partition("Time")[0]
    assert all(line.startswith("warning ") for line in quiet.stderr.splitlines())
    assert "\x1b" not in answer.stdout + answer.stderr


def test_each_text_holds_what_was_asked_for(unchoke: Type, finished: Path, photos: Path, tmp_path: Path) -> None:
    photo = min(photos.rglob("*.jpg"))
    assert re.search(r"exp_1: test accuracy 100\.0 %", unchoke("evaluate", "--out", finished).stdout)
    assert "exp_1" in unchoke("runs", "list", "--out", finished).stdout
    assert "test_resnet" in unchoke("runs", "show", "--out", finished).stdout
    assert "exp_1" in unchoke("runs", "best", "--metric", "log_loss", "--out", finished).stdout
    predicted = unchoke("predict", "1", photo, "--to", tmp_path / "p.csv", "--out", finished).stdout
    assert predicted.splitlines()[0] == "path\tpredicted\tconfidence"
    assert f"saved     {tmp_path / 'p.csv'}" in predicted
    exported = unchoke("runs", "export", "1", tmp_path / "my run", "--out", finished).stdout
    assert f"unchoke predict '{tmp_path / 'my run'}' IMAGES" in exported
    assert unchoke("report", tmp_path / "my run").stdout == f"report  {tmp_path / 'my run' / 'report.html'}\n"
    evaluated = unchoke("evaluate", tmp_path / "my run").stdout
    assert f"unchoke report '{tmp_path / 'my run'}'" in evaluated


def test_sound_check(unchoke: Type, photos: Path, workspace: Path) -> None:
    answer = unchoke("check", photos, "--out", workspace)
    assert answer.code == 0
    assert "42 samples" in answer.stdout
    assert answer.stdout.endswith(f"unchoke fit {photos} --out {workspace}\n")


def test_extract_with_nothing_left(unchoke: Type, workspace: Path) -> None:
    answer = unchoke("extract", "--out", workspace)
    assert "0 jobs" in answer.stdout
    assert f"unchoke train --out {workspace}" in answer.stdout


def test_the_version_is_a_result(unchoke: Type) -> None:
    from unchoke import __version__

    answer = unchoke("--version")
    assert (answer.code, answer.stdout, answer.stderr) == (0, f"unchoke {__version__}\n", "")
