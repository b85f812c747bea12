from __future__ import annotations

import json
from pathlib import Path

import pytest

from errors import refused
from unchoke.data.table import is_missing, read_table, sniff_delimiter


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize(("name", "mark"), [("t.csv", ","), ("t.csv", ";"), ("t.csv", "\t"), ("t.tsv", "\t")])
def test_the_delimiter_is_read_from_the_header(tmp_path: Path, name: str, mark: str) -> None:
    frame = read_table(write(tmp_path / name, f"id{mark}label\n01{mark}NA\n"))
    assert frame.to_dict("records") == [{"id": "01", "label": "NA"}]


def test_delimiters_inside_quotes_do_not_count() -> None:
    assert sniff_delimiter('"a,b,c";d\n1;2\n') == ";"


def test_bom_and_header_spaces_dropped(tmp_path: Path) -> None:
    assert read_table(write(tmp_path / "t.csv", b"\xef\xbb\xbf id , label\n1,2\n")).columns.tolist() == ["id", "label"]


def test_quoted_cells_keep_commas_quotes_and_line_breaks(tmp_path: Path) -> None:
    frame = read_table(write(tmp_path / "t.csv", 'id,label\n"a,""b""\nc.jpg",x\n'))
    assert frame["id"].tolist() == ['a,"b"\nc.jpg']


@pytest.mark.parametrize(
    ("encoding", "told"), [("cp1252", "cp1252, as line 3 holds the byte 0xe9"), ("utf-16", "UTF-16"), ("utf-16-le", "UTF-16")]
)
def test_other_encodings_are_recognised_and_said(tmp_path: Path, encoding: str, told: str) -> None:
    frame = read_table(write(tmp_path / "t.csv", "id,label\n1,ok\n2,café\n".encode(encoding)))
    assert frame["label"].tolist() == ["ok", "café"]
    assert frame.attrs["encoding"].startswith(told)


def test_json_lines_lists_and_workbooks(tmp_path: Path) -> None:
    import pandas as pd

    rows = [{"file_name": "a.jpg", "tags": ["x", "w"], "n": 1.0, "box": {"x": 1}}, {"file_name": "b.jpg", "tags": []}]
    write(tmp_path / "t.jsonl", "\n".join(map(json.dumps, rows)))
    assert read_table(tmp_path / "t.jsonl").to_dict("list") == {
        "file_name": ["a.jpg", "b.jpg"],
        "tags": ["w|x", ""],
        "n": ["1", ""],
    }
    write(tmp_path / "t.json", json.dumps({"a.jpg": "cat", "b.jpg": "dog"}))
    assert read_table(tmp_path / "t.json")["label"].tolist() == ["cat", "dog"]
    pd.DataFrame({"id": ["01", "2"], "label": [1, 2.5]}).to_excel(tmp_path / "t.xlsx", index=False)
    assert read_table(tmp_path / "t.xlsx").to_dict("list") == {"id": ["01", "2"], "label": ["1", "2.5"]}


def test_pictures_in_parquet_are_unpacked_once(tmp_path: Path) -> None:
    import pandas as pd

    data = b"\xff\xd8\xff rest"
    pd.DataFrame({"image": [{"bytes": data, "path": None}] * 2, "label": [0, 1]}).to_parquet(tmp_path / "t.parquet")
    frame = read_table(tmp_path / "t.parquet", unpack_to=tmp_path / "pictures")
    column, folder = frame.attrs["pictures"]
    assert (column, frame["image"].tolist()) == ("image", ["0000000.jpg", "0000001.jpg"])
    assert [(folder / name).read_bytes() for name in frame["image"]] == [data, data]
    (folder / "0000000.jpg").write_bytes(b"kept")
    read_table(tmp_path / "t.parquet", unpack_to=tmp_path / "pictures")
    assert (folder / "0000000.jpg").read_bytes() == b"kept"


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_file_has_zero_rows(tmp_path: Path, text: str) -> None:
    with refused("empty-table", "t.csv"):
        read_table(write(tmp_path / "t.csv", text))


@pytest.mark.parametrize(("text", "line"), [("id,label\n1,2\n1,2,3\n", "line 3"), ("id,label\na,b.jpg,cat\n", "line 2")])
def test_row_with_too_many_cells_refused(tmp_path: Path, text: str, line: str) -> None:
    with refused("malformed-table", line):
        read_table(write(tmp_path / "t.csv", text))


def test_open_quote_refused_short_row_filled(tmp_path: Path) -> None:
    with refused("malformed-table", "t.csv"):
        read_table(write(tmp_path / "t.csv", 'id,label\n"1,2\n3,4\n'))
    assert read_table(write(tmp_path / "t.csv", "id,label\n1\n")).to_dict("records") == [{"id": "1", "label": ""}]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    with refused("duplicate-columns", "'label'"):
        read_table(write(tmp_path / "t.csv", "id,label,label \n1,2,3\n"))


def test_parquet_cells_read_like_csv_cells(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {"id": ["a", None], "label": [1.0, float("nan")], "n": [3, 4], "pixels": [b"x", b"y"], "box": [[1], [2]]}
    )
    frame.to_parquet(tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet")
    assert read.to_dict("list") == {"id": ["a", ""], "label": ["1", ""], "n": ["3", "4"]}


def test_a_file_that_is_no_parquet_is_explained(tmp_path: Path) -> None:
    with refused("malformed-table", "t.parquet"):
        read_table(write(tmp_path / "t.parquet", "not parquet at all"))


def test_other_files_are_refused(tmp_path: Path) -> None:
    with refused("malformed-table", "t.xlsx"):
        read_table(write(tmp_path / "t.xlsx", b"PK"))
    with refused("not-a-table", "'t.ods'"):
        read_table(write(tmp_path / "t.ods", b"PK"))


def test_none_is_a_word_and_na_is_not() -> None:
    assert all(map(is_missing, ("", " ", "NA", "nan", "NULL", "N/A")))
    assert not any(map(is_missing, ("none", "None", "0", "no")))


def test_too_many_columns_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text(",".join(f"c{number}" for number in range(100_000)) + "\n")
    with refused("table-too-wide", "100,000"):
        read_table(tmp_path / "wide.csv")


def test_a_table_of_many_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "large.csv").open("wb") as file:
        file.truncate(8_000_000_000)
    with refused("table-too-large", "8.0 GB"):
        read_table(tmp_path / "large.csv")
