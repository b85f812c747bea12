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


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"photo,what,value\na.jpg,use\n", "line 2: it ends before its value"),
        ("photo,what,value\nä.jpg,label,b\n".encode("latin-1"), "line 2 holds the byte 0xe4, which is not UTF-8"),
        ("photo,what,value\n".encode("utf-16"), "it is UTF-16"),
        (b'photo,what,value\na.jpg,label,b\n"b.jpg,label', "line 3: "),
        ("photo,what,value\na.jpg,label,ä".encode()[:-1], "line 2 holds the byte 0xc3"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path: Path, data: bytes, says: str) -> None:
    file = tmp_path / "corrections.csv"
    file.write_bytes(data)
    with pytest.raises(DataError) as error:
        load_corrections(file)
    assert says in f"{error.value.what} {error.value.why}"


def test_one_line_that_corrects_nothing_is_said_in_the_singular(tmp_path: Path) -> None:
    file = tmp_path / "corrections.csv"
    file.write_text("photo,what,value\na.jpg,use,perhaps\n")
    with pytest.raises(DataError, match="1 line that corrects nothing"):
        load_corrections(file)


@pytest.mark.parametrize("mark", [";", "\t"])
def test_what_a_spreadsheet_saves_is_read_and_added_to_in_its_manner(tmp_path: Path, mark: str) -> None:
    file = tmp_path / "corrections.csv"
    rows = [["photo", "what", "value"], ["a/1, b.jpg", "Use", "DROP"], ["b.jpg", "Label", "B"]]
    file.write_text("\ufeff" + "".join(f"{mark.join(row)}\r\n" for row in rows), encoding="utf-8", newline="")
    append_corrections(file, [Correction("c.jpg", USE, KEEP)])
    assert file.read_text("utf-8").splitlines()[-1] == mark.join(["c.jpg", "use", "keep"])
    found = load_corrections(file)
    assert found.dropped == {"a/1, b.jpg"}
    assert found.values(LABEL) == {"b.jpg": "B"}
    assert found.values(USE)["c.jpg"] == KEEP


def test_names_that_look_like_formulas_stay_as_they_are(tmp_path: Path) -> None:
    file = written(tmp_path / "corrections.csv", Correction("=HYPERLINK(1)/1.jpg", LABEL, "@x"))
    assert load_corrections(file).values(LABEL) == {"=HYPERLINK(1)/1.jpg": "@x"}


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


def test_decisions_that_change_nothing_are_named_with_the_reason(tmp_path: Path) -> None:
    file = written(
        tmp_path / "corrections.csv",
        Correction("a/1.jpg", GROUP, "nope.jpg"),
        Correction("a/2.jpg", "value:x", "3"),
        Correction("b/1.jpg", GROUP, "c/1.jpg"),
        Correction("c/1.jpg", USE, DROP),
        Correction("c/1.jpg", LABEL, "a"),
        Correction("b/2.jpg", LABEL, "a"),
    )
    found = apply_corrections(some_samples(), load_corrections(file), {"c/1.jpg": "/data/c/1.jpg"})
    assert found.num_used == 2
    assert "`unchoke check` says why not the others" in found.choice(load_corrections(file)).reason
    (finding,) = found.findings
    assert finding.code == "corrections-unused"
    assert {(photo, what): why for photo, what, _, why in finding.evidence["decisions"]} == {
        ("a/1.jpg", "group"): "there is no such photo to be with",
        ("a/2.jpg", "value:x"): "the photos have labels and no values",
        ("b/1.jpg", "group"): "the other photo is dropped",
        ("c/1.jpg", "label"): "the photo is dropped",
    }
    assert "'nope.jpg' (there is no such photo to be with)" in finding.message


def test_a_dropped_photo_does_not_come_back_under_its_path(tmp_path: Path) -> None:
    photo = tmp_path / "1.jpg"
    photo.write_bytes(b"x")
    file = written(tmp_path / "corrections.csv", Correction("c/1.jpg", USE, DROP), Correction(str(photo), LABEL, "a"))
    assert not apply_corrections(some_samples(), load_corrections(file), {"c/1.jpg": str(photo)}).added


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
