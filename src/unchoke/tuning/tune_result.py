"""What `unchoke tune` answers: verdicts and what was gained; as plain values and as text.

Nothing here prints or measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from unchoke.core.tuned import TuningVerdicts, Verdict
from unchoke.core.units import format_count, format_seconds
from unchoke.runs.report.layout import columns, wrap
from unchoke.runs.report.view import format_value
from unchoke.tuning.compare import Speedup

REPORTED = {
    "train_precision": "1.5–5.5×",
    "compile": "1.4×",
    "channels_last": "5–15 %",
    "cache": "15–25 %",
    "pin_memory": "15 % (copies)",
}
"""Gains that are commonly reported: the first two by PyTorch, on data-centre GPUs, the others by tutorials."""
_HEADER = ("switch", "reported", "now", "tried", "how fast (95 %)", "equal", "verdict")


@dataclass(frozen=True)
class TunedPart:
    """One kind of work: every trial in order, and the winner against the beginning."""

    name: str
    trials: list[Verdict]
    whole: Speedup | None = None
    equality: str = ""
    """How the numbers of the way before compare with those of plain float32."""
    piece: str = ""
    """What was timed at once."""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": "images",
            "trials": [{"switch": one.switch, "reported": REPORTED.get(one.switch, ""), **one.to_dict()} for one in self.trials],
            "whole": asdict(self.whole) if self.whole else None,
            "equality": self.equality,
            "piece": self.piece,
            "seconds": self.seconds,
        }

    def verdicts(self) -> dict[str, Verdict]:
        """One for each switch: what was kept, else the best that was refused, else why nothing was tried."""
        rank = {"kept": 2, "refused": 1, "not tried": 0}
        return {one.switch: one for one in sorted(self.trials, key=lambda one: (rank[one.verdict], one.ratio or 0.0))}


@dataclass(frozen=True)
class TuneResult:
    """A verdict on every switch, with what was measured."""

    tuned: TuningVerdicts
    """What stands in `unchoke.toml` now."""
    parts: list[TunedPart]
    """What was tried, for the frozen part and the trained one."""
    workspace: Path
    """The folder it belongs to."""
    seconds: float
    """How long it took."""
    minutes: float
    """How long it was allowed to take."""
    next_command: str
    """The command to go on with."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know beside it."""
    already_done: bool = False
    """Whether all of it was tried before."""
    dry_run: bool = False
    """Whether nothing was tried."""

    def to_dict(self) -> dict[str, Any]:
        parts = {"parts": [part.to_dict() for part in self.parts], "workspace": str(self.workspace)}
        return {**vars(self), **parts, "model": self.tuned.model, "tuned": self.tuned.to_dict()}

    def to_text(self) -> str:
        return render_tune(self.to_dict())


def render_tune(result: Mapping[str, Any]) -> str:
    """The whole answer."""
    found = result["tuned"].get("found_on", {})
    where = ", ".join(filter(None, (found.get("device"), f"torch {found['torch']}" if found.get("torch") else "")))
    if result["dry_run"]:
        taken = f"nothing was run: {format_seconds(60 * result['minutes'])} would be spent at most"
    elif result["already_done"]:
        taken = f"tuned already, on {result['tuned']['date']}; --again tries everything anew"
    else:
        over = "; what had begun by then was finished" if result["seconds"] > 60 * result["minutes"] else ""
        taken = f"took {format_seconds(result['seconds'])}, and {format_seconds(60 * result['minutes'])} were given{over}"
    parts = [f"{result['model']} on {where}" if where else str(result["model"]), *map(_render_part, result["parts"])]
    parts += [wrap(note, indent="") for note in result["notes"]]
    return "\n\n".join([*parts, f"tuning    {taken}\nnext      {result['next_command']}"])


def _render_part(part: Mapping[str, Any]) -> str:
    """The table, each reason once with everything it is about, and what was gained as a whole."""
    trials, reasons = part["trials"], dict[str, dict[str, None]]()
    for trial in trials:
        if not trial["reason"].startswith("not faster"):  # that stands in the table
            reasons.setdefault(trial["reason"], {})[str(trial["switch"])] = None
    timed = f"; timed in pieces of {part['piece']}" if part["piece"] else ""
    kept = sum(trial["verdict"] == "kept" for trial in trials)
    tried = format_count(sum(trial["verdict"] != "not tried" for trial in trials), "trial")
    lines = [
        wrap(f"{part['name'].capitalize()}: {tried}, {kept} kept{timed}", indent=""),
        columns(list(map(_row, trials)), header=_HEADER, right=(4,)) if trials else "nothing to try",
        "",
        *(wrap(f"{', '.join(names)}: {reason}", indent="  ") for reason, names in reasons.items()),
        "",
    ]
    if part["equality"]:
        lines.append(wrap(f"as it runs untuned: {part['equality']}", indent=""))
    if whole := part["whole"]:
        speed = f"{whole['ratio']:.2f}× ({whole['low']:.2f}–{whole['high']:.2f}) as fast as before"
        rates = [1 / whole[name] if whole[name] else 0.0 for name in ("plain_s", "trick_s")]
        before, after = (f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}" for rate in rates)
        lines.append(f"together: {speed}, {before} → {after} images/s")
    return "\n".join(lines).rstrip()


def _row(trial: Mapping[str, Any]) -> Sequence[str]:
    """One line of the table."""
    ratio, interval = trial.get("ratio"), trial.get("interval")
    speed = f"{ratio:.2f}× ({interval[0]:.2f}–{interval[1]:.2f})" if ratio is not None and interval else ""
    unequal = trial["reason"].startswith("unequal")
    equal = "" if trial["verdict"] == "not tried" or not trial.get("equality") else "no" if unequal else "yes"
    now, tried = (format_value(trial[name]) if trial.get(name) is not None else "" for name in ("now", "value"))
    return str(trial["switch"]), str(trial.get("reported", "")), now, tried, speed, equal, str(trial["verdict"])
