"""The errors a person may see: those of `unchoke_doctor.errors`, and the ones that only training has."""

from __future__ import annotations

from unchoke_doctor.errors import DataError as DataError
from unchoke_doctor.errors import Interrupted as Interrupted
from unchoke_doctor.errors import MachineError as MachineError
from unchoke_doctor.errors import UnchokeError as UnchokeError
from unchoke_doctor.errors import UsageError as UsageError
from unchoke_doctor.errors import list_some as list_some
from unchoke_doctor.errors import shorten_values as shorten_values


class SettingsError(UsageError):
    """Values that settings cannot have; `names` are the settings, so that a command can point to its own help."""

    names: tuple[str, ...] = ()


class DamagedFile(DataError):  # noqa: N818 (a fact about a file)
    """A file of a workspace is not as it was written. Whatever can be made again catches this and makes it again."""


def missing_extra(package: str, *, extra: str, purpose: str) -> MachineError:
    """The error for an optional dependency that is not installed."""
    return MachineError(
        f"{purpose} needs the package {package!r}, which is not installed",
        code="missing-extra",
        why=f"it belongs to the optional extra {extra!r}",
        try_=f"pip install 'unchoke[{extra}]'",
    )
