"""What a training could have done: measured when it is over, with nothing of its result changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from small_training import NUM_TRAIN, small
from unchoke.features.encoders import digest_state, digest_tensors


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short trainings are measured too."""
    monkeypatch.setattr("unchoke.machine.measure_rate.LEAST_S", 0.0)


@pytest.mark.usefixtures("always")
def test_replayed_steps_leave_all_state_alone() -> None:
    made = small("test_resnet")
    done = made.train(workers=1, mixup=0.2, ema_decay=0.9, batch_norm="trained")
    assert done.replay is not None
    weights, state, drawn = digest_state(made.network), digest_tensors(done.state), torch.random.get_rng_state()
    found = done.replay.measure()
    assert found is not None
    assert digest_state(made.network) == weights
    assert digest_tensors(done.state) == state
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert all(parameter.grad is None for parameter in made.network.parameters())


@pytest.mark.usefixtures("always")
def test_step_and_reader_are_measured_alone() -> None:
    done = small().train(workers=1)
    assert done.replay is not None
    found = done.replay.measure()
    assert found is not None
    assert found.num_items == 3 * NUM_TRAIN
    assert {part.part for part in found.parts} == {"step", "reading"}
    assert all(part.per_s > 0 for part in found.parts)
    assert found.in_turn, "on a CPU the cores that read are those that train"
    assert found.facts["step_per_s"] == found.part("step").per_s  # type: ignore[union-attr]
    assert "larger_per_s" not in found.facts, "a larger batch tells nothing of a CPU"
    assert found.facts["first_s"] > 0


def test_short_trainings_and_long_steps_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = small().train().replay
    assert replay is not None
    assert replay.measure() is None

    def refuse(_: int) -> None:
        raise AssertionError("a step that takes longer than it may")

    slow = replace(replay, timeline=replace(replay.timeline, wall_s=60.0), step=refuse, num_items=10)
    monkeypatch.setattr("unchoke.machine.measure_rate.LEAST_S", 0.0)
    assert slow.measure() is None


def test_finished_training_has_nothing_to_replay(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    small().train(folder=folder)
    assert small().train(folder=folder).replay is None


@pytest.mark.usefixtures("always")
def test_a_device_with_room_is_also_shown_a_larger_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "unchoke.training.network.step_replay"
    done = small().train(workers=1)
    assert done.replay is not None
    monkeypatch.setattr(f"{place}.is_cpu", lambda _: False)
    monkeypatch.setattr(f"{place}.peak_reserved_bytes", lambda _: 1_000)
    monkeypatch.setattr(f"{place}.device_room_bytes", lambda _: 4_000)
    found = done.replay.measure()
    assert found is not None
    assert found.facts["larger_batch"] == 32
    assert found.part("step").per_s == max(found.facts["step_per_s"], found.facts["larger_per_s"])  # type: ignore[union-attr]
    limited = done.replay.measure(limit_bytes=3_999)
    recorded = replace(done.replay, recorded=True).measure()
    slow = replace(done.replay, timeline=replace(done.replay.timeline, first_s=2.1)).measure()  # kernels for another size too
    for other in (limited, recorded, slow):
        assert other is not None
        assert "larger_batch" not in other.facts
