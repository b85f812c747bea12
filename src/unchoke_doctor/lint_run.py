"""`lint --run`: runs the code for some steps and compares what lint read with what was measured.

Every finding comes back *confirmed* with its share of a step, *refuted* because the run reached it and it cost next to nothing, or *not
reached*, with the reason. What the run shows and no rule saw is added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unchoke_doctor.causes.diagnose import diagnose
from unchoke_doctor.code.source import read_source
from unchoke_doctor.finding import Finding
from unchoke_doctor.notebook_run import NotebookRun, run_notebook
from unchoke_doctor.recording import Recording
from unchoke_doctor.units import format_bytes, format_count

CONFIRMED, NEW = 0.05, 0.10
"""Shares of a step from which a finding counts as confirmed, and from which one that no rule saw is added."""
_NOT_TIMED = {
    "no-checkpoint": "whether a kill loses work does not show in a few steps",
    "unpicklable-dataset": "it shows where worker processes are spawned (Windows, macOS)",
    "no-prefetch": "tf.data is not watched",
}
_NEEDS = {"network-mount": ("data", "the data is generated here, not on the mount"), "never-on-gpu": ("cuda", "this machine has no GPU"),
          "no-mixed-precision": ("cuda", "this machine has no GPU"), "host-sync": ("cuda", "this machine has no GPU to wait for")}  # fmt: skip
_SAME = {
    "no-workers": {"few-workers"}, "few-workers": {"no-workers"}, "heavy-augmentation": {"python-loop", "oversized-decode"},
    "oversized-decode": {"heavy-augmentation", "no-workers"}, "one-at-a-time": {"slow-evaluation", "small-batches"},
    "no-inference-mode": {"slow-evaluation"}, "frozen-recomputed": set(), "per-sample-scan": {"python-loop", "repeated-work"},
}  # fmt: skip
"""Causes that a measurement may give the same fact."""


def confirm(path: Path, findings: Sequence[Finding], steps: int, say: Callable[[str], None]) -> list[Finding]:
    """Run the notebook or script at `path` for `steps` optimizer steps per training cell, in a scratch copy, and judge the findings."""
    source = read_source(path)
    cells = [cell.number or 0 for cell in source.cells if cell.kind == "code"]
    run = run_notebook(path, cells, steps=steps, keep_going=True, say=say)
    for note in run.notes:
        say(f"note   {note}")
    return judge(findings, run, path)


@dataclass(frozen=True)
class _Measured:
    """What the run measured in one cell."""

    cell: int
    recording: Recording
    causes: list[Finding]

    def line_share(self, cell: int, lines: range) -> float:
        """The share of the training's time in which one of these lines was at work, itself or by what it calls."""
        seconds = whole = 0.0
        for process in (self.recording.main, *self.recording.workers):
            for row in process.samples:
                if row.phase in ("setup", "after"):
                    continue
                whole += row.seconds if process is self.recording.main else 0.0
                places = [(row.file, row.line), *((file, line) for file, line, _ in row.callers)]
                if any(_cell_of(file) == cell and line in lines for file, line in places):
                    seconds += row.seconds
        return min(1.0, seconds / whole) if whole else 0.0


def judge(findings: Sequence[Finding], run: NotebookRun, path: Path) -> list[Finding]:
    """The findings with their status, and those that only the run shows."""
    measured = [
        _Measured(number, recording, [_in_cell(one, path) for one in diagnose(recording)])
        for number, recording in run.recordings.items()
    ]
    judged = [_judge(finding, run, measured) for finding in findings]
    known = {code for finding in findings for code in (finding.code, *_SAME.get(finding.code, ()))}
    for one in measured:
        fresh = [cause for cause in one.causes if cause.code not in known and float(cause.evidence.get("share") or 0) >= NEW]
        for cause in fresh:
            known.add(cause.code)
            place = {"cell": cause.cell or one.cell or None, "path": str(path), "paths": (str(path),)}
            judged.append(replace(cause, status="confirmed", basis="measured", kind=cause.kind or "choke", **place))
    return judged


def _judge(finding: Finding, run: NotebookRun, measured: Sequence[_Measured]) -> Finding:
    """One finding: by a cause of the same code, else by the time at its line, else by what the cells say."""
    code = finding.code
    if code in _NOT_TIMED:
        return _with(finding, "not reached", _NOT_TIMED[code])
    needed, why = _NEEDS.get(code, ("", ""))
    if needed and needed in run.stood_in:
        return _with(finding, "not reached", why)
    if code == "images-in-list":
        return _judge_memory(finding, run)
    trained = [one for one in measured if one.recording.steps.rows]
    shares = [(float(cause.evidence.get("share") or 0.0), one) for one in measured for cause in one.causes if cause.code in {code, *_SAME.get(code, ())}]
    lines = range(finding.line or 0, int(finding.evidence.get("end_line") or finding.line or 0) + 1)
    if finding.stage != "setup" and code not in ("no-workers", "few-workers"):
        shares += [(one.line_share(finding.cell or 0, lines), one) for one in measured]
    share, where = max(shares, key=lambda pair: pair[0], default=(0.0, None))
    if where is not None and share >= CONFIRMED:
        place = f" of cell {where.cell}" if where.cell else ""
        return _with(finding, "confirmed", f"{share:.0%} of a step{place}, measured", share)
    ran = run.cells.get(finding.cell or 0)
    if trained and (ran is None or ran.status in ("ok", "cut", "failed")):
        steps = sum(len(one.recording.steps) for one in trained)
        return _with(finding, "refuted", f"{share:.1%} of a step here, over {format_count(steps, 'step')}", share)
    return _with(finding, "not reached", _why_not(finding, run))


def _judge_memory(finding: Finding, run: NotebookRun) -> Finding:
    ran = run.cells.get(finding.cell or 0)
    if "data" in run.stood_in or ran is None or not ran.figures:
        return _with(finding, "not reached", "the images are stand-ins here" if "data" in run.stood_in else _why_not(finding, run))
    kept = max(0, ran.figures.get("growth_bytes") or 0)
    status = "confirmed" if kept >= 500_000_000 else "refuted"
    return _with(finding, status, f"the cell keeps {format_bytes(kept)} of memory")


def _why_not(finding: Finding, run: NotebookRun) -> str:
    ran = run.cells.get(finding.cell or 0)
    if ran is not None and ran.error:
        return f"its cell ended with {ran.error}"
    failed = next((number for number, cell in run.cells.items() if cell.status in ("failed", "died", "timeout")), None)
    return f"the run trained nothing: cell {failed} failed with {run.cells[failed].error}" if failed is not None else "the run trained nothing"


def _with(finding: Finding, status: str, how: str, share: float | None = None) -> Finding:
    evidence = {**finding.evidence, "run": how, **({"share": round(share, 3)} if share is not None else {})}
    basis = finding.basis if status == "not reached" else "measured"
    return replace(finding, status=status, basis=basis, evidence=evidence)  # type: ignore[arg-type]


def _cell_of(file: str) -> int:
    """The number in `leaves.ipynb#cell7`; 0 for a script."""
    _, found, number = file.rpartition("#cell")
    return int(number) if found and number.isdecimal() else 0


def _in_cell(finding: Finding, path: Path) -> Finding:
    """A measured finding names its cell, not the name the kernel gave its code."""
    return replace(finding, cell=_cell_of(finding.path or "") or finding.cell, path=str(path))
