"""Verdicts in `unchoke.toml`: kept beside the settings, used where they hold, refused where nobody can read them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from errors import refused
from unchoke.core.remembered import load_remembered, load_tuned, remember, resolve_settings
from unchoke.core.settings import Settings
from unchoke.core.tuned import TuningVerdicts, Verdict, load_verdicts, model_name, save_verdicts
from unchoke.core.workspace import Workspace

ON = {"device": "some CPU, 2 cores", "driver": "", "torch": "2.13.0", "openvino": "2026.1", "unchoke": "0.1.0"}
SETTINGS = Settings(data="photos", cut="-4")
KEPT = Verdict("channels_last", "kept", "1.32× (1.25–1.40) as fast; outputs …", True, False, 1.32, (1.25, 1.4), {"outputs": 2e-6})
SLOW = Verdict("threads", "refused", "not faster: 0.9×", 2, 1, 0.9, (0.85, 0.95))
COMPILED = Verdict("compile", "kept", "1.5× as fast", False, True, 1.5, (1.4, 1.6), worth_from=1000)
UNTRIED = Verdict("pin_memory", "not tried", "does not apply", now=False)
FOUND = TuningVerdicts(
    model_name(SETTINGS), "photos", "2026-11-15", ON, {one.switch: one for one in (KEPT, SLOW, COMPILED, UNTRIED)}
)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def test_verdicts_come_back_as_they_were_written(workspace: Workspace) -> None:
    save_verdicts(workspace, FOUND)
    assert load_verdicts(workspace, SETTINGS) == FOUND
    assert load_verdicts(workspace, Settings(data="photos", cut="none")) is None
    assert load_verdicts(Workspace(workspace.root / "new"), SETTINGS) is None


def test_verdicts_on_other_models_stay(workspace: Workspace) -> None:
    other = replace(FOUND, model="another, cut end")
    save_verdicts(workspace, other)
    save_verdicts(workspace, FOUND)
    assert load_tuned(workspace).keys() == {"another, cut end", FOUND.model}


def test_survive_other_settings_and_keep_the_file_above(workspace: Workspace) -> None:
    by_hand = '# by hand\ndata = "photos"   # ours\nviews = 2\n\n[target_weights]\na = 0.5\n'
    workspace.settings_file.write_text(by_hand)
    save_verdicts(workspace, FOUND)
    save_verdicts(workspace, replace(FOUND, date="2026-11-16"))
    assert workspace.settings_file.read_text().startswith(by_hand)
    assert load_remembered(workspace)["views"] == 2
    remember(workspace, resolve_settings(workspace, {"views": 3})[0])
    assert load_remembered(workspace)["views"] == 3
    assert load_verdicts(workspace, SETTINGS) == replace(FOUND, date="2026-11-16")


def test_they_hold_from_another_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("photos", "elsewhere"):
        (tmp_path / name).mkdir()
    workspace = Workspace(tmp_path / "unchoke-out")
    monkeypatch.chdir(tmp_path)
    remember(workspace, SETTINGS)
    save_verdicts(workspace, FOUND)
    monkeypatch.chdir(tmp_path / "elsewhere")
    settings, _ = resolve_settings(workspace, {})
    found = load_verdicts(workspace, settings)
    assert found is not None and found.outdated(ON, settings.data) == ""


def test_tuned_value_is_a_choice_with_date_and_figures() -> None:
    choice = FOUND.choice("channels_last")
    assert choice is not None
    assert (choice.name, choice.value) == ("channels_last", False)
    assert all(part in choice.reason for part in ("2026-11-15", "1.32×", "1.25–1.40"))
    assert [FOUND.choice(name) for name in ("threads", "pin_memory", "nonsense")] == [None] * 3


def test_what_must_repay_itself_is_used_only_where_it_can() -> None:
    assert FOUND.choice("compile", num_samples=999) is None
    assert FOUND.choice("compile", num_samples=1000) is not None


@pytest.mark.parametrize(
    ("name", "value"), [("torch", "2.14.0"), ("device", "another card"), ("driver", "580"), ("openvino", "")]
)
def test_hold_for_their_device_and_versions(name: str, value: str) -> None:
    assert FOUND.outdated(ON, "photos/") == ""
    assert name in FOUND.outdated({**ON, name: value}, "photos")
    assert "photos" in FOUND.outdated(ON, "others")


@pytest.mark.parametrize(
    "text",
    ["tuned = 3\n", f'[tuned."{FOUND.model}"]\ndate = "x"\n', f'[tuned."{FOUND.model}".switches.threads]\nverdict = "maybe"\n'],
)
def test_what_nobody_can_read_is_refused(workspace: Workspace, text: str) -> None:
    workspace.settings_file.write_text(text)
    with refused("bad-tuned-table", "unchoke.toml"):
        load_verdicts(workspace, SETTINGS)
