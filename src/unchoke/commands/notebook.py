"""`unchoke notebook FILE.ipynb`: a notebook cell by cell: what it does, where it chokes, what it costs, what to do about it.

In: a notebook. Out: for every cell of code its deeds, the choke points that lint finds, with `run` its time and memory measured
in a fresh kernel, and a verdict with the command that replaces it. The notebook's file is read once and never written; what cells
themselves write goes where they say. A run's figures are kept as JSON below `logs/notebook/`.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from unchoke.code.neighbours import with_neighbours
from unchoke.code.program import Program
from unchoke.code.source import SourceFile, parse_source
from unchoke.code.unread import UnreadCode
from unchoke.core import atomic
from unchoke.core.errors import DataError, UsageError
from unchoke.core.events import Note, OnEvent, Progress, StageDone, StageStarted, ignore
from unchoke.core.findings import Finding
from unchoke.core.input_file import refuse_special
from unchoke.core.output_file import OutputFile, output_file
from unchoke.core.setting_values import refuse_number
from unchoke.core.units import format_count
from unchoke.core.workspace import DEFAULT_ROOT, Workspace, out_option, safe_name
from unchoke.linting.lint_engine import find_chokes
from unchoke.notebooks.cell_record import CellRun, CellTask, NotebookRun
from unchoke.notebooks.cells import CellReading, read_cells
from unchoke.notebooks.notebook_html import render_notebook_html
from unchoke.notebooks.notebook_markdown import render_notebook_markdown
from unchoke.notebooks.notebook_text import render_notebook
from unchoke.notebooks.run_cells import choose_kernel, run_cells
from unchoke.notebooks.setting import NotebookContext, read_setting
from unchoke.notebooks.verdict import WORDS, CellVerdict, NotebookCosts, is_light, judge, memory_words, time_words, weigh
from unchoke.reports.json import to_jsonable

TIMEOUT_S = 600.0
_MOST_UNREAD = 6
_FAILED = ("failed", "timeout", "died")


@dataclass(frozen=True)
class CellReport:
    """One cell of code, with all that is known of it."""

    reading: CellReading
    findings: Sequence[Finding]
    verdict: CellVerdict
    run: CellRun | None = None
    may_fail: bool = False

    @property
    def failed(self) -> bool:
        return self.run is not None and self.run.status in _FAILED and not self.may_fail

    def to_dict(self) -> dict[str, Any]:
        return {
            "cell": self.reading.number,
            "does": self.reading.words,
            "deeds": list(self.reading.deeds),
            "source": self.reading.text,
            "problem": self.reading.problem,
            "findings": [finding.to_dict() for finding in self.findings],
            "run": self.run.to_dict() if self.run is not None else None,
            "verdict": self.verdict.word,
            "reason": self.verdict.reason,
            "command": self.verdict.command,
        }


@dataclass(frozen=True)
class NotebookReport:
    """The analysis of one notebook; `run` is None where nothing was run."""

    path: Path
    """The notebook."""
    cells: Sequence[CellReport]
    """One report for each cell of code, in order."""
    text_cells: int
    """How many cells are text."""
    run: NotebookRun | None
    """What the run measured; None where nothing was run."""
    next_command: str
    """The command to go on with."""
    notes: Sequence[str] = ()
    """What a reader should know beside it."""
    file: Path | None = None
    """Where the analysis was kept, if it was run."""
    html: Path | None = None
    """The page that was written, if one was asked for."""
    costs: NotebookCosts | None = field(default=None, repr=False)
    """What the whole run cost, for comparison."""

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 1 if a cell failed, 0 otherwise: choke points are what it is for, not a failure."""
        if self.run is not None and self.run.interrupted:
            return 130
        return 1 if any(cell.failed for cell in self.cells) else 0

    @cached_property
    def highlights(self) -> list[str]:
        """What stands out in the run, in sentences; nothing if nothing was run."""
        if self.run is None or self.costs is None:
            return []
        return [sentence for cell in self.cells for sentence in _highlights(cell, self.costs)]

    def to_dict(self) -> dict[str, Any]:
        run = self.run
        return {
            "notebook": str(self.path),
            "ran": run is not None,
            "kernel": run.kernel if run is not None else None,
            "ended": run.ended if run is not None else "",
            "interrupted": bool(run is not None and run.interrupted),
            "cells": [cell.to_dict() for cell in self.cells],
            "highlights": self.highlights,
            "totals": self._totals(),
            "notes": list(self.notes),
            "file": str(self.file) if self.file is not None else None,
            "html": str(self.html) if self.html is not None else None,
            "next_command": self.next_command,
        }

    def _totals(self) -> dict[str, Any]:
        counts = Counter(cell.verdict.word for cell in self.cells)
        figures = [cell.run.figures for cell in self.cells if cell.run is not None and cell.run.ran]
        ran = self.run is not None
        return {
            "cells": len(self.cells),
            "text_cells": self.text_cells,
            "findings": sum(len(cell.findings) for cell in self.cells),
            "verdicts": {word: counts[word] for word in WORDS},
            "wall_s": sum(found.wall_s or 0.0 for found in figures) if ran else None,
            "cpu_s": sum(found.cpu_s or 0.0 for found in figures) if ran else None,
            "peak_rss_bytes": max((found.peak_rss_bytes or 0 for found in figures), default=0) or None,
            "device_peak_bytes": max((f.device_peak_bytes for f in figures if f.device_peak_bytes is not None), default=None),
            "output_bytes": sum(cell.run.output_bytes for cell in self.cells if cell.run is not None) if ran else None,
        }

    def to_text(self) -> str:
        return render_notebook(self.to_dict())

    def to_markdown(self) -> str:
        return render_notebook_markdown(self.to_dict())


