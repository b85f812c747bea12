"""`fit`, `train` and `extract`: the main job from DATA to a report, and its parts.

Each owns the workspace, does what is missing, and says what it found. Run again after a kill, or for no reason at all, they go on
from what is there. What is heavy is loaded while files are read (`training/pipeline.py` needs it), and not at all for a run
that is done.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke import __version__
from unchoke.core import checksums
from unchoke.core.errors import UsageError
from unchoke.core.events import OnEvent
from unchoke.core.fingerprint import digest, digest_bytes
from unchoke.core.prefetch import Prefetch, Steps
from unchoke.core.record import RunRecord
from unchoke.core.remembered import load_tuned
from unchoke.core.workspace import DEFAULT_ROOT, Workspace
from unchoke.data.check_samples import Inspection, gate, prepare, set_aside, tell_findings
from unchoke.data.manifest import save_manifest
from unchoke.data.sample_set import Samples
from unchoke.features.photo_loader import FOR_GPU_DECODING, FOR_PIXELS
from unchoke.features.weights_identity import identify_weights
from unchoke.jobs.loader_processes import preload_workers, worth_processes
from unchoke.jobs.queue import JobQueue
from unchoke.machine.detect import has_card_driver, usable_cores
from unchoke.runs.experiment_store import ExperimentStore, RunRow
from unchoke.runs.run_files import recall_record
from unchoke.runs.session import Session, open_session, tell_if_done
from unchoke.training.results import ExtractResult, FitResult, FollowerResult

if TYPE_CHECKING:
    from unchoke.training.network.distributed import Participant

_FILE = "finished.json"
"""Which finished run the same samples and settings gave. Only a memory: a run counts while the database says that it is done, and
while the features and the choice of engine it rests upon are unchanged.
"""


def fit(
    data: object = None,
    *,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    dry_run: bool = False,
    **options: Any,
) -> FitResult:
    """Check the data, extract features once, train, evaluate and report. Called again, it goes on, or says it is done.

    Args:
        data: Class folders, or a table: a file, a DataFrame, pairs of path and label, a Hugging Face or torch dataset. Left out,
            what this workspace was made for.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.
        dry_run: Say what would be done; nothing is extracted or trained.

    Returns:
        The run: its name, folder, report and record. A rehearsal (`dry_run`) is a `Rehearsal`, which has none of these; with
        `fold="all"` it is a `FoldsResult`, with the run of every fold.

    Example:
        >>> result = unchoke.fit("photos/", out="work", epochs=2)
        >>> result.run
        'exp_2'
        >>> sorted(result.record["metrics"])
        ['test', 'val']
    """
    return _run("fit", {"data": data, **options}, out=out, on_event=on_event, dry_run=dry_run)


def train(data: object = None, *, out: str | Path | None = None, on_event: OnEvent | None = None, **options: Any) -> FitResult:
    """Train and evaluate, as `fit` does, without the gate in front: for the next experiment on data that was checked before.

    Args:
        data: Class folders, or a table: a file, a DataFrame, pairs of path and label, a Hugging Face or torch dataset. Left out,
            what this workspace was made for.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        The run: its name, folder, report and record. With `fold="all"` it is a `FoldsResult`, with the run of every fold.

    Example:
        >>> unchoke.train(out="work", head="linear", epochs=2).already_done
        False
    """
    return _run("train", {"data": data, **options}, out=out, on_event=on_event)


def extract(
    data: object = None,
    *,
    job: str | None = None,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    dry_run: bool = False,
    **options: Any,
) -> ExtractResult:
    """The frozen part alone, in resumable micro-jobs.

    Args:
        data: Class folders, or a table: a file, a DataFrame, pairs of path and label, a Hugging Face or torch dataset. Left out,
            what this workspace was made for.
        job: Run this one job of features/jobs_queue.csv, done or not.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.
        dry_run: Say what would be done; nothing is extracted or trained.

    Returns:
        How many images and jobs were run, how many are left, and where the features lie.

    Example:
        >>> unchoke.extract(out="work").num_jobs_left
        0
    """
    with open_session({"data": data, **options}, out=out, on_event=on_event, remembering=not dry_run) as session:
        if job is not None:  # one that no plan names is refused before anything is read; without a plan it may come to be in one
            queue = JobQueue.load(session.workspace.features)
            if queue.jobs():
                queue.job(job)
        with loading_ahead(session):
            prepared = prepare(session, decode=job is not None or dry_run, on_samples=partial(begin_readers, session))
            wait_for_libraries(session)
            from unchoke.training.pipeline import extract_all, extract_some

            if job is None and not dry_run:
                return extract_all(session, prepared)
            return extract_some(session, prepared, job=job, dry_run=dry_run)


@contextmanager
def _taking_part() -> Iterator[Participant | None]:
    """This process's part among those a launcher started; None when it was started alone, which needs no torch to find out."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield None
        return
    from unchoke.training.network.distributed import taking_part

    with taking_part() as part:
        yield part


