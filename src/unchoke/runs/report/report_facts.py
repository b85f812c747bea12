"""What the report shows around the result: time, memory, choices, findings, files set aside, how to do it again.

In comes a record, out come plain values for the template, or None where there is nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from unchoke.core.findings import rank
from unchoke.core.metrics import in_order
from unchoke.core.units import format_bytes, format_count, format_number, format_seconds
from unchoke.runs.report import summary
from unchoke.runs.report import timeline_bars as timeline
from unchoke.runs.report import training_facts as training
from unchoke.runs.report.svg import share_bar, stacked_bar
from unchoke.runs.report.text import count_findings, finding_place, format_value

if TYPE_CHECKING:
    from unchoke.core.findings import Finding
    from unchoke.core.record import RunRecord

Model = dict[str, Any]
_NUM_COLOURS = 8
_MOST_QUARANTINED = 200


def heading(record: RunRecord) -> Model:
    """Title, run, date and what kind of data this was, in one line."""
    data, task = record.data, record.task
    noun = ("target", "targets") if task.kind == "regression" else ("class", "classes")
    parts = [record.run] if record.run else []
    parts += [format_count(int(data.num_samples), *summary.sample_words(record))] if data.num_samples is not None else []
    parts += [format_count(len(task.names), *noun)] if task.names else []
    parts += [moment(record.created_at)] if record.created_at else []
    return {"title": record.title or record.run or "Report of a run", "facts": parts, "source": data.source}


def moment(text: str) -> str:
    """An ISO time as ``15 November 2026, 09:52 UTC``; anything else as it is."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    zone = f" {when.tzname()}" if when.tzinfo else ""
    return f"{when.day} {when:%B %Y, %H:%M}{zone}"


def timings(record: RunRecord) -> Model | None:
    """One bar of all stages, and each stage's time and share."""
    stages = summary.stage_seconds(record.timings)
    total = sum(seconds for _, seconds in stages)
    if not stages or total <= 0:
        return None
    rate = record.images_per_s
    shown = _divided([(stage, seconds, seconds / total) for stage, seconds in stages])
    speed = f"{rate:,.0f} {summary.sample_words(record)[1]}/s" if rate else None
    return {**shown, "total": format_seconds(total), "stretches": summary.stretches_text(record), "rate": speed}


def _divided(spent: Sequence[tuple[str, float, float]]) -> Model:
    """What seconds went to (what, seconds, share): one bar of all, and a row for each."""
    rows: list[Model] = [
        {"stage": what, "time": format_seconds(seconds), "share": share, "class": f"s{place % _NUM_COLOURS + 1}"}
        for place, (what, seconds, share) in enumerate(spent)
    ]
    parts = [(f"{row['stage']}: {row['time']}", row["share"], row["class"]) for row in rows]
    return {"bar": stacked_bar(parts, height_px=26, class_="strip rounded"), "rows": rows}


def network(record: RunRecord) -> Model | None:
    """How a network was trained, and for older records where the time went: newer ones have a picture of their own for that."""
    said = training.facts(record)
    spent = [] if timeline.stages(record) else training.seconds(record)
    return {"facts": said, "time": _divided(spent) if spent else None} if said else None


def memory(record: RunRecord) -> Model | None:
    """Planned against measured, and what was planned for what, all drawn to one scale."""
    held = record.memory
    pairs = [
        ("limit", held.plan.limit_bytes if held.plan else None, "s8"),
        ("planned", held.planned_bytes, "s3"),
        ("measured", held.measured_bytes, "s1"),
    ]
    known = [(word, value, class_) for word, value, class_ in pairs if value is not None and value > 0]
    if not known:
        return None
    largest = max(value for _, value, _ in known)

    def drawn(word: str, value: float, class_: str) -> tuple[str, str, Markup]:
        return word, format_bytes(value), share_bar(value / largest, class_=class_)

    return {
        "rows": [drawn(*one) for one in known],
        "parts": [drawn(name, value, "s3") for name, value in training.memory_parts(held)],
    }


def choices(record: RunRecord) -> list[Model] | None:
    """Every choice with its value, its reason and what was measured."""
    found = [
        {"name": one.name, "value": format_value(one.value), "reason": one.reason, "evidence": _facts(one.evidence, first=())}
        for one in record.choices
    ]
    return found or None


def findings(record: RunRecord) -> Model | None:
    """What `check` found, errors first; None when the record does not say, an empty list when all was sound."""
    if record.findings is None:
        return None
    return {"count": count_findings(record.findings), "items": [describe_finding(finding) for finding in rank(record.findings)]}


def chokes(record: RunRecord) -> list[Model] | None:
    """What held the run back, the largest gain first."""
    return [describe_finding(choke) for choke in record.chokes] or None


def describe_finding(finding: Finding) -> Model:
    kept = {key: getattr(finding, key) for key in ("code", "message", "fix", "command", "expected_gain", "kind")}
    kept["severity"] = finding.severity if finding.severity in ("error", "warning") else "note"
    return {**kept, "place": finding_place(finding), "evidence": format_value(finding.evidence)}


def quarantine(record: RunRecord) -> Model | None:
    """Files that could not be used, each with its reason; None when the record does not say."""
    if record.quarantine is None:
        return None
    shown = [(row.path or row.sample_id, row.reason) for row in record.quarantine]
    return {"rows": shown[:_MOST_QUARANTINED], "num": len(shown), "num_more": max(0, len(shown) - _MOST_QUARANTINED)}


def unscored(record: RunRecord) -> Model | None:
    """Images of val and test that no score counts, each with its reason; None when there are none."""
    shown = [(row.path or row.sample_id, row.split, row.reason) for row in record.unscored or ()]
    return {"rows": shown[:_MOST_QUARANTINED], "num_more": max(0, len(shown) - _MOST_QUARANTINED)} if shown else None


def reproduce(record: RunRecord) -> Model | None:
    """The command, the encoder and the versions: what it takes to do it again."""
    encoder = _facts(record.encoder.to_dict(), first=("name", "weights", "engine", "precision", "dim", "image_px"))
    versions = _facts(record.versions, first=("unchoke", "python", "torch"))
    command = record.command
    return {"command": command, "encoder": encoder, "versions": versions} if command or encoder or versions else None


def _facts(held: Mapping[str, Any], *, first: tuple[str, ...]) -> list[tuple[str, str]]:
    names = sorted((name for name in held if held[name] is not None), key=lambda name: in_order(name, first))
    return [(name, format_value(held[name])) for name in names]


def targets(record: RunRecord) -> Model | None:
    """For regression: the spread of each target, as the record summarises it."""
    return _spread(record, record.data.targets_summary, "target")


def inputs(record: RunRecord) -> Model | None:
    """The spread of each number that the network is given beside a picture."""
    return _spread(record, record.data.inputs_summary, "extra input")


def _spread(record: RunRecord, described: Mapping[str, Mapping[str, float | None]] | None, word: str) -> Model | None:
    if not described:
        return None
    keys = sorted(
        {key for row in described.values() for key in row}, key=lambda key: in_order(key, ("mean", "std", "min", "max"))
    )
    sums = training.sums_of(record)
    rows = [
        [f"{name} = {sums[name]}" if name in sums else name, *(_number_text(row.get(key)) for key in keys)]
        for name, row in described.items()
    ]
    return {"header": [word, *keys], "rows": rows}


def _number_text(value: float | None) -> str:
    return "" if value is None else format_number(value)
