"""The heads: what they are called, how they begin, and how a stack of them runs on one batch at once.

In: a `HeadConfig` and standardised features. Out: parameters, and outputs (n, K, outputs) of K heads of one shape. The
first layer of every head is linear, so all K share one matrix product, and mixing two inputs equals mixing their first-
layer outputs: each head can have its own mix-up without its own batch. Nothing here trains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from unchoke.core.errors import DataError, UsageError
from unchoke.core.fingerprint import hash_int
from unchoke.core.settings import HeadKind
from unchoke.core.timeline import Timeline
from unchoke.training.checkpoints import load_checkpoint, save_tensors
from unchoke.training.data import FeatureSource, Positions, ProblemKind, Standardiser
from unchoke.training.sampling import Scaler, batches

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


HEAD_FORMAT = 1
_WITHOUT_VAL = "without_val"


@dataclass(frozen=True, eq=False)
class TrainedHead:
    """One head with its weights on the CPU, the scale of its inputs and, for regression, of its targets.

    `val` holds the validation scores of `best_epoch`, the epoch (from 1) whose weights these are; empty without a val split.
    """

    config: HeadConfig
    params: Params
    standardiser: Standardiser
    kind: ProblemKind
    names: tuple[str, ...]
    target_mean: NDArray[np.float32]
    target_std: NDArray[np.float32]
    best_epoch: int
    val: dict[str, float] = field(default_factory=dict)
    without_val: TrainedHead | None = None
    """Where this one saw the val split, too: the one that did not, which val is judged by."""

    @property
    def dim(self) -> int:
        return len(self.standardiser.mean)

    def logits(self, feats: NDArray[Any], *, device: torch.device | None = None) -> NDArray[np.float32]:
        """Outputs (n, outputs) for raw features (n, dim), or (n, views, dim) for an attention head."""
        if feats.ndim == 2 and self.config.kind == "attention":
            feats = feats[:, None, :]
        self._check_shape(feats.shape)
        place = device or self.params["bias"].device
        scaled = Scaler.on(place, self.standardiser)(torch.from_numpy(np.ascontiguousarray(feats)).to(place, copy=True))
        return self._outputs(stack_params([self.params], device=place), scaled)

    @torch.no_grad()
    def predict(
        self, source: FeatureSource, positions: Positions, *, device: torch.device, chunk: int = 1024, tta: bool = False
    ) -> NDArray[np.float32]:
        """Outputs (n, outputs) in the order of `positions`, read chunk by chunk.

        Linear and MLP heads look at the plain view; with `tta` they look at every cached view and average the outputs. An
        attention head always looks at all views.
        """
        stacked = stack_params([self.params], device=device)
        scaler = Scaler.on(device, self.standardiser)
        self._check_shape((len(positions), source.dim))
        shown: list[int | None] = [None] if self.config.kind == "attention" else [*range(source.num_views if tta else 1)]
        total = np.zeros((len(positions), len(self.names)), dtype=np.float32)
        for view in shown:
            start = 0
            for batch in batches(source, positions, views=view, batch_size=chunk, scaler=scaler):
                total[start : start + len(batch.positions)] += self._outputs(stacked, batch.feats)
                start += len(batch.positions)
        return total / np.float32(len(shown))

    @torch.no_grad()
    def _outputs(self, stacked: Params, scaled: torch.Tensor) -> NDArray[np.float32]:
        outputs: NDArray[np.float32] = forward(self.config.kind, stacked, scaled)[:, 0].float().cpu().numpy()
        return outputs if self.kind == "classification" else outputs * self.target_std + self.target_mean

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        wanted_axes = (2, 3) if self.config.kind == "attention" else (2,)
        if shape[-1] != self.dim or len(shape) not in wanted_axes:
            raise DataError(
                f"features of shape {shape} do not fit this head",
                code="bad-feature-shape",
                why=f"it was trained on rows of {self.dim} values",
                try_="use features of the encoder the head was trained with",
            )


def save_head(head: TrainedHead, path: Path, *, extra: dict[str, Any]) -> None:
    """Write `head` and `extra` (plain values and tensors) to `path`."""
    save_tensors(
        path,
        {
            "format": HEAD_FORMAT,
            "config": head.config.to_dict(),
            **_weights(head),
            "kind": head.kind,
            "names": list(head.names),
            "best_epoch": head.best_epoch,
            "val": head.val,
            **({} if head.without_val is None else {_WITHOUT_VAL: _weights(head.without_val)}),
            "extra": extra,
        },
    )


def _weights(head: TrainedHead) -> dict[str, Any]:
    return {
        "params": head.params,
        "feature_mean": torch.from_numpy(head.standardiser.mean),
        "feature_std": torch.from_numpy(head.standardiser.std),
        "target_mean": torch.from_numpy(head.target_mean),
        "target_std": torch.from_numpy(head.target_std),
    }


def load_head(path: Path) -> tuple[TrainedHead, dict[str, Any]]:
    """The head in `path`, on the CPU, and the `extra` it was saved with."""
    content = load_checkpoint(path)
    if content.get("format") != HEAD_FORMAT:
        raise DataError(
            f"{path} holds no trained head of format {HEAD_FORMAT}",
            code="wrong-model-file",
            why=f"its format is {content.get('format')!r}",
            try_="give the best_head.pt of a run made by this version",
        )

    def built(weights: dict[str, Any]) -> TrainedHead:
        return TrainedHead(
            config=HeadConfig(**content["config"]),
            params=weights["params"],
            standardiser=Standardiser(weights["feature_mean"].numpy(), weights["feature_std"].numpy()),
            kind=content["kind"],
            names=tuple(content["names"]),
            target_mean=weights["target_mean"].numpy(),
            target_std=weights["target_std"].numpy(),
            best_epoch=content["best_epoch"],
            val=content["val"],
        )

    without_val = built(content[_WITHOUT_VAL]) if _WITHOUT_VAL in content else None
    return replace(built(content), without_val=without_val), content["extra"]


@dataclass(frozen=True)
class ConfigResult:
    """How one configuration did; `val_metric` and `val_loss` are None without a val split, or when training diverged."""

    config: HeadConfig
    val_metric: float | None
    val_loss: float | None
    best_epoch: int
    num_epochs: int
    curve: list[dict[str, float]]
    diverged: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Without the curve: one line of a table."""
        return {
            "config": self.config.to_dict(),
            "val_metric": self.val_metric,
            "val_loss": self.val_loss,
            "best_epoch": self.best_epoch,
            "num_epochs": self.num_epochs,
            "diverged": self.diverged,
        }


@dataclass(frozen=True, eq=False)
class TrainResult:
    """The best head, every configuration's outcome (in the order given), and what they were compared by."""

    best: TrainedHead
    best_index: int
    all: list[ConfigResult]
    metric: str
    resumed_epoch: int
    timeline: Timeline

    @property
    def history(self) -> list[dict[str, float]]:
        """The learning curve of the best configuration, one entry per epoch."""
        return self.all[self.best_index].curve
