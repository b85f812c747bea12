"""A memory plan as plain text: what was measured, what was chosen and why, and after a run planned against measured.

Returns text, prints nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unchoke.core.units import format_bytes, format_count, format_seconds
from unchoke.machine.memory.memory_plan import MemoryPlan
from unchoke.machine.memory.probe import ProbeResult

_WAYS = {"train": "training", "train_ckpt": "with checkpointing", "evaluation": "evaluation"}
_ONE_TILE = "1×(1×1)"
_SHOWN = {"grad_ckpt": "checkpointing", "sub_batch": "at once", "eval_batch": "evaluation"}


def render_plan(plan: MemoryPlan) -> str:
    """The plan: its parts, and each choice with its reason."""
    choices = [(_SHOWN.get(one.name, one.name), f"{_value(one.value)}  ({one.reason})") for one in plan.choices]
    return "\n".join([render_parts(plan), "Chosen", *_rows(choices)]) + "\n"


def render_parts(plan: MemoryPlan) -> str:
    """What the planned peak is made of, and the limit it stays below."""
    sizes = [
        *((name, format_bytes(size)) for name, size in plan.parts.items()),
        ("planned", _planned(plan)),
        ("limit", f"{format_bytes(plan.limit_bytes)}, of which {format_bytes(plan.margin_bytes)} are a margin"),
    ]
    return "\n".join(["Memory", *_rows(sizes)])


def render_probes(plan: MemoryPlan) -> str:
    """What was measured, each batch size in a process of its own, and how fast it was."""
    probes = plan.probes
    named = [(name, getattr(probes, way)) for way, name in _WAYS.items()]
    lines = [
        line
        for name, found in named
        if found
        for line in [f"Measured: {name}", *_rows([(format_count(one.batch, "sample"), _outcome(one)) for one in found])]
    ]
    return "\n".join(lines) + "\n" if lines else ""


def render_budget(
    about: Mapping[str, Any],
    plan: MemoryPlan,
    fits: Mapping[str, int],
    *,
    fastest: Mapping[str, int] | None = None,
    others: Sequence[tuple[str, str]] = (),
) -> str:
    """The answer of `unchoke budget`: what fits, what the chosen step's memory is made of, and everything that was measured.

    `others` are operations beside the training, with what was counted of each.
    """
    trained = f"{about['num_trained']} of {about['num_blocks']} blocks" if about["num_blocks"] else "no blocks counted"
    shown = f"{about['input_px']} px" + ("" if about["tiles"] == _ONE_TILE else f", {about['tiles']} tiles")
    head = f"{about['encoder']}, --cut {about['cut']} ({trained} train), {shown}, {about['precision']} on {about['device']}"
    limit = f"{format_bytes(plan.limit_bytes)} ({about['limit_reason']})"
    answers = [(_WAYS[way], _answer(way, largest, plan, fastest)) for way, largest in fits.items()]
    counted = ["Other operations, counted and not measured", *_rows(others), ""] if others else []
    parts = [head, "", "What fits", *_rows([("limit", limit), *answers]), "", render_plan(plan), *counted, render_probes(plan)]
    return "\n".join(parts)


def _answer(way: str, largest: int, plan: MemoryPlan, fastest: Mapping[str, int] | None) -> str:
    probes: Sequence[ProbeResult] = getattr(plan.probes, way)
    if not largest:
        return "not even one sample"
    quickest = f"; fastest at {fastest[way]}: {_rate(probes, fastest[way]):,.1f} images/s" if fastest and way in fastest else ""
    tried = max(one.batch for one in probes if one.fits)
    beyond = "" if largest <= tried else f", by the line through what was measured up to {tried}"
    return f"{format_count(largest, 'sample')} at once{beyond}{quickest}"


def _rate(probes: Sequence[ProbeResult], batch: int) -> float:
    measured = next(one.measured for one in probes if one.batch == batch)
    return batch / measured.seconds_per_step if measured and measured.seconds_per_step else 0.0


def render_outcome(plan: MemoryPlan, measured_bytes: int, *, beside_bytes: int = 0) -> str:
    """After the run: planned against measured. `beside_bytes` were put on the card because the plan left them free."""
    expected = plan.planned_bytes + beside_bytes
    off = (measured_bytes - expected) / expected if expected else 0.0
    compared = "as planned" if abs(off) < 0.005 else f"{abs(off):.0%} {'more' if off > 0 else 'less'} than planned"
    if plan.counted and off <= 0:
        compared = "no more than that"
    over = measured_bytes - plan.limit_bytes
    kept = f"over the limit of {format_bytes(plan.limit_bytes)} by {format_bytes(over)}" if over > 0 else "within the limit"
    rows = [
        ("planned", _planned(plan)),
        *([("beside it", f"{format_bytes(beside_bytes)}: rows on the card and a recorded step")] if beside_bytes else []),
        ("measured", f"{format_bytes(measured_bytes)}, {compared}, {kept}"),
    ]
    return "\n".join(["Memory", *_rows(rows)])


def _planned(plan: MemoryPlan) -> str:
    return f"at most {format_bytes(plan.planned_bytes)}, counted" if plan.counted else format_bytes(plan.planned_bytes)


def _outcome(one: ProbeResult) -> str:
    if one.measured is None:
        return f"{one.outcome}: {one.fact}"
    seconds = one.measured.seconds_per_step
    speed = f", {one.batch / seconds:.1f} samples/s" if seconds else ""
    return f"{format_bytes(one.measured.peak_bytes)}, {format_seconds(seconds)} a step{speed}"


def _value(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _rows(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max((len(name) for name, _ in rows), default=0)
    return [f"  {name:<{width}}  {text}" for name, text in rows]
