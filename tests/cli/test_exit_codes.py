"""0 done, 1 found something, 2 wrong usage, 3 this machine cannot, 70 our bug, 130 interrupted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer

from unchoke.cli.showing import PlainResult, show
from unchoke.runs.report.console import Console

if TYPE_CHECKING:
    from tests.cli.conftest import Type


def three_lines(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line.startswith(("error ", "why ", "try "))]


def test_no_such_path_is_2_in_three_lines(unchoke: Type, tmp_path: Path) -> None:
    for command in ("fit", "check", "train", "extract"):
        answer = unchoke(command, tmp_path / "photoz", "--out", tmp_path / "out")
        assert (answer.code, answer.stdout) == (2, "")
        lines = three_lines(answer.stderr)
        assert [line.split()[0] for line in lines] == ["error", "why", "try"]
        assert "photoz" in lines[0]
        assert lines[0].endswith("[no-such-file]")


def test_bad_values_and_unknown_options_are_2(unchoke: Type, photos: Path, tmp_path: Path) -> None:
    answer = unchoke("fit", photos, "--epochs", "0", "--precision", "f8", "--out", tmp_path / "out")
    assert answer.code == 2
    assert "[bad-settings]" in answer.stderr
    assert "epochs" in answer.stderr and "precision" in answer.stderr
    assert unchoke("fit", photos, "--epohcs", "3").code == 2
    assert unchoke("frobnicate").code == 2
    assert unchoke("evaluate", "exp_1", "--out", tmp_path / "none").code == 2


def test_bad_data_is_1(unchoke: Type, own_photos: Path, finished: Path, tmp_path: Path) -> None:
    for file in sorted(own_photos.rglob("*.jpg"))[:10]:
        file.write_bytes(b"x")
    checked = unchoke("check", own_photos, "--out", tmp_path / "out")
    assert checked.code == 1
    assert "unreadable" in checked.stdout
    fitted = unchoke("fit", own_photos, "--out", tmp_path / "out")
    assert (fitted.code, fitted.stdout) == (1, "")
    assert "[unsound-data]" in fitted.stderr
    predicted = unchoke("predict", "1", own_photos, "--out", finished)
    assert predicted.code == 1
    assert predicted.stdout.count("failed\t") == 10


def test_a_device_that_is_not_here_is_3(unchoke: Type, workspace: Path) -> None:
    for arguments in (["doctor", "--device", "cuda:9"], ["fit", "--device", "cuda:9", "--out", workspace]):
        answer = unchoke(*arguments)
        assert answer.code == 3
        assert "cuda:9" in answer.stderr


def raising(error: BaseException) -> Callable[[Console], PlainResult]:
    def work(console: Console) -> PlainResult:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code"), [(ValueError("a slip of ours"), 70), (KeyboardInterrupt(), 130), (BrokenPipeError(), 70)]
)
def test_our_bugs_are_70_and_a_stop_is_130(error: BaseException, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught:
        show("fit", raising(error), json=False, quiet=False, verbose=False)
    assert caught.value.exit_code == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("Traceback" in shown.err, "[interrupted]" in shown.err) == (code == 70, code == 130)


def test_predict_and_export_accept_only_what_exists(unchoke: Type, finished: Path, photos: Path, tmp_path: Path) -> None:
    assert unchoke("predict", "1", tmp_path / "none.jpg", "--out", finished).code == 2
    assert unchoke("runs", "export", "1", photos, "--out", finished).code == 2
    assert unchoke("runs", "compare", "1", "--out", finished).code == 2
    assert unchoke("report", "7", "--out", finished).code == 2
