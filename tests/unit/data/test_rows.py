from __future__ import annotations

import csv
import os
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from errors import refused
from unchoke.core.findings import Finding
from unchoke.data.file_findings import can_be_left_out
from unchoke.data.sample_set import DataSource, Scan
from unchoke.data.scan import scan_samples

MakeFiles = Callable[[Sequence[str]], Path]


def table(folder: Path, *rows: Sequence[object], name: str = "t.csv") -> Path:
    with (folder / name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return folder / name


def finding(scan: Scan, code: str) -> Finding:
    return next(finding for finding in scan.findings if finding.code == code)


def errors(scan: Scan) -> set[str]:
    return {finding.code for finding in scan.findings if finding.severity == "error"}


def test_ids_are_found_in_several_folders(make_files: MakeFiles) -> None:
    root = make_files(["part_1/I1.jpg", "part_2/I2.jpg", "elsewhere/I1.jpg"])
    data = table(root, ("lesion", "image_id", "dx"), ("L1", "I2", "nv"), ("L1", "I1", "mel"))
    scan = scan_samples(DataSource(data, images=(root / "part_1", root / "part_2"), id="image_id", label="dx", group="lesion"))
    frame = scan.samples.frame
    assert frame["sample_id"].tolist() == ["I1", "I2"]
    assert frame["path"].tolist() == [str(root / "part_1/I1.jpg"), str(root / "part_2/I2.jpg")]
    assert frame["label"].tolist() == ["mel", "nv"]
    assert frame["group"].tolist() == ["L1", "L1"]
    assert scan.samples.group_name == "lesion"
    assert not errors(scan)


def test_columns_are_guessed_with_a_reason(make_files: MakeFiles) -> None:
    root = make_files(["i/1.jpg", "i/2.jpg"])
    data = table(root, ("id", "image", "dx"), ("x", "i/1.jpg", "a"), ("y", "i/2.jpg", "b"))
    scan = scan_samples(DataSource(data))
    assert [(choice.name, choice.value) for choice in scan.choices] == [("path column", "image"), ("label column", "dx")]
    assert all(choice.reason for choice in scan.choices)


def test_any_column_taken_if_it_alone_names_files(make_files: MakeFiles) -> None:
    root = make_files(["1.jpg", "2.jpg"])
    scan = scan_samples(DataSource(table(root, ("foto", "label"), ("1.jpg", "a"), ("2.jpg", "b"))))
    assert scan.choices[0].value == "foto"


def test_unclear_path_or_label_refused(make_files: MakeFiles) -> None:
    root = make_files(["1.jpg", "2.jpg"])
    with refused("unclear-columns", "'left'", "'right'", "--path left"):
        scan_samples(DataSource(table(root, ("left", "right", "label"), ("1.jpg", "2.jpg", "a"), ("2.jpg", "1.jpg", "b"))))
    with refused("unclear-columns", "'age' (1 ", "--label COLUMN"):
        scan_samples(DataSource(table(root, ("image", "age"), ("1.jpg", "3"), ("2.jpg", "3"))))


def test_missing_columns_refused_together(make_files: MakeFiles) -> None:
    data = table(make_files(["1.jpg"]), ("image_id", "dx"), ("1", "a"))
    with refused("no-such-column", "'imageid'", "'diagnosis'", "'lesion'", "--id image_id"):
        scan_samples(DataSource(data, id="imageid", label="diagnosis", group="lesion"))


def test_rows_and_files_are_matched_both_ways(make_files: MakeFiles) -> None:
    root = make_files(["1.jpg", "2.jpg", "3.jpg"])
    scan = scan_samples(
        DataSource(table(root, ("image", "label"), ("1.jpg", "a"), ("2.jpg", "b"), ("9.jpg", "b"), ("8.jpg", "b")))
    )
    missing, extra = finding(scan, "rows-without-file"), finding(scan, "files-without-row")
    assert (missing.severity, missing.evidence["cells"], missing.evidence["rows"]) == ("error", ["9.jpg", "8.jpg"], [3, 4])
    assert (extra.severity, [Path(path).name for path in extra.paths]) == ("warning", ["3.jpg"])
    assert len(scan.samples) == 2


def test_id_with_several_files_is_error(make_files: MakeFiles) -> None:
    root = make_files(["a/1.jpg", "b/1.jpg", "b/2.jpg"])
    scan = scan_samples(DataSource(table(root, ("id", "label"), ("1", "x"), ("2", "y"))))
    found = finding(scan, "ambiguous-file")
    assert sorted(Path(path).parent.name for path in found.paths) == ["a", "b"]
    assert scan.samples.frame["sample_id"].tolist() == ["2"]
    assert "files-without-row" not in {finding.code for finding in scan.findings}


def test_ambiguous_files_told_apart_by_folder(make_files: MakeFiles) -> None:
    root = make_files(["part_1/x/1.jpg", "part_2/x/1.jpg", "part_2/2.jpg"])
    data = table(root, ("id", "label"), ("1", "a"), ("2", "b"))
    scan = scan_samples(DataSource(data, images=(root / "part_1", root / "part_2")))
    assert "'part_1/x/1.jpg', 'part_2/x/1.jpg'" in finding(scan, "ambiguous-file").message
    assert not errors(scan_samples(DataSource(data, exclude=("part_1",))))


def test_rows_of_excluded_files_are_left_out_with_them(make_files: MakeFiles) -> None:
    root = make_files(["1.jpg", "2.jpg", "3.jpg", "bad/4.jpg"])
    data = table(root, ("path", "label"), ("1.jpg", "a"), ("2.jpg", "b"), ("3.jpg", "a"), ("bad/4.jpg", "b"), ("5.jpg", "a"))
    scan = scan_samples(DataSource(data, exclude=("bad/*",)))
    assert scan.samples.frame["sample_id"].tolist() == ["1.jpg", "2.jpg", "3.jpg"]
    assert finding(scan, "rows-without-file").evidence["cells"] == ["5.jpg"]
    assert scan.choices[0].evidence == {"bad/*": 1}


def test_strictly_a_file_without_a_row_is_an_error(make_files: MakeFiles) -> None:
    root = make_files(["1.jpg", "2.jpg", "3.jpg"])
    data = table(root, ("path", "label"), ("1.jpg", "a"), ("2.jpg", "b"))
    assert errors(scan_samples(DataSource(data))) == set()
    assert errors(scan_samples(DataSource(data, strict=True))) == {"files-without-row"}
    assert errors(scan_samples(DataSource(data, strict=True, exclude=("3.*",)))) == set()


def test_few_rows_without_file_can_be_left_out(make_files: MakeFiles) -> None:
    root = make_files([f"{row}.jpg" for row in range(30)])
    data = table(root, ("path", "label"), *((f"{row}.jpg", "ab"[row % 2]) for row in range(31)))
    for options, enough in (({}, True), ({"strict": True}, False), ({"failure_rate": 0.03}, False)):
        found = finding(scan_samples(DataSource(data, **options)), "rows-without-file")
        assert (found.severity, can_be_left_out(found)) == ("error", enough)


@pytest.mark.parametrize(
    ("options", "suggestion"),
    [
        ({"label": "nothing"}, "--label kind"),
        ({"split": "nothing"}, "--split part"),
        ({"targets": ("nothing",)}, "--target height"),
        ({"path": "nothing"}, "--path path"),
        ({"group": "nothing"}, "--group out"),
    ],
)
def test_missing_column_suggests_another(make_files: MakeFiles, options: dict[str, Any], suggestion: str) -> None:
    root = make_files([f"{row}.jpg" for row in range(4)])
    rows = [(f"{row}.jpg", "train" if row else "test", f"1.{row}", "ab"[row % 2]) for row in range(4)]
    data = table(root, ("path", "part", "height", "kind"), *rows)
    with refused("no-such-column", "'nothing'", suggestion):
        scan_samples(DataSource(data, **options))


@pytest.mark.parametrize(("name", "suggestion"), [("nosch", "--fold-column out"), ("folt", "--fold-column fold")])
def test_a_column_of_many_values_is_not_proposed_for_folds(make_files: MakeFiles, name: str, suggestion: str) -> None:
    root = make_files([f"{row}.jpg" for row in range(4)])
    rows = [(f"{row}.jpg", f"0.{row}", row % 2, "ab"[row % 2]) for row in range(4)]
    with refused("no-such-column", repr(name), suggestion):
        scan_samples(DataSource(table(root, ("path", "noise", "fold", "label"), *rows), fold_column=name))


def test_all_faults_of_a_table_are_listed_at_once(make_files: MakeFiles) -> None:
    root = make_files(["1.jpg", "2.jpg", "3.jpg"])
    rows = [("1", "a"), ("1", "b"), ("2", ""), ("3", "NaN"), ("7", "a"), ("3.jpg", "b")]
    scan = scan_samples(DataSource(table(root, ("id", "label"), *rows), id="id", label="label"))
    assert {"duplicate-ids", "nan-labels", "rows-without-file", "rows-share-file"} <= errors(scan)
    assert finding(scan, "nan-labels").evidence["rows"] == [3, 4]
    assert finding(scan, "duplicate-ids").evidence["ids"] == ["1"]
    assert scan.samples.frame["sample_id"].is_unique


def test_zero_rows_and_no_match_at_all_are_refused(make_files: MakeFiles) -> None:
    root = make_files(["1.jpg"])
    with refused("empty-table", "t.csv"):
        scan_samples(DataSource(table(root, ("id", "label"))))
    with refused("no-row-matches", "'id'", "'x'", str(root)):
        scan_samples(DataSource(table(root, ("id", "label"), ("x", "a"))))


def test_missing_image_folders_are_refused_together(make_files: MakeFiles) -> None:
    root = make_files(["1.jpg"])
    with refused("no-such-folder", str(root / "x"), str(root / "y")):
        scan_samples(DataSource(table(root, ("id", "label"), ("1", "a")), images=(root / "x", root, root / "y")))


def test_awkward_names_match(make_files: MakeFiles) -> None:
    names = ["a b.jpg", "[1](2).jpg", "a,b.jpg", 'say "x".jpg', "two\nlines.jpg", "-rf.jpg", "'; drop table.jpg", "猫.jpg"]
    if os.name == "posix":
        names.append("back\\slash.jpg")
    root = make_files([f"in/{name}" for name in names] + ["win/w.jpg", unicodedata.normalize("NFD", "in/é.jpg")])
    cells = [f"in/{name}" for name in names] + ["win\\w.jpg", unicodedata.normalize("NFC", "in/é.jpg")]
    scan = scan_samples(DataSource(table(root, ("path", "label"), *[(cell, "ab"[i % 2]) for i, cell in enumerate(cells)])))
    assert len(scan.samples) == len(cells)
    assert not errors(scan)
    assert "files-without-row" not in {finding.code for finding in scan.findings}


def test_paths_outside_the_tables_folder(make_files: MakeFiles) -> None:
    root = make_files(["abs/1.jpg", "up/2.jpg", "tables/keep"])
    data = table(root / "tables", ("path", "label"), (str(root / "abs/1.jpg"), "a"), ("../up/2.jpg", "b"))
    frame = scan_samples(DataSource(data)).samples.frame
    assert frame["path"].tolist() == [str(root / "abs/1.jpg"), str(root / "up/2.jpg")]
    assert frame["sample_id"].tolist() == ["1.jpg", "2.jpg"]


def test_targets_must_be_finite_numbers(make_files: MakeFiles) -> None:
    root = make_files(["1.jpg", "2.jpg", "3.jpg", "4.jpg", "5.jpg"])
    rows = [("1", "1.5", "2"), ("2", "inf", "2"), ("3", "x", "2"), ("4", "", "1"), ("5", "2", "7")]
    scan = scan_samples(DataSource(table(root, ("id", "h", "w"), *rows), targets=("h", "w")))
    assert finding(scan, "bad-targets").evidence["rows"] == [2, 3, 4]
    assert scan.samples.task.names == ("h", "w")
    assert scan.samples.frame[["h", "w"]].to_numpy().tolist() == [[1.5, 2.0], [2.0, 7.0]]


def test_targets_that_float32_cannot_hold_are_errors(make_files: MakeFiles) -> None:
    root = make_files(["1.jpg", "2.jpg", "3.jpg"])
    rows = [("1", "1.5"), ("2", "1e300"), ("3", "-1e300")]
    bad = finding(scan_samples(DataSource(table(root, ("id", "h"), *rows), targets=("h",))), "bad-targets")
    assert (bad.severity, bad.evidence["rows"]) == ("error", [2, 3])
    assert "3.4e+38" in bad.fix


def test_numbers_with_fractions_are_taken_for_regression(make_files: MakeFiles) -> None:
    root = make_files(["1.jpg", "2.jpg"])
    scan = scan_samples(DataSource(table(root, ("id", "target"), ("1", "0.5"), ("2", "3"))))
    assert scan.samples.task.kind == "regression"
    assert scan.choices[-1].name == "target"


def test_split_column_spellings(make_files: MakeFiles) -> None:
    root = make_files(["1.jpg", "2.jpg", "3.jpg", "4.jpg"])
    head = ("id", "label", "fold")
    scan = scan_samples(
        DataSource(table(root, head, (1, "a", "Train"), (2, "b", "dev"), (3, "a", "TEST"), (4, "b", "")), split="fold")
    )
    assert scan.samples.frame["split"].tolist() == ["train", "val", "test", ""]
    with refused("unknown-split", "'fold'", "'holdout'"):
        scan_samples(DataSource(table(root, head, (1, "a", "holdout")), split="fold"))


def test_a_group_that_nobody_named_is_pointed_out(make_files: MakeFiles) -> None:
    root = make_files(["1.jpg", "2.jpg", "3.jpg"])
    data = table(root, ("id", "label", "patient_id"), (1, "a", "p"), (2, "b", "p"), (3, "b", "q"))
    assert finding(scan_samples(DataSource(data)), "ungrouped").evidence["column"] == "patient_id"
    assert "ungrouped" not in {finding.code for finding in scan_samples(DataSource(data, group="patient_id")).findings}


def test_likely_group_found_for_regression(make_files: MakeFiles) -> None:
    root = make_files([f"{number}.jpg" for number in range(12)])
    for weight in (lambda number: number * 1.5, lambda number: number // 2 * 1.5):
        rows = [(number, weight(number), f"p{number // 2}") for number in range(12)]
        scan = scan_samples(DataSource(table(root, ("id", "weight", "patient"), *rows), targets=("weight",)))
        assert finding(scan, "ungrouped").evidence["column"] == "patient"


def test_preset_group_column_missing(make_files: MakeFiles) -> None:
    root = make_files([f"{number}.jpg" for number in range(12)])
    rows = [(number, "ab"[number % 2], f"d{number // 2}") for number in range(12)]
    data = table(root, ("id", "label", "date"), *rows)
    scan = scan_samples(DataSource(data, group="Sampling_Date", group_is_preset=True, suspects=False))
    lacking = finding(scan, "no-group-column")
    assert lacking.severity == "warning"
    assert "'Sampling_Date'" in lacking.message
    assert "--group" in lacking.fix
    assert finding(scan, "ungrouped").evidence["column"] == "date", "what may be meant is pointed out"
    assert set(scan.samples.frame["group"]) == {""}
    with refused("no-such-column", "'Sampling_Date'"):
        scan_samples(DataSource(data, group="Sampling_Date"))


def test_the_order_of_rows_does_not_matter(make_files: MakeFiles) -> None:
    root = make_files([f"{i}.jpg" for i in range(9)])
    rows = [(f"{i}.jpg", "ab"[i % 2]) for i in range(9)]
    one = scan_samples(DataSource(table(root, ("image", "label"), *rows)))
    two = scan_samples(DataSource(table(root, ("image", "label"), *reversed(rows))))
    assert one.samples.frame.equals(two.samples.frame)


def test_a_label_and_a_target_contradict_each_other(make_files: MakeFiles) -> None:
    data = table(make_files(["1.jpg"]), ("id", "label", "h"), (1, "a", 2))
    with refused("label-and-target", "--label label", "--target h"):
        scan_samples(DataSource(data, label="label", targets=("h",)))


def test_path_finds_file_id_names_sample(make_files: MakeFiles) -> None:
    root = make_files(["x/1.jpg", "y/1.jpg"])
    data = table(root, ("uid", "where", "label"), ("A", "y/1.jpg", "a"), ("B", "x/1.jpg", "b"))
    frame = scan_samples(DataSource(data, id="uid", path="where")).samples.frame
    assert dict(zip(frame["sample_id"], frame["relative"], strict=True)) == {"A": "y/1.jpg", "B": "x/1.jpg"}


def test_scanning_leaves_the_data_as_it_was(make_files: MakeFiles) -> None:
    root = make_files(["a/1.jpg", "b/2.jpg"])
    data = table(root, ("image", "label"), ("a/1.jpg", "a"), ("b/2.jpg", "b"))
    before = {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))}
    scan_samples(DataSource(data))
    scan_samples(DataSource(root))
    assert {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))} == before
