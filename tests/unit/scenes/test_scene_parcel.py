"""What travels with a raster: its sidecars, and nothing else of its folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unchoke.scenes.mask_sources import PolygonMask
from unchoke.scenes.scene_parcel import beside, scene_files


def test_sidecars_belong_to_their_raster(tmp_path: Path) -> None:
    for name in ("a.tif", "a.tif.aux.xml", "a.tif.ovr", "a.TFW", "a.prj", "a.jpg", "a.zip", "ab.tif", "b.tif.aux.xml"):
        (tmp_path / name).touch()
    assert {Path(file).name for file in beside(str(tmp_path / "a.tif"))} == {"a.tif.aux.xml", "a.tif.ovr", "a.TFW", "a.prj"}


def test_a_scene_is_its_bands_its_label_and_its_polygons(make_scene, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for name in ("p.shp", "p.dbf", "p.shx", "p.txt"):
        (tmp_path / name).touch()
    facts = make_scene((2, 40, 40), label=np.zeros((40, 40), np.uint8))
    found = scene_files(facts, PolygonMask(str(tmp_path / "p.shp"), None, "content"))
    assert found.key == facts.scene_id
    assert {Path(file.name).name for file in found.files} == {"B2.tif", "B3.tif", "label.tif", "p.shp", "p.dbf", "p.shx"}
