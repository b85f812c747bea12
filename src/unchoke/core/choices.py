"""A choice made automatically: the value, the reason, and what was measured or known."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

CONFIGURATION = "configuration"
"""The choice of one among several trained heads."""
BLEND = "blend"
"""The choice of models that answer together, and in which shares."""
CORRECTIONS = "corrections"
"""The choice of what people decided about single photos; also the name of the setting."""
UNSCORED = "unscored"
"""The choice to leave samples out of the score."""


@dataclass(frozen=True)
class Choice:
    """One automatic (or user-given) setting, never shown without its reason."""

    name: str
    """What was chosen."""
    value: Any
    """What it is now."""
    reason: str
    """Why, in words."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """The figures behind it."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
