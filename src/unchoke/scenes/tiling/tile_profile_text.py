"""Where tiling spends its time, as plain text: the plain way beside this one, stage by stage. Returns text, prints nothing."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from unchoke.core.units import format_count, format_seconds
from unchoke.reports.layout import columns, wrap
from unchoke.reports.text import render_findings

_HEADER = ("stage", "before", "time", "calls", "after", "time", "calls")


def render_tile_profile(record: Mapping[str, Any]) -> str:
    """The table, both ways timed without the profiler, what was found, and how to look closer."""
    parts = [
        _heading(record),
        render_stages(record["before"], record["after"]),
        wrap(_timed(record), indent=""),
        wrap(_outputs(record), indent=""),
        render_findings(record["findings"]) if record["findings"] else "",
        _tail(record),
    ]
    return "\n\n".join(part for part in parts if part)


def render_stages(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> str:
    """Share of time, time and calls of each stage, both ways side by side."""
    rows = [(left["stage"], *_cells(left), *_cells(right)) for left, right in zip(before, after, strict=True)]
    totals = [format_seconds(sum(row["seconds"] for row in side)) for side in (before, after)]
    rows.append(("total", "", totals[0], "", "", totals[1], ""))
    return columns(rows, header=_HEADER, right=range(1, len(_HEADER)))


def _cells(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return f"{row['share'] * 100:.1f} %", format_seconds(row["seconds"]), f"{row['calls']:,}" if row["calls"] else "-"


def _heading(record: Mapping[str, Any]) -> str:
    scenes = format_count(len(record["scenes"]), "scene")
    return f"{format_count(record['windows'], 'window')} of {record['tile_px']} px from {scenes}, the same ones both ways"


def _timed(record: Mapping[str, Any]) -> str:
    seconds = record["seconds"]
    threads = format_count(record["threads"], "thread")
    one = f" ({record['ratio_one_thread']:.1f}× in one)" if record["threads"] > 1 else ""
    return (
        "The table comes from cProfile, which sees one thread and slows calls down a little. Timed without it: "
        f"{format_seconds(seconds['before'])} the plain way, {format_seconds(seconds['after'])} as `unchoke tile` does it in "
        f"{threads}: {record['ratio']:.1f}× as fast{one}."
    )


def _outputs(record: Mapping[str, Any]) -> str:
    size = f"The tiles take {record['size_ratio']:.2f}× the room of np.savez_compressed"
    if record["equal"] is None:
        return f"{size}; they hold the files' own numbers, so there is nothing to compare."
    return f"{size}; {'every band and mask is equal' if record['equal'] else 'bands or masks DIFFER'}."


def _tail(record: Mapping[str, Any]) -> str:
    lines = [("look", f"snakeviz {shlex.quote(path)}") for path in record["files"].values()]
    lines.append(("next", record["next_command"]))
    return "\n".join(f"{word:<8}{text}" for word, text in lines)
