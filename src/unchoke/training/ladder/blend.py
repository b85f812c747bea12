"""A blend of several models: which of them, in which shares, is decided on the val split; and how it is saved.

In: outputs of each model for the same samples. Out: shares, and outputs of all together: for classes the logarithm of the mean of
their calibrated probabilities, for values the mean. With few val samples all models that learnt something count alike; the more
there are, the more those count that are picked one by one while the loss falls, on the mean over draws of the samples. A model
picked on few samples looks better on them than it is: the best on val alone is the worst rule on test (docs/claims-history.md).
In a file, `best_head.pt` says which models answer in which shares; the models lie beside it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.errors import DataError
from unchoke.data.several_labels import MULTI_LABEL
from unchoke.training.checkpoints import load_checkpoint, save_tensors
from unchoke.training.data import Problem, ProblemKind
from unchoke.training.ladder.rungs import KeptRung
from unchoke.training.scoring.figures import as_pairs, fit_temperature, probabilities
from unchoke.training.scoring.selection import DeviceTargets, judging_weights

_MAX_PARTS = 8
_MIN_GAIN = 0.005
_DRAWS = 25
_MANY = 500
"""With so many val samples, half of the shares go to the models that are picked on them."""
_WORTH = 0.5
"""How much of what the best model gains over a constant answer another must gain to be heard."""
_TINY = 1e-12
_ALL = slice(None)


@dataclass(frozen=True)
class Share:
    """How much one model counts, and what its logits are divided by first."""

    weight: float
    temperature: float = 1.0


@dataclass(frozen=True, eq=False)
class ValLoss:
    """What models are compared by on the val split: lower is better."""

    problem: Problem
    class_weights: NDArray[np.float64] | None
    target_weights: tuple[float, ...] | None = None

    @classmethod
    def of(cls, problem: Problem, target_weights: tuple[float, ...] | None = None) -> ValLoss:
        if problem.kind != "classification":
            return cls(problem, None, target_weights)
        return cls(problem, judging_weights(DeviceTargets.of(problem, device=torch.device("cpu"))).double().numpy())

    def __call__(self, outputs: NDArray[Any]) -> float:
        return self.over(self.seen(_answer(outputs, 1.0, self.problem.kind)))

    @property
    def targets(self) -> NDArray[Any]:
        return self.problem.targets[self.problem.positions("val")]

    def seen(self, answers: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the loss depends on: of probabilities that of the truth (n, 1) or of each label (n, L), of values all (n, T)."""
        if self.problem.kind == MULTI_LABEL:
            return np.where(self.targets > 0, answers, 1 - answers)
        return answers if self.class_weights is None else np.take_along_axis(answers, self.targets[:, None], axis=1)

    def over(self, seen: NDArray[np.float64], samples: NDArray[np.int64] | slice = _ALL) -> float:
        """The loss over all samples, or over some."""
        targets = self.targets
        if self.problem.kind == MULTI_LABEL:
            return float(-np.log(np.maximum(seen[samples], _TINY)).mean())
        if self.class_weights is not None:
            counted = self.class_weights[targets][samples]
            return float((-np.log(np.maximum(seen[samples, 0], _TINY)) * counted).sum() / counted.sum())
        spread = np.maximum(targets.astype(np.float64).var(axis=0), _TINY)
        errors = ((seen[samples] - targets[samples]) ** 2).mean(axis=0)
        return float(np.average(errors / spread, weights=self.target_weights))

    def each(self, seen: NDArray[np.float64]) -> NDArray[np.float64]:
        """What each sample adds to the loss over all of them, times their number."""
        targets = self.targets
        if self.class_weights is None:
            spread = np.maximum(targets.astype(np.float64).var(axis=0), _TINY)
            return np.asarray(np.average((seen - targets) ** 2 / spread, axis=1, weights=self.target_weights))
        counted = self.class_weights[targets]
        return np.asarray(-np.log(np.maximum(seen[:, 0], _TINY)) * counted / counted.mean())

    def of_constant(self) -> float:
        """Of always answering with the frequencies of the train split, or its mean."""
        trained = self.problem.targets[self.problem.positions("train")]
        if self.problem.kind == MULTI_LABEL:
            return self.over(self.seen(np.broadcast_to(trained.mean(axis=0, dtype=np.float64), self.targets.shape)))
        if self.class_weights is None:
            return self.over(np.broadcast_to(trained.mean(axis=0, dtype=np.float64), self.targets.shape))
        counts = np.bincount(trained, minlength=len(self.problem.names)) + 1.0
        return self.over((counts / counts.sum())[self.targets][:, None])


