"""The trace viewer in a real browser: its views, sorting, searching, zooming, hovering, the diff; by mouse and by keys."""

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
    """The page of a training on a card whose convolution became faster, with a name that tries to run."""
    folder = tmp_path_factory.mktemp("trace")
    before = traces.training_on_a_card(steps=3).save(folder / "before.pt.trace.json")
    after = traces.training_on_a_card(steps=3, convolution_us=100)
    after.op(HOSTILE, 2950, 20, dims=[[64, 64]])
    return save_trace_html(after.save(folder / "after.pt.trace.json"), folder / "page.html", against=before)


@pytest.fixture(scope="module")
def page(browser: Browser, file: Path) -> Iterator[Page]:
    """One page for all tests; each goes to its view first. At the end it has asked for nothing and said nothing."""
    opened = browser.open(file)
    yield opened
    assert opened.asked == []
    assert opened.said == []
    assert opened.ask("document.title") == "after.pt.trace.json"


def go(page: Page, view: str) -> None:
    page.click(f"#tab-{view}")
    shown = "[...document.querySelectorAll('[role=tabpanel]')].filter(p => p.offsetHeight > 0).map(p => p.id)"
    assert page.ask(shown) == [f"view-{view}"]


def column(page: Page, view: str, title: str) -> list[str]:
    """The cells of a column, as shown."""
    table = f"document.querySelector('#{view}-table table')"
    place = page.ask(f"[...{table}.tHead.rows[0].cells].findIndex(c => c.textContent === '{title}')")
    cells: list[str] = page.ask(f"[...{table}.tBodies[0].rows].map(r => r.cells[{place}].innerText)")
    return cells


def sort(page: Page, view: str, title: str) -> str:
    """Click a heading; how the table is sorted then."""
    place = page.ask(f"[...document.querySelectorAll('#{view}-table th[scope=col]')].findIndex(c => c.textContent === '{title}')")
    head = f"#{view}-table th[scope=col]:nth-child({place + 1})"
    page.click(f"{head} button")
    found: str = page.ask(f"document.querySelector('{head}').getAttribute('aria-sort')")
    return found


def microseconds(text: str) -> float:
    value, _, unit = text.partition(" ")
    return float(value) * {"": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}[unit]


def test_the_overview_draws_every_step_by_stage(page: Page) -> None:
    go(page, "overview")
    widths = page.ask(
        "[...document.querySelector('.steps tbody tr').querySelectorAll('rect')].map(r => r.getBoundingClientRect().width)"
    )
    assert np.allclose(np.array(widths) / sum(widths), [0.2, 0.05, 0.04, 0.25, 0.1, 0.09, 0.27], atol=0.01)
    assert page.ask("document.querySelectorAll('.steps tbody tr').length") == 3
    assert "20.0 %" in page.ask("document.querySelector('.means').innerText")


def test_every_column_of_the_operators_sorts(page: Page) -> None:
    go(page, "operators")
    assert column(page, "operators", "calls")
    for title in ("self CPU", "total CPU", "self device"):
        for _ in range(2):
            downwards = sort(page, "operators", title) == "descending"
            values = [microseconds(text) for text in column(page, "operators", title)]
            assert values == sorted(values, reverse=downwards)
            assert len(set(values)) > 2
    assert sort(page, "operators", "name") == "ascending"
    names = [name.lower() for name in column(page, "operators", "name")]
    assert names.index("aten::conv2d") < names.index("aten::to") < names.index("cudalaunchkernelruntime")


def test_search_filters_and_shapes_can_be_kept_apart(page: Page) -> None:
    go(page, "operators")
    page.type("#operators-search", "conv 8×3×3×3")
    assert sorted(column(page, "operators", "name")) == ["aten::conv2d", "aten::cudnn_convolution"]
    assert page.ask("document.querySelector('#operators-count').textContent").startswith("2 of ")
    page.ask("document.querySelector('#operators-search').select()")
    page.type("#operators-search", "64×64")
    page.click("#operators-shapes")
    assert "16×3×64×64, 16×3×64×64" in column(page, "operators", "shapes")
    page.click("#operators-shapes")
    page.ask("document.querySelector('#operators-search').select()")
    page.press("Backspace")


def test_a_hostile_name_is_only_a_name(page: Page) -> None:
    go(page, "operators")
    assert HOSTILE in column(page, "operators", "name")
    assert page.ask("document.images.length") == 0


