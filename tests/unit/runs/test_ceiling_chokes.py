"""Why a stage stayed below its ceiling: from fixed figures, one record for each cause, and one that is well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from records import as_record
from unchoke.core.ceilings import DEVICE, Ceiling, PartRate
from unchoke.core.findings import Finding
from unchoke.core.record import RunRecord
from unchoke.core.stages import StageRow
from unchoke.core.timeline import Timeline
from unchoke.runs.own_chokes import diagnose_run

MAKING = {"read": 0.0001, "decode": 0.0016, "transform": 0.0004}
"""Seconds of one reader alone for a picture: 476 a second."""


def rows(seconds: dict[str, float], calls: int) -> tuple[StageRow, ...]:
    return tuple(StageRow(stage, spent_s, 0.0, calls) for stage, spent_s in seconds.items())


def record(stage: str, ceiling: Ceiling | None, timeline: Timeline, **more: Any) -> RunRecord:
    assert ceiling is not None
    plain = as_record(
        {
            "command": "unchoke fit photos/" if stage == "extract" else "unchoke train photos/ --cut none",
            "machine": {"cores": 16, "on_cpu": False, "workers": 15},
            "data": {"source": "photos/", "splits": {"train": 7_000, "val": 1_500, "test": 1_500}},
            "timings": {stage: ceiling.wall_s},
            **more,
        }
    )
    plain.ceilings, plain.timeline = {stage: ceiling}, {stage: timeline}
    return plain


def extraction(
    seconds: dict[str, float],
    reader_s: dict[str, float] | None = None,
    *,
    wall_s: float = 14.0,
    readers: int = 30,
    first_s: float = 0.1,
    engine_per_s: float = 13_600.0,
    num: int = 10_000,
    slots: int = 2,
    more: Sequence[PartRate] = (),
) -> RunRecord:
    """10,000 pictures in two jobs at a time; `reader_s` is what readers took for one of them."""
    loading = rows({name: num * spent_s for name, spent_s in (reader_s or MAKING).items()}, num)
    timeline = Timeline(sum(seconds.values()), rows(seconds, 157), loading, readers, first_s=first_s, slots=slots)
    parts = [PartRate("reading", 476.0, lanes=16), PartRate("engine", engine_per_s, place=DEVICE), *more]
    facts = {"readers": readers, "batch": 64}
    return record("extract", Ceiling.of(num, wall_s, parts, alone_s=MAKING, facts=facts), timeline)


def training(
    seconds: dict[str, float],
    reader_s: dict[str, float] | None = None,
    *,
    step_per_s: float = 4_000.0,
    larger_per_s: float = 4_900.0,
    first_s: float = 0.01,
    **more: Any,
) -> RunRecord:
    """Ten epochs of 7,000 in batches of 32."""
    num = 70_000
    loading = rows({name: num * spent_s for name, spent_s in (reader_s or MAKING).items()}, num)
    timeline = Timeline(sum(seconds.values()), rows(seconds, num // 32), loading, 8, first_s=first_s)
    parts = [PartRate("step", max(step_per_s, larger_per_s), place=DEVICE), PartRate("reading", 476.0, lanes=15)]
    facts = {"batch": 32, "step_per_s": step_per_s, "larger_batch": 128, "larger_per_s": larger_per_s, "readers": 8}
    return record("train", Ceiling.of(num, timeline.wall_s, parts, alone_s=MAKING, facts=facts), timeline, **more)


def named(record: RunRecord) -> Finding:
    (found,) = [choke for choke in diagnose_run(record, out=" --out work") if "lost_s" in choke.evidence]
    return found


def holds(choke: Finding, *figures: str) -> bool:
    return all(figure in choke.message for figure in figures)


def test_near_the_ceiling_nothing_is_found() -> None:
    well = extraction({"load": 0.2, "encode": 3.0}, wall_s=1.8)
    assert well.ceilings["extract"].share > 0.6
    assert diagnose_run(well) == []


def test_readers_in_one_another_s_way() -> None:
    choke = named(extraction({"load": 24.0, "encode": 2.0, "write": 1.0}, {"read": 0.0002, "decode": 0.030, "transform": 0.008}))
    assert (choke.code, choke.stage, choke.severity) == ("readers-collide", "load", "warning")
    assert holds(choke, "714/s", "9 %", "16 × 476/s", "13,600/s", "30 ", "38.2 ms", "2.1 ms")
    assert choke.command == "unchoke fit photos/ --workers 7 --out work"
    assert choke.evidence["saved_s"] == pytest.approx(12.0)
    assert choke.evidence["lost_load_s"] == pytest.approx(12.0)


def test_storage_that_is_slow_the_first_time() -> None:
    choke = named(extraction({"load": 24.0, "encode": 2.0}, {"read": 0.030, "decode": 0.0016, "transform": 0.0004}))
    assert (choke.code, choke.path) == ("slow-storage", "photos/")
    assert holds(choke, "30.0 ms", "0.1 ms")


def test_readers_that_wait_for_what_they_read_to_be_taken() -> None:
    choke = named(extraction({"load": 24.0, "encode": 2.0}))
    assert choke.code == "readers-idle"
    assert choke.command == "unchoke fit photos/ --job-size 256 --out work"
    assert choke.evidence["busy_share"] == pytest.approx(21 / (30 * 14))


def test_a_stream_that_does_not_take_what_was_read() -> None:
    choke = named(extraction({"load": 12.0, "encode": 1.0}, slots=1, readers=15))
    assert (choke.code, choke.command) == ("readers-idle", "unchoke fit photos/ --workers 7 --out work")


def test_what_went_by_before_the_first_job_is_claimed_once() -> None:
    choke = named(extraction({"load": 9.0, "encode": 1.0}, wall_s=10.0, slots=1, first_s=6.0))
    assert choke.code == "slow-start"
    assert choke.evidence["lost_load_s"] == pytest.approx(9.0 - choke.evidence["lost_start_s"])


def test_jobs_that_end_before_others_begin() -> None:
    choke = named(extraction({"load": 2.0, "encode": 3.0}))
    assert (choke.code, choke.stage) == ("jobs-drain", "idle")
    assert holds(choke, "11.5 s of 14.0 s", "2 jobs")


def test_an_engine_that_is_slower_in_the_run_than_alone() -> None:
    choke = named(extraction({"load": 2.0, "encode": 26.0}))
    assert (choke.code, choke.command) == ("engine-disturbed", "unchoke tune --out work")
    assert holds(choke, "13,600/s", "64")


def test_gpu_decoder_slower_in_the_run_than_alone() -> None:
    decoding = PartRate("decoding", 25_900.0, place=DEVICE)
    choke = named(extraction({"load": 2.0, "decode": 22.0, "encode": 2.0}, more=[decoding]))
    assert (choke.code, choke.stage) == ("decoder-disturbed", "decode")
    assert holds(choke, "22.0 s", "386 ms")


def test_shards_that_take_long_to_write() -> None:
    choke = named(extraction({"load": 2.0, "encode": 2.0, "collate": 1.0, "write": 22.0}))
    assert (choke.code, "--out" in choke.fix) == ("slow-writing", True)


def test_a_short_run_that_mostly_loads_kernels() -> None:
    choke = named(extraction({"load": 0.4, "encode": 9.6}, wall_s=5.0, first_s=4.2))
    assert (choke.code, choke.stage, choke.command) == ("slow-start", "start", "")
    assert holds(choke, "4.2 s")


STEPS = {"wait": 1.0, "prepare": 2.0, "forward": 6.0, "backward": 7.0, "optimizer": 2.0, "evaluate": 2.0, "checkpoint": 0.5}


def test_a_training_near_its_ceiling_is_well() -> None:
    well = training(STEPS)
    assert well.ceilings["train"].share > 0.6
    assert [choke for choke in diagnose_run(well) if "lost_s" in choke.evidence] == []


def test_small_batches_that_leave_the_device_waiting() -> None:
    slow = {**STEPS, "forward": 30.0, "backward": 35.0, "optimizer": 10.0}
    choke = named(training(slow, step_per_s=900.0, larger_per_s=3_600.0))
    assert (choke.code, choke.stage) == ("small-batches", "batch")
    assert holds(choke, "32", "900/s", "128", "3,600/s")
    assert choke.command == "unchoke train photos/ --cut none --batch-size 128 --out work"


def test_steps_that_something_takes_turns_with() -> None:
    slow = {**STEPS, "forward": 30.0, "backward": 35.0, "optimizer": 10.0}
    choke = named(training(slow))
    assert (choke.code, choke.command.split(" --")[2]) == ("steps-disturbed", "workers 4")
    assert holds(choke, "8.0 ms")


def test_a_training_that_waits_for_readers() -> None:
    choke = named(training({**STEPS, "wait": 60.0}, {"read": 0.0002, "decode": 0.007}, machine={"cores": 8, "workers": 8}))
    assert (choke.code, choke.stage) == ("readers-collide", "wait")
    assert holds(choke, "8 ", "7.2 ms", "2.1 ms")


def test_what_another_finding_speaks_of_is_not_told_twice() -> None:
    every_epoch = [{"name": "cache", "value": "none", "reason": "", "evidence": {}}]
    found = diagnose_run(training({**STEPS, "wait": 60.0}, history=[{}] * 10, choices=every_epoch, machine={"workers": 8}))
    assert found[0].code == "decoded-every-epoch"
    assert all("lost_s" not in choke.evidence for choke in found)


def test_evaluation_and_snapshots_that_take_most() -> None:
    much = named(training({**STEPS, "evaluate": 60.0}, training={"loop": {"eval_batch": 64}}))
    assert (much.code, much.command.endswith("--eval-batch 256 --out work")) == ("much-evaluation", True)
    often = training({**STEPS, "checkpoint": 60.0})
    assert "slow-checkpoint" in [choke.code for choke in diagnose_run(often)], "the rule of its own speaks of it already"


def test_a_training_that_is_mostly_its_first_step() -> None:
    choke = named(training({**STEPS, "backward": 40.0}, first_s=34.0))
    assert (choke.code, holds(choke, "34.0 s")) == ("slow-start", True)


def test_stages_that_only_read_and_clocks_that_say_nothing() -> None:
    ceiling = Ceiling.of(10_000, 10.0, [PartRate("reading", 476.0, lanes=16)], alone_s=MAKING, facts={"readers": 16})
    slow = Timeline(0.0, loading=rows({"decode": 140.0}, 10_000), readers=16)
    assert named(record("check", ceiling, slow)).code == "readers-collide"
    nothing = named(unexplained())
    assert (nothing.code, nothing.command) == ("below-ceiling", "unchoke profile train photos/ --cut none --out work")
    assert named(unexplained(command="unchoke fit photos/ --cut none")).command == nothing.command


def unexplained(**more: Any) -> RunRecord:
    return record("train", Ceiling.of(10_000, 10.0, [PartRate("step", 5_000.0)]), Timeline(0.0), **more)


def test_ladder_gets_no_command_that_finds_it_done() -> None:
    ladder = {"command": "unchoke fit photos/ --minutes 1.0", "ladder": [{"name": "heads", "share": 1.0}]}
    nothing = named(unexplained(**ladder))
    assert nothing.command == "" and nothing.fix
    much = named(training({**STEPS, "evaluate": 60.0}, training={"loop": {"eval_batch": 64}}, **ladder))
    assert (much.code, much.command) == ("much-evaluation", "")
