from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from errors import refused
from unchoke.features.encoders import digest_state
from unchoke.features.pyramid import PyramidSpec
from unchoke.masks.mask_job import DetailRows, shown_pixels
from unchoke.masks.mask_trainer import judge_spreads
from unchoke.masks.patches import turn
from unchoke.masks.segmenter import PYRAMID, WHOLE, Segmenter, SegmenterConfig

Pyramid = tuple[torch.nn.Module, PyramidSpec]
decoders = pytest.mark.parametrize("decoder", ["unet", "fpn"])


@decoders
def test_cached_rows_and_pixels_give_the_same_mask(pyramid: Pyramid, make_patches: Callable[[int], Any], decoder: Any) -> None:
    module, spec = pyramid
    patches, positions = make_patches(3), np.arange(3)
    frozen = Segmenter(SegmenterConfig(spec, 3, PYRAMID, decoder), seed=5).eval()
    whole = Segmenter(SegmenterConfig(spec, 3, WHOLE, decoder), backbone=module, seed=5).eval()
    pixels = torch.from_numpy(patches.pixels(positions)).float()
    rows = torch.cat([level.flatten(1) for level in module(pixels)], dim=1)
    with torch.inference_mode():
        drawn = whole(pixels)
        assert torch.equal(frozen(rows), drawn)
        assert torch.equal(frozen(rows[:, None]), drawn)  # as the loop shows it: one tile a patch
    assert drawn.shape == (3, 3, spec.patch_px, spec.patch_px)
    assert drawn.dtype == torch.float32


@decoders
def test_mask_independent_of_neighbours_in_training(pyramid: Pyramid, make_patches: Callable[[int], Any], decoder: Any) -> None:
    network = Segmenter(SegmenterConfig(pyramid[1], 2, PYRAMID, decoder)).train()
    rows = torch.from_numpy(make_patches(4).rows(np.arange(4))).float()
    together = network(rows)
    alone = torch.cat([network(row[None]) for row in rows])
    assert torch.allclose(together, alone, atol=1e-5)
    assert not any(isinstance(part, torch.nn.modules.batchnorm._BatchNorm) for part in network.modules())


def test_a_decoder_begins_from_its_seed_alone(pyramid: Pyramid) -> None:
    config = SegmenterConfig(pyramid[1], 2)
    torch.manual_seed(1)
    first = digest_state(Segmenter(config, seed=3))
    torch.manual_seed(2)
    before = torch.random.get_rng_state()
    assert digest_state(Segmenter(config, seed=3)) == first
    assert torch.equal(torch.random.get_rng_state(), before)
    assert digest_state(Segmenter(config, seed=4)) != first


def test_a_config_survives_a_file(pyramid: Pyramid) -> None:
    config = SegmenterConfig(pyramid[1], 3, WHOLE, "fpn")
    assert SegmenterConfig.from_dict(config.to_dict()) == config


def test_what_a_decoder_cannot_take_is_refused(pyramid: Pyramid) -> None:
    other = replace(pyramid[1], strides=(8, 16, 32), channels=pyramid[1].channels[1:])
    assert Segmenter(SegmenterConfig(other, 2))(torch.zeros(1, other.row_length)).shape == (1, 2, 64, 64)
    with refused("bad-strides", "8,16,32"):
        SegmenterConfig(other, 2, decoder="fpn")
    with refused("unknown-choice", "'pspnet'"):
        SegmenterConfig(pyramid[1], 2, decoder="pspnet")  # type: ignore[arg-type]


@decoders
@pytest.mark.parametrize("scores", [False, True])
def test_rows_and_pixels_with_detail_same_mask(
    pyramid: Pyramid, make_patches: Callable[[int], Any], decoder: Any, scores: bool
) -> None:
    module, spec = pyramid
    patches, positions = make_patches(3), np.arange(3)
    sees: dict[str, Any] = {"bands": True, "scores": scores}
    frozen = Segmenter(SegmenterConfig(spec, 2, PYRAMID, decoder, **sees), seed=5).eval()
    whole = Segmenter(SegmenterConfig(spec, 2, WHOLE, decoder, **sees), backbone=module, seed=5).eval()
    for network in (frozen, whole):
        torch.nn.init.normal_(network.head.weight, generator=torch.Generator().manual_seed(1))
    pixels = torch.from_numpy(shown_pixels(whole.config, patches, positions)).float()
    rows = torch.from_numpy(DetailRows(frozen.config, patches, patches).rows(positions)).float()
    rows[:, : spec.row_length] = torch.cat([level.flatten(1) for level in module(pixels[:, :4])], dim=1)  # as float32
    with torch.inference_mode():
        drawn = whole(pixels)
        assert torch.equal(frozen(rows[:, None]), drawn)
        pixels[:, :4] += 0.1 * torch.randn(pixels[:, :4].shape, generator=torch.Generator().manual_seed(0))
        detailed = torch.cat([rows[:, : spec.row_length], pixels.flatten(1)], dim=1)
        assert not torch.equal(frozen(detailed), drawn), "the same maps, other bands"
    assert drawn.shape == (3, 2, spec.patch_px, spec.patch_px)


