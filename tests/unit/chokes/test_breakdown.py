"""Where the time of a recorded command went, from its numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unchoke.chokes import breakdown
from unchoke.chokes.recording import CallRow, LoaderRecord, ProcessRecord, Recording, Replay, StackRow, Steps

COLUMNS = ("wall_s", "wait_s", "forward_s", "evaluate_s", "checkpoint_s", "steps")
LOADER = LoaderRecord(
    num_workers=0, batches=4, fetched_samples=100, fetch_s=4.0, fetch_system_s=1.0, fetch_user_s=3.0, sample_shape=(3, 10, 20)
)
CALLS = (
    CallRow("open", "getitem", count=400, distinct=100, seconds=0.1),
    CallRow("stat", "getitem", count=200, distinct=100, seconds=0.1),
    CallRow("decode", "getitem", count=100, amount=80_000.0),
    CallRow("open", "outside", count=9_999),
)
SAMPLES = (
    StackRow("decode", "getitem", count=300),
    StackRow("python", "getitem", count=100),
    StackRow("forward", "step", count=9),
)
RECORDING = Recording(
    machine={"cores": 2},
    main=ProcessRecord(
        elapsed_s=10.0, calls=CALLS, samples=SAMPLES, sample_period_s=0.01, watcher={"hooks_s": 0.1, "sampler_s": 0.1}
    ),
    loaders=(LOADER,),
    steps=Steps(COLUMNS, ((9.0, 9.0, 0, 0, 0, 1),) * 2 + ((1.0, 0.6, 0.2, 0.0, 0.0, 1),) * 2, (5.0, 0, 0, 1.0, 0, 0)),
)


def test_step_parts_add_up_without_warm_up() -> None:
    parts = {part.stage: part.seconds for part in breakdown.step_parts(RECORDING)}
    assert sum(parts.values()) == pytest.approx(1.5)
    assert (parts["wait"], parts["forward"], parts["evaluate"], parts["other"]) == pytest.approx((0.6, 0.2, 0.5, 0.2))


def test_loading_is_split_by_sampled_stages() -> None:
    parts = {part.stage: part.seconds for part in breakdown.loading_parts(RECORDING)}
    assert parts == pytest.approx({"decode": 0.03, "python": 0.01})


def test_counts_are_per_sample_and_of_loading_only() -> None:
    found = breakdown.per_sample(RECORDING)
    assert found is not None
    assert (found.stat, found.opens, found.opens_per_file) == (2.0, 4.0, 4.0)
    assert (found.decoded_px, found.used_px, found.system_share) == (800.0, 200, 0.25)


def test_head_room_is_what_a_step_on_one_batch_saves() -> None:
    room = breakdown.headroom(replace(RECORDING, replay=Replay(step_s=0.5, steps=20)))
    assert room is not None
    assert (room.step_s, room.free_s, room.share) == (1.0, 0.5, 0.5)


def test_replay_promises_no_more_than_loading_took() -> None:
    room = breakdown.headroom(replace(RECORDING, replay=Replay(step_s=0.1, steps=20)))
    assert room is not None
    assert room.free_s == pytest.approx(0.4)


def test_without_a_replay_there_is_no_head_room() -> None:
    assert breakdown.headroom(replace(RECORDING, replay=Replay(note="no loader"))) is None


def test_watching_cost_is_told_in_cpu_seconds() -> None:
    used = {"user_s": 9.0, "system_s": 1.2}
    watched = replace(
        RECORDING, main=replace(RECORDING.main, usage=used, watcher={"hooks_s": 0.15, "sampler_s": 0.05}), workers=()
    )

    cost = breakdown.watching_cost(watched, 0.8)

    assert cost == pytest.approx({"inside_cpu_s": 0.2, "own_cpu_s": 0.8, "script_cpu_s": 10.0, "share": 0.1})


def test_an_empty_recording_has_no_parts() -> None:
    assert (breakdown.step_parts(Recording()), breakdown.loading_parts(Recording()), breakdown.per_sample(Recording())) == (
        [],
        [],
        None,
    )
