"""The page about files names every file of a real workspace, and the columns its tables have."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "files.md"


def patterns() -> list[re.Pattern[str]]:
    """What the rows name, as paths below the workspace: words in capitals and `N` stand for anything."""
    found = []
    for row in re.findall(r"^\| (`[^|]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        codes = re.findall(r"`([^`]+)`", row)
        folder = codes[0].rpartition("/")[0] if not codes[0].endswith("/") else ""
        for code in codes:
            whole = code if "/" in code or not folder else f"{folder}/{code}"
            text = re.sub(r"\b(?:[A-Z]{2,}|N)\b|(?<=_)N\b|(?<=_)[A-Z]{2,}|…", "[^/]+", whole.replace(".", r"\."))
            before, after = "(.*/)?" if code == "SHA256SUMS" else "", ".*" if code.endswith("/") else ""
            found.append(re.compile(before + text + after))
    return found


def test_every_file_of_a_workspace_has_a_row(finished: Path) -> None:
    rows = patterns()
    files = [file.relative_to(finished).as_posix() for file in finished.rglob("*") if file.is_file()]
    assert not [file for file in files if not any(row.fullmatch(file) for row in rows)]


def test_columns_of_the_tables(finished: Path) -> None:
    import pandas as pd

    page = PAGE.read_text(encoding="utf-8")
    for name in ("manifest.csv", "features/jobs_queue.csv", "experiments/exp_1/predictions.csv"):
        file = finished / name
        (section,) = re.findall(rf"^### `{re.escape(file.name)}`\n(.+?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
        assert list(pd.read_csv(file).columns) == re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE), file.name