def test_before_it_has_learnt_anything_the_scores_decide(pyramid: Pyramid, make_patches: Callable[[int], Any]) -> None:
    network = Segmenter(SegmenterConfig(pyramid[1], 2, PYRAMID, "fpn", bands=True, scores=True)).eval()
    patches, positions = make_patches(2), np.arange(2)
    with torch.inference_mode():
        drawn = network(torch.from_numpy(DetailRows(network.config, patches, patches).rows(positions)).float())
    scores = patches.scores(positions).astype(np.float32)
    assert drawn[0, 1, 30, 31].item() == pytest.approx(scores[0, 1, 28:33, 29:34].mean(), abs=1e-4)
    assert (drawn.argmax(dim=1).numpy()[:, 2:] == patches.masks(positions)[:, 2:]).mean() > 0.95


def test_detail_is_turned_as_the_view_of_its_maps_is(pyramid: Pyramid, make_patches: Callable[[int], Any]) -> None:
    patches, config = make_patches(3), SegmenterConfig(pyramid[1], 2, PYRAMID, "fpn", bands=True, scores=True)
    rows = DetailRows(config, patches, patches).rows(np.array([2, 0]), np.array([5, 0]))
    detail = rows[:, pyramid[1].row_length :].reshape(2, 6, 64, 64)
    assert np.array_equal(detail[0, :4], turn(patches.pixels(np.array([2]))[0], 5))
    assert np.array_equal(detail[0, 4:], turn(patches.scores(np.array([2]))[0], 5))
    assert np.array_equal(detail[1, :4], patches.pixels(np.array([0]))[0])


def test_a_config_of_before_there_was_detail_has_none(pyramid: Pyramid) -> None:
    values = SegmenterConfig(pyramid[1], 3, WHOLE, "fpn").to_dict()
    old = SegmenterConfig.from_dict({name: value for name, value in values.items() if name not in ("bands", "scores")})
    assert (old.num_detail, old.row_length) == (0, pyramid[1].row_length)
    assert not any(name.startswith(("detail", "spread")) for name in Segmenter(replace(old, cut=PYRAMID)).state_dict())


@pytest.mark.parametrize("begin_px", [1, 3])
def test_scores_are_averaged_over_as_many_pixels_as_asked(
    pyramid: Pyramid, make_patches: Callable[[int], Any], begin_px: int
) -> None:
    network = Segmenter(SegmenterConfig(pyramid[1], 2, PYRAMID, "fpn", bands=True, scores=True, spread_px=begin_px)).eval()
    patches, positions = make_patches(1), np.arange(1)
    with torch.inference_mode():
        drawn = network(torch.from_numpy(DetailRows(network.config, patches, patches).rows(positions)).float())
    around = begin_px // 2
    near = patches.scores(positions).astype(np.float32)[0, 1, 30 - around : 31 + around, 31 - around : 32 + around]
    assert drawn[0, 1, 30, 31].item() == pytest.approx(near.mean(), abs=1e-4)


def test_labels_as_fine_as_pixels_are_not_averaged() -> None:
    class Fine:
        """Every second pixel is of class 1, and scores say so; or whole halves are, and scores are noisy."""

        def __init__(self, *, fine: bool) -> None:
            rows, columns = np.mgrid[:64, :64]
            self._mask = ((rows + columns) % 2 if fine else columns >= 32).astype(np.uint8)
            says = np.where(self._mask, 1.0, -1.0) + (0 if fine else np.random.default_rng(0).normal(0, 2, (64, 64)))
            self._scores = np.stack([-says, says]).astype(np.float16)

        def scores(self, positions: Any) -> Any:
            return self._scores[None]

        def masks(self, positions: Any) -> Any:
            return self._mask[None]

    for fine, wanted in ((True, 1), (False, 5)):
        found = judge_spreads(Fine(fine=fine), np.arange(1), 2)  # type: ignore[arg-type]
        assert max(found, key=lambda px: found[px]) == wanted
