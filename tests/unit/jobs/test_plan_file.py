"""The plan as a file: the same bytes for the same jobs, members that are read when they are asked for, rows that are refused."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from errors import refused
from unchoke.jobs.job_plan import Job, load_jobs, plan_jobs, save_jobs


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs_queue.csv"


def unsealed(file: Path, text: str) -> list[Job]:
    """The jobs of a table that nobody vouches for."""
    (file.parent / "SHA256SUMS").unlink(missing_ok=True)
    file.write_bytes(text.encode())
    return list(load_jobs(file))


def jobs_of(*items: str, fingerprint: str = "1a2b3c4d", job_size: int = 64) -> list[Job]:
    return plan_jobs(
        items, ["c"] * len(items), fingerprint=fingerprint, output_pattern="e/{first}-{last}.npz", previous=[], job_size=job_size
    )


def test_awkward_ids_survive(file: Path) -> None:
    jobs = jobs_of("a, b", 'quo"te', "new\nline", "\udcff raw", "-dash", "naïve 🌿", "C:\\x\\y", "nul\0")
    save_jobs(file, jobs)
    assert list(load_jobs(file)) == jobs


def test_the_same_jobs_give_the_same_bytes_in_any_order(file: Path) -> None:
    jobs = [*jobs_of("a", "b", "c", job_size=1), *jobs_of("a", fingerprint="00000000")]
    save_jobs(file, jobs)
    before = file.read_bytes()
    save_jobs(file, jobs[::-1])
    assert file.read_bytes() == before


def test_a_very_large_job_can_be_read_back(file: Path) -> None:
    jobs = jobs_of(*(f"item_{number:020d}" for number in range(8000)), job_size=8000)
    before = csv.field_size_limit()
    save_jobs(file, jobs)
    assert list(load_jobs(file)) == jobs
    assert csv.field_size_limit() == before


def test_missing_columns_are_named(file: Path) -> None:
    with refused("damaged-queue") as caught:
        unsealed(file, "job_id,first,last\nx,0,1\n")
    assert "fingerprint, num_items, items" in caught.value.why


@pytest.mark.parametrize(("good", "bad"), [('[""a""]', "[nonsense"), ('[""a""]', '[""a"",""b""]'), (",0,0,", ",zero,0,")])
def test_a_damaged_row_is_named(file: Path, good: str, bad: str) -> None:
    save_jobs(file, jobs_of("a"))
    text = file.read_text()
    assert good in text
    with refused("damaged-queue") as caught:
        unsealed(file, text.replace(good, bad))
    assert "row 2" in caught.value.why


def test_a_path_out_of_the_folder_is_refused(file: Path) -> None:
    save_jobs(file, jobs_of("a"))
    with refused("outside-queue", "../../etc/x"):
        unsealed(file, file.read_text().replace("e/0-0.npz", "../../etc/x"))


def test_a_plan_from_before_there_were_seals_is_read(file: Path) -> None:
    save_jobs(file, jobs_of("a", "b", "c", job_size=2))
    assert [job.items for job in unsealed(file, file.read_text())] == [("a", "b"), ("c",)]
