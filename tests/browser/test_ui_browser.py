"""`unchoke ui` in a real browser: by keys alone, scrolled, with a photo dropped on it, and while something trains."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cdp import Browser, Page
from PIL import Image

from pages import ServedPage, save_findings, serve
from unchoke.core.events import Progress, StageStarted, ignore
from unchoke.core.workspace import Workspace
from unchoke.curation.data_finding import DataFinding
from unchoke.data.corrections import Correction, load_corrections
from unchoke.runs.progress_log import ProgressLog

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
ONE, TWO, THREE = "apple/apple 00.jpg", "apple/apple 01.jpg", "leaf/leaf 02.jpg"
PAGES = ["/", "/runs/exp_1", "/photos", "/review", "/try", "/scenes", "/speed"]


FINDINGS = [
    DataFinding("label", f"the first {HOSTILE}", (ONE,), 0.9, {}, (Correction(ONE, "label", "plum"),)),
    DataFinding("copies-labels", "the second", (TWO, THREE), 0.8, {}, (Correction(THREE, "use", "drop"),)),
    DataFinding("outlier", "the third", (THREE,), 0.7),
]


@pytest.fixture(scope="module")
def served(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPage]:
    """One server for all tests that do not end it: it takes longer to start than a test to run."""
    root = Path(shutil.copytree(finished, tmp_path_factory.mktemp("served") / "out"))
    save_findings(root, FINDINGS)
    with serve(root) as page:
        yield page


@pytest.fixture
def root(served: ServedPage) -> Iterator[Path]:
    """Its workspace, in which nothing is decided."""
    yield served.root
    (served.root / "corrections.csv").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def entrance(browser: Browser, served: ServedPage) -> Page:
    """The page that came in by the printed address, which lets in once; nothing else is done there."""
    return browser.open(served.address)


@pytest.fixture
def page(browser: Browser, entrance: Page, served: ServedPage) -> Iterator[Page]:
    opened = browser.open(f"{served.base}/")
    yield opened
    opened.close()


def decided(page: Page, number: int) -> None:
    page.until(f"document.documentElement.dataset.decisions === '{number}'")


def choose(page: Page, name: str, value: str) -> None:
    """A value of a filter or slider, as a person's choice arrives."""
    field = f"document.querySelector('[name={name}]')"
    page.ask(f"{field}.value = '{value}'")
    for kind in ("input", "change"):
        page.ask(f"void {field}.dispatchEvent(new Event('{kind}', {{bubbles: true}}))")


def standing(root: Path) -> dict[tuple[str, str], str]:
    return {key: line.value for key, line in load_corrections(root / "corrections.csv").standing.items()}


def test_printed_address_lets_in_and_token_leaves_it(entrance: Page, served: ServedPage) -> None:
    assert entrance.ask("location.href") == f"{served.base}/"
    assert "exp_1" in entrance.ask("document.body.innerText")
    assert entrance.ask("document.cookie") == ""
    assert entrance.said == []


def test_a_review_by_keys_alone(page: Page, served: ServedPage, root: Path) -> None:
    page.visit(f"{served.base}/review")
    heading = "document.querySelector('h1').innerText"
    assert HOSTILE in page.ask(heading)
    page.press("3")
    decided(page, 1)
    assert standing(root) == {(ONE, "label"): "plum"}
    assert page.ask(heading) == "the second"
    page.press("k")
    decided(page, 2)
    page.press("u")
    decided(page, 3)
    assert standing(root) == {(ONE, "label"): "plum"}
    page.press("ArrowRight")
    page.until(f"{heading} === 'the third'")
    page.press("d")
    decided(page, 4)
    assert standing(root) == {(ONE, "label"): "plum", (THREE, "use"): "drop"}
    page.until(f"{heading} === 'All decided'")
    assert page.ask("document.title") != "owned"
    assert page.said == []


def test_keys_faster_than_answers_are_about_what_is_shown(page: Page, served: ServedPage, root: Path) -> None:
    page.visit(f"{served.base}/review")
    for key in "dd":
        for kind in ("keyDown", "keyUp"):
            page.send("Input.dispatchKeyEvent", type=kind, key=key, **({"text": key} if kind == "keyDown" else {}))
    decided(page, 2)
    assert standing(root) == {(ONE, "use"): "drop", (TWO, "use"): "drop"}


