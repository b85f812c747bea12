"""Formulas over bands give what NumPy gives, and say where they are wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from errors import refused
from unchoke.scenes.expression import parse_expression

NAMES = ("B2", "B3", "B5", "B8A")
Planes = dict[str, NDArray[Any]]


def planes() -> Planes:
    random = np.random.default_rng(5)
    return {name: random.integers(1, 4000, (30, 40)).astype(np.float32) for name in NAMES}


FORMULAS: dict[str, Callable[[Planes], Any]] = {
    "(B3-B5)/(B3+B5) > 0": lambda b: (b["B3"] - b["B5"]) / (b["B3"] + b["B5"]) > 0,
    "B2 >= 1000": lambda b: b["B2"] >= 1000,
    "(B2 > 100) & ~(B3 < 2000) | (B5 == 7)": lambda b: (b["B2"] > 100) & ~(b["B3"] < 2000) | (b["B5"] == 7),
    "B2 > 500 and not B3 > 900 or B5 == B2": lambda b: (b["B2"] > 500) & ~(b["B3"] > 900) | (b["B5"] == b["B2"]),
    "500 < B2 <= 2000": lambda b: (b["B2"] > 500) & (b["B2"] <= 2000),
    "B2 ** 2 > 3 * -B3 + 1e6": lambda b: b["B2"] ** 2 > 3 * -b["B3"] + 1e6,
    "abs(B2 - B3) < sqrt(B5) + +2": lambda b: np.abs(b["B2"] - b["B3"]) < np.sqrt(b["B5"]) + 2,
    "max(B2, B3, B5) - min(B2, 100) > 1500": lambda b: (
        np.maximum(np.maximum(b["B2"], b["B3"]), b["B5"]) - np.minimum(b["B2"], 100) > 1500
    ),
    "2 * 3 / 7 * B8A > 0.3 * B2": lambda b: 2 * 3 / 7 * b["B8A"] > 0.3 * b["B2"],
}


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_gives_what_numpy_gives(text: str) -> None:
    bands = planes()
    found = parse_expression(text, NAMES).evaluate(bands)
    assert found.dtype == np.bool_
    assert 0 < found.mean() < 1
    np.testing.assert_array_equal(found, FORMULAS[text](bands))


def test_expression_bands_in_scene_order() -> None:
    assert parse_expression("B5 > B2", NAMES).names == ("B2", "B5")


def test_band_spellings_in_expressions() -> None:
    expression = parse_expression("b02 + b8a > `near infrared`", (*NAMES, "near infrared"))
    assert expression.names == ("B2", "B8A", "near infrared")


@pytest.mark.parametrize("text", ["B2 / B3 > 0", "B2 / B3 != 7", "~(B2 / B3 > 99)", "not (B3 ** -1 > 1)", "not sqrt(B3 - 1) > 5"])
def test_undefined_arithmetic_is_out_without_warning(text: str) -> None:
    bands = {"B2": np.array([4, 4, 0], np.float32), "B3": np.array([2, 0, 0], np.float32)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = parse_expression(text, ("B2", "B3")).evaluate(bands)
    assert found.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("B9 > 0", "character 1; there are B2, B3"),
        ("B2 + ", "'B2 +'"),
        ("B2 = 3", "character 4"),
        ("B2 + B3", "'B2 + B3'"),
        ("1 > 0", "B2, B3"),
        ("", "''"),
        ("B2 > 0 & B3 > 0", "'0' at character 6"),
        ("(B2 > 0) + 1 > 0", "'B2 > 0' at character 2"),
        ("B2 > True", "'True' at character 6"),
        ("B2.max() > 0", "'B2.max()' at character 1"),
        ("log(B2) > 0", "abs, sqrt, min, max"),
        ("sqrt(B2, B3) > 0", "'sqrt(B2, B3)' at character 1"),
        ("B2 % 2 == 0", "'B2 % 2' at character 1"),
        ("B2 in (1, 2)", "'B2 in (1, 2)' at character 1"),
        ("__import__('os').system('true') > 0", "__import__('os').system('true')\" at character 1"),
        ("(" * 300 + "B2" + ")" * 300 + " > 0", "(((..."),
    ],
)
def test_what_is_no_formula_is_refused_with_the_place(text: str, place: str) -> None:
    with refused("bad-mask-formula", place):
        parse_expression(text, ("B2", "B3"))


def test_absurd_powers_end_at_once() -> None:
    assert not parse_expression("B2 > 9 ** 9 ** 9 ** 9", ("B2",)).evaluate({"B2": np.ones(3, np.float32)}).any()
