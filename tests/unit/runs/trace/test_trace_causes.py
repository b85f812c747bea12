"""What holds a trace's steps back is named, and nothing is named where nothing does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from traces import Recording, training_on_a_card, training_on_a_processor
from unchoke.runs.trace.trace_causes import find_causes
from unchoke.runs.trace.trace_record import read_trace


def waits(made: Recording, at: float) -> None:
    made.mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, 950)


def waits_alone(made: Recording, at: float) -> None:
    made.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 950)


def synchronises(made: Recording, at: float) -> None:
    for number in range(40):
        made.runtime("cudaStreamSynchronize", at + 20 * number, 15, link=made.op("aten::item", at + 20 * number, 18))


def allocates(made: Recording, at: float) -> None:
    made.op("aten::empty", at + 10, 40)
    made.memory(at + 20, 300_000_000, None)


def allocates_once(made: Recording, at: float) -> None:
    if at == 0:
        allocates(made, at)


def computes(made: Recording, at: float) -> None:
    made.op("aten::conv2d", at + 10, 900, dims=[[4, 3, 8, 8]])


def trace_of(step: Callable[[Recording, float], None], path: Path) -> Path:
    made = Recording()
    for number in range(4):
        made.mark(f"ProfilerStep#{number}", 1000.0 * number, 1000)
        step(made, 1000.0 * number)
    return made.save(path / "some.pt.trace.json")


@pytest.mark.parametrize(
    ("step", "codes"),
    [
        (waits, ["few-workers"]),
        (waits_alone, ["no-workers"]),
        (synchronises, ["host-sync"]),
        (allocates, ["growing-graph"]),
        (allocates_once, ["large-allocation"]),
        (computes, []),
    ],
)
def test_cause_of_a_step(step: Callable[[Recording, float], None], codes: list[str], tmp_path: Path) -> None:
    found = find_causes(read_trace(trace_of(step, tmp_path)))
    assert [finding.code for finding in found] == codes
    assert all(finding.basis == "measured" and finding.fix for finding in found)


def test_shares_come_from_the_steps(tmp_path: Path) -> None:
    on_card = find_causes(read_trace(training_on_a_card().save(tmp_path / "card.pt.trace.json")))
    assert {finding.code: finding.evidence["share"] for finding in on_card} == {"no-workers": 0.2}
    on_processor = find_causes(read_trace(training_on_a_processor().save(tmp_path / "cpu.pt.trace.json")))
    assert {finding.code: finding.evidence["share"] for finding in on_processor} == {"few-workers": 0.3}
