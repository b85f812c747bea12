from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.data.targets import plan_targets
from unchoke.features.cut import cut_network
from unchoke.features.encoders import Encoder, EncoderSpec
from unchoke.pixels.resize import Preprocess
from unchoke.pixels.tile_grid import TilePlan
from unchoke.training.data import Problem
from unchoke.training.network.objective import Objective
from unchoke.training.network.tiled_network import AttentionFusion, FilmFusion, NetworkConfig, TiledNetwork
from unchoke.training.scoring.selection import column_scale

CPU = torch.device("cpu")
NAMES = ("clover", "dead", "green", "gdm", "total")
SUMS = {"gdm": ("green", "clover"), "total": ("gdm", "dead")}
WEIGHTS = dict(zip(NAMES, (0.1, 0.1, 0.1, 0.2, 0.5), strict=True))
FUSIONS = ["mean", "film", "attention"]
SIZE_PX = 32


def encoder(name: str) -> Encoder:
    """A small timm network with random weights, in evaluation mode."""
    prepare_torchvision()
    import timm

    with torch.random.fork_rng():
        torch.manual_seed(0)
        size = {"img_size": SIZE_PX} if "vit" in name else {}
        module = timm.create_model(name, num_classes=0, **size).eval().requires_grad_(False)
    dim = int(module(torch.zeros(1, 3, SIZE_PX, SIZE_PX)).shape[1])
    preprocess = Preprocess(SIZE_PX, 0.9, "center", "bicubic", (0.5,) * 3, (0.5,) * 3)
    return Encoder(module, EncoderSpec(name, "random", "0", dim, preprocess))


def pasture(count: int = 40) -> Problem:
    clover, dead, green = np.random.default_rng(0).gamma(2.0, [[4.0], [6.0], [12.0]], size=(3, count))
    values = np.stack([clover, dead, green, green + clover, green + clover + dead], axis=1)
    splits = {"train": np.arange(count)}
    return Problem("regression", NAMES, values.astype(np.float32), splits, [str(i) for i in range(count)])


def biomass(*, positive: bool = True) -> Objective:
    return Objective.of(pasture(), plan_targets(NAMES, sums=SUMS, weights=WEIGHTS, positive=positive), device=CPU)


