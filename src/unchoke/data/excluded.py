"""Photos that the user leaves out by `--exclude`: patterns in, the files that stay and those that go out.

A pattern is compared with the path below DATA or the image folder; one without a slash also with each name on it, so that
`*_mask.png` leaves out files and `old` a folder. Letter case counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from unchoke.core.choices import Choice
from unchoke.core.errors import UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.listing import FileEntry
from unchoke.core.units import format_count

_NONE = "none"


@dataclass(frozen=True)
class Exclusion:
    """Files that stay, files that are left out, and how many each pattern took; a file goes to the first that fits."""

    kept: list[FileEntry]
    excluded: list[FileEntry] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def choices(self) -> list[Choice]:
        """What was left out, for the record."""
        if not self.counts:
            return []
        total = format_count(len(self.kept) + len(self.excluded), "image")
        reason = f"{len(self.excluded):,} of {total} left out, as asked for"
        return [Choice("exclude", list(self.counts), reason, dict(self.counts))]

    @property
    def findings(self) -> list[Finding]:
        """Patterns that fit nothing: most likely mistyped."""
        idle = [pattern for pattern, count in self.counts.items() if not count]
        if not idle:
            return []
        text = f"--exclude {list_some([repr(pattern) for pattern in idle])} fits no image"
        fix = "compare it with the paths below DATA; * stands for any text, and letter case counts"
        return [Finding("exclude-unused", text, evidence={"patterns": idle}, fix=fix)]


def exclude_files(images: Sequence[FileEntry], patterns: Sequence[str]) -> Exclusion:
    """Divide files by whether a pattern fits them; refused when none is left. The word `none` is no pattern."""
    patterns = [pattern for pattern in patterns if pattern not in ("", _NONE)]
    if not patterns:
        return Exclusion(list(images))
    found = Exclusion([], [], dict.fromkeys(patterns, 0))
    for entry in images:
        pattern = next((one for one in patterns if fits(one, entry.relative)), None)
        if pattern is None:
            found.kept.append(entry)
        else:
            found.excluded.append(entry)
            found.counts[pattern] += 1
    if images and not found.kept:
        raise UsageError(
            f"--exclude leaves none of {format_count(len(images), 'image')}",
            code="everything-excluded",
            why=f"{', '.join(repr(pattern) for pattern in patterns)} fit every one, {images[0].relative!r} for instance",
            try_="a narrower pattern, '*_mask.png' for instance",
        )
    return found


def fits(pattern: str, relative: str) -> bool:
    """Whether a pattern means this file, by its path or, without a slash, by any name on it."""
    pattern = pattern.removeprefix("./")
    if fnmatchcase(relative, pattern):
        return True
    if pattern.endswith("/"):
        return fnmatchcase(relative, pattern + "*")
    return "/" not in pattern and any(fnmatchcase(name, pattern) for name in relative.split("/"))
