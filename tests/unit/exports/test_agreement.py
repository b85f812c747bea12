"""A file that disagrees is refused, with the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from errors import refused
from unchoke.exports.agreement import AnswerLikeness, ModelAgreement, ModelSpeed, compare

GOOD = AnswerLikeness(1.0, 1e-6, 1e-7)


def agreement(*, photos: AnswerLikeness = GOOD, other_sizes: AnswerLikeness = GOOD, unit: str = "photo") -> ModelAgreement:
    return ModelAgreement("test", unit, 10, photos, [[33, 33]], other_sizes, None, ModelSpeed(0.01, 0.005, "torch", 0.02))


def test_the_same_answers_agree() -> None:
    rows = np.array([[0.9, 0.1], [0.2, 0.8]])
    assert compare(rows, rows, is_class=True) == AnswerLikeness(1.0, 0.0, 0.0)
    agreement().refuse_below(format_="onnx", precision="f32")


def test_mean_is_over_the_largest_difference_of_each() -> None:
    ours, theirs = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.5, 0.5], [0.2, 0.8]])
    assert compare(ours, theirs, is_class=True) == AnswerLikeness(1.0, pytest.approx(0.4), pytest.approx(0.2))


def test_a_number_that_is_none_is_never_near() -> None:
    found = compare(np.zeros((1, 1)), np.full((1, 1), np.nan), is_class=False)
    assert (found.top1, found.difference) == (None, np.inf)


@pytest.mark.parametrize(
    ("broken", "precision"),
    [
        ({"photos": AnswerLikeness(0.9, 1e-6, 1e-7)}, "f32"),
        ({"photos": AnswerLikeness(1.0, 0.002, 1e-4)}, "f32"),
        ({"other_sizes": AnswerLikeness(0.9, 1e-6, 1e-7)}, "f32"),
        ({"other_sizes": AnswerLikeness(1.0, 0.002, 1e-4)}, "f32"),
        ({"photos": AnswerLikeness(0.99, 0.01, 0.001)}, "f16"),
        ({"photos": AnswerLikeness(1.0, 0.04, 0.02)}, "f16"),
        ({"photos": AnswerLikeness(0.96, 0.1, 0.01)}, "int8"),
        ({"other_sizes": AnswerLikeness(1.0, 0.4, 0.1)}, "int8"),
        ({"photos": AnswerLikeness(0.999, 1e-6, 1e-7), "unit": "window"}, "f32"),
    ],
)
def test_below_the_limit_it_is_refused(broken: dict[str, AnswerLikeness], precision: str) -> None:
    with refused("export-disagrees", "onnx", precision):
        agreement(**broken).refuse_below(format_="onnx", precision=precision)  # type: ignore[arg-type]


def test_a_pixel_in_ten_thousand_may_lie_on_a_border() -> None:
    agreement(photos=AnswerLikeness(0.99995, 1e-6, 1e-7), unit="window").refuse_below(format_="onnx", precision="f32")
