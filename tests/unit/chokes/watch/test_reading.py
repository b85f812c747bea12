"""Arrays, rasters and tables: what was read, how much, and from which file."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unchoke.chokes.watch import reading
from unchoke.chokes.watch.hooks import Hook
from unchoke.chokes.watch.recorder import Recorder


@pytest.fixture
def recorder(hooks_made: list[Hook]) -> Recorder:
    made = Recorder()
    reading.install(made)
    return made


def rows(recorder: Recorder, kind: str) -> list[dict[str, Any]]:
    return [row for row in recorder.to_dict()["calls"] if row["kind"] == kind]


@pytest.mark.parametrize(("save", "compressed"), [(np.savez, False), (np.savez_compressed, True)])
def test_archive_members_tell_compression(recorder: Recorder, tmp_path: Path, save: Any, compressed: bool) -> None:
    path = tmp_path / "one.npz"
    save(path, pixels=np.zeros((10, 10), np.float32))
    with np.load(path) as archive:
        assert archive["pixels"].sum() == archive["pixels.npy"].sum() == 0
    found = rows(recorder, "npz")
    assert [row["amount"] for row in found] == [800]
    assert found[0]["detail"]["compressed"] is compressed
    assert found[0]["example"] == str(path)


def test_plain_arrays_are_read_unless_they_are_mapped(recorder: Recorder, tmp_path: Path) -> None:
    path = tmp_path / "one.npy"
    np.save(path, np.zeros(100))
    np.load(path)
    np.load(path, mmap_mode="r")
    (row,) = rows(recorder, "read")
    assert (row["count"], row["amount"]) == (1, 800)


def test_tables_and_texts_count_the_bytes_that_were_parsed(recorder: Recorder, tmp_path: Path) -> None:
    import pandas as pd

    table, text = tmp_path / "labels.csv", tmp_path / "labels.json"
    pd.DataFrame({"path": ["a"], "label": [1]}).to_csv(table, index=False)
    with text.open("w") as file:
        json.dump({"a": 1}, file)
    pd.read_csv(table)
    json.loads(text.read_text())
    with text.open() as file:
        assert json.load(file) == {"a": 1}
    with table.open() as file:
        assert list(csv.DictReader(file)) == [{"path": "a", "label": "1"}]
    parsed = rows(recorder, "csv")
    assert parsed[0]["amount"] == table.stat().st_size
    assert [row["example"] for row in parsed][0::2] == [str(table), str(text)]
    assert len(parsed) == 4
    assert {row["example"] for row in rows(recorder, "dump")} >= {str(table), str(text)}


def test_unpickling_from_a_file_counts(recorder: Recorder, tmp_path: Path) -> None:
    path = tmp_path / "one.pkl"
    with path.open("wb") as file:
        pickle.dump([1], file)
    with path.open("rb") as file:
        assert pickle.load(file) == [1]
    assert rows(recorder, "load")[0]["example"] == str(path)


def test_rasters_tell_opens_reads_and_how_they_are_stored(recorder: Recorder, tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio")
    path = tmp_path / "scene.tif"
    shape = {"driver": "GTiff", "width": 64, "height": 32, "count": 2, "dtype": "uint8", "compress": "deflate"}
    with rasterio.open(path, "w", **shape) as scene:
        scene.write(np.zeros((2, 32, 64), np.uint8))
    for _ in range(2):
        with rasterio.open(path) as scene:
            scene.read(window=rasterio.windows.Window(0, 0, 16, 8))
    assert [row["count"] for row in rows(recorder, "raster_open")] == [2]
    (row,) = rows(recorder, "raster_read")
    assert (row["count"], row["amount"], row["distinct"]) == (2, 2 * 16 * 8, 1)
    assert row["detail"]["bands"] == 2
    assert row["detail"]["compression"] == "DEFLATE"
    assert row["detail"]["size_px"] == [64, 32]
