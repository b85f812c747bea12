"""A run's record as one self-contained HTML page: no network, no external font, no file beside it.

In comes the record (`record.json`), out comes the page's text. Everything from the record is escaped; the page's own policy
allows exactly the one style sheet and the one script it carries, so that even text that slipped through could not run. A record
with missing parts gives a page that says which parts are missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unchoke.core import atomic
from unchoke.reports import classes, sections, summary
from unchoke.reports import mask_gallery as masks
from unchoke.reports import report_facts as facts
from unchoke.reports import timeline_bars as timeline
from unchoke.reports.json import load_record, to_jsonable
from unchoke.reports.page import environment, page_parts

_BUILDERS = {
    "result": sections.result,
    "curves": sections.curves,
    "gallery": masks.gallery,
    "confusion": classes.confusion,
    "per_class": classes.per_class,
    "per_target": sections.per_target,
    "scatter": sections.scatter,
    "mistakes": sections.mistakes,
    "calibration": classes.calibration,
    "balance": classes.balance,
    "targets": facts.targets,
    "inputs": facts.inputs,
    "sweep": sections.sweep,
    "network": facts.network,
    "timings": facts.timings,
    "timeline": timeline.picture,
    "chokes": facts.chokes,
    "memory": facts.memory,
    "choices": facts.choices,
    "findings": facts.findings,
    "quarantine": facts.quarantine,
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


def render_report(record: Mapping[str, Any]) -> str:
    """The whole page. Missing or odd parts of the record are left out, and the page says so."""
    plain = json.loads(json.dumps(to_jsonable(record), sort_keys=True))  # as if read back: files keep their keys sorted
    shown: dict[str, Any] = {name: build(plain) for name, build in _BUILDERS.items()}
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            **shown,
            **page_parts(styles=("report.css",), scripts=("report.js",)),
            heading=facts.heading(plain),
            samples=summary.sample_words(plain)[1],
            missing=_missing(plain, shown),
            notes=summary.texts(plain, "notes"),
        )
    )


def save_report(run_folder: Path) -> Path:
    """Render `record.json` of a run into `report.html` beside it, from files alone; return the page's path."""
    page = run_folder / "report.html"
    atomic.write_text(page, render_report(load_record(run_folder / "record.json")))
    return page


def _missing(record: Mapping[str, Any], shown: Mapping[str, Any]) -> list[str]:
    kind = summary.section(record, "task").get("kind")
    irrelevant = _IRRELEVANT.get(str(kind), {"scatter", "gallery"})
    return [words for name, words in _EXPECTED.items() if shown[name] is None and name not in irrelevant]
