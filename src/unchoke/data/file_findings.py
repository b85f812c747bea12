"""What is wrong with the files of the data. Pure: samples and the facts that were read of their files in, findings out.

Files are read in `inspect_samples.py`; a fact carries a `problem` code when the file could not be used. Files that fail are
quarantined later, so up to the failure rate they are warnings and beyond it errors. So are copies, the same bytes under several
names: a copy of a training picture tests nothing, and copies with different labels cannot all be right. Where splits were given
or made before, copies may lie in several splits: they stay there, and are not scored.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unchoke.core.errors import DataError, MachineError, UnchokeError, UsageError, list_some
from unchoke.core.findings import Finding, Severity
from unchoke.core.units import format_bytes, format_count
from unchoke.core.urls import is_url
from unchoke.data.sample_set import SPLITS, Samples
from unchoke.machine.detect import descriptor_limits, disk_free_bytes, machine_memory

if TYPE_CHECKING:
    import pandas as pd

FAILURE_RATE = 0.05
FATAL_PROBLEMS = {
    "unreadable": ("cannot be decoded", "replace or remove them"),
    "raster": ("are rasters and no photos", "unchoke tile and unchoke segment train read them; or save three bands as 8 bits"),
    "truncated": ("end before the picture does", "copy or download them again"),
    "empty": ("have no bytes", "copy or download them again"),
    "unreachable": ("could not be fetched", "run the same command again once the store answers"),
    "bomb-sized": ("claim more pixels than is safe to decode", "scale them down, or remove them if they are not yours"),
}
CONFLICT = "duplicate-label-conflict"
ACROSS = "duplicate-across-splits"
PLAIN = "duplicate-images"
COPY_CODES = (CONFLICT, ACROSS, PLAIN)
_DISPENSABLE = (CONFLICT, ACROSS, "rows-without-file")
"""Errors of the data about single photos: while they are few, training does without those."""
_MODES = {"rgb": "RGB", "grey": "L", "gray": "L", "l": "L", "rgba": "RGBA", "cmyk": "CMYK", "p": "P", "la": "LA", "i;16": "I;16",
          "1": "1"}  # fmt: skip
_SIZES_SHOWN = 10
_LARGER_SHARES = (0.2, 0.5)
"""What --max-failures may be raised to: beyond the last of them most of the data would be missing."""
_ALIKE_SETS = 3
"""From so many copies between the same folders on, the folders are named instead of the files."""
_ENGINE_BYTES = 100_000_000
_RECORD_BYTES_PER_SAMPLE = 600
_PROCESS_BYTES = 850_000_000
_MEMORY_BYTES_PER_SAMPLE = 1_600
_LEAST_DESCRIPTORS = 48


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What was learnt of one file; `problem` is "" for a sound one, `content` "" where it was not digested."""

    path: str
    size_bytes: int
    mtime_ns: int
    content: str = ""
    width: int = 0
    height: int = 0
    mode: str = ""
    format: str = ""
    problem: str = ""
    detail: str = ""
    decoded: bool = True
    """Whether its pixels were looked at, too; else only its bytes and its header."""


@dataclass(frozen=True)
class ImageExpectation:
    """What every image should be; None where anything goes."""

    width: int | None = None
    height: int | None = None
    mode: str | None = None


def parse_expect(text: str) -> ImageExpectation:
    """``"600x450 rgb"``, ``"600x450"`` or ``"rgb"``."""
    width = height = mode = None
    words = text.replace(",", " ").lower().split()
    for word in words or [text]:
        if match := re.fullmatch(r"([1-9][0-9]*)[x×]([1-9][0-9]*)", word):
            width, height = int(match[1]), int(match[2])
        elif word in _MODES:
            mode = _MODES[word]
        else:
            raise UsageError(
                f"not understood in --expect {text!r}: {word!r}",
                code="bad-expectation",
                why=f"it takes a size and a mode, and the modes are {', '.join(sorted(_MODES))}",
                try_="--expect '600x450 rgb'",
            )
    return ImageExpectation(width, height, mode)


def facts_frame(facts: Sequence[FileFacts] | pd.DataFrame) -> pd.DataFrame:
    """Facts as columns, rows numbered from 0."""
    import pandas as pd

    if isinstance(facts, pd.DataFrame):
        return facts.reset_index(drop=True)
    return pd.DataFrame([asdict(fact) for fact in facts], columns=list(FileFacts.__dataclass_fields__))


