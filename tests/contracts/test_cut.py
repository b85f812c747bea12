"""One suite for every family that can be cut: the two parts give the whole network's numbers and gradients, bit for bit.

By default timm's small test models of each family pass all of it, and every other network one cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.cut import Cut, cut_network, layer_numbers, set_batch_norm_eval
from unchoke.features.encoders import Encoder, EncoderSpec
from unchoke.pixels.resize import Preprocess

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@dataclass(frozen=True)
class Model:
    """A timm model, the side of the input it is tried with, how many blocks it has, and whether that side is built in."""

    name: str
    size_px: int
    num_blocks: int
    fixed_size: bool = False


SMALL = [
    Model("test_vit", 160, 6, fixed_size=True),
    Model("test_efficientnet", 64, 5),
    Model("test_resnet", 64, 4),
    Model("test_convnext", 64, 9),
]
LARGER = [
    Model("test_vit2", 160, 8, fixed_size=True),
    Model("vit_tiny_patch16_224", 64, 12, fixed_size=True),
    Model("vit_small_patch14_reg4_dinov2", 56, 12, fixed_size=True),
    Model("vit_xsmall_patch16_clip_224", 64, 10, fixed_size=True),
    Model("deit_tiny_distilled_patch16_224", 64, 12, fixed_size=True),
    Model("tf_efficientnet_lite0", 64, 16),
    Model("efficientnet_b0", 64, 16),
    Model("mobilenetv2_050", 64, 17),
    Model("resnet18", 64, 8),
    Model("resnet26d", 64, 8),
    Model("convnext_atto", 64, 12),
    Model("convnextv2_atto", 64, 12),
]
MEAN = STD = (0.5, 0.5, 0.5)


def build(model: Model) -> Encoder:
    """The network with random weights, batch statistics and layer scales: no layer may look like doing nothing."""
    prepare_torchvision()
    import timm

    with torch.random.fork_rng():
        torch.manual_seed(0)
        size = {"img_size": model.size_px} if model.fixed_size else {}
        module = timm.create_model(model.name, num_classes=0, **size).eval().requires_grad_(False)
        for name, value in module.state_dict().items():
            if "running_mean" in name:
                value.normal_(0, 0.1)
            elif value.ndim == 1 and value.is_floating_point() and "bias" not in name:
                value.uniform_(0.5, 1.5)
        image = torch.randn(2, 3, model.size_px, model.size_px)
    preprocess = Preprocess(model.size_px, 0.9, "center", "bicubic", MEAN, STD)
    dim = int(module(image).shape[1])
    return Encoder(module, EncoderSpec(model.name, "random", "0", dim, preprocess))


def images_for(encoder: Encoder) -> torch.Tensor:
    side = encoder.spec.preprocess.size_px
    return torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(1))


CAMPAIGN = [pytest.param(model, marks=pytest.mark.campaign) for model in LARGER]


@pytest.fixture(scope="module", params=[*SMALL, *CAMPAIGN], ids=lambda model: str(model.name))
def model(request: pytest.FixtureRequest) -> Model:
    found: Model = request.param
    return found


@pytest.fixture(scope="module")
def encoder(model: Model) -> Encoder:
    return build(model)


def ks(model: Model) -> list[int]:
    """One block, a few, and all of them; a cut in the middle of a stage and one at its edge."""
    return sorted({1, 2, 4, model.num_blocks - 1, model.num_blocks})


def gradients(module: nn.Module, features: torch.Tensor) -> dict[str, torch.Tensor]:
    """Gradients of a loss that weighs every feature differently."""
    module.zero_grad()
    weights = torch.linspace(-1, 1, features.numel()).view_as(features)
    (features * weights).sum().backward()  # type: ignore[no-untyped-call]
    return {name: value.grad.clone() for name, value in module.named_parameters() if value.grad is not None}


def frozen_alike(encoder: Encoder, cut: Cut) -> nn.Module:
    """The uncut network with all frozen but what the suffix trains."""
    trained = {name for name, _ in cut.suffix.named_parameters()}
    for name, parameter in encoder.module.named_parameters():
        parameter.requires_grad_(name in trained)
    return encoder.module


def same_features(encoder: Encoder, cuts: list[int], num_blocks: int) -> None:
    images = images_for(encoder)
    with torch.no_grad():
        whole = encoder.module(images)
        for k in cuts:
            cut = cut_network(encoder, f"-{k}", verify=False)
            assert cut.prefix is not None
            activations = cut.prefix(images)
            assert activations.shape == (3, *cut.shape)
            assert torch.equal(cut.suffix(activations), whole), f"-{k}"
            assert (cut.num_trained, cut.num_blocks, cut.name) == (k, num_blocks, f"-{k}")
    assert whole.std() > 0


def test_features_bit_for_bit(model: Model, encoder: Encoder) -> None:
    same_features(encoder, ks(model), model.num_blocks)


@pytest.mark.parametrize("larger", LARGER, ids=lambda model: str(model.name))
def test_one_cut_of_every_network(larger: Model) -> None:
    encoder = build(larger)
    same_features(encoder, [2], larger.num_blocks)
    same_gradients(encoder, cut_network(encoder, "-2", verify=False))


def test_pooled_blocks_begin_with_the_features(encoder: Encoder) -> None:
    images = images_for(encoder)
    cut = cut_network(encoder, "blocks")
    assert cut.prefix is not None
    with torch.no_grad():
        rows = cut.prefix(images)
        assert rows.shape == (3, *cut.shape)
        assert torch.equal(rows[:, : encoder.spec.dim], encoder.module(images))
    assert cut.shape[0] > encoder.spec.dim
    assert (cut.num_trained, list(cut.suffix.parameters())) == (0, [])


def same_gradients(encoder: Encoder, cut: Cut, *, checkpointing: bool = False) -> None:
    """The suffix is trained as the whole network would be with all else frozen."""
    images = images_for(encoder)
    assert cut.prefix is not None
    if checkpointing:
        cut.suffix.set_grad_checkpointing(True)  # type: ignore[operator]
    whole = frozen_alike(encoder, cut)
    wanted = gradients(whole, whole(images))
    found = gradients(cut.suffix, cut.suffix(cut.prefix(images)))
    encoder.module.requires_grad_(False)
    assert found.keys() == wanted.keys() == {name for name, _ in cut.suffix.named_parameters()}
    assert all(torch.equal(found[name], wanted[name]) for name in wanted), cut.name
    assert any(bool(gradient.any()) for gradient in found.values())


def test_gradients_of_freezing_without_a_cut(model: Model, encoder: Encoder) -> None:
    for k in ks(model):
        same_gradients(encoder, cut_network(encoder, f"-{k}", verify=False))
    same_gradients(encoder, cut_network(encoder, f"-{model.num_blocks}", verify=False), checkpointing=True)


def test_frozen_batch_norm_in_training_mode(model: Model, encoder: Encoder) -> None:
    images = images_for(encoder)
    cut = cut_network(encoder, "-2", verify=False)
    assert cut.prefix is not None
    statistics = {name: value.clone() for name, value in cut.suffix.named_buffers()}
    cut.suffix.train()
    num_norms = set_batch_norm_eval(cut.suffix)
    activations = cut.prefix(images)
    assert torch.equal(cut.suffix(activations), encoder.module(images))
    assert all(torch.equal(statistics[name], value) for name, value in cut.suffix.named_buffers())
    assert num_norms == sum("running_mean" in name for name in statistics)


def test_every_weight_is_in_one_part(model: Model, encoder: Encoder) -> None:
    whole = dict(encoder.module.named_parameters())
    for k in ks(model):
        cut = cut_network(encoder, f"-{k}", verify=False)
        assert cut.prefix is not None
        suffix = dict(cut.suffix.named_parameters())
        prefix = {name.removeprefix("network."): value for name, value in cut.prefix.named_parameters()}
        assert suffix.keys().isdisjoint(prefix)
        assert suffix.keys() | prefix.keys() == whole.keys()
        assert all(value is whole[name] for name, value in prefix.items())
        assert all(torch.equal(value, whole[name]) and value is not whole[name] for name, value in suffix.items())


def test_prefix_is_frozen_suffix_is_not(model: Model, encoder: Encoder) -> None:
    cut = cut_network(encoder, "-1", verify=False)
    assert cut.prefix is not None
    assert not any(part.training for part in cut.prefix.modules())
    assert not any(parameter.requires_grad for parameter in cut.prefix.parameters())
    assert all(parameter.requires_grad for parameter in cut.suffix.parameters())
    assert not any(parameter.requires_grad for parameter in encoder.module.parameters())


def test_one_more_block_adds_one_timm_layer(model: Model, encoder: Encoder) -> None:
    numbers = layer_numbers(encoder.module)
    before: set[str] = set()
    for k in range(1, model.num_blocks + 1):
        now = {name for name, _ in cut_network(encoder, f"-{k}", verify=False).suffix.named_parameters()}
        assert before < now
        if k > 1:
            assert len({numbers[name] for name in now - before}) == 1
        before = now


def test_suffix_layers_keep_their_order(model: Model, encoder: Encoder) -> None:
    cut = cut_network(encoder, "-3", verify=False)
    whole, part = layer_numbers(encoder.module), layer_numbers(cut.suffix)
    assert part.keys() == dict(cut.suffix.named_parameters()).keys()
    assert len({whole[name] - part[name] for name in part}) == 1
    assert min(part.values()) == 0


def test_training_the_suffix_leaves_the_encoder(model: Model, encoder: Encoder) -> None:
    before = {name: value.clone() for name, value in encoder.module.state_dict().items()}
    cut = cut_network(encoder, "-2")
    with torch.no_grad():
        for parameter in cut.suffix.parameters():
            parameter.add_(1)
    assert all(torch.equal(before[name], value) for name, value in encoder.module.state_dict().items())
