"""What the report shows around the result: time, memory, choices, findings, files set aside, how to do it again.

In comes a record in JSON types, any part of which may be missing; out come plain values for the template, or None where there
is nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from markupsafe import Markup

from unchoke.core.metrics import in_order
from unchoke.core.units import format_bytes, format_count, format_number, format_seconds
from unchoke.reports import bars, summary
from unchoke.reports import timeline_bars as timeline
from unchoke.reports import training_facts as training
from unchoke.reports.summary import number
from unchoke.reports.text import count_findings, finding_place, format_value

Model = dict[str, Any]
_NUM_COLOURS = 8
_MOST_QUARANTINED = 200


def heading(record: Mapping[str, Any]) -> Model:
    """Title, run, date and what kind of data this was, in one line."""
    data, task = summary.section(record, "data"), summary.section(record, "task")
    names = task.get("names")
    size = number(data.get("num_samples"))
    noun = ("target", "targets") if task.get("kind") == "regression" else ("class", "classes")
    parts = [str(record["run"])] if record.get("run") else []
    parts += [format_count(int(size), *summary.sample_words(record))] if size is not None else []
    parts += [format_count(len(names), *noun)] if isinstance(names, list) and names else []
    parts += [moment(record["created_at"])] if record.get("created_at") else []
    return {
        "title": str(record.get("title") or record.get("run") or "Report of a run"),
        "facts": parts,
        "source": data.get("source"),
    }


def moment(text: Any) -> str:
    """An ISO time as ``15 November 2026, 09:52 UTC``; anything else as it is."""
    try:
        when = datetime.fromisoformat(str(text))
    except ValueError:
        return str(text)
    zone = f" {when.tzname()}" if when.tzinfo else ""
    return f"{when.day} {when:%B %Y, %H:%M}{zone}"


def timings(record: Mapping[str, Any]) -> Model | None:
    """One bar of all stages, and each stage's time and share."""
    stages = summary.stage_seconds(record)
    total = sum(seconds for _, seconds in stages)
    if not stages or total <= 0:
        return None
    rate = number(record.get("images_per_s"))
    shown = _divided([(stage, seconds, seconds / total) for stage, seconds in stages])
    return {**shown, "total": format_seconds(total), "rate": f"{rate:,.0f} {summary.sample_words(record)[1]}/s" if rate else None}


def _divided(spent: Sequence[tuple[str, float, float]]) -> Model:
    """What seconds went to (what, seconds, share): one bar of all, and a row for each."""
    rows: list[Model] = [
        {"stage": what, "time": format_seconds(seconds), "share": share, "class": f"s{place % _NUM_COLOURS + 1}"}
        for place, (what, seconds, share) in enumerate(spent)
    ]
    parts = [(f"{row['stage']}: {row['time']}", row["share"], row["class"]) for row in rows]
    return {"bar": bars.stacked_bar(parts, height_px=26, class_="strip rounded"), "rows": rows}


def network(record: Mapping[str, Any]) -> Model | None:
    """How a network was trained, and for older records where the time went: newer ones have a picture of their own for that."""
    said = training.facts(record)
    spent = [] if timeline.stages(record) else training.seconds(record)
    return {"facts": said, "time": _divided(spent) if spent else None} if said else None


def memory(record: Mapping[str, Any]) -> Model | None:
    """Planned against measured, and what was planned for what, all drawn to one scale."""
    held = summary.section(record, "memory")
    plan = summary.section(held, "plan")
    pairs = [
        ("limit", number(plan.get("limit_bytes")), "s8"),
        ("planned", number(held.get("planned_bytes")), "s3"),
        ("measured", number(held.get("measured_bytes")), "s1"),
    ]
    known = [(word, value, class_) for word, value, class_ in pairs if value is not None and value > 0]
    if not known:
        return None
    largest = max(value for _, value, _ in known)

    def drawn(word: str, value: float, class_: str) -> tuple[str, str, Markup]:
        return word, format_bytes(value), bars.share_bar(value / largest, class_=class_)

    return {
        "rows": [drawn(*one) for one in known],
        "parts": [drawn(name, value, "s3") for name, value in training.memory_parts(record)],
    }


