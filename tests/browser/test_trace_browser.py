"""The trace viewer in a real browser: tables that sort and search, the strip by mouse and by keys, light and dark."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cdp import Browser, Page
from PIL import Image

import traces
from unchoke.runs.trace.trace_html import save_trace_html

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
DRAWN = "document.querySelector('#strip-canvas').toDataURL()"
SPAN_US = "(d => d.to - d.from)(document.querySelector('#strip-canvas').dataset)"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a training on a GPU whose convolution became faster, with a name that tries to run."""
    folder = tmp_path_factory.mktemp("trace")
    before = traces.training_on_a_card(steps=3).save(folder / "before.pt.trace.json")
    after = traces.training_on_a_card(steps=3, convolution_us=100)
    after.op(HOSTILE, 2950, 20, dims=[[64, 64]])
    return save_trace_html(after.save(folder / "after.pt.trace.json"), folder / "page.html", against=before)


@pytest.fixture(scope="module")
def page(browser: Browser, file: Path) -> Iterator[Page]:
    """One page for all tests. At the end it has asked for nothing and said nothing."""
    opened = browser.open(file)
    yield opened
    assert opened.asked == []
    assert opened.said == []
    assert opened.ask("document.title") == "after.pt.trace.json"
    assert opened.ask("document.images.length") == 0


def column(page: Page, view: str, title: str) -> list[str]:
    """The cells of a column that are shown."""
    table = f"document.querySelector('#{view} table.searched')"
    place = page.ask(f"[...{table}.tHead.rows[0].cells].findIndex(c => c.textContent === '{title}')")
    shown = f"[...{table}.tBodies[0].rows].filter(r => !r.hidden)"
    cells: list[str] = page.ask(f"{shown}.map(r => r.cells[{place}].innerText)")
    return cells


def sort(page: Page, view: str, title: str) -> str:
    """Click a heading; how the table is sorted then."""
    head = f"[...document.querySelectorAll('#{view} table.searched th[scope=col]')].find(c => c.textContent === '{title}')"
    page.ask(f"{head}.querySelector('button').click()")
    found: str = page.ask(f"{head}.getAttribute('aria-sort')")
    return found


def microseconds(text: str) -> float:
    value, _, unit = text.partition(" ")
    return float(value or 0) * {"": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}[unit]


def strip_box(page: Page) -> tuple[float, float, float, float]:
    """Where the strip is, once it is in view and has the focus."""
    page.ask("document.querySelector('#strip-canvas').scrollIntoView({ behavior: 'instant' })")
    page.ask("document.querySelector('#strip-canvas').focus()")
    box: tuple[float, float, float, float] = page.box("#strip-canvas")
    return box


def test_steps_are_drawn_by_stage(page: Page) -> None:
    drawn = "[...document.querySelector('#steps tbody tr').querySelectorAll('rect')].map(r => r.getBoundingClientRect().width)"
    widths = page.ask(drawn)
    assert np.allclose(np.array(widths) / sum(widths), [0.2, 0.05, 0.04, 0.25, 0.1, 0.09, 0.27], atol=0.01)
    assert page.ask("document.querySelectorAll('#steps tbody tr').length") == 3
    assert "20.0 %" in page.ask("document.querySelector('#result').innerText")


def test_columns_sort_by_value_whatever_the_unit(page: Page) -> None:
    for title in ("self CPU", "total CPU", "self device"):
        for _ in range(2):
            downwards = sort(page, "operators", title) == "descending"
            values = [microseconds(text) for text in column(page, "operators", title)]
            assert values == sorted(values, reverse=downwards)
            assert len(set(values)) > 2
    assert column(page, "kernels", "total") == ["300 µs", "75.0 µs"]
    assert column(page, "kernels", "launched by") == ["aten::cudnn_convolution", "aten::copy_"]


def test_search_filters_and_hostile_names_are_only_names(page: Page) -> None:
    assert HOSTILE in column(page, "operators", "operator")
    page.type("#operators .search", "CONV cudnn")
    assert column(page, "operators", "operator") == ["aten::cudnn_convolution"]
    assert page.ask("document.querySelector('#operators output').textContent").startswith("1 of ")
    page.type("#diff .search", "(new)")
    assert column(page, "diff", "operator") == [f"{HOSTILE} (new)"]


def test_wheel_drag_and_keys_change_what_the_strip_shows(page: Page) -> None:
    left, top, width, height = strip_box(page)
    whole, whole_us = page.ask(DRAWN), page.ask(SPAN_US)
    page.mouse("mouseWheel", left + width / 2, top + height / 2, deltaX=0, deltaY=-400)
    page.settle()
    near, near_us = page.ask(DRAWN), page.ask(SPAN_US)
    assert near_us < whole_us / 2
    assert near != whole
    page.mouse("mousePressed", left + width / 2, top + 150, button="left", clickCount=1)
    page.mouse("mouseMoved", left + width / 4, top + 150, button="left", buttons=1)
    page.mouse("mouseReleased", left + width / 4, top + 150, button="left", clickCount=1)
    page.settle()
    assert page.ask(DRAWN) not in (near, whole)
    assert page.ask(SPAN_US) == pytest.approx(near_us)
    for key, expected_us in (("+", near_us * 0.6), ("-", near_us), ("0", whole_us)):
        page.press(key)
        assert page.ask(SPAN_US) == pytest.approx(expected_us), key
    page.mouse("mouseMoved", 0, 0)  # away: what lies under the pointer is framed
    page.settle()
    assert page.ask(DRAWN) == whole


def test_hovering_names_an_event_and_finding_lights_it_up(page: Page) -> None:
    left, top, width, _ = strip_box(page)
    page.mouse("mouseMoved", left + width * 100 / 3000, top + 22 + 22 + 17 + 8)  # the first wait: second line of the first row
    page.settle()
    told = page.ask("document.querySelector('#strip-tip').innerText")
    assert told.startswith("enumerate(DataLoader)") and "200 µs" in told
    before = page.ask(DRAWN)
    page.type("#strip-search", "CONV2D")
    assert page.ask("document.querySelector('#strip-count').textContent") == "3 events"
    assert page.ask(DRAWN) != before


def test_memory_marks_its_peak(page: Page) -> None:
    assert page.ask("document.querySelector('#memory figcaption').textContent").startswith("CUDA 0: peak 3.1 MB")
    assert page.ask("document.querySelectorAll('#memory svg .mark').length") == 1


def test_a_narrow_window_light_or_dark_holds_the_page(browser: Browser, file: Path) -> None:
    narrow = browser.open(file, view="strip", width=480)
    for dark in (False, True):
        narrow.paint(dark=dark)
        pixels = np.asarray(Image.open(io.BytesIO(narrow.picture())).convert("L"))
        assert (np.median(pixels) < 60) == dark
    assert narrow.ask("document.documentElement.scrollWidth <= innerWidth")
    assert narrow.said == []
