"""What `unchoke tune` found, as plain text: a table of switches, what they gain together, the head-room, the next command.

In comes the result as plain values; nothing here prints or measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unchoke.core.units import format_count, format_seconds
from unchoke.reports.layout import columns, wrap
from unchoke.reports.text import format_value

_HEADER = ("switch", "now", "tried", "how fast (95 %)", "equal", "verdict")
_VERDICT_COLUMNS = len(_HEADER)


def render_tune(result: Mapping[str, Any]) -> str:
    """The whole answer."""
    found = result["tuned"].get("found_on", {})
    where = ", ".join(filter(None, (found.get("device"), f"torch {found['torch']}" if found.get("torch") else "")))
    parts = [f"{result['model']} on {where}" if where else str(result["model"])]
    parts += [_render_part(part) for part in result["parts"]]
    parts += [wrap(note, indent="") for note in result["notes"]]
    parts.append("\n".join(_ending(result)))
    return "\n\n".join(part for part in parts if part)


def _render_part(part: Mapping[str, Any]) -> str:
    trials = part["trials"]
    table = columns([_row(trial) for trial in trials], header=_HEADER, right=(3,)) if trials else "nothing to try"
    timed = f"; timed in pieces of {part['piece']}" if part["piece"] else ""
    lines = [wrap(f"{part['name'].capitalize()}: {_counted(trials)}{timed}", indent=""), table, ""]
    lines += [wrap(f"{', '.join(names)}: {reason}", indent="  ") for reason, names in _reasons(trials).items()]
    lines += ["", *_gains(part)]
    return "\n".join(lines).rstrip()


def _reasons(trials: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Each reason once, with everything it is about; that something is not faster stands in the table."""
    found: dict[str, dict[str, None]] = {}
    for trial in trials:
        if not trial["reason"].startswith("not faster"):
            found.setdefault(trial["reason"], {})[str(trial["switch"])] = None
    return {reason: list(names) for reason, names in found.items()}


def _counted(trials: Sequence[Mapping[str, Any]]) -> str:
    kept = sum(trial["verdict"] == "kept" for trial in trials)
    tried = sum(trial["verdict"] != "not tried" for trial in trials)
    return f"{format_count(tried, 'trial')}, {kept} kept"


def _row(trial: Mapping[str, Any]) -> tuple[str, ...]:
    """One line of the table."""
    ratio, interval = trial.get("ratio"), trial.get("interval")
    speed = f"{ratio:.2f}× ({interval[0]:.2f}–{interval[1]:.2f})" if ratio is not None and interval else ""
    unequal = trial["reason"].startswith("unequal")
    equal = "" if trial["verdict"] == "not tried" or not trial.get("equality") else "no" if unequal else "yes"
    now, tried = (format_value(trial[name]) if trial.get(name) is not None else "" for name in ("now", "value"))
    return str(trial["switch"]), now, tried, speed, equal, str(trial["verdict"])


def _gains(part: Mapping[str, Any]) -> list[str]:
    """What was gained as a whole, and how much of what loading costs."""
    lines = [wrap(f"as it runs untuned: {part['equality']}", indent="")] if part["equality"] else []
    whole, room = part["whole"], part["head_room"]
    if whole:
        speed = f"{whole['ratio']:.2f}× ({whole['low']:.2f}–{whole['high']:.2f}) as fast as before"
        lines.append(f"together: {speed}, {_rate(whole['plain_s'])} → {_rate(whole['trick_s'])} {part['unit']}/s")
    if room:
        lines.append(_head_room(room))
    return lines


def _head_room(room: Mapping[str, Any]) -> str:
    loading = f"loading takes {room['loading_share']:.0%} of the time"
    if room["after_s"] is None:
        return f"head-room: {loading} if nothing is tuned; there was no time to look again"
    if room["recovered_share"] is None:
        return f"head-room: {loading}, so there is next to nothing to recover from it"
    return f"head-room: {loading} if nothing is tuned; {room['recovered_share']:.0%} of that was recovered"


def _rate(seconds: float) -> str:
    rate = 1 / seconds if seconds else 0.0
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def _ending(result: Mapping[str, Any]) -> list[str]:
    if result["dry_run"]:
        taken = f"nothing was run: {format_seconds(60 * result['minutes'])} would be spent at most"
    elif result["already_done"]:
        taken = f"tuned already, on {result['tuned']['date']}; --again tries everything anew"
    else:
        taken = f"{format_seconds(result['seconds'])} of at most {format_seconds(60 * result['minutes'])}"
    return [f"tuning    {taken}", f"next      {result['next_command']}"]
