"""Everything a command says, on the stream where it belongs. The only file that prints.

Text: results on stdout; events and errors on stderr: one line for each stage when it is over, with what was chosen for it, and
before that how far it is, redrawn with a bar on a terminal, as plain lines every few seconds otherwise. `verbose` gives every
choice its own line with its reason. JSON: one object per line on stdout, the last one the result or the error; stderr is silent.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError, UnchokeError
from unchoke.core.events import Chosen, Event, Note, Progress, StageDone, StageStarted
from unchoke.core.units import format_seconds
from unchoke.runs.report.json import SCHEMA, dump_event, dump_line
from unchoke.runs.report.layout import shorten, visible, visible_block, width
from unchoke.runs.report.view import format_value

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

_REDRAW_EVERY_S = 0.1
_JSON_EVERY_S = 0.5
_PLAIN_EVERY_S = 5.0
_STAGE_CELLS, _TIME_CELLS, _BAR_CELLS = 11, 9, 20
_LONGEST_VALUE = 40
_ONLY_WAITS = ("libraries",)
"""What was chosen before such a stage is shown with the next."""


class Console:
    """Shows events, results and errors of one command. Safe to call from several threads."""

    def __init__(
        self,
        *,
        json: bool = False,
        quiet: bool = False,
        verbose: bool = False,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._json, self._quiet, self._verbose = json, quiet, verbose
        self._stdout = stdout if stdout is not None else sys.stdout
        self._stderr = stderr if stderr is not None else sys.stderr
        self._clock = clock
        self._lock = threading.RLock()
        self._redraws = not json and _is_terminal(self._stderr)
        self._line_open = False
        self._shown_at: dict[str, float] = {}
        self._unshown: Progress | None = None
        self._last: dict[str, Progress] = {}
        self._details: dict[str, str] = {}
        self._chosen: list[Choice] = []
        self._rich: RichConsole | None = None

    def on_event(self, event: Event) -> None:
        """Show one event; progress is thinned out, its last state never lost."""
        if self._quiet and not (isinstance(event, Note) and event.level == "warning"):
            return
        with self._lock:
            if isinstance(event, Progress):
                self._progress(event)
                return
            self._leave_line(keep=self._json or self._verbose)
            if self._json:
                self._answer(dump_event(event))
            elif self._verbose or isinstance(event, Note):
                line, style = _event_line(event)
                self._say(line, style=style)
            elif isinstance(event, Chosen):
                self._chosen.append(event.choice)
            elif isinstance(event, StageStarted):
                self._details[event.stage] = event.detail
                begun = f"{visible(event.stage):<{_STAGE_CELLS}}{visible(event.detail)}".rstrip()
                (self._redraw if self._redraws else self._say)(begun)  # a log says where it was when it ended
            else:
                last, detail = self._last.pop(event.stage, None), self._details.pop(event.stage, "")
                chosen, self._chosen = ([], self._chosen) if event.stage in _ONLY_WAITS else (self._chosen, [])
                self._say_cut(stage_line(event, detail, last, chosen))

    def pass_on(self, line: str) -> None:
        """A line of JSON that another process wrote, as it is."""
        with self._lock:
            self._answer(line)

    def result(self, command: str, result: Mapping[str, Any], text: str, *, ok: bool = True) -> None:
        """The command's result: `text` for people, or `result` as the last JSON line."""
        with self._lock:
            self._leave_line(keep=True)
            if self._json:
                self._answer(dump_line({"schema": SCHEMA, "command": command, "ok": ok, "result": result}))
                return
            if self._chosen:
                self._say_cut(f"{'chosen':<{_STAGE_CELLS}}{_chosen_words(self._chosen)}")
            if text:
                self._answer(_fold(visible_block(text).rstrip("\n"), self._stdout))

    def notice(self, text: str) -> None:
        """Text that is no result, such as a help page nobody asked for by name."""
        with self._lock:
            _write(self._stderr, text)

    def bug(self, command: str, text: str) -> None:
        """An error that is ours: its traceback on stderr in either mode, and for JSON readers a last line that says so."""
        with self._lock:
            self._leave_line(keep=True)
            self._tell(text)
            if self._json:
                why = text.strip().splitlines()[-1]
                self._answer_error(command, "bug", "a bug in unchoke", why, "report it", exit_code=70)

    def error(self, command: str, error: UnchokeError) -> None:
        """What happened, why, and what to try: three lines on stderr, or one JSON line on stdout."""
        with self._lock:
            self._leave_line(keep=True)
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
        shown_at, now = self._shown_at.get(event.stage), self._clock()
        self._last[event.stage] = event
        if shown_at is None and not (self._json or self._redraws):
            self._shown_at[event.stage] = shown_at = now
        soon = shown_at is not None and now - shown_at < every_s
        over = event.done >= event.total
        if soon and (not over or not (self._json or self._redraws or self._verbose)):  # the stage's line says how it ended
            self._unshown = event
            return
        self._shown_at[event.stage] = now
        self._show_progress(event)

    def _show_progress(self, event: Progress) -> None:
        self._unshown = None
        if self._json:
            self._answer(dump_event(event))
        elif self._redraws:
            self._redraw(progress_line(event, cells=self._terminal().width - 1, bar=_bar_letters(self._stderr)))
        else:
            self._say(progress_line(event))

    def _leave_line(self, *, keep: bool) -> None:
        """Show the state that was held back and go on below the redrawn line; or wipe both, where a stage's line says it."""
        if keep and self._unshown is not None:
            self._show_progress(self._unshown)
        self._unshown = None
        if self._line_open:
            self._stderr.write("\n" if keep else "\r\x1b[2K")
            self._stderr.flush()
            self._line_open = False

    def _answer(self, line: str) -> None:
        """A line on stdout. One that cannot be written is an error: a reader would take half an answer for the whole."""
        if self._stdout is None:  # closed by the caller (`>&-`)
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

    def _say_cut(self, line: str) -> None:
        """A line, cut where the terminal ends."""
        self._say(line if not self._redraws else _cut(line, self._terminal().width - 1))

    def _redraw(self, line: str) -> None:
        """Overwrite the current line: no cursor hiding and no thread, so a kill leaves the terminal as it was."""
        from rich.control import Control
        from rich.segment import ControlType

        terminal = self._terminal()
        terminal.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
        terminal.print(_cut(line, terminal.width - 1), end="", no_wrap=True)
        self._line_open = True

    def _terminal(self) -> RichConsole:
        if self._rich is None:
            from rich.console import Console as RichConsole

            colourless = bool(os.environ.get("NO_COLOR"))
            self._rich = RichConsole(file=self._stderr, highlight=False, markup=False, emoji=False, no_color=colourless)
        return self._rich


