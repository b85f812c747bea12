"""`check`: the gate before a single weight is updated.

In: DATA as described. Out: every problem at once, as findings, and the samples with their splits for whoever goes on. Reads DATA,
never writes there. Errors close the gate, warnings do not.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from unchoke.core import atomic, listing
from unchoke.core.choices import Choice
from unchoke.core.clock import Loading, StageTimers
from unchoke.core.errors import DataError, list_some
from unchoke.core.events import OnEvent
from unchoke.core.findings import Finding, rank
from unchoke.core.fingerprint import digest
from unchoke.core.remembered import load_remembered
from unchoke.core.remote import locate
from unchoke.core.settings import ANYTHING, Settings, preset_values
from unchoke.core.timeline import Timeline
from unchoke.core.units import format_count, format_seconds
from unchoke.core.workspace import DEFAULT_ROOT, Workspace, out_option
from unchoke.data.corrections import CorrectedSamples, apply_corrections, find_corrections, one_split
from unchoke.data.earlier_splits import MOVED, count_moved, keep_left_out
from unchoke.data.file_findings import (
    FATAL_PROBLEMS,
    can_be_left_out,
    diagnose_files,
    diagnose_room,
    estimate_need,
    find_unscored,
    keep_one_copy,
    measure_room,
    parse_expect,
)
from unchoke.data.inspect_samples import inspect_file, inspect_samples, settle_facts
from unchoke.data.manifest import recall_manifest
from unchoke.data.sample_set import DataSource, Samples, Scan
from unchoke.data.scan import scan_samples
from unchoke.data.splits import assign_splits
from unchoke.data.targets import check_target_names
from unchoke.data.value_findings import diagnose_fold_names, diagnose_folds, diagnose_splits, diagnose_values
from unchoke.data.worker_trial import ImageSet, WorkerTrial, load_dataset, try_worker
from unchoke.jobs.records import QuarantineRow, save_quarantine
from unchoke.machine.detect import usable_cores
from unchoke.machine.memory.memory_watch import return_unused_memory
from unchoke.runs.report.text import render_findings
from unchoke.runs.session import Session, open_session

if TYPE_CHECKING:
    import pandas as pd

_TRIAL_IMAGES = 4
_TRIAL_CANDIDATES = 16


@dataclass(frozen=True)
class Inspection:
    """Samples with splits, what is known of each file (row for row), and every finding on the way."""

    samples: Samples
    facts: pd.DataFrame
    findings: list[Finding]
    of_files: list[Finding] = field(default_factory=list)
    """Those of them that the files' facts led to."""
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Photos that corrections leave out: their ids and paths."""

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]

    @property
    def sound(self) -> pd.Series[bool]:
        """Which samples have a file that decodes."""
        return ~self.facts["problem"].isin(list(FATAL_PROBLEMS))

    @property
    def unscored(self) -> list[str]:
        """The samples of val and test that no score counts, as far as it is known from their files."""
        contents = self.facts["content"].where(self.sound, "").tolist()
        return [one.sample_id for one in find_unscored(self.samples, contents)]


@dataclass(frozen=True)
class CheckResult:
    """What `check` answers."""

    findings: list[Finding]
    """What was found, the worst first."""
    choices: list[Choice]
    """What was chosen, with reasons."""
    num_samples: int
    """How many samples the data has."""
    timings: dict[str, float]
    """Seconds by stage."""
    data: str
    """The data that was checked."""
    workspace: Path
    """The folder it belongs to."""

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """What the command exits with."""
        return 0 if self.ok else 1

    def to_dict(self) -> dict[str, Any]:
        return {
            "findings": [finding.to_dict() for finding in self.findings],
            "choices": [choice.to_dict() for choice in self.choices],
            "num_samples": self.num_samples,
            "timings": self.timings,
            "ok": self.ok,
        }

    def to_text(self) -> str:
        verdict = "sound" if self.ok else "not sound: nothing should be trained on it yet"
        if not self.ok and not any(_closes_gate(finding) for finding in self.findings):
            verdict = "not sound: mend it, or train without what is left out"
        ending = f"{format_count(self.num_samples, 'sample')} checked: {verdict}"
        if not self.data:  # a dataset by itself
            ending = "workers cannot load the dataset: mend it and run the same command again"
            if self.ok:
                ending = f"a spawned worker loaded a batch of the dataset ({format_seconds(self.timings['worker'])})"
            return "\n".join([render_findings(self.findings), "", ending])
        next_step = (
            f"next      unchoke fit {shlex.quote(self.data)}{out_option(self.workspace)}"
            if self.ok
            else "next      mend the errors above and run the same command again"
        )
        return "\n".join([render_findings(self.findings), "", ending, next_step])


def check(
    data: object = None,
    *,
    dataset: object | None = None,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    **options: Any,
) -> CheckResult:
    """Pre-flight gate: is this data sound, and can workers load it? Never writes inside the data.

    Args:
        data: Class folders, or a table: a file, a DataFrame, pairs of path and label, a Hugging Face or torch dataset. Left out,
            what this workspace was made for.
        dataset: An object, a torch Dataset for instance, that is also sent to a spawned worker and loaded from; or its name,
            ``my_module:make_dataset``. Without `data`, that is all.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        Findings, and whether there is an error among them (`ok`).

    Example:
        >>> unchoke.check("photos/", out="work").ok
        True
    """
    theirs = load_dataset(dataset) if isinstance(dataset, str) else dataset
    root = Path(out) if out is not None else DEFAULT_ROOT
    if theirs is not None and data is None and not load_remembered(Workspace(root)).get("data"):
        timers = StageTimers()
        with timers.stage("worker"):
            findings = try_worker(theirs, name="dataset")
        num_samples = len(theirs) if hasattr(theirs, "__len__") else 0
        return CheckResult(findings, [], num_samples, timers.seconds, "", root)
    with open_session({"data": data, **options}, out=out, on_event=on_event) as session:
        with LoadingTrial(session, theirs) as trial:
            prepared = prepare(session, on_samples=trial.begin)
            findings = rank(prepared.findings + trial.findings())
        if not prepared.errors:
            session.remember_settings()
        return CheckResult(
            findings,
            session.choices,
            len(prepared.samples),
            dict(session.timers.seconds),
            session.settings.data,
            session.workspace.root,
        )


def prepare(session: Session, *, decode: bool = True, on_samples: Callable[[Samples], None] | None = None) -> Inspection:
    """Everything of `check` but the worker: scan, look into files, split, diagnose.

    `on_samples` hears which samples there are before their files are read, and may begin something of its own. Without `decode`
    only bytes and headers are looked at, by those who decode every file anyway right after: they `settle` it. Where that leads to
    an error nobody may get to decode, so then it is done here.
    """
    import pandas  # noqa: F401  (loading it is not part of a stage)
    import pyarrow.parquet  # noqa: F401

    settings, loading = session.settings, Loading()
    with session.stage("index"), loading.here():
        scan, corrected = scan_corrected(session)
        check_target_names(settings, scan.samples.task.names, kind=scan.samples.task.kind)
    for choice in scan.choices:
        session.chose(choice)
    if on_samples is not None:
        on_samples(scan.samples)
    with session.stage("check", format_count(len(scan.samples), "file")):
        threads = settings.workers if settings.workers is not None else usable_cores()
        inspect = partial(
            inspect_samples, workspace=session.workspace, threads=threads, on_event=session.on_event, loading=loading
        )
        facts = inspect(scan.samples, decode=decode)
        recalled = recall_splits_before(session, scan)
        previous = tied_before(recalled, corrected)
        samples = scan.samples
        if settings.drop_duplicates:
            contents = facts["content"].mask(facts["problem"].isin(list(FATAL_PROBLEMS)), "").tolist()
            kept = keep_one_copy(samples, contents, previous)
            num_dropped, total = kept.count(False), format_count(len(samples), "image")
            reason = f"{num_dropped:,} of {total} are copies of others with the same label and are left out"
            session.chose(Choice("drop_duplicates", True, reason, {"dropped": num_dropped}))
            samples, facts = samples.subset(kept), facts[kept].reset_index(drop=True)
        samples, choices = assign_splits(
            samples,
            val_share=settings.val_share,
            test_share=settings.test_share,
            folds=settings.folds,
            fold=settings.test_fold,
            seed=settings.seed,
            previous=previous,
            content=facts["content"],
            weights=settings.target_weights,
        )
        if corrected.added and "fold" not in samples.frame.columns:
            # photos that were added because a model was unsure of them train: they are no fair sample to judge by
            new = samples.frame["sample_id"].isin(list(corrected.added))
            samples = samples.with_columns(split=samples.frame["split"].mask(new, "train"))
        of_files = _diagnose(session, samples, facts)
        if not decode and any(_closes_gate(finding) for finding in scan.findings + of_files):
            facts = inspect(
                samples, decode=True
            )  # what closes the gate is said as `check` says it: all at once, not of broken files
            of_files = _diagnose(session, samples, facts)
        given = bool(scan.samples.frame["split"].ne("").any())
        of_values = [*diagnose_values(samples, settings), *diagnose_splits(samples, settings, given=given)]
        of_values += [*diagnose_fold_names(scan.samples), *diagnose_folds(samples)]
        findings = scan.findings + of_values + of_files
        default_encoder = settings.encoder == Settings().encoder
        need = estimate_need(len(samples), num_views=1 + settings.views, default_encoder=default_encoder)
        findings += diagnose_room(measure_room(session.workspace.root), need, session.workspace.root)
    session.timelines["check"] = Timeline.of(None, loading)
    for choice in choices:
        session.chose(choice)
    moved, runs = count_moved(recalled, samples), listing.names(session.workspace.experiments, prefix="exp_")
    if moved and runs:  # figures of runs that were judged on other photos are no longer comparable
        changed = f"{moved:,} of {format_count(len(samples), 'sample')} changed splits"
        why = "photos that decisions put in one group are in one split" if corrected.tied else "the splits are drawn anew"
        session.warn(f"{why}, {changed}: runs before this ({list_some(runs)}) were judged on other photos")
    return_unused_memory()
    return Inspection(samples, facts, rank(findings), of_files, scan.dropped)


def scan_corrected(session: Session) -> tuple[Scan, CorrectedSamples]:
    """The samples as people corrected them, with how many corrections that took as a choice."""
    settings = session.settings
    corrections = find_corrections(session.workspace, settings.corrections)
    scan = scan_samples(replace(data_source(settings, session.workspace), dropped=corrections.dropped))
    if not corrections.standing:
        return scan, CorrectedSamples(scan.samples, {})
    corrected = apply_corrections(scan.samples, corrections, scan.dropped)
    session.chose(corrected.choice(corrections))
    return Scan(corrected.samples, scan.findings + list(corrected.findings), scan.choices, scan.dropped), corrected


def recall_splits_before(session: Session, scan: Scan) -> pd.DataFrame | None:
    """The earlier manifest, with the splits of photos that were left out for a while and are back."""
    workspace = session.workspace
    recalled = recall_manifest(workspace.manifest_file, session.warn)
    return keep_left_out(recalled, dropped=scan.dropped, folder=workspace.curation, warn=session.warn)


def tied_before(previous: pd.DataFrame | None, corrected: CorrectedSamples) -> pd.DataFrame | None:
    """The earlier manifest, with one split for each group that corrections made: no other sample has to move for it."""
    if previous is None or not corrected.tied:
        return previous
    frame = corrected.samples.frame
    group_of = dict(zip(frame["sample_id"].tolist(), frame["group"].tolist(), strict=True))
    groups = [group_of[name] if name in corrected.tied else "" for name in previous["sample_id"].tolist()]
    columns = [name for name in ("split", "fold") if name in previous.columns]
    splits = {name: one_split(groups, [str(one) for one in previous[name].tolist()]) for name in columns}
    return previous.assign(**splits, **{MOVED: splits["split"] != previous["split"].to_numpy()})


def _closes_gate(finding: Finding) -> bool:
    return finding.severity == "error" and not can_be_left_out(finding)


def _diagnose(session: Session, samples: Samples, facts: pd.DataFrame) -> list[Finding]:
    settings = session.settings
    expect = parse_expect(settings.expect) if settings.expect and settings.expect != ANYTHING else None
    return diagnose_files(samples, facts, expect=expect, failure_rate=settings.max_failures)


def settle(session: Session, prepared: Inspection, failed: Mapping[str, str]) -> tuple[Inspection, list[Finding]]:
    """What is known of the files once they were decoded, `failed` saying which did not and why; and the findings that are new.

    A file that was gone or changed meanwhile is not a finding about the data: the next run looks at it again.
    """
    if prepared.facts["decoded"].all():
        return prepared, []
    frame = prepared.samples.frame
    paths = dict(zip(frame["sample_id"].tolist(), frame["path"].tolist(), strict=True))
    by_path = {paths[item]: reason for item, reason in failed.items()}
    facts = settle_facts(session.workspace, prepared.facts, by_path, session.on_event)
    changed = (facts["problem"] != prepared.facts["problem"]).any()
    of_files = _diagnose(session, prepared.samples, facts) if changed else prepared.of_files
    new = [finding for finding in of_files if finding not in prepared.of_files]
    gone = [finding for finding in prepared.of_files if finding not in of_files]
    kept = [finding for finding in prepared.findings if finding not in gone]
    return Inspection(prepared.samples, facts, rank(kept + new), of_files, prepared.dropped), new


def data_source(settings: Settings, workspace: Workspace) -> DataSource:
    """The part of the settings that describes DATA; pictures inside a table are unpacked in the workspace."""
    return DataSource(
        data=locate(settings.data),
        images=tuple(map(locate, settings.images)),
        id=settings.id,
        path=settings.path,
        label=settings.label,
        targets=settings.target,
        group=settings.group_column,
        split=settings.split,
        fold_column=settings.fold_column,
        group_is_preset=settings.preset is not None and preset_values(settings.preset).get("group") == settings.group,
        suspects=settings.group is None,
        long=settings.long,
        inputs=settings.input,
        exclude=settings.exclude,
        strict=settings.strict,
        failure_rate=settings.max_failures,
        multi_label=settings.multi_label,
        unpack_to=workspace.root / "pictures",
    )


class LoadingTrial:
    """`check`'s worker, which loads a batch while the files are read: from the user's `dataset`, or from the first pictures.

    That our own pictures load is remembered until a version or the data's place changes; a `dataset` is tried each time.
    """

    def __init__(self, session: Session, dataset: Any = None) -> None:
        self._session = session
        self._file, self._key = session.workspace.root / ".worker-trial", ""
        self._trial = None if dataset is None else WorkerTrial(dataset, name="dataset")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._trial is not None:
            self._trial.__exit__()

    def begin(self, samples: Samples) -> None:
        """Send pictures to a worker, unless it has something to load already or is known to be able to."""
        paths = () if self._trial is not None else _first_sound(samples)
        from unchoke import __version__

        key = digest([list(paths), __version__, *(version(name) for name in ("torch", "numpy", "simplejpeg", "Pillow"))])
        if paths and not (self._file.is_file() and self._file.read_text(encoding="utf-8") == key):
            self._key, self._trial = key, WorkerTrial(ImageSet(paths))

    def findings(self) -> list[Finding]:
        """Wait for the worker, where one was sent; the time it takes beyond the reading counts as `worker`."""
        if self._trial is None:
            return []
        with self._session.stage("worker", "a spawned process loads a batch"):
            found = self._trial.findings()
        if self._key and not found:
            atomic.write_text(self._file, self._key)
        return found


def _first_sound(samples: Samples) -> tuple[str, ...]:
    """The first few pictures that decode, found by decoding; where the first many do not, `check` has that to say anyway."""
    found: list[str] = []
    for path in samples.frame["path"].head(_TRIAL_CANDIDATES):
        if len(found) < _TRIAL_IMAGES and inspect_file(path).problem not in FATAL_PROBLEMS:
            found.append(str(path))
    return tuple(found)


def gate(session: Session, prepared: Inspection) -> list[Finding]:
    """Stop on errors, with all of them; otherwise say the warnings and hand back every finding."""
    refuse_errors(session, prepared.findings)
    return prepared.findings


def refuse_errors(session: Session, findings: list[Finding]) -> None:
    """Stop on errors, with all of them, unless they are few and can be left out; otherwise say the rest."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if any(_closes_gate(finding) for finding in errors):
        raise DataError(
            f"the data has {format_count(len(errors), 'problem')} that must be mended first\n{render_findings(errors)}",
            code="unsound-data",
            why="a model trained on it would be wrong, and would not say so",
            try_="mend what is listed and run the same command again; `unchoke check` shows everything, with --json too",
        )
    tell_findings(session, findings)


