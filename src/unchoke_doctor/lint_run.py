"""`lint --run`: runs the code for some steps and compares what lint read with what was measured.

Every finding comes back *confirmed* with the share of a step that removing its cause saves, *refuted* because the run reached it
and removing it would save next to nothing, or *not reached*, with the reason. What the run shows and no rule saw is added.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from unchoke_doctor.causes import cause
from unchoke_doctor.causes.diagnose import diagnose
from unchoke_doctor.causes.figures import Figures, per
from unchoke_doctor.code.source import SourceFile
from unchoke_doctor.finding import Finding
from unchoke_doctor.notebook_run import NotebookRun, run_notebook
from unchoke_doctor.recording import Recording
from unchoke_doctor.units import format_bytes, format_count

CONFIRMED, NEW = 0.05, 0.10
"""Shares of a step from which a finding counts as confirmed, and from which one that no rule saw is added."""
_NEW_WITHOUT_STEPS = 0.30
_LOOKS = 3
"""So often must a graph have been seen to grow."""
_MUCH_BYTES = 500_000_000
_TIMEOUT_S = 180.0
_NOT_TIMED = {
    "no-checkpoint": "whether a kill loses work does not show in a few steps",
    "unpicklable-dataset": "it shows where worker processes are spawned (Windows, macOS)",
    "no-prefetch": "tf.data is not watched",
}
_NEEDS_DATA = {
    "network-mount": "the data is generated here, not on the mount",
    "oversized-decode": "the pictures are generated here",
    "whole-file-for-crop": "the pictures are generated here",
}
_NEEDS_GPU = frozenset({"never-on-gpu", "no-mixed-precision", "host-sync"})
_ANYWHERE = frozenset({"no-workers", "few-workers", "workers-restarted", "heavy-augmentation", "oversized-decode", "slow-decode",
                       "whole-file-for-crop", "frozen-gradients", "small-batches", "double-precision"})  # fmt: skip
"""Causes that are measured elsewhere than where they are written: a transform runs in the loop that asks for batches."""
_TRIED = ("no-inference-mode", "one-at-a-time")
_TRIED_ON_DATA = ("oversized-decode", "heavy-augmentation")
_LINES = frozenset({"per-sample-scan", "python-loop", "costly-call", "slow-logging"})
"""Causes whose removal saves what their line takes, no more."""
_SAME = {"few-workers": "no-workers", "slow-evaluation": "one-at-a-time"}
_EMPTY = ast.Module([], [])
_ORDER = ("confirmed", "", "not reached", "refuted")


def confirm(source: SourceFile, findings: Sequence[Finding], steps: int, say: Callable[[str], None]) -> list[Finding]:
    """Run the file for `steps` optimizer steps per training cell, in a scratch copy, and judge the findings."""
    run = run_notebook(source, steps=steps, timeout_s=_TIMEOUT_S, keep_going=True, say=say)
    for note in run.notes:
        say(f"note   {note}")
    return Judge(run, source).all(findings)


@dataclass(frozen=True)
class _Verdict:
    status: str
    how: str
    share: float | None = None


class _Cell:
    """What the run measured in one cell."""

    def __init__(self, number: int, recording: Recording, trials: Sequence[dict[str, Any]], path: str) -> None:
        self.number, self.trials = number, trials
        self.figures = Figures(recording)
        self.causes = [replace(one, cell=_cell_of(one.path or "") or one.cell, path=path) for one in diagnose(recording)]

    @property
    def unit(self) -> str:
        place = f"cell {self.number}" if self.number else "the script"
        return f"a step of {place}" if self.figures.num_steps else place

    @cached_property
    def where(self) -> list[tuple[float, set[tuple[int, int]]]]:
        """Each look as seconds, and the cells and lines of the notebook that were running."""
        return [(look.seconds, {(_cell_of(one.file), one.line) for one in look.chain}) for look in self.figures.looks]

    def share(self, cell: int, lines: range) -> float:
        """The share of the time in which one of these lines was at work, itself or by what it calls."""
        seconds = sum(seconds for seconds, places in self.where if any(at == cell and line in lines for at, line in places))
        return min(1.0, per(seconds, self.figures.span_s))

    def saves(self, code: str, cell: int, lines: range) -> float | None:
        """What trying the repair out saved of a call in these lines."""
        calls = [one for one in self.trials if one["code"] == code and "line" in one]
        return max((float(one["saves"]) for one in calls if _cell_of(one["file"]) == cell and one["line"] in lines), default=None)

    def tried_on_data(self, code: str) -> tuple[float, str] | None:
        """What trying the repair out on samples saves of a step, and the name in the code that it is about."""
        tried = next((one for one in self.trials if one["code"] == code and "named" in one), None)
        if tried is None or not self.figures.making_s:
            return None
        saved_s = self.figures.on_path_s(float(tried["saves"]) * self.figures.making_s)
        return per(saved_s, self.figures.span_s), tried["named"]


class Judge:
    """One run, and what it says of findings."""

    def __init__(self, run: NotebookRun, source: SourceFile) -> None:
        self.run, self.path = run, source.path
        calls = [one for cell in run.cells.values() for one in cell.figures.get("trials") or () if "line" in one]
        self.cells = []
        for number, recording in run.recordings.items():
            on_data = [one for one in run.cells[number].figures.get("trials") or () if "named" in one]
            self.cells.append(_Cell(number, recording, [*calls, *on_data], self.path))
        self.trees = {cell.number or 0: cell.tree for cell in source.cells if cell.kind == "code"}
        self.used: set[int] = set()

    def all(self, findings: Sequence[Finding]) -> list[Finding]:
        """The findings with their status, and those that only the run shows."""
        judged = [self.joined(finding) for finding in findings]
        known = {one.code for one in findings} | {also["code"] for one in findings for also in one.evidence.get("also", ())}
        return judged + list(self.fresh(known))

    def joined(self, finding: Finding) -> Finding:
        """A finding, and those that were joined to it, each by itself; the one that holds leads."""
        also = finding.evidence.get("also") or []
        lead = self.judged(replace(finding, evidence={name: value for name, value in finding.evidence.items() if name != "also"}))
        names = ("code", "cell", "line", "message", "fix")
        parts = [
            replace(finding, evidence={}, kind=cause(one["code"]).kind, **{name: one[name] for name in names}) for one in also
        ]
        first, *rest = sorted([lead, *map(self.judged, parts)], key=lambda one: _ORDER.index(one.status))
        if not rest:
            return first
        figures = [{name: one.evidence[name] for name in ("run", "share") if name in one.evidence} for one in rest]
        shown = [
            {**{name: getattr(one, name) for name in (*names, "status")}, **more} for one, more in zip(rest, figures, strict=True)
        ]
        return replace(first, evidence={**first.evidence, "also": shown})

    def judged(self, finding: Finding) -> Finding:
        verdict = self.verdict(finding)
        evidence = {**finding.evidence, "run": verdict.how}
        if verdict.share is not None:
            evidence["share"] = round(verdict.share, 3)
        basis = finding.basis if verdict.status == "not reached" else "measured"
        return replace(finding, status=verdict.status, basis=basis, evidence=evidence)  # type: ignore[arg-type]

    def verdict(self, finding: Finding) -> _Verdict:
        code, figures = finding.code, [cell.figures for cell in self.run.cells.values() if cell.figures]
        if code in _NOT_TIMED:
            return _Verdict("not reached", _NOT_TIMED[code])
        if code in _NEEDS_DATA and "data" in self.run.stood_in:
            return _Verdict("not reached", _NEEDS_DATA[code])
        if code in _NEEDS_GPU and not any(one.get("gpu") for one in figures):
            return _Verdict("not reached", "this machine has no GPU")
        if code == "images-in-list":
            return self.memory(finding)
        shares = list(self.shares(finding))
        if not shares:
            return _Verdict("not reached", self.why_not(finding))
        share, cell, how = max(shares, key=lambda one: one[0])
        data = ", with generated data" if "data" in self.run.stood_in else ""
        steps = f", over {format_count(cell.figures.num_steps, 'step')}" if cell.figures.num_steps else ""
        if share >= CONFIRMED:
            return _Verdict("confirmed", f"{share:.0%} of {cell.unit}{how} (measured{data})", share)
        return _Verdict("refuted", f"{share:.1%} of {cell.unit}{how} (measured{steps}{data})", share)

    def shares(self, finding: Finding) -> Iterator[tuple[float, _Cell, str]]:
        """What removing the cause saves, by each cell that the run reached it in, and how that is known."""
        code, number = finding.code, finding.cell or 0
        lines, around = self.lines(number, finding.line or 0)
        for cell in self.cells:
            if code == "frozen-recomputed":
                share = _frozen(cell.figures, finding.evidence)
                if share is not None:
                    yield share, cell, ""
                continue
            tried = cell.tried_on_data(code)
            if tried is not None:
                yield tried[0], cell, ", by trying the repair out on some samples"
            for one in cell.causes:
                if tried is not None and self.is_of_the_loop(one):
                    continue
                here = one.cell == number and (one.line or 0) in lines
                if _SAME.get(one.code, one.code) == _SAME.get(code, code) and (here or code in _ANYWHERE) and one.expected_gain:
                    self.used.add(id(one))
                    share = float(one.evidence["share"])
                    yield min(share, cell.share(number, lines)) if one.code in _LINES else share, cell, ""
                    break
            if code in _ANYWHERE:
                if cell.figures.num_steps and cell.figures.loaders:
                    yield 0.0, cell, ""
            elif cell.share(number, around):
                share, saves = cell.share(number, lines), cell.saves(code, number, lines)
                if saves is not None:
                    yield share * saves, cell, f": the call takes {share:.0%}, and the repair, tried out, saves {saves:.0%} of it"
                elif code not in _TRIED or share < CONFIRMED:
                    yield share, cell, ""

    def lines(self, number: int, line: int) -> tuple[range, range]:
        """The lines of the statement at a line, and of the function (or outermost statement) around it."""
        nodes = [
            node
            for node in ast.walk(self.trees.get(number) or _EMPTY)
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
        ]
        spans = [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in nodes]
        functions = [span for node, span in zip(nodes, spans, strict=True) if isinstance(node, ast.FunctionDef)]
        own = min(spans, key=len, default=range(line, line + 1))
        return own, min(functions, key=len, default=max(spans, key=len, default=own))

    def is_of_the_loop(self, one: Finding) -> bool:
        """Whether a cause of loading stands at the loop that asks for batches: it is inside a library, and was tried out."""
        if one.code == "oversized-decode" or str(one.evidence.get("library") or "").startswith(("tqdm", "torch.utils.data")):
            return True
        return any(
            isinstance(node, ast.For) and node.lineno == one.line for node in ast.walk(self.trees.get(one.cell or 0) or _EMPTY)
        )

    def memory(self, finding: Finding) -> _Verdict:
        ran = self.run.cells.get(finding.cell or 0)
        if "data" in self.run.stood_in or ran is None or not ran.figures:
            stand_in = "data" in self.run.stood_in
            return _Verdict("not reached", "the images are stand-ins here" if stand_in else self.why_not(finding))
        kept = max(0, ran.figures.get("growth_bytes") or 0)
        return _Verdict("confirmed" if kept >= _MUCH_BYTES else "refuted", f"the cell keeps {format_bytes(kept)} of memory")

    def why_not(self, finding: Finding) -> str:
        ran = self.run.cells.get(finding.cell or 0)
        if ran is not None and ran.error:
            return f"its cell ended with {ran.error}"
        failed = [f"cell {number} ended with {cell.error}" for number, cell in self.run.cells.items() if cell.error and cell.ran]
        if any(cell.figures.num_steps for cell in self.cells):
            return "the measured steps ended before it ran, or it ran too shortly to be seen" + (
                f"; {failed[0]}" if failed else ""
            )
        return f"the run trained nothing: {failed[0]}" if failed else "the run trained nothing"

    def fresh(self, known: set[str]) -> Iterator[Finding]:
        """What costs much here and no finding stands for: causes of lines, and repairs that were tried out."""
        for cell in self.cells:
            for one in cell.causes:
                share = float(one.evidence.get("share") or 0)
                if one.code in _LINES:
                    share = min(share, cell.share(one.cell or 0, self.lines(one.cell or 0, one.line or 0)[0]))
                known_elsewhere = one.code in known and one.code in _ANYWHERE
                tried = cell.tried_on_data(one.code) is not None and self.is_of_the_loop(one)
                seen = one.code == "growing-graph" and len(one.evidence.get("kept") or ()) < _LOOKS
                if seen or id(one) in self.used or not one.expected_gain or known_elsewhere or tried or share < NEW:
                    continue
                if cell.figures.num_steps or (share >= _NEW_WITHOUT_STEPS and self.repeats(one.cell or 0, one.line or 0)):
                    yield self.new(one, cell, share, one.cell, one.line)
        for code in (*_TRIED, *_TRIED_ON_DATA):
            if code in known or (code in _NEEDS_DATA and "data" in self.run.stood_in):
                continue
            found = []
            for cell in self.cells:
                if (on_data := cell.tried_on_data(code)) is not None:
                    found.append((on_data[0], cell, self.named(on_data[1])))
                if code == "no-inference-mode" and code not in {one.code for one in cell.causes}:
                    continue  # a network that is trained in evaluation mode needs its gradients
                for trial in (trial for trial in cell.trials if trial["code"] == code and "line" in trial):
                    at = (_cell_of(trial["file"]), int(trial["line"]))
                    found.append((cell.share(at[0], range(at[1], at[1] + 1)) * float(trial["saves"]), cell, at))
            share, where, place = max(found, key=lambda each: each[0], default=(0.0, None, (0, 0)))
            if where is not None and share >= NEW:
                page = cause(code)
                yield self.new(Finding(code, page.title, stage=page.stage, kind=page.kind, fix=page.fix), where, share, *place)

    def new(self, one: Finding, cell: _Cell, share: float, number: int | None, line: int | None) -> Finding:
        path, place = self.path, number or cell.number or None
        evidence = {**one.evidence, "share": round(share, 3), "run": f"{share:.0%} of {cell.unit} (measured)"}
        return replace(one, status="confirmed", basis="measured", kind=one.kind or "choke", path=path, paths=(path,), cell=place,
                       line=line or None, evidence=evidence)  # fmt: skip

    def named(self, name: str) -> tuple[int, int]:
        """The first cell and line that call something of this name."""
        calls = [
            (number, node.lineno)
            for number, tree in self.trees.items()
            for node in ast.walk(tree or _EMPTY)
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name
        ]
        return min(calls, default=(0, 0))

    def repeats(self, number: int, line: int) -> bool:
        """Whether a line stands in a loop or a function: what a cell does once, such as an import, is no choke."""
        loops = (ast.For, ast.While, ast.FunctionDef, ast.ListComp)
        nodes = [node for node in ast.walk(self.trees.get(number) or _EMPTY) if isinstance(node, loops)]
        return any(node.lineno <= line <= (node.end_lineno or node.lineno) for node in nodes)


def _frozen(figures: Figures, evidence: dict[str, Any]) -> float | None:
    """What running the frozen part once saves of all epochs that the code asks for; without augmentation loading goes with it."""
    epochs = max(float(evidence.get("epochs") or 0), figures.epochs)
    nets = [part for part in figures.recording.modules if part.num_params]
    parts = [part for part in nets if not part.in_evaluation] or nets  # a frozen network is often left in evaluation mode
    idle = {part.name: part.seconds_per_step for part in parts if not part.num_in_optimizer}
    outermost = [name for name in idle if not any(name.startswith(f"{other}.") for other in idle)]
    roots_s = sum(part.seconds_per_step for part in parts if part.depth == 0)
    if not roots_s:
        return None
    share = min(1.0, per(sum(idle[name] for name in outermost), roots_s))
    seconds = share * (figures.forward_s + figures.total_s("evaluate_s"))
    if share > 0.5 and evidence.get("augmentation") == []:
        seconds += figures.inline_s
    return (1 - 1 / epochs) * per(min(seconds, figures.span_s), figures.span_s)


def _cell_of(file: str) -> int:
    """The number in `leaves.ipynb#cell7`; 0 for a script."""
    _, found, number = file.rpartition("#cell")
    return int(number) if found and number.isdecimal() else 0
