"""`unchoke doctor --report FILE`: what unchoke does on this machine, measured, to be sent to somebody who has no such machine.

In: the doctor's report. Out: plain values, for a file. Commands run on pictures made here, each in a process of its own, in a
folder that is gone afterwards: every engine that may suit, compared with float32; a network trained, and again with a kill in the
middle; the switches of a training. What fails is an entry of the report, never the end of it. Names and paths are left out.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from unchoke.core.events import OnEvent, StageDone, StageStarted
from unchoke.core.input_file import parse_json
from unchoke.core.temporary_folders import scratch_folder
from unchoke.machine.detect import package_version

_PACKAGES = (
    "unchoke",
    "torch",
    "torchvision",
    "timm",
    "numpy",
    "pandas",
    "pyarrow",
    "Pillow",
    "simplejpeg",
    "openvino",
    "rasterio",
)
_CLASSES, _PER_CLASS, _SIDE_PX = ("apple", "birch", "cloud"), 40, 480
_LIMIT_S = 600.0
_KEPT = ("metrics", "memory", "timings", "choices", "findings", "trials", "parts", "num_done", "num_failed", "images_per_s")
"""What is told of the result of a command."""
_NETWORK = ("train", "photos", "--cut", "none", "--epochs", "3", "--input-px", "128", "--checkpoint-every", "1")


def gather_evidence(machine: dict[str, Any], engines: Sequence[str], device: str, on_event: OnEvent) -> dict[str, Any]:
    """Everything that is measured here; `machine` are the doctor's facts and choices."""
    told: dict[str, Any] = {"packages": {name: package_version(name) for name in _PACKAGES}, "machine": machine, "measured": {}}
    with scratch_folder("doctor") as folder:
        _make_photos(folder / "photos")
        for name, work in _parts(folder, engines, device):
            on_event(StageStarted(name))
            began_s = time.monotonic()
            told["measured"][name] = work()
            on_event(StageDone(name, time.monotonic() - began_s))
        return dict(parse_json(_without_names(json.dumps(told, default=str), folder)))


def _parts(folder: Path, engines: Sequence[str], device: str) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """What is measured, one after the other."""
    here = ("--device", device)
    yield "fit", partial(_run, folder, "fit", "photos", "--out", "fit", *here)
    for label in engines:
        engine, _, precision = label.partition(":")
        words = ("--engine", engine, "--precision", precision, "--out", f"{engine}-{precision}", *here)
        yield f"engine {label}", partial(_run, folder, "extract", "photos", *words)
    yield "network", partial(_run, folder, *_NETWORK, "--out", "whole", *here)
    yield "network, killed and resumed", partial(_killed, folder, *_NETWORK, *here)
    network = ("--cut", "none", "--input-px", "128")
    yield "switches", partial(_run, folder, "tune", "photos", *network, "--minutes", "1", "--out", "tune", *here)


def _make_photos(folder: Path) -> None:
    """Pictures of three classes that a network can tell apart, the same everywhere."""
    import numpy as np
    from PIL import Image

    y, x = np.mgrid[:_SIDE_PX, :_SIDE_PX]
    for kind, name in enumerate(_CLASSES):
        (folder / name).mkdir(parents=True)
        for index in range(_PER_CLASS):
            noise = np.random.default_rng([kind, index])
            wave = 50 * np.sin((x * kind + y * (2 - kind)) * (0.05 + 0.02 * noise.random()))[..., None]
            pixels = np.roll([180, 120, 60], kind) + wave + noise.normal(0, 30, (_SIDE_PX, _SIDE_PX, 3))
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / name / f"{index:03d}.jpg", quality=90)


def _start(folder: Path, *words: str, output: int = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "unchoke", *words, "--json"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        text=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )


def _run(folder: Path, *words: str) -> dict[str, Any]:
    """A command, how it ended, and the parts of its result that are told."""
    began_s = time.monotonic()
    with _start(folder, *words) as process:
        try:
            out, err = process.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
    told: dict[str, Any] = {
        "command": " ".join(words),
        "exit": process.returncode,
        "seconds": round(time.monotonic() - began_s, 2),
    }
    last: dict[str, Any] = {}
    with suppress(ValueError, IndexError):
        last = dict(parse_json(out.splitlines()[-1]))
    if process.returncode == 0 and "result" in last:
        result = last["result"]
        weights = (result.get("training") or {}).get("weights_sha256")
        return told | {name: result[name] for name in _KEPT if name in result} | ({"weights": weights} if weights else {})
    return told | {"error": last.get("error"), "stderr": err[-3000:]}


def _killed(folder: Path, *words: str) -> dict[str, Any]:
    """The same training, killed once it has written a checkpoint, and then to its end: whether its weights are the same."""
    until_s = time.monotonic() + _LIMIT_S
    with _start(folder, *words, "--out", "killed", output=subprocess.DEVNULL) as process:
        checkpoint = folder / "killed" / "experiments" / "exp_1" / "checkpoints" / "last.pt"
        while process.poll() is None and not checkpoint.exists() and time.monotonic() < until_s:
            time.sleep(0.05)
        in_time = process.poll() is None
        process.kill()
    resumed, whole = _run(folder, *words, "--out", "killed"), _run(folder, *words, "--out", "whole")
    return {"killed_in_time": in_time, "same_weights": resumed.get("weights") == whole.get("weights"), "resumed": resumed}


def _without_names(text: str, folder: Path) -> str:
    """`text` without the folders, the user and the name of this machine."""
    places = {str(folder): "FOLDER", str(folder.resolve()): "FOLDER", sys.prefix: "PYTHON", str(Path.home()): "HOME"}
    with suppress(Exception):  # a user without a name has none to be left out
        places[getpass.getuser()] = "USER"
    places[platform.node()] = "HOST"
    for place, shown in places.items():
        if len(place) > 3:  # shorter ones are parts of words
            text = text.replace(json.dumps(place)[1:-1], shown)
    return text
