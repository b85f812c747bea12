"""Names that MLflow takes, each another; and what its errors mean."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unchoke.runs.mlflow_tracker import MlflowTracker, spell

TAKEN = re.compile(r"[/\w.\- ]+")
"""By servers on every system."""


@pytest.mark.parametrize("name", ["test/accuracy", "test/iou/晴", "test/iou/Wald und Wiese", "epoch/val_loss", "test/f1/box_2"])
def test_what_mlflow_takes_stays_as_it_is(name: str) -> None:
    assert spell(name) == name


@pytest.mark.parametrize(
    ("name", "spelt"),
    [
        ("test/r2/Gewicht (trocken)", "test/r2/Gewicht _x28_trocken_x29_"),
        ("test/r2/Gewicht [trocken]", "test/r2/Gewicht _x5b_trocken_x5d_"),
        ("test/f1/a//b", "test/f1/a/_x_/b"),
        ("test/f1/..", "test/f1/_x2e__x2e_"),
        ("test/f1/_x28_", "test/f1/_x5f_x28_"),
    ],
)
def test_other_signs_are_numbers(name: str, spelt: str) -> None:
    assert spell(name) == spelt


@settings(deadline=None)  # MLflow is loaded by the first
@given(st.text(alphabet="_xa28(\n/.晴 ", max_size=12) | st.text(max_size=30))
def test_a_name_can_be_read_back_so_no_two_are_spelt_alike(name: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    spelt = spell(f"test/{name}")
    _validate_metric_name(spelt)
    assert TAKEN.fullmatch(spelt)
    parts = ("" if part == "_x_" else part for part in spelt.split("/"))
    assert re.sub(r"_x([0-9a-f]+)_", lambda found: chr(int(found[1], 16)), "/".join(parts)) == f"test/{name}"


def test_names_that_are_too_long_stay_apart() -> None:
    long = [spell("test/iou/" + 300 * "(" + end) for end in "ab"]
    assert long[0] != long[1] and {len(one) for one in long} == {250}


@pytest.mark.parametrize(
    ("address", "code", "is_away"),
    [
        ("http://host", "INTERNAL_ERROR", True),  # also what MLflow's client calls a server that nobody reaches
        ("http://host", "UNAUTHENTICATED", False),
        ("http://host", "PERMISSION_DENIED", False),
        ("http://host", "INVALID_PARAMETER_VALUE", False),
        ("sqlite:///runs.db", "INTERNAL_ERROR", False),
    ],
)
def test_a_refusal_is_not_a_server_that_is_away(address: str, code: str, is_away: bool) -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import ErrorCode

    error = MlflowException("no", error_code=ErrorCode.Value(code))
    assert MlflowTracker(address).is_away(error) == is_away
