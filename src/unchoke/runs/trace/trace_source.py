"""A torch.profiler trace file, read: its spans, its memory events, the names of threads, what the head of the file says.

In: a Chrome trace as torch writes it (`*.pt.trace.json`), of any version, from any device. Out: a `TraceSource`, all times in
nanoseconds from the first event. A file without anything of torch is a `DataError`; single events that make no sense are left
out and counted. The file may be plain or gzipped, an object or a bare list; what cannot be read is an explained error. Nothing is
summed up here.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unchoke.core.errors import DataError, UsageError
from unchoke.core.input_file import refuse_special
from unchoke.core.units import format_count
from unchoke.runs.trace.spans import (
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
OWN_NOTES = "unchoke"
RECORD_ONE = (
    "with torch.profiler.profile(record_shapes=True, profile_memory=True) as p: …; p.export_chrome_trace('one.pt.trace.json')"
)
"""How to make a trace, as a person would type it."""


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
class TraceSource:
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

    @property
    def own(self) -> Mapping[str, Any]:
        """What a training of ours noted beside its events: how many `steps` were planned, and whose kernels are `unseen`."""
        found = self.head.get(OWN_NOTES)
        return found if isinstance(found, dict) else {}


def load_source(path: Path) -> TraceSource:
    """Read a trace file; one that is missing, damaged, or not of torch is an explained error."""
    head, events = _load_events(path)
    stamps = [event["ts"] for event in events if _is_timed(event)]
    first_us = min(stamps, default=0.0)
    source = TraceSource(path.name, head, slack_ns=_COARSE_NS if first_us > _EXACT_US else 0)
    for event in events:
        _take(source, event, first_us)
    if not any(span.kind in {OPERATOR, ANNOTATION, KERNEL} for span in source.spans):
        held = format_count(len(events), "event")
        why = f"it holds {held}, none of them an operator, a kernel or an annotation as torch.profiler writes them"
        raise DataError(f"no trace of torch.profiler: {path}", code="not-a-trace", why=why, try_=RECORD_ONE)
    source.duration_ns = max(span.end_ns for span in source.spans)
    return source


def _is_timed(event: Mapping[str, Any]) -> bool:
    """Metadata and flow arrows have times too, but nothing happens there; whole-trace spans are not of any thread."""
    return event.get("ph") in ("X", "i") and event.get("cat") not in (None, "Trace") and _is_number(event.get("ts"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _ABSURD


def _take(source: TraceSource, event: Mapping[str, Any], first_us: float) -> None:
    phase, args = event.get("ph"), event.get("args")
    facts = args if isinstance(args, dict) else {}
    thread = (str(event.get("pid", "")), str(event.get("tid", "")))
    if phase == "M":
        _take_name(source, str(event.get("name")), thread, facts)
    elif phase == "X":
        _take_span(source, event, thread, facts, first_us)
    elif phase == "i" and event.get("name") == _MEMORY_EVENT:
        _take_memory(source, event, thread, facts, first_us)


def _take_name(source: TraceSource, what: str, thread: Thread, facts: Mapping[str, Any]) -> None:
    if what == "process_labels":
        source.labels[thread[0]] = str(facts.get("labels", "")).strip()
    elif what == "thread_name":
        source.threads.setdefault(thread, str(facts.get("name", "")).strip())  # the first is the more telling one


def _take_span(source: TraceSource, event: Mapping[str, Any], thread: Thread, facts: Mapping[str, Any], first_us: float) -> None:
    category = str(event.get("cat")).lower()
    kind = RUNTIME if category.endswith("_runtime") else _KINDS.get(category)
    name, length_us = event.get("name"), event.get("dur", 0)
    if kind is None or (isinstance(name, str) and name in _HIDDEN):
        return
    if not (isinstance(name, str) and _is_timed(event) and _is_number(length_us) and length_us >= 0):
        source.unread += 1
        return
    start_ns = round((event["ts"] - first_us) * 1000)
    number = facts.get("External id", facts.get("external id"))
    link = number if isinstance(number, int) else 0
    span = Span(kind, name, thread, start_ns, start_ns + round(length_us * 1000), link=link)
    if kind == OPERATOR:
        span.detail = shapes_text(facts.get("Input Dims", facts.get("Input dims")))
    elif kind in {KERNEL, COPY, FILL}:
        span.facts = dict(facts)
    source.spans.append(span)


def _take_memory(
    source: TraceSource, event: Mapping[str, Any], thread: Thread, facts: Mapping[str, Any], first_us: float
) -> None:
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
        shown = list(dict.fromkeys(inner))
        some = ", ".join(shown[:3]) + (", …" if len(shown) > 3 else "")
        return f"{len(inner)} of {inner[0]}" if len(shown) == 1 else f"{len(inner)} tensors ({some})"
    return "×".join(str(size) for size in shape)


def _load_events(path: Path) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """The head of the file and its events; both forms of the format are read."""
    value = _parse(path, _bytes(path))
    head = value if isinstance(value, dict) else {}
    found = value.get("traceEvents") if isinstance(value, dict) else value
    if not isinstance(found, list):
        raise DataError(
            f"no trace: {path}", code="not-a-trace", why="it is JSON, but holds no list `traceEvents`", try_=RECORD_ONE
        )
    events = [event for event in found if isinstance(event, dict)]
    return {key: item for key, item in head.items() if key != "traceEvents"}, events


def _bytes(path: Path) -> bytes:
    try:
        refuse_special(path)
        packed = path.read_bytes()
        return gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed
    except FileNotFoundError:
        try_ = "name a *.pt.trace.json file; those of unchoke's own runs lie in logs/profiler/ of the workspace"
        raise UsageError(
            f"there is no file {path}", code="no-such-file", why="a trace is one file that torch.profiler wrote", try_=try_
        ) from None
    except IsADirectoryError:
        why = "it is a folder; a trace is one file"
        raise UsageError(
            f"cannot read {path} as a trace", code="not-a-trace", why=why, try_="name one *.pt.trace.json file in it"
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, f"its compressed data is cut off or damaged: {error}") from None
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from None


def _parse(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except UnicodeDecodeError:
        raise _damaged(path, "it is not text") from None
    except RecursionError:
        raise _damaged(path, "its values lie too deep inside each other for a trace") from None
    except json.JSONDecodeError as error:
        cut = error.pos >= len(error.doc.rstrip()) - 1 or error.msg.startswith("Unterminated")
        why = (
            "it ends in the middle: the program was stopped while it wrote the file" if cut else f"it is not valid JSON: {error}"
        )
        raise _damaged(path, why) from None


def _damaged(path: Path, why: str) -> DataError:
    return DataError(f"cannot read the trace {path}", code="damaged-trace", why=why, try_=f"record it again: {RECORD_ONE}")
