"""`corrections.csv`: what a person decided about single photos. The one module that reads it and adds lines to it.

In: the file, samples, decisions. Out: the decisions that stand, the samples as they are with them, a longer file. Lines are only
ever added, and added whole: a kill leaves the file as it was or with all new lines in it. The last line about a photo and a
`what` holds; an empty value takes it back. Photos themselves are never touched.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from unchoke.core import atomic
from unchoke.core.choices import CORRECTIONS, Choice
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest
from unchoke.core.input_file import read_plain, size_and_time
from unchoke.core.listing import FileEntry
from unchoke.core.units import format_count
from unchoke.core.workspace import Workspace
from unchoke.data.sample_set import Samples, TaskSpec, build_samples
from unchoke.data.several_labels import MULTI_LABEL, join_labels, task_of
from unchoke.data.table import SEVERAL

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("photo", "what", "value", "who", "when")
LABEL, USE, GROUP, VALUE = "label", "use", "group", "value:"
DROP, KEEP = "drop", "keep"
IGNORED = "none"
"""The word for no file at all."""
_LOCK_S = 10.0
_SEPARATORS = (",", ";", "\t")


@dataclass(frozen=True)
class Correction:
    """One decision: the sample's id, what it is about, and what holds from now on ("" for what held before)."""

    photo: str
    what: str
    value: str
    who: str = ""
    when: str = ""

    def __post_init__(self) -> None:
        if fault := _fault(self.photo, self.what, self.value):
            raise UsageError(f"no correction: {fault}", code="bad-correction", why=_RULE, try_=_EXAMPLE)


_RULE = "`what` is label, use (drop or keep), group (the id of another photo) or value:TARGET (a number)"
_EXAMPLE = "a line such as cats/1.jpg,label,dog,me,2026-03-01T10:00:00+00:00"


def _fault(photo: str, what: str, value: str) -> str:
    """What is wrong with a decision; "" for a sound one."""
    if not photo:
        return "no photo is named"
    if what == USE:
        return "" if value in (DROP, KEEP, "") else f"{value!r} is neither drop nor keep"
    if what in (LABEL, GROUP):
        return "" if value != photo or what == LABEL else "a photo is always in one group with itself"
    if not what.startswith(VALUE) or what == VALUE:
        return f"{what!r} is nothing that can be corrected"
    try:
        return "" if not value or np.isfinite(float(value)) else f"{value!r} is not a finite number"
    except ValueError:
        return f"{value!r} is not a number"


@dataclass(frozen=True)
class Corrections:
    """All lines of a file, in order, and what they come to."""

    file: Path
    lines: tuple[Correction, ...] = ()

    @cached_property
    def standing(self) -> dict[tuple[str, str], Correction]:
        """The decisions that hold, by photo and what."""
        last = {(line.photo, line.what): line for line in self.lines}
        return {key: line for key, line in last.items() if line.value}

    def values(self, what: str) -> dict[str, str]:
        """What holds of each photo, for one `what`."""
        return {photo: line.value for (photo, kind), line in self.standing.items() if kind == what}

    @property
    def dropped(self) -> frozenset[str]:
        return frozenset(photo for photo, value in self.values(USE).items() if value == DROP)

    @property
    def decided(self) -> frozenset[str]:
        """Every photo that somebody decided something about."""
        return frozenset(photo for photo, _ in self.standing)

    @property
    def key(self) -> str:
        """A digest of what they come to."""
        return digest(sorted([photo, what, line.value] for (photo, what), line in self.standing.items()))


def corrections_file(workspace: Workspace, named: str | None) -> Path | None:
    """The file that was named, or the workspace's own; None where none is to be used, or there is none."""
    if named == IGNORED:
        return None
    if named is None:
        return workspace.corrections_file if workspace.corrections_file.exists() else None
    if not Path(named).is_file():
        raise UsageError(
            f"no corrections at {named}",
            code="no-such-file",
            why="--corrections names a CSV file",
            try_=f"check the path, or --corrections {IGNORED}",
        )
    return Path(named)


def find_corrections(workspace: Workspace, named: str | None) -> Corrections:
    """What stands in the file that is to be used; nothing where there is none."""
    file = corrections_file(workspace, named)
    return Corrections(workspace.corrections_file) if file is None else load_corrections(file)


