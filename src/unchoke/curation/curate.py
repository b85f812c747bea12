"""`unchoke curate`: what a person should look at in the data, over cached features.

In: DATA, a workspace or a run. Out: a `Curation`, `curation/findings.json` and a page in the workspace. Features that are missing
are extracted and photos that were not measured are measured, both in resumable jobs; everything after that takes seconds. Photos
are only read; decisions are lines of `corrections.csv`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.choices import CORRECTIONS
from unchoke.core.errors import DataError, UsageError
from unchoke.core.events import OnEvent
from unchoke.core.output_file import OutputFile, output_file
from unchoke.core.remembered import load_remembered, remember
from unchoke.core.settings import Settings
from unchoke.core.units import format_count
from unchoke.core.workspace import DEFAULT_ROOT, Workspace
from unchoke.data.check_samples import Inspection, prepare
from unchoke.data.corrections import DROP, USE, Correction, find_corrections
from unchoke.data.sample_set import Samples, TaskSpec, build_samples
from unchoke.runs.experiment_store import ExperimentStore
from unchoke.runs.session import Session, open_session
from unchoke.training.fit import loading_ahead, wait_for_libraries

if TYPE_CHECKING:
    from unchoke.curation.curation import Curation
    from unchoke.curation.data_finding import DataFinding
    from unchoke.curation.diagnose_data import CurationMaterial, Diagnosis
    from unchoke.features.picture_table import PictureTable

_HEADS = ("end", "blocks")
"""Cuts whose features are vectors."""
_OF_RUN = ("encoder", "weights", "input_px", "cut", "streams", "tiles", "views")
_MOST_NEXT = 10_000


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
    if not 1 <= num <= _MOST_NEXT:
        raise UsageError(
            f"--num {num} is no number of photos", code="out-of-range", why=f"it goes from 1 to {_MOST_NEXT:,}", try_="--num 50"
        )
    began_s = time.monotonic()
    named, settings = _as_run(data, out)
    typed = {"data": named, **options, **{name: value for name, value in settings.items() if not options.get(name)}}
    if unlabelled is not None:
        from unchoke.training.predict import list_images

        list_images([unlabelled])  # whether there are any is known before anything is read
    table = None if csv is None else output_file(csv, option="--csv", example="findings.csv", sources=[])
    with open_session(typed, out=out, on_event=on_event, remembering=False, telling=True) as session:
        if _holds_scenes(session.workspace) and (data is None or named != data):
            from unchoke.curation.curate_scenes import curate_scenes

            _refuse_unlabelled(unlabelled)
            findings, count = curate_scenes(session)
            return _keep(session, findings, _Looked(count, {}, noun="scene"), table=table, began_s=began_s)
        kept, session.settings = session.settings, _plain_features(session.settings)
        with loading_ahead(session):
            prepared = prepare(session, decode=False)
            wait_for_libraries(session)
        if not settings:
            _tell_other_data(session)
            remember(session.workspace, kept)
        newcomers = None if unlabelled is None else _newcomers(session, unlabelled, prepared)
        material, others, unreadable = _gather(session, prepared, newcomers)
        notes = _told_by_check(prepared)
        return _answer(session, material, others, unreadable, notes, num=num, table=table, began_s=began_s)


def _told_by_check(prepared: Inspection) -> list[str]:
    """What `check` says of the data and is no finding here: such as files and rows that are no samples at all."""
    from unchoke.data.file_findings import COPY_CODES, FATAL_PROBLEMS

    told = [one for one in prepared.findings if one.severity != "info" and one.code not in {*FATAL_PROBLEMS, *COPY_CODES}]
    return [f"{one.severity} {one.code}: {one.message}" for one in told]


def _tell_other_data(session: Session) -> None:
    """What a workspace holds of other data is written over: that is said."""
    before, now = load_remembered(session.workspace).get("data"), session.settings.data
    if before and before != now and session.workspace.curation.exists():
        session.warn(f"findings of {before} in this workspace give way to those of {now}; with another --out both are kept")


def _as_run(data: str | Path | None, out: Path | str | None) -> tuple[str | Path | None, dict[str, Any]]:
    """DATA as it is; or, where it names a run of the workspace, the data and the frozen part of that run."""
    workspace = Workspace(Path(out) if out is not None else DEFAULT_ROOT)
    is_run = isinstance(data, str) and not Path(data).exists() and workspace.experiments_file.exists()
    if not is_run or not (str(data) in ("latest", "best") or str(data).startswith("exp_")):
        return data, {}
    with ExperimentStore.open(workspace.experiments_file) as experiments:
        run = experiments.run(str(data))
    given = {name: run.settings[name] for name in _OF_RUN if run.settings.get(name) not in (None, "")}
    return load_remembered(workspace).get("data"), given


def _holds_scenes(workspace: Workspace) -> bool:
    """Whether the workspace was made by `segment train`, and not by anything about photos."""
    return (workspace.root / "patches").is_dir() and not workspace.manifest_file.exists()


def _refuse_unlabelled(unlabelled: str | Path | None) -> None:
    if unlabelled is not None:
        raise UsageError(
            "--unlabelled is for photos",
            code="option-not-for-masks",
            why="this workspace was made by `unchoke segment train`",
            try_="leave --unlabelled out",
        )


def _plain_features(settings: Settings) -> Settings:
    """The settings with a frozen part that ends in vectors: where a network trains, the end of the same encoder."""
    return settings if settings.cut in _HEADS else replace(settings, cut="end", streams=1, tiles="1x1")


@dataclass(frozen=True, eq=False)
class _Newcomers:
    """Photos without labels, as samples with an empty one, and what is known of their files."""

    samples: Samples
    contents: Sequence[str]


def _newcomers(session: Session, folder: str | Path, prepared: Inspection) -> _Newcomers:
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
            why="the samples have values, of which no doubt is known",
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
        session.warn(f"{format_count(bad, 'photo')} of {folder} cannot be read and are passed over")
    return _Newcomers(samples.subset(sound.tolist()), facts["content"][sound].tolist())


@dataclass(frozen=True, eq=False)
class _Unlabelled:
    paths: list[str]
    feats_nd: NDArray[np.float16]


def _gather(
    session: Session, prepared: Inspection, newcomers: _Newcomers | None
) -> tuple[CurationMaterial, _Unlabelled | None, dict[str, str]]:
    """Features and measures of every photo that can be read, and why others cannot."""
    from unchoke.curation.diagnose_data import CurationMaterial
    from unchoke.curation.measure_photos import measure_photos
    from unchoke.data.manifest import save_manifest
    from unchoke.features.extraction import extract_features
    from unchoke.training.pipeline import sound_pictures

    if not session.workspace.manifest_file.exists():
        save_manifest(prepared.samples, session.workspace.manifest_file)
    pictures = sound_pictures(prepared)
    extracted = extract_features(session, _with_newcomers(pictures, newcomers))
    rows = extracted.store.rows(np.arange(extracted.store.num_samples, dtype=np.int64))
    feats = rows if rows.ndim == 2 else rows.reshape(len(rows), -1, rows.shape[-1]).mean(axis=1).astype(np.float16)
    present = extracted.present[: len(pictures)]
    sound = prepared.sound.to_numpy().copy()
    unreadable = _unreadable(prepared, sound, extracted.failed)
    sound[np.flatnonzero(sound)] = present
    frame, facts = prepared.samples.frame[sound].reset_index(drop=True), prepared.facts[sound].reset_index(drop=True)
    kept = _subset(pictures, present)
    material = CurationMaterial(
        kind=prepared.samples.task.kind,
        names=prepared.samples.task.names,
        ids=frame["sample_id"].tolist(),
        paths=frame["path"].tolist(),
        targets=_targets(prepared.samples.task, frame),
        feats_nd=feats[: int(present.sum())],
        measures=measure_photos(session, kept),
        sizes=facts[["width", "height"]].to_numpy(dtype=np.int64),
        sides=frame["split"].tolist(),
        groups=frame["group"].tolist(),
        folders=[os.path.dirname(name) for name in frame["relative"].tolist()],  # noqa: PTH120 (text, for every file)
        contents=facts["content"].tolist(),
    )
    if newcomers is None:
        return material, None, unreadable
    there = extracted.present[len(pictures) :]
    paths = [path for path, one in zip(newcomers.samples.frame["path"].tolist(), there, strict=True) if one]
    return material, _Unlabelled(paths, feats[int(present.sum()) :]), unreadable


def _with_newcomers(pictures: PictureTable, newcomers: _Newcomers | None) -> PictureTable:
    """The labelled pictures, then those without labels."""
    from unchoke.features.picture_table import PictureTable

    if newcomers is None:
        return pictures
    paths = newcomers.samples.frame["path"].tolist()
    decoded = np.concatenate([pictures.decoded, np.zeros(len(paths), bool)])
    return PictureTable([*pictures.ids, *paths], [*pictures.paths, *paths], [*pictures.contents, *newcomers.contents], decoded)


def _subset(pictures: PictureTable, kept: NDArray[np.bool_]) -> PictureTable:
    from unchoke.features.picture_table import PictureTable

    if kept.all():
        return pictures

    def kept_of(column: Sequence[str]) -> list[str]:
        return [cell for cell, one in zip(column, kept, strict=True) if one]

    return PictureTable(kept_of(pictures.ids), kept_of(pictures.paths), kept_of(pictures.contents), pictures.decoded[kept])


def _targets(task: TaskSpec, frame: Any) -> NDArray[Any]:
    import pandas as pd

    if task.kind == "classification":
        found: NDArray[Any] = pd.Categorical(frame["label"], categories=list(task.names)).codes.astype(np.int64)
        return found
    values: NDArray[Any] = frame[list(task.names)].to_numpy(dtype=np.float32)
    return values


def _unreadable(prepared: Inspection, sound: NDArray[np.bool_], failed: dict[str, str]) -> dict[str, str]:
    """Samples whose files cannot be used, with the reason."""
    names = prepared.samples.frame["sample_id"].tolist()
    problems, details = prepared.facts["problem"], prepared.facts["detail"]
    known = set(names)
    return {names[row]: f"{problems.iloc[row]}: {details.iloc[row]}" for row in np.flatnonzero(~sound)} | {
        name: reason for name, reason in failed.items() if name in known
    }


def _answer(
    session: Session,
    material: CurationMaterial,
    others: _Unlabelled | None,
    unreadable: dict[str, str],
    notes: list[str],
    *,
    num: int,
    table: OutputFile | None,
    began_s: float,
) -> Curation:
    """Diagnose what was gathered."""
    from unchoke.curation.diagnose_data import diagnose_data

    with session.stage("curate", format_count(len(material.ids), "photo")):
        diagnosis = diagnose_data(material)
        findings = [*diagnosis.findings, *_bad_files(unreadable)]
        if others is not None:
            findings += _next_labels(material, diagnosis, others, num)
    paths = dict(zip(material.ids, material.paths, strict=True))
    told = (*notes, *filter(None, [diagnosis.unjudged]))
    looked = _Looked(len(material.ids) + len(unreadable), paths, diagnosis.num_wrong, notes=told)
    return _keep(session, findings, looked, table=table, began_s=began_s)


@dataclass(frozen=True)
class _Looked:
    """What was looked at: how many photos (or scenes), where they lie, and how many labels are estimated to be wrong."""

    num: int
    paths: dict[str, str]
    num_wrong: int | None = None
    noun: str = "photo"
    notes: tuple[str, ...] = ()


def _keep(
    session: Session, findings: list[DataFinding], looked: _Looked, *, table: OutputFile | None, began_s: float
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
        num_photos=looked.num,
        num_wrong=looked.num_wrong,
        noun=looked.noun,
        notes=[*looked.notes],
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
        save_curation_page(record, result.page, _thumbnails(record, looked.paths), KINDS)
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


def _next_labels(material: CurationMaterial, diagnosis: Diagnosis, others: _Unlabelled, num: int) -> list[DataFinding]:
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
        others.paths,
        others.feats_nd,
        material.feats_nd,
        material.targets,
        material.names,
        strength=held.strength,
        temperature=held.temperature,
        num=num,
    )
