"""`unchoke tune`: try the tricks on this machine, model and data; keep what is equal and faster.

In: DATA and the options of a training. Out: a `TuneResult`, and the verdicts in `[tuned]` of `unchoke.toml`, where `train`, `fit`
and `extract` find them. What is frozen is timed from files to features, what trains in real steps; each switch is held against
the way things are done now, in turns, on a sample of the user's pictures. It takes at most the minutes it is given.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke.core.atomic import TEMPORARY_PREFIX, TEMPORARY_SUFFIX
from unchoke.core.events import OnEvent
from unchoke.core.setting_values import refuse_number
from unchoke.core.settings import Settings, typed_options
from unchoke.core.tuned import TuningVerdicts, Verdict, load_verdicts, model_name, save_verdicts
from unchoke.core.units import format_count
from unchoke.core.workspace import out_option
from unchoke.runs.session import Session, open_session
from unchoke.tuning.compare import Deadline
from unchoke.tuning.switches import SET, Switch
from unchoke.tuning.tune_result import TunedPart, TuneResult, in_order

if TYPE_CHECKING:
    from unchoke.features.encoders import Encoder
    from unchoke.training.network.photo_job import SourceSpec
    from unchoke.tuning.tune_data import Sample
    from unchoke.tuning.tune_trials import TuneTask

_FROZEN_SHARE = 0.4
"""Of the time, where a part trains as well."""
_FROZEN, _TRAINED = "the frozen part", "training"


def tune(
    data: str | Path | None = None,
    *,
    minutes: float = 2.0,
    again: bool = False,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    dry_run: bool = False,
    **options: Any,
) -> TuneResult:
    """Try the tricks on this machine, model and data; keep what is equal and faster. `train` and `fit` use what was kept.

    Args:
        data: Class folders, or a CSV or Parquet table. Left out, what this workspace was made for.
        minutes: How long it may take, at most.
        again: Try everything anew, also what was tried here before.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.
        dry_run: Say what would be tried, and try nothing.

    Returns:
        A verdict on every switch, with what was measured.

    Example:
        >>> unchoke.tune(out="work", cut="none", dry_run=True).dry_run
        True
    """
    refuse_number("--minutes", minutes, example="2")
    deadline = Deadline(60 * minutes)
    typed = {"data": data, **options}
    with open_session(typed, out=out, on_event=on_event, remembering=not dry_run) as session:
        tuning = _Tuning(session, deadline, dry_run=dry_run)
        parts = tuning.run(again=again)
        command = shlex.join(["unchoke", "train", *typed_options(typed)]) + out_option(session.workspace.root)
        return TuneResult(
            tuned=tuning.tuned,
            parts=parts,
            workspace=session.workspace.root,
            seconds=deadline.spent_s,
            minutes=minutes,
            next_command=command,
            notes=tuning.notes,
            already_done=tuning.already_done,
            dry_run=dry_run,
        )


class _Tuning:
    """One command at work."""

    def __init__(self, session: Session, deadline: Deadline, *, dry_run: bool) -> None:
        self._session, self._deadline, self._dry_run = session, deadline, dry_run
        self._earlier: dict[str, Verdict] = {}
        self.tuned = TuningVerdicts(model_name(session.settings), session.settings.data, found_on=session.found_on)
        self.notes: list[str] = []
        self.already_done = False

    def run(self, *, again: bool) -> list[TunedPart]:
        from unchoke.training.inputs import refuse_unused, trains_network
        from unchoke.tuning.tune_data import take_sample

        session = self._session
        refuse_unused(session.settings)
        before = None if again else self._still_holds()
        if before is not None and not any(_left_over(one, session.settings) for one in before.verdicts.values()):
            self.tuned, self.already_done = before, True
            return [TunedPart("what was found", "images", in_order(before.verdicts))]
        self._earlier = {name: one for name, one in before.verdicts.items() if one.verdict != "not tried"} if before else {}
        with session.stage("sample", "pictures to try things on"):
            sample = take_sample(session)
        if sample.num_unreadable:
            self.notes.append(f"{format_count(sample.num_unreadable, 'picture')} could not be read and played no part")
        self.notes += _busy(session.machine.cores)
        session.remember_settings()
        with self._folder() as folder:
            parts = self._tune(sample, folder, trains=trains_network(session.settings))
        self.tuned = replace(self.tuned, date=date.today().isoformat())
        if not self._dry_run:
            save_verdicts(session.workspace, self.tuned)
        return parts

    def _still_holds(self) -> TuningVerdicts | None:
        """What earlier trials said, as long as nothing changed since."""
        session = self._session
        found = load_verdicts(session.workspace, session.settings)
        if found is not None and (changed := found.outdated(session.found_on, session.settings.data)):
            session.warn(f"everything is tried again: {changed}")
            return None
        return found

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """A folder on the workspace's disk for what trials write; one left by a kill is swept by the next command."""
        root = self._session.workspace.root
        with tempfile.TemporaryDirectory(dir=root, prefix=TEMPORARY_PREFIX, suffix=TEMPORARY_SUFFIX) as name:
            yield Path(name)

    def _tune(self, sample: Sample, folder: Path, *, trains: bool) -> list[TunedPart]:
        """The frozen part, if there is one, then the part that trains."""
        from unchoke.features.cut import NONE
        from unchoke.features.prepare_engine import open_encoder
        from unchoke.tuning.tune_data import pixel_source

        session = self._session
        with session.stage("engine", session.settings.encoder):
            encoder = open_encoder(session)
        if session.settings.cut == NONE:
            return [self._trained(sample, encoder, pixel_source(session, sample, encoder), folder)]
        part, source = self._frozen(sample, encoder, folder, trains=trains)
        if trains:
            return [part, self._trained(sample, encoder, source, folder)]
        self.notes.append("heads train on cached vectors, all of them together in seconds: there is nothing to tune about that")
        return [part]

    def _frozen(self, sample: Sample, encoder: Encoder, folder: Path, *, trains: bool) -> tuple[TunedPart, SourceSpec]:
        """The part before the cut, and what it gives the part that trains."""
        import numpy as np

        from unchoke.features.prepare_engine import OF_PICTURES, wanted_labels
        from unchoke.features.recipe import FULL
        from unchoke.tuning.bouts import HeldActivations
        from unchoke.tuning.switches import frozen_switches
        from unchoke.tuning.tune_data import quiet
        from unchoke.tuning.tune_frozen import FrozenSetup, FrozenWork
        from unchoke.tuning.tune_trials import planned, tune_part

        session, silent = self._session, quiet(self._session)
        work, labels = FrozenWork.of(silent, encoder, sample.pictures, folder), wanted_labels(silent, OF_PICTURES)

        def switches(now: FrozenSetup) -> list[Switch]:
            return frozen_switches(session.settings, now, work, labels)

        if self._dry_run:
            before = FrozenSetup.usual(silent.policy, labels[0])
            return planned(_FROZEN, "images", before, switches(before)), HeldActivations(np.zeros((1, 1), np.float16))
        self._say_if_begun(work.part)
        with session.stage("tune", _FROZEN):
            before = work.first_that_agrees(labels)
            plain = replace(FrozenSetup.usual(silent.policy, "torch:f32"), decode_scale=FULL)
            task = self._task(_FROZEN, self._deadline.share(_FROZEN_SHARE) if trains else self._deadline)
            part, verdicts = tune_part(task, work, before, plain, switches)
        self._keep(verdicts)
        return part, work.held()

    def _say_if_begun(self, part: Encoder) -> None:
        from unchoke.features.prepare_engine import OF_PICTURES, kept_choice

        kept = kept_choice(self._session, part, OF_PICTURES)
        if kept is not None:
            begun = f"the features of this workspace were begun with {kept['value']} and stay as they are"
            self.notes.append(f"{begun}: what is kept of the frozen part is used where features are begun anew")

    def _trained(self, sample: Sample, encoder: Encoder, source: SourceSpec, folder: Path) -> TunedPart:
        """The part that trains."""
        from unchoke.tuning.switches import train_switches
        from unchoke.tuning.tune_data import circumstances, training_job
        from unchoke.tuning.tune_training import TrainSetup, TrainWork, attempt_apart
        from unchoke.tuning.tune_trials import planned, tune_part

        session = self._session
        job = training_job(session, sample, encoder, source)
        before, about = TrainSetup.of(job), circumstances(session, sample, encoder, job)
        if self._dry_run:
            return planned(_TRAINED, "images", before, train_switches(session.settings, before, about))
        with session.stage("tune", _TRAINED):
            work = TrainWork(job, num_judged=sample.num_val, folder=folder)

            def switches(now: TrainSetup) -> list[Switch]:
                return train_switches(session.settings, now, replace(about, largest_step=work.batch_size))

            plain = before.plain(job.loop.batch_size)
            task = self._task(_TRAINED, self._deadline, num_samples=session.settings.epochs * sample.num_train)
            part, verdicts = tune_part(task, work, before, plain, switches, apart=partial(attempt_apart, work))
        self._keep(verdicts)
        return part

    def _task(self, name: str, deadline: Deadline, *, num_samples: int = 0) -> TuneTask:
        from unchoke.tuning.tune_trials import TuneTask

        session = self._session
        earlier = tuple(self._earlier.values())
        return TuneTask(name, "images", deadline, session.on_event, session.warn, earlier, num_samples)

    def _keep(self, verdicts: dict[str, Verdict]) -> None:
        self.tuned = replace(self.tuned, verdicts={**self.tuned.verdicts, **verdicts})


def _busy(cores: int) -> list[str]:
    """A word where others use the machine as well: what is measured then is wide of the mark, or cannot be told apart."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load < cores:
        return []
    return [f"the machine is busy (load {load:.1f} on {format_count(cores, 'core')}): on a quiet one more would be found out"]


def _left_over(verdict: Verdict, settings: Settings) -> bool:
    """Whether there is something to try that there was no time for, or that was set then and is not now."""
    if verdict.verdict != "not tried":
        return False
    return verdict.value is not None or (verdict.reason.startswith(SET) and getattr(settings, verdict.switch, None) is None)