def load_corrections(file: Path) -> Corrections:
    """Every line of the file; one that makes no sense is an error that names it."""

    def refused(reason: str) -> DataError:
        return DataError(
            f"{file} cannot be read as corrections",
            code="unreadable-corrections",
            why=reason,
            try_=f"let its first line be {','.join(COLUMNS)}; {_EXAMPLE}",
        )

    data = read_plain(file)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise refused("it is UTF-16, and UTF-8 is expected: save it as “CSV UTF-8”")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        raise refused(f"line {number} holds the byte 0x{byte:02x}, which is not UTF-8: save it as “CSV UTF-8”") from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=_separator(text))
    try:
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise refused(f"line {reader.line_num}: {error}") from error
    if not rows:
        return Corrections(file)
    header = [cell.strip().lower() for cell in rows[0][1]]
    if lacking := [name for name in COLUMNS[:3] if name not in header]:
        raise refused(f"its first line names no column {list_some([repr(name) for name in lacking])}")
    places = {name: header.index(name) for name in COLUMNS if name in header}
    lines, faults = [], []
    for number, row in rows[1:]:
        if not any(row):
            continue
        cells = {name: row[place] if place < len(row) else "" for name, place in places.items()}
        if (what := cells["what"].strip()).lower() in (LABEL, USE, GROUP):  # in any letter case, as spreadsheets have them
            what = what.lower()
        cells |= {"what": what, "value": cells["value"].strip().lower() if what == USE else cells["value"]}
        fault = _fault(cells["photo"], what, cells["value"])
        if fault := "it ends before its value" if len(row) <= max(places[name] for name in COLUMNS[:3]) else fault:
            faults.append(f"line {number}: {fault}")
        else:
            lines.append(Correction(**cells))
    if faults:
        what = f"{file} has {format_count(len(faults), 'line')} that {'corrects' if len(faults) == 1 else 'correct'} nothing"
        raise DataError(f"{what}: {list_some(faults)}", code="bad-correction", why=_RULE, try_=_EXAMPLE)
    return Corrections(file, tuple(lines))


def _separator(text: str) -> str:
    """What stands between the names of the columns: spreadsheets write semicolons in countries whose numbers have commas."""
    return max(_SEPARATORS, key=text.partition("\n")[0].count)


def append_corrections(file: Path, decisions: Iterable[Correction]) -> None:
    """Add lines in one write and have them on the disk before this returns. What is there is never written again: others may
    append at the same time, with the lock or without it.
    """
    from filelock import FileLock

    lines = [one if one.when else replace(one, when=datetime.now(UTC).isoformat(timespec="seconds")) for one in decisions]
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_name(f".{file.name}.lock"), timeout=_LOCK_S):
        before = ""
        if file.exists():
            load_corrections(file)  # one that cannot be read takes no more lines
            before = read_plain(file).decode("utf-8-sig")
        text = io.StringIO(newline="")
        if before and not before.endswith("\n"):
            text.write("\n")
        header = next(iter(before.strip().splitlines()), "")
        separator = _separator(header) if header else ","
        writer = csv.writer(text, lineterminator="\n", delimiter=separator)
        if header:
            order = [cell.strip().lower() for cell in next(csv.reader([header], delimiter=separator))]
        else:
            order = list(COLUMNS)
            writer.writerow(order)
        writer.writerows([getattr(line, name, "") for name in order] for line in lines)
        with file.open("ab", buffering=0) as end:
            end.write(atomic.valid_text(text.getvalue()).encode("utf-8"))
            os.fsync(end.fileno())


@dataclass(frozen=True)
class CorrectedSamples:
    """Samples with corrections in them, how many of each kind were used, and which photos are new."""

    samples: Samples
    used: dict[str, int]
    added: frozenset[str] = frozenset()
    tied: frozenset[str] = frozenset()
    """Samples in groups that corrections made or joined: they must go to one split, whatever was said of them before."""
    findings: tuple[Finding, ...] = ()

    @property
    def num_used(self) -> int:
        return sum(self.used.values())

    def choice(self, corrections: Corrections) -> Choice:
        """What was used, for the record."""
        words = [f"{count:,} {_WORDS[name]}" for name, count in self.used.items() if count]
        reason = f"decisions in {corrections.file}: {', '.join(words) or 'none of them can be used'}"
        if self.num_used < len(corrections.standing):
            reason += "; `unchoke check` says why not the others"
        total = format_count(len(corrections.standing), "decision")
        return Choice(CORRECTIONS, f"{self.num_used:,} of {total}", reason, {**self.used, "key": corrections.key[:16]})


