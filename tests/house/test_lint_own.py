"""What we ask of others holds here: `unchoke lint` finds nothing in our own code.

Scripts that are choked on purpose are left out: the planted chokes and the corpus in benches/, the specimens and the tests that
make such scripts.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unchoke.linting.lint_engine import lint

ROOT = Path(__file__).resolve().parents[2]
LOADS_OR_TRAINS = re.compile(r"\bDataLoader\b|\.backward\(|\btorch\.load\(")


def check_clean(paths: list[Path], *, least: int) -> None:
    result = lint(paths)
    assert not [f"{found.path}:{found.cell or ''}:{found.line} {found.code}" for found in result.findings]
    assert not result.problems
    assert result.files > least


def test_own_loading_and_training_is_clean() -> None:
    """The notebooks, and those of our modules that load batches, train or read weights."""
    modules = sorted((ROOT / "src").rglob("*.py"))
    check_clean([ROOT / "notebooks", *(file for file in modules if LOADS_OR_TRAINS.search(file.read_text("utf-8")))], least=20)


@pytest.mark.campaign
def test_all_own_code_is_clean() -> None:
    """Hundreds of files at 7 ms each."""
    check_clean([ROOT / "src", ROOT / "notebooks", *sorted((ROOT / "benches").glob("*.py"))], least=400)