def _run(
    command: str, typed: dict[str, Any], *, out: str | Path | None, on_event: OnEvent | None, dry_run: bool = False
) -> FitResult:
    with _taking_part() as part:
        if part is not None and part.follows:
            return FollowerResult(workspace=Path(out or DEFAULT_ROOT), rank=part.follow())
        with open_session(typed, out=out, on_event=on_event, remembering=not dry_run, part=part) as session:
            if dry_run:
                prepared = prepare(session)
                findings = gate(session, prepared)
                from unchoke.training.pipeline import rehearse

                return rehearse(session, prepared, findings)
            with loading_ahead(session):
                if session.settings.fold != "all":
                    return _run_once(session, command)
                if session.settings.minutes is not None:
                    raise UsageError(
                        "--minutes cannot be combined with --fold all",
                        code="options-conflict",
                        why="every fold would take them, and have a blend of its own",
                        try_="leave one of them out",
                    )
                from unchoke.training.folds import run_all_folds

                return run_all_folds(session, partial(_run_once, command=command))


def _run_once(session: Session, command: str) -> FitResult:
    """Check the data; then find the run of these samples and settings done, or train it. `train` only warns where `fit` stops."""
    prepared = prepare(session, decode=not decodes_later(session), on_samples=partial(begin_readers, session))
    findings = prepared.findings
    if command == "fit":
        findings = gate(session, prepared)
    else:
        tell_findings(session, findings)
    if (record := recall_run(session, prepared)) is not None:
        return FitResult(record, session.workspace.root, already_done=True)
    wait_for_libraries(session)
    from unchoke.training.pipeline import go_on

    result, settled = go_on(session, prepared, findings, command=command)
    if settled is not None:
        remember_run(session, settled, result.run)
    return result


def decodes_later(session: Session) -> bool:
    """Whether every file is decoded right after it was checked: by extraction, which then reports what `check` would have."""
    return session.settings.cut != "none"


def begin_readers(session: Session, samples: Samples) -> None:
    """Let loader processes import what they will need: little for a GPU, which decodes by itself; else torch."""
    if worth_processes(len(samples), workers=session.settings.workers or usable_cores()):
        for_card = has_card_driver() and session.settings.device is None and not session.settings.views and decodes_later(session)
        preload_workers(FOR_GPU_DECODING if for_card else FOR_PIXELS)


@contextmanager
def loading_ahead(session: Session) -> Iterator[None]:
    """Load what the command will need while its files are read, unless it will most likely find its run done."""
    if is_likely_done(session):
        yield
        return
    with Prefetch(_load(session)) as session.prefetch:
        yield


def _load(session: Session) -> Steps[Any]:
    import torch  # noqa: F401

    yield "torch"
    import unchoke.training.pipeline  # noqa: F401

    yield "libraries"
    from unchoke.features.load_ahead import load_ahead

    return (yield from load_ahead(session))


