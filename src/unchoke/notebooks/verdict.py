"""What to do about a cell: keep it, optimise it, segment it into resumable jobs, or eliminate it; with the reason and a command.

In come what the cell does, what lint found in it and, if it was run, what it cost; out goes a `CellVerdict`. Measured figures
beat guesses: training that took seconds is not segmented, a cell that took most of the time is never just kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from unchoke.core.findings import Finding, rank
from unchoke.core.units import format_bytes, format_count, format_seconds
from unchoke.notebooks.cell_record import CellRun
from unchoke.notebooks.cells import CellReading
from unchoke.notebooks.setting import NotebookContext

Word = Literal["keep", "segment", "eliminate", "optimise"]
WORDS: tuple[Word, ...] = ("segment", "eliminate", "optimise", "keep")
LONG_S = 600.0
SHORT_S = 60.0
_SLOW_S = 1.0
_SLOW_SHARE = 0.4
_HUNGRY_BYTES = 200_000_000
_HUNGRY_SHARE = 0.4
_LIBRARY_BYTES = 2_000_000_000
_WAITING_SHARE = 0.3
_LOUD_BYTES = 10_000_000
_MANY_EPOCHS = 5
_FETCHES = (
    "downloads", "unpacks archives", "copies files", "copies the data", "mounts a drive", "runs shell commands", "lists files",
    "sets constants", "imports",
)  # fmt: skip
_ON_DATA = frozenset({"check", "extract", "fit", "train", "tune"})
_FETCHED = {"downloads", "unpacks archives", "copies files", "copies the data"}
_SET_UP = ("installs packages", "looks at the machine", "frees memory", "runs shell commands", "mounts a drive")
_BESIDE_CHECKS = ("lists files", "reads images", "saves", "computes", "plots", "sets constants", "imports")
_LIGHT = ("imports", "sets constants", "sets seeds", "installs packages")


@dataclass(frozen=True)
class CellVerdict:
    """`command` replaces the cell, or looks closer at it; empty where no command of ours does."""

    word: Word
    reason: str
    command: str = ""


@dataclass(frozen=True)
class NotebookCosts:
    """The run as a whole, to judge one cell by."""

    wall_s: float
    slow: frozenset[int]
    hungry: frozenset[int]


def weigh(runs: Mapping[int, CellRun]) -> NotebookCosts:
    """Which cells take most of the time, and which most of the memory."""
    times = {number: run.figures.wall_s or 0.0 for number, run in runs.items()}
    rises = {number: run.figures.rise_bytes or 0 for number, run in runs.items()}
    wall_s = sum(times.values())
    highest = max(rises.values(), default=0)
    slow = {number for number, spent_s in times.items() if spent_s >= max(_SLOW_S, _SLOW_SHARE * wall_s)}
    hungry = {number for number, rise in rises.items() if rise >= max(_HUNGRY_BYTES, _HUNGRY_SHARE * highest)}
    return NotebookCosts(wall_s, frozenset(slow), frozenset(hungry))


def judge(
    cell: CellReading,
    findings: Sequence[Finding],
    setting: NotebookContext,
    *,
    earlier: Mapping[str, int],
    run: CellRun | None = None,
    costs: NotebookCosts | None = None,
) -> CellVerdict:
    """The verdict on one cell. `earlier` holds the texts of cells before it, with their numbers."""
    same = earlier.get(cell.text.strip())
    if not cell.text.strip():
        return CellVerdict("eliminate", "it is empty")
    if same is not None and len(cell.text.strip()) > 40 and "plots" not in cell.deeds:
        return CellVerdict("eliminate", f"the same as cell {same}")
    return (
        _eliminated(cell, setting, run)
        or _segmented(cell, findings, setting, run)
        or _found(findings, setting)
        or _repeated(cell, setting)
        or (_costly(cell, setting, run, costs) if run is not None and costs is not None else None)
        or _kept(cell, run)
    )


def _eliminated(cell: CellReading, setting: NotebookContext, run: CellRun | None) -> CellVerdict | None:
    spent = f" ({format_seconds(run.figures.wall_s)} here)" if run is not None and run.figures.wall_s else ""
    if cell.only(*_SET_UP) and "installs packages" in cell.deeds:
        return CellVerdict("eliminate", f"packages are installed again at every run{spent}: put them into the environment once")
    if cell.only("looks at the machine"):
        return CellVerdict("eliminate", "says what the machine is; `doctor` says it with what suits it", "unchoke doctor")
    if cell.only("frees memory"):
        return CellVerdict("eliminate", "gives back nothing that Python still holds; later cells ask for it again")
    if cell.guarded:
        return None
    if cell.only(*_SET_UP, *_FETCHES) and "installs packages" in cell.deeds and _FETCHED & set(cell.deeds):
        return CellVerdict(
            "eliminate", f"packages and data are fetched again at every run{spent}: do both once, outside the notebook"
        )
    if cell.only("checks every file", *_BESIDE_CHECKS) and "checks every file" in cell.deeds:
        return _checked("eliminate", f"touches every file at each run{spent}", setting)
    if cell.only(*_FETCHES) and _FETCHED & set(cell.deeds):
        return CellVerdict("eliminate", f"fetched or unpacked again at every run{spent}: do it once, outside the notebook")
    return None


def _segmented(
    cell: CellReading, findings: Sequence[Finding], setting: NotebookContext, run: CellRun | None
) -> CellVerdict | None:
    spent_s = run.figures.wall_s if run is not None and run.status == "done" else None
    long = run is not None and (run.status == "timeout" or (spent_s or 0.0) >= LONG_S)
    codes = {finding.code for finding in findings}
    if "trains" in cell.deeds and (long or (spent_s is None and _trains_long(cell, codes, setting))):
        return CellVerdict("segment", _training_reason(cell, codes, setting, run), setting.fit)
    if "extracts features" in cell.deeds and (long or spent_s is None):
        reason = "a frozen network over every picture: in jobs, a kill costs one job and a second run costs nothing"
        return CellVerdict("segment", reason, setting.on_photos("extract"))
    if "tile-loop" in codes and spent_s is None:
        return CellVerdict("segment", "a network over one tile at a time: batches of tiles in jobs, which go on after a kill")
    if long and {"predicts", "evaluates"} & set(cell.deeds):
        return CellVerdict(
            "segment", f"{_took(run)}, in one piece: keep what each part gave, and go on with the next after a kill"
        )
    return None


def _checked(word: Word, what: str, setting: NotebookContext) -> CellVerdict:
    """Looking at every file once: by `check`, where it can read the notebook's data."""
    command = setting.on_photos("check")
    instead = "`check` remembers what it has seen and reads only what changed" if command else "do it once and keep what it found"
    return CellVerdict(word, f"{what}; {instead}", command)