_WORDS = {"labels": "labels", "values": "values", "dropped": "dropped", "kept": "kept", "grouped": "grouped", "added": "added"}


def apply_corrections(
    samples: Samples, corrections: Corrections, dropped: Mapping[str, str] = MappingProxyType({})
) -> CorrectedSamples:
    """The samples as people say they are. Those in `dropped` (id, path) are no longer among them: the scan left them out."""
    gone = set(dropped)
    ids = set(samples.frame["sample_id"].tolist())
    added = _added(samples, corrections, known=ids | gone, out=dropped.values())
    if len(added):
        samples = _with_added(samples, added)
        ids |= {entry.path for entry, _ in added}
    changed: dict[str, Any] = {}
    num_labels = num_values = 0
    names, before, task = samples.frame["sample_id"].tolist(), set(samples.task.names), samples.task
    if task.kind != "regression":
        labels = {photo: value for photo, value in corrections.values(LABEL).items() if photo in ids}
        pairs = zip(names, samples.frame["label"].tolist(), strict=True)
        if task.kind == MULTI_LABEL:
            labels = {photo: join_labels(value.split(SEVERAL)) for photo, value in labels.items()}
        changed["label"] = _text([labels.get(name, label) for name, label in pairs])
        num_labels, task = len(labels) - len(added), task_of(task.kind, changed["label"])
    for target in task.names if task.kind == "regression" else ():
        wanted = {photo: value for photo, value in corrections.values(f"{VALUE}{target}").items() if photo in ids}
        if wanted:
            pairs = zip(names, samples.frame[target].tolist(), strict=True)
            changed[target] = [float(wanted.get(name, value)) for name, value in pairs]
            num_values += len(wanted)
    samples = replace(samples, task=task).with_columns(**changed)
    samples, num_grouped, tied = _with_groups(samples, corrections.values(GROUP), ids)
    used = {
        "labels": num_labels,
        "values": num_values,
        "dropped": len(corrections.dropped & gone),
        "kept": sum(value == KEEP and photo in ids for photo, value in corrections.values(USE).items()),
        "grouped": num_grouped,
        "added": len(added),
    }
    findings = _strangers(corrections, ids | gone) + _unused(samples.task, corrections, ids, gone)
    if task.kind != "regression" and (new := sorted(set(task.names) - before)):
        text = f"corrections add {format_count(len(new), 'class', 'classes')}: {list_some([repr(name) for name in new])}"
        fix = "if that was mistyped, correct it once more"
        findings.append(Finding("corrections-new-class", text, evidence={"classes": new}, fix=fix))
    return CorrectedSamples(samples, used, frozenset(entry.path for entry, _ in added), tied, tuple(findings))


def _added(samples: Samples, corrections: Corrections, *, known: set[str], out: Iterable[str]) -> list[tuple[FileEntry, str]]:
    """Photos outside DATA that somebody gave a label: files that are there, under their paths. A photo `out` of use stays so."""
    if samples.task.kind == "regression":
        return []
    labels, dropped = corrections.values(LABEL), corrections.dropped
    paths = [photo for photo in labels if photo not in known and photo not in dropped and Path(photo).is_absolute()]
    inside = {*samples.frame["path"].tolist(), *out, *map(os.path.realpath, out)} if paths else set()
    there = [path for path in paths if inside.isdisjoint((path, os.path.realpath(path))) and Path(path).is_file()]
    return [(FileEntry(path, path, *size_and_time(path)), labels[path]) for path in there]


def _with_added(samples: Samples, added: Sequence[tuple[FileEntry, str]]) -> Samples:
    import pandas as pd

    entries = [entry for entry, _ in added]
    columns: dict[str, Any] = {"label": [label for _, label in added]}
    extra = {name: [np.nan] * len(added) for name in samples.inputs}
    if extra:
        raise DataError(
            f"{format_count(len(added), 'photo')} outside the table cannot be added: {list_some([one.path for one in entries])}",
            code="cannot-add-photos",
            why=f"the columns {list_some(list(extra))} that the network sees beside a photo are not known of them",
            try_="add rows to the table instead, or leave --input out",
        )
    new = build_samples(samples.task, entries, sample_ids=[entry.path for entry in entries], values=columns)
    frame = pd.concat([samples.frame, new.frame.reindex(columns=samples.frame.columns, fill_value="")], ignore_index=True)
    return replace(samples, frame=frame.sort_values("sample_id", kind="stable", ignore_index=True))


