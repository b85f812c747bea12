"""A look at the arrays of a running function: their sizes, and nothing else of it changed."""

from __future__ import annotations

import sys
from types import FrameType

import numpy as np
import pytest
import torch
from PIL import Image

from unchoke.chokes.watch.peeks import Peeks, SameArguments


def caller() -> FrameType:
    return sys._getframe(1)


def test_the_largest_array_of_a_line_is_told() -> None:
    peeks = Peeks()

    def work() -> int:
        picture, small = np.zeros((120, 160, 3)), np.zeros((3, 8, 8), dtype=np.float32)
        peeks.look(caller())
        return picture.size + small.size

    assert work() == 120 * 160 * 3 + 192
    (seen,) = peeks.to_list()
    assert (seen["name"], seen["px"], seen["sides"], seen["dtype"]) == ("picture", 120 * 160, [120, 160], "float64")
    assert seen["file"] == __file__
    assert seen["text"] == "float64 120×160×3"


def test_pictures_count_and_other_objects_do_not() -> None:
    peeks = Peeks()

    class Odd:
        @property
        def shape(self) -> tuple[int, int]:
            raise AssertionError("the user's own code must not run")

    def work() -> None:
        image, odd = Image.new("RGB", (40, 30)), Odd()
        peeks.look(caller())
        del image, odd

    work()
    assert [(seen["name"], seen["px"]) for seen in peeks.to_list()] == [("image", 1200)]


def test_function_reading_its_own_variables_keeps_them() -> None:
    peeks = Peeks()

    def work() -> dict[str, object]:
        array = np.zeros((50, 50))
        mine = locals()
        peeks.look(caller())
        assert array is mine["array"]
        return mine

    assert "array" in work()
    assert peeks.to_list() == []


def test_a_line_is_looked_at_a_few_times_only() -> None:
    peeks = Peeks()

    def work(side: int) -> None:
        array = np.zeros((side, side))
        peeks.look(caller())
        del array

    for side in (10, 20, 30, 40, 50):
        work(side)
    assert [seen["px"] for seen in peeks.to_list()] == [900]


def test_equal_arguments_in_several_steps_are_found() -> None:
    same = SameArguments()
    constant, changing = np.arange(300.0), np.zeros(300)

    def work(array: np.ndarray, size: int, now: int) -> int:
        same.look([caller()], now)
        return size + len(array)

    def other(array: np.ndarray, now: int) -> int:
        same.look([caller()], now)
        return len(array)

    for now in range(5):
        changing[0] = now
        work(constant.copy(), 3, 0 * now)
        other(changing, now)
    assert same.to_list() == []  # the one is met in a single step, the other with other numbers each time
    for now in range(5):
        keep(same, constant.copy(), now)
    assert [(row["function"], row["met"], row["arguments"]) for row in same.to_list()] == [("held", 5, ("array",))]


def keep(same: SameArguments, array: np.ndarray, now: int) -> None:
    met = SameHolder(same, now)
    held(array) if met else None


class SameHolder:
    """What `held` looks with: its arguments are to be those of the test alone."""

    current: tuple[SameArguments, int]

    def __init__(self, same: SameArguments, now: int) -> None:
        SameHolder.current = same, now


def held(array: np.ndarray) -> int:
    same, now = SameHolder.current
    same.look([caller()], now)
    return len(array)


def test_arguments_repeated_in_later_epochs_are_counted() -> None:
    same = SameArguments()
    masks = [np.zeros((64, 64), dtype=np.uint8) for _ in range(6)]
    for number, mask in enumerate(masks):
        mask[32, 32] = number  # told apart by one pixel in the middle

    for now in range(30):
        keep(same, masks[now % 6], now)
    assert [(row["met"], row["distinct"]) for row in same.to_list()] == [(30, 6)]
    assert not any(row["function"].endswith("keep") for row in same.to_list())


def test_mutable_arguments_and_generators() -> None:
    same = SameArguments()

    def listed(values: list[int]) -> None:
        same.look([caller()], len(values))

    def generated(size: int):  # type: ignore[no-untyped-def]
        for now in range(5):
            same.look([caller()], now)
            yield size

    values: list[int] = []
    for number in range(5):
        values.append(number)
        listed(values)
    assert list(generated(3)) == [3] * 5
    assert same.to_list() == []


def given(same: SameArguments, value: object, now: int) -> None:
    SameHolder(same, now)
    taking(value)


def taking(value: object) -> object:
    same, now = SameHolder.current
    same.look([caller()], now)
    return value


def test_tensor_is_the_same_until_written_to() -> None:
    same, other = SameArguments(), SameArguments()
    kept, written = torch.ones(4, 4), torch.ones(4, 4)

    for now in range(5):
        given(same, kept, now)
        written.add_(1)
        given(other, written, now)

    assert [(row["function"], row["distinct"]) for row in same.to_list()] == [("taking", 1)]
    assert other.to_list() == []


@pytest.mark.parametrize("kind", ["fresh", "sparse", "inference", "trained", "objects", "empty"])
def test_every_kind_of_tensor_is_peeked_without_harm(kind: str) -> None:
    same = SameArguments()
    makers = {
        "fresh": lambda: torch.ones(3),
        "sparse": lambda: torch.eye(3).to_sparse(),
        "inference": inference_tensor,
        "trained": lambda: torch.ones(3, requires_grad=True),
        "objects": lambda: np.array([object(), "text"], dtype=object),
        "empty": lambda: torch.empty(0),
    }

    for now in range(5):
        given(same, makers[kind](), now)

    assert same.to_list() == []


def inference_tensor() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(3)