def choose_shares(outputs: Sequence[NDArray[np.float32]], loss: ValLoss, networks: Sequence[bool] = ()) -> list[Share]:
    """The share of each model, from its outputs for the val split. Networks are heard only where shares chosen with them on one
    half of it answer better on the other, by more than chance: the epoch that val picked looks better on val than it is.
    """
    problem = loss.problem
    temperatures = [1.0] * len(outputs)
    if problem.kind == MULTI_LABEL:
        marks = problem.targets[problem.positions("val")].reshape(-1).astype(np.int64)
        temperatures = [fit_temperature(as_pairs(one), marks)[0] for one in outputs]
    elif problem.kind == "classification":
        temperatures = [fit_temperature(one, problem.targets[problem.positions("val")])[0] for one in outputs]
    answers = [_answer(one, temperature, problem.kind) for one, temperature in zip(outputs, temperatures, strict=True)]
    seen = np.stack([loss.seen(answer) for answer in answers])
    alone = np.array([loss.over(one) for one in seen])
    bar = alone.min() + (1 - _WORTH) * max(0.0, loss.of_constant() - alone.min())
    heard, is_network = np.flatnonzero(alone <= bar), np.array([*networks, *[False] * (len(outputs) - len(networks))])
    everyone = np.arange(seen.shape[1])
    without = heard[~is_network[heard]]
    if 0 < len(without) < len(heard):
        shuffled = np.random.default_rng(0).permutation(everyone)
        gains: list[float] = []
        for one, other in ((shuffled[::2], shuffled[1::2]), (shuffled[1::2], shuffled[::2])):
            mixed, plain = (loss.each(np.tensordot(_shares_on(seen, some, loss, one), seen, 1)) for some in (heard, without))
            gains += (plain - mixed)[other].tolist()
        heard = heard if np.mean(gains) > np.std(gains) / np.sqrt(len(gains)) else without
    shares = _shares_on(seen, heard, loss, everyone)
    return [Share(float(share), temperature) for share, temperature in zip(shares, temperatures, strict=True)]


def _shares_on(seen: NDArray[np.float64], heard: NDArray[Any], loss: ValLoss, samples: NDArray[Any]) -> NDArray[np.float64]:
    """Shares of the models that are heard, chosen on some samples."""
    num = len(samples)
    draws = samples[np.random.default_rng(0).integers(0, num, (_DRAWS, num))]
    picked = np.mean([_picked_on(seen[heard], loss, drawn) for drawn in draws], axis=0)
    trust, shares = num / (num + _MANY), np.zeros(len(seen))
    shares[heard] = (1 - trust) / len(heard) + trust * picked
    return shares


def _picked_on(seen: NDArray[np.float64], loss: ValLoss, samples: NDArray[np.int64]) -> NDArray[np.float64]:
    """How much each model counts if they are added, the same again if that is best, while the loss falls by more than chance."""
    counts: NDArray[np.float64] = np.zeros(len(seen))
    total, reached = np.zeros_like(seen[0]), np.inf
    for part in range(_MAX_PARTS):
        losses = [loss.over((total + one) / (part + 1), samples) for one in seen]
        best = int(np.argmin(losses))
        if losses[best] >= reached * (1 - _MIN_GAIN):
            break
        reached, total = losses[best], total + seen[best]
        counts[best] += 1
    counts /= counts.sum()
    return counts


def blend(outputs: Sequence[NDArray[np.float32]], shares: Sequence[Share], kind: str) -> NDArray[np.float32]:
    """The outputs of all models together, as those of one."""
    total: Any = sum(share.weight * _answer(one, share.temperature, kind) for one, share in zip(outputs, shares, strict=True))
    if kind == MULTI_LABEL:
        total = np.log(np.maximum(total, _TINY)) - np.log(np.maximum(1 - total, _TINY))
    blended: NDArray[np.float32] = (np.log(np.maximum(total, _TINY)) if kind == "classification" else total).astype(np.float32)
    return blended


def _answer(outputs: NDArray[np.float32], temperature: float, kind: str) -> NDArray[np.float64]:
    return (probabilities(kind, outputs, temperature) if kind != "regression" else outputs).astype(np.float64)


BLEND_FORMAT = "blend-1"


@dataclass(frozen=True)
class BlendedModel:
    """One model of a blend: its file, beside `best_head.pt`, whether it is a head or a network, and its share."""

    file: str
    kind: str
    name: str
    share: Share


@dataclass(frozen=True, eq=False)
class TrainedBlend:
    """`outputs` are those for val and test that the blend was judged by."""

    kind: ProblemKind
    names: tuple[str, ...]
    models: tuple[BlendedModel, ...]
    outputs: dict[str, NDArray[np.float32]]
    extra: dict[str, Any]


def save_blend(
    path: Path,
    rungs: Sequence[tuple[KeptRung, Share]],
    outputs: dict[str, NDArray[np.float32]],
    *,
    kind: str,
    names: Sequence[str],
    extra: dict[str, Any],
) -> None:
    """Write the blend to `path`, and copies of its models beside it; models without a share are left out."""
    kept = [(rung, share) for rung, share in rungs if share.weight > 0]
    path.parent.mkdir(parents=True, exist_ok=True)
    models = []
    for number, (rung, share) in enumerate(kept, start=1):
        file = f"model_{number}.pt"
        shutil.copyfile(rung.model_file, path.parent / file)
        named = {"file": file, "kind": rung.kind, "name": rung.rung.name}
        models.append({**named, "weight": share.weight, "temperature": share.temperature})
    content = {
        "format": BLEND_FORMAT,
        "kind": kind,
        "names": list(names),
        "models": models,
        "outputs": {split: torch.from_numpy(values) for split, values in outputs.items()},
        "extra": extra,
    }
    save_tensors(path, content)


def load_blend(path: Path) -> TrainedBlend:
    content = load_checkpoint(path)
    if content.get("format") != BLEND_FORMAT:
        raise DataError(
            f"{path} holds no blend of models",
            code="wrong-model-file",
            why=f"its format is {content.get('format')!r}, not {BLEND_FORMAT!r}",
            try_="give the best_head.pt of a run made with --minutes by this version",
        )
    models = [
        BlendedModel(one["file"], one["kind"], one["name"], Share(one["weight"], one["temperature"])) for one in content["models"]
    ]
    outputs = {split: values.numpy() for split, values in content["outputs"].items()}
    return TrainedBlend(content["kind"], tuple(content["names"]), tuple(models), outputs, content["extra"])
