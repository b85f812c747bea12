"""Remedies, switched on in this process: what each changes, and that the results stay the same."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset

from unchoke.chokes.watch import loading, remedies
from unchoke.chokes.watch.hooks import Hook
from unchoke.chokes.watch.recorder import Recorder
from unchoke.chokes.watch.remedies.remedy import Remedy
from unchoke.chokes.watch.scratch import Scratch

SwitchOn = Callable[..., Remedy]


@pytest.fixture
def switch_on(hooks_made: list[Hook]) -> SwitchOn:
    def switch(name: str, **options: Any) -> Remedy:
        remedy = Remedy(Recorder(), remedies.split(name)[1], **options)
        remedies.switch_on(name, remedy)
        return remedy

    return switch


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "one.jpg"
    rows, columns = np.mgrid[:240, :320]
    Image.fromarray(np.stack([rows, columns // 2, rows], axis=2).astype(np.uint8)).save(path, quality=95)
    return path


def test_every_remedy_can_be_switched_on_and_taken_back(switch_on: SwitchOn, hooks_made: list[Hook]) -> None:
    stat, init = os.stat, DataLoader.__init__
    for name in remedies.REMEDIES:
        switch_on(name)
    assert os.stat is not stat
    for hook in reversed(hooks_made):
        hook.undo()
    assert (os.stat, DataLoader.__init__) == (stat, init)


def test_stat_is_cached_unless_the_script_writes(switch_on: SwitchOn, tmp_path: Path) -> None:
    scratch = Scratch(str(tmp_path / "scratch"), Recorder())
    remedy = switch_on("cached-stat", scratch=scratch)
    path = tmp_path / "late.txt"
    assert not path.exists()
    assert not path.exists()
    assert remedy.done == 1
    path.write_text("now")
    assert not path.exists(), "remembered"
    scratch.to_write(path)
    assert path.exists(), "written by the script itself: asked for again"


def test_listings_and_patterns_are_remembered(switch_on: SwitchOn, tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    remedy = switch_on("cached-stat")
    asked = (
        lambda: os.listdir(tmp_path),
        lambda: [entry.name for entry in os.scandir(str(tmp_path))],
        lambda: [Path(found).name for found in glob.glob(f"{tmp_path}/*.txt")],  # noqa: PTH207
        lambda: [found.name for found in tmp_path.glob("*.txt")],
    )
    for ask in asked:
        before = remedy.done
        assert ask() == ask() == ["a.txt"]
        assert remedy.done > before


class Strewn:
    """A user's own way of looking for files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, name: str) -> str:
        for number in range(20):
            path = self.folder / str(number) / name
            if path.exists():
                return str(path)
        return str(self.folder / name)


def test_path_lookup_function_is_cached_whole(switch_on: SwitchOn, tmp_path: Path) -> None:
    remedy = switch_on("cached-stat")
    remedy.recorder.phase = "getitem"
    strewn, plain = Strewn(tmp_path), Strewn.find
    found = [strewn.find("a.jpg") for _ in range(6)]
    assert set(found) == {str(tmp_path / "a.jpg")}
    assert Strewn.find is not plain
    done = remedy.done
    strewn.find("a.jpg")
    assert remedy.done == done + 1, "one answer instead of twenty"


def test_pictures_are_decoded_once_and_handed_out_as_copies(switch_on: SwitchOn, photo: Path) -> None:
    plain = np.array(Image.open(photo).convert("RGB"))
    remedy = switch_on("cached-decode")
    for _ in range(3):
        with Image.open(photo) as picture:
            assert np.array_equal(np.array(picture.convert("RGB")), plain)
            assert (picture.format, picture.size) == ("JPEG", (320, 240))
            picture.paste(0, (0, 0, 320, 240))
    assert remedy.done == 2
    photo.unlink()
    Image.new("RGB", (8, 8)).save(photo)
    assert Image.open(photo).size == (8, 8), "a file that changed is read again"


