"""`unchoke notebook FILE.ipynb`: the table people make by hand. Cell, what it does, time, memory, what slows it down, what to
do.

Actions are *keep*, *optimise* (a finding, or a measured cost), *cache* (work whose result does not change) and *segment*
(long work that a kill would lose), the last two with a plan. The notebook is read once and never written; a run's figures are
kept as JSON below `logs/notebook/` of the workspace.
"""

from __future__ import annotations

import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from unchoke_doctor.code.neighbours import read_program
from unchoke_doctor.code.outputs import Outputs, read_outputs
from unchoke_doctor.code.source import SourceFile, read_source
from unchoke_doctor.errors import DataError, UsageError
from unchoke_doctor.files import check_output, write_json, write_text
from unchoke_doctor.finding import Finding
from unchoke_doctor.lint import lint_source
from unchoke_doctor.notebook_cells import CellReading, read_cells, same_as
from unchoke_doctor.notebook_plan import RESUMES, Plan, Planner
from unchoke_doctor.notebook_run import FAILED, CellRun, NotebookRun, run_notebook
from unchoke_doctor.units import format_bytes, format_seconds

Action = Literal["keep", "optimise", "cache", "segment"]
ACTIONS: tuple[Action, ...] = ("segment", "cache", "optimise", "keep")
LONG_S = 600.0
"""A training that takes longer is worth doing in pieces; one whose time is unknown is too, from `LONG_EPOCHS` on."""
LONG_EPOCHS = 5
_SHORT_S = 60.0
_SLOW_S, _SLOW_SHARE = 10.0, 0.2
_MUCH_BYTES = 1_000_000_000
_ONCE = ("downloads", "unpacks archives", "changes image files")


@dataclass(frozen=True)
class CellReport:
    """One code cell with all that is known about it. `seconds_from` is "measured", "outputs" or empty."""

    reading: CellReading
    findings: Sequence[Finding]
    action: Action
    reason: str
    plan: Plan | None = None
    seconds: float | None = None
    seconds_from: str = ""
    run: CellRun | None = None
    may_fail: bool = False

    @property
    def failed(self) -> bool:
        return self.run is not None and self.run.status in FAILED and not self.may_fail

    def to_dict(self) -> dict[str, Any]:
        return {
            "cell": self.reading.number, "does": self.reading.words, "source": self.reading.text, "problem": self.reading.problem,
            "seconds": self.seconds, "seconds_from": self.seconds_from, "findings": [one.to_dict() for one in self.findings],
            "action": self.action, "reason": self.reason, "command": self.plan.command if self.plan else "",
            "plan": asdict(self.plan) if self.plan else None, "run": self.run.to_dict() if self.run is not None else None,
        }  # fmt: skip


