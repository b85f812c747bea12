"""Tables with every kind of fault: the command says so in words, all at once, with the right exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
import scene

HEADER = "image_id,dx,lesion_id\n"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table") / "images"
    folder.mkdir()
    for index in range(24):
        scene.make_photo(folder / f"i{index}.jpg", index % 3, index)
    return folder


def rows(*extra: str, num: int = 24) -> str:
    return (
        HEADER + "".join(f"i{index},class{index % 3},l{index}\n" for index in range(num)) + "".join(f"{row}\n" for row in extra)
    )


def check(images: Path, tmp_path: Path, content: str | bytes, *extra: str, command: str = "check") -> scene.Ended:
    """Run a command on a table with this content."""
    table = tmp_path / "metadata.csv"
    table.write_bytes(content if isinstance(content, bytes) else content.encode())
    usual = ("--images", str(images), "--id", "image_id", "--label", "dx", "--out", str(tmp_path / "out"))
    return scene.unchoke(command, str(table), *usual, *extra)


def codes(ended: scene.Ended) -> dict[str, str]:
    return {finding["code"]: finding["severity"] for finding in ended.result["result"]["findings"]}


def test_missing_columns(images: Path, tmp_path: Path) -> None:
    ended = check(images, tmp_path, rows(), "--group", "patient", "--split", "part")
    assert ended.code == 2, ended.stderr
    assert ended.says_error("no-such-column", "patient", "part", "image_id")


def test_zero_rows(images: Path, tmp_path: Path) -> None:
    for content in ("", HEADER):
        ended = check(images, tmp_path, content)
        assert ended.code == 1, ended.stderr
        assert ended.says_error("empty-table", "metadata.csv")


@pytest.mark.parametrize(("encoding", "named"), [("utf-16", "UTF-16"), ("latin-1", "cp1252")])
def test_other_encoding(images: Path, tmp_path: Path, encoding: str, named: str) -> None:
    ended = check(images, tmp_path, rows("i0,Größe,l0").encode(encoding))
    assert f"encoding {named}" in ended.stderr
    assert "table-not-utf8" not in ended.stdout


def test_all_faults_at_once(images: Path, tmp_path: Path) -> None:
    content = rows("i1,class2,l1", "i2,class2,l2", "i3,NaN,l3", "nowhere,class1,l9", num=22) + "i22,,l22\ni23,lonely,l23\n"
    ended = check(images, tmp_path, content, "--json")
    assert ended.code == 1
    found = codes(ended)
    assert len([code for code, severity in found.items() if severity == "error"]) >= 3, found
    messages = " ".join(finding["message"] for finding in ended.result["result"]["findings"])
    for part in ("nowhere", "i1", "lonely"):
        assert part in messages, messages

    in_words = check(images, tmp_path, content, command="fit")
    assert in_words.code == 1
    assert in_words.says_error("unsound-data", "nowhere")
    assert not (tmp_path / "out" / "features").exists()


def test_class_with_one_image(place: scene.Place, images: Path, tmp_path: Path) -> None:
    content = rows(num=23) + "i23,lonely,l23\n"
    ended = check(images, tmp_path, content, "--json")
    assert ended.code == 0, ended.stdout
    assert any("lonely" in finding["message"] for finding in ended.result["result"]["findings"])
    tiny = ("--encoder", scene.ENCODER, "--weights", str(place.weights), "--engine", "torch", "--epochs", "2")
    fitted = check(images, tmp_path, content, *tiny, command="fit")
    assert fitted.code == 0, fitted.stderr
