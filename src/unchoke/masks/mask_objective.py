"""What a segmenter is trained for: Dice and cross-entropy over labelled pixels, judged by counts of right and wrong ones.

In: masks by position (uint8, 255 where nothing is known) and logits. Out: one loss per patch, so that a batch may be split into
parts exactly; and of every judged patch its loss and its confusion matrix, which is all that scores need. Dice is that of each
patch by itself, over the classes it has: a library's is over whole batches and could not be split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from unchoke.core.mixing import Hashes
from unchoke.machine.backend import send
from unchoke.masks.patches import turn
from unchoke.training.data import Positions
from unchoke.training.sampling import epoch_views
from unchoke.training.scoring.selection import ValScores

IGNORE = 255
MEAN_IOU = "mean_iou"


class Masks(Protocol):
    """Masks of patches, by position."""

    def masks(self, positions: Positions) -> NDArray[np.uint8]: ...


@dataclass(frozen=True, eq=False)
class Turns:
    """Which of `num` ways a patch is turned in an epoch: a function of the seed, the epoch and its id."""

    hashes: Hashes
    seed: int
    num: int = 1

    def of(self, positions: Positions, epoch: int | None) -> Positions:
        if epoch is None or self.num == 1:
            return np.zeros(len(positions), np.int64)
        return epoch_views(self.hashes[positions], seed=self.seed, epoch=epoch, num_views=self.num)


def turn_each(patches: torch.Tensor, ways: Positions) -> torch.Tensor:
    """Each square of `patches` turned its own way."""
    if not ways.any():
        return patches
    return torch.stack([turn(patch, int(way)) for patch, way in zip(patches, ways, strict=True)])


@dataclass(frozen=True, eq=False)
class MaskObjective:
    """`dice` is the share of the Dice loss; the rest is cross-entropy, weighted by class where `class_weights` are given."""

    source: Masks
    num_classes: int
    turns: Turns
    device: torch.device
    dice: float = 0.5
    class_weights: torch.Tensor | None = None

    @property
    def num_judged(self) -> int:
        return 1 + self.num_classes**2

    def identity(self) -> Any:
        weights = None if self.class_weights is None else [round(float(one), 6) for one in self.class_weights]
        return ["masks", self.num_classes, self.dice, weights, self.turns.num]

    def target_rows(self, positions: Positions, *, soft: bool = False, epoch: int | None = None) -> torch.Tensor:
        """(n, side, side) uint8, turned as the patches are in that epoch."""
        if soft:
            raise ValueError("masks are not mixed")
        masks = send(torch.from_numpy(self.source.masks(positions)), self.device)
        return turn_each(masks, self.turns.of(positions, epoch))

    @property
    def holds_targets(self) -> bool:
        """Masks are read from the disk, and turned, batch by batch."""
        return False

    def targets_at(self, places: torch.Tensor, *, soft: bool = False) -> torch.Tensor:
        raise ValueError("masks do not lie on the device")

    def losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss of each patch; 0 for one without a labelled pixel."""
        known = targets != IGNORE
        classes = torch.where(known, targets, 0).long()
        gained = outputs.log_softmax(dim=1)
        num_known = known.sum(dim=(1, 2)).clamp(min=1)
        picked = gained.gather(1, classes.unsqueeze(1)).squeeze(1)
        if self.class_weights is not None:
            picked = picked * self.class_weights[classes]
        entropy = -(picked * known).sum(dim=(1, 2)) / num_known
        if not self.dice:
            return entropy
        return torch.lerp(entropy, self._dice_losses(gained.exp(), classes, known), self.dice)

    def _dice_losses(self, shares: torch.Tensor, classes: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
        """1 − Dice, the mean over the classes that a patch has."""
        truth = F.one_hot(classes, self.num_classes).permute(0, 3, 1, 2) * known.unsqueeze(1)
        shares = shares * known.unsqueeze(1)
        common, size = (shares * truth).sum(dim=(2, 3)), truth.sum(dim=(2, 3))
        dice = (2 * common + 1) / (shares.sum(dim=(2, 3)) + size + 1)
        present = size > 0
        return ((1 - dice) * present).sum(dim=1) / present.sum(dim=1).clamp(min=1)

    def judged(self, outputs: torch.Tensor, positions: Positions) -> torch.Tensor:
        """Its loss, then how many pixels of each class (rows) were taken for which (columns), patch by patch."""
        targets = self.target_rows(positions)
        losses = self.losses(outputs, targets)
        return torch.cat([losses.unsqueeze(1), self._confusions(outputs.argmax(dim=1), targets)], dim=1)

    def _confusions(self, found: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        cells = self.num_classes**2
        pairs = torch.where(targets == IGNORE, cells, targets.long() * self.num_classes + found)
        counts = torch.zeros((len(found), cells + 1), device=found.device)
        counts.scatter_add_(1, pairs.flatten(1), torch.ones((), device=found.device).expand(pairs.flatten(1).shape))
        return counts[:, :cells]

    def start_val(self, positions: Positions, metric: str) -> MaskTally:
        return MaskTally(self.num_classes)


class MaskTally:
    """Adds up what `judged` kept."""

    def __init__(self, num_classes: int) -> None:
        self._confusion = np.zeros((num_classes, num_classes))
        self._losses: list[NDArray[np.float64]] = []

    def add(self, outputs: NDArray[np.float32], positions: Positions) -> None:
        rows = np.asarray(outputs, np.float64)
        self._losses.append(rows[:, 0])
        self._confusion += rows[:, 1:].sum(axis=0).reshape(self._confusion.shape)

    def finish(self) -> ValScores:
        loss = float(np.concatenate(self._losses).mean())
        mean = mean_iou(self._confusion)
        return ValScores(mean, loss, {"val_loss": loss, f"val_{MEAN_IOU}": mean, "val_pixel_accuracy": accuracy(self._confusion)})


def ious(confusion: NDArray[np.float64]) -> NDArray[np.float64]:
    """The IoU of each class; NaN where neither masks nor labels have it."""
    hits = np.diag(confusion)
    union = confusion.sum(axis=0) + confusion.sum(axis=1) - hits
    found: NDArray[np.float64] = np.divide(hits, union, out=np.full(len(hits), np.nan), where=union > 0)
    return found


def mean_iou(confusion: NDArray[np.float64]) -> float:
    """Over the classes there are; 0 where there is nothing to judge."""
    found = ious(confusion)
    return float(np.nanmean(found)) if np.isfinite(found).any() else 0.0


def accuracy(confusion: NDArray[np.float64]) -> float:
    return float(np.trace(confusion) / max(1.0, confusion.sum()))


def count_pixels(source: Masks, positions: Positions, num_classes: int, *, at_once: int = 64) -> NDArray[np.int64]:
    """How many labelled pixels each class has in these patches."""
    counts = np.zeros(256, np.int64)
    for start in range(0, len(positions), at_once):
        counts += np.bincount(source.masks(positions[start : start + at_once]).ravel(), minlength=256)
    return counts[:num_classes]


def weigh_classes(counts: NDArray[np.int64], how: str) -> list[float] | None:
    """Weights with mean 1 over pixels: by 1/frequency (`balanced`), its square root (`tempered`) or fourth root (`gentle`)."""
    if how == "none":
        return None
    frequency = np.maximum(counts, 1) / max(1, counts.sum())
    weights = frequency ** -{"balanced": 1.0, "tempered": 0.5, "gentle": 0.25}[how]
    return [float(one) for one in weights / (weights * frequency).sum()]
