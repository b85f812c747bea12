"""Decisions about single photos: read, added to, and put into samples; earlier lines stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from unchoke.core.errors import DataError, UsageError
from unchoke.core.listing import FileEntry
from unchoke.photos.corrections import (
    DROP,
    GROUP,
    KEEP,
    LABEL,
    USE,
    Correction,
    append_corrections,
    apply_corrections,
    load_corrections,
    one_side,
)
from unchoke.photos.samples.sample_set import Samples, TaskSpec, build_samples


def some_samples(groups: list[str] | None = None) -> Samples:
    names = ["a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg"]
    entries = [FileEntry(f"/data/{name}", name, 1, 1) for name in names]
    labels = [name[0] for name in names]
    return build_samples(
        TaskSpec("classification", ("a", "b")), entries, sample_ids=names, values={"label": labels}, groups=groups
    )


def written(file: Path, *decisions: Correction) -> Path:
    append_corrections(file, decisions)
    return file


def test_the_last_line_about_a_photo_holds_and_an_empty_value_takes_it_back(tmp_path: Path) -> None:
    file = written(tmp_path / "corrections.csv", Correction("a/1.jpg", LABEL, "b"), Correction("a/1.jpg", USE, DROP))
    append_corrections(file, [Correction("a/1.jpg", LABEL, "c"), Correction("a/1.jpg", USE, "")])
    found = load_corrections(file)
    assert found.values(LABEL) == {"a/1.jpg": "c"}
    assert found.dropped == frozenset()
    assert len(found.lines) == 4, "nothing is ever taken out"


def test_lines_are_added_behind_what_somebody_wrote_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "corrections.csv"
    file.write_bytes(b"what,photo,value\r\nlabel,a/1.jpg,b")  # other order, other line ends, no end to the last line
    append_corrections(file, [Correction('odd "name", here.jpg', USE, KEEP, "ada")])
    assert file.read_bytes().startswith(b"what,photo,value\r\nlabel,a/1.jpg,b\n")
    assert [(line.photo, line.what, line.value) for line in load_corrections(file).lines] == [
        ("a/1.jpg", LABEL, "b"),
        ('odd "name", here.jpg', USE, KEEP),
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a.jpg,use,perhaps", "'perhaps'"),
        ("a.jpg,colour,red", "'colour'"),
        (",label,b", "no photo"),
        ("a.jpg,value:x,many", "'many'"),
    ],
)
def test_a_line_that_makes_no_sense_is_named(tmp_path: Path, line: str, says: str) -> None:
    file = tmp_path / "corrections.csv"
    file.write_text(f"photo,what,value\nb.jpg,label,b\n{line}\n")
    with pytest.raises(DataError, match="line 3") as error:
        load_corrections(file)
    assert says in error.value.what


def test_a_file_without_the_columns_is_refused_with_an_example(tmp_path: Path) -> None:
    file = tmp_path / "corrections.csv"
    file.write_text("file,label\na.jpg,b\n")
    with pytest.raises(DataError) as error:
        load_corrections(file)
    assert "photo,what,value" in error.value.try_


def test_no_nonsense_can_be_appended() -> None:
    with pytest.raises(UsageError):
        Correction("a.jpg", USE, "maybe")


def test_labels_and_groups_change_and_strangers_are_told(tmp_path: Path) -> None:
    file = written(
        tmp_path / "corrections.csv",
        Correction("a/1.jpg", LABEL, "b"),
        Correction("a/2.jpg", GROUP, "b/2.jpg"),
        Correction("gone.jpg", LABEL, "a"),
    )
    found = apply_corrections(some_samples(), load_corrections(file))
    frame = found.samples.frame.set_index("sample_id")
    assert frame.loc["a/1.jpg", "label"] == "b"
    assert frame.loc["a/2.jpg", "group"] == frame.loc["b/2.jpg", "group"] != ""
    assert frame.loc["b/1.jpg", "group"] == ""
    assert (found.used["labels"], found.used["grouped"]) == (1, 1)
    assert [finding.code for finding in found.findings] == ["corrections-unknown"]


def test_whole_groups_become_one(tmp_path: Path) -> None:
    file = written(tmp_path / "corrections.csv", Correction("a/1.jpg", GROUP, "b/1.jpg"))
    found = apply_corrections(some_samples(["g", "g", "h", ""]), load_corrections(file))
    groups = found.samples.frame["group"].tolist()
    assert groups[0] == groups[1] == groups[2] != ""
    assert groups[3] == ""
    assert found.tied == {"a/1.jpg", "a/2.jpg", "b/1.jpg"}


def test_a_labelled_photo_outside_the_data_is_added(tmp_path: Path) -> None:
    new = tmp_path / "new.jpg"
    new.write_bytes(b"x")
    file = written(tmp_path / "corrections.csv", Correction(str(new), LABEL, "c"))
    found = apply_corrections(some_samples(), load_corrections(file))
    assert found.added == {str(new)}
    assert found.samples.task.names == ("a", "b", "c")
    assert found.samples.frame.set_index("sample_id").loc[str(new), "path"] == str(new)
    assert {finding.code for finding in found.findings} == {"corrections-new-class"}


def test_a_group_goes_where_most_of_it_is_and_trains_where_that_is_undecided() -> None:
    sides = one_side(["g", "g", "g", "h", "h", ""], ["test", "test", "train", "val", "train", "test"])
    assert sides == ["test", "test", "test", "train", "train", "test"]
