"""A script's profile as text for people and as annotations for GitHub Actions. In comes the dictionary, out comes text."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unchoke_doctor.units import format_count, format_seconds

_NUM_LINES, _SHOWN_SHARE, _WIDTH = 8, 0.02, 110
__all__ = ["render_github", "render_text"]


def render_text(record: Mapping[str, Any]) -> str:
    """The lines first; then stages, head-room, the causes that explain lines, and what it cost to know."""
    parts = [
        _heading(record),
        _lines(record),
        _stages(record),
        _headroom(record),
        *_findings(record["findings"]),
        _comparison(record),
        _tail(record),
    ]
    return "\n\n".join(part for part in parts if part)


def _heading(record: Mapping[str, Any]) -> str:
    ended = f"stopped {record['stopped']}" if record["stopped"] else f"exit code {record['exit_code']}"
    return f"{record['script']}: {format_count(record['steps'], 'step')} in {format_seconds(record['wall_s'])}, {ended}"


def _lines(record: Mapping[str, Any]) -> str:
    """The user's own lines by their share, whatever they do."""
    rows = [row for row in record["lines"] if row["share"] >= _SHOWN_SHARE][:_NUM_LINES]
    if not rows:
        return "no line of the script's own was met"
    unit = "a step" if record["steps"] else "in all"
    table = [("line", "stage", "share", unit, "")]
    for row in rows:
        what = row["text"] or row["function"]
        shown = f"{what[:60]}{'…' if len(what) > 60 else ''}"
        table.append((f"{_name(row['file'])}:{row['line']}", row["stage"], f"{row['share']:.0%}", _time(row["step_s"]), shown))
    found = _columns(table).split("\n")
    lines = [found[0]]
    for text, row in zip(found[1:], rows, strict=True):
        lines.append(text)
        if row["causes"]:
            lines.append(f"{'':6}↑ {', '.join(row['causes'])}")
        if row["caller"] and not row["in_loop"]:
            lines.append(f"{'':6}from {_name(row['caller']['file'])}:{row['caller']['line']}  {row['caller']['text'][:70]}")
    rest = 1 - sum(row["share"] for row in rows)
    return "\n".join([*lines, *([f"other lines, and packages alone: {rest:.0%}"] if rest >= 0.01 else [])])


def _name(file: str) -> str:
    """The file as it is reached from here, or its last two parts."""
    try:
        short = os.path.relpath(file)
    except ValueError:  # another drive
        return file
    return short if not short.startswith("..") else "/".join(Path(file).parts[-2:])


def _stages(record: Mapping[str, Any]) -> str:
    shown = [f"{part['stage']} {part['share']:.0%}" for part in record["step_parts"] if part["share"] >= 0.005]
    step_s = sum(part["seconds"] for part in record["step_parts"])
    if not shown or not record["steps"]:
        return ""
    micro = f", {record['micro_batches']:.0f} micro-batches each" if record["micro_batches"] >= 1.5 else ""
    return f"a step takes {_time(step_s)}{micro}: {', '.join(shown)}"


def _time(seconds: float) -> str:
    return (
        format_seconds(seconds) if seconds >= 1 else f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"
    )


def _headroom(record: Mapping[str, Any]) -> str:
    found, note = record["headroom"], record["replay_note"]
    if found is None:
        return f"head-room  not measured: {note}" if note else ""
    times = found["step_s"] / found["free_s"] if found["free_s"] else 1.0
    return (
        f"head-room  with loading for free a step takes {_time(found['free_s'])} instead of {_time(found['step_s'])} "
        f"(one batch, {found['steps']} steps): {times:.1f}× as fast, {found['share']:.0%} to gain"
    )


