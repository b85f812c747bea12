"""Findings, choices and runs as plain text for a terminal, a pipe or a log file.

In come plain values (dataclasses or the dictionaries saved from them), out comes text without colour or markup; names from files
are made visible, never effective. Nothing here prints.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unchoke.core.choices import UNSCORED
from unchoke.core.errors import list_some
from unchoke.core.findings import Finding, rank
from unchoke.core.metrics import format_metric, in_order, metric_label
from unchoke.core.units import format_count, format_seconds
from unchoke.runs.report import baseline_words, pixel_words, summary
from unchoke.runs.report import timeline_bars as timeline
from unchoke.runs.report import training_facts as training
from unchoke.runs.report.layout import columns, shorten, visible, wrap

if TYPE_CHECKING:
    from pathlib import Path

    from unchoke.core.choices import Choice
    from unchoke.core.presets import Preset
    from unchoke.core.record import RecordedRun, RunRecord

_SEVERITIES = {"error": "error", "warning": "warning", "info": "note"}
_SHOWN_PATHS = 3
_IS_COMMAND = re.compile(r"([A-Z_]+=\S* )*(unchoke|python|pip|make|apt|ulimit|/)")
"""A finding's command is either something to type or something to write; this is how the former begins."""
_CODE_INDENT = " " * 9


_OTHER_PHOTOS = (
    "photos: runs with different letters were judged on different photos or labels, so their results cannot be compared"
)


def render_findings(findings: Iterable[Finding | Mapping[str, Any]]) -> str:
    """Errors first, each with its place, what to do and the command for it; the counts at the end. Saved ones may be plain."""
    found = [finding if isinstance(finding, Finding) else Finding(**finding) for finding in findings]
    if not found:
        return "no findings"
    return "\n".join([*map(_render_finding, rank(found)), "", count_findings(found)])


def count_findings(findings: Iterable[Finding]) -> str:
    """``2 errors, 1 warning``."""
    counts = Counter[str](finding.severity for finding in findings)
    parts = [format_count(counts[severity], word) for severity, word in _SEVERITIES.items() if counts[severity]]
    return ", ".join(parts) or "no findings"


def _render_finding(finding: Finding) -> str:
    lines = [f"{_SEVERITIES[finding.severity]:<7}  {visible(finding.code)}: {visible(finding.message)}"]
    lines += [_CODE_INDENT + place for place in [finding_place(finding)] if place]
    last = "run" if _IS_COMMAND.match(finding.command) else "edit"
    for word, text in (("gain", finding.expected_gain), ("fix", finding.fix), (last, finding.command)):
        if text:
            lines.append(f"{_CODE_INDENT}{word:<4}  {visible(text)}")
    diff = finding.evidence.get("diff") if isinstance(finding.evidence, dict) else None  # a saved one may be damaged
    lines += [f"{_CODE_INDENT}      {visible(str(line))}" for line in (diff if isinstance(diff, list) else ())]
    return "\n".join(lines)


def finding_place(finding: Finding) -> str:
    """The file, cell and line of a finding, or its first few files and how many more."""
    paths = [visible(path) for path in finding.paths]
    if len(paths) > 1:
        return list_some(paths, limit=_SHOWN_PATHS)
    path = finding.path or (paths[0] if paths else "")
    if not path:
        return ""
    cell = f" cell {finding.cell}" if finding.cell is not None else ""
    line = f":{finding.line}" if finding.line is not None else ""
    return f"{visible(path)}{cell}{line}"


def render_choices(choices: Iterable[Choice]) -> str:
    """One line a choice: its name, its value and the reason for it."""
    rows = [(choice.name, format_value(choice.value), choice.reason) for choice in choices]
    return columns(rows) if rows else "no choices recorded"


def render_presets(presets: Iterable[Preset]) -> str:
    """One paragraph a preset: what it is for and what it expects; then the next commands."""
    blocks = []
    for preset in presets:
        lines = [visible(preset.name), *(wrap(text, indent=" " * 4) for text in (preset.about, f"expects {preset.expects}"))]
        blocks.append("\n".join(line for line in lines if line))
    return "\n\n".join([*blocks, "next      unchoke presets show NAME, or unchoke fit DATA --preset NAME"])


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


