"""A run's record as one self-contained HTML page: no network, no external font, no file beside it.

In comes the record (`record.json`), out comes the page's text. Everything from the record is escaped; the page's own policy
allows exactly the one style sheet and the one script it carries, so that even text that slipped through could not run. A record
with missing parts gives a page that says which parts are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke.core import atomic
from unchoke.runs.report import classes, sections, summary
from unchoke.runs.report import report_facts as facts
from unchoke.runs.report import timeline_bars as timeline
from unchoke.runs.report.json import load_record
from unchoke.runs.report.page import environment, page_parts

if TYPE_CHECKING:
    from unchoke.core.record import RunRecord

_BUILDERS = {
    "result": sections.result,
    "curves": sections.curves,
    "photo_curve": sections.photo_curve,
    "gallery": sections.gallery,
    "confusion": classes.confusion,
    "per_class": classes.per_class,
    "per_target": sections.per_target,
    "scatter": sections.scatter,
    "mistakes": sections.mistakes,
    "calibration": classes.calibration,
    "balance": classes.balance,
    "targets": facts.targets,
    "inputs": facts.inputs,
    "ladder": sections.ladder,
    "sweep": sections.sweep,
    "network": facts.network,
    "timings": facts.timings,
    "timeline": timeline.picture,
    "chokes": facts.chokes,
    "memory": facts.memory,
    "choices": facts.choices,
    "findings": facts.findings,
    "quarantine": facts.quarantine,
    "unscored": facts.unscored,
    "reproduce": facts.reproduce,
}
_EXPECTED = {
    "result": "metrics",
    "curves": "learning curves",
    "gallery": "masks beside the truth",
    "confusion": "confusion matrix",
    "per_class": "per-class figures",
    "scatter": "predictions of the targets",
    "calibration": "calibration",
    "balance": "class counts",
    "timings": "timings",
    "memory": "memory figures",
    "choices": "choices",
    "findings": "findings of the check",
    "reproduce": "command and versions",
}
_ONLY_CLASSIFICATION = {"confusion", "per_class", "calibration", "balance"}
_IRRELEVANT = {
    "regression": {*_ONLY_CLASSIFICATION, "gallery"},
    "segmentation": {"scatter", "calibration", "balance"},
}


def render_report(record: RunRecord) -> str:
    """The whole page. Parts that the record lacks are left out, and the page says so."""
    shown: dict[str, Any] = {name: build(record) for name, build in _BUILDERS.items()}
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            **shown,
            **page_parts(styles=("report.css",), scripts=("report.js",)),
            heading=facts.heading(record),
            samples=summary.sample_words(record)[1],
            missing=_missing(record.task.kind, shown),
            notes=record.notes,
        )
    )


def save_report(run_folder: Path) -> Path:
    """Render `record.json` of a run into `report.html` beside it, from files alone; return the page's path."""
    page = run_folder / "report.html"
    atomic.write_text(page, render_report(load_record(run_folder / "record.json")))
    return page


def _missing(kind: str, shown: Mapping[str, Any]) -> list[str]:
    irrelevant = _IRRELEVANT.get(kind, {"scatter", "gallery"})
    return [words for name, words in _EXPECTED.items() if shown[name] is None and name not in irrelevant]
