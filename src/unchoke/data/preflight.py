"""What is wrong with the files of the data. Pure: samples and the facts that were read of them in, findings out.

Files are read in `inspect_samples.py`; a fact carries a `problem` code when the file could not be used. Files that fail are
quarantined later, so up to the failure rate they are warnings and beyond it errors.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unchoke.core.errors import DataError, MachineError, UnchokeError, UsageError, list_some
from unchoke.core.findings import Finding, Severity
from unchoke.core.units import format_count
from unchoke.data.copies import ACROSS, CONFLICT, diagnose_copies
from unchoke.data.sample_set import Samples

if TYPE_CHECKING:
    import pandas as pd

FAILURE_RATE = 0.05
FATAL_PROBLEMS = {
    "unreadable": ("cannot be decoded", "replace or remove them"),
    "truncated": ("end before the picture does", "copy or download them again"),
    "empty": ("have no bytes", "copy or download them again"),
    "unreachable": ("could not be fetched", "run the same command again once the store answers"),
    "bomb-sized": ("claim more pixels than is safe to decode", "scale them down, or remove them if they are not yours"),
}
_DISPENSABLE = (CONFLICT, ACROSS, "rows-without-file")
"""Errors of the data about single photos: while they are few, training does without those."""
_MODES = {
    "rgb": "RGB",
    "grey": "L",
    "gray": "L",
    "l": "L",
    "rgba": "RGBA",
    "cmyk": "CMYK",
    "p": "P",
    "la": "LA",
    "i;16": "I;16",
    "1": "1",
}
_SIZES_SHOWN = 10
_LARGER_SHARES = (0.2, 0.5)
"""What --max-failures may be raised to: beyond the last of them most of the data would be missing."""


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
    for word in text.replace(",", " ").lower().split():
        if match := re.fullmatch(r"([1-9][0-9]*)[x×]([1-9][0-9]*)", word):
            width, height = int(match[1]), int(match[2])
        elif word in _MODES:
            mode = _MODES[word]
        else:
            raise _bad_expect(text, word)
    if width is None and mode is None:
        raise _bad_expect(text, text)
    return ImageExpectation(width, height, mode)


def _bad_expect(text: str, word: str) -> UsageError:
    return UsageError(
        f"not understood in --expect {text!r}: {word!r}",
        code="bad-expectation",
        why=f"it takes a size and a mode, and the modes are {', '.join(sorted(_MODES))}",
        try_="--expect '600x450 rgb'",
    )


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
    sound = frame[~fatal]
    findings = _problems(frame, failure_rate=failure_rate) + _wrong_extensions(frame)
    if expect is not None:
        findings += _unexpected(sound, expect)
    findings += diagnose_copies(samples, frame["content"].mask(fatal, "").tolist(), failure_rate=failure_rate)
    findings += diagnose_groups(samples)
    return findings + _sizes(sound)


def can_be_left_out(finding: Finding) -> bool:
    """Whether an error is about photos that are left out, of the samples or of the score, and so few that this is enough."""
    evidence = finding.evidence
    return finding.code in _DISPENSABLE and evidence.get("failed_share", 1) <= evidence.get("limit_share", 0)


def too_many_failed(failed: Mapping[str, str], total: int, share: float, *, items: str = "images") -> UnchokeError | None:
    """The error for more `failed` items, with their reasons, than a `share` of all; None where they are few enough.

    Where it is a store that did not hand them out, they are not to blame.
    """
    if len(failed) <= share * total:
        return None
    what = f"{len(failed)} of {total} {items} could not be read: "
    what += list_some([f"{item_id} ({reason})" for item_id, reason in failed.items()], limit=3)
    num_unreachable = sum(reason.startswith("unreachable:") for reason in failed.values())
    if len(failed) - num_unreachable <= share * total:
        why = f"{num_unreachable} of them could not be fetched, and at most a share of {share:g} may fail"
        return MachineError(
            what,
            code="too-many-failed",
            why=why,
            try_="run the same command again once their store answers: what is finished is kept",
        )
    larger = [one for one in _LARGER_SHARES if one > max(share, len(failed) / total)]
    allow = f", or allow more with --max-failures {larger[0]:g}" if larger else ""
    return DataError(what, code="too-many-failed", why=f"at most a share of {share:g} may fail", try_=f"mend the files{allow}")


def facts_frame(facts: Sequence[FileFacts] | pd.DataFrame) -> pd.DataFrame:
    """Facts as columns, rows numbered from 0."""
    import pandas as pd

    if isinstance(facts, pd.DataFrame):
        return facts.reset_index(drop=True)
    return pd.DataFrame([asdict(fact) for fact in facts], columns=list(FileFacts.__dataclass_fields__))


def _problems(frame: pd.DataFrame, *, failure_rate: float) -> list[Finding]:
    failed = frame[frame["problem"].isin(list(FATAL_PROBLEMS))]
    share = len(failed) / max(len(frame), 1)
    severity: Severity = "warning" if share <= failure_rate else "error"
    place = "within" if severity == "warning" else "above"
    limit = f"{share:.1%} of all files fail, which is {place} the limit of {failure_rate:.0%}"
    return [
        Finding(
            code,
            f"{format_count(len(rows), 'file')} that {what}: {list_some(_names(rows))}; {limit}",
            severity=severity,
            path=str(rows["path"].iloc[0]),
            paths=tuple(rows["path"].tolist()),
            evidence={
                "count": len(rows),
                "failed_share": round(share, 5),
                "limit_share": failure_rate,
                "first": str(rows["detail"].iloc[0]),
            },
            fix=fix + ("; until then they are set aside and named in quarantine.csv" if severity == "warning" else ""),
        )
        for code, (what, fix) in FATAL_PROBLEMS.items()
        if len(rows := failed[failed["problem"] == code])
    ]


def _names(rows: pd.DataFrame) -> list[str]:
    return [repr(Path(str(path)).name) for path in rows["path"]]


def _wrong_extensions(frame: pd.DataFrame) -> list[Finding]:
    rows = frame[frame["problem"] == "wrong-extension"]
    if not len(rows):
        return []
    formats = {str(name): int(count) for name, count in rows["format"].value_counts().items()}
    text = f"{format_count(len(rows), 'file')} named as another format than they are: {list_some(_names(rows))}"
    fix = "they decode all the same; rename them so that other tools do not stumble"
    paths = tuple(rows["path"].tolist())
    return [
        Finding("wrong-extension", text, path=paths[0], paths=paths, evidence={"count": len(rows), "really": formats}, fix=fix)
    ]


def _unexpected(sound: pd.DataFrame, expect: ImageExpectation) -> list[Finding]:
    findings = []
    if expect.width is not None:
        rows = sound[(sound["width"] != expect.width) | (sound["height"] != expect.height)]
        findings += _differing("unexpected-size", rows, f"{expect.width}x{expect.height}", _size_counts(rows, mode=False))
    if expect.mode is not None:
        rows = sound[sound["mode"] != expect.mode]
        findings += _differing(
            "unexpected-mode", rows, expect.mode, {str(k): int(v) for k, v in rows["mode"].value_counts().items()}
        )
    return findings


def _differing(code: str, rows: pd.DataFrame, expected: str, counts: dict[str, int]) -> list[Finding]:
    if not len(rows):
        return []
    kinds = list_some([f"{count:,} are {kind}" for kind, count in counts.items()])
    text = f"{format_count(len(rows), 'image')} not {expected}: {kinds}"
    paths = tuple(rows["path"].tolist())
    fix = f"convert them to {expected}, remove them, or say --expect any if they belong"
    evidence = {"expected": expected, "count": len(rows), "found": dict(list(counts.items())[:_SIZES_SHOWN])}
    return [Finding(code, text, severity="error", path=paths[0], paths=paths, evidence=evidence, fix=fix)]


def _size_counts(rows: pd.DataFrame, *, mode: bool) -> dict[str, int]:
    """``{"600x450 RGB": 812, …}``, most frequent first, ties by name."""
    names = ["width", "height", "mode"] if mode else ["width", "height"]
    counts = rows.groupby(names).size()
    labelled = {"x".join(map(str, key[:2])) + (f" {key[2]}" if mode else ""): int(count) for key, count in counts.items()}  # type: ignore[index]
    return dict(sorted(labelled.items(), key=lambda item: (-item[1], item[0])))


def _sizes(sound: pd.DataFrame) -> list[Finding]:
    if not len(sound):
        return []
    counts = _size_counts(sound, mode=True)
    shown = dict(list(counts.items())[:_SIZES_SHOWN])
    kinds = format_count(len(counts), "combination")
    text = f"{kinds} of size and mode: {list_some([f'{count:,} of {kind}' for kind, count in counts.items()], limit=3)}"
    return [Finding("sizes", text, severity="info", evidence=shown)]


def diagnose_groups(samples: Samples) -> list[Finding]:
    """Groups whose samples lie on several sides of the split, or in several folds."""
    column = "fold" if "fold" in samples.frame.columns else "split"
    sides: dict[str, set[str]] = defaultdict(set)
    for group, side in zip(samples.frame["group"].tolist(), map(str, samples.frame[column].tolist()), strict=True):
        if group and side:
            sides[group].add(side)
    torn = sorted(group for group, found in sides.items() if len(found) > 1)
    if not torn:
        return []
    paths = tuple(samples.frame.loc[samples.frame["group"].isin(torn), "path"].tolist())
    whose = f"{format_count(len(torn), 'group')} of {samples.group_name or 'group'!r}"
    own = column == "fold"
    where = f"in several folds of {samples.fold_name!r}" if own else "on several sides of the split"
    ours = "leave --fold-column out and give --folds 5" if own else "leave --split out and give --group"
    return [
        Finding(
            "group-leakage",
            f"{whose} {where}: {list_some([repr(group) for group in torn])}",
            severity="error",
            path=paths[0],
            paths=paths,
            evidence={"groups": len(torn), "of": len(sides), "sides": {group: sorted(sides[group]) for group in torn[:10]}},
            fix=f"put all samples of a group {'in one fold' if own else 'on one side'}, or {ours} to have it done",
        )
    ]
