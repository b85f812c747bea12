"""Watching costs no more than it may: where events are many, hooks rest, and what was counted stands for the rest."""

from __future__ import annotations

from typing import Any

from unchoke.chokes.watch.account import COLUMNS, Account, Iteration
from unchoke.chokes.watch.duty import MAX_SHARE, Duty
from unchoke.chokes.watch.recorder import Recorder


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Hook:
    """One that costs a share of each second that it is awake."""

    def __init__(self) -> None:
        self.awake = True
        self.turns = 0

    def rest(self) -> None:
        self.awake = False
        self.turns += 1

    def wake(self) -> None:
        self.awake = True
        self.turns += 1


def watched(share: float, *, seconds: float = 60.0, step_s: float = 0.01) -> tuple[Duty, Hook, float, int]:
    """A duty after some time of steps, its hook, what the hook cost, and how many steps it saw."""
    clock, hook = Clock(), Hook()
    cost_s, seen = 0.0, 0
    duty = Duty(lambda: cost_s, clock=clock)
    duty.may_rest(hook)
    while clock.now_s < seconds:
        clock.now_s += step_s
        if hook.awake:
            cost_s += share * step_s
            seen += 1
        duty.tick(step=True)
    return duty, hook, cost_s, seen


def test_cheap_hooks_never_rest() -> None:
    duty, hook, _, seen = watched(MAX_SHARE / 2)
    assert (hook.turns, duty.factor) == (0, 1.0)
    assert seen >= 6000


def test_costly_hooks_rest_until_they_cost_what_they_may() -> None:
    _, hook, cost_s, _ = watched(0.6)
    assert hook.turns > 2
    assert cost_s < 2 * MAX_SHARE * 60


def test_hooks_rest_for_what_they_cost_beside_their_account() -> None:
    clock, hook = Clock(), Hook()
    duty = Duty(lambda: 0.0, clock=clock)
    duty.may_rest(hook)
    duty.hidden_share = 10 * MAX_SHARE
    awake = 0
    for _ in range(2_000):
        clock.now_s += 0.01
        awake += hook.awake
        duty.tick(step=True)
    assert 0 < awake < 500


def test_counts_times_factor_are_the_total() -> None:
    duty, _, _, seen = watched(0.6)
    assert seen < 1000
    assert abs(seen * duty.factor - 6000) < 300


def test_where_no_step_comes_turns_are_at_batches() -> None:
    clock, hook = Clock(), Hook()
    duty = Duty(lambda: 0.5 * clock.now_s, clock=clock)
    duty.may_rest(hook)
    for number in range(100):
        clock.now_s += 0.1
        duty.tick(step=number < 10)
    assert hook.turns > 0


def test_nothing_rests_before_some_steps_were_watched() -> None:
    clock, hook = Clock(), Hook()
    duty = Duty(lambda: 0.5 * clock.now_s, clock=clock)
    duty.may_rest(hook)
    for _ in range(100):
        clock.now_s += 0.1
        duty.tick(step=False)
    assert hook.awake


def test_between_two_steps_nothing_turns() -> None:
    clock, hook, turned_at = Clock(), Hook(), []
    duty = Duty(lambda: 0.5 * clock.now_s, clock=clock)
    duty.may_rest(hook)
    for _ in range(100):
        for step in (False, True):
            clock.now_s += 0.1
            before = hook.turns
            duty.tick(step=step)
            turned_at += [step] * (hook.turns - before)
    assert turned_at
    assert all(turned_at)


def test_turns_grow_longer_since_each_costs_something_too() -> None:
    _, hook, _, _ = watched(0.6, seconds=600)
    assert hook.turns < 40


def test_a_forked_child_is_awake_and_has_counted_nothing() -> None:
    duty, hook, _, _ = watched(0.6)
    while not duty.resting:
        duty.tick(step=True)
        duty._clock.now_s += 0.01  # type: ignore[attr-defined]
    duty.begin_again()
    assert hook.awake
    assert (duty.resting, duty.factor) == (False, 1.0)


class Loop:
    """A training loop of four seconds a step: one waiting, two forward, one nobody names."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.account = Account(clock=self.clock)
        self.iteration = Iteration()

    def steps(self, number: int) -> None:
        for _ in range(number):
            self.account.ask(self.iteration, gradients=True)
            self.clock.now_s += 1
            self.account.leave()
            self.account.count("batches")
            if self.account.resting:
                self.clock.now_s += 2
            else:
                self.account.enter("forward_s")
                self.clock.now_s += 2
                self.account.leave()
                self.account.count("items", 3)
            self.account.trained()
            self.clock.now_s += 1
            self.account.step(1)

    def rows(self) -> list[dict[str, Any]]:
        return [dict(zip(COLUMNS, row, strict=True)) for row in self.account.to_dict()["rows"]]


def test_steps_of_a_rest_are_one_row_split_as_before() -> None:
    loop = Loop()
    loop.steps(4)
    loop.account.rest()
    loop.steps(10)
    loop.account.wake()
    loop.steps(1)
    *_, rest, last = loop.rows()
    assert (rest["steps"], rest["wall_s"], rest["wait_s"], rest["items"]) == (10, 40, 10, 30)
    assert abs(rest["forward_s"] - 20) < 1e-6
    assert (last["steps"], last["wall_s"], last["forward_s"]) == (1, 4, 2)
    assert loop.account.num_steps == 15


def test_time_after_the_last_step_of_a_rest_is_not_split() -> None:
    loop = Loop()
    loop.steps(4)
    loop.account.rest()
    loop.steps(10)
    loop.clock.now_s += 500
    told = loop.account.to_dict()
    tail = dict(zip(COLUMNS, told["tail"], strict=True))
    assert (loop.rows()[-1]["wall_s"], loop.rows()[-1]["steps"]) == (40, 10)
    assert (tail["wall_s"], tail["forward_s"], tail["steps"]) == (500, 0, 0)


def test_evaluation_in_a_rest_belongs_to_the_next_step() -> None:
    loop, judged = Loop(), Iteration()
    loop.steps(4)
    loop.account.rest()
    loop.steps(2)
    loop.account.ask(judged, gradients=False)
    loop.clock.now_s += 30
    loop.account.leave()
    loop.account.end(judged)
    loop.account.wake()
    loop.steps(1)
    *_, rest, last = loop.rows()
    assert (rest["wall_s"], rest["evaluate_s"]) == (8, 0)
    assert (last["wall_s"], last["evaluate_s"], last["forward_s"]) == (34, 30, 2)


def test_calls_that_rest_are_counted_for_all_of_the_time() -> None:
    recorder, clock = Recorder(), Clock()
    recorder.duty = Duty(lambda: 0.6 * clock.now_s if not recorder.duty.resting else 0.0, clock=clock)
    recorder.phase = "step"
    for _ in range(2_000):
        clock.now_s += 0.01
        recorder.duty.tick(step=True)
        if not recorder.duty.resting:
            recorder.call("item", 0.001, place=("a.py", 3, "train"))
        recorder.call("save", 0.001, place=("a.py", 4, "train"))
    counted = {row["kind"]: row for row in recorder.to_dict()["calls"]}
    assert 1_700 < counted["item"]["count"] < 2_300
    assert counted["save"]["count"] == 2_000
