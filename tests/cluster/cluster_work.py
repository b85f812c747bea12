"""What tests on a cluster do: features of photos that only the driver sees, networks trained, plain jobs, processes killed."""

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
from typing import Any

import jobs_on_cluster
import numpy as np
from PIL import Image
from raynet import RayNet
from tests.conftest import TINY, make_photos

import unchoke
from unchoke.core.events import ignore
from unchoke.jobs.queue import JobQueue

DRIVER = str(Path(jobs_on_cluster.__file__))
ENCODER = {"cut": "-1", "encoder": "test_efficientnet", "input_px": 64, "engine": "torch"}
OPTIONS = ("--patience", "0", "--batch-size", "8", "--checkpoint-every", "0.5", "--ema", "0", "--workers", "0")


def until(condition: Callable[[], object], *, limit_s: float = 180, process: subprocess.Popen[str] | None = None) -> None:
    """Wait until a condition holds, or the process it depends on has ended."""
    end = time.monotonic() + limit_s
    while not condition() and time.monotonic() < end and (process is None or process.poll() is None):
        time.sleep(0.005)
    assert condition()


def signal_driver(process: subprocess.Popen[str], number: signal.Signals = signal.SIGKILL) -> None:
    """`nsenter` waits for the command, its only child, and does not pass signals on: killed alone it would leave it behind."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in [*map(int, children), *([process.pid] if number == signal.SIGKILL else [])]:
        os.kill(pid, number)


def nodes(result: dict[str, Any]) -> dict[str, Any]:
    """What each node said that was used."""
    return dict(next(choice for choice in result["choices"] if choice["name"] == "nodes")["evidence"])


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

    def outside_killed(self, net: RayNet, name: str, out: Path, *options: str) -> None:
        """The same, killed as soon as a first job is done."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        driver = net.popen(net.num, *self.command(net, name, out, *options), **quiet)
        until(lambda: records(out), process=driver)
        signal_driver(driver)
        driver.wait()


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found: dict[str, Any] = lines[-1]["result"]
    return found


def shards(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((out / "features").rglob("*.npz"))}


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted((out / "features").glob("*.done"))]


def drive(net: RayNet, folder: Path, *options: str, node: int = 0, address: str = "auto") -> tuple[dict[str, Any], str]:
    """Plain jobs, to their end: the result, and all that was told."""
    done = net.run(node, sys.executable, DRIVER, address, str(folder), *options)
    assert done.stdout.strip(), done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stdout + done.stderr


def assert_all_done_once(folder: Path, num_jobs: int) -> None:
    """Each job has one record that says it is done, and every artefact is as it must be."""
    queue = JobQueue.load(folder)
    state = queue.state("f" * 16)
    assert not state.pending and not state.problems
    jobs = queue.jobs("f" * 16)
    for job in jobs:
        assert queue.artefact(job).read_bytes() == jobs_on_cluster.content_of(job)
    assert len(jobs) == num_jobs
    assert {len(list(folder.glob(f"job_{job.job_id}_*.done"))) for job in jobs} == {1}
    assert not list(folder.rglob("*.tmp"))


def make_training(folder: Path, *, per_class: int = 20) -> None:
    """Photos, weights, and a workspace `begun` to copy, in which activations are cached already."""
    random = np.random.default_rng(0)
    for label, tint in (("red", (150, 90, 90)), ("blue", (90, 90, 150))):
        (folder / "photos" / label).mkdir(parents=True)
        for number in range(per_class):
            pixels = np.clip(random.normal(tint, 60, size=(64, 64, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / label / f"{number}.jpg")
    _save_weights(folder / "tiny.pt")
    unchoke.extract(folder / "photos", out=folder / "begun", on_event=ignore, weights=folder / "tiny.pt", **ENCODER)


def _save_weights(file: Path) -> None:
    import torch

    from unchoke.features.encoders import bare_encoder

    with torch.random.fork_rng():
        torch.manual_seed(0)
        torch.save(bare_encoder("test_efficientnet", input_px=64).module.state_dict(), file)


def train(out: Path, *options: str, epochs: int = 40) -> list[str]:
    return ["-m", "unchoke", "train", "--out", str(out), "--epochs", str(epochs), *OPTIONS, *options, "--json"]


def teams(said: str) -> list[int]:
    """How many processes trained together, one team after the other."""
    events = [json.loads(line) for line in said.splitlines(keepends=True) if line.startswith("{") and line.endswith("\n")]
    return [event["value"] for event in events if event.get("name") == "trained_on"]


def trained(out: Path) -> dict[str, Any]:
    """The weights, the history and the predictions of the only run."""
    (folder,) = out.glob("experiments/exp_*")
    record = json.loads((folder / "record.json").read_text())
    return {
        "weights": record["training"]["weights_sha256"],
        "history": (folder / "history.json").read_bytes(),
        "said": (folder / "predictions.csv").read_bytes(),
    }


def refusal(net: RayNet, code: str, *parts: str, on: str, node: int | None = None, **env: str) -> None:
    """A command that is not let in, or finds nobody, ends in that error, and sooner than Ray would give up by itself."""
    started_s = time.monotonic()
    command = [sys.executable, "-m", "unchoke", "tile", "scenes", "--on", on]
    done = net.run(net.num if node is None else node, *command, env=env, cwd=str(net.dir))
    assert done.returncode == 3, done.stderr[-2000:]
    assert time.monotonic() - started_s < 30, "Ray itself tries for 20 to 60 seconds"
    lines = done.stderr.strip().splitlines()
    assert [line.split()[0] for line in lines] == ["error", "why", "try"], lines
    assert lines[0].endswith(f"[{code}]") and all(part in done.stderr for part in parts), lines
