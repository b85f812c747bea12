"""The page of `unchoke encoders`: how good each candidate is against how fast it is, as a plot and as a table.

In: the dictionary of the result. Out: one self-contained HTML file. Nothing is measured here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from unchoke.core import atomic
from unchoke.core.units import format_bytes, format_seconds
from unchoke.runs.report.charts import Scale, figure, label, line, nice_ticks, tag
from unchoke.runs.report.layout import visible
from unchoke.runs.report.page import Block, Section, render_page
from unchoke.runs.report.view import Table

_WIDTH, _HEIGHT = 640.0, 360.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 60.0, 190.0, 24.0, 44.0
_LEGEND_PX = 34
_CLASSES = {"end": "s2", "blocks": "s1"}


def save_encoder_page(result: Mapping[str, Any], file: Path) -> None:
    atomic.write_text(file, render_encoder_page(result))


def render_encoder_page(result: Mapping[str, Any]) -> str:
    """The whole page."""
    percent, name, scores = result["figure"] == "accuracy", figure_title(result["figure"]), result["encoders"]
    about = f"{result['num_sampled']:,} of {result['num_photos']:,} photos, five folds, none of them of the test split"
    chosen = f"Take {visible(result['choice']['value'])}: {visible(result['choice']['reason'])}."
    constant = f"One constant answer gets {format_figure(result['constant'], percent=percent)}."
    shown = {
        "figure": format_figure(scores[0]["value"], percent=percent),
        "caption": f"{name} of plain heads, the best of {len(scores)}",
        "sentences": [chosen, constant],
    }
    skipped: list[Block] = [("hint", f"{one} was not tried: {reason}") for one, reason in result["skipped"].items()]
    blocks: list[Block] = [("wide", speed_chart(scores, percent=percent, title=name)), ("table", encoder_table(result)), *skipped]
    next_: list[Block] = [("pre", result["next_command"])]
    sections = [
        Section("compared", f"{name[0].upper()}{name[1:]} against speed", "", blocks),
        Section("next", "Next", "", next_),
    ]
    return render_page({"title": "Which encoder?", "facts": [about]}, shown, sections)


def encoder_table(result: Mapping[str, Any]) -> Table:
    """A line for each candidate, the best first."""
    percent, rows = result["figure"] == "accuracy", []
    for score in result["encoders"]:
        rate, ends = score["images_per_s"], (score["low"], score["high"])
        rows.append(
            (
                score["encoder"],
                score["cut"],
                format_figure(score["value"], percent=percent),
                " to ".join(format_figure(end, percent=percent) for end in ends if end is not None),
                "" if score["log_loss"] is None else f"{score['log_loss']:.3f}",
                "" if rate is None else f"{rate:,.0f}",
                format_bytes(score["photo_bytes"]),
                "" if rate is None else format_seconds(result["num_photos"] / rate),
            )
        )
    figure = figure_title(result["figure"])
    header = ("encoder", "cut", figure, "95 % interval", "log loss", "images/s", "per photo", "all photos")
    return Table(header, rows, right=(2, 4, 5, 6, 7))


def figure_title(figure: str) -> str:
    """What candidates are judged by, in words."""
    return {"accuracy": "accuracy", "r2": "R²", "weighted_r2": "weighted R²"}[figure]


def format_figure(value: float | None, *, percent: bool) -> str:
    return "" if value is None else f"{100 * value:.1f} %" if percent else f"{value:.3f}"


def speed_chart(scores: Sequence[Mapping[str, Any]], *, percent: bool, title: str) -> Markup:
    """Each candidate as a dot with its interval: better is higher, faster is further right, on a scale of ratios."""
    drawn = [score for score in scores if score["images_per_s"] and score["value"] is not None]
    if not drawn:
        return Markup("")
    rates = [math.log10(score["images_per_s"]) for score in drawn]
    ends = [value for score in drawn for value in (score["low"], score["value"], score["high"]) if value is not None]
    ticks = nice_ticks(min(ends), max(ends), about=5)
    x = Scale(min(rates) - 0.1, max(rates) + 0.1, _LEFT, _WIDTH - _RIGHT)
    height = max(_HEIGHT, _TOP + _LEGEND_PX * len(drawn))
    bottom = height - _BOTTOM
    y = Scale(ticks[0], ticks[-1], bottom, _TOP)
    body = []
    for tick in ticks:
        text = f"{100 * tick:g} %" if percent else f"{tick:g}"
        body += [line(_LEFT, y(tick), _WIDTH - _RIGHT, y(tick), "grid"), label(text, _LEFT - 8, y(tick) + 4, anchor="end")]
    for number, (score, rate) in enumerate(zip(drawn, rates, strict=True)):
        body += _dot(score, x(rate) + (4 if score["cut"] == "blocks" else -4), y, percent=percent, number=number)
    shown = sorted({round(rate, 2) for rate in rates})
    body += [label(f"{10**rate:,.0f}", x(rate), bottom + 17, anchor="middle") for rate in shown]
    body.append(label("images a second →", _WIDTH - _RIGHT, height - 6, anchor="end", class_="label soft"))
    described = "; ".join(f"{one['encoder']} {one['cut']}: {format_figure(one['value'], percent=percent)}" for one in drawn)
    return figure("encoders", f"{title} against speed", described, body, width_px=_WIDTH, height_px=height)


def _dot(score: Mapping[str, Any], x: float, y: Scale, *, percent: bool, number: int) -> list[Markup]:
    value = format_figure(score["value"], percent=percent)
    class_, name = _CLASSES.get(score["cut"], "s3"), f"{score['encoder']} {score['cut']}"
    top = _TOP + 8 + _LEGEND_PX * number
    parts = [line(x, y(score["low"]), x, y(score["high"]), f"curve {class_}")] if score["low"] is not None else []
    parts += [
        tag("circle", cx=x, cy=y(score["value"]), r=5, class_=f"dot {class_}"),
        tag("circle", cx=_WIDTH - _RIGHT + 14, cy=top - 4, r=4, class_=f"dot {class_}"),
        label(name.removeprefix("tf_"), _WIDTH - _RIGHT + 24, top),
        label(f"{value} at {score['images_per_s']:,.0f} images/s", _WIDTH - _RIGHT + 24, top + 14, class_="label soft"),
    ]
    return parts