def notebook(
    path: Path | str,
    *,
    run: bool = False,
    timeout_s: float = TIMEOUT_S,
    keep_going: bool = False,
    cwd: Path | str | None = None,
    kernel: str | None = None,
    html: Path | str | None = None,
    out: Path | str | None = None,
    on_event: OnEvent | None = None,
) -> NotebookReport:
    """Read the notebook at `path`; with `run`, run it too, each cell for at most `timeout_s`, and measure every cell.

    A cell that raises or runs over its time ends the run, unless it is to `keep_going`. Cells run in the notebook's own folder,
    or in `cwd`; `html` asks for the page as well. The notebook itself is never written.
    """
    refuse_number("--timeout", timeout_s, example=f"{TIMEOUT_S:g}")
    path = Path(path)
    page = _page(path, html)
    data = _bytes(path)
    source = _notebook_source(path, data)
    program = Program(source)
    readings = read_cells(program)
    facts = _CellFacts(data)
    tell = on_event or ignore
    ran, notes = None, [problem.message for problem in source.problems if problem.cell is None]
    notes += _unread_note(program.unread)
    if run:
        ran, note = _run(readings, facts, path, timeout_s=timeout_s, keep_going=keep_going, cwd=cwd, kernel=kernel, tell=tell)
        notes += [note] if note else []
    findings, wrong = find_chokes(source)
    notes += wrong
    costs = weigh(ran.cells) if ran is not None else None
    setting = _setting(program, path, findings)
    notes += _command_notes(setting, readings)
    cells = _judged(readings, findings, setting, facts, ran, costs)
    workspace = Workspace(Path(out) if out is not None else DEFAULT_ROOT)
    file = _record_path(workspace, path) if ran is not None else None
    text_cells = len(source.cells) - len(cells)
    written = None if page is None else page.path
    report = NotebookReport(path, cells, text_cells, ran, _next(path, cells, ran, workspace), notes, file, written, costs)
    if file is not None:
        atomic.write_json(file, to_jsonable(report.to_dict()))
    if page is not None:
        page.write_text(render_notebook_html(report.to_dict()))
    return report


