"""A run's record as one self-contained HTML page: no network, no external font, no file beside it.

In comes the record (`record.json`), out comes the page's text. Everything from the record is escaped; the page's own policy
allows exactly the one style sheet and the one script it carries, so that even text that slipped through could not run. A record
with missing parts gives a page that says which parts are missing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke import atomic
from unchoke.report import classes, facts, masks, sections, summary
from unchoke.report.json import load_record, to_jsonable
from unchoke.report.layout import visible

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"
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
        _environment()
        .get_template("report.html.j2")
        .render(
            **shown,
            **_page_parts(),
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


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["visible"] = visible
    return environment


@cache
def _page_parts() -> dict[str, Any]:
    """The style sheet, the script, and the policy that allows these two and nothing else."""
    from markupsafe import Markup

    style, script = ((_TEMPLATES / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    allowed = f"style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    return {"style": Markup(style), "script": Markup(script), "policy": Markup(policy)}


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
