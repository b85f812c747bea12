"""Rules by name: codes, groups, and the nearest where there is none."""

from __future__ import annotations

import pytest

from errors import refused
from unchoke.linting.rules import GROUPS, all_rules, rule_named, split_names


def test_rules_stand_by_group_and_each_has_a_page() -> None:
    rules = all_rules()
    assert [loaded.rule.group for loaded in rules] == sorted((loaded.rule.group for loaded in rules), key=GROUPS.index)
    assert all(loaded.page for loaded in rules)


def test_names_may_be_joined_by_commas_or_repeated() -> None:
    assert split_names(["input, stat-per-sample", "device"]) == ["input", "stat-per-sample", "device"]
    assert split_names(None) == []


@pytest.mark.parametrize(("typed", "meant"), [("stat-per-smple", "stat-per-sample"), ("inputs", "input"), ("Input", "input")])
def test_a_slip_is_answered_with_the_nearest_name(typed: str, meant: str) -> None:
    with refused("unknown-rule", repr(typed), f"did you mean {meant}"):
        split_names([typed])


def test_what_resembles_nothing_is_refused_too() -> None:
    with refused("unknown-rule", "zzzzzz", "unchoke lint --list-rules") as caught:
        rule_named("zzzzzz")
    assert "did you mean" not in caught.value.why


def test_a_rule_is_found_by_its_code_or_its_files_name() -> None:
    assert rule_named("stat_per_sample").rule.code == rule_named("stat-per-sample").rule.code
