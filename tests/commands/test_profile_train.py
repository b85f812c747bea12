"""A training under torch.profiler: in passing, or for nothing else."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from errors import refused
from unchoke.core.events import Event, Note, ignore
from unchoke.runs.diagnosis import diagnose_run
from unchoke.runs.experiment_store import ExperimentStore
from unchoke.runs.lookup import list_runs
from unchoke.runs.report.text import render_run
from unchoke.training.fit import train
from unchoke.training.profile_train import profile_train

HEADS: dict[str, Any] = {"head": "linear", "batch_size": 4, "epochs": 4}
"""Steps of about a millisecond, 32 of them."""


def files(root: Path) -> list[str]:
    return sorted(file.name.partition("_")[0] + "".join(file.suffixes) for file in (root / "logs" / "profiler").iterdir())


def test_profile_leaves_files_and_no_run(workspace: Path) -> None:
    remembered = (workspace / "unchoke.toml").read_bytes()
    result = profile_train(out=workspace, on_event=ignore, **HEADS)
    assert files(workspace) == ["train.html", "train.pt.trace.json"]
    assert [run["name"] for run in list_runs(out=workspace)] == ["exp_1"]
    assert (workspace / "unchoke.toml").read_bytes() == remembered
    found = json.loads(json.dumps(result.to_dict()))
    assert found["undisturbed"] is True
    assert found["step"]["num_steps"] >= 3
    assert {"wait", "forward", "backward", "optimizer"} <= {row["stage"] for row in found["step"]["stages"]}
    assert sum(row["share"] for row in found["step"]["stages"]) == pytest.approx(1)
    text = result.to_text()
    assert all(words in text for words in ("in 3 steps", "vizviewer", "unchoke train"))


def test_run_profiled_in_passing_is_the_same_run(workspace: Path) -> None:
    result = train(out=workspace, on_event=ignore, profile=True, profile_wait=0, profile_active=2, **HEADS)
    assert (result.run, files(workspace)) == ("exp_2", ["exp.html", "exp.pt.trace.json"])
    profile = json.loads((result.folder / "record.json").read_text())["profile"]
    assert (profile["num_steps"], len(profile["traces"])) == (2, 1)
    assert (workspace / profile["pages"][0]).is_file()
    assert "in 2 steps" in result.to_text()
    assert profile["pages"][0] in render_run(result.run_record)
    events: list[Event] = []
    again = train(out=workspace, on_event=events.append, profile=True, **HEADS)
    assert (again.run, again.already_done) == ("exp_2", True)
    assert "in 2 steps" not in again.to_text()
    assert any("exp_2" in event.text for event in events if isinstance(event, Note)), "nothing was profiled, and that is said"


def test_every_run_keeps_where_its_time_went(finished: Path) -> None:
    record = json.loads((finished / "experiments" / "exp_1" / "record.json").read_text())
    timeline = record["timeline"]
    assert {"wait", "forward", "backward", "optimizer", "evaluate"} <= {row["stage"] for row in timeline["train"]["stages"]}
    assert sum(row["share"] for row in timeline["train"]["stages"]) == pytest.approx(1)
    assert timeline["train"]["wall_s"] <= record["timings"]["train"]
    counted = {row["stage"]: row["calls"] for row in timeline["extract"]["loading"]}
    assert counted == dict.fromkeys(("open", "read", "verify", "decode", "transform"), 42)
    assert {"list", "stat", "open", "read", "verify"} <= {row["stage"] for row in timeline["check"]["loading"]}
    with ExperimentStore.open(finished / "experiments" / "experiments.db") as experiments:
        timings = experiments.stored("exp_1").timings
    assert {"train", "train/forward", "extract/encode", "extract/loading/decode", "check/loading/stat"} <= set(timings)


def test_profile_names_the_bottleneck_and_a_command(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unchoke.runs.diagnosis._NOTED_SHARE", 0.0)  # the photos are tiny
    options: dict[str, Any] = {"cut": "none", "cache": "none", "batch_size": 4, "epochs": 3}
    result = profile_train(out=workspace, on_event=ignore, **options)
    choke = next(finding for finding in result.findings if finding.code == "decoded-every-epoch")
    assert "3 epochs" in choke.message
    assert "--cut none" in choke.command
    assert choke.command.endswith(f"--cache disk --out {workspace}")
    assert choke.command in result.to_text()
    assert result.to_dict()["findings"][0]["evidence"]["saved_s"] > 0


def test_run_on_pixels_names_bottleneck(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unchoke.training.build_record.diagnose_run", partial(diagnose_run, min_saved_s=0.0))
    monkeypatch.setattr("unchoke.runs.diagnosis._NOTED_SHARE", 0.0)
    result = train(out=workspace, on_event=ignore, cut="none", cache="none", batch_size=4, epochs=2)
    record = json.loads((result.folder / "record.json").read_text())
    assert record["machine"]["cores"] >= 1
    choke = next(row for row in record["chokes"] if row["code"] == "decoded-every-epoch")
    assert choke["stage"] == "decode"
    assert "--cache disk" in choke["command"]
    assert [row["code"] for row in result.to_dict()["chokes"]] == [row["code"] for row in record["chokes"]]
    for text in (render_run(result.run_record), result.report.read_text()):
        assert "decoded-every-epoch" in text
        assert "--cache disk" in text


def test_too_few_steps_are_explained(workspace: Path) -> None:
    with refused("nothing-profiled", "after 1 step", "step 3"):
        profile_train(out=workspace, on_event=ignore, head="linear", batch_size=32, epochs=1)


def test_several_processes_are_not_profiled(workspace: Path) -> None:
    with refused("options-conflict", "--devices 2"):
        profile_train(out=workspace, on_event=ignore, devices=2)
