"""`profile_view`: where the page goes, and what is never overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

import traces
import unchoke
from errors import refused


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return traces.training_on_a_processor().save(tmp_path / "run_1.pt.trace.json")


def test_page_lies_beside_the_trace_or_where_asked(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    asked = [(None, "run_1.html"), (tmp_path / "pages", "pages/run_1.html"), (tmp_path / "new" / "p.html", "new/p.html")]
    for to, expected in asked:
        view = unchoke.profile_view(trace, to=to)
        assert view.html == tmp_path / expected
        assert view.html.read_text(encoding="utf-8").startswith("<!doctype html>")
        assert view.to_text().endswith(f"look    {view.html}")


def test_a_trace_is_never_replaced_by_its_page(trace: Path) -> None:
    content = trace.read_bytes()
    with refused("output-is-input", str(trace)):
        unchoke.profile_view(trace, to=trace)
    assert trace.read_bytes() == content
