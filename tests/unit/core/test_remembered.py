"""What was typed, over what the workspace remembers, over the defaults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from errors import refused
from unchoke.core.remembered import load_remembered, remember, resolve_settings
from unchoke.core.settings import Settings, validate
from unchoke.core.workspace import Workspace


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
    assert (settings.seed, in_force) == (seed, {"seed": "remembered in unchoke.toml"} if seed else {})


@pytest.mark.parametrize("out", ["m/unchoke-out", "other/unchoke-out"])
def test_what_was_typed_in_one_folder_is_found_from_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str) -> None:
    for name in ("m/photos", "m/more", "elsewhere/photos", out):
        (tmp_path / name).mkdir(parents=True)
    workspace = Workspace(tmp_path / out)
    monkeypatch.chdir(tmp_path / "m")
    remember(workspace, Settings(data="photos", images=("more", "s3://bucket/photos"), seed=3))
    before = workspace.settings_file.read_text()
    resolve_settings(workspace, {"images": ("s3://bucket/photos",)})  # typed once
    monkeypatch.chdir(tmp_path / "elsewhere")
    settings, _ = resolve_settings(workspace, {})
    assert (settings.data, settings.seed) == (str(tmp_path / "m" / "photos"), 3)
    assert settings.images == (str(tmp_path / "m" / "more"), "s3://bucket/photos")
    remember(workspace, settings)
    assert workspace.settings_file.read_text() == before
    assert resolve_settings(workspace, {"data": "../m/photos"})[0].seed == 3
    assert resolve_settings(workspace, {"data": "photos"})[0].seed == 0  # other photos, of the same name
    monkeypatch.chdir(tmp_path / "m")
    assert resolve_settings(Workspace(Path("../m/../") / out), {"data": "photos/"})[0].seed == 3


def test_paths_in_the_workspace_stay_as_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    remember(Workspace(Path("unchoke-out")), Settings(data="photos"))
    assert load_remembered(Workspace(Path("unchoke-out"))) == {"data": "photos"}


def test_data_and_frozen_part_are_remembered(tmp_path: Path) -> None:
    columns = {"long": ("name", "value"), "target": ("x", "y=z"), "input": ("NDVI", "height"), "folds": 5, "fold": "all"}
    targets = {"sums": {"x": ("y=z", "w")}, "target_weights": {"x": 0.2, "y=z": 0.5}, "positive": True}
    frozen = {"engine": "openvino", "cut": "-4", "input_px": 518, "streams": 2, "tiles": "2x3", "cache": "disk", "seed": 3}
    settings = validate({"data": 'da"ta\\ü', "images": ("a b", "c,d"), **columns, **targets, **frozen})
    remember(Workspace(tmp_path), settings)
    assert resolve_settings(Workspace(tmp_path), {})[0] == settings


def test_training_options_are_remembered_only_by_hand(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    remember(workspace, Settings(data="photos", head="mlp", lr=0.003, sweep=4, memory="4GB", grad_ckpt=True, devices=2))
    assert load_remembered(workspace) == {"data": "photos"}
    workspace.settings_file.write_text('data = "photos"\nhead = "linear"\n')
    remember(workspace, resolve_settings(workspace, {"lr": 0.1, "views": 1})[0])
    assert load_remembered(workspace) == {"data": "photos", "views": 1, "head": "linear"}
    remember(workspace, resolve_settings(workspace, {"head": "mlp", "views": 2})[0])
    assert load_remembered(workspace) == {"data": "photos", "views": 2, "head": "linear"}


BY_HAND = """\
# measured in grams
data = "train.csv"
positive = true
cut = -4          # a number will do
epochs = 7
streams = 1

[sums]
GDM_g = ["Dry_Green_g", "Dry_Clover_g"]  # what cattle eat
Dry_Total_g = ["GDM_g", "Dry_Dead_g"]

