"""Each second of a training loop belongs to one part of one step."""

from __future__ import annotations

from typing import Any

from unchoke.chokes.watch.account import COLUMNS, Account, Iteration


class Clock:
    """A clock that goes on when told."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Loop:
    """A training loop whose parts take whole seconds."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.account = Account(clock=self.clock)

    def spend(self, region: str, seconds: float) -> None:
        self.account.enter(region)
        self.clock.now_s += seconds
        self.account.leave()

    def batch(self, iteration: Iteration, seconds: float = 1.0, *, gradients: bool = True) -> None:
        self.account.ask(iteration, gradients=gradients)
        self.clock.now_s += seconds
        self.account.leave()
        self.account.count("batches")
        self.account.count("samples", 8)

    def train(self, optimizer: int = 1) -> None:
        self.spend("forward_s", 2)
        self.account.trained()
        self.spend("backward_s", 3)
        self.spend("optimizer_s", 1)
        self.account.step(optimizer)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [dict(zip(COLUMNS, row, strict=True)) for row in self.account.to_dict()["rows"]]

    @property
    def tail(self) -> dict[str, Any]:
        return dict(zip(COLUMNS, self.account.to_dict()["tail"], strict=True))


def test_a_step_is_split_into_its_parts() -> None:
    loop, train = Loop(), Iteration()
    for _ in range(2):
        loop.batch(train)
        loop.train()
        loop.clock.now_s += 4
    first, second = loop.rows
    assert (first["wall_s"], first["wait_s"], first["forward_s"], first["backward_s"], first["optimizer_s"]) == (7, 1, 2, 3, 1)
    assert (second["wall_s"], second["samples"], second["steps"]) == (11, 8, 1)


def test_closure_time_is_not_the_optimizers() -> None:
    loop, train = Loop(), Iteration()
    loop.batch(train)
    loop.account.enter("optimizer_s")
    loop.clock.now_s += 0.5
    loop.account.enter("closure")
    loop.spend("forward_s", 2)
    loop.account.trained()
    loop.spend("backward_s", 3)
    loop.clock.now_s += 7
    loop.account.leave()
    loop.account.leave()
    loop.account.step(1)
    (row,) = loop.rows
    assert (row["optimizer_s"], row["forward_s"], row["backward_s"]) == (0.5, 2, 3)


def test_batches_that_no_backward_follows_are_evaluation() -> None:
    loop, train, validate = Loop(), Iteration(), Iteration()
    loop.batch(train)
    loop.train()
    for _ in range(2):
        loop.batch(validate)
        loop.spend("forward_s", 5)
    loop.account.end(validate)
    loop.spend("checkpoint_s", 9)
    loop.batch(train)
    loop.train()
    row = loop.rows[1]
    assert (row["evaluate_s"], row["checkpoint_s"], row["forward_s"], row["samples"]) == (12, 9, 2, 8)
    assert (train.trained, validate.trained) == (True, False)


def test_no_gradients_means_evaluation_from_batch_one() -> None:
    loop, validate = Loop(), Iteration()
    loop.batch(validate, gradients=False)
    loop.spend("forward_s", 5)
    assert (loop.tail["evaluate_s"], loop.tail["forward_s"]) == (6, 0)


def test_a_loop_that_fetches_one_batch_ahead_still_trains() -> None:
    loop, train = Loop(), Iteration()
    loop.batch(train)
    loop.batch(train)
    loop.train()
    assert (loop.rows[0]["wait_s"], loop.rows[0]["evaluate_s"], loop.rows[0]["samples"]) == (2, 0, 16)


def test_two_loaders_side_by_side_are_both_trained_on() -> None:
    loop, labelled, unlabelled = Loop(), Iteration(), Iteration()
    for _ in range(4):
        loop.batch(labelled)
        loop.batch(unlabelled)
        loop.train()
    assert (labelled.trained, unlabelled.trained) == (True, True)
    assert all(row["evaluate_s"] == 0 for row in loop.rows)


def test_two_optimizers_on_one_batch_make_one_step() -> None:
    loop, train = Loop(), Iteration()
    for _ in range(3):
        loop.batch(train)
        loop.train(optimizer=1)
        loop.train(optimizer=2)
    assert [(row["wall_s"], row["steps"]) for row in loop.rows] == [(13, 1)] * 3


def test_very_many_steps_are_merged_and_none_is_lost() -> None:
    loop, train = Loop(), Iteration()
    for _ in range(9_000):
        loop.batch(train, 0.0)
        loop.train()
    assert len(loop.rows) < 4_000
    assert sum(row["steps"] for row in loop.rows) == 9_000
    assert sum(row["samples"] for row in loop.rows) == 72_000
    assert loop.rows[-1]["end_s"] == 9_000 * 6


def test_time_before_first_batch_or_backward_is_no_step() -> None:
    loop = Loop()
    loop.spend("forward_s", 50)
    loop.account.begin()
    loop.train()
    assert loop.rows[0]["forward_s"] == 2


def test_evaluation_in_which_hooks_wake_counts_once() -> None:
    loop, train = Loop(), Iteration()

    def evaluate(wakes: bool = False) -> None:
        judged = Iteration()
        for number in range(4):
            if wakes and number == 2:
                loop.account.wake()
            loop.batch(judged, gradients=False)
        loop.account.end(judged)

    for _ in range(4):
        loop.batch(train)
        loop.train()
    for _ in range(2):
        loop.account.rest()
        for wakes in (False, True):
            loop.batch(train)
            loop.clock.now_s += 6
            loop.account.step(1)
            evaluate(wakes)
        loop.batch(train)
        loop.train()
    rested, awake = loop.rows[-2:]

    assert (rested["steps"], rested["wall_s"], rested["evaluate_s"], rested["forward_s"]) == (2, 18, 4, 4)
    assert (awake["steps"], awake["wall_s"], awake["evaluate_s"], awake["backward_s"]) == (1, 11, 4, 3)
