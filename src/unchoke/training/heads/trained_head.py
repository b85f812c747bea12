"""A trained head: everything prediction needs, and nothing else, at work and in a file.

In: features. Out: logits (classification) or values in the units of the targets (regression). It does not read images,
and it does not need the training data.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.errors import DataError
from unchoke.core.timeline import Timeline
from unchoke.training.checkpoints import load_checkpoint, save_tensors
from unchoke.training.data import FeatureSource, Positions, ProblemKind, Standardiser
from unchoke.training.heads.heads import HeadConfig, Params, forward, stack_params
from unchoke.training.sampling import Scaler, batches

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