def choices(record: Mapping[str, Any]) -> list[Model] | None:
    """Every choice with its value, its reason and what was measured."""
    found = [
        {
            "name": str(choice.get("name", "")),
            "value": format_value(choice.get("value")),
            "reason": str(choice.get("reason") or ""),
            "evidence": _facts(summary.section(choice, "evidence"), first=()),
        }
        for choice in summary.rows(record, "choices")
    ]
    return found or None


def findings(record: Mapping[str, Any]) -> Model | None:
    """What `check` found, errors first; None when the record does not say, an empty list when all was sound."""
    if not isinstance(record.get("findings"), list):
        return None
    order = {"error": 0, "warning": 1, "info": 2}
    found = sorted(summary.rows(record, "findings"), key=lambda finding: order.get(str(finding.get("severity")), 3))
    return {"count": count_findings(found), "items": [_finding(finding) for finding in found]}


def chokes(record: Mapping[str, Any]) -> list[Model] | None:
    """What held the run back, the largest gain first."""
    return [_finding(choke) for choke in summary.rows(record, "chokes")] or None


def _finding(finding: Mapping[str, Any]) -> Model:
    severity = finding.get("severity")
    kept = {key: str(finding.get(key) or "") for key in ("code", "message", "fix", "command", "expected_gain")}
    kept["severity"] = str(severity) if severity in ("error", "warning") else "note"
    return {**kept, "place": finding_place(finding), "evidence": format_value(summary.section(finding, "evidence"))}


def quarantine(record: Mapping[str, Any]) -> Model | None:
    """Files that could not be used, each with its reason; None when the record does not say."""
    if not isinstance(record.get("quarantine"), list):
        return None
    rows = summary.rows(record, "quarantine")
    shown = [(str(row.get("path") or row.get("sample_id") or ""), str(row.get("reason") or "")) for row in rows]
    return {"rows": shown[:_MOST_QUARANTINED], "num": len(shown), "num_more": max(0, len(shown) - _MOST_QUARANTINED)}


def reproduce(record: Mapping[str, Any]) -> Model | None:
    """The command, the encoder and the versions: what it takes to do it again."""
    encoder = _facts(summary.section(record, "encoder"), first=("name", "weights", "engine", "precision", "dim", "image_px"))
    versions = _facts(summary.section(record, "versions"), first=("unchoke", "python", "torch"))
    command = str(record.get("command") or "")
    return {"command": command, "encoder": encoder, "versions": versions} if command or encoder or versions else None


def _facts(held: Mapping[str, Any], *, first: tuple[str, ...]) -> list[tuple[str, str]]:
    names = sorted((name for name in held if held[name] is not None), key=lambda name: in_order(name, first))
    return [(name, format_value(held[name])) for name in names]


def targets(record: Mapping[str, Any]) -> Model | None:
    """For regression: the spread of each target, as the record summarises it."""
    return _spread(record, "targets_summary", "target")


def inputs(record: Mapping[str, Any]) -> Model | None:
    """The spread of each number that the network is given beside a picture."""
    return _spread(record, "inputs_summary", "extra input")


def _spread(record: Mapping[str, Any], key: str, word: str) -> Model | None:
    held = summary.section(summary.section(record, "data"), key)
    rows = [(str(name), summary.section(held, name)) for name in held if isinstance(held[name], Mapping)]
    keys = sorted({key for _, values in rows for key in values}, key=lambda key: in_order(key, ("mean", "std", "min", "max")))
    sums = training.derived(record)
    names = [f"{name} = {sums[name]}" if name in sums else name for name, _ in rows]
    body = [[name, *(_number_text(values.get(key)) for key in keys)] for name, (_, values) in zip(names, rows, strict=True)]
    return {"header": [word, *keys], "rows": body} if rows else None


def _number_text(value: Any) -> str:
    as_number = number(value)
    return "" if value is None else format_value(value) if as_number is None else format_number(as_number)
