"""The report in a real browser: it runs its own script, nothing else, asks for nothing, and fits narrow and wide windows."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from cdp import Browser, Page
from PIL import Image

import records
from unchoke.runs.report.html import render_report

HOSTILE = [
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "{{7*7}}",
    "</style><h1>owned</h1>",
]
FITS = "document.documentElement.scrollWidth <= innerWidth"


def open_file(browser: Browser, file: Path, text: str) -> Page:
    file.write_text(text, encoding="utf-8")
    return browser.open(file, ready="document.readyState === 'complete'")


def open_report(browser: Browser, folder: Path, record: dict[str, object], *, before_end: str = "") -> Page:
    text = render_report(records.as_record(record)).replace("</body>", before_end + "</body>")
    return open_file(browser, folder / "report.html", text)


def asked(page: Page) -> list[str]:
    """What the page wanted that it does not carry itself."""
    return [address for address in page.asked if not address.startswith("data:")]


def test_a_page_that_did_ask_would_be_noticed(browser: Browser, tmp_path: Path) -> None:
    page = open_file(browser, tmp_path / "page.html", "<img src='http://localhost:9/x.png'>")
    assert asked(page) == ["http://localhost:9/x.png"]


def test_script_sorts_and_page_asks_for_nothing(browser: Browser, tmp_path: Path) -> None:
    record = records.build_classification(records.GROCERIES)
    page = open_report(browser, tmp_path, record)
    assert page.ask("document.querySelectorAll('button[type=button]').length") >= 8
    page.ask("document.querySelectorAll('#per-class th button')[2].click()")
    table = "document.querySelector('#per-class table')"
    shown = page.ask(f"[...{table}.querySelectorAll('th[scope=row]')].map(one => one.textContent)")
    rows = {row["name"]: row["recall"] for row in record["per_class"]["test"]}
    assert [rows[name] for name in shown] == sorted(rows.values())
    assert page.ask(f"{table}.querySelectorAll('[aria-sort=ascending]').length") == 1
    assert page.said == []
    assert asked(page) == []


def test_hostile_names_are_inert(browser: Browser, tmp_path: Path) -> None:
    record = records.build_classification([HOSTILE[k % 4] + str(k) for k in range(8)])
    record |= {"title": HOSTILE[0], "command": HOSTILE[1], "notes": HOSTILE}
    page = open_report(browser, tmp_path, record)
    assert page.ask("[document.scripts.length, document.querySelectorAll('h1').length]") == [1, 1]
    names = "[...document.querySelectorAll('*')].flatMap(one => one.getAttributeNames())"
    assert page.ask(f"{names}.filter(name => name.startsWith('on'))") == []
    assert page.ask("document.title") == HOSTILE[0]
    assert "{{7*7}}" in page.ask("document.body.textContent")
    assert page.said == []


def test_a_script_that_slipped_in_would_not_run(browser: Browser, tmp_path: Path) -> None:
    slipped = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    page = open_report(browser, tmp_path, records.build_regression(), before_end=slipped)
    assert page.ask("document.title") == "Pasture biomass"
    assert "Content Security Policy" in str(page.said)


@pytest.mark.parametrize("num_classes", [14, 50])
def test_the_page_never_scrolls_sideways(browser: Browser, tmp_path: Path, num_classes: int) -> None:
    names = [f"a class with a rather long name {k} {'x' * 60}" for k in range(num_classes)]
    page = open_report(browser, tmp_path, records.build_classification(names))
    for width_px in (500, 1200):
        page.resize(width_px)
        assert page.ask(f"[innerWidth, {FITS}]") == [width_px, True]


def test_masks_of_a_sample_fit_the_window(browser: Browser, tmp_path: Path) -> None:
    """Side by side where there is room, in several rows where there is not."""
    record = records.build_segmentation()
    record["gallery"][0]["title"] = "a scene with a very long name " + "x" * 200
    page = open_report(browser, tmp_path, record)
    tops = "new Set([...one.querySelectorAll('img')].map(img => img.getBoundingClientRect().top)).size"
    for width_px in (500, 1200):
        page.resize(width_px)
        assert page.ask(FITS), width_px
        rows = page.ask(f"[...document.querySelectorAll('.samples li')].map(one => {tops})")
        assert len(rows) == len(record["gallery"])
        assert set(rows) == {1} if width_px == 1200 else 1 not in rows
    assert page.said == []


def test_light_and_dark_are_both_drawn(browser: Browser, tmp_path: Path) -> None:
    page = open_report(browser, tmp_path, records.build_classification(records.GROCERIES))
    brightness = []
    for dark in (False, True):
        page.paint(dark=dark)
        pixels = np.asarray(Image.open(io.BytesIO(page.picture())).convert("L"))
        assert pixels.std() > 10
        brightness.append(np.median(pixels))
    assert brightness[0] > 200
    assert brightness[1] < 60
