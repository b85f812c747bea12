"""A notebook's cells as text, Markdown and HTML, from one record."""

from __future__ import annotations

import re
from typing import Any

import pytest

from unchoke.notebooks.notebook_html import render_notebook_html
from unchoke.notebooks.notebook_markdown import code, escape, render_notebook_markdown
from unchoke.notebooks.notebook_text import render_choke, render_notebook

FINDING: dict[str, Any] = {
    "code": "host-sync", "message": "`loss.item()` waits for the device", "line": 3, "fix": "add it up on the device",
    "expected_gain": "unmeasured", "severity": "warning", "command": "",
}  # fmt: skip
RUN: dict[str, Any] = {
    "status": "done", "wall_s": 6.1, "cpu_s": 2.0, "rss_before_bytes": 60e6, "rss_after_bytes": 960e6, "peak_rss_bytes": 1.2e9,
    "children_peak_bytes": 0, "device_peak_bytes": None, "read_bytes": 5000, "written_bytes": 0, "wait_s": 3.05, "batches": 40,
    "steps": 38, "growth_bytes": 900_000_000, "rise_bytes": 1_140_000_000, "output_bytes": 120, "error": "", "line": None,
}  # fmt: skip
SOURCE = "for x, y in loader:\n    step(x, y)\n    total += loss.item()  # <script>alert(1)</script>"


def cell(number: int, **changes: Any) -> dict[str, Any]:
    plain = {
        "cell": number, "does": "computes", "deeds": ["computes"], "source": "a = 1", "problem": "", "findings": [], "run": None,
        "verdict": "keep", "reason": "nothing found", "command": "",
    }  # fmt: skip
    return {**plain, **changes}


def record(*, ran: bool, device: int | None = None) -> dict[str, Any]:
    trains = cell(
        3, does="trains", source=SOURCE, findings=[FINDING, {**FINDING, "line": 2}], verdict="segment",
        reason="20 epochs in one cell", command="unchoke fit photos --cut none", run=RUN if ran else None,
    )  # fmt: skip
    failed = {**RUN, "status": "failed", "error": "KeyError: 'k'", "line": 1, "steps": 0, "device_peak_bytes": device}
    cells = [cell(2, does="imports"), trains, cell(4, run=failed if ran else None)]
    totals = {
        "cells": 3, "text_cells": 1, "findings": 2, "verdicts": {"segment": 1, "eliminate": 0, "optimise": 0, "keep": 2},
        "wall_s": 12.2 if ran else None, "cpu_s": 4.0 if ran else None, "peak_rss_bytes": 1.2e9 if ran else None,
        "device_peak_bytes": device, "output_bytes": 240 if ran else None,
    }  # fmt: skip
    return {
        "notebook": "photos/le|aves.ipynb", "ran": ran, "kernel": "python3" if ran else None, "cells": cells, "totals": totals,
        "ended": "cell 4 raised" if ran else "", "interrupted": False, "notes": [], "file": None, "html": None,
        "highlights": ["cell 3 takes 6.1 s of the run's 12.2 s (50%)"] if ran else [], "next_command": "unchoke fit photos",
    }  # fmt: skip


def test_table_has_a_line_per_cell_and_next_command() -> None:
    text = render_notebook(record(ran=False))
    assert "3 cells of code, 1 of text; 2 choke points; not run" in text
    line = next(line for line in text.splitlines() if line.strip().startswith("3 "))
    assert re.split(r"\s{2,}", line.strip()) == ["3", "trains", "host-sync :3 :2", "segment"]
    assert "time" not in text.splitlines()[2]
    assert text.splitlines()[-1] == "next     unchoke fit photos"
    assert "verdict  1 to segment, 2 to keep" in text


def test_reasons_commands_and_fixes_stand_below_the_table() -> None:
    text = render_notebook(record(ran=False))
    assert "cell 3   segment: 20 epochs in one cell" in text
    assert "run   unchoke fit photos --cut none" in text
    assert "line 3  host-sync: `loss.item()` waits for the device" in text
    assert "fix: add it up on the device" in text
    assert "cell 2   " not in text


def test_a_run_adds_what_each_cell_cost_and_how_it_ended() -> None:
    text = render_notebook(record(ran=True))
    line = next(line for line in text.splitlines() if line.strip().startswith("3 "))
    assert "6.1 s" in line
    assert "1.2 GB" in line
    assert "+900.0 MB" in line
    assert "raised 6.1 s" in text
    assert "error line 1: KeyError: 'k'" in text
    assert "steps 38 optimizer steps, 40 batches, 50% of the time waiting for data" in text
    assert "note     cell 4 raised: the cells after it were not run" in text
    assert "total    12.2 s, 4.0 s of CPU, peak 1.2 GB, 240 B of output" in text


@pytest.mark.parametrize("device", [None, 2_000_000_000])
def test_a_device_has_a_column_where_there_is_one(device: int | None) -> None:
    text = render_notebook(record(ran=True, device=device))
    assert ("2.0 GB on the device" in text) == (device is not None)
    assert (" device " in text.splitlines()[2]) == (device is not None)


def test_notebook_text_cannot_break_the_markdown_table() -> None:
    text = render_notebook_markdown(record(ran=True))
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    assert "# photos/le\\|aves.ipynb" in text
    assert "**segment**" in text
    assert "`unchoke fit photos --cut none`" in text
    assert escape("a|b\n<i>") == "a\\|b \\<i\\>"
    assert code("a `b`") == "`` a `b` ``"


def test_page_is_complete_and_escapes_notebook_text() -> None:
    page = render_notebook_html(record(ran=True))
    assert page.startswith("<!doctype html>")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    assert 'id="cell-3"' in page
    assert "raised here" in page
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", page)


def test_one_cell_is_told_in_a_few_lines() -> None:
    text = render_choke(RUN, [FINDING])
    assert text.splitlines()[0] == "choke    6.1 s, 2.0 s of CPU, peak 1.2 GB (1.1 GB above the start)"
    assert "50% of the time waiting for data" in text
    assert "unchoke profile -- python train.py" in text
    assert render_choke({**RUN, "steps": 0}, []).endswith("found    no choke point in this cell")
