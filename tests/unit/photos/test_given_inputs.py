"""Extra inputs of new pictures: found by path or name, the same numbers as in the table, and nothing filled in."""

from __future__ import annotations

from pathlib import Path

import pytest

from unchoke.core.errors import DataError, UsageError
from unchoke.photos.given_inputs import read_given_inputs

NAMES = ("ndvi", "height")


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


def test_a_relative_path_is_looked_up_with_the_folder_it_lies_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with pytest.raises(DataError, match=r"several values of the input 'height': one\.jpg"):
        read_given_inputs(table(tmp_path, rows.replace("4,0.1,10", "4,0.1,11")), NAMES, ["one.jpg"])


def test_a_picture_of_another_folder_is_not_taken_for_this_one(tmp_path: Path) -> None:
    file = table(tmp_path, "path,ndvi,height\nb/one.jpg,0.2,20\na/two.jpg,0.1,10\n")
    with pytest.raises(DataError, match=r"1 picture without a row in inputs\.csv: .*a/one\.jpg"):
        read_given_inputs(file, NAMES, [str(tmp_path / "a" / "one.jpg"), str(tmp_path / "a" / "two.jpg")])


def test_rows_that_cannot_be_told_apart_are_named(tmp_path: Path) -> None:
    file = table(tmp_path, "path,ndvi,height\none.jpg,0.2,20\none.png,0.1,10\n")
    with pytest.raises(DataError, match="could be several rows"):
        read_given_inputs(file, NAMES, [str(tmp_path / "one.webp")])


def test_a_cell_that_is_no_number_is_named_but_only_for_pictures_that_are_asked_for(tmp_path: Path) -> None:
    file = table(tmp_path, "path,ndvi,height\none.jpg,0.1,10\ntwo.jpg,,20\n")
    assert read_given_inputs(file, NAMES, ["one.jpg"]) is not None
    with pytest.raises(DataError, match=r"without a finite number in the input 'ndvi': two\.jpg"):
        read_given_inputs(file, NAMES, ["one.jpg", "two.jpg"])


def test_wrong_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such table"):
        read_given_inputs(tmp_path / "none.csv", NAMES, ["one.jpg"])
    with pytest.raises(UsageError, match="no column 'height'"):
        read_given_inputs(table(tmp_path, "path,ndvi\none.jpg,1\n"), NAMES, ["one.jpg"])
    with pytest.raises(UsageError, match="no column of the table names the pictures"):
        read_given_inputs(table(tmp_path, "path,ndvi,height\nother.jpg,1,2\n"), NAMES, ["one.jpg"])
    with pytest.raises(DataError, match="zero rows"):
        read_given_inputs(table(tmp_path, "path,ndvi,height\n"), NAMES, ["one.jpg"])


def test_a_run_on_pictures_alone_takes_no_table(tmp_path: Path) -> None:
    assert read_given_inputs(None, (), ["one.jpg"]) is None
    with pytest.raises(UsageError, match="has no use"):
        read_given_inputs(table(tmp_path, "path\none.jpg\n"), (), ["one.jpg"])
