"""`unchoke profile view` as it is typed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Type


def test_page_and_result(unchoke: Type, tmp_path: Path) -> None:
    import traces

    before = traces.training_on_a_card().save(tmp_path / "before.pt.trace.json")
    after = traces.training_on_a_card(convolution_us=100).save(tmp_path / "after.pt.trace.json")
    page = tmp_path / "page.html"
    result = unchoke("profile", "view", after, "--against", before, "--to", page, "--json").result
    assert page.is_file()
    assert result["html"] == str(page)
    assert result["mean_stages_us"]["backward"] == 250
    assert [row["name"] for row in result["operators"]][:1] == ["ProfilerStep*"]
    assert result["diff"]["operators"][0]["device_change_us"] == -200


def test_file_that_is_no_trace(unchoke: Type, tmp_path: Path) -> None:
    file = tmp_path / "odd.json"
    file.write_text('{"traceEvents": [{"ph": "X", "na')
    answer = unchoke("profile", "view", file)
    assert answer.code == 1
    assert [line.split()[0] for line in answer.stderr.splitlines()] == ["error", "why", "try"]
    assert answer.stderr.splitlines()[0].endswith("[damaged-trace]")
    assert not (tmp_path / "odd.html").exists()
