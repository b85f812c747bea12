"""Where a network may be cut, what lies between the parts, and what is refused."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from errors import refused
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.cut import check_cut, cut_network, layer_numbers, set_batch_norm_eval
from unchoke.features.encoders import Encoder, EncoderSpec, load_encoder
from unchoke.pixels.resize import Preprocess


def build(name: str, size_px: int, **options: object) -> Encoder:
    prepare_torchvision()
    import timm

    module = timm.create_model(name, num_classes=0, **options).eval().requires_grad_(False)
    preprocess = Preprocess(size_px, 0.9, "center", "bicubic", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    return Encoder(module, EncoderSpec(name, "random", "0", int(module.num_features), preprocess))


@pytest.mark.parametrize(
    ("typed", "meant"), [("end", "end"), ("Blocks", "blocks"), ("NONE", "none"), ("-4", "-4"), (" -04 ", "-4"), ("−12", "-12")]
)  # the last with a typographic minus
def test_a_cut_is_end_blocks_none_or_minus_a_number(typed: str, meant: str) -> None:
    assert check_cut(typed) == meant


@pytest.mark.parametrize(
    ("typed", "try_"), [("4", "--cut -4"), ("0", "--cut -4"), ("-0", "--cut -4"), ("pyramid", "--cut -4"), ("-1.5", "--cut -4")]
)
def test_anything_else_is_refused_with_what_works(typed: str, try_: str) -> None:
    with refused("bad-cut", f"--cut {typed}") as caught:
        check_cut(typed)
    assert caught.value.try_ == try_


@pytest.mark.parametrize(
    ("name", "options", "cut", "shape"),
    [
        ("tf_efficientnet_lite0", {}, "-4", (192, 7, 7)),
        ("efficientnet_b0", {}, "-4", (192, 7, 7)),
        ("vit_small_patch14_dinov2", {"img_size": 224}, "-4", (257, 384)),
        ("resnet18", {}, "-2", (256, 14, 14)),
        ("convnext_atto", {}, "-2", (160, 14, 14)),
    ],
)
def test_what_lies_between_the_parts_at_the_usual_size(
    name: str, options: dict[str, int], cut: str, shape: tuple[int, ...]
) -> None:
    found = cut_network(build(name, 224, **options), cut)
    assert found.shape == shape


def test_too_many_blocks_are_refused_with_their_number() -> None:
    encoder = build("test_resnet", 64)
    assert cut_network(encoder, "-4").num_trained == 4
    with refused("cut-too-deep", "test_resnet") as caught:
        cut_network(encoder, "-5")
    assert "4 blocks" in caught.value.why
    assert "--cut -1" in caught.value.try_


def test_a_family_that_cannot_be_cut_names_those_that_can() -> None:
    encoder = build("test_nfnet", 96)
    with refused("cut-unsupported", "test_nfnet") as caught:
        cut_network(encoder, "-1")
    assert "ConvNeXt" in caught.value.why
    assert cut_network(encoder, "end").num_blocks == 0
    assert cut_network(encoder, "none").shape == (3, 96, 96)


def test_a_cut_that_changes_the_numbers_is_refused() -> None:
    from timm.models.resnet import ResNet

    class Twisted(ResNet):  # type: ignore[misc]
        """A network whose forward begins with something the parts do not know of."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x + 1)

    encoder = build("test_resnet", 64)
    encoder.module.__class__ = Twisted
    with refused("cut-changes-numbers", "-1"):
        cut_network(encoder, "-1")


def test_the_end_keeps_the_whole_network_frozen(tiny: Encoder) -> None:
    cut = cut_network(tiny, "end")
    assert cut.prefix is tiny.module
    assert (cut.shape, cut.num_trained, cut.num_blocks, cut.name) == ((96,), 0, 4, "end")
    features = torch.randn(2, 96)
    assert torch.equal(cut.suffix(features), features)
    assert layer_numbers(cut.suffix) == {}


def test_none_trains_the_whole_network(tiny: Encoder) -> None:
    cut = cut_network(tiny, "none")
    side = tiny.spec.preprocess.size_px
    assert (cut.prefix, cut.shape, cut.num_trained) == (None, (3, side, side), 4)
    images = torch.randn(1, 3, side, side)
    assert torch.equal(cut.suffix(images), tiny.module(images))
    assert all(parameter.requires_grad for parameter in cut.suffix.parameters())
    assert not any(parameter.requires_grad for parameter in tiny.module.parameters())
    assert dict(cut.suffix.named_parameters()).keys() == dict(tiny.module.named_parameters()).keys()


def test_layers_are_timm_s_own(tiny: Encoder) -> None:
    numbers = layer_numbers(tiny.module)
    assert numbers["conv1.0.weight"] == numbers["bn1.weight"] == 0
    assert [numbers[f"layer{stage}.0.conv1.weight"] for stage in (1, 2, 3, 4)] == [1, 2, 3, 4]
    assert layer_numbers(nn.Linear(2, 2)) == {"weight": 0, "bias": 0}


def test_frozen_batch_norm_ignores_the_batch() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Dropout()).train()
    assert set_batch_norm_eval(module) == 1
    assert (module[1].training, module[2].training, module.training) == (False, True, True)
    before = copy.deepcopy(module[1].state_dict())
    module(torch.randn(5, 3, 4, 4) + 3)
    assert all(torch.equal(before[name], value) for name, value in module[1].state_dict().items())


@pytest.mark.parametrize("name", ["test_vit", "test_convnext"])
def test_a_suffix_survives_a_copy_and_a_process_boundary(name: str) -> None:
    cut = cut_network(build(name, 160), "-2")
    activations = torch.randn(2, *cut.shape)
    for again in (copy.deepcopy(cut.suffix), pickle.loads(pickle.dumps(cut.suffix))):
        assert torch.equal(again(activations), cut.suffix(activations))


def test_the_default_encoder_is_cut_with_its_real_weights() -> None:
    encoder = load_encoder()
    cut = cut_network(encoder, "-4")
    assert (cut.num_trained, cut.num_blocks, cut.shape) == (4, 16, (192, 7, 7))
    trained = {name.split(".")[0] + "." + ".".join(name.split(".")[1:3]) for name, _ in cut.suffix.named_parameters()}
    assert trained == {"blocks.5.1", "blocks.5.2", "blocks.5.3", "blocks.6.0", "conv_head.weight", "bn2.weight", "bn2.bias"}
