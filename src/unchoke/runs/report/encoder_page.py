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
from unchoke.core.units import format_bytes
from unchoke.runs.report.charts import Scale, figure, label, line, nice_ticks, tag
from unchoke.runs.report.page import environment, page_parts

_WIDTH, _HEIGHT = 640.0, 360.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 60.0, 190.0, 24.0, 44.0
_LEGEND_PX = 34
_CLASSES = {"end": "s2", "blocks": "s1"}


def save_encoder_page(result: Mapping[str, Any], file: Path) -> None:
    atomic.write_text(file, render_encoder_page(result))


def render_encoder_page(result: Mapping[str, Any]) -> str:
    """The whole page."""
    percent = result["figure"] == "accuracy"
    choice = result["choice"]
    return (
        environment()
        .get_template("encoders.html.j2")
        .render(
            **page_parts(styles=("report.css",), scripts=()),
            figure=figure_title(result["figure"]),
            about=f"{result['num_sampled']:,} of {result['num_photos']:,} photos, five folds, none of them of the test split",
            chosen=f"Take {choice['value']}: {choice['reason']}.",
            constant=format_figure(result["constant"], percent=percent),
            chart=speed_chart(result["encoders"], percent=percent, title=figure_title(result["figure"])),
            rows=[_cells(score, percent=percent) for score in result["encoders"]],
            skipped=list(result["skipped"].items()),
            next_command=result["next_command"],
        )
    )


def figure_title(figure: str) -> str:
    """What candidates are judged by, in words."""
    return {"accuracy": "accuracy", "r2": "R²", "weighted_r2": "weighted R²"}[figure]


def format_figure(value: float | None, *, percent: bool) -> str:
    return "" if value is None else f"{100 * value:.1f} %" if percent else f"{value:.3f}"


def _cells(score: Mapping[str, Any], *, percent: bool) -> dict[str, str]:
    rate = score["images_per_s"]
    return {
        "encoder": score["encoder"],
        "cut": score["cut"],
        "value": format_figure(score["value"], percent=percent),
        "limits": " to ".join(filter(None, (format_figure(score[end], percent=percent) for end in ("low", "high")))),
        "rate": "" if rate is None else f"{rate:,.0f}",
        "size": format_bytes(score["photo_bytes"]),
    }


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
    body = [part for tick in ticks for part in _grid(tick, y, percent=percent)]
    for number, (score, rate) in enumerate(zip(drawn, rates, strict=True)):
        body += _dot(score, x(rate) + (4 if score["cut"] == "blocks" else -4), y, percent=percent, number=number)
    shown = sorted({round(rate, 2) for rate in rates})
    body += [label(f"{10**rate:,.0f}", x(rate), bottom + 17, anchor="middle") for rate in shown]
    body.append(label("images a second →", _WIDTH - _RIGHT, height - 6, anchor="end", class_="label soft"))
    described = "; ".join(f"{one['encoder']} {one['cut']}: {format_figure(one['value'], percent=percent)}" for one in drawn)
    return figure("encoders", f"{title} against speed", described, body, width_px=_WIDTH, height_px=height)


def _grid(tick: float, y: Scale, *, percent: bool) -> list[Markup]:
    text = f"{100 * tick:g} %" if percent else f"{tick:g}"
    return [line(_LEFT, y(tick), _WIDTH - _RIGHT, y(tick), "grid"), label(text, _LEFT - 8, y(tick) + 4, anchor="end")]


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
