"""Networks trained on several machines: by torchrun and with --on, to the same bytes as on one machine; stopped, and lost.

Each training begins with a copy of one workspace whose activations are cached already.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rasterio
from PIL import Image
from rasterio.transform import from_origin
from raynet import RayNet

import unchoke
from unchoke.core.events import ignore

pytestmark = pytest.mark.system
ROOT = Path(__file__).resolve().parents[2]
ENCODER = {"cut": "-1", "encoder": "test_efficientnet", "input_px": 64, "engine": "torch"}
ENCODER_OPTIONS = ("--cut", "-1", "--encoder", "test_efficientnet", "--input-px", "64", "--engine", "torch")
OPTIONS = ("--epochs", "40", "--patience", "0", "--batch-size", "8", "--checkpoint-every", "0.5", "--ema", "0", "--workers", "0")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos, weights, and the workspace to copy."""
    folder = tmp_path_factory.mktemp("place")
    random = np.random.default_rng(0)
    for label, tint in (("red", (150, 90, 90)), ("blue", (90, 90, 150))):
        (folder / "photos" / label).mkdir(parents=True)
        for number in range(20):
            pixels = np.clip(random.normal(tint, 60, size=(64, 64, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / label / f"{number}.jpg")
    _save_weights(folder / "tiny.pt")
    unchoke.extract(folder / "photos", out=folder / "begun", on_event=ignore, weights=folder / "tiny.pt", **ENCODER)
    return folder


@pytest.fixture(scope="module")
def private(hidden: Path) -> Path:
    """Only the machine outside the cluster sees what is in here."""
    folder = hidden / "training"
    folder.mkdir()
    return folder


def _save_weights(file: Path) -> None:
    import torch

    from unchoke.features.encoders import bare_encoder

    torch.manual_seed(0)
    torch.save(bare_encoder("test_efficientnet", input_px=64).module.state_dict(), file)


def workspace(place: Path, name: str, *, below: Path | None = None) -> Path:
    return Path(shutil.copytree(place / "begun", (below or place) / name))


def command(out: Path, *options: str) -> list[str]:
    return ["-m", "unchoke", "train", "--out", str(out), *OPTIONS, *options]


def started(net: RayNet, node: int, log: Path, *words: str) -> subprocess.Popen[str]:
    with log.open("w") as file:
        return net.popen(node, sys.executable, *words, stdout=file, stderr=subprocess.STDOUT)


def launched(net: RayNet, node: int, first: int, out: Path, *options: str) -> subprocess.Popen[str]:
    """torchrun as it is typed on one of two machines, one process on each; machine `first` keeps the meeting place."""
    meet = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{net.ip(first)}:29500", "--local-addr", net.ip(node))
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "1", *meet)
    return started(net, node, out.parent / f"{out.name}.{node}.log", *torchrun, *command(out, *options))


def until(condition: Callable[[], bool], process: subprocess.Popen[str], limit_s: float = 180) -> None:
    end = time.monotonic() + limit_s
    while not condition() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    assert condition()


def has_snapshot(out: Path) -> Callable[[], bool]:
    return lambda: any(out.glob("experiments/*/checkpoints/last.pt"))


def interrupt(process: subprocess.Popen[str]) -> None:
    """Ctrl-C, to the command itself: `nsenter` waits for it and does not pass signals on."""
    child = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]
    os.kill(int(child), signal.SIGINT)


def trained(out: Path) -> dict[str, object]:
    """The weights, the history and the predictions of the only run."""
    (folder,) = out.glob("experiments/exp_*")
    record = json.loads((folder / "record.json").read_text())
    predictions = (folder / "predictions.csv").read_bytes()
    return {
        "weights": record["training"]["weights_sha256"],
        "history": (folder / "history.json").read_bytes(),
        "said": predictions,
    }


@pytest.fixture(scope="module")
def reference(cluster: RayNet, place: Path) -> dict[str, object]:
    """Two processes on one machine."""
    out = workspace(place, "reference")
    done = cluster.run(0, sys.executable, *command(out, "--devices", "2"))
    assert done.returncode == 0, done.stderr[-3000:]
    return trained(out)


def test_torchrun_on_two_machines_ends_with_the_bytes_of_two_processes_on_one(
    net: RayNet, place: Path, reference: dict[str, object]
) -> None:
    out = workspace(place, "launched")
    first, second = (launched(net, node, 0, out) for node in (0, 1))
    assert [first.wait(120), second.wait(60)] == [0, 0], (place / "launched.0.log").read_text()[-3000:]
    assert trained(out) == reference
    assert "process 1 took part" in (place / "launched.1.log").read_text()


