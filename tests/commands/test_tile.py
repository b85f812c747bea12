"""`tile` from Python: what the tiles hold, what a second run does, and what becomes of scenes that cannot be read."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray
from rasterio.transform import from_origin

from errors import refused
from unchoke.core.events import Event, Note, Progress, ignore
from unchoke.scenes.tiling.tile import tile
from unchoke.scenes.tiling.tile_result import TileResult

WET = "(B3-B5)/(B3+B5) > 0"
BANDS = ("B3", "B5")


def band_pixels(height: int, width: int, *, seed: int) -> NDArray[np.uint16]:
    """A smooth surface with some noise, with nodata (0) in one corner."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    waves = np.sin(rows / (9 + seed % 5)) + np.cos(columns / (7 + seed % 3))
    pixels = (2000 + 700 * waves + random.integers(0, 60, (height, width))).astype(np.uint16)
    pixels[: height // 8, : width // 8] = 0
    return pixels


def make_scene(folder: Path, name: str, *, height: int = 150, width: int = 130, seed: int = 0, left: float = 500_000.0) -> None:
    """Two band files of one scene, as Landsat names them."""
    folder.mkdir(parents=True, exist_ok=True)
    place = {"crs": "EPSG:32633", "transform": from_origin(left, 4_600_000.0, 30.0, 30.0), "nodata": 0}
    layout = {"tiled": True, "blockxsize": 64, "blockysize": 64, "compress": "deflate"}
    for number, band in enumerate(BANDS):
        kind = {"driver": "GTiff", "dtype": "uint16", "count": 1, "height": height, "width": width}
        with rasterio.open(folder / f"{name}_{band}.TIF", "w", **kind, **place, **layout) as file:
            file.write(band_pixels(height, width, seed=10 * seed + number), 1)


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    """Two scenes of different sizes, side by side on the map."""
    make_scene(tmp_path / "scenes", "alpha", seed=1)
    make_scene(tmp_path / "scenes", "beta", height=70, width=200, seed=2, left=600_000.0)
    return tmp_path / "scenes"


def cut(scenes: Path, out: Path, **options: Any) -> TileResult:
    """Small tiles with a mask, in one thread unless asked otherwise."""
    usual: dict[str, Any] = {"tile_size": 64, "mask": WET, "workers": 1, "compress": "isal", "on_event": ignore}
    return tile(str(scenes), out=out, **{**usual, **options})


def rows(result: TileResult) -> list[dict[str, str]]:
    with result.manifest.open(newline="") as text:
        return list(csv.DictReader(text))


def tile_files(out: Path) -> dict[str, bytes]:
    """Every tile and the manifest, with their bytes."""
    files = [*sorted((out / "tiles").rglob("*.npz")), out / "tiles" / "tile_manifest.csv"]
    return {file.relative_to(out).as_posix(): file.read_bytes() for file in files}


def written_at(out: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in sorted((out / "tiles").rglob("*")) if file.is_file()}


def test_tiles_hold_bands_mask_and_place(scenes: Path, tmp_path: Path) -> None:
    result = cut(scenes, tmp_path / "out")
    found = rows(result)
    assert result.ok
    assert result.tiles == len(found) == 3 * 3 + 2 * 4
    whole = np.stack([rasterio.open(scenes / f"alpha_{band}.TIF").read(1) for band in BANDS]).astype(np.float32)
    valid = (whole > 0).all(axis=0)
    largest = whole[:, valid].max(axis=1)
    wet = (whole[0] - whole[1]) / np.where(valid, whole.sum(axis=0), 1) > 0
    for row in (one for one in found if one["scene"] == "alpha"):
        top, left, height, width = (int(row[name]) for name in ("top", "left", "height", "width"))
        part = (slice(top, top + height), slice(left, left + width))
        with np.load(result.manifest.parent / row["path"]) as arrays:
            expected = np.where(valid[part], whole[:, *part] / largest[:, None, None].astype(np.float32), 0)
            np.testing.assert_array_equal(arrays["bands"], expected.astype(np.float32))
            np.testing.assert_array_equal(arrays["valid"], valid[part])
            np.testing.assert_array_equal(arrays["mask"], np.where(valid[part], wet[part], 255))
            assert arrays["transform"].tolist() == [float(number) for number in row["transform"].split(",")]
        assert float(row["transform"].split(",")[2]) == 500_000.0 + 30 * left
        assert float(row["valid_share"]) == pytest.approx(valid[part].mean(), abs=1e-6)
        labelled = wet[part][valid[part]]
        assert float(row["mask_1_share"]) == pytest.approx(labelled.mean(), abs=1e-6)
        assert row["crs"] == "EPSG:32633"


def test_every_tile_has_a_split_and_times_add_up(scenes: Path, tmp_path: Path) -> None:
    result = cut(scenes, tmp_path / "out")
    assert {row["split"] for row in rows(result)} == {"train", "val", "test"}
    assert sum(result.splits.values()) == result.tiles
    assert [stage.stage for stage in result.stages] == ["open", "read", "normalise", "mask", "write"]
    assert sum(stage.share for stage in result.stages) == pytest.approx(1)
    assert next(stage.calls for stage in result.stages if stage.stage == "write") == result.tiles
    assert {"scan", "inspect", "scale", "plan", "tile", "manifest"} <= result.timings.keys()
    assert {"grid", "normalise", "parallel", "block_px"} <= {choice.name for choice in result.choices}
    text = result.to_text()
    assert "unchoke segment train" in text
    assert all(word in text for word in ("alpha", "beta", "normalise", "train", str(result.manifest)))


def test_progress_counts_tiles(scenes: Path, tmp_path: Path) -> None:
    told: list[Event] = []
    result = cut(scenes, tmp_path / "out", on_event=told.append)
    last = [event for event in told if isinstance(event, Progress)][-1]
    assert (last.stage, last.done, last.total, last.unit) == ("tile", result.tiles, result.tiles, "tiles")


def test_a_second_run_is_done_and_writes_nothing(scenes: Path, tmp_path: Path) -> None:
    first = cut(scenes, tmp_path / "out")
    before = written_at(tmp_path / "out")
    second = tile(out=tmp_path / "out", on_event=ignore)
    assert (second.already_done, second.num_run, second.tiles) == (True, 0, first.tiles)
    assert written_at(tmp_path / "out") == before
    assert second.stages == first.stages, "where the time went is remembered"


@pytest.mark.parametrize("harm", ["gone", "shorter"])
def test_damaged_tile_is_made_again(scenes: Path, tmp_path: Path, harm: str) -> None:
    result = cut(scenes, tmp_path / "out")
    before = tile_files(tmp_path / "out")
    victim = result.manifest.parent / rows(result)[4]["path"]
    victim.unlink() if harm == "gone" else victim.write_bytes(victim.read_bytes()[:-1])
    told: list[Event] = []
    again = cut(scenes, tmp_path / "out", on_event=told.append)
    assert again.num_run == 1
    assert tile_files(tmp_path / "out") == before
    assert any(isinstance(event, Note) and victim.name in event.text for event in told)


def test_other_settings_touch_no_earlier_tiles(scenes: Path, tmp_path: Path) -> None:
    first = cut(scenes, tmp_path / "out")
    before = written_at(tmp_path / "out")
    told: list[Event] = []
    other = cut(scenes, tmp_path / "out", mask="B3 > 2000", on_event=told.append)
    kept = {file: when for file, when in written_at(tmp_path / "out").items() if file.endswith(".npz") and file in before}
    assert kept == {file: when for file, when in before.items() if file.endswith(".npz")}
    assert {row["path"] for row in rows(other)}.isdisjoint(kept)
    assert any(isinstance(event, Note) for event in told)
    back = cut(scenes, tmp_path / "out")
    assert (back.num_run, back.tiles) == (0, first.tiles)


def test_unused_tiles_may_be_deleted(scenes: Path, tmp_path: Path) -> None:
    first = cut(scenes, tmp_path / "out")
    cut(scenes, tmp_path / "out", mask="B3 > 2000")
    for scene in first.scenes:
        shutil.rmtree(first.manifest.parent / scene.folder)
    told: list[Event] = []
    again = cut(scenes, tmp_path / "out", mask="B3 > 2000", on_event=told.append)
    assert again.num_run == 0
    assert not [event for event in told if isinstance(event, Note)]


def test_only_a_changed_scene_is_done_again(scenes: Path, tmp_path: Path) -> None:
    first = cut(scenes, tmp_path / "out")
    make_scene(scenes, "beta", height=70, width=200, seed=9, left=600_000.0)
    again = cut(scenes, tmp_path / "out")
    assert 0 < again.num_run < first.num_strips
    paths = {scene: {row["path"] for row in rows(again) if row["scene"] == scene} for scene in ("alpha", "beta")}
    assert all((again.manifest.parent / path).exists() for path in paths["beta"])
    assert len({Path(path).parent for path in paths["beta"]}) == 1


def test_scenes_with_the_same_bytes_do_not_share_their_jobs(scenes: Path, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / "twins" / folder).mkdir(parents=True)
        for band in BANDS:
            shutil.copy2(scenes / f"alpha_{band}.TIF", tmp_path / "twins" / folder / f"x_{band}.TIF")
    result = cut(tmp_path / "twins", tmp_path / "out")
    assert len({scene.scene for scene in result.scenes}) == 2
    assert result.tiles == 2 * 9


def test_threads_and_processes_write_the_same_bytes(scenes: Path, tmp_path: Path) -> None:
    cut(scenes, tmp_path / "one")
    cut(scenes, tmp_path / "threads", workers=2)
    cut(scenes, tmp_path / "processes", workers=2, parallel="processes")
    assert tile_files(tmp_path / "one") == tile_files(tmp_path / "threads") == tile_files(tmp_path / "processes")


def test_truncated_band_is_named_and_others_tiled(scenes: Path, tmp_path: Path) -> None:
    victim = scenes / "alpha_B5.TIF"
    victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    result = cut(scenes, tmp_path / "out", max_failures=0.9)
    assert not result.ok
    assert {row["scene"] for row in rows(result)} == {"beta"}
    assert [entry.sample_id for entry in result.set_aside] == ["alpha"]
    assert any(finding.path == str(victim) and finding.severity == "error" for finding in result.findings)
    assert "alpha_B5.TIF" in result.to_text()
    assert "alpha" in (tmp_path / "out" / "tiles" / "quarantine.csv").read_text()


def test_missing_band_is_named_and_others_tiled(scenes: Path, tmp_path: Path) -> None:
    (scenes / "beta_B5.TIF").unlink()
    result = cut(scenes, tmp_path / "out", bands=BANDS)
    assert not result.ok
    assert {row["scene"] for row in rows(result)} == {"alpha"}
    assert [(entry.sample_id, "B5" in entry.reason) for entry in result.set_aside] == [("beta", True)]


def test_labels_from_a_raster_with_class_names(scenes: Path, tmp_path: Path) -> None:
    (tmp_path / "labels").mkdir()
    for name in ("alpha", "beta"):
        with rasterio.open(scenes / f"{name}_B3.TIF") as source:
            labels, kind = (source.read(1) % 3).astype(np.uint8), source.profile
        with rasterio.open(tmp_path / "labels" / f"{name}.tif", "w", **{**kind, "dtype": "uint8", "nodata": None}) as file:
            file.write(labels, 1)
    result = cut(scenes, tmp_path / "out", mask=None, label=str(tmp_path / "labels"), classes="dry,wet,ice")
    first = rows(result)[0]
    shares = [float(first[f"mask_{name}_share"]) for name in ("dry", "wet", "ice")]
    assert sum(shares) == pytest.approx(1, abs=1e-5)
    with np.load(result.manifest.parent / first["path"]) as arrays:
        assert set(np.unique(arrays["mask"])) == {0, 1, 2, 255}


def test_a_large_photo_is_a_scene_too(tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "photos").mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (100, 140, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photos" / "field.png")
    result = cut(tmp_path / "photos", tmp_path / "out", mask=None, normalise="255")
    assert (result.tiles, result.has_mask) == (2 * 3, False)
    with np.load(result.manifest.parent / rows(result)[0]["path"]) as arrays:
        np.testing.assert_array_equal(arrays["bands"], pixels[:64, :64].transpose(2, 0, 1).astype(np.float32) / np.float32(255))
        assert "mask" not in arrays


def test_a_scene_that_was_mended_joins_the_others(scenes: Path, tmp_path: Path) -> None:
    victim, whole = scenes / "alpha_B5.TIF", (scenes / "alpha_B5.TIF").read_bytes()
    victim.write_bytes(b"not a picture")
    assert {row["scene"] for row in rows(cut(scenes, tmp_path / "out"))} == {"beta"}
    victim.write_bytes(whole)
    mended = cut(scenes, tmp_path / "out")
    assert mended.ok
    assert {row["scene"] for row in rows(mended)} == {"alpha", "beta"}
    assert not (tmp_path / "out" / "tiles" / "quarantine.csv").exists()


def test_no_sound_scene_is_refused(scenes: Path, tmp_path: Path) -> None:
    for file in scenes.glob("*_B5.TIF"):
        file.write_bytes(b"not a picture")
    with refused("no-usable-scene", "alpha_B5.TIF"):
        cut(scenes, tmp_path / "out")


def test_tiles_that_are_mostly_nodata_can_be_skipped(scenes: Path, tmp_path: Path) -> None:
    every = cut(scenes, tmp_path / "every")
    some = cut(scenes, tmp_path / "some", min_valid=0.95)
    assert some.skipped > 0
    assert some.tiles + some.skipped == every.tiles
    assert all(float(row["valid_share"]) >= 0.95 for row in rows(some))
    assert cut(scenes, tmp_path / "some", min_valid=0.95).num_run == 0


def test_skipping_everything_is_an_error_in_words(scenes: Path, tmp_path: Path) -> None:
    for band in BANDS:
        with rasterio.open(scenes / f"alpha_{band}.TIF", "r+") as file:
            file.write(np.zeros((150, 130), np.uint16), 1)
    (scenes / "beta_B3.TIF").unlink()
    (scenes / "beta_B5.TIF").unlink()
    result = cut(scenes, tmp_path / "out", min_valid=0.1)
    assert not result.ok
    assert {"all-nodata", "no-tiles"} <= {finding.code for finding in result.findings}


def test_a_mask_of_one_class_gets_a_warning(scenes: Path, tmp_path: Path) -> None:
    result = cut(scenes, tmp_path / "out", mask="B3 > 60000")
    assert result.ok
    assert [finding.code for finding in result.findings if finding.severity == "warning"] == ["one-class"]


def test_a_rehearsal_counts_and_writes_nothing(scenes: Path, tmp_path: Path) -> None:
    planned = cut(scenes, tmp_path / "out", dry_run=True)
    assert not (tmp_path / "out" / "tiles").exists()
    assert not (tmp_path / "out" / "unchoke.toml").exists()
    assert "17 tiles of 2 scenes" in planned.to_text()
    assert planned.tiles == cut(scenes, tmp_path / "out").tiles == 17


def test_auto_follows_the_blocks_of_the_files(tmp_path: Path) -> None:
    make_scene(tmp_path / "scenes", "large", height=600, width=560, seed=1)
    planned = cut(tmp_path / "scenes", tmp_path / "out", tile_size="auto", compress=None, dry_run=True)
    result = cut(tmp_path / "scenes", tmp_path / "out", tile_size="auto", compress=None)
    chosen = {choice.name: choice.value for choice in result.choices}
    assert (chosen["tile_size"], chosen["compress"]) == (512, "isal")
    assert planned.tiles == result.tiles == 4
    assert cut(tmp_path / "scenes", tmp_path / "out", tile_size="auto").num_run == 0


def test_an_overlap_as_large_as_the_tile_is_refused(scenes: Path, tmp_path: Path) -> None:
    with refused("bad-overlap", "64 px"):
        cut(scenes, tmp_path / "out", overlap=64)


def test_too_many_failures_are_said_and_stop_nothing(scenes: Path, tmp_path: Path) -> None:
    (scenes / "alpha_B5.TIF").write_bytes(b"not a picture")
    told: list[Event] = []
    result = cut(scenes, tmp_path / "out", on_event=told.append)
    assert result.tiles > 0
    assert any(isinstance(event, Note) and "--max-failures" in event.text for event in told)
