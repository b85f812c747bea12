"""What clocks counted, as a record that survives JSON."""

from __future__ import annotations

import json

import pytest

from unchoke.core.clock import Clock, Loading, during
from unchoke.core.timeline import EXTRACTION, TRAINING, JobTimes, Timeline, noted_clocks


def test_a_timeline_is_in_one_order_and_survives_json() -> None:
    clock, loading = Clock(TRAINING), Loading()
    with clock.stage("backward"):
        pass
    with clock.stage("wait"), loading.here(), during("decode"):
        pass
    found = Timeline.of(clock, loading, epochs=[{"epoch": 1, "wait": 0.123456789}])
    assert [row.stage for row in found.stages] == ["wait", "backward", "other"]
    assert [(row.stage, row.calls) for row in found.loading] == [("decode", 1)]
    assert sum(row.share for row in found.stages) == pytest.approx(1)
    assert found.seconds("wait", "backward", "other") == pytest.approx(found.wall_s, abs=1e-5)
    assert found.epochs == ({"epoch": 1, "wait": 0.123457},)
    assert Timeline.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_jobs_add_up_as_they_come_in() -> None:
    times = JobTimes()
    assert times.progress() == {}
    for _ in range(2):
        times.add({"clocks": {"load": [1.0, 4], "encode": [3.0, 2], "other": [0.0, 0]}, "loading": {"decode": [0.5, 4]}})
    assert times.progress() == {"loading_share": 0.25}
    found = times.timeline(readers=3)
    assert [(row.stage, row.seconds, row.calls) for row in found.stages] == [("load", 2.0, 8), ("encode", 6.0, 4)]
    assert [(row.stage, row.seconds, row.share, row.calls) for row in found.loading] == [("decode", 1.0, 1.0, 8)]
    assert (found.wall_s, found.readers) == (8.0, 3)


def test_what_a_job_notes_is_plain_and_complete() -> None:
    clock, loading = Clock(EXTRACTION), Loading()
    with clock.stage("load"), loading.here(), during("open"):
        pass
    noted = json.loads(json.dumps(noted_clocks(clock.tally(), loading.tally())))
    assert list(noted["clocks"]) == [*EXTRACTION, "other"]
    assert noted["clocks"]["load"][1] == noted["loading"]["open"][1] == 1
