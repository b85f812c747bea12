"""What bounds a step, by name: data, copying, augmenting, one operator, launching, the optimizer, memory or computing.

In: the seconds of a step by stage, and what a profiler measured of its operators, where one ran. Out: one `Bottleneck`, with the
shares it was read from. The first that holds is named, in the order in which removing one lets the next appear. Nothing is
measured here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from unchoke.core.findings import per

_WAITS, _COPIES, _PREPARES, _OPTIMIZES = 0.3, 0.2, 0.3, 0.25
"""From which share of a step on the stage bounds it."""
_IDLE_CARD = 0.5
_SMALL_CALL_S = 12e-6
"""Calling an operator takes some microseconds by itself: where the mean call is no longer, calling is what takes time."""
_MOVES = _DOMINATES = 0.5
_COMPUTES = ("conv", "mm", "linear", "matmul", "attention", "einsum")
_STEPS_WEIGHTS = ("Optimizer.", "aten::_fused_adam", "aten::_foreach_")
_HANDS_OVER = ("forward", "backward", "optimizer")


class MeasuredOperator(Protocol):
    """What a profiler says of one operator, over all steps it recorded."""

    @property
    def name(self) -> str: ...
    @property
    def calls(self) -> int: ...
    @property
    def self_cpu_s(self) -> float: ...
    @property
    def self_device_s(self) -> float: ...


@dataclass(frozen=True)
class Bottleneck:
    """What bounds a step: a name for it, what was seen, what may help, and whether that is a larger batch."""

    name: str
    stage: str
    what: str
    fix: str
    evidence: dict[str, Any] = field(default_factory=dict)
    wants_larger_batch: bool = False


def name_bottleneck(
    stages_s: Mapping[str, float], operators: Sequence[MeasuredOperator] = (), *, num_recorded: int = 0, num_steps: int = 1
) -> Bottleneck | None:
    """`num_steps` steps took `stages_s`, and `num_recorded` others were watched by a profiler. None where nothing took time."""
    total_s = sum(stages_s.values())
    if total_s <= 0:
        return None
    shares = {stage: seconds / total_s for stage, seconds in stages_s.items()}
    by_stage = _by_stage(shares)
    if by_stage is not None and by_stage.name != "optimizer-bound":
        return by_stage
    by_operators = (
        _by_operators(operators, shares, step_s=total_s / num_steps, num_recorded=num_recorded) if num_recorded else None
    )
    if by_operators is not None and by_operators.name != "memory-bound":
        return by_operators
    return by_stage or by_operators or _computing(shares)


def _by_stage(shares: Mapping[str, float]) -> Bottleneck | None:
    """What the clocks of the training alone tell."""
    wait, copy, prepare, optimizer = (shares.get(stage, 0.0) for stage in ("wait", "copy", "prepare", "optimizer"))
    seen = {"shares": {stage: round(share, 4) for stage, share in shares.items()}}
    if wait >= _WAITS:
        return Bottleneck(
            "data-bound",
            "wait",
            f"{wait:.0%} of a step is waiting for the next batch: reading and decoding are slower than the network",
            "more readers, decoded pixels that are kept (--cache disk), or smaller pictures; a faster device would wait longer",
            seen,
        )
    if copy >= _COPIES:
        return Bottleneck(
            "copy-bound",
            "copy",
            f"{copy:.0%} of a step is copying the batch to the device",
            "pinned memory and copies beside the computing are tried by tuning; smaller pictures move fewer bytes",
            seen,
        )
    if prepare >= _PREPARES:
        return Bottleneck(
            "augmentation-bound",
            "prepare",
            f"{prepare:.0%} of a step is augmenting and normalising",
            "a lighter --augment, or views that are augmented once and cached (--cut -4 --views 3): compare its score",
            seen,
        )
    if optimizer >= _OPTIMIZES:
        return Bottleneck(
            "optimizer-bound",
            "optimizer",
            f"{optimizer:.0%} of a step is moving the weights, whatever the batch: many weights, few samples",
            "larger batches take fewer such steps, a cut nearer the end trains fewer weights: compare its score",
            seen,
            wants_larger_batch=True,
        )
    return None


def _by_operators(
    operators: Sequence[MeasuredOperator], shares: Mapping[str, float], *, step_s: float, num_recorded: int
) -> Bottleneck | None:
    """What the calls of a step are made of."""
    calls = sum(one.calls for one in operators)
    device_s, cpu_s = sum(one.self_device_s for one in operators), sum(one.self_cpu_s for one in operators)
    on_card = device_s > 0
    busy, mean_s = per(device_s / num_recorded, step_s), per(cpu_s, calls)
    evidence = {"calls_per_step": round(calls / num_recorded), "mean_call_s": mean_s}
    if (one := _dominating(operators, on_card=on_card)) is not None:
        return one
    launching = sum(shares.get(stage, 0.0) for stage in _HANDS_OVER) >= 0.5
    if (on_card and busy < _IDLE_CARD and launching) or (not on_card and mean_s < _SMALL_CALL_S):
        seen = f"the card computes {busy:.0%} of a step" if on_card else f"the mean call takes {mean_s * 1e6:.0f} µs"
        return Bottleneck(
            "launch-bound",
            "forward",
            f"a step is {evidence['calls_per_step']:,} small operations, and {seen}: calling them takes longer than what they do",
            "larger batches give each call more to do (another training: compare its score), compiling merges calls",
            {**evidence, "device_busy_share": busy if on_card else None},
            wants_larger_batch=True,
        )
    moving = _moving_share(operators, on_card=on_card)
    if moving >= _MOVES:
        return Bottleneck(
            "memory-bound",
            "forward",
            f"{moving:.0%} of the operators' time goes to those that move numbers (norms, activations, additions, copies), "
            "not to convolutions and products",
            "memory layout, a shorter precision and compiling move fewer bytes: tuning keeps what is equal and faster",
            {**evidence, "moving_share": moving},
        )
    return None


def _dominating(operators: Sequence[MeasuredOperator], *, on_card: bool) -> Bottleneck | None:
    """One operator that takes most of the time and is no convolution or product."""
    spent = {one.name: one.self_device_s if on_card else one.self_cpu_s for one in operators}
    name = max(spent, key=lambda name: spent[name], default="")
    share = per(spent.get(name, 0.0), sum(spent.values()))
    if share < _DOMINATES or any(word in name for word in _COMPUTES) or name.startswith(_STEPS_WEIGHTS):
        return None
    return Bottleneck(
        "operator-bound",
        "forward",
        f"{share:.0%} of the operators' time is {name} alone",
        "the trace shows where it is called; where others compute on this machine too, it may be one that waited for a core",
        {"operator": name, "operator_share": share},
    )


def _moving_share(operators: Sequence[MeasuredOperator], *, on_card: bool) -> float:
    """The share of operators that hardly compute, of all that are not the optimizer's."""
    spent = [
        (one.self_device_s if on_card else one.self_cpu_s, any(word in one.name for word in _COMPUTES))
        for one in operators
        if not one.name.startswith(_STEPS_WEIGHTS)
    ]
    return per(sum(seconds for seconds, computes in spent if not computes), sum(seconds for seconds, _ in spent))


def _computing(shares: Mapping[str, float]) -> Bottleneck:
    share = sum(shares.get(stage, 0.0) for stage in (*_HANDS_OVER, "replay", "device"))
    return Bottleneck(
        "compute-bound",
        "forward",
        f"{share:.0%} of a step is forward, backward and optimizer, most of it convolutions and products",
        "memory layout, precision and compilation are tried on this network, and kept where they are equal and faster",
        {"compute_share": share},
    )
