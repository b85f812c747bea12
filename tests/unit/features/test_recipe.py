"""The fingerprint changes with everything the numbers depend on, and with nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unchoke.features.encoders import Encoder
from unchoke.features.recipe import Recipe


@pytest.fixture
def recipe(tiny: Encoder) -> Recipe:
    return Recipe(tiny.spec, "openvino", "bf16", num_augmented=2)


def test_every_ingredient_changes_the_fingerprint(recipe: Recipe) -> None:
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
    ]
    assert len({recipe.fingerprint, *(other.fingerprint for other in others)}) == 1 + len(others)


def test_where_the_weights_came_from_does_not(recipe: Recipe) -> None:
    moved = replace(recipe, encoder=replace(recipe.encoder, weights_from="hub"))
    assert (moved.fingerprint, moved.folder) == (recipe.fingerprint, recipe.folder)


def test_the_folder_carries_name_and_fingerprint_and_stays_inside(recipe: Recipe) -> None:
    assert recipe.folder == f"encoder_test_resnet-{recipe.fingerprint[:8]}"
    hostile = replace(recipe, encoder=replace(recipe.encoder, name="../{first}/x"))
    assert hostile.output_pattern.format(first=0, last=63).endswith("/img_000000-000063.npz")
    assert hostile.output_pattern.count("/") == 1
