"""How should models that were trained within given minutes answer together: rules for their shares, compared on test.

In: workspaces after `unchoke fit DATA --minutes N` on classes, with what was climbed under `experiments/rungs`. Every rule sees
the val split alone; accuracy and log loss of its blend on the test split, and the means over the workspaces.

    python benches/bench_blend.py WORKSPACE…
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import say
from numpy.typing import NDArray

from unchoke.training.data import Problem
from unchoke.training.ladder import blend as blending
from unchoke.training.ladder.blend import Share, ValLoss, blend, choose_shares
from unchoke.training.scoring.figures import fit_temperature, log_losses

Models = list[dict[str, NDArray[np.float32]]]
Rule = Callable[[list[NDArray[np.float32]], ValLoss], list[Share]]


def load(workspace: Path) -> tuple[Problem, Models]:
    """What was learnt, and what every model said of val and test."""
    experiments = workspace / "experiments"
    judged = pd.read_csv(experiments / "exp_1" / "predictions.csv", dtype=str, keep_default_na=False)
    manifest = pd.read_csv(workspace / "manifest.csv", dtype=str, keep_default_na=False)
    names = tuple(sorted(set(manifest["label"])))
    trained = manifest.loc[manifest["split"] == "train", "label"].tolist()
    sides = {side: judged.loc[judged["split"] == side, "truth"].tolist() for side in ("val", "test")}
    truth = np.array([names.index(one) for one in [*trained, *sides["val"], *sides["test"]]])
    ends = np.cumsum([0, len(trained), len(sides["val"]), len(sides["test"])])
    splits = {side: np.arange(*ends[place : place + 2]) for place, side in enumerate(("train", "val", "test"))}
    files = sorted(experiments.glob("rungs/*/rung.json"), key=lambda file: json.loads(file.read_text())["name"])
    models = [dict(np.load(file.parent / "outputs.npz")) for file in files]
    return Problem("classification", names, truth, splits, [str(number) for number in range(len(truth))]), models


def temperature_of(outputs: NDArray[np.float32], loss: ValLoss) -> float:
    return fit_temperature(outputs, loss.targets)[0]


def the_best(outputs: list[NDArray[np.float32]], loss: ValLoss) -> list[Share]:
    calibrated = [Share(1.0, temperature_of(one, loss)) for one in outputs]
    losses = [loss(blend([one], [share], "classification")) for one, share in zip(outputs, calibrated, strict=True)]
    return [Share(float(place == int(np.argmin(losses))), share.temperature) for place, share in enumerate(calibrated)]


def all_alike(outputs: list[NDArray[np.float32]], loss: ValLoss) -> list[Share]:
    return [Share(1 / len(outputs), temperature_of(one, loss)) for one in outputs]


def picked(outputs: list[NDArray[np.float32]], loss: ValLoss, *, draws: int) -> list[Share]:
    """Picked one by one alone: on all val samples at once, or on the mean over draws of them."""
    temperatures = [temperature_of(one, loss) for one in outputs]
    pairs = zip(outputs, temperatures, strict=True)
    seen = np.stack([loss.seen(blending._answer(one, temperature, "classification")) for one, temperature in pairs])
    once = blending._picked_on(seen, loss, np.arange(seen.shape[1]))
    return [Share(float(one), t) for one, t in zip(blending._picked(seen, loss) if draws else once, temperatures, strict=True)]


RULES: dict[str, Rule] = {
    "the best on val": the_best,
    "picked one by one": lambda outputs, loss: picked(outputs, loss, draws=0),
    "the same, on draws of val": lambda outputs, loss: picked(outputs, loss, draws=1),
    "all alike": all_alike,
    "what is used": choose_shares,
}


def main() -> None:
    found: dict[str, list[Any]] = {rule: [] for rule in RULES}
    for name in sys.argv[1:]:
        problem, models = load(Path(name))
        loss, truth = ValLoss.of(problem), problem.targets[problem.positions("test")]
        for rule, shares_of in RULES.items():
            shares = shares_of([one["val"] for one in models], loss)
            outputs = blend([one["test"] for one in models], shares, "classification")
            right, lost = (outputs.argmax(axis=1) == truth).mean(), log_losses(outputs, truth).mean()
            found[rule].append((100 * float(right), float(lost)))
    rows = {
        rule: {"accuracy": np.round([one[0] for one in each], 1).tolist(), "means": np.round(np.mean(each, axis=0), 3).tolist()}
        for rule, each in found.items()
    }
    say("blend", workspaces=[Path(name).name for name in sys.argv[1:]], **rows)


if __name__ == "__main__":
    main()
