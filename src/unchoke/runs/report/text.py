"""Findings, choices and runs as plain text for a terminal, a pipe or a log file.

In: plain values, or the view model of a run (`view.py`). Out: text without colour or markup; names from files are made visible,
never effective. Nothing here prints.
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
from unchoke.runs.report import summary, view
from unchoke.runs.report.layout import columns, shorten, visible, wrap
from unchoke.runs.report.view import format_value

if TYPE_CHECKING:
    from pathlib import Path

    from unchoke.core.choices import Choice
    from unchoke.core.presets import Preset
    from unchoke.core.record import ProfileRecord, RecordedRun, RunRecord

_SEVERITIES = {"error": "error", "warning": "warning", "info": "note"}
_IS_COMMAND = re.compile(r"([A-Z_]+=\S* )*(unchoke|python|pip|make|apt|ulimit|/)")
"""A finding's command is either something to type or something to write; this is how the former begins."""
_CODE_INDENT = " " * 9
_WORTH_S, _WORTH_SHARE = 30.0, 0.2
_OTHER_PHOTOS = (
    "photos: runs with different letters were judged on different photos or labels, so their results cannot be compared"
)


def join_parts(parts: Iterable[str]) -> str:
    """Paragraphs and tables with an empty line between them."""
    return "\n\n".join(part for part in parts if part)


# -- findings and choices ------------------------------------------------------------------------------------------------------


def render_findings(findings: Iterable[Finding | Mapping[str, Any]]) -> str:
    """Errors first, each with its place, what to do and the command for it; the counts at the end. Saved ones may be plain."""
    found = [finding if isinstance(finding, Finding) else Finding(**finding) for finding in findings]
    return "\n".join([*map(_render_finding, rank(found)), "", count_findings(found)]) if found else "no findings"


def count_findings(findings: Iterable[Finding]) -> str:
    """``2 errors, 1 warning``."""
    counts = Counter[str](finding.severity for finding in findings)
    parts = [format_count(counts[severity], word) for severity, word in _SEVERITIES.items() if counts[severity]]
    return ", ".join(parts) or "no findings"


def _render_finding(finding: Finding) -> str:
    lines = [f"{_SEVERITIES[finding.severity]:<7}  {visible(finding.code)}: {visible(finding.message)}"]
    lines += [_CODE_INDENT + place for place in [view.finding_place(finding)] if place]
    last = "run" if _IS_COMMAND.match(finding.command) else "edit"
    for word, text in (("gain", finding.expected_gain), ("fix", finding.fix), (last, finding.command)):
        if text:
            lines.append(f"{_CODE_INDENT}{word:<4}  {visible(text)}")
    diff = finding.evidence.get("diff") if isinstance(finding.evidence, dict) else None  # a saved one may be damaged
    lines += [f"{_CODE_INDENT}      {visible(str(line))}" for line in (diff if isinstance(diff, list) else ())]
    return "\n".join(lines)


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


# -- one run -------------------------------------------------------------------------------------------------------------------


def render_fit_result(record: RunRecord, *, report: str = "", next_command: str = "") -> str:
    """How a training ends: result and baseline, what qualifies them, the report, the next command; `render_run` has the rest."""
    leading, stages = summary.leading_metric(record), summary.stage_seconds(record.timings)
    others = summary.metrics_of(record, leading.split) if leading else []
    also = ", ".join(f"{one.label} {one.text}" for one in others if not one.target and one != leading)
    longest = ", ".join(f"{stage} {format_seconds(s)}" for stage, s in sorted(stages, key=lambda one: -one[1])[:3])
    times = [f"{format_seconds(sum(s for _, s in stages))}, most of it {longest}"] if stages else []
    said = [
        f"Also: {also}." if also else "",
        *summary.sentences(record),
        summary.winner_sentence(record),
        summary.curve_sentence(record),
        summary.encoder_sentence(record),
        *([] if record.draws_masks else map(visible, record.notes)),
        f"Time: {'; '.join([*times, *view.timing_notes(record)])}." if times else "",
    ]
    tables = [table.to_text() for table in (*view.target_tables(record)[:1], view.ladder_table(record)) if table]
    worth = [one for one in record.chokes if _is_worth_it(one)][:1]
    tail = [("report", report), ("next", next_command)]
    return join_parts(
        [
            "\n".join(filter(None, (summary.warning(record), summary.headline(record)))),
            *tables,
            "\n".join(filter(None, said)),
            _render_chokes(worth),
            "\n".join(f"{word:<8}{visible(text)}" for word, text in tail if text),
        ]
    )


