"""The rungs of the ladder: ways of training, in the order in which they bring most for their time, and what each will take.

In: the settings in force, and what was measured on the way. Out: the next rung that fits into the time that is left, or none.
What an option fixes is left as it is. A rung is a set of settings that differ from those in force, so that every rung is an
ordinary training, cached and resumable like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from unchoke.core.settings import Settings
from unchoke.features.cut import BLOCKS, END, is_all_frozen
from unchoke.features.weights_identity import installed_encoders
from unchoke.photos.pixels.tile_grid import plan_tiles

_FEWEST_EPOCHS, _MOST_EPOCHS = 3, 12
_EPOCH_PASSES = {"-4": 0.4, "-8": 0.8}
"""What an epoch of training the last blocks takes, in passes of the whole network over all photos, until one was measured."""
_ENCODER_PASSES = {"tf_efficientnet_lite0": 1.0, "tf_efficientnet_lite1": 1.5, "tf_efficientnet_lite2": 2.1}
_FIXED_S = 8.0
"""What any rung takes before its first photo: an engine is loaded and compared."""
_SPARE = 1.15
"""Estimates are taken for so much more: being done early is better than being late."""


@dataclass(frozen=True)
class Rung:
    """`overrides` are settings that differ from those in force; `expected_s` is what it will take, None for the first."""

    name: str
    overrides: dict[str, Any] = field(default_factory=dict)
    expected_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "overrides": self.overrides, "expected_s": self.expected_s}


@dataclass
class Pace:
    """What things take here: a pass of the first encoder over all photos, and an epoch of the last blocks in passes."""

    pass_s: float
    epoch_passes: dict[str, float] = field(default_factory=lambda: dict(_EPOCH_PASSES))

    def learn(self, rung: Rung, train_s: float) -> None:
        """From a rung that was climbed: later ones are judged by what it really took."""
        cut, epochs = rung.overrides.get("cut", ""), rung.overrides.get("epochs", 0)
        if cut in self.epoch_passes and epochs:
            was = self.epoch_passes[cut]
            self.epoch_passes[cut] = train_s / epochs / (self.pass_s * encoder_passes(rung.overrides.get("encoder")))
            for other in self.epoch_passes:
                if other != cut:
                    self.epoch_passes[other] *= self.epoch_passes[cut] / was


def encoder_passes(encoder: str | None) -> float:
    """How many times as long as the default's a pass of this encoder takes."""
    return _ENCODER_PASSES.get(encoder or "tf_efficientnet_lite0", 1.0)


def first_rung(settings: Settings) -> Rung:
    """Heads on several blocks where nothing was asked for that they cannot do; else what was asked for."""
    if "cut" not in settings.given() and _is_plain(settings):
        return Rung("heads on several blocks", {"cut": BLOCKS})
    return Rung("as asked")


def _is_plain(settings: Settings) -> bool:
    tiles = plan_tiles(streams=settings.streams, tiles=settings.tiles)
    declared = settings.sums or settings.target_weights or settings.positive or settings.input
    return tiles.is_whole and not declared


def next_rung(settings: Settings, climbed: Sequence[Rung], pace: Pace, left_s: float) -> Rung | None:
    """The next one that was not climbed yet and fits into `left_s`; of the last blocks, with as many epochs as fit."""
    names = {rung.name for rung in climbed}
    for name, overrides in _candidates(settings):
        if name in names:
            continue
        passes = encoder_passes(overrides.get("encoder", settings.encoder))
        if is_all_frozen(overrides.get("cut", END)):
            rung = Rung(name, overrides, _SPARE * (_FIXED_S + passes * pace.pass_s))
        else:
            epoch_s = pace.epoch_passes[overrides["cut"]] * passes * pace.pass_s
            room = int((left_s / _SPARE - _FIXED_S - passes * pace.pass_s) / max(epoch_s, 1e-9))
            epochs = min(_MOST_EPOCHS, room)
            if epochs < _FEWEST_EPOCHS:
                continue
            rung = Rung(name, {**overrides, "epochs": epochs}, _SPARE * (_FIXED_S + passes * pace.pass_s + epochs * epoch_s))
        if rung.expected_s is not None and rung.expected_s <= left_s:
            return rung
    return None


def _candidates(settings: Settings) -> list[tuple[str, dict[str, Any]]]:
    given = settings.given()
    free_cut = "cut" not in given and "head" not in given and not settings.sweep
    others = (
        []
        if {"encoder", "weights", "input_px"} & set(given)
        else [name for name in installed_encoders() if name != settings.encoder][-1:]
    )
    found: list[tuple[str, dict[str, Any]]] = []
    if free_cut:
        found.append(("the last 4 blocks", {"cut": "-4"}))
    if _is_plain(settings) and "cut" not in given:
        found += [(f"heads on several blocks of {name}", {"cut": BLOCKS, "encoder": name}) for name in others]
    if free_cut:
        found.append(("the last 8 blocks", {"cut": "-8"}))
        found += [(f"the last 4 blocks of {name}", {"cut": "-4", "encoder": name}) for name in others]
    return found
