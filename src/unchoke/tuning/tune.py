"""`unchoke tune`: try the tricks on this machine, model and data; keep what is equal and faster.

In: DATA and the options of a training. Out: a `TuneResult`, and the verdicts in `[tuned]` of `unchoke.toml`, where `train`, `fit`
and `extract` find them. What is frozen is timed from files to features, what trains in real steps; each switch is held against
the way things are done now, in turns, on a sample of the user's pictures. It takes at most the minutes it is given.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke.core.atomic import TEMPORARY_PREFIX, TEMPORARY_SUFFIX
from unchoke.core.events import OnEvent
from unchoke.core.setting_values import refuse_number
from unchoke.core.settings import typed_options
from unchoke.core.tuned import TuningVerdicts, Verdict, load_verdicts, model_name, save_verdicts
from unchoke.core.units import format_count
from unchoke.core.workspace import out_option
from unchoke.features.cut import NONE
from unchoke.machine.detect import load_per_core
from unchoke.runs.session import Session, open_session
from unchoke.training.inputs import refuse_unused, trains_network
from unchoke.tuning.switches import SET, frozen_switches, train_switches
from unchoke.tuning.trials import Deadline, PartTuner, untried
from unchoke.tuning.tune_result import TunedPart, TuneResult

if TYPE_CHECKING:
    from unchoke.features.encoders import Encoder
    from unchoke.training.network.photo_job import SourceSpec
    from unchoke.tuning.tune_data import Sample

_FROZEN_SHARE = 0.4
"""Of the time, where a part trains as well."""
_FROZEN, _TRAINED, _PLANNED = "the frozen part", "training", "would be tried"
_ORDER = ("kept", "refused", "not tried")


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
    deadline, typed = Deadline(60 * minutes), {"data": data, **options}
    with open_session(typed, out=out, on_event=on_event, remembering=not dry_run) as session:
        settings, workspace, notes = session.settings, session.workspace, list[str]()
        refuse_unused(settings)
        known = None if again else load_verdicts(workspace, settings)
        if known is not None and (changed := known.outdated(session.found_on, settings.data)):
            session.warn(f"everything is tried again: {changed}")
            known = None

        def is_open(one: Verdict) -> bool:
            """Whether there is something to try that there was no time for, or that was set then and is not now."""
            was_set = one.reason.startswith(SET) and getattr(settings, one.switch, None) is None
            return one.verdict == "not tried" and (one.value is not None or was_set)

        done = known is not None and not any(map(is_open, known.verdicts.values()))
        if known is not None and done:
            tuned = known
            parts = [TunedPart("what was found", sorted(known.verdicts.values(), key=lambda one: _ORDER.index(one.verdict)))]
        else:
            decided = [one for one in known.verdicts.values() if one.verdict != "not tried"] if known else []
            parts = _tune_parts(session, deadline, decided, notes, dry_run=dry_run)
            verdicts = {name: one for part in parts for name, one in part.verdicts().items()}
            tuned = TuningVerdicts(model_name(settings), settings.data, date.today().isoformat(), session.found_on, verdicts)
            if not dry_run:
                save_verdicts(workspace, tuned)
        next_command = shlex.join(["unchoke", "train", *typed_options(typed)]) + out_option(workspace.root)
        spent_s = deadline.total_s - deadline.left_s
        return TuneResult(tuned, parts, workspace.root, spent_s, minutes, next_command, notes, done, dry_run)


def _tune_parts(
    session: Session, deadline: Deadline, earlier: Sequence[Verdict], notes: list[str], *, dry_run: bool
) -> list[TunedPart]:
    """The frozen part, if there is one, then the part that trains. `earlier` are verdicts that still hold."""
    from unchoke.features.prepare_engine import open_encoder
    from unchoke.tuning.tune_data import pixel_source, take_sample

    with session.stage("sample", "pictures to try things on"):
        sample = take_sample(session)
    if sample.num_unreadable:
        notes.append(f"{format_count(sample.num_unreadable, 'picture')} could not be read and played no part")
    if (load := load_per_core()) >= 1:
        notes.append(f"the machine is busy (load {load:.1f} for each core): on a quiet one more would be found out")
    session.remember_settings()
    # Trials write on the workspace's disk; a folder left by a kill is swept by the next command.
    place = tempfile.TemporaryDirectory(dir=session.workspace.root, prefix=TEMPORARY_PREFIX, suffix=TEMPORARY_SUFFIX)
    with place as name:
        folder, parts = Path(name), list[TunedPart]()
        with session.stage("engine", session.settings.encoder):
            encoder = open_encoder(session)
        trains, cut = trains_network(session.settings), session.settings.cut
        if cut == NONE:
            source: SourceSpec = pixel_source(session, sample, encoder)
        else:
            limit = deadline.share(_FROZEN_SHARE) if trains else deadline
            part, source = _tune_frozen(session, sample, encoder, folder, limit, earlier, notes, dry_run=dry_run)
            parts.append(part)
        if trains or cut == NONE:
            parts.append(_tune_training(session, sample, encoder, source, folder, deadline, earlier, dry_run=dry_run))
        else:
            notes.append("heads train on cached vectors, all of them together in seconds: there is nothing to tune about that")
    return parts


def _tune_frozen(
    session: Session,
    sample: Sample,
    encoder: Encoder,
    folder: Path,
    deadline: Deadline,
    earlier: Sequence[Verdict],
    notes: list[str],
    *,
    dry_run: bool,
) -> tuple[TunedPart, SourceSpec]:
    """The part before the cut, and what it gives the part that trains."""
    import numpy as np

    from unchoke.features.prepare_engine import OF_PICTURES, kept_choice, wanted_labels
    from unchoke.features.recipe import FULL
    from unchoke.tuning.tune_data import quiet
    from unchoke.tuning.tune_frozen import FrozenSetup, FrozenWork
    from unchoke.tuning.tune_training import HeldActivations

    silent = quiet(session)
    work, labels = FrozenWork(silent, encoder, sample.pictures, folder), wanted_labels(silent, OF_PICTURES)
    if dry_run:
        before = FrozenSetup.usual(silent.policy, labels[0])
        part = untried(_FROZEN, before, frozen_switches(session.settings, before, work, labels), _PLANNED)
        return part, HeldActivations(np.zeros((1, 1), np.float16))
    if (begun := kept_choice(session, work.part, OF_PICTURES)) is not None:
        stays = f"the features of this workspace were begun with {begun['value']} and stay as they are"
        notes.append(f"{stays}: what is kept of the frozen part is used where features are begun anew")
    with session.stage("tune", _FROZEN):
        before = work.first_that_agrees(labels)
        plain = replace(FrozenSetup.usual(silent.policy, "torch:f32"), decode_scale=FULL)
        tuner = PartTuner(_FROZEN, work, deadline, session.on_event, session.warn, earlier)
        part = tuner.run(before, plain, lambda now: frozen_switches(session.settings, now, work, labels))
        return part, work.held()


def _tune_training(
    session: Session,
    sample: Sample,
    encoder: Encoder,
    source: SourceSpec,
    folder: Path,
    deadline: Deadline,
    earlier: Sequence[Verdict],
    *,
    dry_run: bool,
) -> TunedPart:
    """The part that trains."""
    from unchoke.tuning.tune_data import circumstances, training_job
    from unchoke.tuning.tune_training import TrainSetup, TrainWork

    settings = session.settings
    job = training_job(session, sample, encoder, source)
    before, about = TrainSetup.of(job), circumstances(session, sample, encoder, job)
    if dry_run:
        return untried(_TRAINED, before, train_switches(settings, before, about), _PLANNED)
    with session.stage("tune", _TRAINED):
        work = TrainWork(job, folder=folder)
        num_samples = settings.epochs * len(sample.learnable.problem.positions("train"))
        on = session.on_event, session.warn
        tuner = PartTuner(_TRAINED, work, deadline, *on, earlier, num_samples=num_samples, apart=work.attempt_apart)
        plain = before.plain(job.loop.batch_size)
        return tuner.run(before, plain, lambda now: train_switches(settings, now, about, largest_step=work.batch_size))
