"""One cluster for each module that wants one. Without root or namespaces its tests are skipped, and say why."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from raynet import RayNet, why_not

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def net(request: pytest.FixtureRequest) -> Iterator[RayNet]:
    """A running cluster, as the module's `NET` asks for it; nodes import what tests import."""
    if why := why_not():
        pytest.skip(f"NO CLUSTER TESTS: {why}")
    made = RayNet(**getattr(request.module, "NET", {}))
    paths = [ROOT / "src", ROOT / "tests", ROOT / "tests/contracts", ROOT / "tests/cluster"]
    made.env["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    try:
        yield made.start()
    finally:
        made.stop()