def test_arrays_are_decompressed_once(switch_on: SwitchOn, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "one.npz", values=np.arange(5))
    remedy = switch_on("cached-decode")
    for _ in range(3):
        with np.load(tmp_path / "one.npz") as archive:
            values = archive["values"]
        assert values.tolist() == [0, 1, 2, 3, 4]
        values += 1
    assert remedy.done == 2


def test_tables_are_parsed_once_and_handed_out_as_copies(switch_on: SwitchOn, tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    path.write_text(json.dumps({"a": [1, 2]}))
    remedy = switch_on("cached-tables")
    for _ in range(3):
        with path.open() as file:
            labels = json.load(file)
        assert labels == {"a": [1, 2]}
        labels["a"].append(3)
    assert remedy.done == 2


def test_raster_is_opened_once_and_outlives_with(switch_on: SwitchOn, tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio")
    path = tmp_path / "scene.tif"
    with rasterio.open(path, "w", driver="GTiff", width=4, height=4, count=1, dtype="uint8") as scene:
        scene.write(np.full((1, 4, 4), 7, dtype=np.uint8))
    remedy = switch_on("cached-rasters")
    for _ in range(3):
        with rasterio.open(path) as scene:
            assert scene.read().max() == 7
    assert (remedy.done, scene.closed) == (2, False)


def test_shrunk_jpegs_are_drafted(switch_on: SwitchOn, photo: Path) -> None:
    plain = np.asarray(Image.open(photo).convert("RGB").resize((32, 24)), dtype=float)
    remedy = switch_on("draft-jpeg")
    for _ in range(6):
        opened = Image.open(photo)
        shrunk = np.asarray(opened.convert("RGB").resize((32, 24)), dtype=float)
    assert (remedy.done, opened.size) == (2, (80, 60))
    assert np.abs(shrunk - plain).mean() < 3


def test_jpegs_that_are_cropped_are_left_alone(switch_on: SwitchOn, photo: Path) -> None:
    remedy = switch_on("draft-jpeg")
    for _ in range(8):
        Image.open(photo).crop((0, 0, 100, 100)).resize((32, 32))
    assert remedy.done == 0


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        return index


def orders(loader: DataLoader[int]) -> list[list[int]]:
    torch.manual_seed(5)
    return [[int(value) for batch in loader for value in batch] for _ in range(3)]


def test_persistent_workers_keep_the_sample_order(switch_on: SwitchOn) -> None:
    plain = orders(DataLoader(Numbers(), batch_size=4, shuffle=True))
    remedy = switch_on("workers:1")
    loader = DataLoader(Numbers(), batch_size=4, shuffle=True)
    assert (loader.num_workers, loader.persistent_workers, remedy.done) == (1, True, 1)
    assert orders(loader) == plain


def test_anomaly_detection_cannot_be_switched_on(switch_on: SwitchOn) -> None:
    remedy = switch_on("anomaly-off")
    with torch.autograd.set_detect_anomaly(True):
        assert not torch.is_anomaly_enabled()
    assert remedy.done == 1


def test_untrained_parameters_get_no_gradient(switch_on: SwitchOn) -> None:
    remedy = switch_on("frozen-no-grad")
    body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        head(body(torch.ones(2, 3))).sum().backward()
        optimizer.step()
    assert [parameter.requires_grad for parameter in (*body.parameters(), *head.parameters())] == [False, False, True, True]
    assert body.weight.grad is None
    assert remedy.done >= 2
    optimizer.add_param_group({"params": list(body.parameters())})
    assert body.weight.requires_grad, "to be trained after all"


def test_evaluation_runs_in_inference_mode_to_its_end(switch_on: SwitchOn) -> None:
    loader = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
    switch_on("inference-mode", evaluated=frozenset({loading.loaders.of(loader).number}))
    assert [torch.is_inference_mode_enabled() for _ in loader] == [True, True]
    assert not torch.is_inference_mode_enabled()
