"""`unchoke doctor`: this machine, what was chosen for it, and why. Looks and chooses; changes nothing, prints nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unchoke.machine.detect import detect_machine
from unchoke.machine.policy import DoctorReport, choose_policy


def doctor(*, folder: Path = Path(), overrides: Mapping[str, Any] | None = None) -> DoctorReport:
    """Detect the machine and choose for it; `folder` says which disk is meant."""
    facts = detect_machine(folder)
    return DoctorReport(facts, choose_policy(facts, overrides=overrides))