@dataclass(frozen=True)
class NotebookReport:
    """The analysis of one notebook; `run` is None where nothing was run."""

    path: Path
    """The notebook."""
    cells: Sequence[CellReport]
    """One report for each code cell, in order."""
    text_cells: int
    """How many cells are text."""
    run: NotebookRun | None
    """What the run measured."""
    next_command: str
    """The command to go on with."""
    notes: Sequence[str] = ()
    """What a reader should know beside it."""
    file: Path | None = None
    """Where the figures of a run were kept."""
    html: Path | None = None
    """The page that was written."""

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 1 if a cell failed, else 0: findings are what the table is for, not a failure."""
        if self.run is not None and self.run.interrupted:
            return 130
        return 1 if any(cell.failed for cell in self.cells) else 0

    def to_dict(self) -> dict[str, Any]:
        run, counts = self.run, Counter(cell.action for cell in self.cells)
        figures = [cell.run.figures for cell in self.cells if cell.run is not None and cell.run.ran]
        return {
            "notebook": str(self.path), "ran": run is not None, "kernel": run.kernel if run else None,
            "ended": run.ended if run else "", "interrupted": bool(run and run.interrupted),
            "stand_ins": sorted(run.stood_in) if run else [], "cells": [cell.to_dict() for cell in self.cells],
            "totals": {
                "cells": len(self.cells), "text_cells": self.text_cells,
                "findings": sum(len(cell.findings) for cell in self.cells),
                "actions": {action: counts[action] for action in ACTIONS},
                "wall_s": sum(one.get("wall_s") or 0.0 for one in figures) if run else None,
                "cpu_s": sum(one.get("cpu_s") or 0.0 for one in figures) if run else None,
                "peak_rss_bytes": max((one.get("peak_rss_bytes") or 0 for one in figures), default=0) or None,
                "device_peak_bytes": max((one.get("device_peak_bytes") or 0 for one in figures), default=0) or None,
            },
            "notes": list(self.notes), "file": str(self.file) if self.file else None,
            "html": str(self.html) if self.html else None, "next_command": self.next_command,
        }  # fmt: skip

    def to_text(self) -> str:
        from unchoke_doctor.notebook_report import render_text

        return render_text(self.to_dict())

    def to_markdown(self) -> str:
        from unchoke_doctor.notebook_report import render_markdown

        return render_markdown(self.to_dict())


def notebook(
    path: Path | str,
    *,
    run: bool = False,
    steps: int | None = None,
    timeout_s: float = 600.0,
    keep_going: bool = False,
    cwd: Path | str | None = None,
    kernel: str | None = None,
    html: Path | str | None = None,
    out: Path | str | None = None,
    say: Callable[[str], None] | None = None,
) -> NotebookReport:
    """A notebook cell by cell: what it does, its time and memory, what slows it down, and what to do about it.

    Args:
        path: The notebook. It is read, and never written.
        run: Run it in a fresh process and measure every cell.
        steps: With `run`: end each training cell after so many optimizer steps, in a scratch copy with stand-ins for what is
            missing; every finding comes back confirmed, refuted or not reached.
        timeout_s: The longest a cell may run; then it is interrupted.
        keep_going: Go on after a cell that failed or ran over its time (default: stop there).
        cwd: Folder to run in (default: the notebook's own).
        kernel: Jupyter kernel whose interpreter runs it (default: the one it names).
        html: Write the table as one HTML file.
        out: Workspace folder (default unchoke-out).
        say: Called with each line of progress (default: nothing is said).

    Returns:
        One report for each code cell, with its action and, if it was run, what it cost.

    Example:
        >>> len(unchoke.notebook("leaves.ipynb").cells)
        2
    """
    path, page = Path(path), Path(html) if html is not None else None
    page = page / f"{Path(path).stem}.html" if page is not None and os.path.isdir(page) else page  # noqa: PTH112  never raises
    if page is not None:
        check_output(page, "--html", [path])
    if steps is not None and not run:
        raise UsageError("--steps without --run", code="options-conflict", why="steps are counted in a run", try_="add --run")
    source = read_notebook(path)
    program, outputs = read_program(source), read_outputs(source)
    readings = read_cells(program, source.cells)
    findings = lint_source(source)
    ran = None
    if run:
        folder = Path(cwd) if cwd is not None else None
        more: dict[str, Any] = {"keep_going": keep_going, "cwd": folder, "kernel": kernel, "say": say or (lambda _: None)}
        ran = run_notebook(source, steps=steps, timeout_s=timeout_s, **more)
        if steps is not None:
            from unchoke_doctor.lint_run import Judge

            findings = Judge(ran, source).all(findings)
    planner = Planner(program, outputs, str(path), any(one.code == "frozen-recomputed" for one in findings))
    cells = [_report(cell, readings[:at], findings, planner, outputs, ran) for at, cell in enumerate(readings)]
    notes = [problem.message for problem in source.problems if problem.cell is None]
    notes += list(ran.notes) if ran else []
    workspace = Path(out) if out is not None else Path("unchoke-out")
    file = workspace / "logs" / "notebook" / f"{path.stem}-{time.strftime('%Y%m%d-%H%M%S')}.json" if ran else None
    report = NotebookReport(path, cells, len(source.cells) - len(cells), ran, _next(path, cells, ran), notes, file, page)
    if file is not None:
        write_json(file, report.to_dict())
    if page is not None:
        from unchoke_doctor.notebook_report import render_html

        write_text(page, render_html(report.to_dict()))
    return report


def read_notebook(path: Path) -> SourceFile:
    """The notebook's cells; what is no notebook, or cannot be read at all, is an error."""
    if path.suffix.lower() != ".ipynb":
        why = "a notebook's name ends in .ipynb; scripts are for `lint` and `profile`"
        raise UsageError(
            f"{path} is not a notebook", code="not-a-notebook", why=why, try_=f"unchoke lint {shlex.quote(str(path))}"
        )
    source = read_source(path)
    broken = next((problem.message for problem in source.problems if problem.cell is None and not source.cells), "")
    if broken:
        raise DataError(f"cannot read {path}", code="unreadable-file", why=broken, try_="open it in Jupyter and save it again")
    return source


def _report(
    cell: CellReading,
    before: list[CellReading],
    findings: Sequence[Finding],
    planner: Planner,
    outputs: Outputs,
    ran: NotebookRun | None,
) -> CellReport:
    run = ran.cells.get(cell.number) if ran else None
    own = [one for one in findings if one.cell == cell.number]
    seconds = outputs.training_s(cell.number) or outputs.cells.get(cell.number)
    source = "outputs" if seconds is not None else ""
    if run is not None and run.ran and run.status != "cut" and run.figures:
        seconds, source = run.wall_s, "measured"
    report = CellReport(cell, own, "keep", "", None, seconds, source, run, may_fail=bool(ran and cell.number in ran.may_fail))
    action, reason, plan = _action(report, before, planner, ran)
    return replace(report, action=action, reason=reason, plan=plan)


def _action(
    cell: CellReport, before: list[CellReading], planner: Planner, ran: NotebookRun | None
) -> tuple[Action, str, Plan | None]:
    """What to do about a cell, why, and how."""
    does, seconds, run = set(cell.reading.does), cell.seconds, cell.run
    took = (
        f"takes {format_seconds(seconds)}" + ("" if cell.seconds_from == "measured" else " by its saved output")
        if seconds
        else ""
    )
    if cell.reading.problem or cell.reading.language:
        return "keep", "not read", None
    if run is not None and run.status == "died":
        return "optimise", f"it ended the process, and everything that earlier cells had made: {run.error}", None
    if "trains" in does and (why := _long(cell, planner)):
        return "segment", why, planner.plan(planner.training_of(cell.reading.number))
    if "extracts features" in does and (seconds is None or seconds >= _SLOW_S):
        return (
            "cache",
            "runs a network over every image, and the result is the same each time",
            planner.plan(None, word="extract"),
        )
    if (once := [one for one in _ONCE if one in does]) and not cell.reading.guarded and (seconds or 0) >= _SLOW_S:
        return "cache", f"{took} and {once[0]} at every run: skip it when the result is there", None
    if (same := same_as(cell.reading, before)) is not None:
        return "optimise", f"repeats cell {same}, and nothing that it uses has changed since: its result is already there", None
    if worth := [one for one in cell.findings if one.status != "refuted"]:
        return "optimise", worth[0].message, None
    if run is not None and (run.figures.get("rise_bytes") or 0) >= _MUCH_BYTES:
        kept = max(0, run.figures.get("growth_bytes") or 0)
        return "optimise", f"takes {format_bytes(run.figures['rise_bytes'])} of memory, {format_bytes(kept)} of it stay", None
    whole = sum(one.wall_s for one in ran.cells.values()) if ran else 0.0
    if run is not None and "imports" not in does and run.wall_s >= max(_SLOW_S, _SLOW_SHARE * whole):
        idle = (run.figures.get("cpu_s") or 0.0) < 0.25 * run.wall_s
        return "optimise", f"{took} of the run's {format_seconds(whole)}" + (", mostly waiting" if idle else ""), None
    return "keep", took, None


def _long(cell: CellReport, planner: Planner) -> str:
    """Why a training should be done in pieces; empty where it is short, or goes on after a kill already."""
    training = planner.training_of(cell.reading.number)
    if RESUMES.search(cell.reading.text):
        return ""
    epochs = training.epochs if training is not None else None
    if cell.seconds is not None:
        if cell.seconds < (_SHORT_S if any(one.code == "no-checkpoint" for one in cell.findings) else LONG_S):
            return ""
        codes = list(dict.fromkeys(one.code for one in cell.findings if one.status != "refuted"))
        return f"trains for {format_seconds(cell.seconds)}, and a kill loses it" + (f"; {', '.join(codes[:3])}" if codes else "")
    if epochs is not None and epochs < LONG_EPOCHS:
        return ""
    return f"trains for {epochs} epochs, and a kill loses them" if epochs else "trains, and a kill loses what it did"


def _next(path: Path, cells: Sequence[CellReport], ran: NotebookRun | None) -> str:
    """The command that takes over the longest work; else the run that would measure what is not known yet."""
    command = next((cell.plan.command for cell in cells if cell.plan is not None and cell.plan.command), "")
    if ran is not None and command:
        return command
    if ran is None:
        trains = any("trains" in cell.reading.does for cell in cells)
        return f"unchoke notebook {shlex.quote(str(path))} --run" + (" --steps 20" if trains else "")
    return f"unchoke lint {shlex.quote(str(path))}"
