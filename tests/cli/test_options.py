"""Every option reaches the settings, however it is typed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from unchoke.core.remembered import load_remembered
from unchoke.core.settings import OPTIONS, flag
from unchoke.core.workspace import Workspace

if TYPE_CHECKING:
    from tests.cli.conftest import Type


@pytest.fixture
def table(photos: Path, tmp_path: Path) -> Path:
    import pandas as pd

    files = sorted(photos.rglob("*.jpg"))
    frame = pd.DataFrame(
        {
            "image id": [file.stem for file in files],
            "where": [f"{file.parent.name}/{file.name}" for file in files],
            "dx": [file.parent.name for file in files],
            "lesion": [f"{file.parent.name}-{int(file.stem[-2:]) // 2}" for file in files],
            "part": [("train", "train", "val", "test")[number % 4] for number in range(len(files))],
            "mass": range(len(files)),
        }
    )
    frame.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "table.csv"


def test_every_setting_is_an_option() -> None:
    import typer

    from unchoke.cli.main import app

    group: Any = typer.main.get_command(app)
    for name, option in OPTIONS.items():
        for command in option.commands:
            found = group
            for word in command.split("_"):
                found = found.commands[word]
            params = {one.name: one for one in found.params}
            assert name in params, (command, name)
            assert name == "data" or flag(name) in params[name].opts, (command, name)


def test_all_options_together_reach_the_rehearsal(unchoke: Type, table: Path, photos: Path, tiny_weights: Path) -> None:
    folders = [value for name in ("apple", "leaf", "plum") for value in ("--images", photos / name)]
    columns = ["--id", "image id", "--label", "dx", "--group", "lesion", "--val-share", "0.2", "--test-share", "0.2"]
    limits = ["--max-failures", "0.1", "--expect", "96x72", "rgb"]
    frozen = ["--encoder", "test_resnet", "--weights", tiny_weights, "--cut", "end", "--views", "1"]
    engine = ["--engine", "torch", "--precision", "f32", "--device", "cpu", "--workers", "1", "--job-size", "5"]
    head = ["--head", "mlp", "--epochs", "3", "--batch-size", "16", "--lr", "0.01", "--weight-decay", "0.1", "--sweep", "2"]
    more = ["--label-smoothing", "0.1", "--mixup", "0.2", "--class-weights", "balanced", "--patience", "2", "--seed", "5"]
    out = table.parent / "out"
    typed = ["fit", table, *folders, *columns, *limits, *frozen, *engine, *head, *more, "--out", out, "--json", "--dry-run"]
    answer = unchoke(*typed)
    assert answer.code == 0, answer.stdout
    assert (answer.result["num_samples"], answer.result["num_jobs"]) == (42, 9)
    assert load_remembered(Workspace(out)) == {}


def test_a_label_typed_twice_is_not_dropped(unchoke: Type, table: Path, photos: Path, out: Path) -> None:
    answer = unchoke("check", table, "--images", photos, "--label", "dx", "--label", "part", "--out", out, "--json")
    assert (answer.code, answer.last["error"]["code"]) == (2, "several-label-columns")


def test_typed_settings_are_remembered(unchoke: Type, table: Path, photos: Path, out: Path) -> None:
    typed = ["--images", photos, "--path", "where", "--label", "dx", "--split", "part", "--seed", "7"]
    assert unchoke("check", table, *typed[:-2], "--out", out).code == 0
    assert load_remembered(Workspace(out)) == {
        "data": str(table),
        "images": [str(photos)],
        "path": "where",
        "label": "dx",
        "split": "part",
    }
    again = unchoke("check", "--out", out, "--json")
    assert (again.code, again.result["num_samples"]) == (0, 42)


def test_long_tables_targets_and_folds(unchoke: Type, table: Path, photos: Path, out: Path) -> None:
    import pandas as pd

    wide = pd.read_csv(table)
    long = wide.melt(id_vars=["where"], value_vars=["mass"], var_name="name", value_name="value")
    long.to_csv(table, index=False)
    where = ["--images", photos, "--path", "where", "--long", "name, value", "--target", "mass"]
    answer = unchoke("check", table, *where, "--folds", "3", "--fold", "1", "--out", out, "--json")
    assert answer.code == 0, answer.stdout
    assert answer.result["num_samples"] == 42


def test_negative_cut_is_a_value(unchoke: Type, photos: Path, out: Path) -> None:
    assert unchoke("check", photos, "--preset", "leaves-4gb", "--out", out).code == 0
    for cut in (["--cut", "-4"], ["--cut=-4"]):
        extracted = unchoke("extract", *cut, photos, "--encoder", "no_such_network", "--out", out)
        assert "no_such_network" in extracted.stderr
        assert "[unknown-encoder]" in extracted.stderr


def test_tables_and_switches_are_remembered(unchoke: Type, table: Path, photos: Path, out: Path) -> None:
    import pandas as pd

    wide = pd.read_csv(table)
    wide.assign(half=wide["mass"] / 2, rest=wide["mass"] / 2).to_csv(table, index=False)
    targets = [word for name in ("mass", "half", "rest") for word in ("--target", name)]
    sums = ["--sum", "mass=half+rest", "--target-weight", "mass=0.5", "--target-weight", "half=0.25", "--positive"]
    sums += ["--target-weight", "rest=0.25"]
    frozen = ["--streams", "2", "--tiles", "2x3", "--input-px", "64", "--cache", "none", "--cut", "end"]
    where = ["--images", photos, "--path", "where"]
    assert unchoke("check", table, *where, *targets, *sums, "--out", out).code == 0
    assert unchoke("fit", table, *where, *frozen, "--streams", "0", "--out", out).code == 2
    remembered = load_remembered(Workspace(out))
    assert (remembered["sums"], remembered["positive"]) == ({"mass": ["half", "rest"]}, True)
    assert remembered["target_weights"] == {"mass": 0.5, "half": 0.25, "rest": 0.25}
    assert unchoke("check", "--no-positive", "--out", out).code == 0
    assert load_remembered(Workspace(out))["positive"] is False


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["--expect", "600x450", "rgb"], ["--expect", "600x450 rgb"]),
        (["--expect", "600x450", "RGB", "photos"], ["--expect", "600x450 RGB", "photos"]),
        (["--expect=600x450", "grey"], ["--expect=600x450 grey"]),
        (["--expect", "600x450", "photos"], ["--expect", "600x450", "photos"]),
        (["photos", "rgb"], ["photos", "rgb"]),
        (["--label", "rgb", "--expect", "rgb"], ["--label", "rgb", "--expect", "rgb"]),
        (["rgb"], ["rgb"]),
    ],
)
def test_what_is_expected_needs_no_quotes(typed: list[str], meant: list[str]) -> None:
    from unchoke.cli.main import join_expect

    assert join_expect(typed) == meant


def test_unexpected_images_are_an_error(unchoke: Type, photos: Path, out: Path) -> None:
    answer = unchoke("check", "--expect", "96x72", "grey", photos, "--out", out, "--json")
    assert answer.code == 1
    assert [finding["code"] for finding in answer.last["result"]["findings"] if finding["severity"] == "error"] == [
        "unexpected-mode"
    ]
