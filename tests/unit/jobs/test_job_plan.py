"""The plan: which jobs there are, and which of them a change touches."""

from __future__ import annotations

import pytest

from errors import refused
from unchoke.jobs.job_plan import Job, plan_jobs

FINGERPRINT = "1a2b3c4d" + "0" * 56
PATTERN = "encoder_x-1a2b3c4d/img_{first:06d}-{last:06d}.npz"


def plan(items: dict[str, str], previous: list[Job] | None = None, *, unfinished: tuple[str, ...] = ()) -> list[Job]:
    return plan_jobs(
        list(items),
        list(items.values()),
        fingerprint=FINGERPRINT,
        output_pattern=PATTERN,
        previous=previous or [],
        job_size=2,
        unfinished=unfinished,
    )


def test_items_are_grouped_in_the_order_given() -> None:
    jobs = plan({"b": "1", "a": "2", "c": "3"})
    assert [job.items for job in jobs] == [("b", "a"), ("c",)]
    assert [(job.job_id, job.first, job.last) for job in jobs] == [("1a2b3c4d-00000", 0, 1), ("1a2b3c4d-00001", 2, 2)]
    assert jobs[1].output == "encoder_x-1a2b3c4d/img_000002-000002.npz"


def test_new_items_go_into_new_jobs_and_touch_no_old_one() -> None:
    before = plan({"a": "1", "b": "2", "c": "3"})
    after = plan({"z": "0", "a": "1", "b": "2", "c": "3"}, before)
    assert after[:2] == before
    assert after[2].items == ("z",)
    assert after[2].first == 3


def test_changed_content_changes_its_job_only() -> None:
    before = plan({"a": "1", "b": "2", "c": "3"})
    after = plan({"a": "1", "b": "changed", "c": "3"}, before)
    assert after[0].items == before[0].items
    assert after[0].output == before[0].output
    assert after[0].inputs != before[0].inputs
    assert after[1] == before[1]


def test_vanished_member_stays_in_a_finished_job() -> None:
    before = plan({"a": "1", "b": "2"})
    assert plan({"a": "1"}, before) == before
    assert plan({"a": "1", "b": "2"}, plan({"a": "1"}, before)) == before


def test_vanished_member_leaves_a_job_to_be_redone() -> None:
    before = plan({"a": "1", "b": "2"})
    assert plan({"a": "changed"}, before)[0].items == ("a",)
    assert plan({"a": "1"}, before, unfinished=(before[0].job_id,))[0].items == ("a",)
    assert plan({}, before, unfinished=(before[0].job_id,))[0].items == ()


def test_ordinals_and_numbers_are_never_reused() -> None:
    before = plan({"a": "1", "b": "2"})
    emptied = plan({}, before, unfinished=(before[0].job_id,))
    again = plan({"a": "1"}, emptied)
    assert [(job.first, job.items) for job in again] == [(0, ()), (2, ("a",))]


def test_jobs_of_another_fingerprint_are_not_mixed_in() -> None:
    other = plan_jobs(["a"], ["1"], fingerprint="ffff0000", output_pattern="o/{first}-{last}", previous=[])
    assert [job.items for job in plan({"a": "1"}, other)] == [("a",)]
    assert plan({"a": "1"}, other)[0].inputs != other[0].inputs


def test_an_id_that_occurs_twice_is_refused_by_name() -> None:
    with refused("duplicate-items"):
        plan_jobs(["a", "a"], ["1", "2"], fingerprint=FINGERPRINT, output_pattern=PATTERN, previous=[])


@pytest.mark.parametrize("pattern", ["../out_{first}", "/tmp/out_{first}", "a/../../b", "C:/x", "a\\..\\b", ""])
def test_an_output_outside_the_folder_is_refused(pattern: str) -> None:
    with refused("outside-queue"):
        plan_jobs(["a"], ["1"], fingerprint=FINGERPRINT, output_pattern=pattern, previous=[])