def render_runs_table(runs: Sequence[RecordedRun], unlisted: Sequence[Path] = ()) -> str:
    """One line a run: name, status, when, encoder, cut, head, epochs, its leading metric with interval, what always answering the
    commonest class or the mean reaches, and its time; where not all were judged on the same photos, a letter for which. Below,
    what some of them leave out of their score, and which folders hold runs that are not in the list.
    """
    unknown = [_unlisted(unlisted)] if unlisted else []
    if not runs:
        return unknown[0] if unknown else "no runs yet; start one with: unchoke fit DATA"
    header = ["run", "status", "started", "encoder", "cut", "head", "epochs", "metric", "result", "95 % interval"]
    header += ["baseline", "time"]
    letters = summary.judged_letters(runs)
    several = any(letters)
    rows = [(*_run_row(run), *([letter] if several else [])) for run, letter in zip(runs, letters, strict=True)]
    table = columns(rows, header=[*header, *(["photos"] if several else [])], right=(6, 8, 10, 11))
    said = [_OTHER_PHOTOS] if several else []
    said += [f"{run.called}: {choice.value} {choice.reason}" for run in runs for choice in run.choices if choice.name == UNSCORED]
    said += unknown
    return "\n".join([table, *(["", *map(visible, said)] if said else [])])


def _unlisted(folders: Sequence[Path]) -> str:
    names = list_some([folder.name for folder in folders])
    show = f"unchoke runs show {shlex.quote(str(folders[-1]))}"
    return f"not in experiments.db, which is older or of another workspace: {names}; a folder shows its run: {show}"


def _run_row(run: RecordedRun) -> tuple[str, ...]:
    metric, setup = summary.leading_metric(run), summary.run_setup(run)
    baseline = baseline_words.baseline_value(run, metric.split, metric.name) if metric else None
    seconds = summary.total_seconds(run)
    return (
        run.called,
        run.status or ("done" if metric else ""),
        run.created_at[:16].replace("T", " "),
        str(run.encoder_facts.get("name", "")),
        setup.cut,
        setup.head,
        "" if setup.epochs is None else str(setup.epochs),
        f"{metric.split} {metric.label}" if metric else "",
        metric.text if metric else "",
        metric.interval if metric else "",
        format_metric(metric.name, baseline) if metric and baseline is not None else "",
        format_seconds(seconds) if seconds else "",
    )


def render_fit_result(record: RunRecord, *, report: str = "", next_command: str = "") -> str:
    """How a `fit` ends: the result with its interval, where the time went, the report, the next command."""
    parts = [baseline_words.warning(record) or pixel_words.pixel_warning(record), render_headline(record)]
    parts += [summary.unscored_sentence(record), render_metrics(record)]
    parts += [summary.baseline_sentence(record), summary.value_interval_sentence(record), summary.winner_sentence(record)]
    parts += [render_ladder(record)]
    parts += [
        summary.curve_sentence(record),
        summary.gap_sentence(record),
        summary.corrections_sentence(record),
        pixel_words.pixel_sentence(record),
    ]
    parts += [] if record.draws_masks else ["\n".join(visible(note) for note in record.notes)]
    parts += [render_training(record), render_timings(record), render_chokes(record.chokes)]
    tail = [("report", report), ("next", next_command)]
    parts.append("\n".join(f"{word:<8}{visible(text)}" for word, text in tail if text))
    return "\n\n".join(part for part in parts if part)


def render_ladder(record: RunRecord) -> str:
    """What was tried within the minutes: what each took, what it reached alone and with those before, and its share; else
    nothing.
    """
    if not record.ladder:
        return ""
    rows = [(one.name, *summary.ladder_words(one)) for one in record.ladder]
    measured = f"{metric_label(record.selection_metric)} it is picked by"
    return columns(rows, header=("tried within the minutes", "time", measured, "with those before", "share"), right=(1, 2, 3, 4))