def diagnose_files(
    samples: Samples,
    facts: Sequence[FileFacts] | pd.DataFrame,
    *,
    expect: ImageExpectation | None = None,
    failure_rate: float = FAILURE_RATE,
) -> list[Finding]:
    """Every problem of the files: `facts` has one entry (or row) per sample, in the samples' order."""
    frame = facts_frame(facts)
    if len(frame) != len(samples):
        raise ValueError(f"{len(frame)} facts for {len(samples)} samples")
    fatal = frame["problem"].isin(list(FATAL_PROBLEMS))
    findings = [*_problems(frame[fatal], len(frame), failure_rate), *_wrong_extensions(frame), *_several_pages(frame)]
    if expect is not None:
        findings += _unexpected(frame[~fatal], expect)
    findings += diagnose_copies(samples, frame["content"].mask(fatal, "").tolist(), failure_rate=failure_rate)
    findings += diagnose_groups(samples)
    if not fatal.all():
        counts = _size_counts(frame[~fatal], mode=True)
        shown = list_some([f"{count:,} of {kind}" for kind, count in counts.items()], limit=3)
        text = f"{format_count(len(counts), 'combination')} of size and mode: {shown}"
        findings.append(Finding("sizes", text, severity="info", evidence=dict(list(counts.items())[:_SIZES_SHOWN])))
    return findings


def can_be_left_out(finding: Finding) -> bool:
    """Whether an error is about photos that are left out, of the samples or of the score, and so few that this is enough."""
    evidence = finding.evidence
    return finding.code in _DISPENSABLE and evidence.get("failed_share", 1) <= evidence.get("limit_share", 0)


def too_many_failed(failed: Mapping[str, str], total: int, share: float, *, items: str = "images") -> UnchokeError | None:
    """The error for more `failed` items, with their reasons, than a `share` of all; None where they are few enough.

    Where a store did not hand them out, they are not to blame.
    """
    if len(failed) <= share * total:
        return None
    what = f"{len(failed)} of {total} {items} could not be read: "
    what += list_some([f"{item_id} ({reason})" for item_id, reason in failed.items()], limit=3)
    num_unreachable = sum(reason.startswith("unreachable:") for reason in failed.values())
    if len(failed) - num_unreachable <= share * total:
        why = f"{num_unreachable} of them could not be fetched, and at most a share of {share:g} may fail"
        again = "run the same command again once their store answers: what is finished is kept"
        return MachineError(what, code="too-many-failed", why=why, try_=again)
    larger = [one for one in _LARGER_SHARES if one > max(share, len(failed) / total)]
    allow = f", or allow more with --max-failures {larger[0]:g}" if larger else ""
    return DataError(what, code="too-many-failed", why=f"at most a share of {share:g} may fail", try_=f"mend the files{allow}")


def _problems(failed: pd.DataFrame, total: int, failure_rate: float) -> Iterator[Finding]:
    share = len(failed) / max(total, 1)
    few = share <= failure_rate
    limit = f"{share:.1%} of all files fail, which is {'within' if few else 'above'} the limit of {failure_rate:.0%}"
    for code, (what, fix) in FATAL_PROBLEMS.items():
        rows = failed[failed["problem"] == code]
        if len(rows):
            held = f" ({rows['detail'].iloc[0]})" if code == "raster" else ""
            shares = {"failed_share": round(share, 5), "limit_share": failure_rate}
            yield Finding(
                code,
                f"{format_count(len(rows), 'file')} that {what}{held}: {list_some(_names(rows))}; {limit}",
                severity="warning" if few else "error",
                path=str(rows["path"].iloc[0]),
                paths=tuple(rows["path"].tolist()),
                evidence={"count": len(rows), **shares, "first": str(rows["detail"].iloc[0])},
                fix=fix + ("; until then they are set aside and named in quarantine.csv" if few else ""),
            )


def _names(rows: pd.DataFrame) -> list[str]:
    return [repr(Path(str(path)).name) for path in rows["path"]]


def _wrong_extensions(frame: pd.DataFrame) -> Iterator[Finding]:
    rows = frame[frame["problem"] == "wrong-extension"]
    if len(rows):
        formats = {str(name): int(count) for name, count in rows["format"].value_counts().items()}
        text = f"{format_count(len(rows), 'file')} named as another format than they are: {list_some(_names(rows))}"
        fix, paths = "they decode all the same; rename them so that other tools do not stumble", tuple(rows["path"].tolist())
        evidence = {"count": len(rows), "really": formats}
        yield Finding("wrong-extension", text, path=paths[0], paths=paths, evidence=evidence, fix=fix)


