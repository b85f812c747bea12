"""What the fault tests work with: small photos, a tiny encoder, the command as a process of its own, and prints of a workspace.

`start` runs the real command in a process forked from a server that has imported torch already: killing such a process is
killing the command, without paying for the imports each time. `fork` does so with any function, `script` starts the console
script itself.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from PIL import Image

from children import same_imports
from unchoke.core.fingerprint import digest_file
from unchoke.jobs.pool import main_script_hidden

ENCODER = "test_efficientnet"
CLASSES = ("apple", "birch", "cloud")
PER_CLASS = 40
JOB_SIZE = 8
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Place:
    """Where the photos and the weights lie."""

    root: Path

    @property
    def photos(self) -> Path:
        return self.root / "photos"

    @property
    def weights(self) -> Path:
        return self.root / "tiny.safetensors"

    def fit_args(self, out: Path, *extra: str, photos: Path | None = None, engine: str = "torch") -> list[str]:
        """What the tests usually ask of `fit`: a tiny encoder in plain torch at the photos' own size, small jobs, few epochs."""
        fast = ["--encoder", ENCODER, "--weights", str(self.weights), "--workers", "1", "--engine", engine]
        small = ["--input-px", "64", "--job-size", str(JOB_SIZE), "--epochs", "4", "--head", "linear"]
        return [str(photos or self.photos), "--out", str(out), *fast, *small, *extra]


def make_place(root: Path) -> Place:
    """Photos and weights below `root`; the same bytes every time."""
    place = Place(root)
    make_photos(place.photos)
    make_weights(place.weights)
    return place


def make_photos(folder: Path, *, classes: tuple[str, ...] = CLASSES, per_class: int = PER_CLASS, side_px: int = 64) -> None:
    """A folder for each class, with pictures that a linear head can nearly tell apart."""
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for index in range(per_class):
            make_photo(folder / name / f"{name[:1]}_{index:03d}.jpg", number, index, side_px=side_px)


def make_photo(file: Path, kind: int, index: int, *, side_px: int = 64) -> None:
    """Stripes whose direction and tint follow `kind`, with noise that follows `index`."""
    noise = np.random.default_rng([kind, index])
    y, x = np.mgrid[:side_px, :side_px]
    wave = np.sin((x * (kind % 3) + y * (2 - kind % 3)) * (0.3 + 0.02 * noise.random()) + noise.random() * 6)
    tint = np.roll([180, 120, 60], kind)
    pixels = tint + 50 * wave[..., None] + noise.normal(0, 25, (side_px, side_px, 3))
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=85)


def make_weights(file: Path) -> None:
    """Seeded weights of the tiny encoder."""
    import torch
    from safetensors.torch import save_file

    from unchoke.core.torchvision_ready import prepare_torchvision

    prepare_torchvision()
    import timm

    torch.manual_seed(0)
    save_file(timm.create_model(ENCODER, num_classes=0).state_dict(), file)


@dataclass
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def result(self) -> dict[str, Any]:
        """The last JSON line."""
        last: dict[str, Any] = json.loads(self.stdout.splitlines()[-1])
        return last

    def says_error(self, code: str, *parts: str) -> bool:
        """Whether it ended in the three lines of the error `code` that hold `parts`, and in no traceback."""
        lines = self.stderr.splitlines()
        heads = [line.split(" ")[0] for line in lines]
        whole = "\n".join(lines[heads.index("error") :]) if "error" in heads else ""
        return "Traceback" not in self.stderr and all(part in whole for part in (f"[{code}]", "why", "try", *parts))

    def warns_of(self, name: str) -> bool:
        """Whether a warning names it."""
        return any(line.startswith("warning") and name in line for line in self.stderr.splitlines())


