"""A file that disagrees is refused, with the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from unchoke.core.errors import DataError
from unchoke.portable.agreement import LIMITS, ModelAgreement, compare


def agreement(*, top1: float | None = 1.0, difference: float = 1e-6) -> ModelAgreement:
    return ModelAgreement("test", 10, top1, difference, [[33, 33]], top1, difference, None, None, 0.01, 0.02)


def test_the_same_answers_agree() -> None:
    rows = np.array([[0.9, 0.1], [0.2, 0.8]])
    assert compare(rows, rows, is_class=True, scale=1.0) == (1.0, 0.0)
    agreement().refuse_below(LIMITS["f32"], format_="onnx", precision="f32")


def test_a_number_that_is_none_is_never_near() -> None:
    assert compare(np.zeros((1, 1)), np.full((1, 1), np.nan), is_class=False, scale=1.0) == (None, np.inf)


@pytest.mark.parametrize("broken", [{"top1": 0.9}, {"difference": 0.002}])
def test_below_the_limit_it_is_refused(broken: dict[str, float]) -> None:
    with pytest.raises(DataError, match="does not answer as the run does") as told:
        agreement(**broken).refuse_below(LIMITS["f32"], format_="onnx", precision="f32")
    assert "f32 promises 100 % and at most 0.001" in told.value.why
