"""The report page: complete, self-contained, harmless, and never a crash."""

from __future__ import annotations

import base64
import copy
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from records import as_record
from unchoke.runs.report.html import render_report, save_report
from unchoke.runs.report.json import save_record, to_jsonable

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}",
    "</style><b>",
    "' onload='alert(1)",
    "a\x1b[2J\u202eb",
    "]]>-->",
]
VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Elements with attributes, the text by section, and whether every element was closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: dict[str, list[str]] = {}
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self._open: list[str] = []
        self._section = ""
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "section":
            self._section = dict(attrs).get("id") or ""
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "section":
            self._section = ""

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in self.inside:
            self.inside[self._open[-1]].append(data)
        elif data.strip():
            self.words.setdefault(self._section, []).append(data.strip())

    def text(self, section: str) -> str:
        return " ".join(self.words.get(section, []))

    def all_text(self) -> str:
        return " ".join(self.text(section) for section in self.words)

    def found(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def assert_harmless(page: Page) -> None:
    assert len(page.found("script")) == len(page.found("style")) == 1
    for tag, attributes in page.elements:
        assert tag not in {"iframe", "object", "embed", "base", "form"}
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/", "data:,")), (tag, attributes)


def test_the_result_is_a_sentence_with_its_uncertainty(groceries: dict[str, Any]) -> None:
    text = Page(render_report(as_record(groceries))).text("result")
    assert "83.6 % (95 % interval 80.2–86.5 %) on 311 images it was not trained on" in text
    assert "always answering “apple”, the commonest class, gets 6.1 %." in text
    assert "balanced accuracy" in text


def test_ladder_is_shown_in_its_order(
    groceries: dict[str, Any],
) -> None:
    tried = [
        {"name": "heads on several blocks", "seconds": 12.0, "val_loss": 0.5, "together": 0.5, "share": 0.25},
        {"name": "the <last> 4 blocks", "seconds": 31.0, "val_loss": 0.4, "together": 0.375, "share": 0.75},
    ]
    page = Page(render_report(as_record({**groceries, "ladder": tried, "selection_metric": "log_loss"})))
    assert_harmless(page)
    assert "heads on several blocks 12.0 s 0.500 0.500 25% the <last> 4 blocks 31.0 s 0.400 0.375 75%" in page.text("ladder")
    assert page.text("sweep") == ""
    assert Page(render_report(as_record(groceries))).text("ladder") == ""


def test_every_section_is_there(groceries: dict[str, Any]) -> None:
    page = Page(render_report(as_record(groceries)))
    wanted = [
        "result",
        "curves",
        "confusion",
        "per-class",
        "mistakes",
        "calibration",
        "data",
        "sweep",
        "time",
        "choices",
        "check",
        "reproduce",
    ]
    assert [attributes["id"] for attributes in page.found("section")] == wanted
    links = [attributes["href"] for attributes in page.found("a")]
    assert links == [f"#{name}" for name in wanted[1:]]
    assert "This record holds no" not in page.all_text()
    for section, words in {
        "confusion": "juice recognised: 22 of 31 (71%)",
        "per-class": "red pepper, bell (organic)",
        "time": "features were made at 312 images/s",
        "choices": "no CUDA or MPS device was found",
        "check": "truncated: the file ends in the middle of the picture",
        "reproduce": "unchoke fit photos/ --epochs 40",
        "sweep": "weight_decay",
        "mistakes": "truly apple",
        "calibration": "4.8 %",
    }.items():
        assert words in page.text(section), section
    assert len(page.found("img")) == len([item for item in groceries["mistakes"] if item["thumbnail"]])


def test_regression_has_scatters_and_no_confusions(pasture: dict[str, Any]) -> None:
    page = Page(render_report(as_record(pasture)))
    assert "explains 74 % of the variation" in page.text("result")
    assert "dry dead g: predicted against true values" in page.text("scatter")
    assert page.text("confusion") == ""
    assert "found nothing to complain about" in page.text("check")
    assert "confusion matrix" not in page.all_text()


def test_network_shows_how_it_was_trained(network: dict[str, Any]) -> None:
    page = Page(render_report(as_record(network)))
    wanted = ["result", "curves", "per-target", "scatter", "data", "network", "time", "choices", "check", "reproduce"]
    assert [attributes["id"] for attributes in page.found("section")] == wanted
    assert "This record holds no" not in page.all_text()
    assert "weighted R² 0.610" in page.text("result")
    assert "R² of green" not in page.text("result"), "single targets have a table of their own"
    assert "Validation weighted R²" in page.text("curves")
    for section, words in {
        "per-target": "total = green + dead 0.500 (0.400 to 0.600)",
        "scatter": "total = green + dead",
        "data": "extra input",
        "network": "the last 4 of 12 blocks trained",
        "time": "planned for weights 90.0 MB planned for gradients 90.0 MB",
    }.items():
        assert words in page.text(section), section
    assert "limit 4.0 GB" in page.text("time")
    assert_harmless(page)


def test_empty_record_says_what_is_missing() -> None:
    text = Page(render_report(as_record({}))).all_text()
    assert "No result yet" in text
    assert "This record holds no metrics, no learning curves" in text


def test_nothing_is_loaded_and_nothing_can_run(groceries: dict[str, Any]) -> None:
    text = render_report(as_record(groceries))
    page = Page(text)
    assert_harmless(page)
    assert not re.search(r"(https?:)?//[a-z]", text.replace("//www.w3.org", ""))
    policy = next(a["content"] for a in page.found("meta") if a.get("http-equiv") == "Content-Security-Policy") or ""
    assert policy.startswith("default-src 'none';")
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256("".join(page.inside[kind]).encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def poisoned(value: Any) -> Any:
    """The record with every text, and every key that is a name, replaced by a hostile one."""
    if isinstance(value, dict):
        return {key: poisoned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [poisoned(item) for item in value]
    return " ".join(HOSTILE) if isinstance(value, str) and not value.startswith("data:") else value


@pytest.mark.parametrize("kind", ["groceries", "pasture", "network", "clouds"])
def test_hostile_text_everywhere_stays_text(kind: str, request: pytest.FixtureRequest) -> None:
    record = poisoned(to_jsonable(request.getfixturevalue(kind)))
    record["task"]["kind"] = {"groceries": "classification", "clouds": "segmentation"}.get(kind, "regression")
    for section in ("evidence", "versions", "encoder"):
        record[section] = dict.fromkeys(HOSTILE, HOSTILE[0])
    record["metrics"]["test"][HOSTILE[0]] = {"value": 0.5}
    record["timings"][HOSTILE[1]] = 1.0
    if kind == "groceries":
        record["task"]["names"] = [f"{HOSTILE[k % len(HOSTILE)]} {k}" for k in range(14)]
        record["data"]["class_counts"] = {"train": dict.fromkeys(HOSTILE, 3), HOSTILE[1]: {HOSTILE[0]: 2}}
        record["mistakes"] += [{"truth": HOSTILE[0], "predicted": HOSTILE[1], "thumbnail": HOSTILE[1]}]
    text = render_report(as_record(record))
    page = Page(text)
    assert_harmless(page)
    assert "<script>alert(1)</script>" in page.all_text()
    assert "{{7*7}}" in page.all_text()
    assert "\x1b" not in text
    assert "\u202e" not in text


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.integers(-3, 10**12),
    st.text(max_size=4),
    st.lists(st.integers(), max_size=3),
    st.lists(st.lists(st.integers(-1, 3), max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.none(), st.text(max_size=3)), max_size=2),
    st.lists(
        st.dictionaries(st.sampled_from(["epoch", "name", "value", "confidence"]), st.one_of(st.integers(), st.none())),
        max_size=2,
    ),
)


def all_places(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    return [place for key, item in items for place in [(*before, key), *all_places(item, (*before, key))]]


@pytest.mark.parametrize("kind", ["groceries", "pasture", "network", "clouds"])
def test_no_damage_to_a_record_crashes_the_page(kind: str, request: pytest.FixtureRequest) -> None:
    whole = to_jsonable(request.getfixturevalue(kind))
    places = all_places(whole)

    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(st.lists(st.tuples(st.sampled_from(places), ODD, st.booleans()), min_size=1, max_size=4))
    def damage(changes: list[tuple[tuple[Any, ...], Any, bool]]) -> None:
        record = copy.deepcopy(whole)
        for place, value, remove in changes:
            change(record, place, value, remove=remove)
        assert_harmless(Page(render_report(as_record(record))))

    damage()


def change(record: Any, place: tuple[Any, ...], value: Any, *, remove: bool) -> None:
    """Put `value` at `place`, or take away what is there; nothing if an earlier change took the way to it."""
    for key in place[:-1]:
        if (
            not isinstance(record, dict | list)
            or (isinstance(record, dict) and key not in record)
            or (isinstance(record, list) and len(record) <= key)
        ):
            return
        record = record[key]
    if isinstance(record, dict):
        record.pop(place[-1], None) if remove else record.update({place[-1]: value})
    elif isinstance(record, list) and isinstance(place[-1], int) and len(record) > place[-1]:
        record[place[-1]] = value


def test_a_report_is_made_from_files_alone(tmp_path: Path, groceries: dict[str, Any]) -> None:
    save_record(tmp_path / "record.json", as_record(groceries))
    page = save_report(tmp_path)
    assert page.name == "report.html"
    assert page.read_text(encoding="utf-8") == render_report(as_record(groceries))


def test_learning_curve_is_drawn(groceries: dict[str, Any]) -> None:
    points = [{"num_photos": 100 * 2**k, "value": 0.6 + 0.1 * k, "num_repeats": 4} for k in range(4)]
    interval = {"value": 0.1, "low": 0.05, "high": 0.15}
    curve = {"metric": "accuracy", "num_judged": 400, "points": points, "gain": interval, "next_gain": interval}
    page = Page(render_report(as_record({**groceries, "learning_curve": curve})))
    assert "Twice the photos would bring about +10.0 points of accuracy" in page.text("photos")
    assert "800" in page.text("photos")
    skipped = as_record({**groceries, "learning_curve": {"skipped": "too few"}})
    assert 'id="photos"' not in render_report(skipped)
