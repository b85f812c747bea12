"""The stages of `--minutes`: ways of training, in the order in which they bring most for their time, and what each will take.

In: the settings in force, and what was measured on the way. Out: the next stage that fits into the time that is left, or none.
What an option fixes is left as it is; epochs that nobody typed are as many as fit. A stage (a `Rung`) is a set of settings that
differ from those in force, so that it is an ordinary training, cached and resumable like any other. A trained one
is kept below `experiments/rungs`, in a folder named by everything it depends on; `rung.json` is written last, with checksums.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic, checksums
from unchoke.core.errors import DamagedFile
from unchoke.core.fingerprint import digest_file
from unchoke.core.settings import Settings
from unchoke.core.units import format_seconds
from unchoke.features.cut import BLOCKS, is_all_frozen
from unchoke.features.weights_identity import weights_package
from unchoke.pixels.tile_grid import plan_tiles
from unchoke.training.build_record import TrainingOutcome

_MIN_EPOCHS, _MAX_EPOCHS = 2, 12
_FIXED_S = 8.0
"""What any rung takes before its first photo: an engine is loaded and compared."""
_SPARE = 1.15
"""Estimates are multiplied by this: being done early is better than being late."""
_MIN_LATE, _MAX_LATE = 0.7, 3.0
Overrides = dict[str, Any]


@dataclass(frozen=True)
class Rung:
    """`overrides` are settings that differ from those in force; `expected_s` is what it will take, None for the first."""

    name: str
    overrides: Overrides = field(default_factory=dict)
    expected_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "overrides": self.overrides, "expected_s": self.expected_s}


@dataclass
class Pace:
    """What things take here: a pass of the first encoder over all photos, and an epoch with other settings, measured when it is
    first asked for.
    """

    pass_s: float
    measure_epoch_s: Callable[[Overrides], float]
    others: Sequence[tuple[Overrides, float]] = ()
    """Other encoders that may be tried, and how many times as long as the first one's a pass of each takes."""
    late: float = 1.0
    """How many times as long as measured the epochs of the last rung took."""
    _epochs_s: dict[str, float] = field(default_factory=dict)

    def passes(self, overrides: Overrides) -> float:
        return next((cost for one, cost in self.others if one["encoder"] == overrides.get("encoder")), 1.0)

    def epoch_s(self, overrides: Overrides) -> float:
        wanted = {name: value for name, value in overrides.items() if name != "epochs"}
        key = str(sorted(wanted.items()))
        if key not in self._epochs_s:
            self._epochs_s[key] = self.measure_epoch_s(wanted)
        return self.late * self._epochs_s[key]

    def learn(self, rung: Rung, train_s: float) -> None:
        """From a rung that was climbed: later ones are judged by what it really took."""
        if epochs := rung.overrides.get("epochs"):
            expected_s = epochs * self.epoch_s(rung.overrides) / self.late
            self.late = min(max(train_s / max(expected_s, 1e-9), _MIN_LATE), _MAX_LATE)


def first_rung(settings: Settings) -> Rung:
    """Heads on several blocks, also where blocks are to be trained; where something was declared that heads cannot do, what was
    asked for.
    """
    if not _is_plain(settings):
        return Rung("as asked")
    asked: Overrides = {} if is_all_frozen(settings.cut) else {"augment": None, "epochs": Settings().epochs}
    return Rung("heads on several blocks", {"cut": BLOCKS, **asked})


def _is_plain(settings: Settings) -> bool:
    tiles = plan_tiles(streams=settings.streams, tiles=settings.tiles)
    declared = settings.sums or settings.target_weights or settings.positive or settings.input
    return tiles.is_whole and not declared


def next_rung(
    settings: Settings,
    climbed: Sequence[Rung],
    pace: Pace,
    left_s: float,
    kept: Callable[[Rung], Rung | None] = lambda _: None,
) -> Rung | None:
    """The next one that was not climbed yet and fits into `left_s`; of the last blocks, with as many epochs as fit.

    `kept` knows whether a ladder before this one climbed a rung, and what it took: then that is gone on from.
    """
    names = {rung.name for rung in climbed}
    for name, overrides in _candidates(settings, pace):
        if name in names:
            continue
        variants = _variants(name, overrides, settings)
        rung = next(filter(None, map(kept, variants)), None) or _planned(name, overrides, settings, pace, left_s)
        if rung is not None and rung.expected_s is not None and rung.expected_s <= left_s:
            return rung
    return None


def what_is_left(settings: Settings, climbed: Sequence[Rung], pace: Pace, left_s: float) -> str:
    """Why no further stage is tried."""
    names = {rung.name for rung in climbed}
    left = [name for name, _ in _candidates(settings, pace) if name not in names]
    if not left:
        return "everything there is to try was tried"
    more = f", or any of {len(left) - 1} more," if len(left) > 1 else ""
    return f"{left[0]}{more} would not fit into {format_seconds(max(0.0, left_s))}"


