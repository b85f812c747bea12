"""What `unchoke encoders` answers: how well plain heads do on each candidate's features, what those cost, and which one to take.

In: scores sample by sample. Out: a choice with its reason, a text and plain values. Nothing here measures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.choices import Choice
from unchoke.core.errors import list_some
from unchoke.core.record import Interval
from unchoke.core.units import format_count
from unchoke.runs.report.encoder_page import encoder_table, format_figure
from unchoke.runs.report.layout import wrap

_SURE = 1.96


@dataclass(frozen=True)
class EncoderScore:
    """One candidate. `points_n` says how well it did on each sample of the comparison: what candidates are compared by."""

    encoder: str
    cut: str
    value: Interval
    log_loss: float | None
    images_per_s: float | None
    photo_bytes: int
    strength: float
    points_n: NDArray[np.float64] = field(repr=False, compare=False)

    @property
    def title(self) -> str:
        return f"{self.encoder}, --cut {self.cut}"

    def to_dict(self) -> dict[str, Any]:
        plain = {name: value for name, value in vars(self).items() if name not in ("value", "points_n")}
        return {**plain, "value": self.value.value, "low": self.value.low, "high": self.value.high}

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> EncoderScore:
        """What `to_dict` gave, with `points` beside it."""
        names = ("encoder", "cut", "log_loss", "images_per_s", "photo_bytes", "strength")
        interval = Interval(kept["value"], kept["low"], kept["high"])
        return cls(**{name: kept[name] for name in names}, value=interval, points_n=np.array(kept["points"], np.float64))


@dataclass(frozen=True)
class EncodersResult:
    """Every candidate that was tried, the best first, and the one to take."""

    figure: str
    """What candidates are judged by: accuracy, r2 or weighted_r2."""
    scores: list[EncoderScore]
    """The candidates, the best first."""
    choice: Choice
    """The one to take, and why."""
    skipped: dict[str, str]
    """Candidates that were not tried, with the reason."""
    constant: float
    """What one constant answer would get: the commonest class, or the mean."""
    num_sampled: int
    """How many photos were compared on."""
    num_photos: int
    """How many photos there are."""
    grouped_by: str
    """The column whose groups stayed whole, if there is one."""
    page: Path
    """The page with the plot."""
    workspace: Path
    """The folder it belongs to."""
    seconds: float
    """How long it took."""
    kept: bool
    """Whether the next `fit` uses the choice."""
    next_command: str
    """The command to go on with."""

    def to_dict(self) -> dict[str, Any]:
        plain = {name: value for name, value in vars(self).items() if name != "scores"}
        places = {"page": str(self.page), "workspace": str(self.workspace)}
        return {**plain, **places, "choice": self.choice.to_dict(), "encoders": [score.to_dict() for score in self.scores]}

    def to_text(self) -> str:
        return render_encoders(self.to_dict())


def choose_encoder(scores: Sequence[EncoderScore], groups: NDArray[np.int64] | None) -> Choice:
    """The fastest of those that cannot be told apart from the best; of one network, the cut that did better."""
    best = max(scores, key=lambda score: _number(score.value.value))
    equal = [score for score in scores if score is best or not is_better(best, score, groups)]
    picked = max(equal, key=lambda score: (score.images_per_s or 0.0, _number(score.value.value)))
    others = [score.title for score in equal if score is not picked]
    reason = "the best here" if picked is best else f"cannot be told apart from the best, {best.title}, and is faster"
    if picked is best and others:
        reason += f", and none is faster of those that may be as good ({list_some(others, limit=2)})"
    return Choice("encoder", f"{picked.encoder}, --cut {picked.cut}", reason, picked.to_dict())


def is_better(score: EncoderScore, other: EncoderScore, groups: NDArray[np.int64] | None) -> bool:
    """Whether the first did better beyond chance on the same samples, samples of one group counting together."""
    gains = score.points_n - other.points_n
    units = np.arange(len(gains)) if groups is None else np.unique(groups, return_inverse=True)[1]
    sums, sizes = np.bincount(units, gains), np.bincount(units)
    mean = float(gains.mean())
    spread = math.sqrt(float(((sums - mean * sizes) ** 2).sum())) / len(gains)
    return mean > _SURE * spread


def render_encoders(result: Mapping[str, Any]) -> str:
    """The table, the choice, and how to go on."""
    figure, percent = result["figure"], result["figure"] == "accuracy"
    about = f"Plain heads, cross-validated on {format_count(int(result['num_sampled']), 'photo')} of {result['num_photos']:,}"
    about += f", groups of {result['grouped_by']} kept whole" if result["grouped_by"] else ""
    constant = "always answering the commonest class" if figure == "accuracy" else "always answering the mean"
    parts = [f"{about}; {constant} gets {format_figure(result['constant'], percent=percent)}."]
    parts.append(encoder_table(result).to_text())
    parts += [wrap(f"{name} was not tried: {reason}", indent="") for name, reason in result["skipped"].items()]
    choice = result["choice"]
    parts.append(wrap(f"Take {choice['value']}: {choice['reason']}.", indent=""))
    kept = "in unchoke.toml, for the next `unchoke fit`" if result["kept"] else ""
    ending = [("plot", result["page"]), ("kept", kept), ("next", result["next_command"])]
    parts.append("\n".join(f"{word}    {text}" for word, text in ending if text))
    return "\n\n".join(parts)


def _number(value: float | None) -> float:
    return -math.inf if value is None else value
