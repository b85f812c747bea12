"""Scenes opened for tiles, training and prediction alike: each fault has one code, and names the scene and the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from errors import refused
from unchoke.core.settings import Settings
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.open_scenes import measure_scales, open_scenes, set_aside
from unchoke.scenes.scan_scenes import ScannedScenes, scan_scenes
from unchoke.scenes.scene_facts import SceneFacts

MakeScene = Callable[..., SceneFacts]
SESSION: Any = SimpleNamespace(settings=Settings(data="scenes"))


def opened(pool: HandlePool, *facts: SceneFacts, same_bands: bool) -> tuple[list[str], list[tuple[str, str]]]:
    scanned = ScannedScenes([one.scene for one in facts])
    found, findings = open_scenes(SESSION, scanned, pool=pool, threads=2, same_bands=same_bands)
    return [one.scene_id for one in found], [(finding.code, finding.severity) for finding in findings]


def test_scenes_come_back_in_the_order_of_the_scan(make_scene: MakeScene, pool: HandlePool) -> None:
    north, south = make_scene((2, 8, 8), name="north"), make_scene((2, 8, 8), name="south")
    assert opened(pool, south, north, same_bands=True) == (["south", "north"], [])


@pytest.mark.parametrize("same_bands", [True, False])
def test_unreadable_scene_set_aside(make_scene: MakeScene, pool: HandlePool, same_bands: bool) -> None:
    sound, broken = make_scene((1, 8, 8), name="sound"), make_scene((1, 8, 8), name="broken")
    Path(broken.scene.paths[0]).write_bytes(b"no picture")
    assert opened(pool, sound, broken, same_bands=same_bands) == (["sound"], [("broken-scene", "error")])
    with refused("no-usable-scene", broken.scene.paths[0]):
        opened(pool, broken, same_bands=same_bands)


def test_other_bands_for_tiles_and_for_a_network(make_scene: MakeScene, pool: HandlePool) -> None:
    scenes = [make_scene((2, 8, 8), name="a"), make_scene((2, 8, 8), name="b"), make_scene((1, 8, 8), name="c")]
    assert opened(pool, *scenes, same_bands=False) == (["a", "b", "c"], [("bands-differ", "warning")])
    assert opened(pool, *scenes, same_bands=True) == (["a", "b"], [("bands-differ", "error")])


def test_scene_broken_later_quarantined(make_scene: MakeScene, pool: HandlePool) -> None:
    sound, gone = make_scene((1, 8, 8), name="sound"), make_scene((1, 8, 8), name="gone")
    Path(gone.scene.paths[0]).unlink()
    scales, findings = measure_scales([sound, gone], "max", pool=pool, threads=0)
    assert list(scales) == ["sound"]
    entry, *others = set_aside([*findings, *findings])
    assert (entry.sample_id, entry.path, entry.stage) == ("gone", gone.scene.paths[0], "scale")
    assert entry.reason.startswith(gone.scene.paths[0]) and not others


def test_shifted_band_named_with_cost(tmp_path: Path, pool: HandlePool) -> None:
    import numpy as np
    import rasterio

    for band, shifted in (("B2", 0), ("B3", 16), ("B4", 0)):
        place = rasterio.Affine(10, 0, 500_000 + 10 * shifted, 0, -10, 5_000_000)
        profile = {"driver": "GTiff", "height": 32, "width": 32, "count": 1, "dtype": "uint8", "crs": "EPSG:32633"}
        with rasterio.open(tmp_path / f"a_{band}.tif", "w", transform=place, **profile) as file:
            file.write(np.ones((1, 32, 32), np.uint8))
    _, findings = open_scenes(SESSION, scan_scenes(tmp_path), pool=pool, threads=1, same_bands=True)
    (finding,) = [finding for finding in findings if finding.code == "bands-cover-less"]
    assert finding.severity == "warning"
    assert "50%" in finding.message and "B3" in finding.message
    assert finding.path == str(tmp_path / "a_B3.tif")


def test_a_grid_far_finer_than_any_band_is_refused(make_scene: MakeScene, pool: HandlePool) -> None:
    scene = make_scene((1, 8, 8), name="a")
    session: Any = SimpleNamespace(settings=Settings(data="scenes", grid="0.000001"))
    with refused("no-usable-scene", "--grid 1e-06", "B2.tif"):
        open_scenes(session, ScannedScenes([scene.scene]), pool=pool, threads=1, same_bands=True)
