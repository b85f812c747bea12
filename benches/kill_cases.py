"""The commands that `campaign_kills.py` kills: their small inputs, what they are typed as, and what must come out of each.

Inputs are made once and are the same everywhere. Every command runs on the CPU in plain torch, so that an unbroken run has one
result; it runs in a folder of its own with relative paths, so that files which hold paths are the same, too. `outcome()` is
everything a command left, by bytes, apart from times, sizes of memory and what was measured on the way.
"""

from __future__ import annotations

import json
import re
import sqlite3
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ENCODER = "test_efficientnet"
_INPUTS = "../../inputs"
_PHOTOS, _SCENES = f"{_INPUTS}/photos", f"{_INPUTS}/scenes"
_TINY = ["--encoder", ENCODER, "--weights", f"{_INPUTS}/tiny.safetensors", "--device", "cpu", "--input-px", "64"]
_PLAIN = ["--engine", "torch", "--precision", "f32"]
_TO_W = ["--out", "w"]
_NETWORK = ["train", _PHOTOS, *_TINY, *_PLAIN, "--job-size", "16", *_TO_W, "--patience", "0"]
_FIT = ["fit", _PHOTOS, *_TINY, *_PLAIN, "--job-size", "4", "--head", "linear", "--patience", "0", *_TO_W]
_MASKS = ["--encoder", ENCODER, "--weights", f"{_INPUTS}/tiny.safetensors", "--device", "cpu", *_PLAIN]
_PATCHES = ["--mask", "red > green", "--patch-size", "64", "--overlap", "16", "--epochs", "4", "--job-size", "4"]


@dataclass(frozen=True)
class KillCase:
    """A command that is to be killed, after others made what it starts from."""

    name: str
    words: list[str]
    """What is typed after `unchoke`."""
    before: tuple[list[str], ...] = ()
    needs: tuple[str, ...] = ()
    """Packages that a machine may lack."""
    tries: bool = False
    """Whether its result is a list of what was tried: which ones is compared, how fast they were is not."""

    def missing(self) -> list[str]:
        return [name for name in self.needs if find_spec(name) is None]


_GEO = ("rasterio",)
_SEGMENT = ("rasterio", "segmentation_models_pytorch")
_SEGMENT_TRAIN = ["segment", "train", _SCENES, *_MASKS, *_PATCHES, *_TO_W]
CASES = (
    KillCase("fit", [*_FIT, "--epochs", "1500", "--workers", "1"]),
    KillCase("fit-workers", [*_FIT, "--epochs", "200", "--workers", "2"]),
    KillCase(
        "fit-minutes",
        ["fit", _PHOTOS, *_TINY, *_PLAIN, "--job-size", "16", "--cut", "-1", "--epochs", "12", "--minutes", "5", *_TO_W],
    ),
    KillCase("train-cut-4", [*_NETWORK, "--cut", "-4", "--epochs", "12"]),
    KillCase("train-cut-none", [*_NETWORK, "--cut", "none", "--epochs", "6"]),
    KillCase(
        "tile",
        ["tile", _SCENES, "--tile-size", "16", "--mask", "red > green", "--compress", "zlib", "--workers", "2", *_TO_W],
        needs=_GEO,
    ),
    KillCase("segment-train", _SEGMENT_TRAIN, needs=_SEGMENT),
    KillCase(
        "segment-predict",
        ["segment", "predict", "exp_1", _SCENES, "--device", "cpu", "--to", "masks", *_TO_W],
        before=(_SEGMENT_TRAIN,),
        needs=_SEGMENT,
    ),
    KillCase(
        "predict",
        ["predict", "exp_1", _PHOTOS, "--to", "predictions.csv", "--device", "cpu", *_TO_W],
        before=([*_FIT, "--epochs", "5"],),
    ),
    KillCase(
        "tune",
        ["tune", _PHOTOS, *_TINY, "--cut", "none", "--minutes", "0.1", *_TO_W],
        tries=True,
    ),
    KillCase("profile-train", ["profile", "train", _PHOTOS, *_TINY, *_PLAIN, "--epochs", "3", *_TO_W]),
    KillCase("profile-script", ["profile", *_TO_W, "--", "python", f"{_INPUTS}/script.py"]),
    KillCase("export", ["runs", "export", "exp_1", "exported", *_TO_W], before=([*_FIT, "--epochs", "5"],)),
    KillCase(
        "export-onnx",
        ["export", "exp_1", "--to", "exported", *_TO_W],
        before=([*_FIT, "--epochs", "5"],),
        needs=("onnx", "onnxruntime"),
    ),
    KillCase("curate", ["curate", "exp_1", *_TO_W], before=([*_FIT, "--epochs", "5"],)),
)

_SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.rand(512, 64), torch.randint(0, 3, (512,)))
network = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 3))
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
for _ in range(4):
    for inputs, targets in DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(inputs), targets).backward()
        optimizer.step()
"""


def make_inputs(folder: Path) -> None:
    """Photos of three classes, weights of a tiny network, a training script and, where rasterio is there, two scenes."""
    if folder.exists():
        return
    part = folder.with_suffix(".part")
    for number, name in enumerate(("apple", "birch", "cloud")):
        _make_photos(part / "photos" / name, number)
    _make_weights(part / "tiny.safetensors")
    (part / "script.py").write_text(_SCRIPT, encoding="utf-8")
    if find_spec("rasterio"):
        _make_scenes(part / "scenes")
    part.rename(folder)


def _make_photos(folder: Path, kind: int, *, num: int = 40, side_px: int = 96) -> None:
    import numpy as np
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    y, x = np.mgrid[:side_px, :side_px]
    for index in range(num):
        noise = np.random.default_rng([kind, index])
        wave = np.sin((x * kind + y * (2 - kind)) * (0.3 + 0.02 * noise.random()) + noise.random() * 6)
        pixels = np.roll([180, 120, 60], kind) + 50 * wave[..., None] + noise.normal(0, 40, (side_px, side_px, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{index:03d}.jpg", quality=85)


def _make_weights(file: Path) -> None:
    import torch
    from safetensors.torch import save_file

    from unchoke.core.torchvision_ready import prepare_torchvision

    prepare_torchvision()
    import timm

    torch.manual_seed(0)
    save_file(timm.create_model(ENCODER, num_classes=0).state_dict(), file)


def _make_scenes(folder: Path) -> None:
    import numpy as np
    import rasterio

    folder.mkdir(parents=True, exist_ok=True)
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 500_000, 0, -10, 5_200_000)}
    for seed, (height, width) in enumerate(((320, 400), (400, 320))):
        noise = np.random.default_rng(seed)
        coarse = np.kron(noise.integers(500, 3000, (3, height // 16, width // 16)), np.ones((1, 16, 16), np.int64))
        shape = {"height": height, "width": width, "count": 3, "dtype": "uint16", "nodata": 0, "driver": "GTiff"}
        with rasterio.open(folder / f"scene{seed}.tif", "w", **shape, **place) as scene:
            scene.write((coarse + noise.integers(1, 100, coarse.shape)).astype(np.uint16))
            scene.descriptions = ("red", "green", "blue")


_UNTIMED = {
    ".lock",
    ".owner",
    "peak.json",
    "stretches.json",
    "memory.json",
    "choice.json",
    "pyramid_choice.json",
    "experiments.db-wal",
    "experiments.db-shm",
}
"""Locks, sizes of memory, and measured choices."""
_OF_RECORD = (
    "task",
    "data",
    "metrics",
    "history",
    "confusion",
    "per_class",
    "calibration",
    "sweep",
    "selection_metric",
    "mistakes",
    "quarantine",
)
_TIMED = ("seconds", "expected_s", "extract_s", "train_s", "file_s", "predict_s", "torch_s", "timings")
_OF_DONE = ("job_id", "inputs", "output", "sha256", "size_bytes", "num_items", "num_failed", "failed_items")


def outcome(folder: Path, *, tried: list[Any] | None = None) -> dict[str, str]:
    """Everything the command left below `folder`, and what it tried: name to digest."""
    found = {} if tried is None else {"tried": _digest(tried)}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = file.relative_to(folder).as_posix()
        if file.name in _UNTIMED or name.startswith(("tmp/", "said/")):
            continue
        found |= _contents(name, file)
    return found


def tried_switches(result: dict[str, Any]) -> list[Any]:
    """What `tune` went through, in order."""
    return [[trial["switch"], trial["now"], trial.get("value")] for part in result["parts"] for trial in part["trials"]]


def _contents(name: str, file: Path) -> dict[str, str]:
    """What is compared of one file: its bytes, or what it holds where times or the order of threads are in them."""
    from unchoke.core.fingerprint import digest_file

    if file.suffix == ".html" or "/logs/" in name:
        general = re.sub(r"\d{8}[T_]\d{6}(_\d+)?", "TIME", name)
        return {general: "whole"} if _is_whole(file) else {f"{name} is cut off": ""}
    if file.name == "SHA256SUMS":
        return {name: "agrees"} if _agrees(file) else {f"{name} does not agree": ""}
    if file.suffix == ".done":
        return {re.sub(r"_\d{8}T[^_]*Z", "", name): _digest(_chosen(file, _OF_DONE))}
    if file.name == "record.json":
        return {name: _digest(_untimed(_chosen(file, _OF_RECORD)))}
    if file.name == "MODEL_CARD.md":
        return {
            name: _digest([line for line in file.read_text(encoding="utf-8").splitlines() if "speed on the machine" not in line])
        }
    if file.name in ("rung.json", "ladder.json", "history.json", "model.json", "findings.json"):
        return {name: _digest(_untimed(json.loads(file.read_text(encoding="utf-8"))))}
    if file.suffix == ".db":
        return {name: _digest(_rows(file))}
    if file.suffix == ".parquet":
        return {name: _digest(_columns(file))}
    if file.parent.parent.name == "pixels" and file.suffix == ".bin":
        return {name: _digest(_pixel_rows(file))} if file.name == "index.bin" else {}
    return {name: digest_file(file)}


def _agrees(sums: Path) -> bool:
    """Whether every file that a list vouches for is there as the list says: some of them hold times."""
    from unchoke.core.checksums import verify
    from unchoke.core.errors import UnchokeError

    try:
        for line in sums.read_text(encoding="utf-8").splitlines()[1:]:
            verify(sums.parent / line.partition("  ")[2])
    except (OSError, UnchokeError):
        return False
    return True


def _is_whole(file: Path) -> bool:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".html":
        return text.rstrip().endswith("</html>")
    try:
        json.loads(text if file.suffix == ".json" else "0")
    except ValueError:
        return False
    return True


def _chosen(file: Path, names: tuple[str, ...]) -> dict[str, Any]:
    record = json.loads(file.read_text(encoding="utf-8"))
    weights = (record.get("training") or {}).get("weights_sha256")
    return {**{name: record.get(name) for name in names}, "weights": weights}


def _untimed(value: Any) -> Any:
    """The same without what was timed: the rungs of a ladder say what they took."""
    if isinstance(value, dict):
        return {name: _untimed(one) for name, one in value.items() if name not in _TIMED}
    return [_untimed(one) for one in value] if isinstance(value, list) else value


def _columns(file: Path) -> dict[str, list[Any]]:
    import pyarrow.parquet as pq

    columns: dict[str, list[Any]] = pq.read_table(file).to_pydict()
    return columns


def _pixel_rows(file: Path) -> list[Any]:
    """Which pictures are kept, from which bytes, and the checksums of their pixels: the rows lie as threads came to them."""
    import numpy as np

    from unchoke.pixels.slots import RECORD

    rows = np.frombuffer(file.read_bytes(), RECORD)
    full = rows[rows["full"] == 1]
    return sorted([int(row[name]) for name in ("key", "size_bytes", "content", "pixels_crc")] for row in full)


def _rows(file: Path) -> list[Any]:
    """Runs with their state, their metrics, and whether the database is sound."""
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
        sound = database.execute("PRAGMA integrity_check").fetchall()
        runs = database.execute("SELECT name, key, status FROM runs ORDER BY id").fetchall()
        wanted = "SELECT run, split, name, step, value, low, high FROM metrics WHERE name != 'seconds' ORDER BY 1, 2, 3, 4"
        metrics = database.execute(wanted).fetchall()
    return [sound, runs, metrics]


def _digest(value: Any) -> str:
    from unchoke.core.fingerprint import digest

    return digest(value)
