"""Where a script's time went, as plain text: the parts of a step, the parts of loading, counts per sample, head-room, findings.

In comes the dictionary of a script's profile, out comes text. Nothing is computed here but words, and nothing printed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unchoke.core.units import format_bytes, format_count, format_seconds
from unchoke.reports.layout import columns, wrap
from unchoke.reports.text import render_findings

_BAR = 30
_SHOWN_SHARE = 0.001
_STAGES = {
    "wait": "waiting for data",
    "copy": "copy to device",
    "evaluate": "evaluation",
    "handover": "hand-over",
    "list": "listing folders",
    "stat": "looking for files",
    "open": "opening files",
    "read": "reading",
    "decode": "decoding",
    "transform": "transforms",
    "collate": "collating",
    "python": "other Python",
}


def render_script_profile(record: Mapping[str, Any]) -> str:
    """Everything that is known, from the coarse to the fine; what is not known is left out."""
    rows = [*_sample_counts(record["per_sample"]), *_startup(record["loaders"]), *_readings(record)]
    parts = [
        _heading(record),
        _table("where a step's time went", "a step", record["step_parts"]),
        _table("inside loading", "a sample", record["loading_parts"]),
        columns(rows) if rows else "",
        wrap(_headroom(record), indent=""),
        render_findings(record["findings"]) if record["findings"] else "",
        _tail(record),
    ]
    return "\n\n".join(part for part in parts if part)


def _heading(record: Mapping[str, Any]) -> str:
    ended = f"stopped {record['stopped']}" if record["stopped"] else f"exit code {record['exit_code']}"
    steps = format_count(record["steps"], "step")
    line = f"{record['script']}: {steps} in {format_seconds(record['wall_s'])}, {ended}"
    if record["steps"]:
        return line
    return f"{line}\nno optimizer step of torch was seen, so there is no step to take apart"


def _table(title: str, per: str, parts: Sequence[Mapping[str, Any]]) -> str:
    shown = [part for part in parts if part["share"] >= _SHOWN_SHARE]
    if not shown:
        return ""
    rows = [
        (
            _STAGES.get(part["stage"], part["stage"]),
            _time(part["seconds"]),
            f"{part['share']:.1%}",
            "█" * round(part["share"] * _BAR),
        )
        for part in shown
    ]
    total_s = sum(part["seconds"] for part in parts)
    return columns([*rows, ("all", _time(total_s), "", "")], header=(title, f"time {per}", "share", ""), right=(1, 2))


def _time(seconds: float) -> str:
    if seconds >= 1:
        return format_seconds(seconds)
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def _sample_counts(found: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if found is None:
        return []
    again = found["opens_per_file"]
    opens = f"{found['opens']:.1f} a sample" + (f", each file {again:.1f} times" if again and again > 1.05 else "")
    rows = [
        ("files looked for", f"{found['stat']:.1f} a sample"),
        ("files opened", opens),
        ("bytes read", f"{format_bytes(found['read_bytes'])} a sample"),
    ]
    if found["decoded_px"] and found["used_px"]:
        ratio = found["decoded_px"] / found["used_px"]
        rows.append(("pixels decoded", f"{found['decoded_px']:,.0f} a sample for {found['used_px']:,} used ({ratio:.1f}×)"))
    rows.append(("page faults", f"{found['minor_faults']:.0f} a sample"))
    if found["system_share"] is not None:
        rows.append(("system time", f"{found['system_share']:.0%} of loading's CPU time"))
    return rows


def _startup(loaders: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    started = [loader for loader in loaders if loader["num_workers"] and loader["iterators"]]
    return [
        (
            "workers started",
            f"{format_seconds(loader['startup_s'] / loader['iterators'])} a pass, {format_count(loader['iterators'], 'time')} "
            f"({loader['dataset']}, {format_count(loader['num_workers'], 'worker')})",
        )
        for loader in started[:3]
    ]


def _readings(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not record["items_per_step"]:
        return []
    waits = "; each makes the CPU wait for the device" if record["device"] else ""
    return [("tensors read", f"{record['items_per_step']:.1f} a step (.item(), .cpu(), .numpy(), …){waits}")]


def _headroom(record: Mapping[str, Any]) -> str:
    found, note = record["headroom"], record["replay_note"]
    if found is None:
        return f"head-room  not measured: {note}" if note else ""
    times = found["step_s"] / found["free_s"] if found["free_s"] else 1.0
    return (
        f"head-room  a step takes {_time(found['step_s'])}; with loading for free (one batch, {found['steps']} steps) "
        f"{_time(found['free_s'])}: {times:.1f}× as fast, {found['share']:.0%} to gain"
    )


def _tail(record: Mapping[str, Any]) -> str:
    notes = [("note", note) for note in record["notes"][:6]]
    cost = record["watching"]
    own, inside, script = (format_seconds(cost[name]) for name in ("own_cpu_s", "inside_cpu_s", "script_cpu_s"))
    watched = (
        f"{cost['share']:.0%} more CPU time than the script alone ({script}): {own} of this command, {inside} inside the script "
        "(calls of hooks × the measured cost of one, looks at stacks)"
    )
    rows = [*notes, ("cost", watched), ("saved", record["files"]["recording"]), ("next", record["next_command"])]
    return "\n".join(f"{word:<8}{text}" for word, text in rows)