def seeded(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def stir(network: TiledNetwork) -> TiledNetwork:
    """Give fusion and head weights that matter, as after training."""
    with torch.no_grad():
        for number, parameter in enumerate([*network.fusion.parameters(), *network.head.parameters()]):
            parameter += 0.3 * seeded(*parameter.shape, seed=number).to(parameter.dtype)
    return network


def flat(tiles: TilePlan, fusion: str, *, objective: Objective | None = None, dim: int = 6, num_inputs: int = 0) -> TiledNetwork:
    """A network whose suffix hands features through."""
    scale = column_scale(np.random.default_rng(1).normal(size=(40, num_inputs))) if num_inputs else None
    network = TiledNetwork.of(
        nn.Identity(), objective or biomass(), tiles=tiles, dim=dim, fusion=fusion, input_scale=scale, seed=0
    )
    return stir(network)


def tile_by_tile(network: TiledNetwork, x: torch.Tensor, inputs: torch.Tensor | None) -> torch.Tensor:
    """The same network, one tile of one picture at a time, written out by hand."""
    tiles, rows = network.config.tiles, []
    per_stream = tiles.rows * tiles.cols
    for number in range(len(x)):
        parts = []
        for stream, fuse in enumerate(network.fusion):
            places = range(stream * per_stream, (stream + 1) * per_stream)
            feats = [network.suffix(x[number, place].unsqueeze(0))[0] for place in places]
            parts.append(fuse_by_hand(fuse, feats))
        if inputs is not None:
            parts.append((inputs[number] - network.input_mean) / network.input_std)
        raw = torch.cat(parts) @ network.head.weight.T + network.head.bias
        clover, dead, green = F.softplus(raw) * network.target_std
        rows.append(torch.stack([clover, dead, green, green + clover, green + clover + dead]))
    return torch.stack(rows)


def fuse_by_hand(fuse: nn.Module, feats: list[torch.Tensor]) -> torch.Tensor:
    if isinstance(fuse, FilmFusion):
        context = sum(feats) / len(feats)
        both = fuse.modulation.weight @ context + fuse.modulation.bias
        gamma, beta = both[: len(context)], both[len(context) :]
        return sum(tile * (1 + gamma) + beta for tile in feats) / len(feats)
    if isinstance(fuse, AttentionFusion):
        scores = [(fuse.query.weight @ (fuse.hidden.weight @ tile + fuse.hidden.bias).tanh())[0].exp() for tile in feats]
        return sum(score / sum(scores) * tile for score, tile in zip(scores, feats, strict=True))
    return sum(feats) / len(feats)


def gradients(network: TiledNetwork, losses: torch.Tensor) -> dict[str, torch.Tensor]:
    network.zero_grad()
    losses.mean().backward()
    return {name: parameter.grad.clone() for name, parameter in network.named_parameters() if parameter.requires_grad}


@pytest.fixture(params=["test_vit", "test_efficientnet"], scope="module")
def backbone(request: pytest.FixtureRequest) -> Iterator[Encoder]:
    yield encoder(request.param)


@pytest.mark.parametrize(
    ("where", "fusion", "dtype"),
    [("-2", "mean", torch.float64), ("none", "film", torch.float64), ("-2", "attention", torch.float32)],
)
def test_tiles_in_one_pass_equal_loop_over_tiles(backbone, where, fusion, dtype):
    cut = cut_network(backbone, where)
    tiles, objective = TilePlan(2, 2, 1), biomass()
    scale = column_scale(np.random.default_rng(1).normal(size=(40, 2)) * [1, 50])
    network = TiledNetwork.of(
        cut.suffix, objective, tiles=tiles, dim=backbone.spec.dim, fusion=fusion, input_scale=scale, seed=0
    ).eval()
    stir(network).to(dtype)
    x, inputs = seeded(3, tiles.num_tiles, *cut.shape, dtype=dtype), seeded(3, 2, dtype=dtype)
    rows = objective.target_rows(np.arange(3))
    once, loop = network(x, inputs), tile_by_tile(network, x, inputs)
    bound = 1e-10 if dtype == torch.float64 else 2e-5
    assert once.dtype == dtype
    assert (once - loop).norm() <= bound * loop.norm()
    found, expected = gradients(network, objective.losses(once, rows)), gradients(network, objective.losses(loop, rows))
    assert {name for name in found if name.startswith("suffix.")}
    largest = max(float(gradient.norm()) for gradient in expected.values())
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() <= bound * max(float(gradient.norm()), 1e-3 * largest), name


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize(
    "tiles", [TilePlan(), TilePlan(3, 1, 2), TilePlan(1, 3, 3), TilePlan(2, 1, 1)], ids=lambda plan: plan.text
)
def test_one_answer_per_picture_for_any_tiles(fusion, tiles):
    network = flat(tiles, fusion)
    x = seeded(4, tiles.num_tiles, 6)
    assert network(x).shape == (4, 5)
    torch.testing.assert_close(network(x), tile_by_tile(network, x, None))


@pytest.mark.parametrize("fusion", FUSIONS)
def test_streams_distinguished_tiles_exchangeable(fusion):
    network, x = flat(TilePlan(2, 1, 3), fusion), seeded(1, 6, 6)
    same_streams, other_streams = x[:, [1, 2, 0, 3, 5, 4]], x[:, [3, 4, 5, 0, 1, 2]]
    torch.testing.assert_close(network(same_streams), network(x))
    assert not torch.allclose(network(other_streams), network(x), rtol=1e-2)


@pytest.mark.parametrize("fusion", ["film", "attention"])
def test_every_fusion_begins_as_the_mean(fusion):
    tiles, x = TilePlan(2, 2, 2), seeded(3, 8, 6)
    networks = [TiledNetwork.of(nn.Identity(), biomass(), tiles=tiles, dim=6, fusion=each, seed=0) for each in (fusion, "mean")]
    vectors = [network._fused(x.reshape(3, 2, 4, 6), None) for network in networks]
    torch.testing.assert_close(*vectors)


def test_film_and_attention_learn_from_where_they_begin():
    for fusion, name in (("film", "fusion.0.modulation.weight"), ("attention", "fusion.0.query.weight")):
        objective = biomass()
        network = TiledNetwork.of(nn.Identity(), objective, tiles=TilePlan(1, 2, 2), dim=6, fusion=fusion, seed=0)
        found = gradients(network, objective.losses(network(seeded(4, 4, 6)), objective.target_rows(np.arange(4))))
        assert found[name].abs().max() > 0


def test_signed_values_in_own_units():
    network = flat(TilePlan(), "mean", objective=biomass(positive=False))
    x = seeded(30, 1, 6)
    raw = x[:, 0] @ network.head.weight.T + network.head.bias
    learned = raw * torch.from_numpy(pasture().targets[:, :3].std(axis=0)) + torch.from_numpy(
        pasture().targets[:, :3].mean(axis=0)
    )
    torch.testing.assert_close(network(x)[:, :3], learned, rtol=1e-4, atol=1e-4)
    assert learned.min() < 0


@pytest.mark.parametrize("positive", [True, False])
def test_the_first_outputs_are_near_the_train_mean(positive):
    network = TiledNetwork.of(nn.Identity(), biomass(positive=positive), tiles=TilePlan(), dim=384, seed=0)
    mean = torch.from_numpy(pasture().targets.mean(axis=0))
    torch.testing.assert_close(network(seeded(50, 1, 384)), mean.expand(50, 5), rtol=0.15, atol=0)


def test_class_logits_begin_with_frequencies():
    targets = np.repeat([0, 1, 2], [20, 15, 5])
    problem = Problem("classification", tuple("abc"), targets, {"train": np.arange(40)}, [str(i) for i in range(40)])
    network = TiledNetwork.of(nn.Identity(), Objective.of(problem, device=CPU), tiles=TilePlan(2), dim=6, seed=0)
    chances = network(seeded(9, 2, 6)).softmax(dim=1)
    torch.testing.assert_close(chances, (torch.tensor([21, 16, 6]) / 43).expand(9, 3), rtol=0.1, atol=0)


def test_extra_columns_standardised_and_used():
    columns = (np.random.default_rng(1).normal(size=(40, 2)) * [0.01, 300] + [0.5, 2000]).astype(np.float32)
    network = TiledNetwork.of(nn.Identity(), biomass(), tiles=TilePlan(), dim=6, input_scale=column_scale(columns), seed=0)
    stir(network)
    inputs = torch.from_numpy(columns).requires_grad_(True)
    seen = network._fused(torch.zeros(40, 1, 1, 6), inputs)[:, 6:]
    torch.testing.assert_close(seen.mean(dim=0), torch.zeros(2), atol=1e-3, rtol=0)
    torch.testing.assert_close(seen.std(dim=0, unbiased=False), torch.ones(2), atol=1e-3, rtol=0)
    network(seeded(40, 1, 6), inputs).sum().backward()
    assert (inputs.grad.abs().amin(dim=0) > 0).all()


def test_wrong_number_of_tiles_or_columns_raises():
    network = flat(TilePlan(2, 2, 1), "mean", num_inputs=2)
    for x, inputs in [(seeded(3, 6, 6), seeded(3, 2)), (seeded(3, 4, 6), None), (seeded(3, 4, 6), seeded(3, 1))]:
        with pytest.raises(ValueError, match="are expected"):
            network(x, inputs)


@pytest.mark.parametrize("fusion", FUSIONS)
def test_config_and_weights_alone_bring_a_network_back(fusion, tmp_path):
    network = flat(TilePlan(2, 2, 1), fusion, num_inputs=3)
    torch.save({"config": network.config.to_dict(), "state": network.state_dict()}, tmp_path / "network.pt")
    kept = torch.load(tmp_path / "network.pt", weights_only=True)
    again = TiledNetwork(nn.Identity(), NetworkConfig.from_dict(kept["config"]))
    again.load_state_dict(kept["state"])
    x, inputs = seeded(3, 4, 6), seeded(3, 3)
    assert torch.equal(again(x, inputs), network(x, inputs))
    assert again.config == network.config


def test_head_start_follows_seed_rng_untouched():
    before = torch.get_rng_state()
    one, same, other = (
        TiledNetwork.of(nn.Identity(), biomass(), tiles=TilePlan(2), dim=6, fusion="attention", seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, same.state_dict()[name]) for name, value in one.state_dict().items())
    assert not torch.equal(one.head.weight, other.head.weight)


def test_autocast_suffix_only_in_half_precision():
    whole = encoder("test_vit")
    network = TiledNetwork.of(cut_network(whole, "none").suffix, biomass(), tiles=TilePlan(2), dim=whole.spec.dim, seed=0)
    x = seeded(2, 2, 3, SIZE_PX, SIZE_PX)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = stir(network)(x)
    assert outputs.dtype == torch.float32
    assert torch.equal(outputs[:, 3], outputs[:, 0] + outputs[:, 2])
