"""A real cluster of two nodes does the work of one machine, though the driver is killed and a node is lost.

One test, so that one process of the suite starts one cluster. Each part of it is told in full by a campaign of this folder.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from cluster_work import (
    DRIVER,
    Place,
    answer,
    assert_all_done_once,
    make_training,
    records,
    refusal,
    shards,
    teams,
    train,
    trained,
    until,
)
from raynet import RayNet
from tests.cluster.conftest import open_cluster


def test_two_nodes_do_the_work_of_one_machine(hidden: Path, tiny_weights: Path, tmp_path: Path) -> None:
    place, small = Place(hidden / "default", tiny_weights), ("--job-size", "2")
    make_training(tmp_path, per_class=10)
    with open_cluster(2, hidden) as net:
        refuses_strangers(net)
        tells_of_every_node(net, place.sound, tmp_path / "few")
        trains_on_two_nodes(net, tmp_path)
        place.outside_killed(net, "extract", tmp_path / "out", *small)
        loses_a_node(net, tmp_path / "jobs")
        result = place.outside(net, "extract", tmp_path / "out", *small)
    place.here("extract", tmp_path / "here", job_size=2)
    assert shards(tmp_path / "out") == shards(tmp_path / "here")
    assert 0 < result["num_jobs"] < len(shards(tmp_path / "here")), "the rest of what the killed one had begun"
    assert {record["info"]["agreement"] for record in records(tmp_path / "out")} == {"same bits"}


def refuses_strangers(net: RayNet) -> None:
    refusal(net, "cluster-silent", "ray://10.77.0.10:10002", on="ray://10.77.0.10:10002")
    refusal(net, "cluster-refuses-login", on=net.client_address, RAY_AUTH_TOKEN="f" * 64, RAY_AUTH_TOKEN_PATH="")


def tells_of_every_node(net: RayNet, photos: Path, few: Path) -> None:
    for number, file in enumerate(sorted(photos.rglob("*.jpg"))[::8]):
        (few / f"class{number % 2}").mkdir(parents=True, exist_ok=True)
        shutil.copy(file, few / f"class{number % 2}")
    trials = answer(net.run(0, sys.executable, "-m", "unchoke", "cluster", "check", "auto", str(few), "--json"))["trials"]
    assert [(one["reads"], one["num_photos"], one["equal"]) for one in trials] == [(True, 6, True)] * 2


def trains_on_two_nodes(net: RayNet, folder: Path) -> None:
    done = net.run(0, sys.executable, *train(folder / "begun", "--on", "auto", epochs=3))
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert teams(done.stdout) == [2]
    assert len(json.loads(trained(folder / "begun")["history"])) == 3


def loses_a_node(net: RayNet, folder: Path) -> None:
    """In the middle of its jobs."""
    words = [sys.executable, DRIVER, "auto", str(folder), "--jobs", "40", "--seconds", "0.2"]
    driver = net.popen(0, *words, stdout=subprocess.PIPE)
    until(lambda: any('"node1"' in file.read_text() for file in folder.glob("*.done")), process=driver)
    net.power_off(1)
    text, _ = driver.communicate(timeout=120)
    result = json.loads(text.splitlines()[-1])
    assert result.get("done") == 40 and not result["failed"], text
    assert text.count("node1") == 1, text
    assert_all_done_once(folder, 40)
