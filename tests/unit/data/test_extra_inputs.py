"""Extra columns given to the network: read as numbers, never filled in, and never what shall be learnt."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from errors import refused
from unchoke.core.findings import Finding
from unchoke.data.extra_inputs import read_given_inputs
from unchoke.data.sample_set import DataSource, Scan
from unchoke.data.scan import scan_samples

MakeFiles = Callable[[Sequence[str]], Path]
WIDE = ("id", "mass", "ndvi", "height", "site")
LONG = ("image", "ndvi", "height", "target_name", "target")
NAMES = ("ndvi", "height")


def scan(root: Path, head: Sequence[str], rows: Sequence[Sequence[object]], **options: object) -> Scan:
    with (root / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    return scan_samples(DataSource(root / "t.csv", **options))  # type: ignore[arg-type]


def findings(scan: Scan, code: str) -> list[Finding]:
    return [finding for finding in scan.findings if finding.code == code]


@pytest.fixture
def root(make_files: MakeFiles) -> Path:
    return make_files([f"{number}.jpg" for number in range(1, 6)])


def test_inputs_of_a_wide_table_follow_their_samples(root: Path) -> None:
    rows = [("3", 30, "0.3", "3e1", "x"), ("1", 10, " 0.1 ", "-10", "y"), ("2", 20, ".2", "20", "x")]
    samples = scan(root, WIDE, rows, targets=("mass",), inputs=("height", "ndvi")).samples
    assert samples.inputs == ("height", "ndvi")
    assert samples.input_columns == ("input/height", "input/ndvi")
    assert samples.frame["sample_id"].tolist() == ["1", "2", "3"]
    assert samples.frame[list(samples.input_columns)].to_numpy().tolist() == [[-10.0, 0.1], [20.0, 0.2], [30.0, 0.3]]


def test_inputs_stand_beside_classes_too(root: Path) -> None:
    samples = scan(root, ("id", "label", "age"), [("1", "a", "40"), ("2", "b", "50")], inputs=("age",)).samples
    assert samples.task.names == ("a", "b")
    assert samples.frame["input/age"].tolist() == [40.0, 50.0]


def test_without_inputs_there_are_none(root: Path) -> None:
    samples = scan(root, WIDE, [("1", 1, 1, 1, "x"), ("2", 2, 2, 2, "x")], targets=("mass",)).samples
    assert (samples.inputs, samples.input_columns) == ((), ())
    assert not [name for name in samples.frame.columns if name.startswith("input/")]


def test_input_cells_not_numbers_named(root: Path) -> None:
    rows = [
        ("1", 1, "", 1, "x"),
        ("2", 2, "0.2", 2, "x"),
        ("3", 3, "wet", 3, "x"),
        ("4", 4, "inf", 4, "x"),
        ("5", 5, "1e39", 5, "x"),
    ]
    found = scan(root, WIDE, rows, targets=("mass",), inputs=("ndvi", "height"))
    (bad,) = findings(found, "bad-inputs")
    assert bad.severity == "error"
    assert bad.evidence == {"column": "ndvi", "ids": ["1", "3", "4", "5"], "rows": [1, 3, 4, 5], "count": 4}
    assert "3 'wet'" in bad.message
    assert "--input ndvi" in bad.fix
    assert found.samples.frame["sample_id"].tolist() == ["2"]


@pytest.mark.parametrize(
    ("cells", "values"), [(("0,5", "12", "1.384,86"), [0.5, 12, 1384.86]), (("1234,567",) * 3, [1234.567] * 3)]
)
def test_decimal_commas_are_read(cells: tuple[str, ...], values: list[float], root: Path) -> None:
    rows = [(str(place + 1), cell, cell, 1, "x") for place, cell in enumerate(cells)]
    found = scan(root, WIDE, rows, targets=("mass",), inputs=("ndvi",))
    assert found.samples.frame["mass"].tolist() == found.samples.frame["input/ndvi"].tolist() == values
    assert any(choice.name == "decimal commas" for choice in found.choices)


@pytest.mark.parametrize(
    ("cells", "said"), [(("1,234", "12,345"), "point"), (("38,9 g", "40 g"), "'g'"), (("1,5", "1.5"), "point")]
)
def test_thousands_and_units_are_refused(cells: tuple[str, ...], said: str, root: Path) -> None:
    rows = [("1", 7, "1", 1, "x"), *((str(place + 2), cell, "1", 1, "x") for place, cell in enumerate(cells))]
    (bad,) = findings(scan(root, WIDE, rows, targets=("mass",)), "bad-targets")
    assert said in bad.fix


def test_the_unit_is_named_where_every_cell_has_one(root: Path) -> None:
    with refused("no-usable-row", "'g'"):
        scan(root, WIDE, [("1", "38,9 g", "1", 1, "x"), ("2", "40 g", "1", 1, "x")], targets=("mass",))


def test_a_decimal_comma_is_recognised(root: Path) -> None:
    rows = [("1", 1, "0,5", 1, "x"), ("2", 2, "0.5", 1, "x")]
    (bad,) = findings(scan(root, WIDE, rows, targets=("mass",), inputs=("ndvi",)), "bad-inputs")
    assert "point" in bad.fix


def test_all_inputs_missing_refused(root: Path) -> None:
    with refused("no-usable-row", "'ndvi'", "2 'NA'"):
        scan(root, WIDE, [("1", 1, "", 1, "x"), ("2", 2, "NA", 1, "x")], targets=("mass",), inputs=("ndvi",))


def test_inputs_of_a_long_table_are_taken_once_per_image(root: Path) -> None:
    rows = [
        ("1.jpg", "0.70", 3, "dry", 1),
        ("2.jpg", "0.5", 9, "dry", 2),
        ("1.jpg", "0.7", "3.0", "wet", 3),
        ("2.jpg", ".5", 9, "wet", 4),
    ]
    found = scan(root, LONG, rows, inputs=("ndvi", "height"))
    assert found.samples.task.names == ("dry", "wet")
    assert found.samples.frame[["input/ndvi", "input/height"]].to_numpy().tolist() == [[0.7, 3.0], [0.5, 9.0]]
    assert not [finding for finding in found.findings if finding.severity == "error"]


def test_input_varying_within_image_is_error(root: Path) -> None:
    rows = [
        *[("1.jpg", 0.7, 3, "dry", 1), ("1.jpg", 0.8, 3, "wet", 3)],
        *[("2.jpg", 0.5, 9, "dry", 2), ("2.jpg", 0.5, "", "wet", 4)],
        *[("3.jpg", "?", 9, "dry", 2), ("3.jpg", "?", 9, "wet", 4)],
        *[("4.jpg", 0.1, 1, "dry", 2), ("4.jpg", 0.1, 1, "wet", 4)],
    ]
    found = scan(root, LONG, rows, inputs=("ndvi", "height"))
    conflicts = {finding.evidence["column"]: finding for finding in findings(found, "input-conflict")}
    assert conflicts["ndvi"].evidence["images"] == ["1.jpg"]
    assert conflicts["height"].evidence["images"] == ["2.jpg"]
    assert {finding.severity for finding in conflicts.values()} == {"error"}
    assert [finding.evidence["ids"] for finding in findings(found, "bad-inputs")] == [["3.jpg"]]
    assert found.samples.frame["sample_id"].tolist() == ["4.jpg"]


def test_a_column_may_be_group_and_input_at_once(root: Path) -> None:
    rows = [(f"{n}.jpg", n, 7 + n % 2, name, n) for n in (1, 2) for name in ("dry", "wet")]
    samples = scan(root, LONG, rows, inputs=("height",), group="height").samples
    assert samples.frame["group"].tolist() == ["8", "7"]
    assert samples.frame["input/height"].tolist() == [8.0, 7.0]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"targets": ("mass", "ndvi"), "inputs": ("ndvi",)}, "input-is-target"),
        ({"label": "site", "inputs": ("site",)}, "input-is-target"),
        ({"targets": ("mass",), "inputs": ("id",)}, "bad-input-column"),
        ({"targets": ("mass",), "inputs": ("site",), "split": "site"}, "bad-input-column"),
        ({"targets": ("mass",), "inputs": ("ndvi", "ndvi")}, "bad-input-column"),
        ({"targets": ("mass",), "inputs": ("nvdi",)}, "no-such-column"),
    ],
    ids=str,
)
def test_inputs_that_leak_or_mean_nothing_are_refused(root: Path, options: dict[str, Any], code: str) -> None:
    with refused(code, f"'{options['inputs'][-1]}'"):
        scan(root, WIDE, [("1", 1, 0.1, 1, "train"), ("2", 2, 0.2, 2, "test")], **options)


def test_long_table_target_as_input_refused(root: Path) -> None:
    rows = [("1.jpg", 0.7, 3, "ndvi", 1), ("1.jpg", 0.7, 3, "wet", 3)]
    for name in ("ndvi", "target"):
        with refused("input-is-target", repr(name)):
            scan(root, LONG, rows, inputs=(name,))


def test_input_column_not_guessed_as_label(root: Path) -> None:
    rows = [("1", "5", "a"), ("2", "6", "b")]
    assert scan(root, ("id", "label", "dx"), rows, inputs=("label",)).samples.task.names == ("a", "b")


def test_folders_have_no_inputs(make_files: MakeFiles) -> None:
    root = make_files(["a/1.jpg", "b/2.jpg"])
    with refused("columns-without-table", "--input", str(root)):
        scan_samples(DataSource(root, inputs=("ndvi",)))


def test_no_target_may_take_the_name_an_input_is_kept_under(root: Path) -> None:
    with refused("reserved-name", "'input/ndvi'"):
        scan(root, ("id", "input/ndvi"), [("1", 1), ("2", 2)], targets=("input/ndvi",))


def test_many_inputs_keep_their_order_and_type(root: Path) -> None:
    names = [f"c{number}" for number in range(20)]
    rows = [(str(image), image, *(image * 100 + number for number in range(20))) for image in (1, 2, 3)]
    samples = scan(root, ("id", "mass", *names), rows, targets=("mass",), inputs=tuple(reversed(names))).samples
    numbers = samples.frame[list(samples.input_columns)].to_numpy()
    assert numbers.dtype == np.float64
    assert numbers[1].tolist() == [200.0 + number for number in reversed(range(20))]


def table(folder: Path, text: str) -> Path:
    file = folder / "inputs.csv"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("first", "second"),
    [("a/one.jpg", "b/two.jpg"), ("one.jpg", "two.jpg"), ("one", "two"), ("a\\one.jpg", "./b/TWO.jpg"), ("one", "b/two.jpg")],
)
def test_pictures_are_found_by_path_by_name_and_by_id(tmp_path: Path, first: str, second: str) -> None:
    file = table(tmp_path, f"image,ndvi,height,note\n{second},0.2,20,x\n{first},0.1,10,y\nother,9,9,z\n")
    found = read_given_inputs(file, NAMES, [str(tmp_path / "a" / "one.jpg"), str(tmp_path / "b" / "two.jpg")])
    assert found is not None
    assert found.tolist() == [[pytest.approx(0.1), 10.0], [pytest.approx(0.2), 20.0]]


def test_absolute_paths_tell_pictures_of_one_name_apart(tmp_path: Path) -> None:
    paths = [str(tmp_path / folder / "one.jpg") for folder in "ab"]
    file = table(tmp_path, f"ndvi,height,path\n0.2,20,{paths[1]}\n0.1,10,{paths[0]}\n")
    found = read_given_inputs(file, NAMES, paths)
    assert found is not None
    assert found[:, 1].tolist() == [10.0, 20.0]


def test_relative_path_found_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    file = table(tmp_path, "path,ndvi,height\na/one.jpg,0.1,10\nb/one.jpg,0.2,20\n")
    found = read_given_inputs(file, NAMES, ["one.jpg"])
    assert found is not None
    assert found[0, 1] == 10.0


def test_the_rows_of_a_long_table_must_agree(tmp_path: Path) -> None:
    rows = "path,target_name,target,ndvi,height\none.jpg,dead,3,0.1,10\none.jpg,green,4,0.1,10\n"
    found = read_given_inputs(table(tmp_path, rows), NAMES, ["one.jpg"])
    assert found is not None
    assert found.shape == (1, 2)
    with refused("bad-inputs", "'height'", "one.jpg"):
        read_given_inputs(table(tmp_path, rows.replace("4,0.1,10", "4,0.1,11")), NAMES, ["one.jpg"])


def test_picture_of_another_folder_not_matched(tmp_path: Path) -> None:
    file = table(tmp_path, "path,ndvi,height\nb/one.jpg,0.2,20\na/two.jpg,0.1,10\n")
    with refused("inputs-unmatched", "1 ", "inputs.csv", str(tmp_path / "a" / "one.jpg")):
        read_given_inputs(file, NAMES, [str(tmp_path / "a" / "one.jpg"), str(tmp_path / "a" / "two.jpg")])


def test_rows_that_cannot_be_told_apart_are_named(tmp_path: Path) -> None:
    file = table(tmp_path, "path,ndvi,height\none.jpg,0.2,20\none.png,0.1,10\n")
    with refused("inputs-ambiguous", "one.webp", "'one.jpg'", "'one.png'"):
        read_given_inputs(file, NAMES, [str(tmp_path / "one.webp")])


def test_bad_cell_named_only_for_asked_pictures(tmp_path: Path) -> None:
    file = table(tmp_path, "path,ndvi,height\none.jpg,0.1,10\ntwo.jpg,,20\n")
    assert read_given_inputs(file, NAMES, ["one.jpg"]) is not None
    with refused("bad-inputs", "'ndvi'", "two.jpg"):
        read_given_inputs(file, NAMES, ["one.jpg", "two.jpg"])


def test_wrong_tables_are_refused(tmp_path: Path) -> None:
    with refused("no-such-file", str(tmp_path / "none.csv")):
        read_given_inputs(tmp_path / "none.csv", NAMES, ["one.jpg"])
    with refused("no-such-column", "'height'"):
        read_given_inputs(table(tmp_path, "path,ndvi\none.jpg,1\n"), NAMES, ["one.jpg"])
    with refused("no-key-column"):
        read_given_inputs(table(tmp_path, "path,ndvi,height\nother.jpg,1,2\n"), NAMES, ["one.jpg"])
    with refused("empty-table", "inputs.csv"):
        read_given_inputs(table(tmp_path, "path,ndvi,height\n"), NAMES, ["one.jpg"])


def test_a_run_on_pictures_alone_takes_no_table(tmp_path: Path) -> None:
    assert read_given_inputs(None, (), ["one.jpg"]) is None
    with refused("inputs-not-used", "inputs.csv"):
        read_given_inputs(table(tmp_path, "path\none.jpg\n"), (), ["one.jpg"])
