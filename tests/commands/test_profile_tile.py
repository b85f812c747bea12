"""`unchoke profile tile` on small scenes: what the tables say, not how fast anything is."""

from __future__ import annotations

import json
import pstats
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray
from rasterio.transform import from_origin

from errors import refused
from unchoke.core.events import ignore
from unchoke.core.findings import Finding
from unchoke.core.timeline import StageRow
from unchoke.scenes.tiling.profile_tile import TileProfile, diagnose_tiling, profile_tile, render_stages

STAGES = ["open", "read", "normalise", "mask", "write", "other"]
BANDS = ("B2", "B3", "B4", "B5")
WATER = "(B3-B5)/(B3+B5) > 0"
PLACE = {"crs": "EPSG:32616", "transform": from_origin(600_000, 4_200_000, 30, 30)}


def smooth(height: int, width: int, *, turn: int) -> NDArray[np.uint16]:
    down, across = np.mgrid[:height, :width]
    return (2000 + 900 * np.sin((down + turn * across) / 17) + 3 * ((down * across) % 7)).astype(np.uint16)


def write_band(file: Path, pixels: NDArray[np.uint16], **options: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    height, width = pixels.shape
    profile = {"driver": "GTiff", "height": height, "width": width, "count": 1, "dtype": "uint16", **PLACE}
    layout = {"tiled": True, "blockxsize": 64, "blockysize": 64, "compress": "deflate"}
    with rasterio.open(file, "w", **{**profile, **layout, **options}) as target:
        target.write(pixels, 1)


def write_scene(folder: Path, name: str = "lake", *, height: int = 200, width: int = 330, **options: object) -> Path:
    for turn, band in enumerate(BANDS):
        write_band(folder / f"{name}_{band}.tif", smooth(height, width, turn=turn), **options)
    return folder


def profiled(data: Path, tmp_path: Path, **options: object) -> TileProfile:
    given = {"windows": 6, "tile_size": 64, "mask": WATER, "workers": 2, "compress": "isal", **options}
    return profile_tile(data, out=tmp_path / "work", on_event=ignore, **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> TileProfile:
    folder = tmp_path_factory.mktemp("profile")
    return profiled(write_scene(folder / "scenes"), folder)


def test_tables_have_every_stage_and_add_up(result: TileProfile) -> None:
    for rows in (result.before, result.after):
        assert [row.stage for row in rows] == STAGES
        assert sum(row.share for row in rows) == pytest.approx(1.0)
        assert all(row.seconds > 0 for row in rows)


def test_bands_are_opened_once(result: TileProfile) -> None:
    calls = {way: {row.stage: row.calls for row in rows} for way, rows in (("before", result.before), ("after", result.after))}
    assert calls["before"]["open"] == 6 * len(BANDS)
    assert calls["before"]["read"] == 6
    for stage in ("normalise", "mask", "write"):
        assert calls["before"][stage] == calls["after"][stage] == 6
    assert 0 < calls["after"]["read"] <= 6
    assert 0 < calls["after"]["open"] < calls["before"]["open"]


def test_both_ways_make_the_same_arrays(result: TileProfile) -> None:
    assert result.equal is True
    assert 0.5 < result.size_ratio < 2


def test_the_profiles_can_be_opened_by_other_tools(result: TileProfile) -> None:
    assert sorted(result.files) == ["after", "before"]
    for way, file in result.files.items():
        assert file == result.workspace / "logs" / "profiler" / f"tile_{way}.prof"
        assert pstats.Stats(str(file)).total_tt > 0  # type: ignore[attr-defined]


def test_no_tiles_and_no_settings_are_left(result: TileProfile) -> None:
    left = {file.name for file in result.workspace.rglob("*") if file.is_file()}
    assert not [name for name in left if name.endswith((".npz", ".tmp", ".toml"))]


def test_the_result_is_plain_values(result: TileProfile) -> None:
    told = json.loads(json.dumps(result.to_dict()))
    assert {"before", "after", "ratio", "files", "findings", "windows", "equal", "seconds"} <= told.keys()
    assert told["windows"] == 6
    assert told["ratio"] == pytest.approx(told["seconds"]["before"] / told["seconds"]["after"])
    assert all({"code", "stage", "evidence", "expected_gain", "fix", "command"} <= finding.keys() for finding in told["findings"])


def test_text_names_data_files_and_the_next_command(result: TileProfile) -> None:
    text = result.to_text()
    assert "6 windows of 64 px from 1 scene" in text
    assert f"snakeviz {result.files['before']}" in text
    assert f"unchoke tile {result.workspace.parent / 'scenes'} " in text
    assert f"--mask '{WATER}'" in text
    assert text.endswith(f" --out {result.workspace}")


def test_resampled_padded_and_nodata_are_equal_too(tmp_path: Path) -> None:
    scene = write_scene(tmp_path / "scenes", height=100, width=100, nodata=2003)
    coarse = {"crs": PLACE["crs"], "transform": from_origin(600_000, 4_200_000, 60, 60)}
    write_band(scene / "lake_B4.tif", smooth(50, 50, turn=2), **coarse)
    result = profiled(scene, tmp_path, edges="padded", normalise="percentile", windows=4, compress="zlib")
    assert result.equal is True
    assert result.windows == 4


def test_raw_tiles_are_equal(tmp_path: Path) -> None:
    result = profiled(write_scene(tmp_path / "scenes", height=64, width=128), tmp_path, store="raw", windows=2)
    assert result.equal is True


def test_no_mask_takes_next_to_no_time(tmp_path: Path) -> None:
    result = profiled(write_scene(tmp_path / "scenes", height=64, width=128), tmp_path, mask=None, windows=2)
    masks = [row for rows in (result.before, result.after) for row in rows if row.stage == "mask"]
    assert [row.calls for row in masks] == [0, 0]
    assert all(row.share < 0.01 for row in masks)


def test_several_scenes_and_a_damaged_one(tmp_path: Path) -> None:
    scenes = tmp_path / "scenes"
    for name in ("a", "b", "c"):
        write_scene(scenes, name, height=128, width=128)
    (scenes / "b_B3.tif").write_bytes(b"not a picture")
    result = profiled(scenes, tmp_path, windows=4)
    assert len(result.scenes) == 2
    assert result.findings[0].severity == "error"
    assert "b_B3.tif" in str(result.findings[0].path)


def test_more_windows_than_there_are(tmp_path: Path) -> None:
    assert profiled(write_scene(tmp_path / "scenes", height=64, width=100), tmp_path, windows=50).windows == 2


def test_no_scene_at_all_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "scenes").mkdir()
    with refused("no-scenes"):
        profiled(tmp_path / "scenes", tmp_path)


def table(*seconds: float) -> list[StageRow]:
    return [StageRow(stage, spent, spent / sum(seconds), 8) for stage, spent in zip(STAGES, seconds, strict=True)]


BEFORE = table(10.0, 20.0, 1.0, 1.0, 66.0, 2.0)
QUICK = table(0.1, 2.0, 0.5, 0.5, 3.0, 0.2)


def diagnosed(after: list[StageRow], **options: Any) -> list[Finding]:
    spec: Any = SimpleNamespace(**{"compress": "isal", "store": "float32", **options})
    return diagnose_tiling(BEFORE, after, windows=2, spec=spec, command="unchoke tile x")


def test_the_stage_with_most_to_gain_comes_first() -> None:
    found = diagnosed(QUICK)
    assert [one.code for one in found] == [
        *("slow-compression", "blocks-decoded-again", "files-opened-per-window"),
        "what-is-left",
    ]
    assert "66 %" in found[0].message
    assert "22.0×" in found[0].expected_gain and "2.7×" in found[0].expected_gain


def test_small_or_no_better_stages_not_mentioned() -> None:
    assert [finding.code for finding in diagnosed(BEFORE)] == ["what-is-left"]
    assert diagnosed(table(1, 1, 1, 1, 1, 1))[-1].code != "what-is-left"


def test_lighter_layout_offered_if_compressed() -> None:
    assert diagnosed(QUICK)[-1].command == "unchoke tile x --store raw"
    assert diagnosed(QUICK, store="raw")[-1].command == "unchoke tile x --compress none"
    assert diagnosed(QUICK, compress="none")[-1].command == ""


def test_stages_stand_side_by_side_with_totals() -> None:
    before = [StageRow("open", 0.5, 0.05, 96), StageRow("write", 9.5, 0.95, 24)]
    lines = render_stages(before, [StageRow("open", 0.01, 0.01, 4), StageRow("write", 0.99, 0.99, 0)]).splitlines()
    assert lines[0].split() == ["stage", "before", "time", "calls", "after", "time", "calls"]
    assert lines[2].split() == ["open", "5.0", "%", "500", "ms", "96", "1.0", "%", "10", "ms", "4"]
    assert lines[3].split()[-1] == "-"  # a stage without calls of its own
    assert lines[-1].split() == ["total", "10.0", "s", "1.0", "s"]
