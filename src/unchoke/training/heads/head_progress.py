"""How far a training is, in a file (`last.pt`), tied to exactly what is being trained.

In: members and the states of those still in training. Out: the same, after a kill. A file of another problem, other
configurations or other features is put aside with a word, never mixed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from unchoke.core.errors import DataError
from unchoke.core.events import Note, OnEvent
from unchoke.core.fingerprint import digest, digest_bytes
from unchoke.training.checkpoints import load_checkpoint, save_tensors
from unchoke.training.data import FeatureSource, Problem, Standardiser
from unchoke.training.heads.heads import HeadConfig, Params
from unchoke.training.heads.stack import Member

PROGRESS_FORMAT = 1
_KEPT = [field.name for field in fields(Member) if field.name != "config"]


@dataclass(frozen=True)
class SavedProgress:
    """`epoch` epochs are behind us; `states` holds parameters and moments by member index, for members not done."""

    epoch: int
    members: list[Member]
    states: dict[int, dict[str, Params]]


def training_digest(problem: Problem, configs: Sequence[HeadConfig], standardiser: Standardiser, source: FeatureSource) -> str:
    """Changes with the problem, the configurations and (through their mean and deviation) the features."""
    feats = [digest_bytes(standardiser.mean.tobytes()), digest_bytes(standardiser.std.tobytes()), source.num_views]
    return digest([PROGRESS_FORMAT, problem.digest(), [config.to_dict() for config in configs], feats])


def save_progress(path: Path, *, digest: str, epoch: int, members: list[Member], states: dict[int, dict[str, Params]]) -> None:
    """Write the state after `epoch` epochs, atomically."""
    kept = [{name: getattr(member, name) for name in _KEPT} for member in members]
    save_tensors(path, {"format": PROGRESS_FORMAT, "digest": digest, "epoch": epoch, "members": kept, "states": states})


def load_progress(path: Path | None, *, digest: str, configs: Sequence[HeadConfig], on_event: OnEvent) -> SavedProgress:
    """The state in `path` if it belongs to this training, else a fresh one."""
    fresh = SavedProgress(0, [Member(index, config) for index, config in enumerate(configs)], {})
    if path is None or not path.exists():
        return fresh
    content = _read(path, on_event=on_event)
    if content is None:
        return fresh
    if content.get("digest") != digest:
        on_event(Note(f"{path.name} belongs to another training (other data, splits or settings): starting anew"))
        return fresh
    members = [Member(config=configs[kept["index"]], **kept) for kept in content["members"]]
    return SavedProgress(content["epoch"], members, content["states"])


def _read(path: Path, *, on_event: OnEvent) -> dict[str, Any] | None:
    try:
        return load_checkpoint(path)
    except DataError as error:
        on_event(Note(f"{path.name} cannot be read ({error.why}): starting anew", "warning"))
        return None
