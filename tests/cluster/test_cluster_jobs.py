"""Jobs on a real cluster of three nodes: nodes lost and won, drivers killed, tasks that kill. Nothing is lost or done twice."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_work import DRIVER, assert_all_done_once, drive, signal_driver, until
from raynet import RayNet

pytestmark = pytest.mark.campaign
NUM_JOBS = 200


def test_the_contract_of_engines_holds_on_a_cluster(net: RayNet) -> None:
    suite = Path(__file__).parents[1] / "contracts" / "test_job_engines.py"
    command = [sys.executable, "-m", "pytest", "-vv", "-p", "no:cacheprovider", "-p", "no:xdist", str(suite), "-k", "ray"]
    done = net.run(0, *command, env={"UNCHOKE_TEST_CLUSTER": "auto"}, timeout=240)
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= 12


def test_a_driver_outside_goes_on_after_ctrl_c(net: RayNet, tmp_path: Path) -> None:
    words = [sys.executable, DRIVER, net.client_address, str(tmp_path)]
    driver = net.popen(net.num, *words, stdout=subprocess.PIPE)
    until(lambda: len(list(tmp_path.glob("*.done"))) > 5)
    signal_driver(driver, signal.SIGINT)
    text, _ = driver.communicate(timeout=120)
    assert json.loads(text.splitlines()[-1]).get("error", [""])[0] == "interrupted", text
    done = len(list(tmp_path.glob("*.done")))
    result, text = drive(net, tmp_path, "--seconds", "0", node=net.num, address=net.client_address)
    assert result["done"] == NUM_JOBS - done > 0, text
    assert_all_done_once(tmp_path, NUM_JOBS)


def test_a_task_that_kills_its_worker_is_given_up(net: RayNet, tmp_path: Path) -> None:
    result, text = drive(net, tmp_path, "--jobs", "12", "--seconds", "0.05", "--slots", "3", "--killer", "item00009")
    assert result["done"] == 11, text
    assert list(result["failed"]) == ["ffffffff-00002"]
    assert "WorkerDied" in result["failed"]["ffffffff-00002"]
    failed = sorted(tmp_path.glob("*.failed"))
    assert len(failed) == 3
    assert all("died" in json.loads(file.read_text())["message"] for file in failed)


def test_twenty_kills_of_the_driver_lose_nothing(net: RayNet, tmp_path: Path) -> None:
    kills, rng = 0, random.Random(20)
    while kills < 20:
        driver = net.popen(0, sys.executable, DRIVER, "auto", str(tmp_path), "--seconds", "0.2", stdout=subprocess.PIPE)
        assert driver.stdout is not None
        assert driver.stdout.readline().startswith("begun")
        time.sleep(rng.uniform(0.0, 0.8))
        if driver.poll() is not None:
            break
        signal_driver(driver)
        driver.communicate()
        kills += 1
    assert kills == 20
    result, text = drive(net, tmp_path, "--seconds", "0")
    assert "done" in result, text
    assert_all_done_once(tmp_path, NUM_JOBS)


def test_200_jobs_survive_a_power_cut_and_a_silent_cut(net: RayNet, tmp_path: Path) -> None:
    driver = net.popen(0, sys.executable, DRIVER, "auto", str(tmp_path), "--seconds", "0.2", stdout=subprocess.PIPE)
    done = lambda: len(list(tmp_path.glob("*.done")))  # noqa: E731
    harm = threading.Thread(target=lambda: (until(lambda: done() > 30), net.power_off(1), until(lambda: done() > 80), net.cut(2)))
    harm.start()
    text, _ = driver.communicate(timeout=240)
    harm.join()
    result = json.loads(text.splitlines()[-1])
    assert result.get("done") == NUM_JOBS and not result["failed"], text
    assert [text.count(f"node{number} ") for number in (1, 2)] == [1, 1], text
    assert "raylet" not in text, "what Ray prints of it itself stays out of the output"
    assert_all_done_once(tmp_path, NUM_JOBS)
    assert not list(tmp_path.glob("*.failed"))


def test_nodes_that_join_while_jobs_run_are_used(cluster: RayNet, tmp_path: Path) -> None:
    """With the head alone to begin with: the others were lost before, or are switched off now."""
    for number in (1, 2):
        cluster.power_off(number)
    driver = cluster.popen(0, sys.executable, DRIVER, "auto", str(tmp_path), "--seconds", "0.2", stdout=subprocess.PIPE)
    until(lambda: any(tmp_path.glob("*.done")))
    cluster.repair()
    text, _ = driver.communicate(timeout=240)
    result = json.loads(text.splitlines()[-1])
    assert result.get("done") == NUM_JOBS, text
    by_node = Counter(json.loads(file.read_text())["info"]["node"] for file in tmp_path.glob("*.done"))
    assert set(by_node) == {"node0", "node1", "node2"}
    assert_all_done_once(tmp_path, NUM_JOBS)


@pytest.fixture
def larder() -> Iterator[Path]:
    """A control group that holds 600 MB, as a small container does."""
    old, new = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    folder = (old if old.is_dir() else new) / f"unchoke-{os.getpid()}"
    limit = folder / ("memory.limit_in_bytes" if old.is_dir() else "memory.max")
    try:
        folder.mkdir()
        limit.write_text("600000000")
    except OSError as error:
        pytest.skip(f"NO TEST OF MEMORY: control groups cannot be made here ({error})")
    yield folder
    until(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


def test_a_task_that_takes_all_memory_is_given_up(net: RayNet, larder: Path, tmp_path: Path) -> None:
    seen_there = net.dir / "local/cgroup" / larder.name
    options = ("--jobs", "6", "--seconds", "0", "--only", "node1", "--eater", "item00009", "--larder", str(seen_there))
    result, text = drive(net, tmp_path, *options)
    assert result["done"] == 5, text
    assert list(result["failed"]) == ["ffffffff-00002"]
    assert "too little memory" in result["failed"]["ffffffff-00002"]
    assert len(list(tmp_path.glob("*.failed"))) == 3


def test_the_same_command_goes_on_after_a_new_head(net: RayNet, tmp_path: Path) -> None:
    driver = net.popen(net.num, sys.executable, DRIVER, net.client_address, str(tmp_path), "--jobs", "60", stdout=subprocess.PIPE)
    until(lambda: len(list(tmp_path.glob("*.done"))) > 5)
    net.power_off(0)
    net.repair()
    text, _ = driver.communicate(timeout=240)
    code, what, _why = json.loads(text.splitlines()[-1])["error"]
    assert code in ("cluster-restarted", "cluster-silent") and net.client_address in what
    done = len(list(tmp_path.glob("*.done")))
    result, text = drive(net, tmp_path, "--jobs", "60", "--seconds", "0")
    assert result["done"] == 60 - done, text
    assert_all_done_once(tmp_path, 60)
