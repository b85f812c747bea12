"""What `tile` answers: plain values that can be read, printed, or sent as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unchoke.core.choices import Choice
from unchoke.core.findings import Finding, rank
from unchoke.core.stages import StageRow
from unchoke.core.units import format_bytes, format_count, format_seconds
from unchoke.core.workspace import out_option
from unchoke.jobs.records import QuarantineRow
from unchoke.runs.report.layout import columns
from unchoke.runs.report.text import render_findings
from unchoke.scenes.tiling.tiles import STAGES

_SHOWN_SCENES = 12


@dataclass(frozen=True)
class SceneRow:
    """One scene and what became of it. `folder` is where its tiles lie, relative to the folder of the manifest."""

    scene: str
    width: int
    height: int
    bands: tuple[str, ...]
    tiles: int
    skipped: int
    folder: str


@dataclass(frozen=True)
class TileResult:
    """The tiles of a workspace, or (`dry_run`) those that would be made. `num_run` strips had to be worked on this time."""

    workspace: Path
    """The folder it belongs to."""
    data: str
    """The scenes as they were named."""
    manifest: Path
    """The table that lists the tiles."""
    tiles: int
    """How many tiles there are."""
    skipped: int
    """How many were left out, having too few valid pixels."""
    size_bytes: int
    """What they take on disk."""
    num_strips: int
    """In how many strips the work was divided."""
    num_run: int
    """How many of them had to be worked on this time."""
    scenes: list[SceneRow]
    """One row for each scene."""
    splits: dict[str, int]
    """How many tiles are in train, val and test."""
    stages: list[StageRow]
    """Where the time went."""
    timings: dict[str, float]
    """Seconds by stage."""
    findings: list[Finding]
    """What was found, the worst first."""
    set_aside: list[QuarantineRow]
    """Scenes that could not be read, with their reasons."""
    choices: list[Choice]
    """What was chosen, with reasons."""
    has_mask: bool = False
    """Whether tiles carry a mask."""
    dry_run: bool = False
    """Whether nothing was written."""

    @property
    def ok(self) -> bool:
        """Whether every scene was tiled."""
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """What the command exits with."""
        return 0 if self.ok else 1

    @property
    def already_done(self) -> bool:
        """Whether nothing had to be done."""
        return not self.dry_run and self.num_run == 0

    def to_dict(self) -> dict[str, Any]:
        made = {name: value for name, value in asdict(self).items() if name not in ("data", "has_mask")}
        paths = {"manifest": str(self.manifest), "workspace": str(self.workspace)}
        return {"ok": self.ok, "already_done": self.already_done, **made, **paths}

    def to_text(self) -> str:
        findings = render_findings(rank(self.findings)) if self.findings else ""
        blocks = [self._scenes_text(), self._stages_text(), findings, self._ending()]
        return "\n\n".join(block for block in blocks if block)

    def _scenes_text(self) -> str:
        shown = self.scenes[:_SHOWN_SCENES]
        rows = [
            (one.scene, f"{one.width}×{one.height}", ",".join(one.bands), f"{one.tiles:,}", f"{one.skipped:,}") for one in shown
        ]
        if not rows:
            return ""
        table = columns(rows, header=("scene", "pixels", "bands", "tiles", "skipped"), right=(1, 3, 4))
        more = len(self.scenes) - len(shown)
        return f"{table}\nand {format_count(more, 'more scene', 'more scenes')}" if more else table

    def _stages_text(self) -> str:
        rows = [(one.stage, format_seconds(one.seconds), f"{100 * one.share:.0f} %", f"{one.calls:,}") for one in self.stages]
        return columns(rows, header=("stage", "time of all workers", "share", "calls"), right=(1, 2, 3)) if rows else ""

    def _ending(self) -> str:
        if self.dry_run:
            auto = next(
                (one.reason for one in self.choices if one.name == "tile_size" and one.value == "auto" and one.evidence), ""
            )
            open_size = f"\nthe size of tiles is {auto}" if auto else ""
            return f"would write {self._counts()} into {self.manifest.parent}{open_size}\nnothing was run"
        done = "done already: " if self.already_done else ""
        splits = ", ".join(f"{name} {number:,}" for name, number in self.splits.items())
        lines = [
            f"{done}{self._counts()}, {format_bytes(self.size_bytes)}",
            f"tiles     {self.manifest.parent}",
            f"manifest  {self.manifest}",
            f"splits    {splits}",
            *([] if self.has_mask else ["masks     none; --label, --mask or --polygons make them"]),
            f"next      {self._next()}",
        ]
        if not self.ok:
            lines.insert(1, "not all scenes were tiled: see the errors above")
        return "\n".join(lines)

    def _counts(self) -> str:
        skipped = f", {self.skipped:,} skipped as mostly nodata" if self.skipped else ""
        return f"{format_count(self.tiles, 'tile')} of {format_count(len(self.scenes), 'scene')}{skipped}"

    def _next(self) -> str:
        """Training, once there is something to learn; what the masks come from is remembered by the workspace."""
        command = "segment train" if self.has_mask else "profile tile"
        return f"unchoke {command} {shlex.quote(self.data)}{out_option(self.workspace)}"


def sum_stages(clocks: Iterable[Mapping[str, Any]]) -> list[StageRow]:
    """Where the time of the windows went, summed over all workers: the clocks of strips, each ``{stage: [seconds, calls]}``."""
    seconds, calls = dict.fromkeys(STAGES, 0.0), dict.fromkeys(STAGES, 0)
    for one in clocks:
        for stage, (took_s, times) in one.items():
            seconds[stage] = seconds.get(stage, 0.0) + float(took_s)
            calls[stage] = calls.get(stage, 0) + int(times)
    total = sum(seconds.values())
    rows = [
        StageRow(stage, round(took_s, 6), took_s / total if total else 0.0, calls[stage]) for stage, took_s in seconds.items()
    ]
    return rows if total else []
