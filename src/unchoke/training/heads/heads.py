"""The heads: what they are called, how they begin, and how a stack of them runs on one batch at once.

In: a `HeadConfig` and standardised features. Out: parameters, and outputs (n, K, outputs) of K heads of one shape. The
first layer of every head is linear, so all K share one matrix product, and mixing two inputs equals mixing their first-
layer outputs: each head can have its own mix-up without its own batch. Nothing here trains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch.nn import functional as F

from unchoke.core.errors import UsageError
from unchoke.core.fingerprint import hash_int
from unchoke.core.settings import HeadKind

ClassWeights = Literal["none", "gentle", "tempered", "balanced"]
Solver = Literal["adamw", "lbfgs"]
Params = dict[str, torch.Tensor]


@dataclass(frozen=True)
class HeadConfig:
    """One head and how to train it.

    `hidden` and `dropout` concern the hidden layer of "mlp" and the scoring layer of "attention"; a linear head has
    neither. `mixup` is the alpha of a Beta distribution (0: off). With `class_weights` "balanced" every class counts alike,
    "tempered" goes half the way (by the square root of its frequency), "gentle" a quarter. `patience` counts epochs without a
    better validation score (0: off). With the solver "lbfgs" a linear head is solved (`linear_path.py`): its epochs are strengths
    of the penalty, and with a single epoch the strength is `weight_decay`.
    """

    kind: HeadKind = "linear"
    hidden: int = 128
    dropout: float = 0.1
    lr: float = 3e-3
    weight_decay: float = 1e-1
    label_smoothing: float = 0.0
    mixup: float = 0.0
    class_weights: ClassWeights = "none"
    epochs: int = 20
    batch_size: int = 256
    patience: int = 0
    seed: int = 0
    solver: Solver = "adamw"

    def __post_init__(self) -> None:
        faults = [*_config_faults(self)]
        if faults:
            raise UsageError(
                f"this head cannot be trained: {'; '.join(faults)}",
                code="bad-head",
                why="rates are positive, shares lie between 0 and 1, counts are whole",
                try_="leave the option out to get a value that works",
            )

    def to_dict(self) -> dict[str, Any]:
        """Without the solver where it is the usual one: such heads keep the key they had before there was another."""
        return {name: value for name, value in asdict(self).items() if (name, value) != ("solver", "adamw")}


def _config_faults(config: HeadConfig) -> Iterator[str]:
    if config.kind not in ("linear", "mlp", "attention"):
        yield f"kind {config.kind!r} is not linear, mlp or attention"
    if config.class_weights not in ("none", "gentle", "tempered", "balanced"):
        yield f"class_weights {config.class_weights!r} is not none, gentle, tempered or balanced"
    if config.solver == "lbfgs" and (config.kind != "linear" or config.mixup or config.label_smoothing):
        yield "solver lbfgs is for linear heads without mix-up and label smoothing"
    if not config.lr > 0:
        yield f"lr {config.lr}"
    for name in ("weight_decay", "mixup", "patience"):
        if not getattr(config, name) >= 0:
            yield f"{name} {getattr(config, name)}"
    for name in ("dropout", "label_smoothing"):
        if not 0 <= getattr(config, name) < 1:
            yield f"{name} {getattr(config, name)}"
    for name in ("hidden", "epochs", "batch_size"):
        if getattr(config, name) < 1:
            yield f"{name} {getattr(config, name)}"


def init_params(config: HeadConfig, *, dim: int, num_outputs: int) -> Params:
    """How a head begins: a function of its seed and shape. What lies right on the features starts at zero, hidden layers at
    random.
    """
    if config.kind == "linear":
        return {"weight": torch.zeros(num_outputs, dim), "bias": torch.zeros(num_outputs)}
    generator = torch.Generator().manual_seed(hash_int(config.seed, "init") >> 1)
    bound = (3.0 / dim) ** 0.5
    hidden = torch.empty(config.hidden, dim).uniform_(-bound, bound, generator=generator)
    if config.kind == "mlp":
        out_bound = (1.0 / config.hidden) ** 0.5
        out = torch.empty(num_outputs, config.hidden).uniform_(-out_bound, out_bound, generator=generator)
        return {
            "hidden.weight": hidden,
            "hidden.bias": torch.zeros(config.hidden),
            "weight": out,
            "bias": torch.zeros(num_outputs),
        }
    return {
        "score.weight": hidden,
        "score.bias": torch.zeros(config.hidden),
        "score.query": torch.zeros(config.hidden),
        "weight": torch.zeros(num_outputs, dim),
        "bias": torch.zeros(num_outputs),
    }


def stack_params(members: Sequence[Params], *, device: torch.device) -> Params:
    """K heads of one shape as one set of tensors with a leading K."""
    return {name: torch.stack([member[name] for member in members]).to(device) for name in members[0]}


def unstack_params(stacked: Params, member: int) -> Params:
    """A copy of one head out of a stack, on the CPU."""
    return {name: tensor[member].detach().clone().cpu() for name, tensor in stacked.items()}


@dataclass(frozen=True, eq=False)
class Noise:
    """What makes training differ from prediction for one batch: mix-up shares (K,) or None, and a dropout mask or None.

    The mask (n, K, hidden) is already divided by the share that is kept.
    """

    mix: torch.Tensor | None = None
    dropout: torch.Tensor | None = None


QUIET = Noise()


def forward(kind: HeadKind, stacked: Params, feats: torch.Tensor, *, noise: Noise = QUIET) -> torch.Tensor:
    """Outputs (n, K, outputs) for feats (n, dim); an attention head takes (n, views, dim)."""
    if kind == "linear":
        return _mixed(_shared(feats, stacked["weight"], stacked["bias"]), noise)
    if kind == "mlp":
        hidden = _mixed(_shared(feats, stacked["hidden.weight"], stacked["hidden.bias"]), noise).relu()
        hidden = hidden if noise.dropout is None else hidden * noise.dropout
        products = torch.bmm(hidden.transpose(0, 1), stacked["weight"].transpose(1, 2))
        return products.transpose(0, 1) + stacked["bias"]
    return _attend(stacked, feats, noise)


def _attend(stacked: Params, feats: torch.Tensor, noise: Noise) -> torch.Tensor:
    """The outputs of each view, averaged by a learned share: the same as pooling the views first, without K pooled copies."""
    hidden = _mixed(_shared(feats, stacked["score.weight"], stacked["score.bias"]), noise).tanh()
    hidden = hidden if noise.dropout is None else hidden * noise.dropout.unsqueeze(1)
    shares = (hidden * stacked["score.query"]).sum(-1).softmax(dim=1)
    outputs = _mixed(_shared(feats, stacked["weight"], stacked["bias"]), noise)
    return (outputs * shares.unsqueeze(-1)).sum(dim=1)


def _shared(feats: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """One matrix product for all heads: (..., dim) and (K, outputs, dim) to (..., K, outputs)."""
    return F.linear(feats, weight.flatten(0, 1), bias.flatten()).view(*feats.shape[:-1], *bias.shape)


def _mixed(values: torch.Tensor, noise: Noise) -> torch.Tensor:
    """Each row mixed with its partner, the batch read backwards; batches are shuffled, so any fixed pairing will do."""
    if noise.mix is None:
        return values
    return torch.lerp(values.flip(0), values, noise.mix.unsqueeze(-1))