def test_decision_after_an_arrow_is_about_the_new_finding(page: Page, served: ServedPage, root: Path) -> None:
    page.visit(f"{served.base}/review")
    page.ask("""['ArrowRight', 'd', 'd', 'd', 'd'].forEach((key, place) =>
        document.body.dispatchEvent(new KeyboardEvent('keydown', {key, repeat: place > 1, bubbles: true})))""")
    decided(page, 1)
    assert standing(root) == {(TWO, "use"): "drop"}


def test_typing_a_label_does_not_press_keys(page: Page, served: ServedPage, root: Path) -> None:
    page.visit(f"{served.base}/review")
    page.type(".other input", "kudu")
    page.send("Input.dispatchKeyEvent", type="keyDown", key="Enter", text="\r", windowsVirtualKeyCode=13)
    decided(page, 1)
    assert standing(root) == {(ONE, "label"): "kudu"}


def test_lost_server_is_said_and_the_next_one_goes_on(workspace: Path, browser: Browser) -> None:
    save_findings(workspace, FINDINGS)
    with serve(workspace) as served:
        page = browser.open(served.address)
        page.visit(f"{served.base}/review")
        page.press("d")
        decided(page, 1)
        served.kill()
    page.press("d")
    page.until("document.querySelector('[data-problem]').innerText.includes('does not answer')")
    assert standing(workspace) == {(ONE, "use"): "drop"}
    with serve(workspace) as again:
        later = browser.open(again.address)
        later.visit(f"{again.base}/review")
        assert later.ask("document.querySelector('h1').innerText") == "the second"


def many_photos(root: Path, count: int) -> None:
    """As many rows in the manifest, of the few photos there are."""
    lines = (root / "manifest.csv").read_text(encoding="utf-8").splitlines()
    header, rows = lines[0], lines[1:]
    more = [f"{number:05d} {rows[number % len(rows)]}" for number in range(count)]
    (root / "manifest.csv").write_text("\n".join([header, *more]) + "\n", encoding="utf-8")
    (root / "SHA256SUMS").unlink()


def mask_run(root: Path) -> None:
    """A run that drew masks in the place of the one there is."""
    import records
    from unchoke.core import atomic

    folder = root / "experiments" / "exp_1"
    record = records.as_record(records.build_segmentation(num_samples=2) | {"run": "exp_1"})
    atomic.write_json(folder / "record.json", record.to_dict())
    (folder / "SHA256SUMS").unlink()


def test_thousands_of_photos_and_masks(workspace: Path, browser: Browser) -> None:
    """The grid draws only what is in sight; masks follow the slider."""
    many_photos(workspace, 5000)
    mask_run(workspace)
    with serve(workspace) as served:
        page = browser.open(served.address)
        page.visit(f"{served.base}/photos")
        sight = "[...document.querySelectorAll('.tile:not(.away)')]"
        page.until(f"{sight}.length > 10 && {sight}.every(tile => tile.classList.contains('loaded'))")
        assert page.ask("document.querySelectorAll('.tile').length") < 200
        page.ask("document.querySelector('#grid').scrollTop = 1e9")
        page.until(f"{sight}.some(tile => tile.id === 'tile-4999' && tile.classList.contains('loaded'))")
        page.until(f"{sight}.every(tile => tile.classList.contains('loaded'))")
        names = page.ask(f"{sight}.map(tile => [tile.place, tile.title.slice(0, 5)])")
        assert all(int(name) == place for place, name in names)
        assert page.ask("document.querySelectorAll('.tile').length") < 200
        page.visit(f"{served.base}/scenes")
        shown = "document.querySelector('.over:not([hidden])')"
        choose(page, "opacity", "25")
        assert page.ask(f"[{shown}.style.opacity, {shown}.dataset.layer]") == ["0.25", "prediction"]
        choose(page, "layer", "truth")
        assert page.ask(f"{shown}.dataset.layer") == "truth"
        assert page.said == []