def progress_line(event: Progress, *, cells: int = 0, bar: str = "") -> str:
    """``extract   812/1,393 images  7.1 s left  82 images/s``, with a bar of two letters; where it is too long, its end goes."""
    parts = [f"{event.done:,}/{event.total:,} {visible(event.unit)}"]
    if event.left_s is not None and event.done < event.total:
        parts.append(f"{format_seconds(event.left_s)} left")
    parts += [f"{event.failed:,} failed"] if event.failed else []
    parts += [_rate_words(event)] if event.rate_per_s is not None else []
    parts += _extra_parts(event.extra)
    stage, drawn = f"{visible(event.stage):<{_STAGE_CELLS}}", ""
    if bar:
        full = round(_BAR_CELLS * min(1.0, event.done / max(1, event.total)))
        drawn = bar[0] * full + bar[1] * (_BAR_CELLS - full) + "  "
    while cells and len(parts) > 2 and width(f"{stage}{drawn}{'  '.join(parts)}") > cells:
        parts.pop()
    line = f"{stage}{drawn}{'  '.join(parts)}"
    return line if not cells or width(line) <= cells else f"{stage}{'  '.join(parts)}"


def stage_line(event: StageDone, detail: str, last: Progress | None, chosen: Sequence[Choice]) -> str:
    """``extract       17.0 s  1,393 images, 82 images/s; engine openvino:bf16``: a stage that is over, on one line."""
    said = [] if chosen else [visible(event.detail or detail)]
    if last is not None:
        said = [f"{last.done:,}{'' if last.done >= last.total else f' of {last.total:,}'} {visible(last.unit)}"]
        said += [_rate_words(last)] if last.rate_per_s is not None and last.unit != "epochs" else []
        said += [f"{last.failed:,} failed"] if last.failed else []
    own = [shorten(format_value(one.value), _LONGEST_VALUE) for one in chosen if one.name == event.stage]
    others = _chosen_words([one for one in chosen if one.name != event.stage])
    said = [part for part in (", ".join(said), ", ".join([*own, *([others] if others else [])])) if part]
    return f"{visible(event.stage):<{_STAGE_CELLS}}{format_seconds(event.seconds):>{_TIME_CELLS}}  {'; '.join(said)}".rstrip()


