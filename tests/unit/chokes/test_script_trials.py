"""Remedies tried on a real script, in real processes: what is measured, what is told, and that its files stay as they are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unchoke.chokes.recording import Loader, Recording, Steps
from unchoke.chokes.script_trials import num_steps, try_remedies
from unchoke.core.events import Event
from unchoke.core.findings import Finding

SCRIPT = """
import sys
import torch
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


def recording(command: tuple[str, ...] = (), *, steps: int, loaders: tuple[Loader, ...] = ()) -> Recording:
    return Recording(command, 0, 1.0, steps=Steps(("steps",), ((1,),) * steps), loaders=loaders)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Finding], list[Event], str]:
    folder = tmp_path_factory.mktemp("trials")
    script, kept = folder / "train.py", folder / "kept.txt"
    script.write_text(SCRIPT)
    kept.write_text("before")
    findings = [
        Finding("one", "no remedy"),
        Finding("two", "on", evidence={"remedy": "anomaly-off"}, expected_gain="about a half"),
    ]
    events: list[Event] = []
    command = (sys.executable, str(script), str(kept))
    found = try_remedies(recording(command, steps=5), findings, folder, tell=events.append)
    return found, events, kept.read_text()


def test_the_finding_says_what_its_remedy_brought(told: tuple[list[Finding], list[Event], str]) -> None:
    plain, tried = told[0]
    assert plain == Finding("one", "no remedy")
    assert tried.evidence["tried"]["losses"] == "equal", "unseeded, and yet the same numbers in every run"
    assert tried.evidence["tried"]["steps"] == 5
    assert tried.expected_gain.startswith("tried: ")
    assert tried.expected_gain.endswith("losses equal over 5 steps; estimated before: about a half") or "(" in tried.expected_gain
    assert [type(event).__name__ for event in told[1]] == ["StageStarted", "StageDone"]


def test_the_scripts_own_files_are_not_touched(told: tuple[list[Finding], list[Event], str]) -> None:
    assert told[2] == "before"


def test_without_a_remedy_nothing_is_run(tmp_path: Path) -> None:
    events: list[Event] = []
    findings = [Finding("one", "no remedy"), Finding("two", "unknown", evidence={"remedy": "magic"})]
    assert try_remedies(recording(steps=5), findings, tmp_path, tell=events.append) == findings
    assert "nothing to try" in str(events[0])


def test_long_epochs_get_more_steps() -> None:
    loader = Loader(batches=400, iterators=2)
    assert num_steps(recording(steps=40, loaders=(loader,))) == 40
    assert num_steps(recording(steps=100)) == 60
    assert num_steps(recording(steps=400, loaders=(loader,))) == 400
    short = Loader(batches=400, iterators=20, num_samples=80, batch_size=4)
    assert num_steps(recording(steps=400, loaders=(short,))) == 60
