"""The fingerprint changes with everything the numbers depend on, and with nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unchoke.features.encoders import Encoder
from unchoke.features.recipe import PictureRecipe
from unchoke.pixels.tile_grid import TilePlan


@pytest.fixture
def recipe(tiny: Encoder) -> PictureRecipe:
    return PictureRecipe(tiny.spec, "openvino", "bf16", num_augmented=2)


def test_every_ingredient_changes_the_fingerprint(recipe: PictureRecipe) -> None:
    spec, preprocess = recipe.encoder, recipe.encoder.preprocess
    others = [
        replace(recipe, encoder=replace(spec, name="other")),
        replace(recipe, encoder=replace(spec, weights_sha256="0" * 64)),
        *(
            replace(recipe, encoder=replace(spec, preprocess=replace(preprocess, **change)))
            for change in (
                {"size_px": 192},
                {"crop_share": 0.9},
                {"crop_mode": "border"},
                {"interpolation": "bicubic"},
                {"mean": (0.5, 0.5, 0.4)},
                {"std": (0.5, 0.5, 0.4)},
            )
        ),
        replace(recipe, engine="torch"),
        replace(recipe, precision="f32"),
        replace(recipe, num_augmented=3),
        replace(recipe, num_augmented=0),
        replace(recipe, cut="-4"),
        replace(recipe, cut="-3"),
        replace(recipe, tiles=TilePlan(1, 2, 2)),
        replace(recipe, tiles=TilePlan(2, 2, 1)),
        replace(recipe, encoder=replace(spec, input_px=96)),
    ]
    assert len({recipe.fingerprint, *(other.fingerprint for other in others)}) == 1 + len(others)


def test_where_the_weights_came_from_does_not(recipe: PictureRecipe) -> None:
    moved = replace(recipe, encoder=replace(recipe.encoder, weights_from="hub"))
    assert (moved.fingerprint, moved.folder) == (recipe.fingerprint, recipe.folder)


def test_folder_carries_name_and_fingerprint(recipe: PictureRecipe) -> None:
    assert recipe.folder == f"encoder_test_resnet-{recipe.fingerprint[:8]}"
    hostile = replace(recipe, encoder=replace(recipe.encoder, name="../{first}/x"))
    assert hostile.output_pattern.format(first=0, last=63).endswith("/img_000000-000063.npz")
    assert hostile.output_pattern.count("/") == 1


def test_a_plain_recipe_says_what_it_always_said(recipe: PictureRecipe) -> None:
    """Caches made before there were cuts and tiles are still found."""
    described = recipe.to_dict()
    assert set(described) == {"encoder", "decoding", "views", "cut", "engine", "precision"}
    assert set(described["encoder"]) == {"name", "weights_sha256", "dim", "preprocess"}
    assert replace(recipe, shape=(recipe.encoder.dim,)).fingerprint == recipe.fingerprint


def test_a_row_is_a_vector_or_has_an_axis_of_tiles(recipe: PictureRecipe) -> None:
    tiles = TilePlan(2, 1, 2)
    cut = replace(recipe, cut="-1", shape=(48, 10, 10))
    assert (recipe.is_plain, recipe.row_shape) == (True, (96,))
    assert (cut.is_plain, cut.row_shape) == (False, (1, 48, 10, 10))
    assert replace(cut, tiles=tiles).row_shape == (4, 48, 10, 10)
    assert replace(recipe, tiles=tiles).row_shape == (4, 96)


def test_size_counts_every_tile_of_every_view(recipe: PictureRecipe) -> None:
    cut = replace(recipe, cut="-1", shape=(48, 10, 10), tiles=TilePlan(2, 1, 2), num_augmented=2)
    assert cut.num_inputs == 12
    assert cut.item_bytes == 12 * 48 * 10 * 10 * 2
    assert replace(recipe, num_augmented=0).item_bytes == 96 * 2


def test_cut_without_a_shape_is_our_mistake(recipe: PictureRecipe) -> None:
    with pytest.raises(ValueError, match="--cut -4 needs the shape"):
        _ = replace(recipe, cut="-4").row_shape


def test_the_network_is_named_with_its_cut(recipe: PictureRecipe) -> None:
    assert recipe.network == "test_resnet"
    assert replace(recipe, cut="-4").network == "test_resnet cut at -4"