def _chosen_words(chosen: Sequence[Choice]) -> str:
    return ", ".join(f"{visible(one.name)} {shorten(format_value(one.value), _LONGEST_VALUE)}" for one in chosen)


def _rate_words(event: Progress) -> str:
    assert event.rate_per_s is not None, "asked for where it is known"
    rate = f"{event.rate_per_s:,.0f}" if event.rate_per_s >= 10 else f"{event.rate_per_s:.1f}"
    return f"{rate} {visible(event.unit)}/s"


def _bar_letters(stream: TextIO) -> str:
    try:
        "━".encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return "#."
    return "━─"


def _cut(line: str, cells: int) -> str:
    """The line within so many cells of a terminal, the cut marked."""
    if width(line) <= cells:
        return line
    while line and width(line) >= cells:
        line = line[:-1]
    return line.rstrip() + "…"


def _fold(text: str, stream: TextIO) -> str:
    """Sentences broken at words where a terminal ends; tables and what is to be copied stay as they are."""
    if not _is_terminal(stream):
        return text
    cells = shutil.get_terminal_size().columns - 1
    lines = [
        textwrap.wrap(line, cells, break_long_words=False, break_on_hyphens=False)
        if width(line) > cells and "  " not in line.strip()
        else [line]
        for line in text.split("\n")
    ]
    return "\n".join(part for parts in lines for part in parts)


def _extra_parts(extra: Mapping[str, Any]) -> list[str]:
    """``{"jobs_done": 17, "jobs_total": 22}`` as ``17/22 jobs``; others by name and value."""
    parts = []
    for key, value in extra.items():
        stem = key.removesuffix("_done")
        if stem != key and f"{stem}_total" in extra:
            parts.append(f"{value:,}/{extra[f'{stem}_total']:,} {stem}")
        elif not (key.endswith("_total") and f"{key.removesuffix('_total')}_done" in extra):
            share = f"{100 * value:.0f} %" if key.endswith("_share") and isinstance(value, float) else ""
            text = share or (f"{value:.3g}" if isinstance(value, float) else format_value(value))
            parts.append(f"{key.removesuffix('_share').replace('_', ' ')} {text}")
    return [visible(part) for part in parts]


def _event_line(event: StageStarted | StageDone | Chosen | Note) -> tuple[str, str]:
    """What is shown of an event by itself, and in which style on a terminal."""
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
    column = max(_STAGE_CELLS, len(label) + 2) if label in ("note", "warning") else 7
    return f"{label:<{column}}{visible_block(text)}".replace("\n", "\n" + " " * column)


def no_stdout(why: str) -> MachineError:
    return MachineError(
        "the answer cannot be written to stdout",
        code="stdout-closed",
        why=why,
        try_="let stdout go to a file on a disk with room, or to a terminal; what was done is kept, and is not done again",
    )


def reader_left(stream: TextIO) -> bool:
    """Whether the reader of this stream is gone (`| head`)."""
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