def _variants(name: str, overrides: Overrides, settings: Settings) -> list[Rung]:
    """The rungs that a way of training may be, the longest first."""
    if is_all_frozen(overrides["cut"]) or "epochs" in settings.given():
        return [Rung(name, overrides)]
    return [Rung(name, {**overrides, "epochs": epochs}) for epochs in range(_MAX_EPOCHS, _MIN_EPOCHS - 1, -1)]


def _planned(name: str, overrides: Overrides, settings: Settings, pace: Pace, left_s: float) -> Rung | None:
    """A way of training with as many epochs as fit into `left_s`, or those asked for; None where too few do."""
    before_s = _FIXED_S + pace.passes(overrides) * (1 + settings.views) * pace.pass_s
    if is_all_frozen(overrides["cut"]):
        return Rung(name, overrides, _SPARE * before_s)
    if _SPARE * before_s > left_s:
        return None  # nor need an epoch be measured
    epoch_s = pace.epoch_s(overrides)
    if "epochs" in settings.given():
        return Rung(name, overrides, _SPARE * (before_s + settings.epochs * epoch_s))
    epochs = min(_MAX_EPOCHS, int((left_s / _SPARE - before_s) / max(epoch_s, 1e-9)))
    if epochs < _MIN_EPOCHS:
        return None
    return Rung(name, {**overrides, "epochs": epochs}, _SPARE * (before_s + epochs * epoch_s))


def _candidates(settings: Settings, pace: Pace) -> list[tuple[str, Overrides]]:
    """Ways of training: heads of every encoder, then blocks, of the most promising other encoder too."""
    given, plain = settings.given(), _is_plain(settings)
    if not is_all_frozen(settings.cut):
        return [(f"--cut {settings.cut}", {"cut": settings.cut})] if plain else []
    others = [one for one, _ in pace.others] if plain else []
    found: list[tuple[str, Overrides]] = [
        (f"heads on several blocks of {one['encoder']}", {"cut": BLOCKS, **one}) for one in others
    ]
    if "head" not in given and not settings.sweep:
        found.append(("the last 4 blocks", {"cut": "-4"}))
        can_be_cut = [one for one in others if not one["encoder"].startswith("tiny_vit")]
        best = [one for one in can_be_cut if weights_package(one["encoder"]) is None] or can_be_cut
        found += [(f"the last 4 blocks of {one['encoder']}", {"cut": "-4", **one}) for one in best[-1:]]
        found.append(("the last 8 blocks", {"cut": "-8"}))
    return found


FOLDER = "rungs"
MODEL_FILE, OUTPUTS_FILE, ABOUT_FILE = "model.pt", "outputs.npz", "rung.json"


@dataclass(frozen=True, eq=False)
class KeptRung:
    """`seconds` are those of the whole rung; `kind` says what the model file holds: a head, or a network."""

    rung: Rung
    folder: Path
    kind: str
    seconds: float
    extract_s: float
    train_s: float
    outputs: dict[str, NDArray[np.float32]]

    @property
    def model_file(self) -> Path:
        return self.folder / MODEL_FILE


def keep_rung(
    rung: Rung, folder: Path, outcome: TrainingOutcome, extra: dict[str, Any], *, seconds: float, extract_s: float, train_s: float
) -> KeptRung:
    """Write what a rung gave; its checkpoints are no longer needed."""
    outcome.save(folder / MODEL_FILE, extra)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **outcome.outputs)
    atomic.write_bytes(folder / OUTPUTS_FILE, buffer.getvalue())
    kind = "network" if "training" in outcome.about else "head"
    about = {
        **rung.to_dict(),
        "folder": folder.name,
        "kind": kind,
        "seconds": round(seconds, 3),
        "extract_s": round(extract_s, 3),
        "train_s": round(train_s, 3),
        "sha256": {name: digest_file(folder / name) for name in (MODEL_FILE, OUTPUTS_FILE)},
    }
    checksums.save_checked_json(folder / ABOUT_FILE, about)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return KeptRung(rung, folder, kind, seconds, extract_s, train_s, outcome.outputs)


def recall_rung(rung: Rung, folder: Path, warn: Callable[[str], object]) -> KeptRung | None:
    """The rung in `folder` if it was climbed to the end and all its files are as they were written."""
    if not (folder / ABOUT_FILE).exists():
        return None
    about = checksums.recall_json(folder / ABOUT_FILE, warn)
    try:
        sound = about and about.get("folder") == folder.name
        sound = sound and all(digest_file(folder / name) == sha256 for name, sha256 in about["sha256"].items())
    except OSError as error:
        raise DamagedFile(
            f"{error.filename} cannot be read", code="stage-gone", why=str(error), try_=f"delete {folder}"
        ) from error
    if not sound:
        warn(f"{folder} is not as it was written: {rung.name} is trained anew")
        shutil.rmtree(folder)
        return None
    with np.load(folder / OUTPUTS_FILE, allow_pickle=False) as arrays:
        outputs = {name: arrays[name] for name in arrays.files}
    return KeptRung(rung, folder, about["kind"], about["seconds"], about["extract_s"], about["train_s"], outputs)