def _several_pages(frame: pd.DataFrame) -> Iterator[Finding]:
    rows = frame[frame["problem"] == "several-pages"]
    if len(rows):
        pages = {f"{count} pages": int(files) for count, files in rows["detail"].value_counts().items()}
        kinds = list_some([f"{files:,} of {count}" for count, files in pages.items()], limit=3)
        text = f"{format_count(len(rows), 'file')} with several pages ({kinds}), and only the first page of each is used: "
        text += list_some(_names(rows))
        paths = tuple(rows["path"].tolist())
        fix = "save the page that shows what is to be learnt as a file of its own, if it is not the first"
        yield Finding("several-pages", text, path=paths[0], paths=paths, evidence={"count": len(rows), **pages}, fix=fix)


def _unexpected(sound: pd.DataFrame, expect: ImageExpectation) -> Iterator[Finding]:
    differing = []
    if expect.width is not None:
        rows = sound[(sound["width"] != expect.width) | (sound["height"] != expect.height)]
        differing.append(("unexpected-size", rows, f"{expect.width}x{expect.height}", _size_counts(rows, mode=False)))
    if expect.mode is not None:
        rows = sound[sound["mode"] != expect.mode]
        modes = {str(mode): int(count) for mode, count in rows["mode"].value_counts().items()}
        differing.append(("unexpected-mode", rows, expect.mode, modes))
    for code, rows, expected, counts in differing:
        if len(rows):
            kinds = list_some([f"{count:,} are {kind}" for kind, count in counts.items()])
            text = f"{format_count(len(rows), 'image')} not {expected}: {kinds}"
            paths = tuple(rows["path"].tolist())
            fix = f"convert them to {expected}, remove them, or say --expect any if they belong"
            evidence = {"expected": expected, "count": len(rows), "found": dict(list(counts.items())[:_SIZES_SHOWN])}
            yield Finding(code, text, severity="error", path=paths[0], paths=paths, evidence=evidence, fix=fix)


def _size_counts(rows: pd.DataFrame, *, mode: bool) -> dict[str, int]:
    """``{"600x450 RGB": 812, …}``, most frequent first, ties by name."""
    names = ["width", "height", "mode"] if mode else ["width", "height"]
    counts = rows.groupby(names).size()
    labelled = {"x".join(map(str, key[:2])) + (f" {key[2]}" if mode else ""): int(count) for key, count in counts.items()}  # type: ignore[index]
    return dict(sorted(labelled.items(), key=lambda item: (-item[1], item[0])))


def diagnose_groups(samples: Samples) -> Iterator[Finding]:
    """Groups whose samples lie in several splits, or in several folds."""
    own = "fold" in samples.frame.columns
    splits: dict[str, set[str]] = defaultdict(set)
    places = samples.frame["fold" if own else "split"].tolist()
    for group, split in zip(samples.frame["group"].tolist(), map(str, places), strict=True):
        if group and split:
            splits[group].add(split)
    torn = sorted(group for group, found in splits.items() if len(found) > 1)
    if not torn:
        return
    paths = tuple(samples.frame.loc[samples.frame["group"].isin(torn), "path"].tolist())
    where = f"in several folds of {samples.fold_name!r}" if own else "in several splits"
    ours = "leave --fold-column out and give --folds 5" if own else "leave --split out and give --group"
    yield Finding(
        "group-leakage",
        f"{format_count(len(torn), 'group')} of {samples.group_name or 'group'!r} {where}: {list_some(list(map(repr, torn)))}",
        severity="error",
        path=paths[0],
        paths=paths,
        evidence={"groups": len(torn), "of": len(splits), "sides": {group: sorted(splits[group]) for group in torn[:10]}},
        fix=f"put all samples of a group in one {'fold' if own else 'split'}, or {ours} to have it done",
    )


# -- copies ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnscoredSample:
    """A sample of val or test that no score may count, and why."""

    row: int
    sample_id: str
    path: str
    split: str
    code: str
    reason: str


@dataclass(frozen=True)
class CopySets:
    """Sets of rows with the same bytes: labelled differently, in several splits (possibly both), or merely repeated."""

    conflicts: list[list[int]]
    across: list[list[int]]
    plain: list[list[int]]


