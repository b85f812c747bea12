"""A file repaired as far as that is mechanical: fixed, read again, fixed again, until nothing more can be.

In come a file's bytes and rules, out goes a `Repaired`: new bytes, one diff from the first state to the last, what is gone, what
is left. `put_in_place` writes it. What an edit is, and whether it may go in, is decided by rules and by `fixing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unchoke.code.source import Source, parse_source
from unchoke.core.errors import UsageError
from unchoke.linting import fixing
from unchoke.linting.lint_engine import FileProblem, Found, lint_source
from unchoke.linting.rules import LoadedRule

_MOST_ROUNDS = 10  # edits that overlap wait for the next round
_NOT_REWRITTEN = ("utf-16", "utf-32")  # Python runs no script in them, and their byte order would not survive


@dataclass(frozen=True)
class Repaired:
    """One file after its fixes. `applied` are the findings that are gone, `found` and `problems` what is there now."""

    path: str
    data: bytes
    diff: str
    applied: list[Found]
    found: list[Found]
    problems: list[FileProblem]

    def to_dict(self) -> dict[str, Any]:
        return {"path": self.path, "fixed": [item.finding.to_dict() for item in self.applied], "diff": self.diff}


def repair(path: str, data: bytes, rules: Sequence[LoadedRule]) -> Repaired | None:
    """The file with every mechanical fix applied; None where there is none."""
    before = source = parse_source(path, data)
    found, problems = lint_source(source, rules)
    applied: list[Found] = []
    for _ in range(_MOST_ROUNDS):
        fixed = _fixed(source, data, found)
        if fixed is None or fixed.data == data:
            break
        applied += fixed.applied
        data = fixed.data
        source = parse_source(path, data)
        found, problems = lint_source(source, rules)
    if not applied:
        return None
    diff = fixing.diff_of(before, {cell.number: cell.text for cell in source.cells})
    return Repaired(path, data, diff, applied, found, problems)


def _fixed(source: Source, data: bytes, found: Sequence[Found]) -> fixing.Fixed | None:
    if source.encoding.startswith(_NOT_REWRITTEN):
        return None
    try:
        return fixing.fix_source(source, data, found)
    except UnicodeError:  # a notebook in another encoding than UTF-8: left as it is
        return None


def put_in_place(repaired: Repaired) -> None:
    """Write the file, wholly or not at all; a link stays a link, and the mode of the file stays as it was."""
    path = Path(repaired.path).resolve()
    try:
        mode = path.stat().st_mode
        fixing.write(fixing.Fixed(str(path), repaired.data, repaired.diff, repaired.applied))
        path.chmod(mode & 0o7777)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"cannot write {repaired.path}", why=why, try_="--diff shows the fixes without writing them") from error
