"""One cluster for all campaigns, whole when a test begins. Without root or namespaces tests are skipped, and say why."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from raynet import RayNet, why_not

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def hidden() -> Iterator[Path]:
    """No node sees what is in here; a driver outside the cluster does."""
    folder = Path(tempfile.mkdtemp(prefix="hidden-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def cluster(hidden: Path) -> Iterator[RayNet]:
    with open_cluster(3, hidden) as made:
        yield made


@contextmanager
def open_cluster(nodes: int, hidden: Path) -> Iterator[RayNet]:
    if why := why_not():
        pytest.skip(f"NO CLUSTER TESTS: {why}")
    made = RayNet(nodes, cpus=1, hidden=[hidden])
    made.env["PYTHONPATH"] = os.pathsep.join(
        map(str, [ROOT / "src", ROOT / "tests", ROOT / "tests/contracts", ROOT / "tests/cluster"])
    )
    made.env |= {"AWS_ENDPOINT_URL": f"http://{made.ip(made.num)}:5000", "AWS_DEFAULT_REGION": "us-east-1"}
    made.env |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "PYTHONFAULTHANDLER": "1"}
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def net(cluster: RayNet) -> RayNet:
    """The cluster with all of its nodes, whatever the test before did to them."""
    if cluster.lost:
        cluster.repair()
    return cluster


@pytest.fixture
def pair(cluster: RayNet) -> RayNet:
    """Two nodes of it, for commands that gain nothing by a third: every process that holds a network takes seconds to start."""
    if cluster.lost - {2}:
        cluster.repair()
    if 2 not in cluster.lost:
        cluster.power_off(2)
    return cluster
