"""`--on` as it is typed: the commands on a real cluster give the bytes they give here, whoever can read the photos."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raynet import RayNet, why_not
from tests.conftest import TINY, make_photos

pytestmark = pytest.mark.system


class Place:
    """Photos that only the driver sees, the weights of a small network, and the commands over them."""

    def __init__(self, root: Path, weights: Path) -> None:
        self.photos = make_photos(root / "photos")
        self.bad = Path(shutil.copytree(self.photos, root / "bad"))
        whole = next((self.bad).rglob("*.jpg"))
        whole.with_name("broken.jpg").write_bytes(whole.read_bytes()[:700])
        self.weights = weights

    def command(self, name: str, out: Path, *options: str, photos: Path | None = None) -> list[str]:
        encoder = ["--encoder", TINY, "--weights", str(self.weights), "--job-size", "8", "--max-failures", "0.2"]
        return [
            sys.executable,
            "-m",
            "unchoke",
            name,
            str(photos or self.photos),
            "--out",
            str(out),
            "--json",
            *encoder,
            *options,
        ]

    def here(self, name: str, out: Path, *options: str, photos: Path | None = None) -> dict[str, Any]:
        return answer(
            subprocess.run(self.command(name, out, *options, photos=photos), capture_output=True, text=True, check=False)
        )

    def outside(self, net: RayNet, name: str, out: Path, *options: str, photos: Path | None = None) -> dict[str, Any]:
        """Typed on a machine that is not part of the cluster."""
        command = self.command(name, out, "--on", net.client_address, *options, photos=photos)
        return answer(net.run(net.num, *command, timeout=300))


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["result"]
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_weights: Path) -> Place:
    return Place(tmp_path_factory.mktemp("driver"), tiny_weights)


@pytest.fixture(scope="module")
def net(place: Place) -> Iterator[RayNet]:
    if why := why_not():
        pytest.skip(f"NO CLUSTER TESTS: {why}")
    made = RayNet(2, cpus=1, hidden=[place.photos, place.bad, place.weights.parent])
    made.env |= {"AWS_ENDPOINT_URL": f"http://{made.ip(made.num)}:5000", "AWS_DEFAULT_REGION": "us-east-1"}
    made.env |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    try:
        yield made.start()
    finally:
        made.stop()


def shards(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((out / "features").rglob("*.npz"))}


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted((out / "features").glob("*.done"))]


def quarantine(out: Path) -> list[list[str]]:
    with (out / "quarantine.csv").open(newline="") as file:
        return list(csv.reader(file))


def test_photos_that_only_the_driver_sees_are_sent_and_give_the_same_bytes(net: RayNet, place: Place, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    result = place.outside(net, "extract", there, photos=place.bad)
    place.here("extract", here, photos=place.bad)
    assert shards(there) == shards(here)
    assert quarantine(there) == quarantine(here)
    assert "broken.jpg" in str(quarantine(here))
    nodes = next(choice for choice in result["choices"] if choice["name"] == "nodes")
    assert "to the last bit" in nodes["reason"] and "sent from here" in nodes["reason"]
    assert {record["info"]["agreement"] for record in records(there)} == {"same bits"}
    assert {record["info"]["node"] for record in records(there)} <= {"node0", "node1"}
    assert not list(there.rglob("*.tmp"))


def test_what_was_begun_here_is_finished_on_a_cluster_and_the_other_way_round(net: RayNet, place: Place, tmp_path: Path) -> None:
    first_here, first_there = tmp_path / "a", tmp_path / "b"
    plan = place.here("extract", first_here, "--dry-run")
    place.here("extract", first_here, "--job", job_of(first_here))
    assert len(records(first_here)) == 1
    assert place.outside(net, "extract", first_here)["num_jobs"] == plan["num_jobs"] - 1
    place.outside(net, "extract", first_there, "--job", job_of(first_here))
    assert len(records(first_there)) == 1
    assert place.here("extract", first_there)["num_jobs"] == plan["num_jobs"] - 1
    assert shards(first_here) == shards(first_there)


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


def test_nodes_read_photos_from_an_object_store_by_themselves(net: RayNet, place: Place, tmp_path: Path) -> None:
    """The store runs on the machine outside; the photos' own folder is hidden from the nodes."""
    serve = [sys.executable, "-m", "moto.server", "-H", net.ip(net.num), "-p", "5000"]
    store = net.popen(net.num, *serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        loaded = net.run(net.num, sys.executable, "-c", UPLOAD, str(place.photos))
        assert loaded.returncode == 0, loaded.stderr
        there, here = tmp_path / "there", tmp_path / "here"
        command = place.command("extract", there, "--on", net.client_address)
        command[command.index(str(place.photos))] = "s3://bkt/photos"
        result = answer(net.run(net.num, *command, timeout=300))
    finally:
        children = Path(f"/proc/{store.pid}/task/{store.pid}/children").read_text().split()
        subprocess.run(["kill", "-9", *children, str(store.pid)], check=False)
        store.wait()
    nodes = next(choice for choice in result["choices"] if choice["name"] == "nodes")
    assert "read by the nodes" in nodes["reason"]
    place.here("extract", here)
    assert shards(there) == shards(here)


def job_of(out: Path) -> str:
    with (out / "features" / "jobs_queue.csv").open(newline="") as file:
        return next(csv.DictReader(file))["job_id"]


def test_a_fit_on_a_cluster_killed_on_the_way_ends_as_one_here(net: RayNet, place: Place, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    command = place.command("fit", there, "--on", net.client_address)
    driver = net.popen(net.num, *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while not records(there) and driver.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    subprocess.run(["kill", "-9", *children, str(driver.pid)], check=False)
    driver.communicate()
    assert place.outside(net, "fit", there)["metrics"] == place.here("fit", here)["metrics"]
    assert shards(there) == shards(here)
