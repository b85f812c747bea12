"""`unchoke tune`: try the tricks on this machine, model and data; keep what is equal and faster.

In: DATA and the options of a training. Out: a `TuneResult`, and the verdicts in `[tuned]` of `unchoke.toml`, where `train`, `fit`
and `extract` find them. What is frozen is timed from files to features, what trains in real steps; each switch is held against
the way things are done now, in turns, on a sample of the user's pictures. It takes at most the minutes it is given.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke.core.atomic import TEMPORARY_PREFIX, TEMPORARY_SUFFIX
from unchoke.core.events import OnEvent
from unchoke.core.setting_values import refuse_number
from unchoke.core.settings import Settings, typed_options
from unchoke.core.tuned import TuningVerdicts, Verdict, load_verdicts, model_name, save_verdicts
from unchoke.core.units import format_count
from unchoke.core.workspace import out_option
from unchoke.features.cut import NONE
from unchoke.runs.session import Session, open_session
from unchoke.training.inputs import refuse_unused, trains_network
from unchoke.tuning.switches import SET
from unchoke.tuning.trials import Deadline, PartTuner, Switch, planned
from unchoke.tuning.tune_result import TunedPart, TuneResult

if TYPE_CHECKING:
    from unchoke.features.encoders import Encoder
    from unchoke.training.network.photo_job import SourceSpec
    from unchoke.tuning.tune_data import Sample

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
        refuse_unused(session.settings)
        earlier = None if again else _still_holds(session)
        already_done = earlier is not None and not any(_is_open(one, session.settings) for one in earlier.verdicts.values())
        notes: list[str] = []
        if earlier is not None and already_done:
            tuned = earlier
            by_verdict = sorted(earlier.verdicts.values(), key=lambda one: ("kept", "refused", "not tried").index(one.verdict))
            parts = [TunedPart("what was found", by_verdict)]
        else:
            decided = [one for one in earlier.verdicts.values() if one.verdict != "not tried"] if earlier else []
            parts = _Tuning(session, deadline, decided, notes, dry_run=dry_run).run()
            verdicts = {name: one for part in parts for name, one in part.verdicts().items()}
            found_on, today = session.found_on, date.today().isoformat()
            tuned = TuningVerdicts(model_name(session.settings), session.settings.data, today, found_on, verdicts)
            if not dry_run:
                save_verdicts(session.workspace, tuned)
        return TuneResult(
            tuned=tuned,
            parts=parts,
            workspace=session.workspace.root,
            seconds=deadline.spent_s,
            minutes=minutes,
            next_command=shlex.join(["unchoke", "train", *typed_options(typed)]) + out_option(session.workspace.root),
            notes=notes,
            already_done=already_done,
            dry_run=dry_run,
        )


def _still_holds(session: Session) -> TuningVerdicts | None:
    """What earlier trials said, as long as nothing changed since."""
    found = load_verdicts(session.workspace, session.settings)
    if found is not None and (changed := found.outdated(session.found_on, session.settings.data)):
        session.warn(f"everything is tried again: {changed}")
        return None
    return found


def _is_open(verdict: Verdict, settings: Settings) -> bool:
    """Whether there is something to try that there was no time for, or that was set then and is not now."""
    if verdict.verdict != "not tried":
        return False
    return verdict.value is not None or (verdict.reason.startswith(SET) and getattr(settings, verdict.switch, None) is None)


@dataclass
class _Tuning:
    """One command at work. `earlier` are verdicts that still hold; `notes` is what a reader should know beside the result."""

    session: Session
    deadline: Deadline
    earlier: Sequence[Verdict]
    notes: list[str]
    dry_run: bool

    def run(self) -> list[TunedPart]:
        """The frozen part, if there is one, then the part that trains."""
        from unchoke.features.prepare_engine import open_encoder
        from unchoke.tuning.tune_data import pixel_source, take_sample

        session, notes = self.session, self.notes
        with session.stage("sample", "pictures to try things on"):
            sample = take_sample(session)
        if sample.num_unreadable:
            notes.append(f"{format_count(sample.num_unreadable, 'picture')} could not be read and played no part")
        load, cores = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0, session.machine.cores
        if load >= cores:
            busy = f"the machine is busy (load {load:.1f} on {format_count(cores, 'core')})"
            notes.append(f"{busy}: on a quiet one more would be found out")
        session.remember_settings()
        # Trials write on the workspace's disk; a folder left by a kill is swept by the next command.
        place = tempfile.TemporaryDirectory(dir=session.workspace.root, prefix=TEMPORARY_PREFIX, suffix=TEMPORARY_SUFFIX)
        with place as name:
            with session.stage("engine", session.settings.encoder):
                encoder = open_encoder(session)
            if session.settings.cut == NONE:
                return [self.training(sample, encoder, pixel_source(session, sample, encoder), Path(name))]
            trains = trains_network(session.settings)
            part, source = self.frozen(sample, encoder, Path(name), trains=trains)
            if trains:
                return [part, self.training(sample, encoder, source, Path(name))]
        notes.append("heads train on cached vectors, all of them together in seconds: there is nothing to tune about that")
        return [part]

    def frozen(self, sample: Sample, encoder: Encoder, folder: Path, *, trains: bool) -> tuple[TunedPart, SourceSpec]:
        """The part before the cut, and what it gives the part that trains."""
        import numpy as np

        from unchoke.features.prepare_engine import OF_PICTURES, kept_choice, wanted_labels
        from unchoke.features.recipe import FULL
        from unchoke.tuning.switches import frozen_switches
        from unchoke.tuning.tune_data import quiet
        from unchoke.tuning.tune_frozen import FrozenSetup, FrozenWork
        from unchoke.tuning.tune_training import HeldActivations

        session, silent = self.session, quiet(self.session)
        work, labels = FrozenWork.of(silent, encoder, sample.pictures, folder), wanted_labels(silent, OF_PICTURES)

        def switches(now: FrozenSetup) -> list[Switch]:
            return frozen_switches(session.settings, now, work, labels)

        if self.dry_run:
            before = FrozenSetup.usual(silent.policy, labels[0])
            return planned(_FROZEN, before, switches(before)), HeldActivations(np.zeros((1, 1), np.float16))
        if (begun := kept_choice(session, work.part, OF_PICTURES)) is not None:
            stays = f"the features of this workspace were begun with {begun['value']} and stay as they are"
            self.notes.append(f"{stays}: what is kept of the frozen part is used where features are begun anew")
        with session.stage("tune", _FROZEN):
            before = work.first_that_agrees(labels)
            plain = replace(FrozenSetup.usual(silent.policy, "torch:f32"), decode_scale=FULL)
            deadline = self.deadline.share(_FROZEN_SHARE) if trains else self.deadline
            tuner = PartTuner(
                _FROZEN, work, deadline=deadline, on_event=session.on_event, warn=session.warn, earlier=self.earlier
            )
            return tuner.run(before, plain, switches), work.held()

    def training(self, sample: Sample, encoder: Encoder, source: SourceSpec, folder: Path) -> TunedPart:
        """The part that trains."""
        from unchoke.tuning.switches import train_switches
        from unchoke.tuning.tune_data import circumstances, training_job
        from unchoke.tuning.tune_training import TrainSetup, TrainWork

        session = self.session
        job = training_job(session, sample, encoder, source)
        before, about = TrainSetup.of(job), circumstances(session, sample, encoder, job)
        if self.dry_run:
            return planned(_TRAINED, before, train_switches(session.settings, before, about))
        with session.stage("tune", _TRAINED):
            work = TrainWork(job, folder=folder)
            tuner = PartTuner(
                _TRAINED,
                work,
                deadline=self.deadline,
                on_event=session.on_event,
                warn=session.warn,
                earlier=self.earlier,
                num_samples=session.settings.epochs * sample.num_train,
                apart=work.attempt_apart,
            )
            return tuner.run(
                before,
                before.plain(job.loop.batch_size),
                lambda now: train_switches(session.settings, now, about, largest_step=work.batch_size),
            )
