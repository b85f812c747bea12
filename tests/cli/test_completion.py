"""What the shell offers: commands, options, and names that can be known, without loading anything heavy."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from unchoke.cli.completion import complete_setting, encoder_names
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.core.workspace import Workspace

ASK = "import sys; sys.argv = ['unchoke']; from unchoke.cli.main import main; main()"


def offered(line: str, *, cwd: Path, shell: str = "bash") -> list[str]:
    """What is offered for the last word of a line, as the shell would ask for it."""
    words = line.split(" ")
    asked = {"_UNCHOKE_COMPLETE": f"complete_{shell}", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    asked |= {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env={**os.environ, **asked}, capture_output=True, text=True, check=False, cwd=cwd
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.split()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for root in ("unchoke-out", "other"):
        file = Workspace(tmp_path / root).experiments_file
        file.parent.mkdir(parents=True)
        with sqlite3.connect(file) as database:
            database.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY, name TEXT)")
            database.executemany("INSERT INTO runs (name) VALUES (?)", [(f"{root[:3]}_1",), (f"{root[:3]}_2",)])
    return tmp_path


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("unchoke pre", {"predict", "presets"}),
        ("unchoke runs ex", {"export"}),
        ("unchoke fit photos --batch-", {"--batch-size", "--batch-norm"}),
        ("unchoke fit photos --preset prod", {"produce"}),
        ("unchoke fit photos --head ", {"linear", "mlp", "attention"}),
        ("unchoke fit photos --encoder tf_efficientnet_lite", {f"tf_efficientnet_lite{n}" for n in range(5)}),
        ("unchoke fit photos --device c", {"cpu", "cuda"}),
        ("unchoke predict ", {"latest", "best", "unc_2", "unc_1"}),
        ("unchoke runs show --out other oth", {"oth_2", "oth_1"}),
        ("unchoke presets show lea", {"leaves-4gb"}),
    ],
)
def test_names_that_can_be_known_are_offered(workspace: Path, line: str, wanted: set[str]) -> None:
    assert set(offered(line, cwd=workspace)) == wanted


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_ask_in_their_way(workspace: Path, shell: str) -> None:
    assert "produce" in " ".join(offered("unchoke fit photos --preset prod", cwd=workspace, shell=shell))


def test_encoders_are_those_of_timm_and_cost_no_import() -> None:
    prepare_torchvision()
    import timm

    assert set(encoder_names()) == set(timm.list_models(include_tags=False))


def test_a_setting_whose_values_cannot_be_known_offers_nothing_and_a_broken_database_is_no_error(tmp_path: Path) -> None:
    assert complete_setting("label") is None
    file = Workspace(tmp_path / "unchoke-out").experiments_file
    file.parent.mkdir(parents=True)
    file.write_bytes(b"no database")
    assert set(offered("unchoke predict ", cwd=tmp_path)) == {"latest", "best"}