def render_headline(record: RunRecord) -> str:
    """The run and its leading metric in one sentence."""
    metric = summary.leading_metric(record)
    if metric is None:
        return f"{visible(record.called)}: no metrics recorded"
    size = summary.split_size(record, metric.split)
    on = f" on {format_count(size, *summary.sample_words(record))}" if size else ""
    on += " it was not trained on" if size and not summary.counted_leaks(record) else ""
    interval = f" (95 % interval {metric.interval})" if metric.interval else ""
    split = summary.SPLIT_WORDS.get(metric.split, metric.split)
    reached = baseline_words.reached_words(record, metric.split, metric.name)
    against = f"; {reached}" if reached else ""
    return f"{visible(record.called)}: {split} {metric.label} {metric.text}{interval}{on}{against}"


def render_metrics(record: RunRecord) -> str:
    """Every metric of test and validation with its interval; those of single targets as a table of their own."""
    found = [metric for split in summary.SPLITS for metric in summary.overall_metrics(record, split)]
    table = [(summary.SPLIT_WORDS[metric.split], metric.label, metric.text, metric.interval) for metric in found]
    overall = columns(table, header=("split", "metric", "value", "95 % interval"), right=(2,)) if table else ""
    tables = [overall, *(_target_table(record, split) for split in summary.SPLITS)]
    return "\n\n".join(table for table in tables if table)


def _target_table(record: RunRecord, split: str) -> str:
    """Figures target by target; one that follows from others is shown with what it is the sum of."""
    stems, targets = summary.target_metrics(record, split)
    sums = training.sums_of(record)
    word = "class" if record.draws_masks else "target"
    header = (f"{summary.SPLIT_WORDS[split]} {word}", *(metric_label(stem) for stem in stems))
    rows = [
        (f"{one.target} = {sums[one.target]}" if one.target in sums else one.target, *(_cell(metric) for metric in one.metrics))
        for one in targets
    ]
    return columns(rows, header=header, right=range(1, len(header))) if rows else ""


def render_training(record: RunRecord, *, in_full: bool = False) -> str:
    """How a network was trained, where its time went and what memory it took; nothing for heads on features."""
    said = training.facts(record) if in_full else training.main_facts(record)
    if not said:
        return ""
    further = [("time of training", training.shares_text(record)), ("memory", training.memory_text(record.memory))]
    return columns([(word, text) for word, text in [*said, *further] if text])


def render_timings(record: RunRecord) -> str:
    """Seconds and share of each stage, and how fast features were made."""
    stages = summary.stage_seconds(record.timings)
    total = sum(seconds for _, seconds in stages)
    if not stages or total <= 0:
        return ""
    table = [(stage, format_seconds(seconds), f"{seconds / total * 100:.0f} %") for stage, seconds in stages]
    table.append(("total", format_seconds(total), ""))
    rate, stretches = record.images_per_s, summary.stretches_text(record)
    stopped = f"\nthe run was stopped and went on: {stretches}, added up here" if stretches else ""
    speed = f"\nfeatures were made at {rate:,.0f} {summary.sample_words(record)[1]}/s" if rate else ""
    return columns(table, header=("stage", "time", "share"), right=(1, 2)) + stopped + speed


def render_chokes(chokes: Sequence[Finding], *, in_full: bool = False) -> str:
    """What held a run back and what to type instead, the largest gain first; smaller gains and notes only in full."""
    found = [choke for choke in chokes if in_full or choke.severity == "warning"]
    return "\n".join(["what held this run back", *map(_render_finding, found)]) if found else ""


