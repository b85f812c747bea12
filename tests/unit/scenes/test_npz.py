"""NPZ files that plain NumPy reads, the same bytes for the same arrays."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from errors import refused
from unchoke.scenes import npz
from unchoke.scenes.npz import Compress, write_npz

ways = pytest.mark.parametrize("compress", get_args(Compress))


def some_arrays() -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(3)
    return {
        "bands": (random.integers(0, 200, (3, 40, 50)) / 7).astype(np.float32),
        "turned": np.asfortranarray(random.integers(0, 9, (70, 80))),
        "part": random.integers(0, 9, (70, 80), dtype=np.uint8)[::2, 3:],
        "valid": np.ones((90, 90), np.bool_),
        "empty": np.zeros((0, 3), np.float64),
        "crs": np.array('PROJCS["Übung"]'),
        "names": np.array(["B2", "B8A"]),
        "one": np.array(4.5),
    }


@ways
def test_numpy_reads_what_was_written_and_the_zip_is_sound(compress: Compress, tmp_path: Path) -> None:
    arrays = some_arrays()
    write_npz(tmp_path / "tile.npz", arrays, compress=compress)
    with np.load(tmp_path / "tile.npz") as found:
        assert found.files == list(arrays)
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)
    with zipfile.ZipFile(tmp_path / "tile.npz") as archive:
        assert archive.testzip() is None


@ways
def test_npz_bytes_deterministic_digest_differs(compress: Compress, tmp_path: Path) -> None:
    first = write_npz(tmp_path / "a.npz", some_arrays(), compress=compress)
    second = write_npz(tmp_path / "b.npz", some_arrays(), compress=compress, durable=False)
    assert first == second
    assert first[1] == (tmp_path / "a.npz").stat().st_size
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    changed = some_arrays()
    name, array = next((name, array.copy()) for name, array in changed.items() if array.size and array.dtype.kind in "fiu")
    array.flat[-1] += 1
    assert write_npz(tmp_path / "c.npz", {**changed, name: array}, compress=compress)[0] != first[0]


def test_an_open_file_is_written_to_where_it_stands() -> None:
    buffer = io.BytesIO()
    _, size_bytes = write_npz(buffer, {"a": np.arange(5)})
    assert buffer.tell() == size_bytes


def test_isal_packs_nearly_as_well_as_numpy_does() -> None:
    rows, columns = np.mgrid[0:256, 0:256]
    texture = np.random.default_rng(1).integers(0, 12, (256, 256))
    bands = ((2000 + 8 * np.hypot(rows - 90, columns - 120)).astype(np.uint16) + texture).astype(np.float32) / np.float32(4511)
    _, size_bytes = write_npz(io.BytesIO(), {"bands": bands}, compress="isal")
    assert size_bytes <= 1.3 * len(zlib.compress(bands.tobytes(), 6))


def test_python_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="Python objects"):
        write_npz(io.BytesIO(), {"a": np.array([{}], dtype=object)})


def test_npz_beyond_zip32_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "_MOST_BYTES", 1000)
    with refused("tile-too-large", "1.0 kB", "--tile-size"):
        write_npz(io.BytesIO(), {"a": np.zeros(1001, np.uint8)})