def tell_findings(session: Session, findings: list[Finding]) -> None:
    """Say what was found about the data, but for notes."""
    for finding in findings:
        if finding.severity != "info":
            session.warn(f"{finding.code}: {finding.message}")


def set_aside(session: Session, prepared: Inspection, failed: dict[str, str]) -> list[QuarantineRow]:
    """Name every file that was left out, with its reason, in `quarantine.csv` and in words."""
    frame = prepared.samples.frame
    unsound = ~prepared.sound.to_numpy()
    told = prepared.facts[["problem", "detail"]]
    columns = (frame["sample_id"][unsound], frame["path"][unsound], *(told[name][unsound] for name in told))
    entries = [
        QuarantineRow(str(i), str(path), "check", f"{code}: {detail}") for i, path, code, detail in zip(*columns, strict=True)
    ]
    if failed:
        rows = frame[frame["sample_id"].isin(list(failed)) & ~unsound]
        pairs = zip(rows["sample_id"].tolist(), rows["path"].tolist(), strict=True)
        entries += [QuarantineRow(sample_id, path, "extract", failed[sample_id]) for sample_id, path in pairs]
    kept = save_quarantine(session.workspace.quarantine_file, entries)
    if kept:
        session.warn(f"{format_count(len(kept), 'file')} set aside, see {session.workspace.quarantine_file}")
    return kept
