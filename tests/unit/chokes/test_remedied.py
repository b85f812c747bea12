"""Verdicts about remedies, from made-up runs."""

from __future__ import annotations

import pytest

from unchoke.chokes import remedied
from unchoke.chokes.remedied import Trial, judge

LOSSES = (1.5, 1.25, 1.125, 1.0625, 1.03125)


def trial(step_s: float, losses: tuple[float, ...] = LOSSES, *, done: int = 0, note: str = "") -> Trial:
    return Trial(tuple(step_s * number for number in range(1, 6)), losses, done, note)


def changed(by: float) -> tuple[float, ...]:
    return tuple(loss * (1 + by) for loss in LOSSES)


def test_a_faster_run_with_the_same_losses_has_helped() -> None:
    tried = judge("cached-stat", [trial(0.2), trial(0.21)], [trial(0.1, done=3), trial(0.105, done=3)])
    assert (tried.helped, tried.losses, tried.steps) == (True, remedied.EQUAL, 5)
    assert tried.ratio == pytest.approx(2.0)
    assert tried.sentence() == "tried: 2.00× as fast, losses equal over 5 steps"


@pytest.mark.parametrize(
    ("remedy", "by", "expected"),
    [
        ("cached-stat", 1e-8, remedied.ROUNDED),
        ("cached-stat", 1e-3, remedied.DIFFERENT),
        ("draft-jpeg", 1e-2, remedied.NEARLY),
        ("draft-jpeg", 1e-1, remedied.DIFFERENT),
        ("cached-stat", float("nan"), remedied.DIFFERENT),
    ],
)
def test_losses_are_held_to_what_the_remedy_may_change(remedy: str, by: float, expected: str) -> None:
    tried = judge(remedy, [trial(0.2), trial(0.2)], [trial(0.1, changed(by), done=1)] * 2)
    assert tried.losses == expected
    assert tried.helped is (expected != remedied.DIFFERENT)


def test_a_faster_run_with_other_losses_is_refused() -> None:
    tried = judge("workers:2", [trial(0.2), trial(0.2)], [trial(0.1, changed(0.5), done=1)] * 2)
    assert not tried.helped
    assert tried.sentence().startswith("tried and refused: 2.00× as fast, losses different over 5 steps (numbers differ where")


def test_a_script_whose_own_runs_differ_is_judged_by_that() -> None:
    plain = [trial(0.2), trial(0.2, changed(1e-3))]
    assert judge("cached-stat", plain, [trial(0.1, changed(5e-4), done=1)] * 2).losses == remedied.AS_PLAIN
    assert judge("cached-stat", plain, [trial(0.1, changed(1e-2), done=1)] * 2).losses == remedied.DIFFERENT


def test_a_gain_below_the_noise_is_no_gain() -> None:
    tried = judge("cached-stat", [trial(0.2), trial(0.26)], [trial(0.15, done=1), trial(0.21, done=1)])
    assert not tried.helped
    assert "no clear gain" in tried.note


def test_a_remedy_that_found_nothing_to_do_or_failed_says_so() -> None:
    assert "nothing to change" in judge("cached-stat", [trial(0.2)], [trial(0.2)]).sentence()
    assert "no module" in judge("cached-stat", [trial(0.2)], [Trial(note="no module")]).sentence()


def test_runs_are_compared_over_the_steps_that_all_of_them_made() -> None:
    short = Trial((0.1, 0.2, 0.3), LOSSES[:3], 1)
    assert judge("cached-stat", [trial(0.2)], [short]).steps == 3


def test_what_remembers_is_timed_from_the_second_epoch_on() -> None:
    plain, remedied_ = Trial((1, 2, 3, 4, 5, 6, 7), LOSSES), Trial((1, 2, 3, 4, 4.5, 5, 5.5), LOSSES, 1)
    tried = judge("cached-decode", [plain], [remedied_], epoch_steps=4)
    assert (tried.ratio, tried.note) == (2.0, "timed from the second epoch on")
    assert judge("anomaly-off", [plain], [remedied_], epoch_steps=4).ratio == pytest.approx(5 / 3.5)


def test_a_trial_is_read_from_the_records_of_all_processes() -> None:
    records = [
        {"facts": {"trial": {"ends_s": [1.0, 2.0], "losses": [0.5]}}, "remedy": {"done": 1}},
        {"facts": {}, "remedy": {"done": 4}},
    ]
    assert Trial.from_records(records, "failed") == Trial((1.0, 2.0), (0.5,), 5, "")
    assert Trial.from_records([], "failed").note == "failed"
