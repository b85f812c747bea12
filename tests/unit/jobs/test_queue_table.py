"""jobs_queue.csv: any id survives, the bytes are stable, and a damaged file is named."""

from __future__ import annotations

import csv

import pytest

from unchoke.core.errors import DataError
from unchoke.jobs.job_plan import Job, plan_jobs
from unchoke.jobs.queue_table import jobs_from_csv, jobs_to_csv


def jobs_of(*items: str, fingerprint: str = "1a2b3c4d", job_size: int = 64) -> list[Job]:
    pairs = [(item, "c") for item in items]
    return plan_jobs(pairs, fingerprint=fingerprint, output_pattern="e/{first}-{last}.npz", previous=[], job_size=job_size)


def test_awkward_ids_survive() -> None:
    jobs = jobs_of("a, b", 'quo"te', "new\nline", "\udcff raw", "-dash", "naïve 🌿", "C:\\x\\y", "nul\0")
    assert jobs_from_csv(jobs_to_csv(jobs)) == jobs


def test_the_same_jobs_give_the_same_bytes_in_any_order() -> None:
    jobs = [*jobs_of("a", "b", "c", job_size=1), *jobs_of("a", fingerprint="00000000")]
    assert jobs_to_csv(jobs) == jobs_to_csv(jobs[::-1])


def test_a_very_large_job_can_be_read_back() -> None:
    jobs = jobs_of(*(f"item_{number:020d}" for number in range(8000)), job_size=8000)
    before = csv.field_size_limit()
    assert jobs_from_csv(jobs_to_csv(jobs)) == jobs
    assert csv.field_size_limit() == before


def test_missing_columns_are_named() -> None:
    with pytest.raises(DataError) as caught:
        jobs_from_csv("job_id,first,last\nx,0,1\n")
    assert "fingerprint, num_items, items" in caught.value.why


@pytest.mark.parametrize(("good", "bad"), [('[""a""]', "[nonsense"), ('[""a""]', '[""a"",""b""]'), (",0,0,", ",zero,0,")])
def test_a_damaged_row_is_named(good: str, bad: str) -> None:
    text = jobs_to_csv(jobs_of("a"))
    assert good in text
    with pytest.raises(DataError) as caught:
        jobs_from_csv(text.replace(good, bad))
    assert "row 2" in caught.value.why


def test_a_path_out_of_the_folder_is_refused() -> None:
    with pytest.raises(DataError, match="not a path inside"):
        jobs_from_csv(jobs_to_csv(jobs_of("a")).replace("e/0-0.npz", "../../etc/x"))
