from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from unchoke.core.errors import UsageError
from unchoke.core.settings import Settings
from unchoke.photos.targets import TargetPlan, check_target_names, plan_targets

PASTURE = ("clover", "dead", "green", "gdm", "total")
SUMS = {"gdm": ("green", "clover"), "total": ("gdm", "dead")}
WEIGHTS = {"clover": 0.1, "dead": 0.1, "green": 0.1, "gdm": 0.2, "total": 0.5}


def test_a_sum_of_a_sum_counts_every_learned_part():
    plan = plan_targets(PASTURE, sums=SUMS)
    assert plan.learned == ("clover", "dead", "green")
    expected = [[1, 0, 0, 1, 1], [0, 1, 0, 0, 1], [0, 0, 1, 1, 1]]
    torch.testing.assert_close(plan.matrix, torch.tensor(expected, dtype=torch.float32))


def test_a_part_named_twice_counts_twice():
    plan = plan_targets(("a", "b", "s"), sums={"s": ("a", "b", "a")})
    assert plan.matrix[:, 2].tolist() == [2, 1]


def test_without_sums_every_target_is_learned():
    plan = plan_targets(("a", "b"))
    assert plan == TargetPlan(("a", "b"), ("a", "b"))
    assert torch.equal(plan.matrix, torch.eye(2))


def test_weights_follow_the_order_of_the_names():
    assert plan_targets(PASTURE, sums=SUMS, weights=dict(reversed(WEIGHTS.items()))).weights == (0.1, 0.1, 0.1, 0.2, 0.5)
    assert plan_targets(PASTURE, weights={}).weights is None


def test_a_plan_survives_json():
    plan = plan_targets(PASTURE, sums=SUMS, weights=WEIGHTS, positive=True)
    assert TargetPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    assert TargetPlan.from_dict(plan_targets(("a",)).to_dict()) == plan_targets(("a",))


@pytest.mark.parametrize(
    ("sums", "fault"),
    [
        ({"height": ("green", "dead")}, "sum 'height' is no target"),
        ({"gdm": ("green", "weeds")}, "part of 'gdm' 'weeds' is no target"),
        ({"gdm": ()}, "'gdm' is a sum of nothing"),
        ({"gdm": ("gdm", "dead")}, "'gdm' is part of itself"),
        ({"gdm": ("total", "green"), "total": ("gdm", "dead")}, "'gdm' is part of itself, 'total' is part of itself"),
    ],
)
def test_sums_that_cannot_be_derived_are_refused_with_the_reason(sums, fault):
    with pytest.raises(UsageError, match=fault):
        plan_targets(PASTURE, sums=sums)


@pytest.mark.parametrize(
    ("weights", "fault"),
    [
        ({**WEIGHTS, "height": 1.0}, "weight of 'height' is no target"),
        ({**WEIGHTS, "dead": -0.1}, "weight -0.1 of 'dead'"),
        ({**WEIGHTS, "dead": float("nan")}, "weight nan of 'dead'"),
        ({**WEIGHTS, "dead": float("inf")}, "weight inf of 'dead'"),
        ({"dead": 1.0}, "no weight for 'clover'.*no weight for 'total'"),
        (dict.fromkeys(PASTURE, 0.0), "every weight is 0"),
    ],
)
def test_weights_that_make_no_sense_are_refused_with_the_reason(weights, fault):
    with pytest.raises(UsageError, match=fault):
        plan_targets(PASTURE, weights=weights)


def test_sums_and_weights_may_name_only_targets_that_exist() -> None:
    names = ("clover", "dead", "green", "total")
    sound = {"sums": {"total": ("clover", "dead", "green")}, "target_weights": dict.fromkeys(names, 1.0)}
    check_target_names(Settings(**sound), names)
    check_target_names(Settings(), names)
    for wrong in (
        {"sums": {"all": ("clover", "dead")}},
        {"sums": {"total": ("moss", "dead")}},
        {"target_weights": {"moss": 1.0}},
    ):
        with pytest.raises(UsageError) as caught:
            check_target_names(Settings(**wrong), names)
        assert any(name in caught.value.what for name in ("'all'", "'moss'"))
        assert "'clover', 'dead', 'green', 'total'" in caught.value.why


def test_what_cannot_be_summed_or_weighted_is_refused_before_anything_is_run() -> None:
    names = ("a", "b", "c")
    with pytest.raises(UsageError, match="part of itself"):
        check_target_names(Settings(sums={"a": ("b",), "b": ("a",)}), names)
    with pytest.raises(UsageError, match="no weight for 'c'"):
        check_target_names(Settings(target_weights={"a": 1, "b": 1}), names)


@pytest.mark.parametrize("given", [{"sums": {"a": ("b",)}}, {"target_weights": {"a": 1.0}}, {"positive": True}], ids=str)
def test_classes_have_neither_sums_nor_weights_nor_signs(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="classes are learnt"):
        check_target_names(Settings(**given), ("a", "b"), kind="classification")