[target_weights]
GDM_g = 0.2
Dry_Total_g = 0.5
"""


def test_file_written_by_hand_keeps_its_comments(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.settings_file.write_text(BY_HAND)
    settings, in_force = resolve_settings(workspace, {"data": "train.csv", "epochs": 9, "lr": 0.1})
    assert settings.sums == {"GDM_g": ("Dry_Green_g", "Dry_Clover_g"), "Dry_Total_g": ("GDM_g", "Dry_Dead_g")}
    assert (settings.target_weights, settings.positive, settings.cut) == ({"GDM_g": 0.2, "Dry_Total_g": 0.5}, True, "-4")
    assert set(in_force) == {"positive", "cut", "streams", "sums", "target_weights"}
    remember(workspace, settings)
    assert workspace.settings_file.read_text() == BY_HAND
    remember(workspace, resolve_settings(workspace, {"tiles": "2x2"})[0])
    changed = load_remembered(workspace)
    assert (changed["tiles"], changed["epochs"], changed["streams"], changed["cut"]) == ("2x2", 7, 1, "-4")
    assert changed["sums"]["GDM_g"] == ["Dry_Green_g", "Dry_Clover_g"]


def test_only_what_differs_from_the_defaults_is_remembered(tmp_path: Path) -> None:
    remember(Workspace(tmp_path), Settings(data="photos", epochs=20, views=2))
    assert load_remembered(Workspace(tmp_path)) == {"data": "photos", "views": 2}
    assert load_remembered(Workspace(tmp_path / "new")) == {}


def test_paths_from_python_become_text() -> None:
    settings, _ = resolve_settings(Workspace(Path("nowhere")), {"data": Path("m.csv"), "images": [Path("a"), "b"]})
    assert (settings.data, settings.images) == ("m.csv", ("a", "b"))


@pytest.mark.parametrize("typed", [{"data": "t\udcff.csv"}, {"data": "t.csv", "images": ("good", Path("p\udcff"))}])
def test_a_name_that_cannot_be_written_down_is_refused(tmp_path: Path, typed: dict[str, Any]) -> None:
    with refused("name-not-utf8", "\\udcff"):
        resolve_settings(Workspace(tmp_path), typed)


def test_an_unknown_key_in_the_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "unchoke.toml").write_text('data = "photos"\nepocs = 3\nlable = "x"\n')
    with refused("unknown-settings") as caught:
        resolve_settings(Workspace(tmp_path), {})
    assert "epocs, lable" in caught.value.what


def test_a_pipe_in_the_place_of_the_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "unchoke.toml")
    with refused("unreadable-file", "unchoke.toml") as caught:
        load_remembered(Workspace(tmp_path))
    assert "a pipe" in caught.value.why


@pytest.mark.parametrize("content", [b"data = [", b"data = \xff\xfe", b"a = " + b"[" * 3000])
def test_a_broken_file_is_named_with_its_reason(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "unchoke.toml").write_bytes(content)
    with refused("unreadable-file", "unchoke.toml"):
        load_remembered(Workspace(tmp_path))


@pytest.mark.parametrize(
    ("kept", "typed"),
    [({"fold_column": "farm"}, {"folds": 5}), ({"split": "s"}, {"fold_column": "farm"}), ({"folds": 3}, {"split": "s"})],
)
def test_other_division_replaces_the_remembered_one(tmp_path: Path, kept: dict[str, Any], typed: dict[str, Any]) -> None:
    workspace = Workspace(tmp_path)
    remember(workspace, validate({"data": "t.csv", **kept}))
    settings, in_force = resolve_settings(workspace, {"data": "t.csv", **typed})
    assert settings == validate({"data": "t.csv", **typed})
    assert in_force == {}
    remember(workspace, settings)
    assert load_remembered(workspace) == {"data": "t.csv", **typed}
    assert resolve_settings(workspace, {"data": "t.csv"})[0] == settings


def test_fold_column_replaces_a_presets_folds(tmp_path: Path) -> None:
    settings, _ = resolve_settings(Workspace(tmp_path), {"data": "t.csv", "preset": "biomass", "fold_column": "farm"})
    assert (settings.folds, settings.fold_column) == (None, "farm")


def test_no_group_replaces_a_presets_group(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    settings, _ = resolve_settings(workspace, {"data": "t.csv", "preset": "ham10000", "group": "none"})
    assert settings.group_column is None
    remember(workspace, settings)
    assert resolve_settings(workspace, {})[0].group_column is None
