"""A workspace from somebody else is harmless: nothing outside of it is written, and it names nobody to talk to."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import scene

from unchoke.core.checksums import CHECKSUMS

COMMANDS = (["fit"], ["report", "latest"], ["runs", "list"], ["predict", "latest", "PHOTOS"], ["runs", "export", "latest", "TO"])


@pytest.fixture
def victim(tmp_path: Path, finished: Path) -> dict[Path, bytes]:
    """A folder beside the workspace that looks like a run's, and what its files hold."""
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "record.json").write_bytes((finished / "experiments" / "exp_1" / "record.json").read_bytes())
    for name in ("report.html", "corrections.csv", "lock"):
        (folder / name).write_text("precious")
    return {file: file.read_bytes() for file in folder.iterdir()}


def unchanged(victim: dict[Path, bytes]) -> bool:
    (folder,) = {file.parent for file in victim}
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == victim


def run(place: scene.Place, command: list[str], workspace: Path) -> scene.Ended:
    words = {"PHOTOS": str(place.photos), "TO": str(workspace.parent / "exported")}
    return scene.unchoke(*(words.get(word, word) for word in command), "--out", str(workspace))


def without_sums(workspace: Path) -> None:
    for file in workspace.rglob(CHECKSUMS):
        file.unlink()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_name_of_a_run_is_no_path(place: scene.Place, copied: Path, victim: dict[Path, bytes], command: list[str]) -> None:
    without_sums(copied)
    (copied / "experiments" / "finished.json").unlink()
    with closing(sqlite3.connect(copied / "experiments" / "experiments.db")) as database, database:
        database.execute("DELETE FROM seals")
        database.execute("UPDATE runs SET name = '../../victim'")
    ended = run(place, command, copied)
    assert ended.code == 1 and ended.says_error("damaged-file", "experiments.db"), ended.stderr
    assert unchanged(victim)


def test_memory_of_finished_runs_names_no_path(place: scene.Place, copied: Path, victim: dict[Path, bytes]) -> None:
    without_sums(copied)
    file = copied / "experiments" / "finished.json"
    kept = json.loads(file.read_text())
    for entry in kept.values():
        entry["run"] = "../../victim"
    file.write_text(json.dumps(kept))
    ended = scene.unchoke("fit", *place.fit_args(copied))
    assert ended.code == 0, ended.stderr
    assert unchanged(victim)


@pytest.mark.parametrize("name", ["experiments/exp_1", "corrections.csv", ".lock", "experiments/exp_1/checkpoints", "logs"])
def test_links_lead_nowhere(place: scene.Place, copied: Path, victim: dict[Path, bytes], name: str) -> None:
    (folder,) = {file.parent for file in victim}
    link = copied / name
    if link.is_dir():
        link.rename(copied.parent / "kept")
    link.unlink(missing_ok=True)
    link.symlink_to({"corrections.csv": folder / "corrections.csv", ".lock": folder / "lock"}.get(name, folder))
    for command in (["fit"], ["report", "latest"]):
        ended = run(place, command, copied)
        assert ended.code == 2 and ended.says_error("outside-workspace", name), ended.stderr
    assert unchanged(victim)


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        ('on = "ray://203.0.113.7:10001"', "--on ray://203.0.113.7:10001"),
        ('log = ["mlflow:http://203.0.113.7:5000"]', "--log mlflow:http://203.0.113.7:5000"),
        ('images = ["https://203.0.113.7/photos"]', "--images https://203.0.113.7/photos"),
    ],
)
def test_addresses_must_have_been_typed_here(place: scene.Place, copied: Path, line: str, typed: str) -> None:
    file = copied / "unchoke.toml"
    file.write_text(f"{line}\n{file.read_text()}")
    ended = run(place, ["fit"], copied)
    assert ended.code == 2 and ended.says_error("address-not-typed", "203.0.113.7"), ended.stderr
    assert typed in ended.stderr


def test_data_behind_a_url_must_have_been_typed_here(place: scene.Place, copied: Path) -> None:
    (copied / "unchoke.toml").write_text('data = "https://203.0.113.7/photos.csv"\n')
    ended = run(place, ["fit"], copied)
    assert ended.code == 2 and ended.says_error("address-not-typed", "203.0.113.7"), ended.stderr
    assert f"unchoke fit https://203.0.113.7/photos.csv --out {copied}" in ended.stderr


def test_table_that_a_workspace_names_lists_no_strange_hosts(place: scene.Place, copied: Path, tmp_path: Path) -> None:
    (tmp_path / "photos.csv").write_text("path,label\nhttps://203.0.113.7/a.jpg,a\nhttps://203.0.113.7/b.jpg,b\n")
    (copied / "unchoke.toml").write_text(f'data = "{tmp_path / "photos.csv"}"\n')
    ended = run(place, ["fit"], copied)
    assert ended.code == 2 and ended.says_error("address-not-typed", "203.0.113.7"), ended.stderr


def test_manifest_lists_no_strange_hosts(place: scene.Place, copied: Path) -> None:
    without_sums(copied)
    file = copied / "manifest.csv"
    lines = file.read_text().splitlines()
    at = lines[0].split(",").index("path")
    cells = lines[1].split(",")
    cells[at] = "https://203.0.113.7/a.jpg"
    file.write_text("\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n")
    ended = run(place, ["evaluate", "latest"], copied)
    assert ended.code == 0 or ended.says_error("address-not-typed", "203.0.113.7"), ended.stderr
