"""Runs that make masks, in the report and as text: the gallery, the legend, figures by class in pixels."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from records import as_record
from unchoke.core.metrics import format_metric, metric_label
from unchoke.runs.report.html import PICTURES, legend, render_report
from unchoke.runs.report.summary import leading_metric


class Elements(HTMLParser):
    """Every element of a page with its attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_gallery_shows_five_pictures_of_each_sample(clouds: dict[str, Any]) -> None:
    page = Elements(render_report(as_record(clouds)))
    pictures = [attributes for tag, attributes in page.found if tag == "img"]
    assert len(pictures) == 5 * len(clouds["gallery"]) >= 100
    assert [one["alt"] for one in pictures[:5]] == [
        f"{word} of l8, rows 0–63, test" for word in ("Image", "Overlay", "Prediction", "Truth", "Error")
    ]
    assert all((one["src"] or "").startswith("data:image/") for one in pictures)
    assert "mean IoU 81.2 %" in page.text
    assert "#gallery" in [attributes.get("href") for _, attributes in page.found]


def test_the_legend_has_the_colour_of_each_class(clouds: dict[str, Any]) -> None:
    fills = [
        attributes["fill"]
        for tag, attributes in Elements(render_report(as_record(clouds))).found
        if tag == "rect" and "fill" in attributes
    ]
    assert fills == ["#e8e4da", "#0072b2", "#d55e00"]
    clouds["legend"][1]["colour"] = 'red" onload="x'
    assert [one["name"] for one in legend(as_record(clouds))] == ["clear", "cloud"]


def test_a_picture_that_is_no_picture_is_left_out(clouds: dict[str, Any]) -> None:
    clouds["gallery"] = [{"title": "odd", "image": "https://example.org/x.png", "overlay": None, "truth": 3}]
    assert render_report(as_record(clouds)).count("no picture kept") == len(PICTURES)


def test_mean_iou_leads_beside_the_untrained_rule(clouds: dict[str, Any]) -> None:
    del clouds["selection_metric"]
    leading = leading_metric(as_record(clouds))
    assert leading is not None
    assert (leading.split, leading.name, leading.label) == ("test", "mean_iou", "mean IoU")
    text = Elements(render_report(as_record(clouds))).text
    assert f"test mean IoU {leading.text} on 16 patches it was not trained on." in text
    own = format_metric("iou", clouds["metrics"]["test"]["iou/cloud"]["value"])
    assert (
        f"Without any training, B2 > 9000 reaches an IoU of 41.0 % for cloud on the test patches; the network reaches {own}."
        in text
    )


def test_figures_of_a_class_are_shares_of_pixels(clouds: dict[str, Any]) -> None:
    page = Elements(render_report(as_record(clouds))).text
    assert "class IoU F1 precision recall pixels" in page
    assert "times as many pixels as the smallest: mean IoU and macro F1 count each class equally" in page
    assert "Target by target" not in page
    assert (metric_label("iou/water"), format_metric("iou/water", 0.8126)) == ("IoU of water", "81.3 %")


def test_confusion_matrix_holds_shares(clouds: dict[str, Any]) -> None:
    page = render_report(as_record(clouds))
    first = clouds["confusion"]["test"][0]
    assert f">{first[0] / sum(first) * 100:.0f} %</text>" in page
    assert f">{first[0]:,}</text>" not in page
    assert f"clear recognised: {first[0]:,} of {sum(first):,}" in page


def test_nothing_that_masks_cannot_have_is_called_missing(clouds: dict[str, Any], groceries: dict[str, Any]) -> None:
    assert "This record holds no" not in render_report(as_record(clouds))
    assert "masks beside the truth" not in render_report(as_record(groceries))
    del clouds["gallery"]
    assert "This record holds no masks beside the truth." in render_report(as_record(clouds))
