"""How every command ends: its result shown, its errors told in three lines, its exit code."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import typer

from unchoke import __version__
from unchoke.cli.misuse import explain_misuse
from unchoke.core.brief_waits import wait_briefly
from unchoke.core.errors import Interrupted, MachineError, SettingsError, UnchokeError
from unchoke.core.settings import explained_by
from unchoke.machine.system_errors import explain_place, limit_reached, refuse_gone_folder

if TYPE_CHECKING:
    from unchoke.runs.report.console import Console

OUR_BUG = 70
INTERRUPTED = 130
_RUNS_OTHERS = ("profile", "notebook")
"""Commands that run somebody's script as it would run without them."""


class Result(Protocol):
    """What a command shows; one that may end in another way than well has an `exit_code` beside it."""

    def to_dict(self) -> dict[str, Any]: ...

    def to_text(self) -> str: ...


@dataclass(frozen=True)
class PlainResult:
    """The result for --json, the same as text, and the exit code, where what was returned is a plain value."""

    values: dict[str, Any]
    text: str
    exit_code: int = 0

    def to_dict(self) -> dict[str, Any]:
        return self.values

    def to_text(self) -> str:
        return self.text


def show(command: str, work: Callable[[Console], Result], *, json: bool, quiet: bool, verbose: bool) -> None:
    """Run `work`, show what it returns, and exit as the house rules say."""
    from unchoke.runs.report.console import Console

    if command not in _RUNS_OTHERS:
        wait_briefly()
    console = Console(json=json, quiet=quiet, verbose=verbose)
    try:
        refuse_gone_folder()
        result = work(console)
        code = int(getattr(result, "exit_code", 0))
        console.result(command, result.to_dict(), result.to_text(), ok=code == 0)
    except UnchokeError as error:
        told = explained_by(error, command) if isinstance(error, SettingsError) else error
        raise typer.Exit(tell_error(console, command, told)) from None
    except KeyboardInterrupt:
        raise typer.Exit(tell_error(console, command, _interrupted())) from None
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_left():
            raise typer.Exit(INTERRUPTED) from None
        if (limit := limit_reached(error)) is not None:
            raise typer.Exit(tell_error(console, command, limit)) from None
        if isinstance(error, OSError) and (explained := explain_place(error)) is not None:
            raise typer.Exit(tell_error(console, command, explained)) from None
        console.bug(command, f"{traceback.format_exc()}\nthis is a bug in unchoke {__version__}: please report the lines above")
        raise typer.Exit(OUR_BUG) from None
    if code:
        raise typer.Exit(code)


def tell_error(console: Console, command: str, error: UnchokeError) -> int:
    """Say what went wrong, and return the exit code. What cannot be written to stdout goes to stderr."""
    try:
        console.error(command, error)
    except BrokenPipeError:
        if not _reader_left():
            raise
        return INTERRUPTED
    except MachineError:
        console.error(command, error)  # the console has turned to stderr
    return error.exit_code


def tell_misuse(error: Any, words: list[str]) -> int:
    """Tell of a command that could not be read; the exit code. A group of commands typed alone shows its help."""
    from unchoke.runs.report.console import Console

    console = Console(json="--json" in words)
    if type(error).__name__ == "NoArgsIsHelpError":
        console.notice(error.ctx.get_help())
        return int(error.exit_code)
    told = explain_misuse(error, words)
    return tell_error(console, " ".join(error.ctx.command_path.split()[1:]) if error.ctx else "", told)


def hush_profiler(wanted: bool | None) -> None:
    """Where a profile is wanted, and before torch is loaded: what its profiler would write to stderr is not for people."""
    if wanted:
        from unchoke.machine.backend import quiet_profiler

        quiet_profiler()


def _reader_left() -> bool:
    """Whether the reader of our stdout is gone (`| head`); if so, nothing more is written there, not even at exit."""
    from unchoke.runs.report.console import reader_left, silence

    left = sys.stdout is not None and reader_left(sys.stdout)
    if left:
        silence(sys.stdout)
    return left


def _interrupted() -> Interrupted:
    return Interrupted(
        "stopped at once, on request",
        code="interrupted",
        why="a second Ctrl-C, or one outside a stage that can finish its work first",
        try_="run the same command again: it goes on from here",
    )
