"""What tuning found, as a person reads it."""

from __future__ import annotations

from typing import Any

from unchoke.tuning.tune_result import render_tune

KEPT = {
    "switch": "train_precision",
    "reported": "1.5–5.5×",
    "now": "f32",
    "value": "bf16",
    "verdict": "kept",
    "reason": "1.62× (1.50–1.75) as fast; outputs differ by 0.05 (at most 0.1)",
    "ratio": 1.62,
    "interval": [1.5, 1.75],
    "equality": {"outputs": 0.05},
}
WRONG = {
    "switch": "channels_last",
    "now": True,
    "value": False,
    "verdict": "refused",
    "reason": "unequal: …",
    "equality": {"outputs": 0.4},
}
UNTRIED = {"switch": "pin_memory", "now": False, "verdict": "not tried", "reason": "does not apply"}
PART: dict[str, Any] = {
    "name": "training",
    "trials": [KEPT, WRONG, UNTRIED],
    "whole": {"ratio": 1.6, "low": 1.4, "high": 1.8, "plain_s": 0.05, "trick_s": 0.03125},
    "equality": "outputs differ by 2e-06 (at most 0.001)",
    "piece": "2 steps of 16 images",
}
RESULT: dict[str, Any] = {
    "model": "some_net, cut none",
    "tuned": {"found_on": {"device": "some CPU, 2 cores", "torch": "2.13"}, "date": "2026-11-15"},
    "parts": [PART],
    "notes": ["one picture could not be read"],
    "seconds": 95.0,
    "minutes": 2.0,
    "already_done": False,
    "dry_run": False,
    "next_command": "unchoke train photos",
}


def test_a_row_for_each_trial_then_what_was_gained() -> None:
    text = render_tune(RESULT)
    lines = text.splitlines()
    assert lines[0] == "some_net, cut none on some CPU, 2 cores, torch 2.13"
    assert "Training: 2 trials, 1 kept; timed in pieces of 2 steps of 16 images" in lines
    rows = [line.split() for line in lines]
    assert ["train_precision", "1.5–5.5×", "f32", "bf16", "1.62×", "(1.50–1.75)", "yes", "kept"] in rows
    assert ["channels_last", "on", "off", "no", "refused"] in rows
    assert "together: 1.60× (1.40–1.80) as fast as before, 20 → 32 images/s" in lines
    assert lines[-2:] == ["tuning    took 1 min 35 s, and 2 min 0 s were given", "next      unchoke train photos"]


def test_what_was_not_run_and_what_was_done_before_is_said() -> None:
    assert "nothing was run: 2 min 0 s would be spent at most" in render_tune({**RESULT, "dry_run": True})
    late = render_tune({**RESULT, "seconds": 123.0})
    assert "took 2 min 3 s, and 2 min 0 s were given; what had begun by then was finished" in late
    assert "tuned already, on 2026-11-15; --again" in render_tune({**RESULT, "already_done": True})
    assert "together" not in render_tune({**RESULT, "parts": [{**PART, "whole": None}]})
