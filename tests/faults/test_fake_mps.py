"""Every training command on a stand-in for Apple's MPS: nobody asks what it refuses, and the room there is suffices."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import scene
from tests.conftest import Once

from mask_run import make_scene

FOLDER = Path(__file__).parents[1] / "fake_mps"
COMPILER = shutil.which("c++")
ROOM = 8_000_000_000
pytestmark = pytest.mark.skipif(sys.platform != "linux" or COMPILER is None, reason="the stand-in is compiled, on Linux")
_OTHERS = ("fit --cut -1", "fit --minutes 1 --cut -1", "tune --cut none --minutes 0.1")
REFUSED = """
import torch
on_cpu, there = torch.ones(3), torch.ones(3, device="mps")
for ask in (there.double, there.numpy, there.pin_memory, lambda: there + on_cpu, lambda: torch.empty(1 << 40, device="mps")):
    try:
        ask()
    except (RuntimeError, TypeError):
        continue
    raise SystemExit(f"{ask} was not refused")
assert (there + 1).cpu().tolist() == [2, 2, 2] and torch.mps.driver_allocated_memory() == 12
"""


@pytest.fixture(scope="session")
def device(once: Once) -> Path:
    """What torch's core must know of the device, compiled."""

    def make(folder: Path) -> None:
        import torch

        place = Path(torch.__file__).parent
        words = ["-std=c++20", "-O0", "-shared", "-fPIC", f"-I{place / 'include'}", str(FOLDER / "device.cpp")]
        subprocess.run([COMPILER, *words, f"-L{place / 'lib'}", "-lc10", "-ltorch_cpu", "-o", folder / "device.so"], check=True)

    return once("fake-mps", make) / "device.so"


def python(device: Path, *words: str, room_bytes: int = ROOM) -> subprocess.CompletedProcess[str]:
    """A Python that has the device."""
    found = {"PYTHONPATH": str(FOLDER), "FAKE_MPS_DEVICE": str(device), "FAKE_MPS_BYTES": str(room_bytes), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env={**os.environ, **found})


def unchoke(device: Path, *words: str, room_bytes: int = ROOM) -> dict[str, Any]:
    """The result of a command, which has to end well."""
    ended = python(device, "-m", "unchoke", *words, "--json", room_bytes=room_bytes)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])["result"]
    return result


def test_the_stand_in_refuses_what_mps_refuses(device: Path) -> None:
    ended = python(device, "-c", REFUSED)
    assert ended.returncode == 0, ended.stderr


def test_heads_on_features_and_what_reads_them(place: scene.Place, device: Path, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "w")]
    assert unchoke(device, "fit", *place.fit_args(tmp_path / "w", "--device", "mps"))["metrics"]
    assert len(unchoke(device, "predict", "exp_1", str(place.photos), "--device", "mps", *out)["predictions"]) == 120


@pytest.mark.parametrize("room_bytes", [pytest.param(20_000_000, marks=pytest.mark.campaign), 3_500_000])
def test_a_network_is_trained_in_the_room_there_is(place: scene.Place, device: Path, tmp_path: Path, room_bytes: int) -> None:
    words = place.fit_args(tmp_path / "w", "--device", "mps", "--cut", "none", "--batch-size", "16")
    words[words.index("--epochs") + 1] = "1"
    words[words.index("--head") : words.index("--head") + 2] = []
    result = unchoke(device, "train", *words, room_bytes=room_bytes)
    assert result["memory"]["measured_bytes"] <= room_bytes


def test_extraction_halves_a_batch_that_does_not_fit(place: scene.Place, device: Path, tmp_path: Path) -> None:
    words = place.fit_args(tmp_path / "w", "--device", "mps")
    unchoke(device, "extract", *words[: words.index("--epochs")], room_bytes=4_500_000)
    kept = json.loads((tmp_path / "w" / "engines" / "at_once.json").read_text())
    assert min(kept.values()) < 16


@pytest.mark.campaign
@pytest.mark.parametrize("command", _OTHERS)
def test_other_training_commands(place: scene.Place, device: Path, tmp_path: Path, command: str) -> None:
    name, *options = command.split()
    encoder = ["--encoder", scene.ENCODER, "--weights", str(place.weights), "--input-px", "64"]
    epochs = ["--epochs", "1"] if name == "fit" else []
    unchoke(device, name, str(place.photos), *encoder, *epochs, *options, "--device", "mps", "--out", str(tmp_path / "w"))


@pytest.mark.campaign
def test_masks(place: scene.Place, device: Path, tmp_path: Path) -> None:
    make_scene(tmp_path / "scenes" / "one.tif", seed=1), make_scene(tmp_path / "scenes" / "two.tif", seed=2)
    encoder = ["--encoder", scene.ENCODER, "--weights", str(place.weights), "--device", "mps", "--out", str(tmp_path / "w")]
    patches = ["--mask", "red > green", "--patch-size", "64", "--epochs", "1"]
    unchoke(device, "segment", "train", str(tmp_path / "scenes"), *encoder, *patches)
    drawn = ["--device", "mps", "--out", str(tmp_path / "w")]
    unchoke(device, "segment", "predict", "exp_1", str(tmp_path / "scenes"), *drawn)