def render_run(record: RunRecord) -> str:
    """One run in full: result, data, encoder, time, what held it back, memory, choices, findings."""
    data = record.data
    by_name = sorted(data.splits.items(), key=lambda item: in_order(item[0], ("train", "val", "test")))
    splits = ", ".join(f"{split} {size}" for split, size in by_name)
    facts = [
        ("status", record.status),
        ("created", record.created_at),
        ("command", record.command),
        ("data", data.source),
        ("samples", f"{'?' if data.num_samples is None else data.num_samples} ({splits})" if splits else data.num_samples),
        ("encoder", format_value(dict(sorted(record.encoder_facts.items())))),
        ("memory", "" if training.facts(record) else training.memory_text(record.memory)),
        ("profile", ", ".join(record.profile.pages) if record.profile else ""),
    ]
    parts = [
        baseline_words.warning(record) or pixel_words.pixel_warning(record),
        render_headline(record),
        summary.unscored_sentence(record),
    ]
    parts += [columns([(word, value) for word, value in facts if value]), render_metrics(record)]
    parts += [summary.baseline_sentence(record), summary.value_interval_sentence(record), summary.winner_sentence(record)]
    parts += [render_ladder(record)]
    parts += [
        summary.curve_sentence(record),
        summary.gap_sentence(record),
        summary.corrections_sentence(record),
        pixel_words.pixel_sentence(record),
    ]
    parts += [render_training(record, in_full=True), render_timings(record)]
    parts += [timeline.render_timeline(record), render_chokes(record.chokes, in_full=True)]
    parts.append(render_choices(record.choices) if record.choices else "")
    parts.append(render_findings(record.findings) if record.findings else "")
    parts += [wrap(note, indent="") for note in record.notes]
    return "\n\n".join(part for part in parts if part)


def render_comparison(runs: Sequence[RecordedRun]) -> str:
    """Runs side by side: whether they were judged on the same photos, every metric and stage time, and differing settings."""
    if not runs:
        return "no runs to compare"
    rows, note = comparison_rows(runs)
    table = columns(rows, header=["", *(visible(run.called) for run in runs)], right=range(1, len(runs) + 1))
    return f"{table}\n\n{note}" if note else table


def comparison_rows(runs: Sequence[RecordedRun]) -> tuple[list[list[str]], str]:
    """The same as cells, what is compared first in each row; and a word where the runs were judged on other photos."""
    photos = _photo_rows(runs)
    return photos + _metric_rows(runs) + _timing_rows(runs) + _differing_rows(runs), _OTHER_PHOTOS if photos else ""


def _photo_rows(runs: Sequence[RecordedRun]) -> list[list[str]]:
    """A letter for the photos each was tested and validated on, where those are not the same."""
    letters = {split: summary.judged_letters(runs, split) for split in summary.SPLITS}
    return [[f"{split} photos", *(letter or "-" for letter in found)] for split, found in letters.items() if any(found)]


def _metric_rows(runs: Sequence[RecordedRun]) -> list[list[str]]:
    found = [{(m.split, m.name): m for split in summary.SPLITS for m in summary.metrics_of(run, split)} for run in runs]
    keys = dict.fromkeys(key for metrics in found for key in metrics)
    return [[f"{key[0]} {metric_label(key[1])}", *(_cell(metrics.get(key)) for metrics in found)] for key in keys]


def _cell(metric: summary.ReportedMetric | None) -> str:
    if metric is None:
        return "-"
    return f"{metric.text} ({metric.interval})" if metric.interval else metric.text


def _timing_rows(runs: Sequence[RecordedRun]) -> list[list[str]]:
    found = [dict(summary.stage_seconds(run.timings)) for run in runs]
    stages = dict.fromkeys(stage for timings in found for stage in timings)
    return [[f"{stage} time", *(format_seconds(t[stage]) if stage in t else "-" for t in found)] for stage in stages]


def _differing_rows(runs: Sequence[RecordedRun]) -> list[list[str]]:
    settings = [_settings(run) for run in runs]
    names = dict.fromkeys(name for values in settings for name in values)
    differing = [name for name in names if len({values.get(name, "-") for values in settings}) > 1]
    return [[name, *(shorten(values.get(name, "-"), 40) for values in settings)] for name in differing]


def _settings(run: RecordedRun) -> dict[str, str]:
    """Settings, choices and encoder facts of a run under one flat set of names."""
    encoder = run.encoder_facts
    values = {"encoder": str(encoder.get("name", ""))}
    values |= {f"encoder {key}": format_value(value) for key, value in encoder.items() if key != "name"}
    values |= {choice.name: format_value(choice.value) for choice in run.choices}
    return values | {key: format_value(value) for key, value in run.settings.items()}