def _bytes(path: Path) -> bytes:
    if path.suffix.lower() != ".ipynb":
        why = "a notebook's name ends in .ipynb; scripts are for `lint`, and for `profile`, which runs them"
        raise UsageError(f"{path} is no notebook", code="not-a-notebook", why=why, try_=f"unchoke lint {shlex.quote(str(path))}")
    refuse_special(path)
    try:
        return path.read_bytes()
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"cannot read {path}", code="unreadable-file", why=why, try_="unchoke notebook FILE.ipynb") from None


def _notebook_source(path: Path, data: bytes) -> SourceFile:
    source = with_neighbours(parse_source(str(path), data))
    broken = next((problem.message for problem in source.problems if problem.cell is None and not source.cells), "")
    if broken:
        raise DataError(f"cannot read {path}", code="unreadable-file", why=broken, try_="open it in Jupyter and save it again")
    return source


def _page(path: Path, html: Path | str | None) -> OutputFile | None:
    if html is None:
        return None
    page = Path(html)
    if page.is_dir():
        page = page / f"{path.stem}.html"
    if page.suffix.lower() == ".ipynb" or page.absolute() == path.absolute():
        why = "a notebook is never written"
        raise UsageError(
            f"{page} is a notebook",
            code="output-is-input",
            why=why,
            try_=f"unchoke notebook {shlex.quote(str(path))} --html page.html",
        )
    return output_file(page, option="--html", example="page.html", sources=[path])


def _unread_note(unread: Sequence[UnreadCode]) -> list[str]:
    """Which modules and scripts of the notebook were not read, so that nobody takes "nothing found" for more than it is."""
    names = {piece.name: piece.cell for piece in unread if piece.kind in ("star", "module", "run", "process")}
    if not names:
        return []
    told = [f"{name} (cell {cell})" for name, cell in list(names.items())[:_MOST_UNREAD]]
    more = f" and {len(names) - len(told)} more" if len(names) > len(told) else ""
    return [f"not read, as they do not lie beside the notebook: {', '.join(told)}{more}"]


def _command_notes(setting: NotebookContext, readings: Sequence[CellReading]) -> list[str]:
    """Why no command trains what the notebook trains; or what the paths in commands are relative to."""
    task = setting.task
    if task.data and not PurePath(shlex.split(task.data)[0]).is_absolute() and PurePath(setting.notebook).parent != PurePath():
        return ["paths in commands are those of the folder you are in, not of the notebook's"]
    if setting.fit or not any("trains" in cell.deeds for cell in readings):
        return []
    if task.other:
        return [f"no command is named for its training: it {task.other}, which unchoke has nothing for"]
    if task.task == "masks":
        return ["no command is named for its training: `unchoke segment train` reads scenes, which it does not show to have"]
    return ["no command is named for its training: the code does not show class folders or a table of pictures"]


class _CellFacts:
    """What the file says of its cells beside their source: tags, and the kernel it was written for."""

    def __init__(self, data: bytes) -> None:
        try:
            self._book = json.loads(data.decode("utf-8-sig"))
        except ValueError:  # read all the same, by guessing its encoding: then without tags
            self._book = {}

    @property
    def kernel(self) -> str:
        return str(_inner(_inner(self._book, "metadata"), "kernelspec").get("name") or "")

    def tags(self, number: int) -> set[str]:
        cells = self._book.get("cells") if isinstance(self._book, dict) else None
        if not isinstance(cells, list) or number > len(cells) or not isinstance(cells[number - 1], dict):
            return set()
        tags = _inner(cells[number - 1], "metadata").get("tags")
        return {str(tag) for tag in tags} if isinstance(tags, list) else set()

    def may_fail(self, number: int) -> bool:
        return "raises-exception" in self.tags(number)

    def skip(self, number: int) -> bool:
        return "skip-execution" in self.tags(number)


