"""Decisions about single photos: read, added to, and put into samples; earlier lines stay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from errors import refused
from unchoke.core.listing import FileEntry
from unchoke.data.corrections import (
    DROP,
    GROUP,
    KEEP,
    LABEL,
    USE,
    Correction,
    append_corrections,
    apply_corrections,
    load_corrections,
    one_split,
)
from unchoke.data.sample_set import Samples, TaskSpec, build_samples


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


def test_last_line_holds_empty_takes_back(tmp_path: Path) -> None:
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


def test_lines_of_other_programs_stay(tmp_path: Path) -> None:
    """They append without our lock, between our lines."""
    file = written(tmp_path / "corrections.csv", Correction("first.jpg", USE, DROP))
    code = (
        "import sys, time\nfor n in range(200):\n"
        "    open(sys.argv[1], 'a').write(f'{n}.jpg,use,keep,them,\\n')\n    time.sleep(0.002)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(file)]) as other:
        ours = 0
        while other.poll() is None:
            append_corrections(file, [Correction(f"ours {ours}.jpg", USE, DROP)])
            ours += 1
    found = {line.photo for line in load_corrections(file).lines}
    assert found == {"first.jpg", *(f"{n}.jpg" for n in range(200)), *(f"ours {n}.jpg" for n in range(ours))}


def test_file_that_is_not_utf8_takes_no_lines(tmp_path: Path) -> None:
    file = tmp_path / "corrections.csv"
    file.write_bytes("photo,what,value\näpfel.jpg,use,drop\n".encode("latin-1"))
    before = file.read_bytes()
    with refused("unreadable-corrections"):
        append_corrections(file, [Correction("a.jpg", USE, KEEP)])
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a.jpg,use,perhaps", "'perhaps'"),
        ("a.jpg,colour,red", "'colour'"),
        (",label,b", "corrections.csv"),
        ("a.jpg,value:x,many", "'many'"),
    ],
)
def test_a_line_that_makes_no_sense_is_named(tmp_path: Path, line: str, says: str) -> None:
    file = tmp_path / "corrections.csv"
    file.write_text(f"photo,what,value\nb.jpg,label,b\n{line}\n")
    with refused("bad-correction", "line 3", says):
        load_corrections(file)


def test_corrections_without_columns_refused(tmp_path: Path) -> None:
    file = tmp_path / "corrections.csv"
    file.write_text("file,label\na.jpg,b\n")
    with refused("unreadable-corrections", "photo,what,value"):
        load_corrections(file)


@pytest.mark.parametrize(
    ("data", "code", "named"),
    [
        (b"photo,what,value\na.jpg,use\n", "bad-correction", ("line 2",)),
        ("photo,what,value\nä.jpg,label,b\n".encode("latin-1"), "unreadable-corrections", ("line 2", "0xe4")),
        ("photo,what,value\n".encode("utf-16"), "unreadable-corrections", ("UTF-16",)),
        (b'photo,what,value\na.jpg,label,b\n"b.jpg,label', "unreadable-corrections", ("line 3",)),
        ("photo,what,value\na.jpg,label,ä".encode()[:-1], "unreadable-corrections", ("line 2", "0xc3")),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path: Path, data: bytes, code: str, named: tuple[str, ...]) -> None:
    file = tmp_path / "corrections.csv"
    file.write_bytes(data)
    with refused(code, str(file), *named):
        load_corrections(file)


@pytest.mark.parametrize("mark", [";", "\t"])
def test_spreadsheet_dialects_kept(tmp_path: Path, mark: str) -> None:
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
    with refused("bad-correction", "'maybe'"):
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


def test_unused_decisions_named_with_reason(tmp_path: Path) -> None:
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
    assert "`unchoke check`" in found.choice(load_corrections(file)).reason
    (finding,) = found.findings
    assert finding.code == "corrections-unused"
    assert {(photo, what): why for photo, what, _, why in finding.evidence["decisions"]} == {
        ("a/1.jpg", "group"): "there is no such photo to be with",
        ("a/2.jpg", "value:x"): "the photos have labels and no values",
        ("b/1.jpg", "group"): "the other photo is dropped",
        ("c/1.jpg", "label"): "the photo is dropped",
    }
    assert "'nope.jpg'" in finding.message


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


def test_group_goes_to_its_majority_side() -> None:
    sides = one_split(["g", "g", "g", "h", "h", ""], ["test", "test", "train", "val", "train", "test"])
    assert sides == ["test", "test", "test", "train", "train", "test"]
