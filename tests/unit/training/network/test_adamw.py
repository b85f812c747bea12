from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from torch import nn

from small_training import small
from unchoke.features.cut import layer_numbers
from unchoke.training.checkpoints import save_tensors
from unchoke.training.network.adamw import WeightAverage, build_optimizer, load_optimizer, lr_factor, set_lr, step_at
from unchoke.training.network.tiled_network import TiledNetwork

RATES = {"lr": 1e-2, "body_lr": 1e-3, "weight_decay": 0.05, "layer_decay": 0.5}


def network(name: str = "test_vit", cut: str = "-2") -> TiledNetwork:
    return small(name, cut=cut).network


def rate_of(optimizer: torch.optim.AdamW, parameter: nn.Parameter) -> tuple[float, float]:
    found = [group for group in optimizer.param_groups if any(one is parameter for one in group["params"])]
    assert len(found) == 1
    return found[0]["base_lr"], found[0]["weight_decay"]


def fill_gradients(module: nn.Module, *, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(memory_format=layout(parameter))


def layout(value: torch.Tensor) -> torch.memory_format:
    channels_last = value.ndim == 4 and value.is_contiguous(memory_format=torch.channels_last) and not value.is_contiguous()
    return torch.channels_last if channels_last else torch.contiguous_format


def steps(optimizer: torch.optim.AdamW, module: nn.Module, seeds: range) -> None:
    for seed in seeds:
        fill_gradients(module, seed=seed)
        optimizer.step()


@pytest.mark.parametrize(
    ("name", "cut"), [("test_vit", "-2"), ("test_efficientnet", "none"), ("test_resnet", "-2"), ("test_convnext", "none")]
)
def test_learning_rates_by_timm_layer_numbers(name, cut):
    trained = network(name, cut)
    optimizer = build_optimizer(trained, **RATES)
    numbers = layer_numbers(trained.suffix)
    deepest = max(numbers.values())
    for inner, parameter in trained.suffix.named_parameters():
        assert rate_of(optimizer, parameter)[0] == pytest.approx(1e-3 * 0.5 ** (deepest - numbers[inner]))
    assert max(rate_of(optimizer, one)[0] for one in trained.suffix.parameters()) == 1e-3
    assert len({rate_of(optimizer, one)[0] for one in trained.suffix.parameters()}) == len(set(numbers.values())) >= 2
    assert {rate_of(optimizer, one)[0] for one in trained.head.parameters()} == {1e-2}


def test_biases_and_norms_are_not_decayed_and_matrices_are():
    trained = network()
    optimizer = build_optimizer(trained, **RATES)
    decays = {name: rate_of(optimizer, parameter)[1] for name, parameter in trained.named_parameters()}
    assert decays["head.bias"] == decays["suffix.norm.weight"] == 0.0
    assert decays["head.weight"] == decays["suffix.blocks.5.mlp.fc1.weight"] == 0.05
    assert set(decays.values()) == {0.0, 0.05}


def test_a_cut_at_the_end_leaves_the_head_alone_to_train():
    trained = network(cut="end")
    optimizer = build_optimizer(trained, **{**RATES, "body_lr": 0.0})
    assert {group["base_lr"] for group in optimizer.param_groups} == {1e-2}


@pytest.mark.parametrize("fused", [True, False])
def test_first_steps_equal_torch_adamw_bits(fused, monkeypatch):
    monkeypatch.setattr("unchoke.training.network.adamw.has_fused_adamw", lambda device: fused)
    ours, theirs = network(), network()
    optimizer = build_optimizer(ours, **RATES)
    twins = dict(zip(map(id, ours.parameters()), theirs.parameters(), strict=True))
    groups = [
        {"params": [twins[id(one)] for one in group["params"]], "lr": group["lr"], "weight_decay": group["weight_decay"]}
        for group in optimizer.param_groups
    ]
    plain = torch.optim.AdamW(groups, eps=1e-6, fused=fused)
    assert not plain.state
    steps(optimizer, ours, range(3))
    steps(plain, theirs, range(3))
    assert all(torch.equal(one, other) for one, other in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert all(set(plain.state[twins[id(one)]]) == set(optimizer.state[one]) for one in ours.parameters()), (
        "the state made in advance is not the one torch makes"
    )


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_loaded_optimizer_goes_on_same(memory_format, tmp_path):
    ours = network("test_resnet").to(memory_format=memory_format)
    optimizer = build_optimizer(ours, **RATES)
    steps(optimizer, ours, range(3))
    set_lr(optimizer, 0.3)
    other = copy.deepcopy(ours)
    save_tensors(tmp_path / "state.pt", optimizer.state_dict())
    resumed = build_optimizer(other, **RATES)
    load_optimizer(resumed, torch.load(tmp_path / "state.pt", weights_only=True))
    assert [group["lr"] for group in resumed.param_groups] == [group["lr"] for group in optimizer.param_groups]
    steps(optimizer, ours, range(3, 6))
    steps(resumed, other, range(3, 6))
    assert all(torch.equal(one, twin) for one, twin in zip(ours.parameters(), other.parameters(), strict=True))


def test_the_average_follows_the_formula_and_begins_short():
    module = nn.Linear(3, 2)
    average = WeightAverage(module, 0.8)
    expected = module.weight.detach().clone().double()
    for step in range(60):
        with torch.no_grad():
            module.weight += 1.0
        average.update(step)
        decay = min(0.8, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * module.weight.detach().double()
    torch.testing.assert_close(average.state_dict()["weight"].double(), expected, rtol=1e-5, atol=1e-5)


def test_swap_average_twice_is_nothing():
    trained = network("test_efficientnet")
    average = WeightAverage(trained, 0.9)
    with torch.no_grad():
        for value in trained.parameters():
            value += 1.0
    average.update(5)
    live = {name: value.clone() for name, value in trained.state_dict().items()}
    kept = {name: value.clone() for name, value in average.state_dict().items()}
    average.swap()
    assert all(torch.equal(trained.state_dict()[name], value) for name, value in kept.items())
    assert not torch.equal(trained.state_dict()["head.weight"], live["head.weight"])
    average.swap()
    assert all(torch.equal(value, live[name]) for name, value in trained.state_dict().items())
    assert all(torch.equal(value, kept[name]) for name, value in average.state_dict().items())


def test_warm_up_is_linear_from_first_step():
    factors = [lr_factor(step, num_steps=100, warmup_steps=9) for step in range(10)]
    assert factors == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])


def test_learning_rate_is_cosine_after_warm_up():
    factors = [lr_factor(step, num_steps=100, warmup_steps=20) for step in range(20, 100)]
    assert factors[0] == 1.0
    assert factors[40] == pytest.approx(0.5)
    assert factors == [pytest.approx(0.5 * (1 + math.cos(math.pi * place / 80))) for place in range(80)]
    assert all(earlier > later > 0 for earlier, later in itertools.pairwise(factors))


def test_beyond_the_end_nothing_moves():
    assert lr_factor(100, num_steps=100, warmup_steps=0) == 0.0
    assert 0 < lr_factor(99, num_steps=100, warmup_steps=0) < 1e-3
    assert lr_factor(0, num_steps=1, warmup_steps=0) == 1.0


@pytest.mark.parametrize("warmup_steps", [0, 1, 5, 10, 30])
def test_learning_rate_within_bounds_in_any_plan(warmup_steps):
    factors = [lr_factor(step, num_steps=10, warmup_steps=warmup_steps) for step in range(10)]
    assert all(0 < factor <= 1 for factor in factors)


@pytest.mark.parametrize("name", ["test_vit", "test_efficientnet"])
def test_tensor_learning_rates_same_bits(name):
    one, other = network(name), network(name)
    plain, recorded = build_optimizer(one, **RATES), build_optimizer(other, **RATES)
    for step in range(4):
        for module in (one, other):
            fill_gradients(module, seed=step)
            next(iter(module.parameters())).grad = None  # a parameter that took no part keeps still
        set_lr(plain, 0.37 / (step + 1), rounded=True)
        plain.step()
        rates = torch.tensor([group["base_lr"] * (0.37 / (step + 1)) for group in recorded.param_groups])
        step_at(recorded, rates.unbind())
    for (name, value), found in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(value, found), name
    for value, found in zip(plain.state.values(), recorded.state.values(), strict=True):
        assert all(torch.equal(value[kind], found[kind]) for kind in ("step", "exp_avg", "exp_avg_sq"))


def test_moments_allocated_before_first_step():
    trained = network()
    optimizer = build_optimizer(trained, **RATES)
    before = {id(one): {name: value.data_ptr() for name, value in optimizer.state[one].items()} for one in trained.parameters()}
    steps(optimizer, trained, range(1))
    after = {id(one): {name: value.data_ptr() for name, value in optimizer.state[one].items()} for one in trained.parameters()}
    assert before == after
