"""The errors a person may see.

    UnchokeError
    ├── UsageError      exit 2   a wrong option, a missing file or column: the command must change
    ├── DataError       exit 1   the data has problems, or too many items failed
    ├── MachineError    exit 3   this machine cannot: no room, no hub, a missing extra
    └── Interrupted     exit 130 stopped on request, resumable

Every error says three things: what happened (with the value), why (the fact behind it) and what to try. Foreign errors are
translated into these once, at the boundary where they arise; anything else that escapes is our bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Sequence


class UnchokeError(Exception):
    """A problem that can be explained in three lines."""

    exit_code = 1

    def __init__(self, what: str, *, why: str, try_: str) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.try_ = try_

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the three lines when the error crosses a process boundary."""
        return (_rebuild, (type(self), self.what, self.why, self.try_))


class UsageError(UnchokeError):
    """The command as typed cannot work."""

    exit_code = 2


class DataError(UnchokeError):
    """The data is not sound enough to go on."""

    exit_code = 1


class MachineError(UnchokeError):
    """This machine lacks something: room, a package, a network."""

    exit_code = 3


class Interrupted(UnchokeError):  # noqa: N818 (a request, not a fault)
    """Stopped on request; the same command goes on from here."""

    exit_code = 130


def _rebuild(kind: type[UnchokeError], what: str, why: str, try_: str) -> UnchokeError:
    return kind(what, why=why, try_=try_)


def list_some(items: Sequence[str], *, limit: int = 5) -> str:
    """The first few items and how many more there are: ``a, b, c and 4 more``."""
    shown = ", ".join(items[:limit])
    rest = len(items) - limit
    return f"{shown} and {rest} more" if rest > 0 else shown


def missing_extra(package: str, *, extra: str, purpose: str) -> MachineError:
    """The error for an optional dependency that is not installed."""
    return MachineError(
        f"{purpose} needs the package {package!r}, which is not installed",
        why=f"it belongs to the optional extra {extra!r}",
        try_=f"pip install 'unchoke[{extra}]'",
    )
