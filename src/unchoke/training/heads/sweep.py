"""Which configurations to try: a deterministic set, and how long and in what batches to train them.

In: a problem. Out: configurations and choices with their reasons. Nothing here trains.
"""

from __future__ import annotations

from typing import Any

from unchoke.core.choices import Choice
from unchoke.training.data import Problem
from unchoke.training.heads.heads import HeadConfig, HeadKind
from unchoke.training.scoring.selection import IMBALANCE_FOR_BALANCED, imbalance

_MAX_BATCH, _MIN_BATCH, _STEPS_PER_EPOCH = 256, 32, 20


def choose_batch_size(num_train: int) -> Choice:
    """A power of two that gives about 20 steps an epoch, between 32 and 256."""
    size = _MIN_BATCH
    while size < _MAX_BATCH and num_train / (size * 2) >= _STEPS_PER_EPOCH:
        size *= 2
    reason = f"{num_train:,} training samples: about {max(1, round(num_train / size))} steps an epoch"
    return Choice("batch_size", size, reason, {"num_train": num_train})


def default_sweep(problem: Problem, *, num: int, seed: int, epochs: int, batch_size: int) -> list[HeadConfig]:
    """`num` configurations, the most promising first, each set the beginning of the next larger one.

    Three quarters are linear heads and a quarter small MLPs; learning rate, decay, smoothing and mix-up are spread evenly (a
    low-discrepancy sequence), so every prefix covers the ranges. Uneven classes get tempered weights.
    """
    common: dict[str, Any] = {"seed": seed, "epochs": epochs, "batch_size": batch_size}
    classes = problem.kind == "classification"
    if classes and imbalance(problem.targets[problem.positions("train")]) >= IMBALANCE_FOR_BALANCED:
        common["class_weights"] = "tempered"
    first = [
        HeadConfig("linear", **common),
        HeadConfig("linear", weight_decay=1.0, **common),
        HeadConfig("mlp", mixup=0.2 if classes else 0.0, **common),
    ]
    spread = [_spread_config(number, common, classes=classes) for number in range(max(0, num - len(first)))]
    return [*first, *spread][: max(1, num)]


def _spread_config(number: int, common: dict[str, Any], *, classes: bool) -> HeadConfig:
    """The `number`-th point of an additive sequence with the ratios of the generalised golden section in four dimensions."""
    rate, decay, smooth, mixed = ((0.5 + (number + 1) * _RATIO**-power) % 1 for power in (1, 2, 3, 4))
    kind: HeadKind = "mlp" if number % 4 == 3 else "linear"
    return HeadConfig(
        kind,
        lr=10 ** (-4.0 + 2.0 * rate),
        weight_decay=10 ** (-2.0 + 2.5 * decay),
        dropout=0.1 if number % 8 == 3 else 0.3,
        label_smoothing=[0.0, 0.05, 0.1][int(smooth * 3)] if classes else 0.0,
        mixup=[0.0, 0.2][int(mixed * 2)],
        **common,
    )


_RATIO = 1.1673039782614187