def _is_worth_it(choke: Finding) -> bool:
    """Whether a person would run it again for that: it costs half a minute, and a fifth of the run."""
    saved_s, share = (choke.evidence.get(name, 0.0) for name in ("saved_s", "gain_share"))
    return isinstance(saved_s, float) and isinstance(share, float) and saved_s >= _WORTH_S and share >= _WORTH_SHARE


def render_scores(record: RunRecord, *, next_command: str) -> str:
    """How `evaluate` ends: every figure, fresh."""
    parts = [summary.warning(record), summary.headline(record), render_metrics(record), *_sentences(record)]
    return join_parts([*parts, render_timings(record), f"next    {visible(next_command)}"])


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
        ("memory", "" if view.training_facts(record) else view.memory_words(record.memory)),
        ("profile", ", ".join(record.profile.pages) if record.profile else ""),
    ]
    return join_parts(
        [
            summary.warning(record),
            summary.headline(record),
            columns([(word, value) for word, value in facts if value]),
            render_metrics(record),
            *_sentences(record),
            _render_training(record),
            render_timings(record),
            *(table.to_text() for table in view.work_tables(record)),
            _render_chokes(record.chokes),
            render_choices(record.choices) if record.choices else "",
            render_findings(record.findings) if record.findings else "",
            *(wrap(note, indent="") for note in record.notes),
        ]
    )


def _sentences(record: RunRecord) -> list[str]:
    ladder = view.ladder_table(record)
    found = [*summary.sentences(record), summary.winner_sentence(record), ladder.to_text() if ladder else ""]
    return [*found, summary.curve_sentence(record), summary.encoder_sentence(record)]


def render_metrics(record: RunRecord) -> str:
    """Every metric of test and validation with its interval; those of single targets as tables of their own."""
    overall = view.metric_table(record)
    return join_parts(table.to_text() for table in [*([overall] if overall else []), *view.target_tables(record)])


def _render_training(record: RunRecord) -> str:
    """How a network was trained, where its time went and what memory it took; nothing for heads on features."""
    facts = view.training_facts(record)
    further = [("time of training", view.share_words(record)), ("memory", view.memory_words(record.memory))]
    return columns([(word, text) for word, text in [*facts, *further] if text]) if facts else ""


def render_timings(record: RunRecord) -> str:
    """Seconds and share of each stage, and how fast features were made."""
    table = view.timing_table(record)
    return "\n".join([table.to_text(), *view.timing_notes(record)]) if table else ""


def _render_chokes(chokes: Sequence[Finding]) -> str:
    """What held a run back and what to type instead, the largest gain first."""
    return "\n".join(["what held this run back", *map(_render_finding, chokes)]) if chokes else ""


def render_profile(profile: ProfileRecord, *, root: Path) -> str:
    """What torch.profiler found: the operators that took most, and where the files are."""
    look = f"vizviewer {shlex.quote(str(root / profile.traces[-1]))}" if profile.traces else ""
    files = "\n".join(f"{word:<8}{text}" for word, text in [*view.profile_files(profile, root), ("look", look)] if text)
    hint = wrap("The page needs nothing else; a trace also opens at ui.perfetto.dev and in chrome://tracing.", indent="")
    return join_parts([*(table.to_text() for table in view.operator_tables(profile)), f"{files}\n{hint}"])


