from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from unchoke.core.errors import UsageError
from unchoke.features.encoders import digest_state
from unchoke.features.pyramid import PyramidSpec
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
def test_a_patchs_mask_does_not_depend_on_its_neighbours_even_in_training(
    pyramid: Pyramid, make_patches: Callable[[int], Any], decoder: Any
) -> None:
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
    other = replace(pyramid[1], strides=(8, 16, 32), channels=(40, 112, 320))
    assert Segmenter(SegmenterConfig(other, 2))(torch.zeros(1, other.row_length)).shape == (1, 2, 64, 64)
    with pytest.raises(UsageError, match="strides 8,16,32"):
        SegmenterConfig(other, 2, decoder="fpn")
    with pytest.raises(UsageError, match="unknown decoder"):
        SegmenterConfig(pyramid[1], 2, decoder="pspnet")  # type: ignore[arg-type]
