"""What `profile tile` answers: two tables of stages, ranked findings with their evidence, and all of it as text.

The plain way to cut tiles stands beside that of `unchoke tile`, stage by stage. Nothing is measured or printed here.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unchoke.core.choices import Choice
from unchoke.core.findings import Finding
from unchoke.core.stages import OTHER, StageRow
from unchoke.core.units import format_count, format_seconds
from unchoke.runs.report.layout import columns, wrap
from unchoke.runs.report.text import render_findings

_WORTH_A_WORD = 0.05
"""Stages below this share of the plain way's time are not worth one."""
_CLEARLY = 1.2
"""A stage is mended when this way is so many times quicker at it."""
_MOST_OF_IT = 0.4
_CODES = {
    "open": "files-opened-per-window",
    "read": "blocks-decoded-again",
    "normalise": "normalised-with-copies",
    "mask": "mask-per-window",
    "write": "slow-compression",
    OTHER: "time-between-stages",
}
_FIXES = {
    "open": "keep files open between windows: a bounded pool of handles",
    "read": "read along the files' own blocks, each of them once, a strip of windows at a time",
    "normalise": "divide in place, a strip at a time",
    "mask": "make the mask for a strip at a time",
    "write": "compress the NPZ with isal, which any np.load reads, or leave it uncompressed",
    OTHER: "work on strips of windows, so that there are fewer and larger steps",
}

_LIGHTER = {
    "float32": ("store the files' own numbers and normalise when they are loaded, or do not compress", "--store raw"),
    "raw": ("do not compress, if there is room for it", "--compress none"),
}
"""What makes writing lighter still, by how tiles are stored."""
_HEADER = ("stage", "before", "time", "calls", "after", "time", "calls")


@dataclass(frozen=True)
class StageTables:
    """Both tables, on the same windows; `zlib_s` is what the plain way spent in zlib itself."""

    before: Sequence[StageRow]
    after: Sequence[StageRow]
    windows: int
    zlib_s: float = 0.0
    compress: str = "isal"
    store: str = "float32"


@dataclass(frozen=True)
class TileProfile:
    """What was measured. `before` is the plain serial way, `after` the one of `unchoke tile`; `ratio` is of their wall-clock."""

    workspace: Path
    """The folder it belongs to."""
    windows: int
    """How many windows were measured."""
    tile_px: int
    """Their side."""
    scenes: list[str]
    """The scenes they were taken from."""
    threads: int
    """How many threads the quick way used."""
    before: list[StageRow]
    """The stages of the plain way."""
    after: list[StageRow]
    """The stages of the way of `tile`."""
    seconds: dict[str, float]
    """Wall-clock seconds of each way."""
    size_ratio: float
    """How large the files of the quick way are beside those of the plain one."""
    equal: bool | None
    """Whether bands and masks of both ways are the same; None where tiles hold the files' own numbers."""
    files: dict[str, Path]
    """The .prof files, by way."""
    findings: list[Finding]
    """What was found, the worst first."""
    choices: list[Choice]
    """What was chosen, with reasons."""
    next_command: str
    """The command to go on with."""

    ok = True

    @property
    def ratio(self) -> float:
        """How many times as fast, by wall-clock."""
        return self.seconds["before"] / max(1e-9, self.seconds["after"])

    @property
    def ratio_one_thread(self) -> float:
        """The same with one thread."""
        return self.seconds["before"] / max(1e-9, self.seconds["after_one_thread"])

    def to_dict(self) -> dict[str, Any]:
        files = {way: str(file) for way, file in self.files.items()}
        ratios = {"ratio": self.ratio, "ratio_one_thread": self.ratio_one_thread}
        return {**asdict(self), "workspace": str(self.workspace), "files": files, **ratios}

    def to_text(self) -> str:
        return render_tile_profile(self.to_dict())


