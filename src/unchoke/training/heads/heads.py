"""The heads: their settings and formulas; and a trained head, in memory and in a file. Nothing here trains."""

from __future__ import annotations

import math
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
from unchoke.training.checkpoints import load_checkpoint, save_tensors
from unchoke.training.data import FeatureSource, Positions, ProblemKind, Standardiser
from unchoke.training.sampling import Scaler, batches

ClassWeights = Literal["none", "gentle", "tempered", "balanced"]
Solver = Literal["adamw", "lbfgs"]
Params = dict[str, torch.Tensor]
HEAD_FORMAT = 1


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
        wrong = [f"lr {self.lr}"] if not self.lr > 0 else []
        if self.solver == "lbfgs" and (self.kind != "linear" or self.mixup or self.label_smoothing):
            wrong.append("solver lbfgs is for linear heads without mix-up and label smoothing")
        for names, low, high in (
            (("weight_decay", "mixup", "patience"), 0, math.inf),
            (("dropout", "label_smoothing"), 0, 1),
            (("hidden", "epochs", "batch_size"), 1, math.inf),
        ):
            wrong += [f"{name} {getattr(self, name)}" for name in names if not low <= getattr(self, name) < high]
        if wrong:
            raise UsageError(
                f"this head cannot be trained: {'; '.join(wrong)}",
                code="bad-head",
                why="learning rates are positive, shares lie between 0 and 1, counts are whole",
                try_="leave the option out to get a value that works",
            )

    def to_dict(self) -> dict[str, Any]:
        """Without the solver where it is the usual one: such heads keep the key they had before there was another."""
        return {name: value for name, value in asdict(self).items() if (name, value) != ("solver", "adamw")}


def init_params(config: HeadConfig, *, dim: int, num_outputs: int) -> Params:
    """The first parameters of a head, by seed and shape. Layers right on the features start at zero, hidden ones at random."""
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


def forward(
    kind: HeadKind, params: Params, feats: torch.Tensor, *, mix: float = 1.0, dropout: torch.Tensor | None = None
) -> torch.Tensor:
    """Outputs (n, outputs) for feats (n, dim); an attention head takes (n, views, dim).

    While training, `mix` is the share of mix-up, and `dropout` a mask (n, hidden), already divided by the share that is kept.
    The first layer is linear: mixing its outputs equals mixing inputs.
    """

    def first(name: str) -> torch.Tensor:
        values = F.linear(feats, params[f"{name}weight"], params[f"{name}bias"])
        # the partner of a row is the one at its place in the batch read backwards: batches are shuffled, any pairing will do
        return values if mix == 1.0 else torch.lerp(values.flip(0), values, mix)

    if kind == "linear":
        return first("")
    if kind == "mlp":
        hidden = first("hidden.").relu()
        return F.linear(hidden if dropout is None else hidden * dropout, params["weight"], params["bias"])
    # the outputs of each view, averaged by a learned share: the same as pooling the views first
    hidden = first("score.").tanh()
    hidden = hidden if dropout is None else hidden * dropout.unsqueeze(1)
    shares = (hidden * params["score.query"]).sum(-1).softmax(dim=1)
    return (first("") * shares.unsqueeze(-1)).sum(dim=1)


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
    """Where this one was trained on val, too: the one that was not, which gives the scores of val."""

    @property
    def dim(self) -> int:
        return len(self.standardiser.mean)

    def logits(self, feats: NDArray[Any]) -> NDArray[np.float32]:
        """Outputs (n, outputs) for raw features (n, dim), or (n, views, dim) for an attention head."""
        if feats.ndim == 2 and self.config.kind == "attention":
            feats = feats[:, None, :]
        self._check_shape(feats.shape)
        device = self.params["bias"].device
        scaled = Scaler.on(device, self.standardiser)(torch.from_numpy(np.ascontiguousarray(feats)).to(device, copy=True))
        return self._outputs(self.params, scaled)

    @torch.no_grad()
    def predict(
        self, source: FeatureSource, positions: Positions, *, device: torch.device, chunk: int = 1024
    ) -> NDArray[np.float32]:
        """Outputs (n, outputs) in the order of `positions`, read chunk by chunk. Linear and MLP heads see the plain view, an
        attention head all views.
        """
        params = {name: tensor.to(device) for name, tensor in self.params.items()}
        scaler = Scaler.on(device, self.standardiser)
        self._check_shape((len(positions), source.dim))
        view = None if self.config.kind == "attention" else 0
        stream = batches(source, positions, views=view, batch_size=chunk, scaler=scaler)
        outputs, start = np.empty((len(positions), len(self.names)), np.float32), 0
        for batch in stream:
            outputs[start : start + len(batch.positions)] = self._outputs(params, batch.feats)
            start += len(batch.positions)
        return outputs

    @torch.no_grad()
    def _outputs(self, params: Params, scaled: torch.Tensor) -> NDArray[np.float32]:
        outputs: NDArray[np.float32] = forward(self.config.kind, params, scaled).float().cpu().numpy()
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

    def weights(one: TrainedHead) -> dict[str, Any]:
        return {
            "params": one.params,
            "feature_mean": torch.from_numpy(one.standardiser.mean),
            "feature_std": torch.from_numpy(one.standardiser.std),
            "target_mean": torch.from_numpy(one.target_mean),
            "target_std": torch.from_numpy(one.target_std),
        }

    content = {
        "format": HEAD_FORMAT,
        "config": head.config.to_dict(),
        **weights(head),
        "kind": head.kind,
        "names": list(head.names),
        "best_epoch": head.best_epoch,
        "val": head.val,
        **({} if head.without_val is None else {"without_val": weights(head.without_val)}),
        "extra": extra,
    }
    save_tensors(path, content)


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

    without_val = built(content["without_val"]) if "without_val" in content else None
    return replace(built(content), without_val=without_val), content["extra"]
