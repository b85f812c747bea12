"""OpenVINO's own side: models converted once, and networks it cannot take passed over."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from errors import refused
from unchoke.features.agree import Candidate, choose_engine
from unchoke.features.cut import cut_network, frozen_part
from unchoke.features.encoders import Encoder
from unchoke.features.engine_openvino import OpenVinoEngine, model_folder, open_model
from unchoke.features.engines import FrozenNetwork, TorchEngine


class Untraceable(nn.Module):
    """A network that only runs as Python."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        if torch.jit.is_tracing():
            raise RuntimeError("this network cannot be traced")
        features: torch.Tensor = self.inner(pixels)
        return features


def converted(network: FrozenNetwork, keep_in: Path) -> Path:
    """Where the model lies, once it was opened."""
    open_model(network, keep_in)
    return model_folder(network, keep_in) / "model.xml"


def test_a_model_is_converted_once_and_kept(tiny: Encoder, tmp_path: Path) -> None:
    first = converted(tiny, tmp_path)
    before = first.stat().st_mtime_ns
    assert converted(tiny, tmp_path) == first
    assert first.stat().st_mtime_ns == before
    other = replace(tiny, spec=replace(tiny.spec, weights_sha256="0" * 64))
    assert converted(other, tmp_path) != first


@pytest.fixture(scope="module")
def kept(tiny: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model of `tiny`. To be read only."""
    folder = tmp_path_factory.mktemp("kept")
    open_model(tiny, folder)
    return folder


@pytest.mark.parametrize(  # all pairs; nothing vouches for model.bin of a model made before there were checksums
    ("name", "harm", "sealed"),
    [
        ("model.xml", "flip", False),
        ("model.bin", "flip", True),
        ("model.xml", "cut", True),
        ("model.bin", "cut", False),
        ("model.xml", "empty", False),
        ("model.bin", "empty", True),
        ("model.xml", "delete", True),
        ("model.bin", "delete", False),
    ],
)
def test_damaged_model_is_told_and_converted_again(
    tiny: Encoder, kept: Path, tmp_path: Path, name: str, harm: str, sealed: bool
) -> None:
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    file = model_folder(tiny, tmp_path) / name
    data = file.read_bytes()
    if not sealed:
        (file.parent / "SHA256SUMS").unlink()
    flipped = data[:5] + bytes(255 - value for value in data[5:50]) + data[50:]
    file.write_bytes({"flip": flipped, "cut": data[: len(data) // 2]}.get(harm, b""))
    if harm == "delete":
        file.unlink()
    told: list[str] = []
    open_model(tiny, tmp_path, warn=told.append)
    made = file.read_bytes()
    assert made == data or (name == "model.xml" and _unnumbered(made) == _unnumbered(data))
    assert len(told) == 1
    assert name in told[0] or not sealed
    open_model(tiny, tmp_path, warn=lambda _: pytest.fail("it is sound again"))


def _unnumbered(model: bytes) -> bytes:
    """OpenVINO counts the models and nodes that a process makes, in their names."""
    return re.sub(rb"[0-9]+", b"", model)


def test_another_cut_is_another_model(tiny: Encoder, tmp_path: Path) -> None:
    parts = [frozen_part(tiny, cut_network(tiny, cut)) for cut in ("end", "-1", "-2")]
    assert len({converted(part, tmp_path) for part in parts}) == 3
    assert converted(parts[0], tmp_path) == converted(tiny, tmp_path)


def test_unconvertible_network_is_passed_over(tiny: Encoder, tmp_path: Path) -> None:
    python_only = replace(tiny, module=Untraceable(tiny.module))
    reference = TorchEngine(python_only, device=torch.device("cpu"), batch=4)
    candidate = Candidate(
        "openvino:f32", lambda: OpenVinoEngine(python_only, precision="f32", streams=1, batch=4, keep_in=tmp_path)
    )
    engine, choice = choose_engine(reference, [candidate], np.zeros((2, 160, 160, 3), np.uint8))
    assert engine is reference
    assert "test_resnet" in choice.reason
    assert list(tmp_path.iterdir()) == []
    with refused("openvino-cannot-convert") as caught:
        candidate.build()
    assert caught.value.try_ == "--engine torch"


SURVIVES = """
import os, signal, sys, threading
from pathlib import Path
import numpy as np
from unchoke.features.encoders import bare_encoder
from unchoke.features.engine_openvino import OpenVinoEngine

received = []
signal.signal(signal.SIGINT, lambda *_: received.append(1))
engine = OpenVinoEngine(bare_encoder("test_resnet"), precision="f32", streams=1, batch=1, keep_in=Path(sys.argv[1]))
held, go_on = [engine], threading.Event()

def use_and_let_go():
    held[0].encode(np.zeros((1, 160, 160, 3), np.uint8))
    go_on.wait()
    held.clear()

thread = threading.Thread(target=use_and_let_go)
thread.start()
del engine
go_on.set()
thread.join()
os.kill(os.getpid(), signal.SIGINT)
sys.exit(0 if received else 5)
"""


def test_signal_after_engine_freed_in_another_thread(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SURVIVES, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
