"""Switches earn their place or are refused, with the reason; the clock is the test's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from unchoke.core.errors import MachineError
from unchoke.core.events import Event, Progress, ignore
from unchoke.core.tuned import Verdict
from unchoke.tuning.compare import Likeness, Speedup
from unchoke.tuning.trials import Attempt, Deadline, PartTuner, Switch, attempt


@dataclass(frozen=True)
class Way:
    """Of doing nothing, in several ways."""

    kernel: str = "plain"
    size: int = 8
    threads: int = 2


@dataclass
class Pretended:
    """Work whose seconds and numbers follow from the way it is done."""

    seconds: Callable[[Way], float]
    wrong: Callable[[Way], bool] = lambda way: False
    block_s: float = 1.0
    piece: str = "nothing"
    now_s: float = 0.0
    asked: list[Way] = field(default_factory=list)

    def changed(self, setup: Way, name: str, value: Any) -> Way:
        return replace(setup, **{name: value})

    def alike(self, setup: Way) -> Likeness:
        self.asked.append(setup)
        return Likeness(not self.wrong(setup), "outputs differ by 0.3" if self.wrong(setup) else "the same", {"outputs": 0.0})

    def timed(self, setup: Way) -> Callable[[], float]:
        if setup.kernel == "missing":
            raise MachineError("no such kernel", code="engine-unusable", why="it is missing", try_="another")
        if setup.kernel == "crashing":
            raise RuntimeError("kernel panicked\nmore")

        def run() -> float:
            spent_s = self.seconds(setup)
            self.now_s += spent_s
            return spent_s

        return run

    def calibrate(self, setup: Way, *, budget_s: float) -> None:
        self.block_s = self.seconds(setup)

    def let_go(self, *but: Way) -> None: ...


@dataclass(frozen=True)
class Ending:
    verdicts: list[Verdict]
    after: Way
    whole: Speedup | None


def tried(work: Pretended, *switches: Switch, minutes: float = 1000.0, **options: Any) -> Ending:
    deadline = Deadline(60 * minutes, clock=lambda: work.now_s)
    options = {"on_event": ignore, "warn": lambda _: None, **options}
    part = PartTuner("training", work, deadline=deadline, **options).run(Way(), Way(), lambda _: list(switches))
    after = Way(**{one.switch: one.value for one in part.trials if one.verdict == "kept"})
    return Ending(part.trials, after, part.whole)


def outcomes(ending: Ending) -> list[tuple[str, Any, str]]:
    return [(one.switch, one.value, one.verdict) for one in ending.verdicts]


def fast_kernel(way: Way) -> float:
    return 0.5 if way.kernel == "fast" else 1.0


def test_what_is_equal_and_faster_is_kept() -> None:
    ending = tried(Pretended(fast_kernel), Switch("kernel", ("fast",)))
    (verdict,) = ending.verdicts
    assert (verdict.verdict, verdict.now, verdict.value) == ("kept", "plain", "fast")
    assert verdict.ratio == pytest.approx(2)
    assert verdict.interval is not None
    assert verdict.interval[0] > 1
    assert ending.after == Way(kernel="fast")
    assert ending.whole is not None
    assert ending.whole.ratio == pytest.approx(2)


def test_what_is_wrong_is_refused_however_fast_it_is() -> None:
    ending = tried(Pretended(fast_kernel, wrong=lambda way: way.kernel == "fast"), Switch("kernel", ("fast",)))
    (verdict,) = ending.verdicts
    assert verdict.verdict == "refused"
    assert "outputs differ by 0.3" in verdict.reason
    assert verdict.ratio is None
    assert ending.after == Way()


def test_next_switch_is_tried_on_top_of_what_was_kept() -> None:
    work = Pretended(lambda way: fast_kernel(way) * (1.2 if way.threads == 1 else 1.0))
    ending = tried(work, Switch("kernel", ("fast",)), Switch("threads", (1,)))
    assert outcomes(ending) == [("kernel", "fast", "kept"), ("threads", 1, "refused")]
    assert "0.83×" in ending.verdicts[1].reason
    assert Way(kernel="fast", threads=1) in work.asked


def test_on_a_ladder_the_first_refusal_ends_it() -> None:
    work = Pretended(lambda way: 1.0 if way.size == 4 else way.size / 8)
    assert outcomes(tried(work, Switch("size", (6, 4, 2), ladder=True))) == [("size", 6, "kept"), ("size", 4, "refused")]
    assert tried(work, Switch("size", (6, 4, 2))).after.size == 2


def test_tricks_that_fail_are_refused_with_what_they_said() -> None:
    ending = tried(Pretended(fast_kernel), Switch("kernel", ("missing", "crashing", "fast")))
    reasons = [one.reason for one in ending.verdicts]
    assert "no such kernel" in reasons[0]
    assert "RuntimeError: kernel panicked" in reasons[1] and "more" not in reasons[1]
    assert ending.after.kernel == "fast"


def test_what_does_not_apply_is_said_and_not_tried() -> None:
    work = Pretended(fast_kernel)
    (verdict,) = tried(work, Switch("threads", (1,), why_not="the device computes")).verdicts
    assert (verdict.verdict, verdict.reason, verdict.now, verdict.value) == ("not tried", "the device computes", 2, None)
    assert not any(way.threads == 1 for way in work.asked)


def test_the_time_is_bounded_and_what_was_not_tried_is_said() -> None:
    work = Pretended(lambda way: 1.0, block_s=1.0)
    heard: list[Event] = []
    ending = tried(work, *(Switch("size", (size,)) for size in range(40)), minutes=1, on_event=heard.append)
    assert work.now_s <= 60
    assert {one.verdict for one in ending.verdicts} == {"refused", "not tried"}
    assert "--minutes" in ending.verdicts[-1].reason
    progress = [event for event in heard if isinstance(event, Progress)]
    assert progress[0].extra == {"trying": "size"}
    assert progress[-1].done == progress[-1].total == 40


EARLIER = Verdict("kernel", "kept", "2×", "plain", "fast", 2.0, (1.9, 2.1))


def test_together_they_must_be_faster_than_before() -> None:
    ending = tried(Pretended(lambda way: 1.0), Switch("kernel", ("fast",)), earlier=[EARLIER])
    assert ending.after == Way()
    assert ending.verdicts[0].verdict == "refused"


def test_earlier_verdicts_hold_unless_a_user_decides() -> None:
    ending = tried(Pretended(fast_kernel), Switch("kernel", ("fast",)), Switch("threads", (1,)), earlier=[EARLIER])
    assert outcomes(ending) == [("kernel", "fast", "kept"), ("threads", 1, "refused")]
    assert tried(Pretended(fast_kernel), Switch("kernel", why_not="set: --kernel plain"), earlier=[EARLIER]).after == Way()


@pytest.mark.parametrize(("num_samples", "verdict"), [(50, "refused"), (500, "kept")])
def test_what_takes_long_to_get_ready_must_repay_it(num_samples: int, verdict: str) -> None:
    work = Pretended(fast_kernel)

    def apart(now: Way, trick: Way, *, budget_s: float) -> Attempt:
        return replace(attempt(work, now, trick, budget_s=budget_s), setup_s=100.0)

    switch = Switch("kernel", ("fast",), apart=True)
    ending = tried(work, switch, num_samples=num_samples, apart=apart)
    assert ending.verdicts[0].verdict == verdict
    if verdict == "kept":
        assert ending.verdicts[0].worth_from == 201
    else:
        assert "2.00×" in ending.verdicts[0].reason


def test_wrong_usual_way_is_replaced_by_the_plain_one() -> None:
    work = Pretended(lambda way: 1.0, wrong=lambda way: way.kernel == "usual")
    warned: list[str] = []
    deadline = Deadline(1e4, clock=lambda: work.now_s)
    tuner = PartTuner("training", work, deadline=deadline, on_event=ignore, warn=warned.append)
    part = tuner.run(Way(kernel="usual"), Way(), lambda now: [Switch("threads", (1,))])
    verdicts = part.verdicts()
    assert (verdicts["kernel"].verdict, verdicts["kernel"].value) == ("kept", "plain")
    assert verdicts["threads"].verdict == "refused"
    assert len(warned) == 1
