"""Runs are found by name, number, word or folder, and reported from their files alone."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from tests.conftest import Once

from errors import refused
from unchoke.core.events import ignore
from unchoke.core.workspace import Workspace
from unchoke.runs.experiment_store import ExperimentStore
from unchoke.runs.lookup import compare_runs, find_run, list_runs, report, show_run, stored_runs, unlisted_runs
from unchoke.runs.report.text import render_runs_table
from unchoke.training.fit import train


@pytest.fixture(scope="session")
def two_runs(finished: Path, once: Once) -> Path:
    def build(folder: Path) -> None:
        shutil.copytree(finished, folder / "out")
        train(out=folder / "out", on_event=ignore, head="linear", epochs=1, lr=1e-6)

    return once("runs-two", build) / "out"


@pytest.mark.parametrize(
    ("run", "name"), [("exp_1", "exp_1"), ("1", "exp_1"), ("2", "exp_2"), ("latest", "exp_2"), ("best", "exp_1")]
)
def test_a_run_is_found_by_what_people_call_it(two_runs: Path, run: str, name: str) -> None:
    found = find_run(run, out=two_runs)
    assert found.record.run == name
    assert found.head_file.is_file()


def test_a_run_is_found_by_its_folder_with_its_workspace(two_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(two_runs / "experiments")
    found = find_run("exp_2", out=None)
    assert found.workspace is not None
    assert found.workspace.root == two_runs
    assert find_run(two_runs / "experiments" / "exp_1", out=tmp_path).record.run == "exp_1"


def test_unknown_run_is_answered_with_those_there_are(two_runs: Path, tmp_path: Path) -> None:
    with refused("no-such-run") as caught:
        find_run("exp_9", out=two_runs)
    assert "exp_1" in caught.value.why + caught.value.try_
    with refused("no-runs", str(tmp_path)):
        find_run("latest", out=tmp_path)


def test_run_in_the_place_of_another_is_refused(two_runs: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(two_runs, tmp_path / "out"))
    shutil.copytree(out / "experiments" / "exp_1", out / "experiments" / "exp_2", dirs_exist_ok=True)
    for look in (find_run, show_run, report):
        with refused("runs-exchanged", "exp_1", "exp_2") as caught:
            look("2", out=out)
    assert f" --out {out}`" in caught.value.try_
    assert train(out=out, on_event=ignore, head="linear", epochs=1, lr=1e-6).run == "exp_2"
    assert show_run("2", out=out).metrics == show_run("2", out=two_runs).metrics


def test_a_copy_of_a_run_may_have_any_name(two_runs: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(two_runs, tmp_path / "out"))
    for place in (out / "experiments" / "the good one", tmp_path / "exp_2"):
        shutil.copytree(two_runs / "experiments" / "exp_1", place)
        assert show_run(place).run == "exp_1"


def test_missing_weights_name_the_command_that_makes_them(two_runs: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(two_runs, tmp_path / "out"))
    (out / "experiments" / "exp_1" / "checkpoints" / "best_head.pt").unlink()
    found = find_run("1", out=out)
    with refused("file-gone", "best_head.pt") as caught:
        _ = found.head_file
    assert f"`{found.record.command} --out {out}`" in caught.value.try_


def test_folders_that_the_database_does_not_know_are_told(two_runs: Path, workspace: Path) -> None:
    assert unlisted_runs(out=workspace) == []
    folder = Path(shutil.copytree(two_runs / "experiments" / "exp_2", workspace / "experiments" / "exp_2"))
    (workspace / "experiments" / "exp_3").mkdir()
    assert unlisted_runs(out=workspace) == [folder]
    told = render_runs_table(stored_runs(out=workspace), unlisted_runs(out=workspace)).splitlines()[-1]
    assert "experiments.db" in told
    assert told.endswith(f"unchoke runs show {folder}")
    assert show_run(folder).run == "exp_2"
    assert render_runs_table([], [folder]) == told


def test_an_unfinished_run_is_answered_with_its_own_command(workspace: Path) -> None:
    with ExperimentStore.open(workspace / "experiments" / "experiments.db") as experiments:
        experiments.start_run(key="k", command="unchoke fit photos --seed 5", settings={}, data={}, encoder="e", fingerprint="f")
    with refused("no-result-yet", "exp_2") as caught:
        find_run("latest", out=workspace)
    assert caught.value.try_ == f"unchoke fit photos --seed 5 --out {workspace}"
    assert "stopped" in caught.value.why
    assert [run["status"] for run in list_runs(out=workspace)] == ["done", "stopped"]
    with Workspace(workspace).own():
        assert [run["status"] for run in list_runs(out=workspace)] == ["done", "running"]
        with refused("no-result-yet") as caught:
            find_run("latest", out=workspace)
        assert "running" in caught.value.why


def test_a_finished_run_without_its_record_is_told(workspace: Path) -> None:
    (workspace / "experiments" / "exp_1" / "record.json").unlink()
    with refused("no-result-yet", "exp_1"):
        find_run("1", out=workspace)


def test_lists_and_comparisons_hold_every_run(two_runs: Path) -> None:
    assert [row["name"] for row in list_runs(out=two_runs)] == ["exp_1", "exp_2"]
    records = compare_runs(["exp_2", "1"], out=str(two_runs))
    assert [record.name for record in records] == ["exp_2", "exp_1"]
    with refused("compare-needs-two"):
        compare_runs(["exp_1"], out=two_runs)


def test_the_report_comes_back_from_files_alone(two_runs: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(two_runs / "experiments" / "exp_1", tmp_path / "alone"))
    before = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    for name in ("predictions.csv", "history.json", "checkpoints"):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert report(folder) == folder / "report.html"
    assert (folder / "report.html").read_bytes() == before


def test_lost_database_is_not_a_place_without_runs(two_runs: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(two_runs, tmp_path / "out"))
    (root / "experiments" / "experiments.db").unlink()
    with refused("database-gone", "experiments.db") as caught:
        list_runs(out=root)
    assert "exp_1, exp_2" in caught.value.why
    assert show_run(root / "experiments" / "exp_2").run == "exp_2"


def test_report_of_a_read_only_place_stands(two_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(folder: Path) -> Path:
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS), str(folder))

    monkeypatch.setattr("unchoke.runs.lookup.save_report", deny)
    assert report("exp_1", out=two_runs).is_file()
