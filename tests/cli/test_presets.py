"""`unchoke presets`, and `--preset` on the commands that take it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from unchoke.core.presets import preset_names
from unchoke.core.remembered import load_remembered
from unchoke.core.workspace import Workspace

if TYPE_CHECKING:
    from tests.cli.conftest import Type


def test_presets_are_listed(unchoke: Type) -> None:
    bare, listed = unchoke("presets"), unchoke("presets", "list")
    assert (bare.code, bare.stdout) == (0, listed.stdout)
    assert all(name in bare.stdout for name in preset_names())
    assert "unchoke fit DATA --preset NAME" in bare.stdout
    assert unchoke("presets", "--json").result == unchoke("presets", "list", "--json").result


def test_preset_is_shown_as_written(unchoke: Type) -> None:
    shown = unchoke("presets", "show", "biomass")
    assert tomllib.loads(shown.stdout)["tiles"] == "2x2"
    assert "# " in shown.stdout
    assert unchoke("presets", "show", "nothing").code == 2


def test_what_a_preset_expects_can_be_overridden(unchoke: Type, photos: Path, out: Path, tmp_path: Path) -> None:
    import pandas as pd

    files = sorted(photos.rglob("*.jpg"))
    frame = pd.DataFrame(
        {
            "image_id": [file.stem for file in files],
            "dx": [file.parent.name for file in files],
            "lesion_id": [file.stem for file in files],
        }
    )
    frame.to_csv(tmp_path / "metadata.csv", index=False)
    folders = [word for name in ("apple", "leaf", "plum") for word in ("--images", photos / name)]
    typed = ["check", tmp_path / "metadata.csv", *folders, "--preset", "ham10000", "--out", out, "--json"]
    refused = unchoke(*typed)
    assert refused.code == 1
    errors = [finding for finding in refused.last["result"]["findings"] if finding["severity"] == "error"]
    assert [finding["code"] for finding in errors] == ["unexpected-size"]
    assert "--expect any" in errors[0]["fix"]
    assert unchoke(*typed, "--expect", "96x72", "rgb").code == 0
    assert unchoke(*typed, "--expect", "any").code == 0
    remembered = load_remembered(Workspace(out))
    assert (remembered["preset"], remembered["expect"]) == ("ham10000", "any")
    again = unchoke("check", "--out", out, "--json")
    assert again.code == 0
    reasons = {line["name"]: line["reason"] for line in again.lines if line.get("event") == "chosen"}
    assert (reasons["preset"], reasons["group"]) == ("remembered in unchoke.toml", "preset ham10000")


def test_unknown_preset(unchoke: Type, photos: Path, tmp_path: Path) -> None:
    answer = unchoke("fit", photos, "--preset", "ham1000", "--out", tmp_path / "out")
    assert answer.code == 2
    assert "[unknown-preset]" in answer.stderr
    assert "ham10000" in answer.stderr
