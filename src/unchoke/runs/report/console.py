"""Everything a command says, on the stream where it belongs. The only file that prints.

Text: results on stdout; events, progress and errors on stderr, redrawn in one line when stderr is a terminal, plain lines every
few seconds otherwise. JSON: one object per line on stdout, the last one the result or the error, and stderr stays silent.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from unchoke.core.errors import MachineError, UnchokeError
from unchoke.core.events import Chosen, Event, Note, Progress, StageDone, StageStarted
from unchoke.core.units import format_seconds
from unchoke.runs.report.json import SCHEMA, dump_event, dump_line
from unchoke.runs.report.layout import visible, visible_block
from unchoke.runs.report.view import format_value

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

_REDRAW_EVERY_S = 0.1
_JSON_EVERY_S = 0.5
_PLAIN_EVERY_S = 5.0
_STAGE_AFTER_FAILURES = "train"  # what cannot be read was set aside before it begins
_UNITS_THAT_FAIL = {"images", "files", "samples", "jobs", "tiles"}


class Console:
    """Shows events, results and errors of one command. Safe to call from several threads."""

    def __init__(
        self,
        *,
        json: bool = False,
        quiet: bool = False,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._json = json
        self._quiet = quiet
        self._stdout = stdout if stdout is not None else sys.stdout
        self._stderr = stderr if stderr is not None else sys.stderr
        self._clock = clock
        self._lock = threading.RLock()
        self._redraws = not json and _is_terminal(self._stderr)
        self._line_open = False
        self._shown_at: dict[str, float] = {}
        self._unshown: Progress | None = None
        self._rich: RichConsole | None = None

    def on_event(self, event: Event) -> None:
        """Show one event; progress is thinned out, its last state never lost."""
        if self._quiet and not (isinstance(event, Note) and event.level == "warning"):
            return
        with self._lock:
            if isinstance(event, Progress):
                self._progress(event)
                return
            self._flush_progress()
            if self._json:
                self._answer(dump_event(event))
            else:
                line, style = _event_line(event)
                self._say(line, style=style)

    def pass_on(self, line: str) -> None:
        """A line of JSON that another process wrote, as it is."""
        with self._lock:
            self._answer(line)

    def result(self, command: str, result: Mapping[str, Any], text: str, *, ok: bool = True) -> None:
        """The command's result: `text` for people, or `result` as the last JSON line."""
        with self._lock:
            self._flush_progress()
            if self._json:
                self._answer(dump_line({"schema": SCHEMA, "command": command, "ok": ok, "result": result}))
            elif text:
                self._answer(visible_block(text).rstrip("\n"))

    def notice(self, text: str) -> None:
        """Text that is no result, such as a help page nobody asked for by name."""
        with self._lock:
            _write(self._stderr, text)

    def bug(self, command: str, text: str) -> None:
        """An error that is ours: its traceback on stderr in either mode, and for JSON readers a last line that says so."""
        with self._lock:
            self._flush_progress()
            self._tell(text)
            if self._json:
                why = text.strip().splitlines()[-1]
                self._answer_error(command, "bug", "a bug in unchoke", why, "report it", exit_code=70)

    def error(self, command: str, error: UnchokeError) -> None:
        """What happened, why, and what to try: three lines on stderr, or one JSON line on stdout."""
        with self._lock:
            self._flush_progress()
            if self._json:
                self._answer_error(command, error.code, error.what, error.why, error.try_, exit_code=error.exit_code)
                return
            self._say(_labelled("error", f"{error.what} [{error.code}]"), style="bold red")
            self._say(_labelled("why", error.why))
            self._say(_labelled("try", error.try_))

    def _answer_error(self, command: str, code: str, what: str, why: str, try_: str, *, exit_code: int) -> None:
        error = {"code": code, "what": what, "why": why, "try": try_, "exit_code": exit_code}
        self._answer(dump_line({"schema": SCHEMA, "command": command, "ok": False, "error": error}))

    def _progress(self, event: Progress) -> None:
        every_s = _JSON_EVERY_S if self._json else _REDRAW_EVERY_S if self._redraws else _PLAIN_EVERY_S
        shown_at = self._shown_at.get(event.stage)
        now = self._clock()
        if shown_at is None and not (self._json or self._redraws):
            self._shown_at[event.stage] = shown_at = now
        finished = event.done >= event.total
        if shown_at is not None and now - shown_at < every_s and not finished:
            self._unshown = event
            return
        self._shown_at[event.stage] = now
        self._show_progress(event)

    def _show_progress(self, event: Progress) -> None:
        self._unshown = None
        if self._json:
            self._answer(dump_event(event))
        elif self._redraws:
            self._redraw(progress_line(event))
        else:
            self._say(progress_line(event))

    def _flush_progress(self) -> None:
        """Show the state that was held back, and leave the redrawn line behind."""
        if self._unshown is not None:
            self._show_progress(self._unshown)
        if self._line_open:
            self._stderr.write("\n")
            self._stderr.flush()
            self._line_open = False

    def _answer(self, line: str) -> None:
        """A line on stdout. One that cannot be written is an error: whoever reads it would take half an answer for the whole."""
        if self._stdout is None:  # closed by whoever started us (`>&-`)
            self._json = False
            raise no_stdout("it is closed")
        try:
            _write(self._stdout, line)
        except BrokenPipeError:
            raise
        except OSError as error:
            silence(self._stdout)
            self._json = False  # then the error is told where there is room for it
            raise no_stdout(error.strerror or str(error)) from error

    def _tell(self, line: str) -> None:
        """A line on stderr. Where that cannot be written there is nowhere left to say so, and the work goes on."""
        if self._stderr is None:
            return
        try:
            _write(self._stderr, line)
        except BrokenPipeError:
            if self._stdout is None or reader_left(self._stdout):
                raise
            silence(self._stderr)
        except OSError:
            silence(self._stderr)

    def _say(self, line: str, *, style: str = "") -> None:
        if not self._redraws:
            self._tell(line)
            return
        from rich.text import Text

        self._terminal().print(Text(line, style=style), soft_wrap=True)

    def _redraw(self, line: str) -> None:
        """Overwrite the current line: no cursor hiding and no thread, so a kill leaves the terminal as it was."""
        from rich.control import Control
        from rich.segment import ControlType
        from rich.text import Text

        terminal = self._terminal()
        text = Text(line, no_wrap=True, overflow="ellipsis", end="")
        text.truncate(max(1, terminal.width - 1), overflow="ellipsis")
        terminal.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
        terminal.print(text, end="")
        self._line_open = True

    def _terminal(self) -> RichConsole:
        if self._rich is None:
            from rich.console import Console as RichConsole

            colourless = bool(os.environ.get("NO_COLOR"))
            self._rich = RichConsole(file=self._stderr, highlight=False, markup=False, emoji=False, no_color=colourless)
        return self._rich


