"""The catalogue of causes: one page each, `causes/<code>.md`, for rules that read code and for measurements alike.

A page begins with `# Title`, then lines `key: value` (`stage`, `kind`, `fix`), a blank line, and the text that
`unchoke lint --explain CODE` prints and the manual shows.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from unchoke_doctor.errors import UsageError
from unchoke_doctor.finding import Kind

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Cause:
    """One way in which training loses time or work."""

    code: str
    title: str
    stage: str
    kind: Kind
    fix: str
    page: str
    """The whole page, as Markdown."""


@cache
def catalogue() -> dict[str, Cause]:
    """All causes by their code, in alphabetical order."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.md"))}


def cause(code: str) -> Cause:
    """The cause of this code; a code that does not exist is a usage error."""
    known = catalogue()
    if code not in known:
        near = difflib.get_close_matches(code, known, n=1)
        why = f"did you mean {near[0]}?" if near else f"there are {len(known)} causes"
        raise UsageError(f"there is no cause {code!r}", code="unknown-rule", why=why, try_="unchoke lint --list-rules")
    return known[code]


def _read(path: Path) -> Cause:
    page = path.read_text(encoding="utf-8")
    heading, _, rest = page.partition("\n")
    head, _, _ = rest.lstrip("\n").partition("\n\n")
    keys = dict(line.split(": ", 1) for line in head.splitlines())
    return Cause(path.stem, heading.removeprefix("# ").strip(), keys["stage"], keys["kind"], keys["fix"], page)  # type: ignore[arg-type]
