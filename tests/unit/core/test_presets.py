"""Presets: readable files, complete in themselves, under what is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from errors import refused
from unchoke.core.presets import list_presets, load_preset, preset_names
from unchoke.core.remembered import load_remembered, remember, resolve_settings
from unchoke.core.settings import Settings, as_options, validate
from unchoke.core.workspace import Workspace

every_preset = pytest.mark.parametrize("name", preset_names())


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "out")


def in_force(workspace: Workspace, **typed: object) -> Settings:
    return resolve_settings(workspace, {"data": "train.csv", **typed})[0]


@every_preset
def test_each_says_what_it_is_for_what_it_expects_and_why(name: str) -> None:
    preset = load_preset(name)
    assert preset.about
    assert preset.expects
    assert f"--preset {name}" in preset.text
    comments = [line for line in preset.text.splitlines() if line.startswith("#")]
    assert len(comments) >= len(preset.values) // 2
    assert max(map(len, preset.text.splitlines())) <= 132


@every_preset
def test_each_holds_settings_that_exist_and_runs_offline(name: str) -> None:
    settings = validate(load_preset(name).values)
    assert settings.encoder == Settings().encoder
    assert settings.weights is None


@every_preset
def test_options_in_the_comments_exist(name: str) -> None:
    import re

    from unchoke.core.settings import OPTIONS, flag, flag_off

    known = {form(name) for name in OPTIONS for form in (flag, flag_off)}
    assert not set(re.findall(r"--[a-z][a-z-]+", load_preset(name).text)) - known


def test_typed_wins_over_the_preset(workspace: Workspace) -> None:
    settings, reasons = resolve_settings(
        workspace, {"data": "train.csv", "preset": "biomass", "cut": "-4", "expect": "any", "epochs": 20, "positive": False}
    )
    assert (settings.cut, settings.expect, settings.epochs, settings.positive) == ("-4", "any", 20, False)
    assert (settings.tiles, settings.preset) == ("2x2", "biomass")
    assert reasons["tiles"] == "preset biomass"
    assert not {"cut", "expect", "epochs", "positive", "preset"} & set(reasons)


def test_remembered_preset_stays_with_typed_settings(workspace: Workspace) -> None:
    remember(workspace, in_force(workspace, preset="biomass", cut="-4", views=0, folds=3, val_share=0.2, batch_size=2))
    assert load_remembered(workspace) == {
        "preset": "biomass",
        "data": "train.csv",
        "cut": "-4",
        "folds": 3,
        "val_share": 0.2,
    }
    settings, reasons = resolve_settings(workspace, {})
    assert (settings.preset, settings.cut, settings.folds, settings.batch_size, settings.streams) == ("biomass", "-4", 3, 8, 2)
    assert reasons["preset"] == reasons["cut"] == "remembered in unchoke.toml"
    assert reasons["batch_size"] == "preset biomass"


def test_default_typed_over_a_preset_is_remembered(workspace: Workspace) -> None:
    remember(workspace, in_force(workspace, preset="biomass", streams=1))
    assert in_force(workspace).streams == 1


def test_a_preset_typed_now_wins_over_what_is_remembered(workspace: Workspace) -> None:
    remember(workspace, in_force(workspace, cut="-2", tiles="3x3", label="kind"))
    settings = in_force(workspace, preset="biomass")
    assert (settings.cut, settings.tiles, settings.label) == ("end", "2x2", "kind")
    remember(workspace, in_force(workspace, preset="leaves-4gb"))
    assert (in_force(workspace).preset, in_force(workspace).memory, in_force(workspace).cut) == ("leaves-4gb", "4GB", "-4")


def test_a_preset_can_be_forgotten(workspace: Workspace) -> None:
    remember(workspace, in_force(workspace, preset="biomass", label="kind"))
    settings = in_force(workspace, preset="none")
    assert (settings.preset, settings.streams, settings.label) == (None, 1, "kind")
    remember(workspace, settings)
    assert load_remembered(workspace) == {"data": "train.csv", "label": "kind"}


def test_other_data_starts_without_the_preset(workspace: Workspace) -> None:
    remember(workspace, in_force(workspace, preset="biomass"))
    assert in_force(workspace, data="other.csv").preset is None


@every_preset
def test_a_command_line_with_a_preset_is_short_and_complete(name: str, workspace: Workspace) -> None:
    assert as_options(in_force(workspace, preset=name)) == ["--preset", name]
    varied = in_force(workspace, preset=name, epochs=20 if name != "produce" else 21, cut="none", seed=3)
    assert as_options(varied) == ["--preset", name, "--cut", "none", "--epochs", str(varied.epochs), "--seed", "3"]


def test_a_file_of_ones_own_is_a_preset_too(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('about = "mine"\nepochs = 3\ncut = -2\n[sums]\na = ["b", "c"]\n')
    settings = in_force(workspace, preset=file)
    assert (settings.epochs, settings.cut, settings.sums, settings.preset) == (3, "-2", {"a": ("b", "c")}, str(file))
    assert load_preset(str(file)).about == "mine"


def test_an_unknown_preset_lists_those_there_are(workspace: Workspace) -> None:
    with refused("unknown-preset") as caught:
        in_force(workspace, preset="ham1000")
    assert all(name in caught.value.why for name in preset_names())
    assert "--preset ham10000" in caught.value.try_


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("epocs = 3\n", "unknown-settings"),
        ('data = "x"\n', "unknown-settings"),
        ('preset = "biomass"\n', "unknown-settings"),
        ("epochs = 0\n", "bad-settings"),
        ("epochs = [\n", "unreadable-file"),
    ],
)
def test_a_preset_with_a_mistake_is_named(workspace: Workspace, tmp_path: Path, content: str, code: str) -> None:
    (tmp_path / "mine.toml").write_text(content)
    with refused(code, "mine.toml"):
        in_force(workspace, preset=str(tmp_path / "mine.toml"))
    with refused("unreadable-file", "missing.toml"):
        in_force(workspace, preset=str(tmp_path / "missing.toml"))


def test_the_list_holds_every_preset_as_plain_values() -> None:
    assert [preset.to_dict()["name"] for preset in list_presets()] == preset_names()
    assert list_presets()[0].to_dict()["settings"]["sums"]
