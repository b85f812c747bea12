"""Findings, choices and runs as plain text for a terminal, a pipe or a log file.

In come plain values (dataclasses or the dictionaries saved from them), out comes text without colour or markup; names from files
are made visible, never effective. Nothing here prints.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unchoke.core.choices import Choice
from unchoke.core.errors import list_some
from unchoke.core.findings import Finding
from unchoke.core.metrics import in_order, metric_label
from unchoke.core.units import format_count, format_seconds
from unchoke.reports import summary
from unchoke.reports import timeline_bars as timeline
from unchoke.reports import training_facts as training
from unchoke.reports.json import to_jsonable
from unchoke.reports.layout import columns, shorten, visible, wrap

_SEVERITIES = ("error", "warning", "info")
_SHOWN_PATHS = 3
_IS_COMMAND = re.compile(r"([A-Z_]+=\S* )*(unchoke|python|pip|make|apt|ulimit|/)")
"""A finding's command is either something to type or something to write; this is how the former begins."""
_CODE_INDENT = " " * 9


def render_findings(findings: Iterable[Finding | Mapping[str, Any]]) -> str:
    """Errors first, each with its place, what to do and the command for it; the counts at the end."""
    found = [_as_dict(finding) for finding in findings]
    if not found:
        return "no findings"
    found.sort(key=lambda finding: _severity_rank(finding))
    blocks = [_render_finding(finding) for finding in found]
    return "\n".join([*blocks, "", count_findings(found)])


def count_findings(findings: Iterable[Finding | Mapping[str, Any]]) -> str:
    """``2 errors, 1 warning``."""
    counts = Counter(str(_as_dict(finding).get("severity", "warning")) for finding in findings)
    words = {"error": ("error", "errors"), "warning": ("warning", "warnings"), "info": ("note", "notes")}
    parts = [format_count(counts[severity], *words[severity]) for severity in _SEVERITIES if counts[severity]]
    return ", ".join(parts) or "no findings"


def _severity_rank(finding: Mapping[str, Any]) -> int:
    severity = finding.get("severity", "warning")
    return _SEVERITIES.index(severity) if severity in _SEVERITIES else len(_SEVERITIES)


def _render_finding(finding: Mapping[str, Any]) -> str:
    severity = "note" if finding.get("severity") == "info" else str(finding.get("severity", "warning"))
    lines = [f"{visible(severity):<7}  {visible(finding.get('code', ''))}: {visible(finding.get('message', ''))}"]
    lines += [_CODE_INDENT + place for place in [finding_place(finding)] if place]
    last = "run" if _IS_COMMAND.match(str(finding.get("command", ""))) else "edit"
    for word, key in (("gain", "expected_gain"), ("fix", "fix"), (last, "command")):
        if finding.get(key):
            lines.append(f"{_CODE_INDENT}{word:<4}  {visible(finding[key])}")
    return "\n".join(lines)


def finding_place(finding: Mapping[str, Any]) -> str:
    """The file, cell and line of a finding, or its first few files and how many more."""
    paths = [visible(path) for path in summary.texts(finding, "paths")]
    if len(paths) > 1:
        return list_some(paths, limit=_SHOWN_PATHS)
    path = finding.get("path") or (paths[0] if paths else "")
    if not path:
        return ""
    cell = f" cell {finding['cell']}" if finding.get("cell") is not None else ""
    line = f":{finding['line']}" if finding.get("line") is not None else ""
    return f"{visible(path)}{cell}{line}"


def render_choices(choices: Iterable[Choice | Mapping[str, Any]]) -> str:
    """One line a choice: its name, its value and the reason for it."""
    found = [_as_dict(choice) for choice in choices]
    rows = [(choice.get("name", ""), format_value(choice.get("value")), choice.get("reason", "")) for choice in found]
    return columns(rows) if rows else "no choices recorded"


