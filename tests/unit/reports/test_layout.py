"""Lines and columns of plain text."""

from __future__ import annotations

from unchoke.reports.layout import columns, visible, visible_block, width


def test_control_characters_are_shown_not_obeyed() -> None:
    assert visible("a\x1b[2Jb\u202ec\x9bd\n\r\x07") == "a\\x1b[2Jb\\u202ec\\x9bd\\n\\r\\x07"


def test_undecodable_bytes_of_a_name_can_be_printed() -> None:
    visible("photo\udcff.jpg").encode("utf-8")


def test_ordinary_text_of_any_script_is_untouched() -> None:
    assert visible("Äpfel/りんご [bold]ü 👩‍🌾.jpg") == "Äpfel/りんご [bold]ü 👩‍🌾.jpg"


def test_a_block_keeps_its_lines() -> None:
    assert visible_block("a\n\tb\x1b") == "a\n\tb\\x1b"


def test_columns_align_by_screen_width() -> None:
    lines = columns([("りんご", 1, "x"), ("pear", 22, "y")], header=("class", "n", ""), right=(1,)).splitlines()
    assert {width(line[: line.index(end)]) for line, end in zip(lines[2:], "xy", strict=True)} == {12}
    assert lines[2].endswith(" 1  x")


def test_no_rows_and_no_header_give_no_text() -> None:
    assert columns([]) == ""
