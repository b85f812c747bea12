"""What we ask of others holds here: `unchoke lint` finds nothing in our own code.

Scripts that are choked on purpose are left out: the planted chokes and the corpus in benches/, the specimens and the tests that
make such scripts.
"""

from __future__ import annotations

from pathlib import Path

from unchoke.linting.lint_engine import lint

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_is_found_in_our_own_code() -> None:
    result = lint([ROOT / "src", ROOT / "notebooks", *sorted((ROOT / "benches").glob("*.py"))])
    assert not [f"{found.path}:{found.cell or ''}:{found.line} {found.code}" for found in result.findings]
    assert not result.problems
    assert result.files > 400
