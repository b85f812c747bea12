"""`--on` as it is typed: the commands on a real cluster give the bytes they give here, whoever can read the photos."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster_work import Place, answer, nodes, records, shards, signal_driver, until
from raynet import RayNet

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def place(hidden: Path, tiny_weights: Path) -> Place:
    return Place(hidden / "driver", tiny_weights)


@pytest.fixture(scope="module")
def reference(place: Place, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A fit on this machine: its workspace, and the metrics."""
    out = tmp_path_factory.mktemp("here") / "out"
    return out, place.here("fit", out).to_dict()["metrics"]


def quarantine(out: Path) -> list[list[str]]:
    with (out / "quarantine.csv").open(newline="") as file:
        return list(csv.reader(file))


def test_killed_fit_ends_as_one_here(pair: RayNet, place: Place, reference: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """The photos are such that only the driver sees them."""
    out, (here, metrics) = tmp_path / "out", reference
    place.outside_killed(pair, "fit", out)
    result = place.outside(pair, "fit", out)
    assert result["metrics"] == metrics
    assert shards(out) == shards(here)
    assert quarantine(out) == quarantine(here) and "broken.jpg" in str(quarantine(here))
    assert {(node["agreement"], node["reads"]) for node in nodes(result).values()} == {("same bits", False)}
    assert {record["info"]["agreement"] for record in records(out)} == {"same bits"}
    assert {record["info"]["node"] for record in records(out)} <= {"node0", "node1", "node2"}
    assert not list(out.rglob("*.tmp"))


def test_two_commands_at_once_begin_and_finish_work_of_here(pair: RayNet, place: Place, tmp_path: Path) -> None:
    first_here, first_there, sound = tmp_path / "a", tmp_path / "b", str(place.sound)
    num_jobs = place.here("extract", first_here, place.sound, dry_run=True).num_jobs
    place.here("extract", first_here, place.sound, job=job_of(first_here))
    assert len(records(first_here)) == 1
    job = job_of(first_here)
    words = [place.command(pair, "extract", first_here, photos=sound)]
    words.append(place.command(pair, "extract", first_there, "--job", job, photos=sound))
    both = [pair.popen(pair.num, *one, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for one in words]
    said = [process.communicate(timeout=300) for process in both]
    done = [subprocess.CompletedProcess([], process.returncode, *texts) for process, texts in zip(both, said, strict=True)]
    assert answer(done[0])["num_jobs"] == num_jobs - 1
    assert answer(done[1])["num_jobs"] == 1 and len(records(first_there)) == 1
    assert place.here("extract", first_there, place.sound).num_jobs == num_jobs - 1
    assert shards(first_here) == shards(first_there) and len(shards(first_here)) == num_jobs


def job_of(out: Path) -> str:
    with (out / "features" / "jobs_queue.csv").open(newline="") as file:
        return next(csv.DictReader(file))["job_id"]


UPLOAD = """
import sys, time, boto3, pathlib
store = boto3.client("s3")
for left in range(100):
    try:
        store.create_bucket(Bucket="bkt")
        break
    except Exception:
        time.sleep(0.2)
root = pathlib.Path(sys.argv[1])
for file in root.rglob("*.jpg"):
    store.put_object(Bucket="bkt", Key=f"photos/{file.relative_to(root).as_posix()}", Body=file.read_bytes())
"""


@contextmanager
def bucket(net: RayNet, photos: Path) -> Iterator[subprocess.Popen[str]]:
    """A store on the machine outside with the photos in it."""
    serve = [sys.executable, "-m", "moto.server", "-H", net.ip(net.num), "-p", "5000"]
    store = net.popen(net.num, *serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        loaded = net.run(net.num, sys.executable, "-c", UPLOAD, str(photos))
        assert loaded.returncode == 0, loaded.stderr
        yield store
    finally:
        if store.poll() is None:
            end(store)


def end(store: subprocess.Popen[str]) -> None:
    signal_driver(store)
    store.wait()


def test_nodes_read_a_store_also_after_it_ended(pair: RayNet, place: Place, tmp_path: Path) -> None:
    """The photos' own folder is hidden from the nodes."""
    out, url = tmp_path / "out", "s3://bkt/photos"
    with bucket(pair, place.photos) as store:
        words = place.command(pair, "extract", out, "--job-size", "1", photos=url)
        driver = pair.popen(pair.num, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until(lambda: records(out), process=driver)
        end(store)
        said, errors = driver.communicate(timeout=120)
    assert driver.returncode == 3, said[-3000:] + errors[-2000:]
    error = json.loads(said.splitlines()[-1])["error"]
    assert error["code"] == "store-down" and "s3://bkt" in error["what"]
    assert not any(problem.startswith("unreachable") for record in records(out) for _, problem in record["failed_items"])
    with bucket(pair, place.photos):
        result = place.outside(pair, "extract", out, "--job-size", "1", photos=url)
    assert all(node["reads"] for node in nodes(result).values())
    place.here("extract", tmp_path / "here", job_size=1)
    assert shards(out) == shards(tmp_path / "here")