def test_the_grid_by_keys(page: Page, served: ServedPage) -> None:
    page.visit(f"{served.base}/photos")
    page.ask("document.querySelector('#grid').focus()")
    page.press("ArrowRight")
    page.press("End")
    page.until("document.querySelector('.tile.current')?.id === 'tile-41'")
    page.press("Home")
    page.press("ArrowDown")
    page.until("document.querySelector('.tile.current') !== null")
    name = page.ask("document.querySelector('.tile.current').title.split('\\n')[0]")
    page.press("Enter")
    page.until(f"location.pathname.startsWith('/photos/') && document.querySelector('.large img')?.alt === {json.dumps(name)}")
    page.until("document.documentElement.dataset.ready === 'yes'")
    page.visit(f"{served.base}/photos")
    page.press("/")
    assert page.ask("document.activeElement.name") == "name"


def test_a_filter_is_applied_as_it_is_chosen(page: Page, served: ServedPage) -> None:
    page.visit(f"{served.base}/photos")
    choose(page, "label", "plum")
    page.until("location.search.includes('label=plum') && document.querySelector('.count')?.innerText === '14 of 42 photos'")


def test_a_photo_dropped_on_the_page_is_answered(page: Page, served: ServedPage) -> None:
    row = page.ask("fetch('/photos/rows?start=0&count=1').then(answer => answer.json())")[0]
    page.visit(f"{served.base}/try")
    drop = """(async () => {
      const data = new DataTransfer(), photo = await (await fetch('/large/ID')).blob();
      data.items.add(new File([photo], 'photo.jpg', {type: 'image/jpeg'}));
      const event = new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true});
      document.querySelector('[data-drop]').dispatchEvent(event);
    })()"""
    page.ask(drop.replace("ID", row["id"]))
    page.until("document.querySelector('#answer h2')?.innerText === 'exp_1 says'")
    assert row["label"] in page.ask("document.querySelector('.said').innerText")
    assert page.ask("document.querySelectorAll('#answer .tiles img').length") == 12
    assert page.said == []


def test_curves_grow_while_something_trains(page: Page, served: ServedPage, root: Path) -> None:
    workspace = Workspace(root)
    with workspace.own():
        log = ProgressLog(workspace, now=iter(range(10_000)).__next__)
        listen = log.listening(ignore)
        listen(StageStarted("train"))
        lengths = []
        for done in (2, 20, 40):
            for epoch in range(done - 1, done + 1):
                listen(Progress("train", epoch, 50, "epochs", 4.0, (50 - epoch) / 4, extra={"loss": 1 / epoch}))
            page.until(f"document.querySelector('#live').innerText.includes('{done} of 50 epochs')")
            lengths.append(page.ask("document.querySelector('#live path.curve').getAttribute('d').length"))
        assert lengths == sorted(set(lengths))
        assert "2.5 s left" in page.ask("document.querySelector('#live').innerText")
        log.close()
    page.until("document.querySelector('#live')?.childElementCount === 0")
    assert page.said == []


def test_a_report_opens_under_its_own_policy(page: Page, served: ServedPage) -> None:
    page.send("Page.navigate", url=f"{served.base}/runs/exp_1/report")
    page.until("document.querySelector('th button') !== null")
    assert page.ask("self.origin") == "null"
    assert page.said == []


def test_narrow_windows_light_or_dark_hold_every_page(browser: Browser, served: ServedPage, page: Page) -> None:
    narrow = browser.open(f"{served.base}/", width=360, height=740)
    row = page.ask("fetch('/photos/rows?start=0&count=1').then(answer => answer.json())")[0]
    for path in [*PAGES, f"/photos/{row['id']}", "/photos?name=no+photo+is+called+so"]:
        narrow.visit(f"{served.base}{path}")
        assert narrow.ask("document.documentElement.scrollWidth <= innerWidth"), path
        assert narrow.ask("document.querySelector('header nav').clientHeight") < 45, f"{path}: the links take two lines"
        for dark in (True, False):
            narrow.paint(dark=dark)
            pixels = np.asarray(Image.open(io.BytesIO(narrow.picture())).convert("L"))
            assert (np.median(pixels) < 60) == dark, path
    assert narrow.said == []
