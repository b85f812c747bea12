from __future__ import annotations

import json
from typing import Any

import pytest

from errors import refused
from unchoke.core.settings import Settings
from unchoke.data.targets import TargetPlan, check_target_names, plan_targets

PASTURE = ("clover", "dead", "green", "gdm", "total")
SUMS = {"gdm": ("green", "clover"), "total": ("gdm", "dead")}
WEIGHTS = {"clover": 0.1, "dead": 0.1, "green": 0.1, "gdm": 0.2, "total": 0.5}


def test_a_sum_of_a_sum_counts_every_learned_part():
    import torch

    plan = plan_targets(PASTURE, sums=SUMS)
    assert plan.learned == ("clover", "dead", "green")
    expected = [[1, 0, 0, 1, 1], [0, 1, 0, 0, 1], [0, 0, 1, 1, 1]]
    torch.testing.assert_close(plan.matrix, torch.tensor(expected, dtype=torch.float32))


def test_a_part_named_twice_counts_twice():
    plan = plan_targets(("a", "b", "s"), sums={"s": ("a", "b", "a")})
    assert plan.matrix[:, 2].tolist() == [2, 1]


def test_without_sums_every_target_is_learned():
    import torch

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
    ("sums", "named"),
    [
        ({"height": ("green", "dead")}, ("'height'",)),
        ({"gdm": ("green", "weeds")}, ("'gdm'", "'weeds'")),
        ({"gdm": ()}, ("'gdm'",)),
        ({"gdm": ("gdm", "dead")}, ("'gdm'",)),
        ({"gdm": ("total", "green"), "total": ("gdm", "dead")}, ("'gdm'", "'total'")),
    ],
)
def test_bad_sums_refused(sums, named):
    with refused("bad-sums", *named):
        plan_targets(PASTURE, sums=sums)


@pytest.mark.parametrize(
    ("weights", "named"),
    [
        ({**WEIGHTS, "height": 1.0}, ("'height'",)),
        ({**WEIGHTS, "dead": -0.1}, ("-0.1", "'dead'")),
        ({**WEIGHTS, "dead": float("nan")}, ("nan", "'dead'")),
        ({**WEIGHTS, "dead": float("inf")}, ("inf", "'dead'")),
        ({"dead": 1.0}, ("'clover'", "'green'", "'gdm'", "'total'")),
        (dict.fromkeys(PASTURE, 0.0), ()),
    ],
)
def test_bad_target_weights_refused(weights, named):
    with refused("bad-target-weights", *named):
        plan_targets(PASTURE, weights=weights)


def test_sums_and_weights_may_name_only_targets_that_exist() -> None:
    names = ("clover", "dead", "green", "total")
    sound = {"sums": {"total": ("clover", "dead", "green")}, "target_weights": dict.fromkeys(names, 1.0)}
    check_target_names(Settings(**sound), names)
    check_target_names(Settings(), names)
    for name, wrong in (
        ("'all'", {"sums": {"all": ("clover", "dead")}}),
        ("'moss'", {"sums": {"total": ("moss", "dead")}}),
        ("'moss'", {"target_weights": {"moss": 1.0}}),
    ):
        with refused("no-such-target", name, "'clover', 'dead', 'green', 'total'"):
            check_target_names(Settings(**wrong), names)


def test_target_names_checked_before_a_run() -> None:
    names = ("a", "b", "c")
    with refused("bad-sums", "'a'", "'b'"):
        check_target_names(Settings(sums={"a": ("b",), "b": ("a",)}), names)
    with refused("bad-target-weights", "'c'"):
        check_target_names(Settings(target_weights={"a": 1, "b": 1}), names)


@pytest.mark.parametrize(
    ("option", "given"),
    [("--sum", {"sums": {"a": ("b",)}}), ("--target-weight", {"target_weights": {"a": 1.0}}), ("--positive", {"positive": True})],
)
def test_classes_have_neither_sums_nor_weights_nor_signs(option: str, given: dict[str, Any]) -> None:
    with refused("option-not-for-classes", option):
        check_target_names(Settings(**given), ("a", "b"), kind="classification")
