"""Runs that are done, found again from samples and settings alone: before a library, an engine or a network is loaded.

In: a session and its inspected samples. Out: the record of the run that the very same gave before, or nothing, and then the
longer way finds out. `experiments/finished.json` is only a memory: a run counts while the database says that it is done, and
while the features and the choice of engine it rests upon are as they were.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unchoke import __version__
from unchoke.core import checksums
from unchoke.core.fingerprint import digest, digest_bytes
from unchoke.core.record import RunRecord
from unchoke.core.remembered import load_tuned
from unchoke.core.workspace import Workspace
from unchoke.data.check_samples import Inspection, set_aside
from unchoke.data.manifest import save_manifest
from unchoke.features.weights_identity import identify_weights
from unchoke.jobs.queue import JobQueue
from unchoke.runs.experiment_store import ExperimentStore, RunRow
from unchoke.runs.run_files import recall_record
from unchoke.runs.session import Session, tell_if_done

_FILE = "finished.json"


def is_likely_done(session: Session) -> bool:
    """Whether a run with these settings was finished here: if the samples are the same too, nothing will have to be loaded."""
    settings = _settings_digest(session)
    return any(entry["settings"] == settings for entry in _load(session).values())


def recall_run(session: Session, prepared: Inspection) -> RunRecord | None:
    """The record of the finished run that these samples and settings gave, if all it rests upon is still there."""
    entry = _load(session).get(_key(session, prepared))
    if entry is None or not _stands(session, entry):
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
    entries = {**_load(session), _key(session, prepared): entry}
    checksums.save_checked_json(workspace.experiments / _FILE, entries)


def _stands(session: Session, entry: dict[str, Any]) -> bool:
    workspace = session.workspace
    row = _row(workspace, entry["run"])
    if row is None or (row.key, row.status) != (entry["run_key"], "done"):
        return False
    whole = not JobQueue.load(workspace.features).state(entry["fingerprint"]).pending
    return whole and _kept(session, entry["engines"])


def _row(workspace: Workspace, run: str) -> RunRow | None:
    if not workspace.experiments_file.exists():
        return None
    with ExperimentStore.open(workspace.experiments_file) as experiments:
        return next((row for row in experiments.runs() if row.name == run), None)


def _kept(session: Session, engines: dict[str, Any]) -> bool:
    """Whether every engine chosen by then is chosen still; others may have come since."""
    now = _engine_choices(session)
    return all(now.get(name) == chosen for name, chosen in engines.items())


def _engine_choices(session: Session) -> dict[str, Any]:
    """Which engine was chosen for which network, and how it is run: without the reasons."""
    kept = checksums.recall_json(session.workspace.engines / "choice.json", session.warn)
    return {name: [choice["value"], choice.get("how", {})] for name, choice in kept.items()}


def _load(session: Session) -> dict[str, dict[str, Any]]:
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
