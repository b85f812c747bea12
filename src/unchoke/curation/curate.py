"""`unchoke curate`: what a person should look at in the data, over cached features.

In: DATA, a workspace or a run. Out: a `Curation`, `curation/findings.json` and a page in the workspace. Features that are missing
are extracted and photos that were not measured are measured, both in resumable jobs; everything after that takes seconds. Photos
are only read; decisions are lines of `corrections.csv`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.addresses import refuse_untyped
from unchoke.core.choices import CORRECTIONS
from unchoke.core.errors import DataError, UsageError
from unchoke.core.events import OnEvent
from unchoke.core.output_file import OutputFile, output_file
from unchoke.core.remembered import load_remembered, remember
from unchoke.core.units import format_count
from unchoke.core.workspace import DEFAULT_ROOT, Workspace, out_option
from unchoke.data.check_samples import Inspection, prepare
from unchoke.data.corrections import DROP, USE, Correction, find_corrections
from unchoke.data.sample_set import TaskSpec, build_samples
from unchoke.runs.experiment_store import ExperimentStore
from unchoke.runs.session import Session, open_session
from unchoke.training.fit import loading_ahead, wait_for_libraries

if TYPE_CHECKING:
    from unchoke.curation.curation import Curation
    from unchoke.curation.data_finding import DataFinding
    from unchoke.curation.diagnose_data import CurationMaterial, Diagnosis

_HEADS = ("end", "blocks")
"""Cuts whose features are vectors."""
_OF_RUN = ("encoder", "weights", "input_px", "cut", "streams", "tiles", "views")
_MAX_NEXT = 10_000
Newcomers = tuple[list[str], list[str]]
"""Paths of photos without labels, and digests of what they hold."""


def curate(
    data: str | Path | None = None,
    *,
    unlabelled: str | Path | None = None,
    num: int = 50,
    csv: str | Path | None = None,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    **options: Any,
) -> Curation:
    """What a person should look at in the data: likely wrong labels, near-copies, odd photos; with suggested decisions.

    Args:
        data: Class folders, a table, or a run: exp_3, latest or best. Left out, what this workspace was made for.
        unlabelled: Folder of photos without labels: those to label next come first.
        num: How many of them.
        csv: Write a row for each finding to this CSV file.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        Findings, the most pressing first, and the queue of those that wait for a decision.

    Example:
        >>> unchoke.curate(out="work").num_photos
        42
    """
    if not 1 <= num <= _MAX_NEXT:
        raise UsageError(
            f"--num {num} is no number of photos", code="out-of-range", why=f"it goes from 1 to {_MAX_NEXT:,}", try_="--num 50"
        )
    began_s = time.monotonic()
    named, settings = _as_run(data, out)
    typed = {"data": named, **options, **{name: value for name, value in settings.items() if not options.get(name)}}
    if unlabelled is not None:
        from unchoke.training.predict import list_images

        list_images([unlabelled])  # whether there are any is known before anything is read
    table = None if csv is None else output_file(csv, option="--csv", example="findings.csv", sources=[])
    with open_session(typed, out=out, on_event=on_event, remembering=False, telling=True) as session:
        workspace = session.workspace
        # Made by `segment train`, and not by anything about photos.
        holds_scenes = (workspace.root / "patches").is_dir() and not workspace.manifest_file.exists()
        if holds_scenes and (data is None or named != data):
            from unchoke.curation.curate_scenes import curate_scenes

            if unlabelled is not None:
                raise UsageError(
                    "--unlabelled is for photos",
                    code="option-not-for-masks",
                    why="this workspace was made by `unchoke segment train`",
                    try_="leave --unlabelled out",
                )
            findings, count = curate_scenes(session)
            return _keep(session, findings, count, {}, noun="scene", table=table, began_s=began_s)
        kept = session.settings
        if kept.cut not in _HEADS:  # where a network trains, the end of the same encoder gives vectors
            session.settings = replace(kept, cut="end", streams=1, tiles="1x1")
        with loading_ahead(session):
            prepared = prepare(session, decode=False)
            wait_for_libraries(session)
        if not settings:
            before, now = load_remembered(workspace).get("data"), kept.data
            if before and before != now and workspace.curation.exists():
                session.warn(f"findings of {before} in this workspace give way to those of {now}; with another --out both stay")
            remember(workspace, kept)
        newcomers = None if unlabelled is None else _newcomers(session, unlabelled, prepared)
        return _curate_photos(session, prepared, newcomers, num=num, table=table, began_s=began_s)


def _as_run(data: str | Path | None, out: Path | str | None) -> tuple[str | Path | None, dict[str, Any]]:
    """DATA as it is; or, where it names a run of the workspace, the data and the frozen part of that run."""
    workspace = Workspace(Path(out) if out is not None else DEFAULT_ROOT)
    is_run = isinstance(data, str) and not Path(data).exists() and workspace.experiments_file.exists()
    if not is_run or not (str(data) in ("latest", "best") or str(data).startswith("exp_")):
        return data, {}
    with ExperimentStore.open(workspace.experiments_file) as experiments:
        run = experiments.run(str(data))
    given = {name: run.settings[name] for name in _OF_RUN if run.settings.get(name) not in (None, "")}
    found = {"data": load_remembered(workspace).get("data"), **given}
    refuse_untyped(found, file=workspace.settings_file, out=out_option(workspace.root))
    return found["data"], given


def _newcomers(session: Session, folder: str | Path, prepared: Inspection) -> Newcomers:
    """The photos of a folder that are not among the samples and can be read."""
    from unchoke.core.input_file import size_and_time
    from unchoke.core.listing import FileEntry
    from unchoke.data.file_findings import FATAL_PROBLEMS
    from unchoke.data.inspect_samples import inspect_samples
    from unchoke.training.predict import list_images

    labelled = prepared.samples
    if labelled.task.kind != "classification":
        raise UsageError(
            "--unlabelled is for classes",
            code="option-not-for-values",
            why="the samples have values or several labels, and how sure a head is of all of them is not known",
            try_="leave --unlabelled out",
        )
    known = {os.path.realpath(path) for path in [*labelled.frame["path"].tolist(), *prepared.dropped.values()]}
    dropped = find_corrections(session.workspace, session.settings.corrections).dropped
    paths = [str(Path(path).absolute()) for path in list_images([folder])]
    new = [path for path in dict.fromkeys(paths) if os.path.realpath(path) not in known and path not in dropped]
    if not new:
        raise DataError(
            f"all {format_count(len(paths), 'photo')} of {folder} are labelled or dropped already",
            code="nothing-unlabelled",
            why="there is nothing to choose from",
            try_="name a folder with photos that have no labels yet",
        )
    entries = [FileEntry(path, path, *size_and_time(path)) for path in new]
    samples = build_samples(TaskSpec("classification", ("",)), entries, sample_ids=new, values={"label": [""] * len(new)})
    facts = inspect_samples(samples, session.workspace, threads=session.policy.workers, on_event=session.on_event, decode=False)
    sound = ~facts["problem"].isin(list(FATAL_PROBLEMS)).to_numpy()
    if bad := int((~sound).sum()):
        session.warn(f"{format_count(bad, 'photo')} of {folder} cannot be read and are left out")
    return samples.frame["path"][sound].tolist(), facts["content"][sound].tolist()


def _curate_photos(
    session: Session,
    prepared: Inspection,
    newcomers: Newcomers | None,
    *,
    num: int,
    table: OutputFile | None,
    began_s: float,
) -> Curation:
    """Features and measures of every photo that can be read, then everything that is found in them."""
    from unchoke.curation.diagnose_data import CurationMaterial, diagnose_data
    from unchoke.curation.measure_photos import measure_photos
    from unchoke.data.file_findings import COPY_CODES, FATAL_PROBLEMS
    from unchoke.data.manifest import save_manifest
    from unchoke.features.choose_encoder import choose_encoder
    from unchoke.features.extraction import extract_features
    from unchoke.features.prepare_engine import PictureTable
    from unchoke.training.data import read_targets
    from unchoke.training.pipeline import sound_pictures

    if not session.workspace.manifest_file.exists():
        save_manifest(prepared.samples, session.workspace.manifest_file)
    pictures = sound_pictures(prepared)
    paths, contents = newcomers or ([], [])
    everything = pictures
    if paths:
        decoded = np.concatenate([pictures.decoded, np.zeros(len(paths), bool)])
        everything = PictureTable([*pictures.ids, *paths], [*pictures.paths, *paths], [*pictures.contents, *contents], decoded)
    choose_encoder(session, len(everything))
    extracted = extract_features(session, everything)
    rows = extracted.store.rows(np.arange(extracted.store.num_samples, dtype=np.int64))
    feats = rows if rows.ndim == 2 else rows.reshape(len(rows), -1, rows.shape[-1]).mean(axis=1).astype(np.float16)
    present, there = extracted.present[: len(pictures)], extracted.present[len(pictures) :]
    num_present = int(present.sum())
    sound = prepared.sound.to_numpy().copy()
    unreadable = _unreadable(prepared, sound, extracted.failed)
    sound[np.flatnonzero(sound)] = present
    frame, facts = prepared.samples.frame[sound].reset_index(drop=True), prepared.facts[sound].reset_index(drop=True)
    task = prepared.samples.task
    ids, places, files = frame["sample_id"].tolist(), frame["path"].tolist(), facts["content"].tolist()
    measured = pictures if present.all() else PictureTable(ids, places, files, pictures.decoded[present])
    material = CurationMaterial(
        kind=task.kind,
        names=task.names,
        ids=ids,
        paths=places,
        targets=read_targets(task, frame),
        feats_nd=feats[:num_present],
        measures=measure_photos(session, measured),
        sizes=facts[["width", "height"]].to_numpy(dtype=np.int64),
        sides=frame["split"].tolist(),
        groups=frame["group"].tolist(),
        folders=[os.path.dirname(name) for name in frame["relative"].tolist()],  # noqa: PTH120 (text, for every file)
        contents=files,
    )
    with session.stage("curate", format_count(len(ids), "photo")):
        diagnosis = diagnose_data(material)
        findings = [*diagnosis.findings, *_bad_files(unreadable)]
        if newcomers is not None:
            unlabelled = [path for path, one in zip(paths, there, strict=True) if one]
            findings += _next_labels(material, diagnosis, unlabelled, feats[num_present:], num)
    # What `check` says of the data and is no finding here, such as files and rows that are no samples at all.
    told = [one for one in prepared.findings if one.severity != "info" and one.code not in {*FATAL_PROBLEMS, *COPY_CODES}]
    notes = [f"{one.severity} {one.code}: {one.message}" for one in told] + [diagnosis.unjudged] * bool(diagnosis.unjudged)
    return _keep(
        session,
        findings,
        len(ids) + len(unreadable),
        dict(zip(ids, places, strict=True)),
        num_wrong=diagnosis.num_wrong,
        notes=notes,
        table=table,
        began_s=began_s,
    )


def _unreadable(prepared: Inspection, sound: NDArray[np.bool_], failed: dict[str, str]) -> dict[str, str]:
    """Samples whose files cannot be used, with the reason."""
    names = prepared.samples.frame["sample_id"].tolist()
    problems, details = prepared.facts["problem"], prepared.facts["detail"]
    known = set(names)
    return {names[row]: f"{problems.iloc[row]}: {details.iloc[row]}" for row in np.flatnonzero(~sound)} | {
        name: reason for name, reason in failed.items() if name in known
    }


def _keep(
    session: Session,
    findings: list[DataFinding],
    num: int,
    paths: dict[str, str],
    *,
    num_wrong: int | None = None,
    noun: str = "photo",
    notes: Sequence[str] = (),
    table: OutputFile | None,
    began_s: float,
) -> Curation:
    """Rank, mark what is settled, write record, page and table."""
    from unchoke.curation.curation import FINDINGS, PAGE, Curation
    from unchoke.curation.data_finding import KINDS, rank_findings, settle_findings
    from unchoke.runs.report.curation_page import save_curation_page

    corrections = find_corrections(session.workspace, session.settings.corrections)
    findings = settle_findings(rank_findings(findings), corrections.decided)
    used = next((choice.evidence for choice in session.choices if choice.name == CORRECTIONS), {})
    folder = session.workspace.curation
    result = Curation(
        findings=findings,
        num_photos=num,
        num_wrong=num_wrong,
        noun=noun,
        notes=[*notes],
        corrections={name: count for name, count in used.items() if isinstance(count, int)},
        page=folder / PAGE,
        workspace=session.workspace.root,
        data=session.settings.data,
        seconds=time.monotonic() - began_s,
        timings=dict(session.timers.seconds),
        choices=session.choices,
        saved_to=None if table is None else table.path,
    )
    atomic.write_json(folder / FINDINGS, result.to_dict())
    with session.stage("page"):
        record = result.to_dict()
        save_curation_page(record, result.page, _thumbnails(record, paths), KINDS)
    if table is not None:
        table.write_text(result.to_csv())
    return result


def _thumbnails(record: dict[str, Any], paths: dict[str, str]) -> dict[str, str]:
    """Small pictures of the photos that the page shows, as far as they can be read; of others it has the name."""
    from unchoke.pixels.image import DecodeError, read_image
    from unchoke.runs.report.curation_page import shown_photos, thumbnail_of

    found = {}
    for photo in shown_photos(record):
        try:
            found[photo] = thumbnail_of(read_image(paths.get(photo, photo), cover_px=160))
        except DecodeError:
            continue
    return found


def _bad_files(unreadable: dict[str, str]) -> list[DataFinding]:
    """A finding for each file that cannot be used: to drop it lets `fit` go on."""
    from unchoke.curation.data_finding import DataFinding

    return [
        DataFinding(
            "unreadable", f"{name!r} cannot be used: {reason}", (name,), 0.995, {"reason": reason}, (Correction(name, USE, DROP),)
        )
        for name, reason in unreadable.items()
    ]


def _next_labels(
    material: CurationMaterial, diagnosis: Diagnosis, paths: list[str], feats_nd: NDArray[np.float16], num: int
) -> list[DataFinding]:
    from unchoke.curation.next_labels import choose_next

    if diagnosis.held is None:
        raise DataError(
            f"{format_count(len(material.ids), 'labelled photo')} are too few to say which to label next",
            code="too-few-photos",
            why="a model of at least two classes must be there to be unsure",
            try_="label ten photos or more of two classes first",
        )
    held = diagnosis.held
    return choose_next(
        paths,
        feats_nd,
        material.feats_nd,
        material.targets,
        material.names,
        strength=held.strength,
        temperature=held.temperature,
        num=num,
    )
