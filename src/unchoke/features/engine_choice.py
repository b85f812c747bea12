"""What choosing an engine has in common, whatever it runs: choices are kept, and wishes are met or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError
from unchoke.runs.session import Session

E = TypeVar("E")


def load_choices(file: Path) -> dict[str, Any]:
    """The choices made earlier in this workspace, by what they depend on."""
    if not file.exists():
        return {}
    loaded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return loaded


def rebuild(session: Session, earlier: dict[str, Any], build: Callable[[str], E]) -> E | None:
    """The engine chosen before, or None (with a word) where this machine cannot run it."""
    try:
        engine = build(earlier["value"])
    except MachineError as error:
        session.warn(f"the engine chosen earlier, {earlier['value']}, is not available here ({error.what}); choosing again")
        return None
    session.chose(
        Choice("engine", earlier["value"], f"chosen when this workspace began: {earlier['reason']}", earlier["evidence"])
    )
    return engine


def refuse_unmet_wish(session: Session, choice: Choice) -> None:
    """An engine or precision asked for by name is used or refused, never silently replaced."""
    name, _, precision = str(choice.value).partition(":")
    wanted = session.settings
    if wanted.engine not in (None, name) or wanted.precision not in (None, precision):
        asked = " ".join(
            f"--{key} {value}" for key, value in (("engine", wanted.engine), ("precision", wanted.precision)) if value
        )
        raise MachineError(f"{asked} cannot be used here", why=choice.reason, try_="leave the option out and let it be chosen")
