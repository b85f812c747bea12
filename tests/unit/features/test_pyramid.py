"""Pyramids of timm networks: which strides they have, how bands come in, and what weights they hold."""

from __future__ import annotations

from pathlib import Path

import torch

from errors import refused
from unchoke.features.encoders import load_encoder
from unchoke.features.pyramid import PyramidSpec, bare_pyramid, load_pyramid

TINY = "test_resnet"
STRIDES = (4, 8, 16)


def load(weights: Path, **changed: object) -> tuple[torch.nn.Module, PyramidSpec]:
    options = {"weights": weights, "num_bands": 3, "patch_px": 64, "strides": STRIDES, **changed}
    return load_pyramid(TINY, **options)  # type: ignore[arg-type]


def test_maps_come_finest_first_in_the_shapes_the_spec_says(tiny_weights: Path) -> None:
    module, spec = load(tiny_weights, num_bands=5)
    maps = module(torch.zeros(2, 5, 64, 64))
    assert [tuple(level.shape[1:]) for level in maps] == list(spec.shapes)
    assert [shape[1] for shape in spec.shapes] == [16, 8, 4]
    assert spec.row_length == sum(level[0].numel() for level in maps)
    assert not module.training and not any(weight.requires_grad for weight in module.parameters())


def test_weights_and_names_are_the_encoders(tiny_weights: Path) -> None:
    module, spec = load(tiny_weights)
    encoder = load_encoder(TINY, weights=tiny_weights)
    whole = encoder.module.state_dict()
    kept = module.state_dict()
    assert spec.weights_sha256 == encoder.spec.weights_sha256
    assert set(kept) <= set(whole)
    assert all(torch.equal(value, whole[name]) for name, value in kept.items())


def test_first_convolution_is_fitted_as_timm_does(tiny_weights: Path) -> None:
    three = load(tiny_weights)[0].state_dict()
    from timm.models._manipulate import adapt_input_conv

    six = load(tiny_weights, num_bands=6)[0].state_dict()
    changed = [name for name in six if six[name].shape != three[name].shape]
    assert len(changed) == 1
    assert torch.equal(six[changed[0]], adapt_input_conv(6, three[changed[0]]))


def test_only_what_the_coarsest_level_needs_is_built(tiny_weights: Path) -> None:
    fine, coarse = (load(tiny_weights, strides=strides)[0] for strides in ((4, 8), STRIDES))
    assert len(fine.state_dict()) < len(coarse.state_dict())


def test_bare_pyramid_can_be_trained(tiny_weights: Path) -> None:
    module, spec = load(tiny_weights, num_bands=4)
    bare = bare_pyramid(PyramidSpec.from_dict(spec.to_dict()))
    bare.load_state_dict(module.state_dict())
    assert all(weight.requires_grad for weight in bare.parameters())


def test_unknown_stride_is_refused_with_those_there_are(tiny_weights: Path) -> None:
    with refused("bad-strides", "64") as caught:
        load(tiny_weights, strides=(4, 64))
    assert "32" in caught.value.why


def test_a_transformer_with_one_stride_says_so() -> None:
    from unchoke.features import pyramid

    with refused("bad-strides", "4", "8", "32") as caught:
        pyramid._build("vit_tiny_patch16_224", num_bands=3, patch_px=64, strides=(4, 8, 16, 32))
    assert "16" in caught.value.why


def test_odd_patch_size_is_refused_with_one_that_fits(tiny_weights: Path) -> None:
    with refused("bad-patch-size") as caught:
        load(tiny_weights, patch_px=100)
    assert caught.value.try_ == "--patch-size 112"


def test_an_unknown_network_is_refused() -> None:
    with refused("unknown-encoder", "resnet_eighteen"):
        load_pyramid("resnet_eighteen", num_bands=3, patch_px=64, strides=STRIDES)


def test_default_encoder_has_four_levels() -> None:
    module, spec = load_pyramid("tf_efficientnet_lite0", num_bands=2, patch_px=64, strides=(4, 8, 16, 32))
    assert spec.shapes == ((24, 16, 16), (40, 8, 8), (112, 4, 4), (320, 2, 2))
    assert next(iter(module.state_dict())) == "conv_stem.weight"