def progress_line(event: Progress) -> str:
    """``extract  1,088/1,393 images  17/22 jobs  312 images/s  1.0 s left  0 failed``."""
    parts = [visible(event.stage), f"{event.done:,}/{event.total:,} {visible(event.unit)}", *_extra_parts(event.extra)]
    if event.rate_per_s is not None:
        rate = f"{event.rate_per_s:,.0f}" if event.rate_per_s >= 10 else f"{event.rate_per_s:.1f}"
        parts.append(f"{rate} {visible(event.unit)}/s")
    if event.left_s is not None and event.done < event.total:
        parts.append(f"{format_seconds(event.left_s)} left")
    if event.failed or (event.unit in _UNITS_THAT_FAIL and event.stage != _STAGE_AFTER_FAILURES):
        parts.append(f"{event.failed:,} failed")
    return "  ".join(parts)


def _extra_parts(extra: Mapping[str, Any]) -> list[str]:
    """``{"jobs": (17, 22)}`` or ``{"jobs_done": 17, "jobs_total": 22}`` as ``17/22 jobs``; others by name and value."""
    parts = []
    for key, value in extra.items():
        stem = key.removesuffix("_done")
        if isinstance(value, tuple | list) and len(value) == 2:
            parts.append(f"{value[0]:,}/{value[1]:,} {key}")
        elif stem != key and f"{stem}_total" in extra:
            parts.append(f"{value:,}/{extra[f'{stem}_total']:,} {stem}")
        elif not (key.endswith("_total") and f"{key.removesuffix('_total')}_done" in extra):
            share = f"{100 * value:.0f} %" if key.endswith("_share") and isinstance(value, float) else ""
            text = share or (f"{value:.3g}" if isinstance(value, float) else format_value(value))
            parts.append(f"{key.removesuffix('_share').replace('_', ' ')} {text}")
    return [visible(part) for part in parts]


def _event_line(event: StageStarted | StageDone | Chosen | Note) -> tuple[str, str]:
    """What is shown, and in which style on a terminal."""
    if isinstance(event, StageStarted):
        return "  ".join(visible(part) for part in (event.stage, event.detail) if part), "bold"
    if isinstance(event, StageDone):
        parts = (event.stage, f"done in {format_seconds(event.seconds)}", event.detail)
        return "  ".join(visible(part) for part in parts if part), "green"
    if isinstance(event, Chosen):
        choice = event.choice
        return f"{visible(choice.name)} = {visible(format_value(choice.value))}  ({visible(choice.reason)})", "dim"
    warns = event.level == "warning"
    return _labelled("warning" if warns else "note", event.text), "yellow" if warns else ""


def _labelled(label: str, text: str) -> str:
    """The label and the text in a fixed column; further lines of the text keep that column."""
    column = max(7, len(label) + 2)
    return f"{label:<{column}}{visible_block(text)}".replace("\n", "\n" + " " * column)


def no_stdout(why: str) -> MachineError:
    return MachineError(
        "the answer cannot be written to stdout",
        code="stdout-closed",
        why=why,
        try_="let stdout go to a file on a disk with room, or to a terminal; what was done is kept, and is not done again",
    )


def reader_left(stream: TextIO) -> bool:
    """Whether whoever read this stream is gone (`| head`)."""
    try:
        number = stream.fileno()
        poll = select.poll()
    except (OSError, AttributeError):  # no real stream, or no such call on this system
        return False
    poll.register(number, select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def silence(stream: TextIO) -> None:
    """Write nothing more there, not even what Python holds back until it exits."""
    try:
        number = stream.fileno()
    except (OSError, AttributeError):  # no real stream
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def _is_terminal(stream: TextIO) -> bool:
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty()) and os.environ.get("TERM") != "dumb"


def _write(stream: TextIO, line: str) -> None:
    """One whole line at once; characters the stream's encoding lacks are written as escapes."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)
