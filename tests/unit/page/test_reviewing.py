"""The review: what each key writes, what it shows next, and what is taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from pages import OWN, guest, save_findings
from unchoke.curation.data_finding import DataFinding
from unchoke.data.corrections import Correction, load_corrections
from unchoke.page.catalogue import photo_id
from unchoke.page.reviewing import label_choices

A, B, C = "apple/apple 00.jpg", "apple/apple 01.jpg", "leaf/leaf 02.jpg"


@pytest.fixture
def reviewed(workspace: Path) -> Path:
    """A workspace with two findings: a label, and two copies."""
    label = DataFinding("label", "A may be a plum", (A,), 0.9, {}, (Correction(A, "label", "plum"),))
    copies = DataFinding("copies-torn", "B and C are copies", (B, C), 0.5, {}, (Correction(C, "group", B),))
    classes = DataFinding("classes", "cannot be told apart", (), 0.4, about=("apple", "plum"))
    save_findings(workspace, [label, copies, classes])
    return workspace


def standing(root: Path) -> dict[tuple[str, str], str]:
    file = root / "corrections.csv"
    return {key: line.value for key, line in load_corrections(file).standing.items()} if file.exists() else {}


def finding_in(page: str) -> str:
    return page.split('data-finding="')[1].split('"')[0]


def press(client: TestClient, page: str, act: str, photo: str, value: str = "") -> str:
    told = {"act": act, "value": value, "finding": finding_in(page), "photo": photo_id(photo)}
    answer = client.post("/undo" if act == "undo" else "/decide", json=told, headers=OWN)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_a_decision_is_a_line_and_the_next_finding_follows(reviewed: Path) -> None:
    client = guest(reviewed)
    page = client.get("/review").text
    assert "A may be a plum" in page
    assert "2 to decide" in page
    following = press(client, page, "label", A, "leaf")
    assert standing(reviewed) == {(A, "label"): "leaf"}
    assert "B and C are copies" in following
    assert "1 to decide" in following


@pytest.mark.parametrize(
    ("act", "line"), [("drop", ((A, "use"), "drop")), ("keep", ((A, "use"), "keep")), ("accept", ((A, "label"), "plum"))]
)
def test_each_key_writes_its_decision(reviewed: Path, act: str, line: tuple[tuple[str, str], str]) -> None:
    client = guest(reviewed)
    press(client, client.get("/review").text, act, A)
    assert standing(reviewed) == dict([line])


def test_undo_takes_back_the_last_decision(reviewed: Path) -> None:
    client = guest(reviewed)
    following = press(client, client.get("/review").text, "drop", A)
    back = press(client, following, "undo", A)
    assert standing(reviewed) == {}
    assert "A may be a plum" in back
    assert len(load_corrections(reviewed / "corrections.csv").lines) == 2


def test_undo_goes_further_back_after_a_restart(reviewed: Path) -> None:
    client = guest(reviewed)
    page = press(client, client.get("/review").text, "drop", A)
    page = press(client, page, "keep", B)
    later = guest(reviewed)
    press(later, later.get("/review").text, "undo", A)
    assert standing(reviewed) == {(A, "use"): "drop"}
    press(later, later.get("/review").text, "undo", A)
    assert standing(reviewed) == {}
    press(later, later.get("/review").text, "undo", A)
    assert len(load_corrections(reviewed / "corrections.csv").lines) == 4


def test_lines_of_one_decision_are_taken_back_together(reviewed: Path) -> None:
    both = DataFinding("copies", "copies", (A, B), 1.0, {}, (Correction(A, "use", "drop"), Correction(B, "use", "drop")))
    save_findings(reviewed, [both])
    client = guest(reviewed)
    page = press(client, client.get("/review").text, "accept", A)
    assert len(standing(reviewed)) == 2
    press(client, page, "undo", A)
    assert standing(reviewed) == {}


def test_a_finding_stays_until_its_photos_are_decided(reviewed: Path) -> None:
    both = DataFinding("outlier", "two odd ones", (A, B), 1.0)
    save_findings(reviewed, [both])
    client = guest(reviewed)
    page = press(client, client.get("/review").text, "keep", A)
    assert "two odd ones" in page
    assert f'data-photo="{photo_id(B)}"' in page
    assert "All decided" in press(client, page, "keep", B)


def test_what_no_decision_settles_is_not_in_the_queue(reviewed: Path) -> None:
    client = guest(reviewed)
    page = press(client, client.get("/review").text, "keep", A)
    assert "All decided" in press(client, page, "accept", B)


@pytest.mark.parametrize("told", [b"[]", b"nonsense", b'{"photo": 1}', b'{"act": "label"}', b'{"act": "burn"}'])
def test_no_decision_is_refused_and_not_written(reviewed: Path, told: bytes) -> None:
    answer = guest(reviewed).post("/decide", content=told, headers=OWN)
    assert answer.status_code == 400
    assert not (reviewed / "corrections.csv").exists()


def test_unknown_act_about_a_photo_is_refused(reviewed: Path) -> None:
    answer = guest(reviewed).post("/decide", json={"act": "burn", "photo": photo_id(A)}, headers=OWN)
    assert answer.status_code == 400
    assert "no decision" in answer.text


def test_a_photos_own_page_decides_without_a_finding(reviewed: Path) -> None:
    client = guest(reviewed)
    answer = client.post("/decide", json={"act": "label", "value": "plum", "photo": photo_id(C)}, headers=OWN)
    assert answer.text.strip() == "plum"
    rows = client.get("/photos/rows", params={"start": 0, "count": 500, "name": "leaf 02"}).json()
    assert [row["decided"] for row in rows] == ["plum"]


def test_keys_for_all_or_the_likeliest_classes() -> None:
    few, many = ["a", "b", "c"], [f"c{number:02d}" for number in range(30)]
    assert label_choices(few, ["c"]) == few
    chosen = label_choices(many, ["c20", "", "c05"])
    assert chosen[:3] == ["c20", "c05", "c00"]
    assert len(chosen) == 9


@pytest.mark.parametrize("text", ["{}", '{"findings": [1]}', "[" * 100_000], ids=["nothing", "a number", "deep"])
def test_findings_that_cannot_be_read_are_told_of(reviewed: Path, text: str) -> None:
    (reviewed / "curation" / "findings.json").write_text(text)
    answer = guest(reviewed).get("/review")
    assert answer.status_code == 400
    assert "unchoke curate" in answer.text


def test_what_somebody_else_wrote_is_not_taken_back(reviewed: Path) -> None:
    file = reviewed / "corrections.csv"
    file.write_text(f"photo,what,value,who,when\n{C},use,keep,somebody else,\n")
    client = guest(reviewed)
    page = client.get("/review").text
    for act in ("drop", "undo", "undo", "undo"):
        press(client, page, act, A)
    assert standing(reviewed) == {(C, "use"): "keep"}


def test_a_file_that_cannot_be_opened_is_said_in_words(reviewed: Path) -> None:
    (reviewed / "corrections.csv").mkdir()
    client = guest(reviewed)
    for answer in (client.get("/review"), client.post("/decide", json={"act": "drop", "photo": photo_id(A)}, headers=OWN)):
        assert answer.status_code == 400
        assert "corrections.csv" in answer.text


@pytest.fixture
def weighed(tmp_path: Path) -> Path:
    """A workspace of photos with two values, one of which is doubted."""
    rows = [f"p{n}.jpg,/data/p{n}.jpg,{n},{n / 4},{n},,{'test' if n % 4 == 0 else 'train'}" for n in range(8)]
    (tmp_path / "manifest.csv").write_text("\n".join(["sample_id,path,mass,height,input/age,group,split", *rows]) + "\n")
    finding = DataFinding("value", "p3.jpg has mass 3; others say 9", ("p3.jpg",), 0.9, {"target": "mass", "value": 3.0})
    save_findings(tmp_path, [finding])
    return tmp_path


def test_typed_value_becomes_the_target(weighed: Path) -> None:
    client = guest(weighed)
    page = client.get("/review").text
    assert "height 0.75" in page
    assert page.index('<option value="mass">') < page.index('<option value="height">'), "the one that is doubted comes first"
    assert "input/age" not in page
    empty = press(client, page, "value:mass", "p3.jpg", " 9.5 ")
    assert "All decided" in empty
    assert standing(weighed) == {("p3.jpg", "value:mass"): "9.5"}
    rows = client.get("/photos/rows?start=3&count=1").json()
    assert (rows[0]["label"], rows[0]["decided"]) == ("mass 3, height 0.75", "mass 9.5")
    press(client, page, "undo", "p3.jpg")
    assert standing(weighed) == {}


@pytest.mark.parametrize(
    ("act", "value", "words"),
    [
        ("value:mass", "nine", "is not a number"),
        ("value:mass", "9,5", "is not a number"),
        ("value:mass", "inf", "not a finite number"),
        ("value:mass", "", "is no decision"),
        ("value:age", "9", "mass, height"),
        ("value:", "9", "have no value"),
    ],
)
def test_what_is_no_value_is_refused(weighed: Path, act: str, value: str, words: str) -> None:
    told = {"act": act, "value": value, "finding": "", "photo": photo_id("p3.jpg")}
    answer = guest(weighed).post("/decide", json=told, headers=OWN)
    assert answer.status_code == 400
    assert words in answer.text
    assert standing(weighed) == {}


def test_undo_goes_back_to_somebody_elses_decision(reviewed: Path) -> None:
    (reviewed / "corrections.csv").write_text(f"photo,what,value,who,when\n{A},label,leaf,somebody else,\n")
    client = guest(reviewed)
    page = client.get("/review").text
    for label in ("plum", "kudu", "plum"):
        press(client, page, "label", A, label)
    found = []
    for _ in range(5):
        found.append(standing(reviewed)[A, "label"])
        press(guest(reviewed), page, "undo", A)
    assert found == ["plum", "kudu", "plum", "leaf", "leaf"]


def test_in_a_file_that_nobody_signs_undo_works_too(reviewed: Path) -> None:
    (reviewed / "corrections.csv").write_text("photo,what,value\n")
    client = guest(reviewed)
    page = client.get("/review").text
    press(client, page, "drop", A)
    press(client, page, "undo", A)
    assert standing(reviewed) == {}


def test_findings_without_photos_are_there_to_be_read(tmp_path: Path) -> None:
    save_findings(tmp_path, [DataFinding("scene", "scene 's3' is contradicted", (), 0.9, about=("s3",))])
    page = guest(tmp_path).get("/review").text
    assert "Nothing to decide" in page
    assert "scene &#39;s3&#39; is contradicted" in page


@pytest.mark.parametrize("content", ["photo,what,value\näpfel.jpg,use,drop\n".encode("latin-1"), b"photo,what,value\nhalf a li"])
def test_file_that_cannot_be_read_is_told_and_takes_no_line(reviewed: Path, content: bytes) -> None:
    file = reviewed / "corrections.csv"
    client = guest(reviewed)
    page = client.get("/review").text
    file.write_bytes(content)
    told = {"act": "drop", "finding": finding_in(page), "photo": photo_id(A)}
    assert client.post("/decide", json=told, headers=OWN).status_code == 400
    assert client.get("/review").status_code == 400
    assert file.read_bytes() == content


def test_json_nested_too_deeply_is_told(reviewed: Path) -> None:
    client, deep = guest(reviewed), "[" * 200_000
    assert client.post("/decide", content=deep, headers=OWN).status_code == 400
    (reviewed / "curation" / "findings.json").write_text(deep)
    assert client.get("/review").status_code == 400
