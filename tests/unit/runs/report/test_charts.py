"""Drawings are well-formed, complete and to scale."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unchoke.runs.report.charts import (
    ReliabilityPoint,
    Series,
    confusion_chart,
    interval_bar,
    line_chart,
    most_mistaken,
    nice_ticks,
    reliability_chart,
    scatter_chart,
    share_bar,
    stacked_bar,
    tag,
)

numbers = st.floats(-1e9, 1e9, allow_nan=False).map(lambda value: round(value, 6))


def parts(markup: str, name: str, class_: str = "") -> list[ElementTree.Element]:
    found = ElementTree.fromstring(markup).iter(name)
    return [part for part in found if class_ in (part.get("class") or "").split() or not class_]


@given(low=numbers, high=numbers)
def test_ticks_cover_the_range_in_round_equal_steps(low: float, high: float) -> None:
    low, high = min(low, high), max(low, high)
    ticks = nice_ticks(low, high)
    slack = 1e-6 * max(1e-6, abs(low), abs(high))
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    assert 2 <= len(ticks) <= 12


def test_text_and_attributes_are_escaped() -> None:
    drawn = tag("text", "<b>&", class_='"><script>')
    assert drawn == '<text class="&#34;&gt;&lt;script&gt;">&lt;b&gt;&amp;</text>'


def test_a_curve_runs_through_its_points_and_marks_the_best() -> None:
    chart = line_chart(
        "c", "Loss", [Series("training", [(1, 3.0), (2, 1.0), (3, 0.0)])], x_label="epoch", mark_x=2, mark_label="best"
    )
    curve = parts(chart, "path", "curve")[0].get("d") or ""
    heights = [float(point.split()[1]) for point in curve[1:].split("L")]
    assert heights == sorted(heights)
    assert len(parts(chart, "line", "mark")) == 1
    assert "training goes from 3.00 to 0.000" in chart


@pytest.mark.parametrize(
    "points", [[(1.0, 0.5)], [(1.0, 0.0), (2.0, 0.0)], [(5.0, -1.0), (5.0, 1.0)], [(1.0, 1e300), (1e308, -1e300)]]
)
def test_degenerate_curves_are_drawn(points: list[tuple[float, float]]) -> None:
    chart = line_chart("c", "Loss", [Series("training", points)], x_label="epoch")
    assert "nan" not in chart.lower().replace("title", "")
    assert ElementTree.fromstring(chart).get("role") == "img"


def test_every_confidence_bin_is_a_point() -> None:
    bins = [ReliabilityPoint(0.5, 0.4, 10.0), ReliabilityPoint(0.9, 0.95, 90.0)]
    points = parts(reliability_chart("r", bins), "circle")
    assert len(points) == 2
    assert float(points[0].get("r") or 0) < float(points[1].get("r") or 0)


def test_large_scatter_is_thinned_constant_one_drawn() -> None:
    many = [float(k) for k in range(10_000)]
    assert 1000 <= len(parts(scatter_chart("s", "height", many, many), "circle")) <= 1500
    assert len(parts(scatter_chart("s", "height", [2.0], [2.0]), "circle")) == 1


def test_the_matrix_shades_by_row_and_tells_counts() -> None:
    chart = confusion_chart("m", [[3, 1], [0, 0]], ["cat", "dog <b>"])
    cells = parts(chart, "g", "cell")
    assert [cell.findtext("title") for cell in cells] == ["cat recognised: 3 of 4 (75%)", "cat called dog <b>: 1 of 4 (25%)"]
    shades = [float(cell.find("rect").get("fill-opacity")) for cell in cells]  # type: ignore[union-attr, arg-type]
    assert shades == [0.78, 0.34]
    assert [cell.find("rect").get("class") for cell in cells] == ["hit", "miss"]  # type: ignore[union-attr]


def test_fifty_classes_fit_a_page_and_more_show_the_worst() -> None:
    size = 80
    matrix = [
        [10 if row == column else 5 if row == column + 1 and row >= 40 else 0 for column in range(size)] for row in range(size)
    ]
    assert set(range(40, 80)) <= set(most_mistaken(matrix))
    chart = confusion_chart("m", matrix, [f"a rather long class name {k}" for k in range(size)])
    root = ElementTree.fromstring(chart)
    assert float(root.get("width") or 0) < 960
    assert len(parts(chart, "g", "cell")) >= 50


def test_names_beside_the_matrix_differ_and_have_room() -> None:
    names = ["Corn_(maize)___Cercospora_leaf_spot Gray_leaf_spot", "Corn_(maize)___Cercospora_leaf_spot Brown", "WWWWWWWWWWWW"]
    chart = confusion_chart("m", [[3, 1, 0], [0, 2, 0], [0, 0, 1]], names)
    labels = [
        one for one in parts(chart, "text", "label") if one.get("text-anchor") == "end" and one.text not in ("answer", "truth")
    ]
    assert len({one.text for one in labels}) == 3
    assert all(float(one.get("x") or 0) >= 6.6 * len(one.text or "") for one in labels)
    assert float(labels[2].get("x") or 0) >= 9 * 12
    assert names[0] in chart, "the whole name is told when pointed at"


def test_bars_are_to_scale_and_stay_inside() -> None:
    assert parts(share_bar(0.25), "rect", "bar")[0].get("width") == "25.00%"
    assert parts(share_bar(7.0), "rect", "bar")[0].get("width") == "100.00%"
    stacked = parts(stacked_bar([("a", 0.25, "s1"), ("b", 0.5, "s2")]), "rect")
    assert [part.get("x") for part in stacked] == ["0.00%", "25.00%"]
    drawn = interval_bar(0.9, 0.8, 1.2)
    assert re.findall(r'(?:width|cx)="([0-9.]+%)"', drawn)[-2:] == ["20.00%", "90.00%"]
