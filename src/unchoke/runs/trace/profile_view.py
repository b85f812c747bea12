"""`unchoke profile view`: a torch.profiler trace of anybody's run as one HTML page and as a summary; two of them compared.

In: a `*.pt.trace.json` (or .gz) file, and another one to compare with. Out: the page, beside the trace unless asked otherwise,
and the record behind it. The traces are only read.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unchoke.core.errors import UsageError
from unchoke.core.output_file import output_file
from unchoke.runs.trace.trace_causes import find_causes
from unchoke.runs.trace.trace_html import render_trace_html
from unchoke.runs.trace.trace_record import TraceDiff, TraceRecord, compare_traces, read_trace
from unchoke.runs.trace.trace_text import render_trace

_ENDINGS = (".gz", ".json", ".trace", ".pt")


@dataclass(frozen=True)
class TraceView:
    """The page that was written, and what it shows."""

    trace: Path
    """The trace that was read."""
    html: Path
    """The page that was written."""
    record: TraceRecord
    """What the trace holds, summed up."""
    diff: TraceDiff | None
    """What changed since the earlier trace, where there is one."""

    def to_dict(self) -> dict[str, Any]:
        """Everything but the single events of strip and memory: those are in the trace itself."""
        record = self.record
        return {
            "trace": str(self.trace),
            "html": str(self.html),
            "about": asdict(record.about),
            "steps": [asdict(step) for step in record.steps],
            "mean_stages_us": record.mean_stages(),
            "findings": [finding.to_dict() for finding in find_causes(record)],
            "operators": [asdict(row) for row in record.operators],
            "kernels": [asdict(row) for row in record.kernels],
            "memory": [
                {"device": line.device, "peak_bytes": line.peak_bytes, "peak_at_us": line.peak_at_us} for line in record.memory
            ],
            "strip": {
                "rows": [row.name for row in record.strip.rows],
                "events": len(record.strip),
                "merged": record.strip.merged,
            },
            "diff": self.diff.to_dict() if self.diff else None,
        }

    def to_text(self) -> str:
        return f"{render_trace(self.record, self.diff)}\n\nlook    {self.html}"


def profile_view(trace: str | Path, *, against: str | Path | None = None, to: str | Path | None = None) -> TraceView:
    """A trace of any run as one HTML page: steps, operators, kernels, a zoomable strip, memory; a diff of two. No network.

    Args:
        trace: A trace that torch.profiler wrote: *.pt.trace.json, or the same gzipped.
        against: An earlier trace: show what changed since.
        to: The page to write (default: beside the trace, as .html).

    Returns:
        The page that was written, and what it shows.

    Example:
        >>> unchoke.profile_view("run.pt.trace.json", to="run.html").html.name
        'run.html'
    """
    trace, earlier = Path(trace), None if against is None else Path(against)
    html = _page_path(trace, None if to is None else Path(to))
    if html.exists() and any(html.samefile(file) for file in (trace, earlier) if file is not None and file.exists()):
        why = "the page would replace the trace it is made from"
        raise UsageError(
            f"{html} is the trace itself",
            code="output-is-input",
            why=why,
            try_=f"unchoke profile view {shlex.quote(str(trace))} --to view.html",
        )
    page = output_file(html, option="--to", example="view.html", sources=[trace, *([earlier] if earlier else [])])
    record = read_trace(trace)
    diff = None if earlier is None else compare_traces(read_trace(earlier), record)
    page.write_text(render_trace_html(record, diff))
    return TraceView(trace, html, record, diff)


def _page_path(trace: Path, to: Path | None) -> Path:
    """`run.pt.trace.json` gives `run.html`, beside it or in the folder that was named."""
    name = trace.name
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    beside = f"{name or 'trace'}.html"
    if to is None:
        return trace.parent / beside
    return to / beside if to.is_dir() else to
