"""What was typed, over what the workspace remembers, over the defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from unchoke.errors import UsageError
from unchoke.settings import Settings, load_remembered, remember, resolve_settings, validate
from unchoke.workspace import Workspace


def test_typed_beats_remembered_beats_default(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    remember(workspace, Settings(data="photos", epochs=7, images=("a", "b"), label="dx"))
    settings, in_force = resolve_settings(workspace, {"data": "photos", "epochs": 9, "label": None, "images": ()})
    assert (settings.epochs, settings.label, settings.images, settings.job_size) == (9, "dx", ("a", "b"), 64)
    assert sorted(in_force) == ["images", "label"]


def test_without_data_the_remembered_data_is_meant(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    remember(workspace, Settings(data="photos", seed=3))
    settings, _ = resolve_settings(workspace, {"data": None})
    assert (settings.data, settings.seed) == ("photos", 3)


@pytest.mark.parametrize(("data", "seed"), [("photos/", 3), (Path("photos"), 3), ("./photos", 3), ("others", 0)])
def test_remembered_settings_apply_to_the_same_data_only(tmp_path: Path, data: str | Path, seed: int) -> None:
    workspace = Workspace(tmp_path)
    remember(workspace, Settings(data="photos", seed=3))
    settings, in_force = resolve_settings(workspace, {"data": data})
    assert (settings.seed, in_force) == (seed, ["seed"] if seed else [])


def test_what_describes_data_and_frozen_part_survives_being_remembered(tmp_path: Path) -> None:
    settings = Settings(data='da"ta\\ü', images=("a b", "c,d"), long=("name", "value"), target=("x",), engine="openvino", seed=3)
    remember(Workspace(tmp_path), settings)
    assert resolve_settings(Workspace(tmp_path), {})[0] == settings


def test_options_of_the_trained_part_are_not_remembered_unless_written_by_hand(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    remember(workspace, Settings(data="photos", head="mlp", lr=0.003, sweep=4))
    assert load_remembered(workspace) == {"data": "photos"}
    workspace.settings_file.write_text('data = "photos"\nhead = "linear"\n')
    remember(workspace, resolve_settings(workspace, {"lr": 0.1})[0])
    assert load_remembered(workspace) == {"data": "photos", "head": "linear"}


def test_only_what_differs_from_the_defaults_is_remembered(tmp_path: Path) -> None:
    remember(Workspace(tmp_path), Settings(data="photos", epochs=20, views=2))
    assert load_remembered(Workspace(tmp_path)) == {"data": "photos", "views": 2}
    assert load_remembered(Workspace(tmp_path / "new")) == {}


def test_paths_from_python_become_text() -> None:
    settings, _ = resolve_settings(Workspace(Path("nowhere")), {"data": Path("m.csv"), "images": [Path("a"), "b"]})
    assert (settings.data, settings.images) == ("m.csv", ("a", "b"))


def test_wrong_values_are_all_listed_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        validate({"epochs": 0, "views": 65, "precision": "f8", "val_share": 1.0, "lr": -1})
    what = caught.value.what
    assert "5 settings" in what
    assert all(part in what for part in ("epochs", "got 0", "views", "got 65", "'f8'", "val_share", "lr"))
    assert all(option in caught.value.try_ for option in ("--epochs", "--val-share"))


def test_an_unknown_option_gets_the_nearest_known_one() -> None:
    with pytest.raises(UsageError) as caught:
        validate({"epoch": 3})
    assert "epoch" in caught.value.what
    assert caught.value.try_ == "unchoke fit --help, which explains --epochs"


def test_an_unknown_key_in_the_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "unchoke.toml").write_text('data = "photos"\nepocs = 3\nlable = "x"\n')
    with pytest.raises(UsageError) as caught:
        resolve_settings(Workspace(tmp_path), {})
    assert "epocs, lable" in caught.value.what


@pytest.mark.parametrize("content", [b"data = [", b"data = \xff\xfe"])
def test_a_broken_file_is_named_with_its_reason(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "unchoke.toml").write_bytes(content)
    with pytest.raises(UsageError, match="cannot be read"):
        load_remembered(Workspace(tmp_path))
