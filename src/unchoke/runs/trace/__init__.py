"""What a torch.profiler trace says, as plain data. In: a trace file of anybody's run. Out: a `TraceRecord`. Renders nothing."""

from __future__ import annotations

from pathlib import Path

from unchoke.runs.trace.spans import OPERATOR, PYTHON, Span
from unchoke.runs.trace.strip import lay_out
from unchoke.runs.trace.trace_records import WHOLE, Step, TraceOrigin, TraceRecord
from unchoke.runs.trace.trace_source import TraceSource, load_source
from unchoke.runs.trace.trace_steps import missing_stages, split_steps
from unchoke.runs.trace.trace_sums import STEP, memory_lines, nest_calls, sum_kernels, sum_operators


def read_trace(path: Path) -> TraceRecord:
    """Everything the viewer shows, from one `*.pt.trace.json`, plain or gzipped."""
    source = load_source(path)
    calls = nest_calls(source.spans, slack_ns=source.slack_ns)
    steps, split_by = split_steps(calls, source.spans)
    return TraceRecord(
        about=_about(source, steps, split_by),
        steps=steps,
        operators=sum_operators(source.spans, calls, source.memory),
        kernels=sum_kernels(source.spans),
        strip=lay_out(source),
        memory=memory_lines(source.memory),
    )


def _about(source: TraceSource, steps: tuple[Step, ...], split_by: str) -> TraceOrigin:
    head, properties = source.head, source.head.get("deviceProperties")
    cards = [row for row in properties if isinstance(row, dict)] if isinstance(properties, list) else []
    # which steps of the run were recorded: the profiler numbers them from 0, skipped ones included
    numbers = [step.name.removeprefix(STEP) for step in steps if step.name.startswith(STEP)]
    schedule = f"steps {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else "".join(f"step {number}" for number in numbers)
    return TraceOrigin(
        file=source.file,
        duration_us=source.duration_ns / 1000,
        num_events=len(source.spans),
        devices=tuple(str(card["name"]) for card in cards if "name" in card),
        torch=str(head.get("torch_version") or head.get("pytorch_version") or ""),
        schedule=schedule,
        shapes=any(span.detail for span in source.spans) or bool(head.get("record_shapes")),
        memory=bool(source.memory),
        split_by=split_by,
        notes=tuple(_notes(source, steps)),
        cut_off=_cut_off(source, steps, numbers),
        unseen=source.own.get("unseen", "") or ("MPS" if any(map(_is_metal, source.spans)) else ""),
    )


def _cut_off(source: TraceSource, steps: tuple[Step, ...], numbers: list[str]) -> str:
    """What is missing of a recording that ended early, as its steps or its own plan show; else nothing."""
    planned, told = source.own.get("steps"), []
    if isinstance(planned, int) and len(numbers) < planned:
        told.append(f"{len(numbers)} of {planned} planned steps were recorded")
    if missing := missing_stages(steps):
        told.append(f"its last step has no {' and no '.join(missing)}, and is left out of the means")
    return "; ".join(told)


def _is_metal(span: Span) -> bool:
    """Whether an operator of torch says by its name that it ran on Apple's GPU."""
    return span.kind == OPERATOR and span.name.startswith(("aten::_mps_", "aten::mps_"))


def _notes(source: TraceSource, steps: tuple[Step, ...]) -> list[str]:
    notes = []
    if steps and steps[0].name == WHOLE:
        notes.append(
            "No ProfilerStep in this trace (the program never called the profiler's step()): the whole recording is one."
        )
    if any(span.kind == PYTHON for span in source.spans):
        notes.append("Python functions were recorded as well (with_stack): the strip draws them, the operators leave them out.")
    if source.unread:
        notes.append(f"Events that make no sense (no time, a negative length, no name) were left out: {source.unread:,}.")
    return notes
