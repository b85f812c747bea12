"""Which encoder to take: the fastest of those that are not beyond chance worse than the best."""

from __future__ import annotations

import numpy as np

from unchoke.core.record import Interval
from unchoke.tuning.encoder_result import EncoderScore, choose_encoder, is_better


def score(name: str, points: np.ndarray, rate: float, cut: str = "end") -> EncoderScore:
    value = float(points.mean())
    return EncoderScore(name, cut, Interval(value, value - 0.1, value + 0.1), 0.5, rate, 2560, 0.1, points.astype(np.float64))


def hits(share: float, num: int = 200) -> np.ndarray:
    return (np.arange(num) < share * num).astype(np.float64)


def test_a_clear_winner_is_taken_however_slow() -> None:
    choice = choose_encoder([score("slow", hits(0.9), 10), score("fast", hits(0.7), 100)], None)
    assert (choice.evidence["encoder"], choice.reason) == ("slow", "the best here")


def test_faster_one_as_good_as_the_best_is_taken() -> None:
    choice = choose_encoder([score("slow", hits(0.905), 10), score("fast", hits(0.9), 100)], None)
    assert choice.evidence["encoder"] == "fast"
    assert "slow" in choice.reason
    assert "faster" in choice.reason


def test_of_one_network_the_cut_that_did_better_is_taken() -> None:
    choice = choose_encoder([score("a", hits(0.9), 10), score("a", hits(0.905), 10, "blocks")], None)
    assert choice.evidence["cut"] == "blocks"


def test_samples_of_one_group_count_together() -> None:
    good, less = score("a", hits(0.9), 1), score("b", hits(0.8), 1)
    assert is_better(good, less, None)
    assert not is_better(good, less, np.repeat(np.arange(4), 50)), "all of the gain is one group's"


def test_a_score_survives_being_written_down() -> None:
    before = score("a", hits(0.9), 10)
    again = EncoderScore.from_dict({**before.to_dict(), "points": before.points_n.tolist()})
    assert again == before
    assert np.array_equal(again.points_n, before.points_n)
