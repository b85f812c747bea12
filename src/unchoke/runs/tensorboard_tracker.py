"""Runs as TensorBoard's event files in the workspace, one folder for each, by torch's own writer.

In: a run and what becomes of it. Out: scalars, hparams and a text. Each stretch of a run adds a file; what earlier ones hold is
read first, with TensorBoard's own reader, which passes over a record that a kill cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke.core import atomic
from unchoke.runs.tracker import End, Figure, TrackedResult, TrackedRun

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_IDENTITY, _RESULT = "identity.txt", "result.txt"
"""Which run a folder is of, and which result of it was written last."""


class TensorboardTracker:
    """One run at a time, in a folder of its name below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.where = f"TensorBoard in {folder}"
        self._own = folder
        self._run: TrackedRun | None = None
        self._writer: SummaryWriter | None = None

    def begin(self, run: TrackedRun) -> dict[str, set[int]]:
        from torch.utils.tensorboard import SummaryWriter

        self._run, self._own = run, self._folder_of(run)
        known = read_steps(self._own)
        self._writer = SummaryWriter(str(self._own))
        atomic.write_text(self._own / _IDENTITY, run.identity)
        return known

    def spell(self, name: str) -> str:
        return name

    def _folder_of(self, run: TrackedRun) -> Path:
        """The folder of its name, unless that is of a run that had the name before: experiments may have been deleted."""
        plain = self._folder / run.name
        mark = plain / _IDENTITY
        other = mark.is_file() and mark.read_text("utf-8") != run.identity
        return plain.with_name(f"{run.name}-{run.identity[:6]}") if other else plain

    def send(self, figures: Sequence[Figure]) -> None:
        writer = self._open()
        for one in figures:
            writer.add_scalar(one.name, one.value, one.step, walltime=one.at_s)
        writer.flush()

    def hand_in(self, result: TrackedResult) -> None:
        from torch.utils.tensorboard.summary import hparams

        assert self._run is not None, "a run was begun"
        mark = self._own / _RESULT
        if mark.is_file() and mark.read_text("utf-8") == result.digest:
            return
        writer: Any = self._open()
        settings = {**self._run.settings, **{f"chosen.{name}": value for name, value in result.choices.items()}}
        for part in hparams(settings, dict(result.figures)):  # type: ignore[no-untyped-call]
            writer._get_file_writer().add_summary(part)  # `add_hparams` would make a run of its own
        writer.add_text("summary", "    " + result.summary.replace("\n", "\n    "))  # indented, as markdown shows text as it is
        writer.flush()
        atomic.write_text(mark, result.digest)

    def end(self, how: End) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def is_away(self, error: Exception) -> bool:
        return False

    def _open(self) -> SummaryWriter:
        assert self._writer is not None, "a run was begun"
        return self._writer


def read_steps(folder: Path) -> dict[str, set[int]]:
    """Which steps of which figures the event files in a folder hold."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    if not folder.is_dir():
        return {}
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}, purge_orphaned_data=False)
    events.Reload()
    return {tag: {one.step for one in events.Scalars(tag)} for tag in events.Tags()["scalars"]}
