"""An exported run is all that another machine needs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import TINY

from errors import refused
from unchoke.core import atomic
from unchoke.core.events import ignore
from unchoke.training import export_run as export_module
from unchoke.training.evaluate import evaluate
from unchoke.training.export_run import export_run
from unchoke.training.predict import predict

ELSEWHERE = """
import json, sys
import unchoke
from unchoke.core.events import ignore
images, *folders = sys.argv[1:]
found = []
for folder in folders:
    evaluation = unchoke.evaluate(folder, on_event=ignore).to_dict()
    rows = unchoke.predict(folder, [images], on_event=ignore).rows
    found.append({**evaluation, "rows": rows, "report": str(unchoke.report(folder))})
sys.stdout.write(json.dumps(found))
"""


def in_a_fresh_process(images: str, folders: list[str], *, cwd: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, images, *folders], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def without_folders(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "path": Path(row["path"]).name} for row in rows]


def test_export_gives_the_same_figures_elsewhere(more_runs: tuple[Path, dict[str, str]], photos: Path, tmp_path: Path) -> None:
    workspace, runs = (
        Path(shutil.copytree(more_runs[0], tmp_path / "out")),
        ["exp_1", more_runs[1]["attention"], more_runs[1]["blocks"]],
    )
    here = [evaluate(run, out=workspace, on_event=ignore).to_dict() for run in runs]
    predicted = [predict(run, [photos], out=workspace, on_event=ignore).rows for run in runs]
    for run in runs:
        exported = tmp_path / f"taken away {run}"
        result = export_run(run, exported, out=workspace, on_event=ignore)
        assert result["size_bytes"] == sum(file.stat().st_size for file in exported.rglob("*") if file.is_file())
    shutil.rmtree(workspace)
    elsewhere = tmp_path / "other"
    shutil.copytree(photos, elsewhere / "pictures")
    there = in_a_fresh_process("pictures", [f"../taken away {run}" for run in runs], cwd=elsewhere)
    for found, known, rows in zip(there, here, predicted, strict=True):
        assert found["metrics"] == known["metrics"]
        assert found["intervals"] == json.loads(json.dumps(known["intervals"]))
        assert without_folders(found["rows"]) == without_folders(rows)
        assert (elsewhere / found["report"]).is_file()


def test_export_never_overwrites(more_runs: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    workspace, runs = more_runs
    (tmp_path / "empty").mkdir()
    with refused("output-exists", str(tmp_path / "empty")):
        export_run("latest", tmp_path / "empty", out=workspace, on_event=ignore)
    assert list((tmp_path / "empty").iterdir()) == []
    first = export_run("exp_1", tmp_path / "there", out=workspace, on_event=ignore)
    notes: list[str] = []
    again = export_run("exp_1", tmp_path / "there", out=workspace, on_event=lambda event: notes.append(str(event)))
    assert again == first
    assert "already" in notes[-1]
    with refused("output-exists", str(tmp_path / "there")):
        export_run(runs["blocks"], tmp_path / "there", out=workspace, on_event=ignore)
    (tmp_path / "there" / "encoder.safetensors").write_bytes(b"other")
    with refused("damaged-file", "encoder.safetensors"):
        export_run("exp_1", tmp_path / "there", out=workspace, on_event=ignore)


def test_leftovers_of_a_killed_export_are_swept(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".unchoke-elsewhere.tmp").mkdir()
    with monkeypatch.context() as killed:
        killed.setattr(atomic.shutil, "rmtree", lambda *_, **__: None)  # a killed process cleans nothing
        killed.setattr(export_module, "_export_head", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            export_run("exp_1", tmp_path / "there", out=workspace, on_event=ignore)
    assert len(list(tmp_path.glob(".unchoke-*"))) == 2
    export_run("exp_1", tmp_path / "there", out=workspace, on_event=ignore)
    assert [one.name for one in tmp_path.glob(".unchoke-*")] == [".unchoke-elsewhere.tmp"], "somebody else's"


def test_moved_weights_are_taken_and_others_refused(workspace: Path, tiny_weights: Path, tmp_path: Path) -> None:
    import torch

    from unchoke.features.encoders import load_state

    moved = tmp_path / "moved.safetensors"
    shutil.copy(tiny_weights, moved)
    text = (workspace / "unchoke.toml").read_text().replace(str(tiny_weights), str(tmp_path / "gone.safetensors"))
    (workspace / "unchoke.toml").write_text(text)
    export_run("latest", tmp_path / "a", weights=moved, out=workspace, on_event=ignore)
    state = load_state(tiny_weights)
    torch.save({name: value * 2 for name, value in state.items()}, tmp_path / "other.pt")
    with refused("other-weights", TINY):
        export_run("latest", tmp_path / "b", weights=tmp_path / "other.pt", out=workspace, on_event=ignore)
    assert not (tmp_path / "b").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".unchoke")]
