"""What is in memory becomes a table and photos: the same content the same files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image as Pillow
from torch.utils.data import TensorDataset

from errors import refused
from unchoke.core.in_memory import write_data


def written(data: Any, folder: Path) -> pd.DataFrame:
    table, _ = write_data(data, folder)
    assert write_data(data, folder)[0] == table
    return pd.read_csv(table)


def pixels_of(path: str) -> Any:
    return np.asarray(Pillow.open(path))


def test_frame_keeps_columns_and_its_paths_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jpg").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(
        {"file": ["a.jpg", "b.jpg"], "kind": ["yes", "no"], "height": [1.5, 2.0]}, index=pd.Index([7, 8], name="id")
    )
    found = written(frame, tmp_path / "data")
    assert found.to_dict("list") == {
        "id": [7, 8],
        "file": [str(tmp_path / "a.jpg"), "b.jpg"],
        "kind": ["yes", "no"],
        "height": [1.5, 2.0],
    }


def test_pairs_are_labels_or_values(tmp_path: Path) -> None:
    assert written([("x/a.jpg", "cat"), ("x/b.jpg", "dog")], tmp_path)["label"].tolist() == ["cat", "dog"]
    table, implied = write_data([("x/a.jpg", 0.5), ("x/b.jpg", 1.0)], tmp_path)
    assert implied == {"target": ("target",)} and pd.read_csv(table)["target"].tolist() == [0.5, 1.0]


def test_lists_are_several_labels(tmp_path: Path) -> None:
    frame = pd.DataFrame({"path": ["a.jpg", "b.jpg", "c.jpg"], "label": [["cat", "dog"], np.array(["cat"], object), []]})
    table, implied = write_data(frame, tmp_path)
    assert implied == {"multi_label": True}
    assert pd.read_csv(table)["label"].tolist() == ["cat|dog", "cat", "none"]
    assert written([("a.jpg", ["cat", "dog"]), ("b.jpg", ["cat"])], tmp_path)["label"].tolist() == ["cat|dog", "cat"]


def test_torch_dataset_is_written_as_photos(tmp_path: Path) -> None:
    images = torch.randint(0, 256, (4, 3, 5, 6), dtype=torch.uint8)
    images[3] = images[0]
    found = written(TensorDataset(images, torch.tensor([0, 1, 1, 0])), tmp_path)
    assert found["label"].tolist() == [0, 1, 1, 0]
    assert len(set(found["path"])) == 4, "copies are two files, so that the checks see them"
    assert np.array_equal(pixels_of(found["path"][1]), images[1].permute(1, 2, 0).numpy())
    shares = written(TensorDataset(images / 255, torch.tensor([0, 1, 1, 0])), tmp_path)
    assert np.array_equal(pixels_of(shares["path"][1]), images[1].permute(1, 2, 0).numpy())


def test_normalised_pixels_are_refused(tmp_path: Path) -> None:
    with refused("not-a-picture") as caught:
        write_data(TensorDataset(torch.randn(2, 3, 5, 6), torch.tensor([0, 1])), tmp_path)
    assert "Normalize" in caught.value.try_


class Folder:
    """As torchvision's ImageFolder: files, whatever its transforms make of them."""

    samples = (("/photos/cat/1.jpg", 0), ("/photos/dog/2.jpg", 1))
    classes = ("cat", "dog")

    def __init__(self) -> None:
        self.samples = list(type(self).samples)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, number: int) -> Any:
        raise AssertionError("its files are enough")


def test_folder_of_torchvision_is_read_by_its_files(tmp_path: Path) -> None:
    found = written(Folder(), tmp_path)
    assert found.to_dict("list") == {"path": ["/photos/cat/1.jpg", "/photos/dog/2.jpg"], "label": ["cat", "dog"]}


class Image:
    """The feature of that name of Hugging Face's datasets."""

    def __init__(self, decode: bool = True) -> None:
        self.decode = decode


class ClassLabel:
    names = ("cat", "dog")


class HubDataset:
    """What of Hugging Face's `Dataset` is looked at."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows
        self.features: dict[str, Any] = {"image": Image(), "label": ClassLabel()}
        self.column_names = list(self.features)

    def cast_column(self, name: str, feature: Any) -> HubDataset:
        found = HubDataset(self._rows)
        found.features[name] = feature
        return found

    def __iter__(self) -> Iterator[dict[str, Any]]:
        assert not self.features["image"].decode
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def test_hub_dataset_keeps_bytes_names_and_splits(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Pillow.new("RGB", (4, 3), (9, 8, 7)).save(buffer, "JPEG")
    inside = {"image": {"bytes": buffer.getvalue(), "path": None}, "label": 1}
    beside = {"image": {"bytes": None, "path": "/photos/1.jpg"}, "label": 0}
    found = written({"train": HubDataset([inside, beside]), "test": HubDataset([inside])}, tmp_path)
    assert found["label"].tolist() == ["dog", "cat", "dog"] and found["split"].tolist() == ["train", "train", "test"]
    assert Path(found["image"][0]).read_bytes() == buffer.getvalue() and found["image"][0].endswith(".jpg")
    assert found["image"][1] == "/photos/1.jpg"


@pytest.mark.parametrize("data", [3, iter([("a.jpg", "x")]), [("a.jpg", {"x": 1})], ["a.jpg"]])
def test_what_is_no_data_is_refused(data: Any, tmp_path: Path) -> None:
    with refused("unknown-data"):
        write_data(data, tmp_path)