@dataclass
class Running:
    """A command at work."""

    pid: int
    _wait: Callable[[float], int | None]
    _output: Path
    _ended: Ended | None = field(default=None)

    def alive(self) -> bool:
        return self._wait(0.0) is None

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, unless it is over already."""
        if self.alive():
            self.send(signal.SIGKILL)
        self.end()

    def stderr(self) -> str:
        return _read(self._output / "stderr")

    def end(self, *, within_s: float = PATIENCE_S) -> Ended:
        """Wait for it."""
        if self._ended is None:
            code = self._wait(within_s)
            if code is None:
                self._give_up(f"still running after {within_s} s")
            assert code is not None
            self._ended = Ended(code, _read(self._output / "stdout"), self.stderr())
            shutil.rmtree(self._output)
        return self._ended

    def wait_until(self, seen: Callable[[], bool], *, within_s: float = PATIENCE_S) -> bool:
        """Wait until `seen` or the end of the command; whether it was seen."""
        give_up_at = time.monotonic() + within_s
        while time.monotonic() < give_up_at:
            if seen():
                return True
            if not self.alive():
                return seen()
            time.sleep(0.002)
        self._give_up(f"not seen within {within_s} s")
        return False

    def _give_up(self, why: str) -> None:
        os.kill(self.pid, signal.SIGUSR1)
        time.sleep(1.0)
        said = self.stderr()
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f"{why}:\n{said}")


def start(*args: str, limits: dict[int, int] | None = None) -> Running:
    """The command `unchoke ARGS` in a process of its own, optionally under resource limits."""
    output = Path(tempfile.mkdtemp(prefix="faults-"))
    process = fork(run_command, list(args), str(output), limits or {})

    def wait(timeout_s: float) -> int | None:
        process.join(timeout_s)
        return process.exitcode

    assert process.pid is not None
    return Running(process.pid, wait, output)


def fork(target: Callable[..., object], *args: object) -> ForkServerProcess:
    """`target(*args)` in a process of its own, with torch loaded already; it has the environment of the server."""
    process = ForkServerProcess(target=target, args=args)
    with main_script_hidden(), patch.object(forkserver, "connect_to_new_process", _warm_server().connect_to_new_process):
        process.start()
    return process


@cache
def _warm_server() -> forkserver.ForkServer:
    """A server of our own, apart from the one that commands run in this process may have started for themselves."""
    server = forkserver.ForkServer()
    server.set_forkserver_preload(["scene", "warm"])
    with main_script_hidden(), patch.dict(os.environ, same_imports()):  # its path is only given by the environment
        server.ensure_running()
    return server


def script(*args: str) -> Running:
    """The console script `unchoke ARGS`."""
    output = Path(tempfile.mkdtemp(prefix="faults-"))
    with (output / "stdout").open("wb") as out, (output / "stderr").open("wb") as err:
        process = subprocess.Popen([str(Path(sys.executable).with_name("unchoke")), *args], stdout=out, stderr=err)

    def wait(timeout_s: float) -> int | None:
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    return Running(process.pid, wait, output)


def unchoke(*args: str, limits: dict[int, int] | None = None) -> Ended:
    """Run `unchoke ARGS` to its end."""
    return start(*args, limits=limits).end()


def run_command(args: list[str], output: str, limits: dict[int, int]) -> None:
    """The inside of the process: streams to files, limits set, then what the console script does."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        with (Path(output) / name).open("wb") as file:
            os.dup2(file.fileno(), number)
    sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
    for which, limit in limits.items():
        resource.setrlimit(which, (limit, resource.getrlimit(which)[1]))
    faulthandler.register(signal.SIGUSR1)  # asked for when a command hangs, to say where
    sys.argv = ["unchoke", *args]

    from unchoke.cli.main import main

    main()


def shards(workspace: Path) -> dict[str, str]:
    """Every shard below `features/` with its SHA-256."""
    features = workspace / "features"
    return {file.relative_to(features).as_posix(): digest_file(file) for file in sorted(features.glob("*/*.npz"))}


def done_files(workspace: Path) -> dict[str, int]:
    """Every `.done` record with the time it was written."""
    return {file.name: file.stat().st_mtime_ns for file in sorted((workspace / "features").glob("job_*.done"))}


def job_of(record: str) -> str:
    """The job that a record's name speaks of."""
    return record.split("_")[1]


def outcome(workspace: Path, *, run: str = "exp_1") -> dict[str, str]:
    """The bytes that must not depend on what happened on the way: shards, plan, manifest, weights, predictions."""
    folder = workspace / "experiments" / run
    files = {
        "jobs_queue": workspace / "features" / "jobs_queue.csv",
        "manifest": workspace / "manifest.csv",
        "best_head": folder / "checkpoints" / "best_head.pt",
        "last": folder / "checkpoints" / "last.pt",
        "predictions": folder / "predictions.csv",
    }
    return {**shards(workspace), **{name: digest_file(file) for name, file in files.items()}}


def strays(workspace: Path) -> list[str]:
    """Temporary files and folders that something left behind."""
    return sorted(str(path.relative_to(workspace)) for path in workspace.rglob(".unchoke-*"))


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
