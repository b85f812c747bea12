"""A command that failed on a wrong path, name or option leaves the folder as it was: no workspace, no lock, no cache."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Type

WRONG = (
    *(
        "check nowhere",
        "fit nowhere/",
        "train nowhere",
        "extract nowhere",
        "tune nowhere",
        "encoders nowhere",
        "profile train nowhere",
    ),
    *("fit nowhere --out deep/er", "fit nowhere.csv --images nowhere", "fit table.csv --images nowhere --label kind --path path"),
    *("fit photos --weights nowhere", "train photos --weights nowhere --cut none", "fit photos --preset nowhere"),
    *("fit photos --preset nowhere.toml", "fit photos --label kind", "fit photos --frobnicate", "fit photos --epochs 0"),
    *("fit nowhere --detach", "fit photos --weights nowhere --detach", "fit nowhere --dry-run", "extract nowhere --job nonsense"),
    *(
        "tile nowhere",
        "segment train nowhere",
        "profile tile nowhere",
        "segment predict exp_1 nowhere",
        "tile scenes --mask 'a >'",
    ),
    *("predict exp_1 nowhere", "predict nowhere photos", "evaluate nowhere", "report nowhere", "evaluate", "report"),
    *("runs list", "runs show nowhere", "runs best", "runs compare a b", "runs watch", "runs export nowhere to"),
    *("presets show nowhere", "profile view nowhere", "profile script -- nowhere"),
    *("profile script -- python nowhere.py", "lint nowhere", "notebook nowhere.ipynb", "notebook nowhere.ipynb --run"),
    *("budget --encoder nowhere", "doctor --device nowhere", "demo nowhere"),
)


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_path_or_name_leaves_nothing_behind(
    unchoke: Type, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
    (tmp_path / "scenes").mkdir()
    (tmp_path / "table.csv").write_text("path,kind\nx.jpg,a\n")
    monkeypatch.chdir(tmp_path)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    answer = unchoke(*shlex.split(line))
    assert answer.code in {1, 2, 3}, answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
