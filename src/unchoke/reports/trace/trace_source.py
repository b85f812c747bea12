"""A torch.profiler trace file, read: its spans, its memory events, the names of threads, what the head of the file says.

In: a Chrome trace as torch writes it (`*.pt.trace.json`), of any version, from any device. Out: a `Source`, all times in
nanoseconds from the first event. A file without anything of torch is a `DataError`; single events that make no sense are left
out and counted. Nothing is summed up here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unchoke.core.errors import DataError
from unchoke.core.units import format_count
from unchoke.reports.trace.spans import (
    ANNOTATION,
    COPY,
    DEVICE_MARK,
    FILL,
    KERNEL,
    OPERATOR,
    PYTHON,
    RUNTIME,
    Span,
    Thread,
)
from unchoke.reports.trace.trace_file import RECORD_ONE, load_events

_KINDS = {
    "cpu_op": OPERATOR,
    "operator": OPERATOR,  # as torch wrote it until 1.12; the next ones with a capital too
    "user_annotation": ANNOTATION,
    "runtime": RUNTIME,
    "cuda_driver": RUNTIME,
    "kernel": KERNEL,
    "gpu_memcpy": COPY,
    "memcpy": COPY,
    "gpu_memset": FILL,
    "memset": FILL,
    "gpu_user_annotation": DEVICE_MARK,
    "python_function": PYTHON,
    "python function": PYTHON,
}
_MEMORY_EVENT = "[memory]"
_HIDDEN = {
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
}
"""What torch leaves out of its own tables."""
_EXACT_US = 2**53 / 1000
"""Above this, times are counted from 1970, as earlier versions of torch did, and rounded to a microsecond or a part of one."""
_COARSE_NS = 1000
_ABSURD = 1e18


@dataclass(frozen=True)
class MemoryEvent:
    """One allocation (or release, negative) and the allocator's totals after it."""

    thread: Thread
    at_ns: int
    num_bytes: int
    device_type: int
    device: int
    allocated: int | None
    reserved: int | None


@dataclass
class Source:
    """What a file holds. `unread` counts events that make no sense: no time, a negative length, a name that is no text."""

    file: str
    head: Mapping[str, Any]
    spans: list[Span] = field(default_factory=list)
    memory: list[MemoryEvent] = field(default_factory=list)
    threads: dict[Thread, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    unread: int = 0
    duration_ns: int = 0
    slack_ns: int = 0
    """How far a call may seem to outlast the one it lies in, because times were rounded."""


def load_source(path: Path) -> Source:
    """Read a trace file; one that is missing, damaged, or not of torch is an explained error."""
    head, events = load_events(path)
    stamps = [event["ts"] for event in events if _is_timed(event)]
    first_us = min(stamps, default=0.0)
    source = Source(path.name, head, slack_ns=_COARSE_NS if first_us > _EXACT_US else 0)
    for event in events:
        _take(source, event, first_us)
    if not any(span.kind in {OPERATOR, ANNOTATION, KERNEL} for span in source.spans):
        held = format_count(len(events), "event")
        why = f"it holds {held}, none of them an operator, a kernel or an annotation as torch.profiler writes them"
        raise DataError(f"no trace of torch.profiler: {path}", why=why, try_=RECORD_ONE)
    source.duration_ns = max(span.end_ns for span in source.spans)
    return source


def _is_timed(event: Mapping[str, Any]) -> bool:
    """Metadata and flow arrows have times too, but nothing happens there; whole-trace spans are not of any thread."""
    return event.get("ph") in ("X", "i") and event.get("cat") not in (None, "Trace") and _is_number(event.get("ts"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _ABSURD


def _take(source: Source, event: Mapping[str, Any], first_us: float) -> None:
    phase, args = event.get("ph"), event.get("args")
    facts = args if isinstance(args, dict) else {}
    thread = (str(event.get("pid", "")), str(event.get("tid", "")))
    if phase == "M":
        _take_name(source, str(event.get("name")), thread, facts)
    elif phase == "X":
        _take_span(source, event, thread, facts, first_us)
    elif phase == "i" and event.get("name") == _MEMORY_EVENT:
        _take_memory(source, event, thread, facts, first_us)


def _take_name(source: Source, what: str, thread: Thread, facts: Mapping[str, Any]) -> None:
    if what == "process_labels":
        source.labels[thread[0]] = str(facts.get("labels", "")).strip()
    elif what == "thread_name":
        source.threads.setdefault(thread, str(facts.get("name", "")).strip())  # the first is the more telling one


def _take_span(source: Source, event: Mapping[str, Any], thread: Thread, facts: Mapping[str, Any], first_us: float) -> None:
    kind = _kind(event.get("cat"))
    name, length_us = event.get("name"), event.get("dur", 0)
    if kind is None or (isinstance(name, str) and name in _HIDDEN):
        return
    if not (isinstance(name, str) and _is_timed(event) and _is_number(length_us) and length_us >= 0):
        source.unread += 1
        return
    start_ns = round((event["ts"] - first_us) * 1000)
    span = Span(kind, name, thread, start_ns, start_ns + round(length_us * 1000), link=_link(facts))
    if kind == OPERATOR:
        span.detail = shapes_text(facts.get("Input Dims", facts.get("Input dims")))
    elif kind in {KERNEL, COPY, FILL}:
        span.facts = dict(facts)
    source.spans.append(span)


def _kind(category: object) -> str | None:
    word = str(category).lower()
    return RUNTIME if word.endswith("_runtime") else _KINDS.get(word)


def _link(facts: Mapping[str, Any]) -> int:
    number = facts.get("External id", facts.get("external id"))
    return number if isinstance(number, int) else 0


def _take_memory(source: Source, event: Mapping[str, Any], thread: Thread, facts: Mapping[str, Any], first_us: float) -> None:
    kind, device, num_bytes = (facts.get(name) for name in ("Device Type", "Device Id", "Bytes"))
    if not (_is_timed(event) and all(isinstance(value, int) for value in (kind, device, num_bytes))):
        source.unread += 1
        return
    allocated, reserved = (facts.get(name) for name in ("Total Allocated", "Total Reserved"))
    source.memory.append(
        MemoryEvent(
            thread,
            round((event["ts"] - first_us) * 1000),
            int(num_bytes or 0),
            int(kind or 0),
            int(device or 0),
            allocated if isinstance(allocated, int) else None,
            reserved if isinstance(reserved, int) else None,
        )
    )


def shapes_text(dims: object) -> str:
    """Shapes of an operator's tensors as a person writes them: ``16×3×64×64, 8×3×3×3``; scalars and empty slots are left out."""
    return ", ".join(filter(None, map(_shape_text, dims))) if isinstance(dims, list) else ""


def _shape_text(shape: object) -> str:
    if not isinstance(shape, list) or not shape:
        return ""
    if isinstance(shape[0], list):  # a list of tensors
        inner = [_shape_text(one) or "scalar" for one in shape]
        return f"{len(inner)} of {inner[0]}" if len(set(inner)) == 1 else f"{len(inner)} tensors ({_some(inner)})"
    return "×".join(str(size) for size in shape)


def _some(texts: Iterable[str]) -> str:
    shown = list(dict.fromkeys(texts))
    return ", ".join(shown[:3]) + (", …" if len(shown) > 3 else "")