def _trains_long(cell: CellReading, codes: set[str], setting: NotebookContext) -> bool:
    epochs = setting.epochs.get(cell.number)
    if codes & {"no-checkpoint", "frozen-recomputed"}:
        return True
    return not setting.resumes and (epochs is None or epochs >= _MANY_EPOCHS)


def _training_reason(cell: CellReading, codes: set[str], setting: NotebookContext, run: CellRun | None) -> str:
    epochs = setting.epochs.get(cell.number)
    what = f"{format_count(epochs, 'epoch')} in one cell" if epochs else "all epochs in one cell"
    if run is not None:
        what = f"{what}, {_took(run)}"
    kept = "; nothing is kept if it stops" if "no-checkpoint" in codes else ""
    if not setting.fit:
        by_hand = "save model, optimizer and epoch at the end of each, and begin by loading what is there"
        return f"{what}{kept}: {by_hand if setting.torch else '`BackupAndRestore` among the callbacks goes on after a kill'}"
    frozen = "; its frozen part need run only once" if setting.frozen and setting.task.task != "masks" else ""
    return f"{what}{kept}{frozen}: in parts, the same line goes on after a kill"


def _took(run: CellRun | None) -> str:
    if run is None or run.figures.wall_s is None:
        return "long"
    return f"stopped at {format_seconds(run.figures.wall_s)}" if run.status == "timeout" else format_seconds(run.figures.wall_s)


def _found(findings: Sequence[Finding], setting: NotebookContext) -> CellVerdict | None:
    if not findings:
        return None
    first = rank(list(findings))[0]
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    place = f"line {first.line}: " if first.line is not None else ""
    return CellVerdict(
        "optimise", f"{place}{first.message}{more}", _filled(next((f.command for f in findings if f.command), ""), setting)
    )


