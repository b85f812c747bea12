"""Augmented views stay inside the picture and depend on nothing but the sample and their number."""

from hypothesis import given
from hypothesis import strategies as st

from unchoke.photos.pixels.augment import Window, plan_view

SIDES = st.integers(min_value=1, max_value=3000)


@given(st.text(max_size=20), st.integers(1, 50), SIDES, SIDES)
def test_a_view_lies_inside_the_picture(sample_id: str, number: int, height: int, width: int) -> None:
    window = plan_view(sample_id, number, height=height, width=width)
    assert window.top >= 0 and window.top + window.height <= height and window.height >= 1
    assert window.left >= 0 and window.left + window.width <= width and window.width >= 1


def test_the_same_view_is_the_same_every_time_and_others_differ() -> None:
    again = [plan_view("a/b.jpg", 1, height=300, width=400) for _ in range(2)]
    assert again[0] == again[1]
    assert len({plan_view("a/b.jpg", number, height=300, width=400) for number in range(1, 9)}) == 8
    assert plan_view("a/c.jpg", 1, height=300, width=400) != again[0]


def test_view_zero_is_the_whole_picture() -> None:
    assert plan_view("x", 0, height=30, width=40) == Window(0, 0, 30, 40)