def _with_groups(samples: Samples, ties: dict[str, str], ids: set[str]) -> tuple[Samples, int, frozenset[str]]:
    """Samples that were tied become one group, with all that were in one group with any of them, and have one given split."""
    pairs = sorted((photo, other) for photo, other in ties.items() if photo in ids and other in ids)
    if not pairs:
        return samples, 0, frozenset()
    names, groups = samples.frame["sample_id"].tolist(), samples.frame["group"].tolist()
    own = {name: f"group {group}" if group else f"photo {name}" for name, group in zip(names, groups, strict=True)}
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        while parent.get(node, node) != node:
            node = parent[node]
        return node

    for photo, other in pairs:
        first, second = sorted((root(own[photo]), root(own[other])))
        parent[second] = first
    tied = {root(own[photo]) for photo, _ in pairs}
    merged = [root(own[name]).removeprefix("group ") if root(own[name]) in tied else "" for name in names]
    joined = [one or group for one, group in zip(merged, groups, strict=True)]
    splits = one_split(merged, samples.frame["split"].tolist())
    told = samples.group_name or "corrections"
    changed = replace(samples.with_columns(group=_text(joined), split=_text(splits)), group_name=told)
    return changed, len(pairs), frozenset(name for name, one in zip(names, merged, strict=True) if one)


def one_split(groups: Sequence[str], splits: Sequence[str]) -> list[str]:
    """Splits such that each group has one: where most of it was; where that is undecided, train, if it is among
    them.
    """
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for group, split in zip(groups, splits, strict=True):
        if group and split:
            votes[group][split] += 1
    chosen = {group: max(counts, key=lambda split: (counts[split], split == "train", split)) for group, counts in votes.items()}
    return [chosen[group] if split and group in chosen else split for group, split in zip(groups, splits, strict=True)]


def _text(cells: list[str]) -> pd.Series[str]:
    import pandas as pd

    return pd.Series(cells, dtype="str")


def _strangers(corrections: Corrections, known: set[str]) -> list[Finding]:
    """Decisions about photos that are not there."""
    unknown = sorted(photo for photo in corrections.decided if photo not in known)
    if not unknown:
        return []
    text = f"{corrections.file.name} speaks of {format_count(len(unknown), 'photo')} that the data does not have: "
    text += list_some([repr(photo) for photo in unknown])
    fix = "a photo is named as in manifest.csv, under sample_id; one outside the data by its whole path"
    return [Finding("corrections-unknown", text, path=str(corrections.file), evidence={"photos": unknown[:1000]}, fix=fix)]


def _unused(task: TaskSpec, corrections: Corrections, ids: set[str], gone: set[str]) -> list[Finding]:
    """Decisions about photos that are there, and yet change nothing: each with the reason."""
    reasons = {line: reason for line in corrections.standing.values() if (reason := _why_unused(line, task, ids, gone))}
    if not reasons:
        return []
    shown = [f"{line.photo!r}, {line.what} {line.value!r} ({reason})" for line, reason in reasons.items()]
    text = f"{format_count(len(shown), 'decision')} in {corrections.file.name} cannot be used: {list_some(shown)}"
    evidence = {"decisions": [[line.photo, line.what, line.value, reason] for line, reason in list(reasons.items())[:1000]]}
    fix = "correct the line by another one, or take it back by one with an empty value"
    return [Finding("corrections-unused", text, path=str(corrections.file), evidence=evidence, fix=fix)]


def _why_unused(line: Correction, task: TaskSpec, ids: set[str], gone: set[str]) -> str:
    """Why a decision changes nothing; "" for one that does, or is about a photo that is not there."""
    if line.photo in gone:
        return "" if line.what == USE else "the photo is dropped"
    if line.photo not in ids:
        return ""
    if line.what == GROUP and line.value not in ids:
        return "the other photo is dropped" if line.value in gone else "there is no such photo to be with"
    if line.what == LABEL and task.kind == "regression":
        return f"the photos have values, of {list_some(task.names)}, and no labels"
    if line.what.startswith(VALUE) and line.what.removeprefix(VALUE) not in (task.names if task.kind == "regression" else ()):
        return "the photos have labels and no values" if task.kind != "regression" else f"targets are {list_some(task.names)}"
    return ""