def diagnose_tiling(tables: StageTables, *, command: str) -> list[Finding]:
    """What the plain way wastes, the stage with most to gain first; then what this way still waits for."""
    after = {row.stage: row for row in tables.after}
    wasted = [(row, after[row.stage]) for row in tables.before if row.share >= _WORTH_A_WORD]
    mended = [(row, then) for row, then in wasted if row.seconds >= _CLEARLY * then.seconds]
    mended.sort(key=lambda pair: pair[1].seconds - pair[0].seconds)
    found = [_wasted(row, then, tables, command=command) for row, then in mended]
    return found + _left(tables, command=command)


def _wasted(row: StageRow, then: StageRow, tables: StageTables, *, command: str) -> Finding:
    total_s = sum(one.seconds for one in tables.before)
    whole = total_s / max(1e-9, total_s - row.seconds + then.seconds)
    return Finding(
        code=_CODES[row.stage],
        message=_said(row, tables),
        severity="warning",
        stage=row.stage,
        evidence=_evidence(row, then, tables),
        expected_gain=f"{row.seconds / max(1e-9, then.seconds):.1f}× for this stage, {whole:.1f}× for the whole, in one thread",
        fix=_FIXES[row.stage],
        command=command,
    )


def _said(row: StageRow, tables: StageTables) -> str:
    share, windows = f"{100 * row.share:.0f} %", format_count(tables.windows, "window")
    total_s = sum(one.seconds for one in tables.before)
    zlib_share = tables.zlib_s / total_s if total_s else 0.0
    return {
        "open": f"{share} of the plain way's time is opening files: {format_count(row.calls, 'opening')} for {windows}",
        "read": f"{share} of the plain way's time is reading: {format_count(row.calls, 'read')} for {windows}, none kept",
        "normalise": f"{share} of the plain way's time is dividing, into new arrays",
        "mask": f"{share} of the plain way's time is making masks, window by window",
        "write": f"{100 * zlib_share:.0f} % of the plain way's time is zlib in np.savez_compressed ({share} with all of writing)",
        OTHER: f"{share} of the plain way's time lies between the stages",
    }[row.stage]


def _evidence(row: StageRow, then: StageRow, tables: StageTables) -> dict[str, float | int]:
    figures: dict[str, float | int] = {
        "before_s": round(row.seconds, 4),
        "before_share": round(row.share, 4),
        "before_calls": row.calls,
        "after_s": round(then.seconds, 4),
        "after_share": round(then.share, 4),
        "after_calls": then.calls,
    }
    return figures | ({"zlib_s": round(tables.zlib_s, 4)} if row.stage == "write" else {})


def _left(tables: StageTables, *, command: str) -> list[Finding]:
    """What the time goes into now, if one stage takes most of it."""
    largest = max(tables.after, key=lambda row: row.seconds)
    if largest.share < _MOST_OF_IT or largest.stage == OTHER:
        return []
    packs = largest.stage == "write" and tables.compress != "none"
    return [
        Finding(
            code="what-is-left",
            message=f"what is left is {'compressing' if packs else largest.stage}: {100 * largest.share:.0f} % of this way's "
            f"time, {format_seconds(largest.seconds / max(1, tables.windows))} a window",
            severity="info",
            stage=largest.stage,
            evidence={"after_s": round(largest.seconds, 4), "after_share": round(largest.share, 4)},
            expected_gain=f"at most {1 / max(0.01, 1 - largest.share):.1f}× in one thread" if packs else "",
            fix=_LIGHTER[tables.store][0] if packs else "",
            command=f"{command} {_LIGHTER[tables.store][1]}" if packs else "",
        )
    ]


def render_tile_profile(record: Mapping[str, Any]) -> str:
    """The table, both ways timed without the profiler, what was found, and how to look closer."""
    scenes = format_count(len(record["scenes"]), "scene")
    lines = [("look", f"snakeviz {shlex.quote(path)}") for path in record["files"].values()]
    parts = [
        f"{format_count(record['windows'], 'window')} of {record['tile_px']} px from {scenes}, the same ones both ways",
        render_stages(record["before"], record["after"]),
        wrap(_timed(record), indent=""),
        wrap(_outputs(record), indent=""),
        render_findings(record["findings"]) if record["findings"] else "",
        "\n".join(f"{word:<8}{text}" for word, text in [*lines, ("next", record["next_command"])]),
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
