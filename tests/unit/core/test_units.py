"""Numbers with units, to and from text."""

from __future__ import annotations

import pytest

from errors import refused
from unchoke.core.units import format_bytes, format_count, format_seconds, parse_bytes


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("4GB", 4 * 10**9), ("4GiB", 4 * 2**30), (" 1.5 kb ", 1500), ("512", 512), (".5m", 500_000), ("2TiB", 2 * 2**40)],
)
def test_sizes_are_read_with_their_unit(text: str, num_bytes: int) -> None:
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "4 parsecs", "1,5GB", "nan", "1e3"])
def test_what_is_no_size_is_refused_with_the_value(text: str) -> None:
    with refused("bad-size") as caught:
        parse_bytes(text)
    assert repr(text) in caught.value.what


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1536, "1.5 kB"), (2 * 10**9, "2.0 GB"), (3.2e15, "3200.0 TB"), (999_990, "1.0 MB")],
)
def test_sizes_are_shown_in_the_unit_that_suits(num_bytes: float, text: str) -> None:
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0123, "12 ms"), (1.25, "1.2 s"), (75.2, "1 min 15 s"), (3600, "1 h 0 min"), (7265, "2 h 1 min")]
)
def test_times_keep_the_digits_that_matter(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize("seconds", [0.9996, 59.97, 3599.7])
def test_a_time_just_below_a_unit_never_shows_a_full_one(seconds: float) -> None:
    assert format_seconds(seconds) in ("1.0 s", "1 min 0 s", "1 h 0 min")


def test_counts_agree_with_their_noun() -> None:
    assert format_count(1, "image") == "1 image"
    assert format_count(2000, "image") == "2,000 images"
    assert format_count(0, "class", "classes") == "0 classes"
