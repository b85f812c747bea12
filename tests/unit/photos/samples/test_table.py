from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from unchoke.core.errors import DataError, UsageError
from unchoke.photos.samples.table import is_missing, read_table, sniff_delimiter


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize(("name", "mark"), [("t.csv", ","), ("t.csv", ";"), ("t.csv", "\t"), ("t.tsv", "\t")])
def test_the_delimiter_is_read_from_the_header(tmp_path: Path, name: str, mark: str) -> None:
    frame = read_table(write(tmp_path / name, f"id{mark}label\n01{mark}NA\n"))
    assert frame.to_dict("records") == [{"id": "01", "label": "NA"}]


def test_delimiters_inside_quotes_do_not_count() -> None:
    assert sniff_delimiter('"a,b,c";d\n1;2\n') == ";"


def test_a_byte_order_mark_and_spaces_in_the_header_are_dropped(tmp_path: Path) -> None:
    assert read_table(write(tmp_path / "t.csv", b"\xef\xbb\xbf id , label\n1,2\n")).columns.tolist() == ["id", "label"]


def test_quoted_cells_keep_commas_quotes_and_line_breaks(tmp_path: Path) -> None:
    frame = read_table(write(tmp_path / "t.csv", 'id,label\n"a,""b""\nc.jpg",x\n'))
    assert frame["id"].tolist() == ['a,"b"\nc.jpg']


def test_latin1_is_refused_with_the_line_and_a_command_that_mends_it(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_table(write(tmp_path / "t.csv", "id,label\n1,ok\n2,café\n".encode("latin-1")))
    assert "UTF-8" in caught.value.what
    assert "line 3" in caught.value.why
    assert "0xe9" in caught.value.why
    assert caught.value.try_.startswith("iconv -f WINDOWS-1252 -t UTF-8 ")


def test_utf16_is_recognised_by_its_mark(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_table(write(tmp_path / "t.csv", "id,label\n".encode("utf-16")))
    assert "iconv -f UTF-16" in caught.value.try_


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_file_has_zero_rows(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match="zero rows"):
        read_table(write(tmp_path / "t.csv", text))


@pytest.mark.parametrize(("text", "line"), [("id,label\n1,2\n1,2,3\n", "line 3"), ("id,label\na,b.jpg,cat\n", "line 2")])
def test_a_row_with_too_many_cells_is_named_and_never_cut_short(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(DataError) as caught:
        read_table(write(tmp_path / "t.csv", text))
    assert line in caught.value.why


def test_an_open_quote_is_refused_and_a_short_row_is_filled_with_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="well-formed"):
        read_table(write(tmp_path / "t.csv", 'id,label\n"1,2\n3,4\n'))
    assert read_table(write(tmp_path / "t.csv", "id,label\n1\n")).to_dict("records") == [{"id": "1", "label": ""}]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'label'"):
        read_table(write(tmp_path / "t.csv", "id,label,label \n1,2,3\n"))


def test_parquet_cells_read_like_csv_cells(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"id": ["a", None], "label": [1.0, float("nan")], "n": [3, 4], "pixels": [b"x", b"y"], "box": [[1], [2]]}
    )
    frame.to_parquet(tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet")
    assert read.to_dict("list") == {"id": ["a", ""], "label": ["1", ""], "n": ["3", "4"]}


def test_a_file_that_is_no_parquet_is_explained(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Parquet"):
        read_table(write(tmp_path / "t.parquet", "not parquet at all"))


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"t\.xlsx"):
        read_table(write(tmp_path / "t.xlsx", b"PK"))


def test_none_is_a_word_and_na_is_not() -> None:
    assert all(map(is_missing, ("", " ", "NA", "nan", "NULL", "N/A")))
    assert not any(map(is_missing, ("none", "None", "0", "no")))


def test_a_table_of_too_many_columns_is_refused_before_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text(",".join(f"c{number}" for number in range(100_000)) + "\n")
    with pytest.raises(DataError, match="100,000 columns"):
        read_table(tmp_path / "wide.csv")


def test_a_table_of_many_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "large.csv").open("wb") as file:
        file.truncate(8_000_000_000)
    with pytest.raises(DataError, match="too large for a table"):
        read_table(tmp_path / "large.csv")
