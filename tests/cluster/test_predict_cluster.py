"""`predict` on a real cluster of three nodes: the same rows to the last bit, photos read by nodes or sent to them."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from raynet import RayNet

import unchoke
from unchoke.core.events import ignore

pytestmark = pytest.mark.system
HIDDEN = Path(tempfile.mkdtemp(prefix="unchoke-hidden-"))
"""No node sees what is in here; a driver outside the cluster does."""
NET = {"hidden": [HIDDEN]}
OUTSIDE = 3


@pytest.fixture(scope="module", autouse=True)
def hidden() -> Iterator[None]:
    yield
    shutil.rmtree(HIDDEN, ignore_errors=True)


def gather(photos: Path, to: Path) -> Path:
    """More photos than fit in two chunks, two of which are none."""
    for number in range(4):
        shutil.copytree(photos, to / str(number))
    (to / "1" / "torn.jpg").write_bytes(b"nothing like a picture")
    (to / "2" / "empty.jpg").write_bytes(b"")
    return to


@pytest.mark.parametrize("node", [0, OUTSIDE], ids=["shared", "hidden"])
def test_rows_are_those_of_one_machine(net: RayNet, finished: Path, photos: Path, tmp_path: Path, node: int) -> None:
    root = HIDDEN if node == OUTSIDE else tmp_path
    images, run = gather(photos, root / "images"), Path(shutil.copytree(finished, root / "work"))
    here = unchoke.predict("latest", [images], out=run, to=root / "here.csv", on_event=ignore)
    assert len(here.failed) == 2 and len(here.rows) == 4 * 42 + 2
    address = net.client_address if node == OUTSIDE else "auto"
    words = ["predict", "latest", str(images), "--out", str(run), "--to", str(root / "there.csv"), "--on", address]
    done = net.run(node, sys.executable, "-m", "unchoke", *words)
    told = done.stdout + done.stderr
    assert done.returncode == 1, told[-4000:]
    assert ("images are read by the nodes" if node == 0 else "images are sent from here where a node cannot read them") in told
    assert (root / "there.csv").read_bytes() == (root / "here.csv").read_bytes()
    assert [line for line in told.splitlines() if line.startswith("failed\t")] == [
        f"failed\t{path}\t{reason}" for path, reason in here.failed.items()
    ]
