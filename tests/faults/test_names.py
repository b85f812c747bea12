"""Hostile names in folders, files and cells: they are data, never markup, SQL, a command, or a path out of the workspace."""

from __future__ import annotations

import csv
import re
import shutil
import sqlite3
from html.parser import HTMLParser
from pathlib import Path

import scene

from unchoke.core.fingerprint import digest_file

HOSTILE = (
    "<script>alert(1)</script>",
    "'; DROP TABLE runs; --",
    '"><img src=x onerror=alert(2)>',
    "$(touch x) `touch y`",
    "-rf --out=elsewhere",
    "zeile\nzwei",
    "größe 数据 🙂",
    "{{ 7 * 7 }} {% raw %}",
)
NAMES_OF_FILES = [name.replace("/", "∕") for name in HOSTILE]


class Markup(HTMLParser):
    """The tags of a page, and the attributes that would run something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def tags(report: Path) -> Markup:
    found = Markup()
    found.feed(report.read_text(encoding="utf-8"))
    return found


def surroundings(root: Path, workspace: Path) -> dict[str, str]:
    """Every file below `root` but those of the workspace."""
    files = (file for file in root.rglob("*") if file.is_file() and not file.is_relative_to(workspace))
    return {str(file): digest_file(file) for file in files}


def assert_harmless(workspace: Path, plain: Path) -> None:
    report = workspace / "experiments" / "exp_1" / "report.html"
    found, usual = tags(report), tags(plain / "experiments" / "exp_1" / "report.html")
    assert found.handlers == usual.handlers == []
    assert found.tags.count("script") == usual.tags.count("script")
    text = report.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    with sqlite3.connect(workspace / "experiments" / "experiments.db") as database:
        assert database.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    names = [path.name for path in workspace.rglob("*")]
    assert all(re.fullmatch(r"[\w.+-]+", name, re.ASCII) for name in names), names


def test_in_folders_and_files(place: scene.Place, finished: Path, tmp_path: Path) -> None:
    photos = tmp_path / "data" / "-photos <b>"
    for number, name in enumerate(NAMES_OF_FILES[:4]):
        (photos / name).mkdir(parents=True)
        for index in range(12):
            scene.make_photo(photos / name / f"{NAMES_OF_FILES[index % 8]} {index}.jpg", number, index)
    workspace = tmp_path / "in" / "out"
    before = surroundings(tmp_path, workspace)
    ended = scene.unchoke("fit", *place.fit_args(workspace, "--patience", "0", "--epochs", "1", photos=photos))
    assert ended.code == 0, ended.stderr
    assert surroundings(tmp_path, workspace) == before
    assert_harmless(workspace, finished)
    predicted = scene.unchoke("predict", "exp_1", str(photos), "--out", str(workspace), "--json")
    assert predicted.code == 0, predicted.stderr
    assert {row["predicted"] for row in predicted.result["result"]["predictions"]} <= set(NAMES_OF_FILES[:4])


def test_in_the_cells_of_a_table(place: scene.Place, finished: Path, tmp_path: Path) -> None:
    labels = (*HOSTILE[:3], "../../escape", "../experiments/exp_1", "=cmd|' /C calc'!A0")
    rows = []
    (tmp_path / "images").mkdir()
    for number, label in enumerate(labels):
        for index in range(10):
            name = f"{NAMES_OF_FILES[index % 8]}-{number}-{index}"
            scene.make_photo(tmp_path / "images" / f"{name}.jpg", number, index)
            rows.append((name, label, f"patient {label} {index // 2}"))
    table = write_table(tmp_path / "table.csv", rows)
    workspace = tmp_path / "in" / "out"
    before = surroundings(tmp_path, workspace)
    columns = ("--images", str(tmp_path / "images"), "--id", "image", "--label", "label; --", "--group", "<group>")
    ended = scene.unchoke("fit", *place.fit_args(workspace, *columns, "--epochs", "1", photos=table))
    assert ended.code == 0, ended.stderr
    assert surroundings(tmp_path, workspace) == before
    assert_harmless(workspace, finished)
    exported = scene.unchoke("runs", "export", "exp_1", str(tmp_path / "exported"), "--out", str(workspace))
    assert exported.code == 0, exported.stderr


def test_id_that_leads_out_of_the_image_folder(place: scene.Place, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for index in range(12):
        scene.make_photo(tmp_path / "images" / f"p{index}.jpg", index % 2, index)
    shutil.copy(tmp_path / "images" / "p0.jpg", tmp_path / "outside.jpg")
    rows = [(f"p{index}", f"class {index % 2}", "g") for index in range(12)]
    table = write_table(tmp_path / "table.csv", [*rows, ("../outside", "class 0", "g")])
    columns = ("--images", str(tmp_path / "images"), "--id", "image", "--label", "label; --")
    ended = scene.unchoke("fit", *place.fit_args(tmp_path / "out", *columns, photos=table))
    assert ended.code == 1
    assert ended.says_error("unsound-data", "../outside")


def write_table(file: Path, rows: list[tuple[str, str, str]]) -> Path:
    with file.open("w", newline="", encoding="utf-8") as text:
        csv.writer(text).writerows([("image", "label; --", "<group>"), *rows])
    return file