def _inner(value: Any, key: str) -> Mapping[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _run(
    readings: Sequence[CellReading],
    facts: _CellFacts,
    path: Path,
    *,
    timeout_s: float,
    keep_going: bool,
    cwd: Path | str | None,
    kernel: str | None,
    tell: OnEvent,
) -> tuple[NotebookRun, str]:
    """Run every cell of code, and what is to be said about the kernel."""
    folder = Path(cwd) if cwd is not None else path.absolute().parent
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is no folder",
            code="not-a-folder",
            why="cells run in it",
            try_=f"unchoke notebook {shlex.quote(str(path))} --run",
        )
    name, note = choose_kernel(kernel, facts.kernel)
    tasks = [CellTask(cell.number, cell.text, facts.may_fail(cell.number), facts.skip(cell.number)) for cell in readings]
    words = f"{format_count(len(tasks), 'cell')} in a fresh kernel {name}, each for at most {timeout_s:g} s, in {folder}"
    tell(StageStarted("run", words))
    ran = run_cells(tasks, kernel=name, folder=folder, limit_s=timeout_s, keep_going=keep_going, on_cell=_teller(tasks, tell))
    tell(StageDone("run", ran.wall_s, ran.ended))
    return ran, f"{note}: run in {name}" if note else ""


def _teller(tasks: Sequence[CellTask], tell: OnEvent) -> Callable[[int, CellRun], None]:
    """Progress after each cell, and a note where one fails that should not."""
    may_fail = {task.number for task in tasks if task.may_fail}
    done: Counter[str] = Counter()

    def told(number: int, run: CellRun) -> None:
        failed = run.status in _FAILED and number not in may_fail
        done.update(all=1, failed=int(failed))
        if failed:
            tell(Note(f"cell {number}: {run.error}", "warning"))
        tell(Progress("run", done["all"], len(tasks), "cells", failed=done["failed"]))

    return told


def _setting(program: Program, path: Path, findings: Sequence[Finding]) -> NotebookContext:
    setting = read_setting(program, str(path))
    only_a_head = any(finding.code in ("frozen-recomputed", "frozen-gradients") for finding in findings)
    return replace(setting, frozen=setting.frozen or only_a_head)


def _judged(
    readings: Sequence[CellReading],
    findings: Sequence[Finding],
    setting: NotebookContext,
    facts: _CellFacts,
    ran: NotebookRun | None,
    costs: NotebookCosts | None,
) -> list[CellReport]:
    earlier: dict[str, int] = {}
    cells = []
    for reading in readings:
        own = [finding for finding in findings if finding.cell == reading.number]
        run = ran.cells.get(reading.number) if ran is not None else None
        measured = run if run is not None and run.ran else None
        verdict = judge(reading, own, setting, earlier=earlier, run=measured, costs=costs)
        cells.append(CellReport(reading, own, verdict, run, facts.may_fail(reading.number)))
        earlier.setdefault(reading.text.strip(), reading.number)
    return cells


def _highlights(cell: CellReport, costs: NotebookCosts) -> list[str]:
    run, number = cell.run, cell.reading.number
    if run is None or not run.ran:
        return []
    told = []
    light = is_light(cell.reading, run)
    if number in costs.slow and not light:
        told.append(f"cell {number} {time_words(run, costs)}")
    if number in costs.hungry and not light:
        told.append(f"cell {number} {memory_words(run)}")
    if cell.failed:
        where = f", line {run.line}" if run.line else ""
        told.append(f"cell {number}{where}: {run.error}")
    return told


def _record_path(workspace: Workspace, path: Path) -> Path:
    when = datetime.now().strftime("%Y%m%d_%H%M%S_%f")[:-3]
    return workspace.logs / "notebook" / f"{safe_name(path.stem)}_{when}.json"


def _next(path: Path, cells: Sequence[CellReport], ran: NotebookRun | None, workspace: Workspace) -> str:
    """Measure first; then what replaces the cell that cost most."""
    name = shlex.quote(str(path))
    if all(cell.reading.language or cell.reading.problem for cell in cells):
        return ""
    if ran is None:
        return f"unchoke notebook {name} --run{out_option(workspace.root)}"
    ranked = sorted(cells, key=lambda cell: -((cell.run.figures.wall_s if cell.run else None) or 0.0))
    command = next((cell.verdict.command for cell in ranked if cell.verdict.command), "")
    return command or f"unchoke lint {name}"
