"""The report in a real browser: it runs its own script, nothing else, asks for nothing, and fits narrow and wide windows.

Each test opens a page in headless chromium and reads back the document or the picture; messages of the page's console
arrive on stderr.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import records
from unchoke.reports.html import render_report

HOSTILE = [
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "{{7*7}}",
    "</style><h1>owned</h1>",
]
PROBE = """<script>
const root = document.documentElement;
root.setAttribute("data-width", root.scrollWidth + "/" + innerWidth);
</script>"""
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--hide-scrollbars",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost",
         "--enable-logging=stderr", "--v=0"]  # fmt: skip


def open_page(chromium: str, page: Path, *options: str) -> tuple[str, str]:
    """The document after its scripts ran, and what the page's console said."""
    profile = page.parent / f"profile-{len(list(page.parent.iterdir()))}"
    command = [chromium, *FLAGS, f"--user-data-dir={profile}", *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, check=True)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def write_page(folder: Path, record: dict[str, object], *, before_end: str = "") -> Path:
    page = folder / "report.html"
    page.write_text(render_report(records.as_record(record)).replace("</body>", before_end + "</body>"), encoding="utf-8")
    return page


class Elements(HTMLParser):
    """Every element of a document with the names of its attributes."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.found: list[tuple[str, set[str]]] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name for name, _ in attrs}))


def asked_by_pages(net_log: Path) -> set[str]:
    """Addresses that a page asked for; what the browser asks for on its own account has no origin."""
    events = json.loads(net_log.read_text(encoding="utf-8"))["events"]
    asked = [event["params"] for event in events if "initiator" in event.get("params", {})]
    return {params["url"] for params in asked if params["initiator"] != "not an origin" and "url" in params}


def test_the_script_runs_and_the_page_asks_for_nothing(chromium: str, tmp_path: Path) -> None:
    page = write_page(tmp_path, records.build_classification(records.GROCERIES))
    document, said = open_page(chromium, page, "--dump-dom", f"--log-net-log={tmp_path / 'net.json'}")
    assert document.count('<button type="button">') >= 8
    assert said == ""
    assert asked_by_pages(tmp_path / "net.json") == set()


def test_a_page_that_did_ask_would_be_noticed(chromium: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<img src='http://localhost:9/x.png'>")
    open_page(chromium, tmp_path / "page.html", "--dump-dom", f"--log-net-log={tmp_path / 'net.json'}")
    assert asked_by_pages(tmp_path / "net.json") == {"http://localhost:9/x.png"}


def test_hostile_names_are_inert(chromium: str, tmp_path: Path) -> None:
    record = records.build_classification([HOSTILE[k % 4] + str(k) for k in range(8)])
    record |= {"title": HOSTILE[0], "command": HOSTILE[1], "notes": HOSTILE}
    document, said = open_page(chromium, write_page(tmp_path, record), "--dump-dom")
    elements = Elements(document).found
    assert [tag for tag, _ in elements].count("script") == 1
    assert [tag for tag, _ in elements].count("h1") == 1
    assert not [name for _, names in elements for name in names if name.startswith("on")]
    assert unescape(re.findall(r"<title>(.*?)</title>", document)[0]) == HOSTILE[0]
    assert "{{7*7}}" in document
    assert said == ""


def test_a_script_that_slipped_in_would_not_run(chromium: str, tmp_path: Path) -> None:
    slipped = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    document, said = open_page(chromium, write_page(tmp_path, records.build_regression(), before_end=slipped), "--dump-dom")
    assert "<title>Pasture biomass</title>" in document
    assert "Content Security Policy" in said


def loosen(page: Path) -> Path:
    """Let the test's own script run beside the page's."""
    text = page.read_text(encoding="utf-8")
    page.write_text(re.sub(r"script-src '[^']+'", "script-src 'unsafe-inline'", text), encoding="utf-8")
    return page


def test_a_click_on_a_heading_sorts_the_table(chromium: str, tmp_path: Path) -> None:
    record = records.build_classification(records.GROCERIES)
    click = "<script>document.querySelectorAll('#per-class th button')[2].click()</script>"
    document, _ = open_page(chromium, loosen(write_page(tmp_path, record, before_end=click)), "--dump-dom")
    table = document[document.index('id="per-class"') :].partition("</table>")[0]
    shown = re.findall(r'<th scope="row">(.*?)</th>', table)
    rows = {row["name"]: row["recall"] for row in record["per_class"]["test"]}
    assert [rows[name] for name in shown] == sorted(rows.values())
    assert 'aria-sort="ascending"' in table


@pytest.mark.parametrize("width_px", [500, 1200])
@pytest.mark.parametrize("num_classes", [14, 50])
def test_the_page_never_scrolls_sideways(chromium: str, tmp_path: Path, width_px: int, num_classes: int) -> None:
    names = [f"a class with a rather long name {k} {'x' * 60}" for k in range(num_classes)]
    page = loosen(write_page(tmp_path, records.build_classification(names), before_end=PROBE))
    document, _ = open_page(chromium, page, "--dump-dom", f"--window-size={width_px},900")
    content, window = re.findall(r'data-width="(\d+)/(\d+)"', document)[0]
    assert int(content) <= int(window)


@pytest.mark.parametrize("width_px", [500, 1200])
def test_the_masks_of_a_sample_stand_side_by_side_and_fit_the_window(chromium: str, tmp_path: Path, width_px: int) -> None:
    record = records.build_segmentation()
    record["gallery"][0]["title"] = "a scene with a very long name " + "x" * 200
    tops = """<script>
    const shown = [...document.querySelectorAll(".samples li")].map(one => [...one.querySelectorAll("img")]);
    root.setAttribute("data-rows", shown.map(row => new Set(row.map(one => one.getBoundingClientRect().top)).size).join());
    </script>"""
    page = loosen(write_page(tmp_path, record, before_end=PROBE + tops))
    document, said = open_page(chromium, page, "--dump-dom", f"--window-size={width_px},900")
    content, window = re.findall(r'data-width="(\d+)/(\d+)"', document)[0]
    assert int(content) <= int(window)
    rows = re.findall(r'data-rows="([\d,]+)"', document)[0].split(",")
    assert len(rows) == len(record["gallery"])
    assert set(rows) == {"1"} if width_px == 1200 else "1" not in rows
    assert said == ""


def test_light_and_dark_are_both_drawn(chromium: str, tmp_path: Path) -> None:
    page = write_page(tmp_path, records.build_classification(records.GROCERIES))
    brightness = []
    for scheme in (1, 0):
        picture = tmp_path / f"{scheme}.png"
        options = [f"--blink-settings=preferredColorScheme={scheme}", "--window-size=900,900", f"--screenshot={picture}"]
        open_page(chromium, page, *options)
        pixels = np.asarray(Image.open(io.BytesIO(picture.read_bytes())).convert("L"))
        assert pixels.std() > 10
        brightness.append(np.median(pixels))
    assert brightness[0] > 200
    assert brightness[1] < 60
