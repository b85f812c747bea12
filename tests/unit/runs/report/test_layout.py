"""Lines and columns of plain text."""

from __future__ import annotations

from unchoke.runs.report.layout import columns, tell_apart, visible, visible_block, width


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


def test_columns_in_which_nothing_stands_are_left_out() -> None:
    lines = columns([("a", "", 1), ("b", "", 22)], header=("name", "interval", "n"), right=(2,)).splitlines()
    assert lines[0].split() == ["name", "n"]
    assert lines[2] == "a      1"
    assert columns([], header=("name", "interval")).splitlines()[0].split() == ["name", "interval"]


def test_names_that_differ_stay_different_when_they_are_cut() -> None:
    names = ["Tomato___Spider_mites Two-spotted_spider_mite", "Tomato___Spider_mites Two-spotted_other", "leaf", "Tomato___Early"]
    shown = tell_apart(names, 20)
    assert len(set(shown)) == 4
    assert max(map(len, shown)) <= 20
    assert shown[0].endswith("spider_mite")
    assert shown[2:] == ["leaf", "Tomato___Early"]


def test_names_that_no_cut_tells_apart_are_numbered() -> None:
    names = ["a" * 30 + "x" + "b" * 30, "a" * 30 + "y" + "b" * 30, *(f"{'c' * 25}{end}{'d' * 40}" for end in "xyz")]
    shown = tell_apart(names, 12)
    assert len(set(shown)) == len(names)
    assert max(map(len, shown)) <= 12
