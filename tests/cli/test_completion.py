"""What the shell offers: commands, options, and names that can be known, without loading anything heavy."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from unchoke.cli.completion import complete_setting, encoder_names
from unchoke.core.workspace import Workspace

ASK = """
import json, os, sys
from unchoke.cli.main import main
for number, asked in enumerate(json.loads(sys.argv[1])):
    if os.fork() == 0:  # what is loaded is loaded once
        os.dup2(os.open(f"{sys.argv[2]}/{number}", os.O_WRONLY | os.O_CREAT), 1)
        os.environ.update(asked)
        sys.argv = ["unchoke"]
        main()
    os.wait()
"""


def offered(lines: list[str], *, cwd: Path, shell: str = "bash") -> list[list[str]]:
    """What is offered for the last word of each line, as the shell would ask for it."""
    questions = [
        {"_UNCHOKE_COMPLETE": f"complete_{shell}", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")),
         "_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        for line in lines
    ]  # fmt: skip
    with TemporaryDirectory() as answers:
        words = [sys.executable, "-c", ASK, json.dumps(questions), answers]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=cwd)
        assert "Traceback" not in done.stderr, done.stderr
        return [(Path(answers) / str(number)).read_text().split() for number in range(len(lines))]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for root in ("unchoke-out", "other"):
        file = Workspace(tmp_path / root).experiments_file
        file.parent.mkdir(parents=True)
        with sqlite3.connect(file) as database:
            database.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY, name TEXT)")
            database.executemany("INSERT INTO runs (name) VALUES (?)", [(f"{root[:3]}_1",), (f"{root[:3]}_2",)])
    return tmp_path


def test_known_names_are_offered(workspace: Path) -> None:
    wanted = {
        "unchoke pre": {"predict", "presets"},
        "unchoke runs ex": {"export"},
        "unchoke fit photos --batch-": {"--batch-size", "--batch-norm"},
        "unchoke fit photos --preset prod": {"produce"},
        "unchoke fit photos --head ": {"linear", "mlp", "attention"},
        "unchoke fit photos --encoder tf_efficientnet_lite": {f"tf_efficientnet_lite{n}" for n in range(5)},
        "unchoke fit photos --device c": {"cpu", "cuda"},
        "unchoke predict ": {"latest", "best", "unc_2", "unc_1"},
        "unchoke runs show --out other oth": {"oth_2", "oth_1"},
        "unchoke presets show lea": {"leaves-4gb"},
    }
    answers = offered(list(wanted), cwd=workspace)
    assert {line: set(names) for line, names in zip(wanted, answers, strict=True)} == wanted


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells(workspace: Path, shell: str) -> None:
    (names,) = offered(["unchoke fit photos --preset prod"], cwd=workspace, shell=shell)
    assert "produce" in " ".join(names)


def test_encoders_are_those_of_timm() -> None:
    from unchoke.core.torchvision_ready import prepare_torchvision

    prepare_torchvision()
    import timm

    assert set(encoder_names()) == set(timm.list_models(include_tags=False))


def test_unknown_values_and_a_broken_database(tmp_path: Path) -> None:
    assert complete_setting("label") is None
    file = Workspace(tmp_path / "unchoke-out").experiments_file
    file.parent.mkdir(parents=True)
    file.write_bytes(b"no database")
    assert set(offered(["unchoke predict "], cwd=tmp_path)[0]) == {"latest", "best"}