def _repeated(cell: CellReading, setting: NotebookContext) -> CellVerdict | None:
    """Work of every run that one run would do, beside what the cell is for."""
    if "installs packages" in cell.deeds:
        return CellVerdict("optimise", "installs packages at every run beside its work: put them into the environment once")
    if cell.guarded:
        return None
    if "copies the data" in cell.deeds:
        return CellVerdict("optimise", "copies the data at every run beside its work: do it once, outside the notebook")
    if "decodes everything" in cell.deeds:
        reason = "decodes every picture at each run: decode once, save the arrays, and load them the next time"
        return CellVerdict("optimise", reason, setting.fit)
    if "checks every file" in cell.deeds:
        return _checked("optimise", "looks for every file at each run", setting)
    return None


def _filled(command: str, setting: NotebookContext) -> str:
    """The rule's command as it can be typed for this notebook; empty where it could not read its data."""
    words = command.split()
    if words[:2] == ["unchoke", "profile"]:
        return setting.profile
    if words[1:2] and words[1] in _ON_DATA:
        options = [word for word in words[2:] if word != "DATA"]
        return setting.on_photos(words[1], "".join(f" {word}" for word in options))
    return "" if words[1:2] and words[1] in ("tile", "segment", "predict", "evaluate") else command


def _costly(cell: CellReading, setting: NotebookContext, run: CellRun, costs: NotebookCosts) -> CellVerdict | None:
    """A cell without a known choke point that took most of the time or memory all the same."""
    figures = run.figures
    if run.status == "died":
        return CellVerdict("optimise", f"it ended the kernel, and all that earlier cells had made with it: {run.error}")
    if figures.wait_s and figures.wall_s and figures.wall_s >= SHORT_S and figures.wait_s >= _WAITING_SHARE * figures.wall_s:
        reason = f"{figures.wait_s / figures.wall_s:.0%} of its {format_seconds(figures.wall_s)} are spent waiting for data"
        return CellVerdict("optimise", reason, setting.profile)
    if is_light(cell, run):
        return None
    if cell.number in costs.hungry:
        return CellVerdict("optimise", memory_words(run))
    if cell.number in costs.slow:
        return CellVerdict("optimise", time_words(run, costs), setting.profile if "trains" in cell.deeds else "")
    if run.output_bytes >= _LOUD_BYTES:
        return CellVerdict(
            "optimise", f"puts {format_bytes(run.output_bytes)} of output into the notebook: show less, save to a file"
        )
    return None


def is_light(cell: CellReading, run: CellRun) -> bool:
    """Whether it only imports or sets things, in the time and room that libraries take."""
    return cell.only(*_LIGHT) and (run.figures.wall_s or 0.0) < SHORT_S and (run.figures.rise_bytes or 0) < _LIBRARY_BYTES


def time_words(run: CellRun, costs: NotebookCosts) -> str:
    """``6.1 s of the run's 8.2 s, and the processor idle for most of it``."""
    figures = run.figures
    wall_s = figures.wall_s or 0.0
    idle = figures.cpu_s is not None and figures.cpu_s < 0.25 * wall_s
    share = f" ({wall_s / costs.wall_s:.0%})" if costs.wall_s else ""
    return f"takes {format_seconds(wall_s)} of the run's {format_seconds(costs.wall_s)}{share}" + (
        ", and mostly waits: the processor was hardly used" if idle else ""
    )


def memory_words(run: CellRun) -> str:
    """``its peak lies 1.2 GB above what was there before; 1.1 GB stay``."""
    figures = run.figures
    stays = figures.growth_bytes or 0
    kept = f"{format_bytes(stays)} of it stay afterwards" if stays > 0 else "none of it stays"
    return f"takes {format_bytes(figures.rise_bytes or 0)} of memory (peak {format_bytes(figures.peak_rss_bytes or 0)}); {kept}"


def _kept(cell: CellReading, run: CellRun | None) -> CellVerdict:
    if cell.problem:
        return CellVerdict("keep", f"not read: {cell.problem}")
    if cell.language:
        return CellVerdict("keep", f"not read: {cell.language} is no Python")
    if cell.only("has comments only"):
        return CellVerdict("keep", "nothing in it runs")
    if run is not None and run.status == "failed":
        return CellVerdict("keep", "it raised: nothing else was found")
    if run is not None and run.figures.wall_s is not None:
        return CellVerdict("keep", f"{format_seconds(run.figures.wall_s)}, nothing found")
    return CellVerdict("keep", "nothing found")