def test_a_training_on_two_nodes_that_was_stopped_goes_on_to_the_same_bytes(
    net: RayNet, place: Path, reference: dict[str, object]
) -> None:
    out = stopped(net, place)
    done = net.run(0, sys.executable, *command(out, "--on", "auto", "--devices", "2"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "2 processes share every batch, on node0" in done.stderr
    assert trained(out) == reference


def stopped(net: RayNet, place: Path) -> Path:
    """A workspace whose training was stopped in the middle; a machine that is quick, or busy, may be asked too late."""
    for attempt in range(4):
        out, log = workspace(place, f"stopped{attempt}"), place / f"stopped{attempt}.log"
        process = started(net, 0, log, *command(out, "--on", "auto", "--devices", "2"))
        until(has_snapshot(out), process)
        interrupt(process)
        if process.wait(180) == 130:
            assert "the state is saved" in log.read_text()
            return out
    raise AssertionError(log.read_text()[-3000:])


def test_machines_that_do_not_share_the_workspace_are_named_before_training(net: RayNet, place: Path, private: Path) -> None:
    outside, out = net.num, workspace(place, "launched", below=private)
    data = (str(place / "photos"), "--weights", str(place / "tiny.pt"), *ENCODER_OPTIONS)
    processes = [launched(net, node, outside, out, *data) for node in (outside, 1)]
    assert all(process.wait(90) != 0 for process in processes)
    for node in (outside, 1):  # whichever leads, both say it
        said = (private / f"launched.{node}.log").read_text()
        assert "1 of 2 processes cannot take part" in said
        assert "does not see the folder" in said


def test_without_a_node_that_shares_the_workspace_training_runs_here_with_a_word(net: RayNet, place: Path, private: Path) -> None:
    out = workspace(place, "alone", below=private)
    done = net.run(net.num, sys.executable, *command(out, "--on", net.client_address, "--epochs", "2"), cwd=private)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "node0 does not see the folder" in done.stderr
    assert "training runs on this machine alone" in done.stderr
    assert trained(out)["weights"]


def test_when_nodes_are_lost_silently_or_not_the_rest_finishes_the_training(net: RayNet, place: Path) -> None:
    out, log = workspace(place, "lost"), place / "lost.log"
    process = started(net, 0, log, *command(out, "--on", "auto", "--epochs", "100"))
    until(has_snapshot(out), process)
    net.cut(2)
    until(lambda: "2 processes share every batch" in log.read_text(), process, limit_s=120)
    net.power_off(1)
    assert process.wait(120) == 0, log.read_text()[-3000:]
    said = log.read_text()
    assert "3 processes share every batch, on node0" in said
    assert "node2 (10.77.0.12) was lost: training goes on from the last snapshot" in said
    assert "node1 (10.77.0.11) was lost: training goes on from the last snapshot" in said
    assert "one process takes every batch, on node0" in said
    (folder,) = out.glob("experiments/exp_*")
    assert len(json.loads((folder / "history.json").read_text())) == 100


def test_masks_train_on_two_nodes_to_the_bytes_of_two_processes_on_one(net: RayNet, tiny_weights: Path, tmp_path: Path) -> None:
    data = make_labelled(tmp_path / "data")
    words = ["-m", "unchoke", "segment", "train", str(data / "scenes"), "--label", str(data / "labels")]
    words += ["--encoder", "test_resnet", "--weights", str(tiny_weights), "--strides", "4,8", "--patch-size", "32"]
    words += ["--overlap", "8", "--engine", "torch", "--precision", "f32", "--workers", "1", "--epochs", "3", "--devices", "2"]
    there = net.run(0, sys.executable, *words, "--out", str(tmp_path / "there"), "--on", "auto")
    assert there.returncode == 0, there.stderr[-3000:]
    assert "2 processes share every batch, on node0" in there.stderr
    here = net.run(0, sys.executable, *words, "--out", str(tmp_path / "here"))
    assert here.returncode == 0, here.stderr[-3000:]
    assert weights_of(tmp_path / "there") == weights_of(tmp_path / "here")


def weights_of(out: Path) -> str:
    (record,) = out.glob("experiments/exp_*/record.json")
    return str(json.loads(record.read_text())["training"]["weights_sha256"])


def make_labelled(folder: Path) -> Path:
    """Scenes of three bands, side by side on the map, each with a bright disc: class 1 of its label."""
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
