"""Weights and training states in files that hold tensors and plain values only.

In: tensors in plain containers, or where a network's training stands. Out: files that load with `torch.load(weights_only=True)`,
written atomically. A file with code in it is refused, not run. A training stands in two files: `last.pt` after some step, and the
weights of the best epoch so far, named after their epoch and training. `last.pt` says which one counts; it is written second and
old ones are removed third, so the two always agree. A file of another training is put aside with a note, never mixed in.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import torch

from unchoke.core import atomic, checksums, listing
from unchoke.core.errors import DamagedFile, DataError, UsageError
from unchoke.core.events import Note, OnEvent
from unchoke.core.tensors import NotTensors, load_tensors


def save_tensors(path: Path, content: dict[str, Any]) -> None:
    """Write tensors and plain containers to `path`, wholly or not at all; the same content gives the same bytes."""
    plain = _canonical(content)

    def write(file: IO[bytes]) -> None:
        try:
            torch.save(plain, file)
        except RuntimeError as error:  # torch hides the system's own error (a full disk, say) behind one of its own
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise

    atomic.write_with(path, write)


def _canonical(value: Any) -> Any:
    """An equal value whose bytes depend on nothing else: pickle writes a string once per object, so equal ones become one."""
    if isinstance(value, dict):
        return {_canonical(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if isinstance(value, str):
        return sys.intern(str(value))
    if isinstance(value, tuple):
        return tuple(_canonical(item) for item in value)
    if isinstance(value, torch.Tensor):  # not a part of something larger, which would be written as a whole
        plain = value.detach().cpu().contiguous()
        return plain if plain.untyped_storage().nbytes() == plain.nbytes else plain.clone()
    return value


def load_checkpoint(path: Path) -> dict[str, Any]:
    """What `save_tensors` wrote, byte for byte. Anything that would need code to load is refused."""
    try:
        checksums.verify(path)
        return load_tensors(path)
    except FileNotFoundError:
        raise UsageError(
            f"there is no file {path}", code="no-such-file", why="weights are read from it", try_="check the path"
        ) from None
    except NotTensors as error:
        raise DataError(
            f"{path} is not a weights file",
            code="bad-weights",
            why=f"only tensors and plain values are loaded, and nothing in a file is ever run ({str(error)[:200]})",
            try_="give a file written by unchoke, or re-save the weights with torch.save(model.state_dict(), FILE)",
        ) from error


CHECKPOINT_FORMAT = 1
State = dict[str, torch.Tensor]


@dataclass
class TrainingProgress:
    """How far a training is: `step` steps of `epoch` are behind us. `curve` has one row for each finished epoch."""

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    num_seen: int = 0
    curve: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0
    best_metric: float | None = None
    best_loss: float | None = None
    finished: bool = False

    def is_better(self, metric: float, loss: float) -> bool:
        """Ties go to the lower loss, then to the earlier epoch."""
        if self.best_metric is None or self.best_loss is None:
            return True
        return (metric, -loss) > (self.best_metric, -self.best_loss)


def _fault(file: Path) -> str:
    """Why a file of weights cannot be gone on with; empty for a sound one."""
    if not file.exists():
        return "gone"
    try:
        checksums.verify(file)
    except DamagedFile as error:
        return f"damaged ({error.why})"
    return "" if zipfile.is_zipfile(file) else "damaged (the file is not whole)"


class Checkpoints:
    """The checkpoints of one training in `folder`, tied to `digest`; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, *, digest: str, on_event: OnEvent) -> None:
        self._folder = folder
        self._digest = digest
        self._on_event = on_event
        self._held: tuple[int, State] | None = None

    def save(self, standing: TrainingProgress, pieces: Mapping[str, Any]) -> None:
        """Write the best weights if they are not yet written, then `last.pt`, then remove best weights it no longer names."""
        if self._folder is None:
            return
        if self._held is not None:
            self.save_best(*self._held)
        content = {"format": CHECKPOINT_FORMAT, "digest": self._digest, "standing": asdict(standing), "pieces": dict(pieces)}
        save_tensors(self._folder / "last.pt", content)
        for name in listing.names(self._folder, prefix="best-", suffix=".pt"):
            if name != self._best_name(standing.best_epoch):
                (self._folder / name).unlink(missing_ok=True)

    def load(self) -> tuple[TrainingProgress, dict[str, Any] | None]:
        """The saved standing and pieces, or a fresh standing and None."""
        if self._folder is None or not (self._folder / "last.pt").exists():
            return TrainingProgress(), None
        try:
            content = load_checkpoint(self._folder / "last.pt")
        except DataError as error:
            self._on_event(Note(f"last.pt cannot be read ({error.why}): starting anew", "warning"))
            return TrainingProgress(), None
        if content.get("digest") != self._digest or content.get("format") != CHECKPOINT_FORMAT:
            self._on_event(Note("last.pt belongs to another training (other data, splits or settings): starting anew"))
            return TrainingProgress(), None
        standing = TrainingProgress(**content["standing"])
        if standing.best_epoch and (fault := _fault(self._folder / self._best_name(standing.best_epoch))):
            self._on_event(Note(f"the best weights so far are {fault}: starting anew", "warning"))
            return TrainingProgress(), None
        return standing, content["pieces"]

    def hold_best(self, epoch: int, state: State) -> None:
        """Keep a copy of the weights of `epoch` in memory until `save` writes them."""
        self._held = epoch, {name: value.detach().cpu().clone() for name, value in state.items()}

    def save_best(self, epoch: int, state: State) -> None:
        """Write the weights of `epoch` now; they count once `save` has named them."""
        if self._folder is None:
            self.hold_best(epoch, state)
            return
        save_tensors(self._folder / self._best_name(epoch), {"state": state})
        self._held = None

    def load_best(self, epoch: int) -> State:
        if self._held is not None and self._held[0] == epoch:
            return self._held[1]
        if self._folder is None:
            raise ValueError(f"the weights of epoch {epoch} were never kept")
        state: State = load_checkpoint(self._folder / self._best_name(epoch))["state"]
        return state

    def _best_name(self, epoch: int) -> str:
        return f"best-{epoch:04d}-{self._digest[:8]}.pt"
