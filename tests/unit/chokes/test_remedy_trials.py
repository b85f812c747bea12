"""Remedies tried on a real script, in real processes, whose files stay as they are; and verdicts from made-up runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.unit.chokes.light_torch import LIGHT_TORCH

from unchoke.chokes import remedy_trials
from unchoke.chokes.recording import LoaderRecord, Recording, Steps
from unchoke.chokes.remedy_trials import TrialRun, judge, num_steps, try_remedies
from unchoke.core.events import Event
from unchoke.core.findings import Finding

SCRIPT = (
    LIGHT_TORCH
    + """
torch.autograd.set_detect_anomaly(True)
layer = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for step in range(50):
    loss = layer(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    open(sys.argv[1], "w").write("trained")
"""
)


def recording(command: tuple[str, ...] = (), *, steps: int, loaders: tuple[LoaderRecord, ...] = ()) -> Recording:
    return Recording(command, 0, 1.0, steps=Steps(("steps",), ((1,),) * steps), loaders=loaders)


def test_real_trial_of_a_script(tmp_path: Path) -> None:
    """The finding says what its remedy brought; the script's own files stay as they were."""
    script, kept = tmp_path / "train.py", tmp_path / "kept.txt"
    script.write_text(SCRIPT)
    kept.write_text("before")
    findings = [
        Finding("one", "no remedy"),
        Finding("two", "on", evidence={"remedy": "anomaly-off"}, expected_gain="about a half"),
    ]
    events: list[Event] = []
    command = (sys.executable, str(script), str(kept))
    plain, tried = try_remedies(recording(command, steps=5), findings, tmp_path, tell=events.append)
    assert plain == findings[0]
    assert tried.evidence["tried"]["losses"] == "equal", "unseeded, and yet the same numbers in every run"
    assert tried.evidence["tried"]["steps"] == 5
    assert tried.expected_gain.startswith("tried: ")
    assert tried.expected_gain.endswith("losses equal over 5 steps; estimated before: about a half") or "(" in tried.expected_gain
    assert [type(event).__name__ for event in events] == ["StageStarted", "StageDone"]
    assert kept.read_text() == "before"


def test_without_a_remedy_nothing_is_run(tmp_path: Path) -> None:
    events: list[Event] = []
    findings = [Finding("one", "no remedy"), Finding("two", "unknown", evidence={"remedy": "magic"})]
    assert try_remedies(recording(steps=5), findings, tmp_path, tell=events.append) == findings
    assert "nothing to try" in str(events[0])


def test_long_epochs_get_more_steps() -> None:
    loader = LoaderRecord(batches=400, iterators=2)
    assert num_steps(recording(steps=40, loaders=(loader,))) == 40
    assert num_steps(recording(steps=100)) == 60
    assert num_steps(recording(steps=400, loaders=(loader,))) == 400
    short = LoaderRecord(batches=400, iterators=20, num_samples=80, batch_size=4)
    assert num_steps(recording(steps=400, loaders=(short,))) == 60


LOSSES = (1.5, 1.25, 1.125, 1.0625, 1.03125)


def trial(step_s: float, losses: tuple[float, ...] = LOSSES, *, done: int = 0, note: str = "") -> TrialRun:
    return TrialRun(tuple(step_s * number for number in range(1, 6)), losses, done, note)


def changed(by: float) -> tuple[float, ...]:
    return tuple(loss * (1 + by) for loss in LOSSES)


def test_a_faster_run_with_the_same_losses_has_helped() -> None:
    tried = judge("cached-stat", [trial(0.2), trial(0.21)], [trial(0.1, done=3), trial(0.105, done=3)])
    assert (tried.helped, tried.losses, tried.steps) == (True, remedy_trials.EQUAL, 5)
    assert tried.ratio == pytest.approx(2.0)
    assert tried.sentence() == "tried: 2.00× as fast, losses equal over 5 steps"


@pytest.mark.parametrize(
    ("remedy", "by", "expected"),
    [
        ("cached-stat", 1e-8, remedy_trials.ROUNDED),
        ("cached-stat", 1e-3, remedy_trials.DIFFERENT),
        ("draft-jpeg", 1e-2, remedy_trials.NEARLY),
        ("draft-jpeg", 1e-1, remedy_trials.DIFFERENT),
        ("cached-stat", float("nan"), remedy_trials.DIFFERENT),
    ],
)
def test_losses_are_held_to_what_the_remedy_may_change(remedy: str, by: float, expected: str) -> None:
    tried = judge(remedy, [trial(0.2), trial(0.2)], [trial(0.1, changed(by), done=1)] * 2)
    assert tried.losses == expected
    assert tried.helped is (expected != remedy_trials.DIFFERENT)


def test_a_faster_run_with_other_losses_is_refused() -> None:
    tried = judge("workers:2", [trial(0.2), trial(0.2)], [trial(0.1, changed(0.5), done=1)] * 2)
    assert not tried.helped
    assert tried.sentence().startswith("tried and refused: 2.00× as fast, losses different over 5 steps (numbers differ where")


def test_a_script_whose_own_runs_differ_is_judged_by_that() -> None:
    plain = [trial(0.2), trial(0.2, changed(1e-3))]
    assert judge("cached-stat", plain, [trial(0.1, changed(5e-4), done=1)] * 2).losses == remedy_trials.AS_PLAIN
    assert judge("cached-stat", plain, [trial(0.1, changed(1e-2), done=1)] * 2).losses == remedy_trials.DIFFERENT


def test_a_gain_below_the_noise_is_no_gain() -> None:
    tried = judge("cached-stat", [trial(0.2), trial(0.26)], [trial(0.15, done=1), trial(0.21, done=1)])
    assert not tried.helped
    assert "no clear gain" in tried.note


def test_remedy_without_effect_or_failing_says_so() -> None:
    assert "nothing to change" in judge("cached-stat", [trial(0.2)], [trial(0.2)]).sentence()
    assert "no module" in judge("cached-stat", [trial(0.2)], [TrialRun(note="no module")]).sentence()


def test_runs_are_compared_over_common_steps() -> None:
    short = TrialRun((0.1, 0.2, 0.3), LOSSES[:3], 1)
    assert judge("cached-stat", [trial(0.2)], [short]).steps == 3


def test_what_remembers_is_timed_from_the_second_epoch_on() -> None:
    plain, remedied_ = TrialRun((1, 2, 3, 4, 5, 6, 7), LOSSES), TrialRun((1, 2, 3, 4, 4.5, 5, 5.5), LOSSES, 1)
    tried = judge("cached-decode", [plain], [remedied_], epoch_steps=4)
    assert (tried.ratio, tried.note) == (2.0, "timed from the second epoch on")
    assert judge("anomaly-off", [plain], [remedied_], epoch_steps=4).ratio == pytest.approx(5 / 3.5)


def test_a_trial_is_read_from_the_records_of_all_processes() -> None:
    records = [
        {"facts": {"trial": {"ends_s": [1.0, 2.0], "losses": [0.5]}}, "remedy": {"done": 1}},
        {"facts": {}, "remedy": {"done": 4}},
    ]
    assert TrialRun.from_records(records, "failed") == TrialRun((1.0, 2.0), (0.5,), 5, "")
    assert TrialRun.from_records([], "failed").note == "failed"