def find_copies(samples: Samples, contents: Sequence[str]) -> CopySets:
    """The rows that share a digest; "" is not known and like no other."""
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, content in enumerate(contents):
        if content:
            rows_of[content].append(row)
    found = CopySets([], [], [])
    sets = [rows for rows in rows_of.values() if len(rows) > 1]
    if not sets:
        return found
    values = list(zip(*(samples.frame[name].tolist() for name in samples.value_columns), strict=True))
    splits = samples.frame["split"].tolist()
    for rows in sets:
        conflicts, across = len({values[row] for row in rows}) > 1, len({splits[row] for row in rows} - {""}) > 1
        for kind, belongs in ((found.conflicts, conflicts), (found.across, across), (found.plain, not conflicts and not across)):
            if belongs:
                kind.append(rows)
    return found


def find_unscored(samples: Samples, contents: Sequence[str]) -> list[UnscoredSample]:
    """Samples of val and test with copies labelled otherwise, or with a copy in an earlier split: a picture counts in the first
    split that has it, and is no test of what was trained on it or chosen by it.
    """
    found, reasons = find_copies(samples, contents), dict[int, tuple[str, str]]()
    names, splits = samples.frame["sample_id"].tolist(), samples.frame["split"].tolist()
    for rows in found.across:
        first = min((row for row in rows if splits[row]), key=lambda row: SPLITS.index(splits[row]))
        for row in rows:
            if splits[row] not in ("", splits[first]):
                reasons[row] = (ACROSS, f"a copy of {names[first]!r}, which is in the {splits[first]} split")
    for rows in found.conflicts:
        for row in rows:
            other = next(one for one in rows if one != row)
            if splits[row] not in ("", "train"):
                reasons.setdefault(row, (CONFLICT, f"the same picture has another label as {names[other]!r}"))
    if not reasons:
        return []
    paths = samples.frame["path"].tolist()
    return [UnscoredSample(row, names[row], paths[row], splits[row], *reasons[row]) for row in sorted(reasons)]


def keep_one_copy(samples: Samples, contents: Sequence[str], previous: pd.DataFrame | None = None) -> list[bool]:
    """Which samples stay when copies go: of copies with one label the one in the first split, given or of the earlier manifest,
    else the first by name. Copies with different labels all stay: which of them is right is not ours to say.
    """
    found = find_copies(samples, contents)
    names, given = samples.frame["sample_id"].tolist(), samples.frame["split"].tolist()
    earlier = {} if previous is None else dict(zip(previous["sample_id"].tolist(), previous["split"].tolist(), strict=True))
    kept = [True] * len(samples)
    conflicting = {row for rows in found.conflicts for row in rows}
    for rows in (rows for rows in (*found.across, *found.plain) if rows[0] not in conflicting):
        splits = {row: given[row] or earlier.get(names[row], "") for row in rows}
        first = min(rows, key=lambda row: SPLITS.index(splits[row]) if splits[row] in SPLITS else len(SPLITS))
        for row in rows:
            kept[row] = row == first
    return kept


def diagnose_copies(samples: Samples, contents: Sequence[str], *, failure_rate: float) -> Iterator[Finding]:
    """Copies that spoil a score are errors of the data; up to the failure rate training can do without them."""
    found, unscored = find_copies(samples, contents), {one.row for one in find_unscored(samples, contents)}
    share = len(unscored.union(*found.conflicts)) / max(len(samples), 1)
    place = "within" if share <= failure_rate else "above"
    limit = f"; {share:.1%} of all files are such copies, which is {place} the limit of {failure_rate:.0%}"
    kinds: tuple[tuple[str, list[list[int]], str, Severity, str], ...] = (
        (CONFLICT, found.conflicts, "with different labels", "error", "keep the copy with the right label"),
        (ACROSS, found.across, "in several splits", "error", "keep one copy, or put all in one split"),
        (PLAIN, found.plain, "with the same label, in the same split", "info", "keep one copy unless the weight is meant"),
    )
    for code, sets, how, severity, fix in kinds:
        if not sets:
            continue
        text = f"{format_count(len(sets), 'image')} stored several times {how}: {list_some(_shown(samples, sets), limit=3)}"
        evidence = {"failed_share": round(share, 5), "limit_share": failure_rate}
        if code != PLAIN:
            left_out = sum(row in unscored for rows in sets for row in rows)
            text += f"; {format_count(left_out, 'file')} of val and test left out of the score" if left_out else ""
            text += limit
        concerned = tuple(samples.frame["path"].iloc[[row for rows in sets for row in rows]].tolist())
        yield Finding(
            code,
            text,
            severity=severity,
            path=concerned[0],
            paths=concerned,
            evidence={"images": len(sets), "files": len(concerned), **_differences(code, samples, sets), **evidence},
            fix=fix,
        )