# -- several runs --------------------------------------------------------------------------------------------------------------


def render_runs_table(runs: Sequence[RecordedRun], unlisted: Sequence[Path] = ()) -> str:
    """One line a run; where not all were judged on the same photos, a letter for which. Below, what some of them leave out of
    their score, and which folders hold runs that are not in the list.
    """
    unknown = []
    if unlisted:
        names, show = list_some([folder.name for folder in unlisted]), f"unchoke runs show {shlex.quote(str(unlisted[-1]))}"
        unknown = [f"not in experiments.db, which is older or of another workspace: {names}; a folder shows its run: {show}"]
    if not runs:
        return unknown[0] if unknown else "no runs yet; start one with: unchoke fit DATA"
    header = ["run", "status", "started", "encoder", "cut", "head", "epochs", "metric", "result", "95 % interval"]
    header += ["baseline", "time", "photos"]
    letters = summary.judged_letters(runs)
    table = columns(list(map(_run_row, runs, letters)), header=header, right=(6, 8, 10, 11))
    notes = [_OTHER_PHOTOS] if any(letters) else []
    notes += [
        f"{run.called}: {choice.value} {choice.reason}" for run in runs for choice in run.choices if choice.name == UNSCORED
    ]
    notes += unknown
    return "\n".join([table, *(["", *map(visible, notes)] if notes else [])])


def _run_row(run: RecordedRun, letter: str) -> tuple[str, ...]:
    metric, setup = summary.leading_metric(run), summary.run_setup(run)
    baseline = summary.baseline_value(run, metric.split, metric.name) if metric else None
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
        letter,
    )


def render_comparison(runs: Sequence[RecordedRun]) -> str:
    """Runs side by side: whether they were judged on the same photos, every metric and stage time, and differing settings."""
    if not runs:
        return "no runs to compare"
    rows, note = comparison_rows(runs)
    table = columns(rows, header=["", *(visible(run.called) for run in runs)], right=range(1, len(runs) + 1))
    return f"{table}\n\n{note}" if note else table


def comparison_rows(runs: Sequence[RecordedRun]) -> tuple[list[list[str]], str]:
    """The same as cells, what is compared first in each row; and a word where the runs were judged on other photos."""
    letters = {split: summary.judged_letters(runs, split) for split in summary.SPLITS}
    photos = [[f"{split} photos", *(letter or "-" for letter in found)] for split, found in letters.items() if any(found)]

    metrics = [{(m.split, m.name): m for split in summary.SPLITS for m in summary.metrics_of(run, split)} for run in runs]
    keys = dict.fromkeys(key for found in metrics for key in found)
    figures = [[f"{key[0]} {metric_label(key[1])}", *(view.metric_cell(found.get(key)) for found in metrics)] for key in keys]

    timings = [dict(summary.stage_seconds(run.timings)) for run in runs]
    stages = dict.fromkeys(stage for found in timings for stage in found)
    times = [[f"{stage} time", *(format_seconds(t[stage]) if stage in t else "-" for t in timings)] for stage in stages]

    settings = [_settings(run) for run in runs]
    names = dict.fromkeys(name for values in settings for name in values)
    differing = [name for name in names if len({values.get(name, "-") for values in settings}) > 1]
    others = [[name, *(shorten(values.get(name, "-"), 40) for values in settings)] for name in differing]
    return photos + figures + times + others, _OTHER_PHOTOS if photos else ""


def _settings(run: RecordedRun) -> dict[str, str]:
    """Settings, choices and encoder facts of a run under one flat set of names."""
    encoder = run.encoder_facts
    values = {"encoder": str(encoder.get("name", ""))}
    values |= {f"encoder {key}": format_value(value) for key, value in encoder.items() if key != "name"}
    values |= {choice.name: format_value(choice.value) for choice in run.choices}
    return values | {key: format_value(value) for key, value in run.settings.items()}