def wait_for_libraries(session: Session) -> None:
    """If files are checked before the libraries finish loading, the remaining wait is reported as the stage `libraries`."""
    if (start := session.prefetch) is None:
        return
    if not start.is_over:
        with session.stage("libraries", "and the encoder, begun before the files were read"):
            start.wait()
    session.timelines["libraries"] = start.timeline()


def is_likely_done(session: Session) -> bool:
    """Whether a run with these settings was finished here: if the samples are the same too, nothing will have to be loaded."""
    settings = _settings_digest(session)
    return any(entry["settings"] == settings for entry in _load_finished(session).values())


def recall_run(session: Session, prepared: Inspection) -> RunRecord | None:
    """The record of the finished run that these samples and settings gave, if all it rests upon is still there."""
    entry = _load_finished(session).get(_key(session, prepared))
    if entry is None:
        return None
    row, chosen = _row(session.workspace, entry["run"]), _engine_choices(session)
    if row is None or (row.key, row.status) != (entry["run_key"], "done"):
        return None
    if JobQueue.load(session.workspace.features).state(entry["fingerprint"]).pending:
        return None
    if any(chosen.get(name) != then for name, then in entry["engines"].items()):  # others may be newer
        return None
    record = recall_record(session.workspace.run_folder(entry["run"]), session.warn)
    if record is None:
        return None
    save_manifest(prepared.samples, session.workspace.manifest_file)
    session.remember_settings()
    set_aside(session, prepared, {})
    tell_if_done(session, entry["run"])
    if session.tracking is not None:
        with ExperimentStore.open(session.workspace.experiments_file) as experiments:
            session.tracking.send_finished(experiments, experiments.run(entry["run"]))
    return record


def remember_run(session: Session, prepared: Inspection, run: str) -> None:
    """Keep which run these samples and settings gave, for the next time they come."""
    workspace = session.workspace
    row = _row(workspace, run)
    if row is None or session.part is not None:
        return
    entry = {
        "settings": _settings_digest(session),
        "run": run,
        "run_key": row.key,
        "fingerprint": row.fingerprint,
        "engines": _engine_choices(session),
    }
    entries = {**_load_finished(session), _key(session, prepared): entry}
    checksums.save_checked_json(workspace.experiments / _FILE, entries)


def _row(workspace: Workspace, run: str) -> RunRow | None:
    if not workspace.experiments_file.exists():
        return None
    with ExperimentStore.open(workspace.experiments_file) as experiments:
        return next((row for row in experiments.runs() if row.name == run), None)


def _engine_choices(session: Session) -> dict[str, Any]:
    """Which engine was chosen for which network, and how it is run: without the reasons."""
    kept = checksums.recall_json(session.workspace.engines / "choice.json", session.warn)
    return {name: [choice["value"], choice.get("how", {})] for name, choice in kept.items()}


def _load_finished(session: Session) -> dict[str, dict[str, Any]]:
    return checksums.recall_json(session.workspace.experiments / _FILE, session.warn)


def _key(session: Session, prepared: Inspection) -> str:
    """Everything a run's result may depend on, as far as it is known before anything is loaded."""
    samples = prepared.samples
    frame = samples.frame.drop(columns=["path", "mtime_ns"])
    return digest(
        [
            __version__,
            session.settings.to_dict(),
            load_tuned(session.workspace),
            identify_weights(session.settings.weights, session.settings.encoder),
            [samples.task.kind, list(samples.task.names), list(samples.inputs)],
            digest_bytes(frame.to_csv(index=False).encode()),
            digest(prepared.facts["content"].tolist()),
            prepared.sound.tolist(),
            *([prepared.unscored] if prepared.unscored else []),
        ]
    )


def _settings_digest(session: Session) -> str:
    """The settings in force, whichever fold is tested."""
    return digest(replace(session.settings, fold=0).to_dict())
