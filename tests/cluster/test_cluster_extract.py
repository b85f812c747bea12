"""`--on` as it is typed: the commands on a real cluster give the bytes they give here, whoever can read the photos."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from raynet import RayNet
from tests.conftest import TINY, make_photos

import unchoke
from unchoke.core.events import ignore

pytestmark = pytest.mark.system


class Place:
    """Photos that only the driver sees, one of them broken, the sound ones apart; weights, and the commands over them."""

    def __init__(self, root: Path, weights: Path) -> None:
        self.photos = make_photos(root / "photos")
        self.sound = Path(shutil.copytree(self.photos, root / "sound"))
        whole = next(self.photos.rglob("*.jpg"))
        whole.with_name("broken.jpg").write_bytes(whole.read_bytes()[:700])
        self.weights = Path(shutil.copy(weights, root / "tiny.safetensors"))

    def command(self, net: RayNet, name: str, out: Path, *options: str, photos: str = "") -> list[str]:
        words = [name, photos or str(self.photos), "--out", str(out), "--on", net.client_address, "--json"]
        encoder = ["--encoder", TINY, "--weights", str(self.weights), "--engine", "openvino", "--precision", "f32"]
        encoder += ["--job-size", "8", "--max-failures", "0.2"]
        return [sys.executable, "-m", "unchoke", *words, *encoder, *options]

    def here(self, name: str, out: Path, photos: Path | None = None, **options: Any) -> Any:
        encoder = {"encoder": TINY, "weights": self.weights, "engine": "openvino", "precision": "f32"}
        encoder |= {"job_size": 8, "max_failures": 0.2}
        return getattr(unchoke, name)(photos or self.photos, out=out, on_event=ignore, **{**encoder, **options})

    def outside(self, net: RayNet, name: str, out: Path, *options: str, photos: str = "") -> dict[str, Any]:
        """Typed on a machine that is not part of the cluster."""
        return answer(net.run(net.num, *self.command(net, name, out, *options, photos=photos), timeout=300))


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found: dict[str, Any] = lines[-1]["result"]
    return found


@pytest.fixture(scope="module")
def place(hidden: Path, tiny_weights: Path) -> Place:
    return Place(hidden / "driver", tiny_weights)


@pytest.fixture(scope="module")
def reference(place: Place, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A fit on this machine: its workspace, and the metrics."""
    out = tmp_path_factory.mktemp("here") / "out"
    return out, place.here("fit", out).to_dict()["metrics"]


def shards(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((out / "features").rglob("*.npz"))}


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted((out / "features").glob("*.done"))]


def quarantine(out: Path) -> list[list[str]]:
    with (out / "quarantine.csv").open(newline="") as file:
        return list(csv.reader(file))


def why_nodes(result: dict[str, Any]) -> str:
    return str(next(choice for choice in result["choices"] if choice["name"] == "nodes")["reason"])


def test_a_fit_killed_on_the_way_ends_as_one_here_with_photos_that_only_the_driver_sees(
    pair: RayNet, place: Place, reference: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    out, (here, metrics) = tmp_path / "out", reference
    driver = pair.popen(pair.num, *place.command(pair, "fit", out), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while not records(out) and driver.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    subprocess.run(["kill", "-9", *children, str(driver.pid)], check=False)
    driver.communicate()
    result = place.outside(pair, "fit", out)
    assert result["metrics"] == metrics
    assert shards(out) == shards(here)
    assert quarantine(out) == quarantine(here) and "broken.jpg" in str(quarantine(here))
    assert "to the last bit" in why_nodes(result) and "sent from here" in why_nodes(result)
    assert {record["info"]["agreement"] for record in records(out)} == {"same bits"}
    assert {record["info"]["node"] for record in records(out)} <= {"node0", "node1", "node2"}
    assert not list(out.rglob("*.tmp"))


def test_two_commands_at_once_finish_what_was_begun_here_and_begin_what_is_finished_here(
    pair: RayNet, place: Place, tmp_path: Path
) -> None:
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
        end(store)


def end(store: subprocess.Popen[str]) -> None:
    if store.poll() is None:
        children = Path(f"/proc/{store.pid}/task/{store.pid}/children").read_text().split()
        subprocess.run(["kill", "-9", *children, str(store.pid)], check=False)
        store.wait()


def test_nodes_read_photos_from_an_object_store_by_themselves_also_after_it_ended(
    pair: RayNet, place: Place, tmp_path: Path
) -> None:
    """The photos' own folder is hidden from the nodes."""
    out, url = tmp_path / "out", "s3://bkt/photos"
    with bucket(pair, place.photos) as store:
        words = place.command(pair, "extract", out, "--job-size", "1", photos=url)
        driver = pair.popen(pair.num, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        patience_s = time.monotonic() + 120
        while not records(out) and driver.poll() is None and time.monotonic() < patience_s:
            time.sleep(0.005)
        end(store)
        said, errors = driver.communicate(timeout=120)
    assert driver.returncode == 3, said[-3000:] + errors[-2000:]
    error = json.loads(said.splitlines()[-1])["error"]
    assert error["what"] == "s3://bkt does not answer" and "run the same command again" in error["try"]
    assert not any(problem.startswith("unreachable") for record in records(out) for _, problem in record["failed_items"])
    with bucket(pair, place.photos):
        result = place.outside(pair, "extract", out, "--job-size", "1", photos=url)
    assert "read by the nodes" in why_nodes(result)
    place.here("extract", tmp_path / "here", job_size=1)
    assert shards(out) == shards(tmp_path / "here")
