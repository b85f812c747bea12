"""Where classes come from: a label raster, a formula, polygons, or nowhere."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unchoke.core.boxes import Box
from unchoke.core.errors import UsageError
from unchoke.core.settings import Settings
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import ExpressionMask, LabelMask, MaskSource, PolygonMask, choose_mask
from unchoke.scenes.raster import read_box
from unchoke.scenes.scene_facts import IGNORE, SceneFacts

MakeScene = Callable[..., SceneFacts]


def mask_of(source: MaskSource, facts: SceneFacts, pool: HandlePool) -> np.ndarray:
    whole = Box(0, 0, facts.grid.height, facts.grid.width)
    bands, valid = read_box(facts, whole, pool=pool)
    return source.mask(facts, whole, bands, valid, pool)


def test_a_label_raster_gives_its_classes_and_none_where_pixels_are_invalid(make_scene: MakeScene, pool: HandlePool) -> None:
    pixels = np.full((1, 3, 3), 5, np.uint16)
    pixels[0, 0, 0] = 9
    label = np.array([[1, 2, 3], [0, 7, 0], [1, 1, 1]], np.uint8)
    facts = make_scene(pixels, label=label, nodata=9)
    assert mask_of(LabelMask(), facts, pool).tolist() == [[IGNORE, 2, 3], [0, 7, 0], [1, 1, 1]]
    assert mask_of(LabelMask(ignore=7), facts, pool)[1, 1] == IGNORE


def test_a_scene_without_its_label_raster_is_unlabelled(make_scene: MakeScene, pool: HandlePool) -> None:
    assert (mask_of(LabelMask(), make_scene((1, 3, 3)), pool) == IGNORE).all()


def test_a_formula_gives_one_and_zero(make_scene: MakeScene, pool: HandlePool) -> None:
    pixels = np.array([[[1, 5, 0]], [[2, 3, 4]]], np.uint16)
    facts = make_scene(pixels, nodata=0)
    assert mask_of(ExpressionMask("B2 > B3", facts.band_names), facts, pool).tolist() == [[0, 1, IGNORE]]


def test_nothing_asked_for_is_no_mask_and_labels_found_are_one() -> None:
    assert choose_mask(Settings(), band_names=["B2"], labelled=False) is None
    assert choose_mask(Settings(ignore=9), band_names=["B2"], labelled=True) == LabelMask(9)


def test_a_formula_is_checked_when_it_is_chosen() -> None:
    assert choose_mask(Settings(mask="b2 > 4"), band_names=["B2"], labelled=False) == ExpressionMask("b2 > 4", ("B2",))
    with pytest.raises(UsageError, match="no formula"):
        choose_mask(Settings(mask="B9 > 4"), band_names=["B2"], labelled=False)


def test_two_sources_at_once_are_refused() -> None:
    with pytest.raises(UsageError, match=r"2 ways: --label cloud\.tif, --mask B2 > 1"):
        choose_mask(Settings(label="cloud.tif", mask="B2 > 1"), band_names=["B2"], labelled=True)


def test_every_source_crosses_to_another_process_and_describes_itself(tmp_path: Path) -> None:
    file = tmp_path / "areas.geojson"
    file.write_text(json.dumps({"type": "FeatureCollection", "features": []}))
    chosen = choose_mask(Settings(polygons=str(file)), band_names=["B2"], labelled=False)
    assert isinstance(chosen, PolygonMask)
    for source in (LabelMask(3), ExpressionMask("B2 > 1", ("B2",)), chosen):
        assert pickle.loads(pickle.dumps(source)) == source
        assert json.loads(json.dumps(source.describe())) == source.describe()