def format_value(value: Any) -> str:
    """A setting's value as a person would write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(format_value(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={format_value(item)}" for key, item in value.items())
    return str(value)


def render_runs_table(rows: Iterable[Any]) -> str:
    """One line a run: name, status, when, encoder, its leading metric with interval, and its time."""
    runs = [_as_dict(row) for row in rows]
    if not runs:
        return "no runs yet; start one with: unchoke fit DATA"
    table = [_run_row(run) for run in runs]
    return columns(
        table, header=("run", "status", "started", "encoder", "metric", "result", "95 % interval", "time"), right=(5, 7)
    )


def _run_row(run: Mapping[str, Any]) -> tuple[str, ...]:
    metric = summary.leading_metric(run)
    seconds = sum(seconds for _, seconds in summary.stage_seconds(run))
    return (
        _run_name(run),
        str(run.get("status") or ("done" if metric else "")),
        str(run.get("created_at") or "")[:16].replace("T", " "),
        _encoder_name(run),
        f"{metric.split} {metric.label}" if metric else "",
        metric.text if metric else "",
        metric.interval if metric else "",
        format_seconds(seconds) if seconds else "",
    )


def _run_name(run: Mapping[str, Any]) -> str:
    return str(run.get("run") or run.get("name") or "?")


def _encoder_name(run: Mapping[str, Any]) -> str:
    encoder = run.get("encoder")
    return str(encoder.get("name", "")) if isinstance(encoder, Mapping) else str(encoder or "")


def render_fit_result(record: Mapping[str, Any], *, report: str = "", next_command: str = "") -> str:
    """How a `fit` ends: the result with its interval, where the time went, the report, the next command."""
    parts = [render_headline(record), render_metrics(record), summary.baseline_sentence(record)]
    parts += [render_training(record), render_timings(record), render_chokes(record)]
    tail = [("report", report or record.get("report")), ("next", next_command or record.get("next_command"))]
    parts.append("\n".join(f"{word:<8}{visible(text)}" for word, text in tail if text))
    return "\n\n".join(part for part in parts if part)


def render_headline(record: Mapping[str, Any]) -> str:
    """The run and its leading metric in one sentence."""
    metric = summary.leading_metric(record)
    if metric is None:
        return f"{visible(_run_name(record))}: no metrics recorded"
    size = summary.split_size(record, metric.split)
    on = f" on {format_count(size, *summary.sample_words(record))} it was not trained on" if size else ""
    interval = f" (95 % interval {metric.interval})" if metric.interval else ""
    split = summary.SPLIT_WORDS.get(metric.split, metric.split)
    return f"{visible(_run_name(record))}: {split} {metric.label} {metric.text}{interval}{on}"


def render_metrics(record: Mapping[str, Any]) -> str:
    """Every metric of test and validation with its interval; those of single targets as a table of their own."""
    found = [metric for split in ("test", "val") for metric in summary.overall_metrics(record, split)]
    table = [(summary.SPLIT_WORDS[metric.split], metric.label, metric.text, metric.interval) for metric in found]
    overall = columns(table, header=("split", "metric", "value", "95 % interval"), right=(2,)) if table else ""
    tables = [overall, *(_target_table(record, split) for split in ("test", "val"))]
    return "\n\n".join(table for table in tables if table)


def _target_table(record: Mapping[str, Any], split: str) -> str:
    """Figures target by target; one that follows from others is shown with what it is the sum of."""
    stems, targets = summary.target_metrics(record, split)
    sums = training.derived(record)
    word = "class" if summary.is_segmentation(record) else "target"
    header = (f"{summary.SPLIT_WORDS[split]} {word}", *(metric_label(stem) for stem in stems))
    rows = [
        (f"{one.target} = {sums[one.target]}" if one.target in sums else one.target, *(_cell(metric) for metric in one.metrics))
        for one in targets
    ]
    return columns(rows, header=header, right=range(1, len(header))) if rows else ""


def render_training(record: Mapping[str, Any], *, in_full: bool = False) -> str:
    """How a network was trained, where its time went and what memory it took; nothing for heads on features."""
    said = training.facts(record) if in_full else training.main_facts(record)
    if not said:
        return ""
    further = [("time of training", training.shares_text(record)), ("memory", training.memory_text(record))]
    return columns([(word, text) for word, text in [*said, *further] if text])


def render_timings(record: Mapping[str, Any]) -> str:
    """Seconds and share of each stage."""
    stages = summary.stage_seconds(record)
    total = sum(seconds for _, seconds in stages)
    if not stages or total <= 0:
        return ""
    table = [(stage, format_seconds(seconds), f"{seconds / total * 100:.0f} %") for stage, seconds in stages]
    table.append(("total", format_seconds(total), ""))
    rate = summary.number(record.get("images_per_s"))
    speed = f"\nfeatures were made at {rate:,.0f} {summary.sample_words(record)[1]}/s" if rate else ""
    return columns(table, header=("stage", "time", "share"), right=(1, 2)) + speed


def render_chokes(record: Mapping[str, Any], *, in_full: bool = False) -> str:
    """What held a run back and what to type instead, the largest gain first; smaller gains and notes only in full."""
    found = [choke for choke in summary.rows(record, "chokes") if in_full or choke.get("severity") == "warning"]
    return "\n".join(["what held this run back", *(_render_finding(choke) for choke in found)]) if found else ""


def render_run(record: Mapping[str, Any]) -> str:
    """One run in full: result, data, encoder, time, what held it back, memory, choices, findings."""
    data = summary.section(record, "data")
    splits = ", ".join(f"{split} {size}" for split, size in sorted(summary.section(data, "splits").items(), key=_split_rank))
    encoder = summary.section(record, "encoder")
    facts = [
        ("status", record.get("status")),
        ("created", record.get("created_at")),
        ("command", record.get("command")),
        ("data", data.get("source")),
        ("samples", f"{data.get('num_samples', '?')} ({splits})" if splits else data.get("num_samples")),
        ("encoder", format_value(encoder) if encoder else _encoder_name(record)),
        ("memory", "" if training.facts(record) else training.memory_text(record)),
        ("profile", ", ".join(summary.texts(summary.section(record, "profile"), "pages"))),
    ]
    parts = [render_headline(record), columns([(word, value) for word, value in facts if value]), render_metrics(record)]
    parts += [summary.baseline_sentence(record), render_training(record, in_full=True), render_timings(record)]
    parts += [timeline.render_timeline(record), render_chokes(record, in_full=True)]
    parts.append(render_choices(summary.rows(record, "choices")) if record.get("choices") else "")
    parts.append(render_findings(summary.rows(record, "findings")) if record.get("findings") else "")
    parts += [wrap(note, indent="") for note in summary.texts(record, "notes")]
    return "\n\n".join(part for part in parts if part)


def _split_rank(item: tuple[str, Any]) -> tuple[int, str]:
    return in_order(item[0], ("train", "val", "test"))


def render_comparison(records: Sequence[Mapping[str, Any]]) -> str:
    """Runs side by side: every metric and stage time, and the settings in which they differ."""
    runs = [_as_dict(record) for record in records]
    if not runs:
        return "no runs to compare"
    rows = _metric_rows(runs) + _timing_rows(runs) + _differing_rows(runs)
    header = ["", *(visible(_run_name(run)) for run in runs)]
    return columns(rows, header=header, right=range(1, len(runs) + 1))


def _metric_rows(runs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    found = [{(m.split, m.name): m for split in ("test", "val") for m in summary.metrics_of(run, split)} for run in runs]
    keys = dict.fromkeys(key for metrics in found for key in metrics)
    return [[f"{key[0]} {metric_label(key[1])}", *(_cell(metrics.get(key)) for metrics in found)] for key in keys]


def _cell(metric: summary.ReportedMetric | None) -> str:
    if metric is None:
        return "-"
    return f"{metric.text} ({metric.interval})" if metric.interval else metric.text


def _timing_rows(runs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    found = [dict(summary.stage_seconds(run)) for run in runs]
    stages = dict.fromkeys(stage for timings in found for stage in timings)
    return [[f"{stage} time", *(format_seconds(t[stage]) if stage in t else "-" for t in found)] for stage in stages]


def _differing_rows(runs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    settings = [_settings(run) for run in runs]
    names = dict.fromkeys(name for values in settings for name in values)
    differing = [name for name in names if len({values.get(name, "-") for values in settings}) > 1]
    return [[name, *(shorten(values.get(name, "-"), 40) for values in settings)] for name in differing]


def _settings(run: Mapping[str, Any]) -> dict[str, str]:
    """Settings, choices and encoder facts of a run under one flat set of names."""
    values = {"encoder": _encoder_name(run)}
    values |= {f"encoder {key}": format_value(value) for key, value in summary.section(run, "encoder").items() if key != "name"}
    values |= {str(choice.get("name")): format_value(choice.get("value")) for choice in summary.rows(run, "choices")}
    return values | {str(key): format_value(value) for key, value in summary.section(run, "settings").items()}


def _as_dict(value: Any) -> dict[str, Any]:
    """A dataclass, or the dictionary saved from one, as a dictionary."""
    plain = to_jsonable(value)
    return plain if isinstance(plain, dict) else {}
