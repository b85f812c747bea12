"""What a workspace holds, for somebody's own training loop: the same numbers, in any number of workers."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, StackDataset

import unchoke
from errors import refused
from unchoke.core.errors import UsageError
from unchoke.core.events import ignore
from unchoke.data.manifest import load_manifest

RUN = """
import runpy
from unchoke.core.torchvision_ready import prepare_torchvision
prepare_torchvision()
for name in ("before.py", "after.py"):
    runpy.run_path(name, run_name="__main__")
"""
"""As Python runs scripts, in an environment whose torchvision may have been built for another torch."""
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "your-own-loop.md"


def all_of(dataset: Dataset[Any], **how: Any) -> tuple[torch.Tensor, torch.Tensor]:
    batches = list(DataLoader(dataset, batch_size=8, **how))
    return torch.cat([inputs for inputs, _ in batches]), torch.cat([targets for _, targets in batches])


def test_features_of_the_run_labels_of_the_manifest(finished: Path) -> None:
    sides = {side: unchoke.FeatureDataset(finished, split=side) for side in ("train", "val", "test")}
    manifest = load_manifest(finished / "manifest.csv")
    assert manifest is not None
    for side, dataset in sides.items():
        rows = manifest[manifest["split"] == side]
        assert dataset.sample_ids == rows["sample_id"].tolist()
        assert [dataset.classes[number] for number in dataset.targets] == rows["label"].tolist()
    train = sides["train"]
    features, _ = all_of(train)
    assert features.shape == (len(train), *train.row_shape) and features.dtype == torch.float32
    model = unchoke.load_model("exp_1", out=finished)
    frozen = model.network.answers
    pixels = torch.from_numpy(np.array(Image.open(train.paths[0]).convert("RGB")))[None]
    fresh = frozen.frozen(frozen.shown(pixels).permute(0, 2, 3, 1))[0]
    assert torch.nn.functional.cosine_similarity(fresh, train[0][0], dim=0) > 0.99
    assert torch.equal(train[-1][0], features[-1])


@pytest.mark.parametrize("how", [{"num_workers": 2}, {"num_workers": 1, "multiprocessing_context": "spawn"}])
def test_workers_forked_or_spawned_read_the_same(how: dict[str, Any], workspace: Path) -> None:
    features, pixels = (
        unchoke.FeatureDataset(workspace, split="train"),
        unchoke.PhotoDataset(workspace, split="train", size_px=32),
    )
    batches = list(DataLoader(StackDataset(features, pixels), batch_size=8, **how))
    for place, dataset in enumerate((features, pixels)):
        here, there = all_of(dataset), [torch.cat([batch[place][part] for batch in batches]) for part in (0, 1)]
        assert torch.equal(here[0], there[0]) and torch.equal(here[1], there[1])


def test_pixels_are_decoded_again_where_a_file_changed(own_photos: Path, tiny_weights: Path, tmp_path: Path) -> None:
    root = tmp_path / "out"
    how = {"encoder": "test_resnet", "weights": tiny_weights, "engine": "torch", "precision": "f32", "workers": 1}
    unchoke.extract(own_photos, out=root, on_event=ignore, **how)
    (own_photos / "apple" / "apple 00.jpg").write_bytes(b"no picture any more")
    cached = unchoke.PhotoDataset(root, size_px=40)
    assert list(cached.failed) == ["apple/apple 00.jpg"] and len(cached) == 41
    fresh = unchoke.PhotoDataset(root, size_px=40, cache="none", transform=half)
    assert cached[0][0].shape == (3, 40, 40) and cached[0][0].dtype == torch.uint8
    assert torch.equal(half(cached[3][0]), fresh[4][0])
    before = cached[0][0]
    shutil.copy(cached.paths[20], cached.paths[0])
    again = unchoke.PhotoDataset(root, size_px=40)
    assert not torch.equal(again[0][0], before) and torch.equal(again[0][0], again[20][0])


def half(pixels: torch.Tensor) -> torch.Tensor:
    return pixels // 2


def test_tiles_come_with_their_masks(tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio")
    scenes = tmp_path / "scenes"
    scenes.mkdir()
    bands = np.random.default_rng(0).integers(1, 900, (2, 128, 128), dtype=np.uint16)
    with rasterio.open(scenes / "one.tif", "w", driver="GTiff", count=2, height=128, width=128, dtype="uint16") as file:
        file.write(bands)
    with rasterio.open(tmp_path / "label.tif", "w", driver="GTiff", count=1, height=128, width=128, dtype="uint8") as file:
        file.write((bands[:1] > 400).astype(np.uint8))
    unchoke.tile(scenes, label=tmp_path / "label.tif", tile_size=32, out=tmp_path / "out", normalise="none", on_event=ignore)
    dataset = unchoke.TileDataset(tmp_path / "out")
    assert len(dataset) == 16
    shown, masks = next(iter(DataLoader(dataset, batch_size=16, num_workers=1)))
    assert shown.shape == (16, 2, 32, 32) and torch.equal(masks, (shown[:, 0] > 400).long())


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"split": "validation"}, "unknown-choice"),
        ({"split": ""}, "unknown-choice"),
        ({"cache": "ram"}, "unknown-choice"),
        ({"size_px": 0}, "out-of-range"),
    ],
)
def test_choice_that_does_not_exist_is_refused(how: dict[str, Any], code: str, finished: Path) -> None:
    with refused(code):
        unchoke.PhotoDataset(finished, **how)
    if "split" in how:
        with refused(code, "'train', 'val', 'test'"):
            unchoke.FeatureDataset(finished, **how)


def test_workspace_without_them_says_what_to_type(tmp_path: Path, finished: Path) -> None:
    for kind in (unchoke.FeatureDataset, unchoke.PhotoDataset, unchoke.TileDataset):
        with pytest.raises(UsageError) as caught:
            kind(tmp_path / "nothing")
        assert caught.value.try_.startswith("unchoke ")
    with refused("no-tiles", str(finished)):
        unchoke.TileDataset(finished)


def test_script_of_the_manual_runs_before_and_after(finished: Path, photos: Path, tmp_path: Path) -> None:
    before, after = re.findall(r"^```python\n(# train\.py.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    old, new = before.splitlines(), after.splitlines()
    assert len([line for line in new if line not in old]) == 3
    (tmp_path / "photos").symlink_to(photos)
    shutil.copytree(finished, tmp_path / "unchoke-out")
    for name, text in (("before.py", before), ("after.py", after)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", RUN], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("right") == 6, "three epochs each"