def test_kernels_are_listed_with_their_launch(page: Page) -> None:
    go(page, "kernels")
    assert column(page, "kernels", "total") == ["300 µs", "75.0 µs"]
    assert column(page, "kernels", "grid")[0] == "16×1×1"
    assert column(page, "kernels", "launched by") == ["aten::cudnn_convolution", "aten::copy_"]


def test_wheel_drag_and_keys_change_what_the_strip_shows(page: Page) -> None:
    go(page, "strip")
    left, top, width, height = page.box("#strip-canvas")
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
    page.ask("document.querySelector('#strip-canvas').focus()")
    for key, expected_us in (("+", near_us * 0.6), ("-", near_us), ("0", whole_us)):
        page.press(key)
        assert page.ask(SPAN_US) == pytest.approx(expected_us), key
    page.mouse("mouseMoved", 0, 0)  # away: what lies under the pointer is framed
    page.settle()
    assert page.ask(DRAWN) == whole


def test_hovering_names_an_event_and_a_click_keeps_it(page: Page) -> None:
    go(page, "strip")
    left, top, width, _ = page.box("#strip-canvas")
    x, y = left + width * 100 / 3000, top + 22 + 22 + 17 + 8  # the first wait: second line of the first row
    page.mouse("mouseMoved", x, y)
    page.settle()
    told = page.ask("document.querySelector('#strip-tip').innerText")
    assert told.startswith("enumerate(DataLoader)")
    assert "200 µs" in told
    page.click_at(x, y)
    pinned = "document.querySelector('#strip-pinned').innerText"
    assert "enumerate(DataLoader)" in page.ask(pinned)
    page.ask("document.querySelector('#strip-canvas').focus()")
    page.press(".")
    assert "aten::to" in page.ask(pinned)
    assert "16×3×64×64" in page.ask(pinned)
    page.press("Escape")
    assert "aten::to" not in page.ask(pinned)


def test_finding_a_name_counts_and_lights_it_up(page: Page) -> None:
    go(page, "strip")
    before = page.ask(DRAWN)
    page.type("#strip-search", "CONV2D")
    assert page.ask("document.querySelector('#strip-count').textContent") == "3 events"
    assert page.ask(DRAWN) != before


def test_memory_marks_its_peak_and_follows_the_pointer(page: Page) -> None:
    go(page, "memory")
    assert page.ask("document.querySelector('#memory-charts h3').textContent").startswith("CUDA 0: peak 3.1 MB")
    assert page.ask("document.querySelectorAll('.chart .peak').length") == 1
    left, top, width, _ = page.box(".chart")
    page.mouse("mouseMoved", left + width * 0.6, top + 100)
    page.settle()
    assert "2.1 MB allocated, 4.2 MB reserved" in page.ask("document.querySelector('.chart .tip').innerText")
    page.ask("document.querySelector('.chart').focus()")
    page.press("ArrowRight")
    assert "3.1 MB allocated" in page.ask("document.querySelector('.chart .tip').innerText")


def test_the_diff_begins_with_the_planted_difference(page: Page) -> None:
    go(page, "diff")
    assert column(page, "diff", "name")[0] == "aten::cudnn_convolution"
    assert column(page, "diff", "device change")[0] == "-200 µs"
    page.type("#diff-search", "new")
    assert [name.removesuffix("new") for name in column(page, "diff", "name")] == [HOSTILE]


def test_tabs_work_by_keys_and_the_address_names_the_view(page: Page) -> None:
    go(page, "overview")
    page.press("ArrowRight")
    assert page.ask("location.hash") == "#operators"
    assert page.ask("document.activeElement.id") == "tab-operators"


def test_a_narrow_window_light_or_dark_holds_every_view(browser: Browser, file: Path) -> None:
    narrow = browser.open(file, view="strip", width=480)
    for dark in (False, True):
        narrow.paint(dark=dark)
        pixels = np.asarray(Image.open(io.BytesIO(narrow.picture())).convert("L"))
        assert (np.median(pixels) < 60) == dark
    for view in ("overview", "operators", "kernels", "strip", "memory", "diff"):
        go(narrow, view)
        assert narrow.ask("document.documentElement.scrollWidth <= innerWidth"), view
    assert narrow.said == []
