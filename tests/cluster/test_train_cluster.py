"""Networks trained on several machines: by torchrun and with --on, to the same bytes as on one machine; stopped, and lost.

Each training begins with a copy of one workspace whose activations are cached already.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cluster_work import make_training, signal_driver, teams, train, trained, until
from raynet import RayNet

pytestmark = pytest.mark.campaign
ENCODER_OPTIONS = ("--cut", "-1", "--encoder", "test_efficientnet", "--input-px", "64", "--engine", "torch")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    make_training(folder)
    return folder


@pytest.fixture(scope="module")
def private(hidden: Path) -> Path:
    """Only the machine outside the cluster sees what is in here."""
    folder = hidden / "training"
    folder.mkdir()
    return folder


def workspace(place: Path, name: str, *, below: Path | None = None) -> Path:
    return Path(shutil.copytree(place / "begun", (below or place) / name))


def started(net: RayNet, node: int, log: Path, *words: str) -> subprocess.Popen[str]:
    with log.open("w") as file:
        return net.popen(node, sys.executable, *words, stdout=file, stderr=subprocess.STDOUT)


def launched(net: RayNet, node: int, first: int, out: Path, *options: str) -> subprocess.Popen[str]:
    """torchrun as it is typed on one of two machines, one process on each; machine `first` keeps the meeting place."""
    meet = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{net.ip(first)}:29500", "--local-addr", net.ip(node))
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "1", *meet)
    return started(net, node, out.parent / f"{out.name}.{node}.log", *torchrun, *train(out, *options))


def has_checkpoint(out: Path) -> Callable[[], bool]:
    return lambda: any(out.glob("experiments/*/checkpoints/last.pt"))


@pytest.fixture(scope="module")
def reference(cluster: RayNet, place: Path) -> dict[str, object]:
    """Two processes on one machine."""
    out = workspace(place, "reference")
    done = cluster.run(0, sys.executable, *train(out, "--devices", "2"))
    assert done.returncode == 0, done.stderr[-3000:]
    return trained(out)


def test_torchrun_on_two_machines_gives_the_bytes_of_one(net: RayNet, place: Path, reference: dict[str, object]) -> None:
    out = workspace(place, "launched")
    first, second = (launched(net, node, 0, out) for node in (0, 1))
    assert [first.wait(120), second.wait(60)] == [0, 0], (place / "launched.0.log").read_text()[-3000:]
    assert trained(out) == reference


def test_a_stopped_training_goes_on_to_the_same_bytes(net: RayNet, place: Path, reference: dict[str, object]) -> None:
    out = stopped(net, place)
    done = net.run(0, sys.executable, *train(out, "--on", "auto", "--devices", "2"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert teams(done.stdout) == [2]
    assert trained(out) == reference


def stopped(net: RayNet, place: Path) -> Path:
    """A workspace whose training was stopped in the middle; a machine that is quick, or busy, may be asked too late."""
    for attempt in range(4):
        out, log = workspace(place, f"stopped{attempt}"), place / f"stopped{attempt}.log"
        process = started(net, 0, log, *train(out, "--on", "auto", "--devices", "2"))
        until(has_checkpoint(out), process=process)
        signal_driver(process, signal.SIGINT)
        if process.wait(180) == 130:
            assert '"interrupted"' in log.read_text()
            return out
    raise AssertionError(log.read_text()[-3000:])


def test_machines_without_the_workspace_are_named(net: RayNet, place: Path, private: Path) -> None:
    outside, out = net.num, workspace(place, "launched", below=private)
    data = (str(place / "photos"), "--weights", str(place / "tiny.pt"), *ENCODER_OPTIONS)
    processes = [launched(net, node, outside, out, *data) for node in (outside, 1)]
    assert all(process.wait(90) != 0 for process in processes)
    for node in (outside, 1):  # whichever leads, both say it
        said = (private / f"launched.{node}.log").read_text()
        assert '"process-cannot-join"' in said and str(out) in said


def test_training_runs_here_where_no_node_shares(net: RayNet, place: Path, private: Path) -> None:
    out = workspace(place, "alone", below=private)
    done = net.run(net.num, sys.executable, *train(out, "--on", net.client_address, epochs=2), cwd=private)
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(f"node{number} " in done.stdout for number in range(3)) and not teams(done.stdout)
    assert trained(out)["weights"]


def test_training_is_finished_by_the_nodes_that_are_left(net: RayNet, place: Path) -> None:
    out, log = workspace(place, "lost"), place / "lost.log"
    process = started(net, 0, log, *train(out, "--on", "auto", epochs=100))
    until(has_checkpoint(out), process=process)
    net.cut(2)
    until(lambda: teams(log.read_text()) == [3, 2], process=process)
    net.power_off(1)
    assert process.wait(120) == 0, log.read_text()[-3000:]
    assert teams(log.read_text()) == [3, 2, 1]
    (folder,) = out.glob("experiments/exp_*")
    assert len(json.loads((folder / "history.json").read_text())) == 100


def test_masks_train_on_two_nodes_to_the_same_bytes(net: RayNet, tiny_weights: Path, tmp_path: Path) -> None:
    data = make_labelled(tmp_path / "data")
    words = ["-m", "unchoke", "segment", "train", str(data / "scenes"), "--label", str(data / "labels")]
    words += ["--encoder", "test_resnet", "--weights", str(tiny_weights), "--strides", "4,8", "--patch-size", "32"]
    words += [
        "--overlap",
        "8",
        "--engine",
        "torch",
        "--precision",
        "f32",
        "--workers",
        "1",
        "--epochs",
        "3",
        "--devices",
        "2",
        "--json",
    ]
    there = net.run(0, sys.executable, *words, "--out", str(tmp_path / "there"), "--on", "auto")
    assert there.returncode == 0, there.stderr[-3000:]
    assert teams(there.stdout) == [2]
    here = net.run(0, sys.executable, *words, "--out", str(tmp_path / "here"))
    assert here.returncode == 0, here.stderr[-3000:]
    assert weights_of(tmp_path / "there") == weights_of(tmp_path / "here")


def weights_of(out: Path) -> str:
    (record,) = out.glob("experiments/exp_*/record.json")
    return str(json.loads(record.read_text())["training"]["weights_sha256"])


def make_labelled(folder: Path) -> Path:
    """Scenes of three bands, side by side on the map, each with a bright disc: class 1 of its label."""
    import rasterio
    from rasterio.transform import from_origin

    for number in range(6):
        random = np.random.default_rng(number)
        rows, columns = np.mgrid[:64, :64]
        disc = np.hypot(rows - random.uniform(20, 44), columns - random.uniform(20, 44)) < 16
        bands = 1000 + np.stack([1500 * disc, -400 * disc, 0 * disc]) + random.integers(0, 150, (3, 64, 64))
        place = {"crs": "EPSG:32633", "transform": from_origin(500_000.0 + 1280 * number, 5_200_000.0, 10.0, 10.0)}
        for name, values in (("scenes", bands.astype(np.uint16)), ("labels", disc[None].astype(np.uint8))):
            file = folder / name / f"s{number}.tif"
            file.parent.mkdir(parents=True, exist_ok=True)
            profile = {"driver": "GTiff", "count": len(values), "height": 64, "width": 64, "dtype": values.dtype}
            with rasterio.open(file, "w", **profile, **place) as raster:
                raster.write(values)
    return folder
