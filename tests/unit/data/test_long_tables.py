from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from errors import refused
from unchoke.data.sample_set import DataSource, Scan
from unchoke.data.scan import scan_samples

MakeFiles = Callable[[Sequence[str]], Path]
HEAD = ("sample_id", "image_path", "site", "target_name", "target")


def scan_long(root: Path, rows: Sequence[Sequence[object]], head: Sequence[str] = HEAD, **options: object) -> Scan:
    with (root / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    return scan_samples(DataSource(root / "t.csv", **options))  # type: ignore[arg-type]


def rows_for(image: str, site: str, **targets: object) -> list[tuple[object, ...]]:
    return [(f"{image}__{name}", f"train/{image}.jpg", site, name, value) for name, value in targets.items()]


@pytest.fixture
def root(make_files: MakeFiles) -> Path:
    return make_files(["train/1.jpg", "train/2.jpg", "train/3.jpg"])


def test_long_table_becomes_row_per_image(root: Path) -> None:
    rows = [*rows_for("2", "s", dry=3, green=4.5), *rows_for("1", "s", green=2, dry=1), *rows_for("3", "s", dry=0, green=0)]
    scan = scan_long(root, rows)
    assert scan.samples.task.kind == "regression"
    assert scan.samples.task.names == ("dry", "green")
    assert scan.samples.frame["sample_id"].tolist() == ["train/1.jpg", "train/2.jpg", "train/3.jpg"]
    assert scan.samples.frame[["dry", "green"]].to_numpy().tolist() == [[1, 2], [3, 4.5], [0, 0]]
    assert "long table" in {choice.name for choice in scan.choices}


def test_missing_and_conflicting_pairs_are_errors(root: Path) -> None:
    rows = [
        *rows_for("1", "s", dry=1),
        *rows_for("2", "s", dry=1, green=2),
        *rows_for("2", "s", dry=9),
        *rows_for("3", "s", dry=1, green=2),
    ]
    scan = scan_long(root, [*rows, *rows_for("3", "s", dry=1)])
    found = {finding.code: finding for finding in scan.findings}
    assert found["missing-targets"].evidence["pairs"] == ["train/1.jpg green"]
    assert found["conflicting-targets"].evidence["pairs"] == ["train/2.jpg dry"]
    assert found["duplicate-rows"].severity == "warning"
    assert {found["missing-targets"].severity, found["conflicting-targets"].severity} == {"error"}
    assert scan.samples.frame["sample_id"].tolist() == ["train/3.jpg"]


def test_targets_keep_only_those_named_in_that_order(root: Path) -> None:
    rows = [*rows_for("1", "s", a=1, b=2, c=3), *rows_for("2", "s", a=1, b=2, c="bad")]
    scan = scan_long(root, rows, targets=("b", "a"))
    assert scan.samples.task.names == ("b", "a")
    assert len(scan.samples) == 2
    with refused("no-such-target", "'z'"):
        scan_long(root, rows, targets=("z",))


def test_values_that_are_no_numbers_are_named(root: Path) -> None:
    scan = scan_long(root, [*rows_for("1", "s", a=1, b="?"), *rows_for("2", "s", a=1, b=2)])
    finding = next(finding for finding in scan.findings if finding.code == "bad-targets")
    assert finding.evidence["rows"] == [2]
    assert "missing-targets" not in {finding.code for finding in scan.findings}


def test_a_group_that_changes_within_an_image_is_an_error(root: Path) -> None:
    rows = [*rows_for("1", "north", a=1), *rows_for("1", "south", b=1), *rows_for("2", "south", a=1, b=1)]
    scan = scan_long(root, rows, group="site")
    assert next(finding for finding in scan.findings if finding.code == "group-conflict").evidence["images"] == ["train/1.jpg"]
    assert scan.samples.frame["group"].tolist() == ["north", "south"]


def test_the_two_columns_may_have_any_name(root: Path) -> None:
    rows = [("1", "h", 1), ("1", "w", 2), ("2", "h", 3), ("2", "w", 4)]
    scan = scan_long(root, rows, head=("image", "was", "wert"), long=("was", "wert"))
    assert scan.samples.task.names == ("h", "w")
    assert scan.samples.frame["sample_id"].tolist() == ["1", "2"]
