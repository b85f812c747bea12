from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from unchoke.core.listing import FileEntry
from unchoke.data.image_files import FileMatcher, outermost, stem_of


def matcher(*relatives: str, root: str = "/d/photos") -> FileMatcher:
    return FileMatcher([FileEntry(f"{root}/{relative}", relative, 1, 1) for relative in relatives])


@pytest.mark.parametrize(
    "cell",
    ["a/x 1.jpg", "./a/x 1.jpg", "a\\x 1.jpg", "x 1.jpg", "x 1", "X 1.JPG", " x 1 ", "photos/a/x 1.jpg", "/d/photos/a/x 1.jpg",
     "C:\\old\\disk\\a\\x 1.jpg", "/kaggle/input/a/x 1", "x 1.png", "a/x 1"],
)  # fmt: skip
def test_a_cell_finds_its_file_however_it_is_written(cell: str) -> None:
    assert matcher("b/other.jpg", "a/x 1.jpg").find(cell) == [1]


@pytest.mark.parametrize("cell", ["", "/", "..", "y.jpg", "b/x.jpg", "c/d/a2/x.jpg", "x.jpg.bak"])
def test_a_cell_that_names_nothing_finds_nothing(cell: str) -> None:
    assert matcher("a/x.jpg").find(cell) == []


def test_composed_and_decomposed_letters_are_the_same() -> None:
    composed, decomposed = unicodedata.normalize("NFC", "é.jpg"), unicodedata.normalize("NFD", "é.jpg")
    assert matcher(decomposed).find(composed) == [0]
    assert matcher(composed).find(decomposed) == [0]


def test_folders_tell_files_of_one_name_apart() -> None:
    files = matcher("cat/1.jpg", "dog/1.jpg", "1.jpg")
    assert files.find("dog/1.jpg") == [1]
    assert files.find("1.jpg") == [2]


def test_equally_good_files_are_all_returned() -> None:
    assert matcher("cat/1.jpg", "dog/1.jpg").find("1") == [0, 1]
    assert matcher("1.jpg", "1.png").find("1") == [0, 1]
    assert matcher("1.jpg", "1.png").find("1.png") == [1]


def test_the_letter_case_counts_when_both_exist() -> None:
    files = matcher("a.jpg", "A.jpg", "B/x.jpg", "b/x.jpg")
    assert files.find("A.jpg") == [1]
    assert files.find("b/x.jpg") == [3]


def test_a_dot_in_an_id_is_not_an_extension() -> None:
    assert stem_of("img.v2") == "img.v2"
    assert matcher("img.v2.jpg", "img.v3.jpg").find("img.v2") == [0]


def test_nested_and_repeated_folders_are_walked_once() -> None:
    assert outermost([Path("/d/a"), Path("/d/a/b"), Path("/d/a"), Path("/d/ab")]) == [Path("/d/a"), Path("/d/ab")]