def _shown(samples: Samples, sets: list[list[int]]) -> list[str]:
    """The sets in words: folders where many sets lie in the same ones, else files."""
    folders = [os.path.dirname(path) for path in samples.frame["path"].tolist()]  # noqa: PTH120 (text, for every file)
    common = os.path.commonpath(folders) if folders and len({is_url(folder) for folder in folders}) == 1 else ""
    folders = [folder[len(common) :].strip("/") or "." for folder in folders]
    sizes = Counter(folders)
    places = [tuple(dict.fromkeys(folders[row] for row in rows)) for rows in sets]
    counts = Counter(place for place in places if len(place) > 1)
    alike = {place: count for place, count in counts.most_common() if count >= _ALIKE_SETS}
    shown = [
        f"folder {' = '.join(repr(folder) for folder in place)}, {count:,} of {max(sizes[folder] for folder in place):,}"
        for place, count in alike.items()
    ]
    names = samples.frame["sample_id"].tolist()
    single = (rows for rows, place in zip(sets, places, strict=True) if place not in alike)
    return shown + [" = ".join(repr(names[row]) for row in rows[:4]) for rows in single]


def _differences(code: str, samples: Samples, sets: Iterable[list[int]]) -> dict[str, list[list[str]]]:
    """For the first sets, what differs within them."""
    if code == PLAIN:
        return {}
    frame = samples.frame[list(samples.value_columns if code == CONFLICT else ("split",))]
    return {"differ": [sorted({str(cell) for cell in frame.iloc[rows].to_numpy().ravel()}) for rows in list(sets)[:10]]}


# -- room ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Room:
    """What a run takes, or what the machine has free. The needs were measured (docs/claims.md): features stay on disk and are
    mapped, so memory hardly grows with the number of images; most of it goes into converting the network.
    """

    disk_bytes: int
    memory_bytes: int
    descriptors: int = _LEAST_DESCRIPTORS


def estimate_need(num_samples: int, *, num_views: int, default_encoder: bool) -> Room:
    """Float16 features for every view, the engine's file, and a little for each sample's records."""
    dim = 2224 if default_encoder else 8192
    disk_bytes = num_samples * (num_views * dim * 2 + _RECORD_BYTES_PER_SAMPLE) + _ENGINE_BYTES
    return Room(disk_bytes, _PROCESS_BYTES + num_samples * _MEMORY_BYTES_PER_SAMPLE)


def measure_room(folder: Path) -> Room:
    """What is free where the workspace will be."""
    return Room(disk_free_bytes(folder.resolve()), machine_memory()[1], descriptor_limits()[0] or 1_000_000)


def diagnose_room(room: Room, need: Room, folder: Path) -> Iterator[Finding]:
    """An error for a disk that cannot hold the result; warnings where it will be tight."""
    if room.disk_bytes < need.disk_bytes:
        yield Finding(
            "disk-too-small",
            f"the features need about {format_bytes(need.disk_bytes)}, {format_bytes(room.disk_bytes)} are free at {folder}",
            severity="error",
            stage="extract",
            evidence={"need_bytes": need.disk_bytes, "free_bytes": room.disk_bytes},
            fix="free some space, or put the workspace on another disk with --out",
        )
    if room.memory_bytes < need.memory_bytes:
        yield Finding(
            "memory-tight",
            f"about {format_bytes(need.memory_bytes)} of memory will be used, {format_bytes(room.memory_bytes)} are free",
            stage="extract",
            evidence={"need_bytes": need.memory_bytes, "available_bytes": room.memory_bytes},
            fix="close other programs; fewer images would change little",
        )
    if room.descriptors < need.descriptors:
        yield Finding(
            "descriptors-few",
            f"this shell allows {format_count(room.descriptors, 'open file')}, {need.descriptors} are wanted",
            stage="extract",
            evidence={"limit": room.descriptors},
            fix="raise the limit",
            command="ulimit -n 1024",
        )