def _findings(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    blocks = []
    for number, row in enumerate(findings, 1):
        place = f"{_name(row['path'])}:{row['line']}  " if row["path"] else ""
        level = "" if row["severity"] == "warning" else " (note)"
        lines = [f"{number}. {place}{row['code']}{level}  {row['evidence']['share']:.0%}", *_wrapped("", row["message"])]
        gain = row["expected_gain"] or ("not measured; --try measures it" if row["evidence"].get("remedy") else "not measured")
        lines += _wrapped("gain: ", gain)
        lines += _wrapped("fix: ", row["fix"])
        lines += [f"        {line}" for line in row["evidence"].get("diff") or ()]
        blocks.append("\n".join(lines))
    return blocks


def _wrapped(word: str, text: str) -> list[str]:
    return textwrap.wrap(f"{word}{text}", _WIDTH, initial_indent="   ", subsequent_indent="   " + " " * len(word))


def _comparison(record: Mapping[str, Any]) -> str:
    found = record["comparison"]
    if not found:
        return ""
    table = [(f"an epoch of {format_count(found['epoch_steps'], 'step')}", "before", "now", "")]
    for row in found["epoch"]:
        change = row["after_s"] - row["before_s"]
        if max(row["before_s"], row["after_s"]) >= 0.005 * sum(one["after_s"] for one in found["epoch"]):
            table.append(
                (
                    row["stage"],
                    _time(row["before_s"]),
                    _time(row["after_s"]),
                    f"{'+' if change >= 0 else '-'}{_time(abs(change))}",
                )
            )
    total = [sum(row[name] for row in found["epoch"]) for name in ("before_s", "after_s")]
    table.append(("all", _time(total[0]), _time(total[1]), f"{total[1] / total[0] - 1:+.0%}" if total[0] else ""))
    return "\n".join([_columns(table, right=(1, 2, 3)), _verdict(found), *(f"note   {note}" for note in found["notes"])])


def _verdict(found: Mapping[str, Any]) -> str:
    limit = f" (limit {found['limit_percent']:g} %)" if found["limit_percent"] is not None else ""
    word = "slower" if found["slower"] else "not slower" if found["low"] <= 1 <= found["high"] or found["ratio"] > 1 else "faster"
    return (
        f"steps are {word}{limit}: the median step takes {_time(found['after_step_s'])}, {_time(found['before_step_s'])} before: "
        f"{found['ratio']:.2f}× as long (95 % interval {found['low']:.2f}–{found['high']:.2f}, {found['steps'][1]} and "
        f"{found['steps'][0]} steps)"
    )


def _tail(record: Mapping[str, Any]) -> str:
    notes = [("note", note) for note in record["notes"][:6]]
    cost, machine = record["watching"], record["machine"]
    busy = f", {machine['busy_cores']:.1f} of them busy during the training" if machine["busy_cores"] is not None else ""
    rows = [
        *notes,
        *(
            [
                (
                    "machine",
                    f"{format_count(machine['cores'], 'core')}{busy}; torch computes with {machine['torch_threads']} threads",
                )
            ]
            if machine["cores"] and machine["torch_threads"]
            else []
        ),
        (
            "cost",
            f"watching took {cost['share']:.0%} more CPU time than the script alone ({format_seconds(cost['script_cpu_s'])})",
        ),
        ("saved", record["files"]["recording"]),
        ("next", record["next_command"]),
    ]
    return "\n".join(f"{word:<8}{text}" for word, text in rows)


def _columns(rows: Sequence[Sequence[str]], right: Sequence[int] = (2, 3)) -> str:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def render_github(record: Mapping[str, Any]) -> str:
    """`::error file=…,line=…::…` for slower steps, at the line that grew most; `::warning …` for what was found."""
    lines = []
    found = record["comparison"]
    if found:
        grown = next((row for row in found["lines"] if row["step_s"] > row["before_s"]), None)
        place = {"file": _name(grown["file"]), "line": str(grown["line"])} if grown and found["slower"] else {}
        level = "error" if found["fails"] else "warning" if found["slower"] else "notice"
        more = (
            f"; {grown['text']} grew from {_time(grown['before_s'])} to {_time(grown['step_s'])} a step"
            if place and grown
            else ""
        )
        lines.append(_annotation(level, place, "step time", _verdict(found) + more))
    for row in record["findings"]:
        place = {"file": _name(row["path"]), "line": str(row["line"] or 1)} if row["path"] else {}
        level = "warning" if row["severity"] == "warning" else "notice"
        lines.append(
            _annotation(
                level, place, row["code"], f"{row['message']} ({row['evidence']['share']:.0%} of the training). {row['fix']}"
            )
        )
    return "\n".join(lines) or _annotation("notice", {}, "unchoke", "nothing holds the steps back")


def _annotation(level: str, place: Mapping[str, str], title: str, message: str) -> str:
    def escaped(text: str, also: str = "") -> str:
        for letter in ("%", "\r", "\n", *also):
            text = text.replace(letter, f"%{ord(letter):02X}")
        return text

    properties = ",".join(f"{name}={escaped(value, ':,')}" for name, value in {**place, "title": title}.items())
    return f"::{level} {properties}::{escaped(message)}"
