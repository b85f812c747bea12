"""Groups that names tell: seen where nearly every path has one, read where they are named."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from errors import refused
from unchoke.data.path_groups import find_path_group, path_word, read_path_groups
from unchoke.data.sample_set import LIKELY_GROUP, DataSource
from unchoke.data.scan import scan_samples

MakeFiles = Callable[[Sequence[str]], Path]
NUM = 240
LABELS = ["ab"[row % 2] for row in range(NUM)]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("IMG_plot{group}_{row}.jpg", "path:plot"),
        ("patient{group:05d}/study1/view{row}_frontal.jpg", "path:patient"),
        ("Patient-{group} ({row}).png", "path:patient"),
        ("session_{group}/{row}.jpg", "path:session"),
        ("site 3/tree_{group}_{row}.jpg", "path:tree"),
        ("session_{group}_plant{group}_{row}.jpg", "path:plant"),
    ],
)
def test_a_word_with_a_number_that_repeats_is_seen(name: str, column: str) -> None:
    likely = find_path_group([name.format(group=row // 8, row=row) for row in range(NUM)], LABELS)
    assert likely is not None
    assert (likely.column, likely.num_values) == (column, 30)


@pytest.mark.parametrize(
    "name",
    [
        "IMG_{row}.jpg",
        "plot{row}.jpg",
        "implant{group}_{row}.jpg",
        "plots_{group}.jpg",
        "plot_{row}_of_{group}.jpg",
        "0a1b-{row}___RS_GLSp {group}.JPG",
        "camera2_{row}.jpg",
        "scene1/{row}.jpg",
        "group{group}_{row}.jpg",
        "2020-05-{group}_{row}.jpg",
    ],
)
def test_other_names_are_let_be(name: str) -> None:
    assert find_path_group([name.format(group=row // 8, row=row) for row in range(NUM)], LABELS) is None


def test_rare_or_class_bound_word_is_no_group() -> None:
    half = [f"plot{row // 8}_{row}.jpg" if row % 2 else f"{row}.jpg" for row in range(NUM)]
    assert find_path_group(half, LABELS) is None
    classes = [f"c{row % 10}" for row in range(NUM)]
    assert find_path_group([f"plot{row % 10}_{row}.jpg" for row in range(NUM)], classes) is None


def test_path_groups_read_unknown_word_refused() -> None:
    paths = ["a/Plot_007_1.jpg", "b/plot7-2.jpg", "b/plot 12.jpg", "b/none.jpg"]
    assert read_path_groups(paths, "plot") == ["plot7", "plot7", "plot12", ""]
    with refused("no-path-groups", "'farm'"):
        read_path_groups(paths, "farm")
    assert (path_word("path:Plot"), path_word("plot"), path_word(None)) == ("plot", None, None)


def test_class_folders_grouped_by_path_word(make_files: MakeFiles) -> None:
    root = make_files([f"{'sick' if row % 2 else 'well'}/plant{row // 4}_{row}.jpg" for row in range(40)])
    scan = scan_samples(DataSource(root))
    (said,) = [finding for finding in scan.findings if finding.code == "ungrouped"]
    assert "--group path:plant" in said.message
    assert scan.samples.frame[LIKELY_GROUP].nunique() == 10
    grouped = scan_samples(DataSource(root, group="path:plant"))
    assert "ungrouped" not in {finding.code for finding in grouped.findings}
    assert grouped.samples.frame["group"].nunique() == 10
    assert grouped.samples.group_name == "path:plant"
    assert "ungrouped" not in {finding.code for finding in scan_samples(DataSource(root, suspects=False)).findings}
    with refused("columns-without-table", "--group", str(root)):
        scan_samples(DataSource(root, group="plant"))


def test_table_grouped_by_paths_of_files(make_files: MakeFiles) -> None:
    names = [f"patient{row // 4}/view{row}.jpg" for row in range(40)]
    root = make_files(names)
    with (root / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *((name, "ab"[row % 2]) for row, name in enumerate(names))])
    scan = scan_samples(DataSource(root / "t.csv"))
    assert [finding.evidence["column"] for finding in scan.findings if finding.code == "ungrouped"] == ["path:patient"]
    grouped = scan_samples(DataSource(root / "t.csv", group="path:patient"))
    assert grouped.samples.frame["group"].nunique() == 10
