"""A torch.profiler trace file, read: its spans and how those of a thread lie inside each other, memory events, names of threads.

In: a Chrome trace as torch writes it (`*.pt.trace.json`, plain or gzipped), of any version, from any device. Out: a
`TraceSource`, all times in whole nanoseconds from the first event, so that nothing is inside another only by rounding. A file
without anything of torch is a `DataError`; single events that make no sense are left out and counted. Nothing is summed up here.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from unchoke.core.errors import DataError, UsageError
from unchoke.core.input_file import parse_json, refuse_special
from unchoke.core.units import format_count

OPERATOR, ANNOTATION, RUNTIME, PYTHON = "operator", "annotation", "runtime", "python"
KERNEL, COPY, FILL, DEVICE_MARK = "kernel", "copy", "fill", "device mark"
CALLS = frozenset({OPERATOR, ANNOTATION, RUNTIME})
"""What runs on a thread of the processor and is counted among the operators."""
DEVICE_WORK = frozenset({KERNEL, COPY, FILL})
"""What keeps a device busy."""
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
_HIDDEN = {
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
}
"""What torch leaves out of its own tables."""
_EXACT_US, _COARSE_NS = 2**53 / 1000, 1000
"""Above this, times are counted from 1970, as earlier versions of torch did, and rounded to a microsecond or a part of one."""
_ABSURD = 1e18
OWN_NOTES = "unchoke"
RECORD_ONE = (
    "with torch.profiler.profile(record_shapes=True, profile_memory=True) as p: …; p.export_chrome_trace('one.pt.trace.json')"
)
"""How to make a trace, as a person would type it."""
Thread = tuple[str, str]
"""Process and thread on the processor; device and stream on a device."""


@dataclass(slots=True, eq=False)
class Span:
    """One event with a length. `parent`, `children` and `same_as` are filled in by `nest_calls`."""

    kind: str
    name: str
    thread: Thread
    start_ns: int
    end_ns: int
    link: int = 0
    """The number that ties a kernel to the operator that launched it; 0 without."""
    detail: str = ""
    facts: dict[str, object] = field(default_factory=dict)
    parent: Span | None = None
    children: list[Span] = field(default_factory=list)
    same_as: Span | None = None

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


ThreadCalls = Mapping[Thread, list[Span]]
"""The calls of each thread, outer ones first, nested."""


class MemoryEvent(NamedTuple):
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


def by_thread(spans: Iterable[Span]) -> dict[Thread, list[Span]]:
    """The spans of each thread, outer ones before the inner ones they hold."""
    threads: dict[Thread, list[Span]] = {}
    for span in spans:
        threads.setdefault(span.thread, []).append(span)
    for found in threads.values():
        found.sort(key=lambda span: (span.start_ns, -span.end_ns))
    return threads


def nest_calls(spans: Iterable[Span], *, slack_ns: int = 0) -> ThreadCalls:
    """Operators, annotations and runtime calls of each thread, each with its parent: the innermost one that holds it whole.

    With slack, one that seems to end a little later than its parent ends with it. A span that is the only thing inside another
    of the same name is one call with it, as in torch's own tables: its children become the outer one's.
    """
    threads = by_thread(span for span in spans if span.kind in CALLS)
    for ordered in threads.values():
        open_spans: list[Span] = []
        for span in ordered:
            while open_spans and (span.start_ns >= open_spans[-1].end_ns or span.end_ns > open_spans[-1].end_ns + slack_ns):
                open_spans.pop()
            if open_spans:
                span.parent = open_spans[-1]
                span.end_ns = min(span.end_ns, span.parent.end_ns)
                span.parent.children.append(span)
            open_spans.append(span)
        for span in ordered:
            outer = span.parent
            if outer is not None and outer.name == span.name and len(outer.children) == 1:
                outer.children, span.same_as = span.children, outer
                for child in span.children:
                    child.parent = outer
    return threads


# -- the file ------------------------------------------------------------------------------------------------------------------


def load_source(path: Path) -> TraceSource:
    """Read a trace file; one that is missing, damaged, or not of torch is an explained error."""
    head, events = _load_events(path)
    first_us = min((event["ts"] for event in events if _is_timed(event)), default=0.0)
    source = TraceSource(path.name, head, slack_ns=_COARSE_NS if first_us > _EXACT_US else 0)
    for event in events:
        args, phase, name = event.get("args"), event.get("ph"), event.get("name")
        facts: Mapping[str, Any] = args if isinstance(args, dict) else {}
        thread = (str(event.get("pid", "")), str(event.get("tid", "")))
        if phase == "M" and name == "process_labels":
            source.labels[thread[0]] = str(facts.get("labels", "")).strip()
        elif phase == "M" and name == "thread_name":
            source.threads.setdefault(thread, str(facts.get("name", "")).strip())  # the first is the more telling one
        elif phase == "X":
            _take_span(source, event, thread, facts, first_us)
        elif phase == "i" and name == "[memory]":
            _take_memory(source, event, thread, facts, first_us)
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
    elif kind in DEVICE_WORK:
        span.facts = dict(facts)
    source.spans.append(span)


def _take_memory(
    source: TraceSource, event: Mapping[str, Any], thread: Thread, facts: Mapping[str, Any], first_us: float
) -> None:
    kind, device, num_bytes = (facts.get(name) for name in ("Device Type", "Device Id", "Bytes"))
    if not (_is_timed(event) and isinstance(kind, int) and isinstance(device, int) and isinstance(num_bytes, int)):
        source.unread += 1
        return
    totals = (facts.get(name) for name in ("Total Allocated", "Total Reserved"))
    allocated, reserved = (total if isinstance(total, int) else None for total in totals)
    at_ns = round((event["ts"] - first_us) * 1000)
    source.memory.append(MemoryEvent(thread, at_ns, num_bytes, kind, device, allocated, reserved))


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
    return sizes_text(shape)


def sizes_text(sizes: object) -> str:
    """``[12, 1, 1]`` as ``12×1×1``."""
    return "×".join(map(str, sizes)) if isinstance(sizes, list) else ""


def _load_events(path: Path) -> tuple[Mapping[str, Any], Sequence[dict[str, Any]]]:
    """The head of the file and its events; both forms of the format are read."""
    try:
        refuse_special(path)
        packed = path.read_bytes()
        value = parse_json(gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed)
    except FileNotFoundError:
        why = "a trace is one file that torch.profiler wrote"
        try_ = "name a *.pt.trace.json file; those of unchoke's own runs lie in logs/profiler/ of the workspace"
        raise UsageError(f"there is no file {path}", code="no-such-file", why=why, try_=try_) from None
    except IsADirectoryError:
        why, try_ = "it is a folder; a trace is one file", "name one *.pt.trace.json file in it"
        raise UsageError(f"cannot read {path} as a trace", code="not-a-trace", why=why, try_=try_) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, f"its compressed data is cut off or damaged: {error}") from None
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise _damaged(path, "it is not text") from None
    except json.JSONDecodeError as error:
        cut = error.pos >= len(error.doc.rstrip()) - 1 or error.msg.startswith("Unterminated")
        why = "it ends in the middle: the program was stopped while it wrote the file" if cut else f"it is no valid JSON: {error}"
        raise _damaged(path, why) from None
    except ValueError as error:
        raise _damaged(path, str(error)) from None
    head = value if isinstance(value, dict) else {}
    found = value.get("traceEvents") if isinstance(value, dict) else value
    if not isinstance(found, list):
        why = "it is JSON, but holds no list `traceEvents`"
        raise DataError(f"no trace: {path}", code="not-a-trace", why=why, try_=RECORD_ONE)
    events = [event for event in found if isinstance(event, dict)]
    return {key: item for key, item in head.items() if key != "traceEvents"}, events


def _damaged(path: Path, why: str) -> DataError:
    return DataError(f"cannot read the trace {path}", code="damaged-trace", why=why, try_=f"record it again: {RECORD_ONE}")
