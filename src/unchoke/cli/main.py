"""The console script `unchoke`: what was typed becomes the words of a command, and every way to end becomes an exit code."""

from __future__ import annotations

import os
import sys
import threading

from unchoke.cli.commands import app
from unchoke.cli.showing import INTERRUPTED, tell_error

_COLOUR_WORDS = {"rgb", "rgba", "l", "grey", "gray", "cmyk"}


def join_expect(arguments: list[str]) -> list[str]:
    """Let `--expect 600x450 rgb` be typed without quotes: its second word is not a file."""
    joined: list[str] = []
    for argument in arguments:
        expected = joined[-2:-1] == ["--expect"] or "".join(joined[-1:]).startswith("--expect=")
        if expected and argument.lower() in _COLOUR_WORDS:
            joined[-1] += f" {argument}"
        else:
            joined.append(argument)
    return joined


def name_script(arguments: list[str]) -> list[str]:
    """Let `profile [options] -- COMMAND` be typed without `script`: what stands before `--` is options alone."""
    if arguments[:1] != ["profile"] or "--" not in arguments:
        return arguments
    named = arguments[1:2] and not arguments[1].startswith("-")
    return arguments if named else ["profile", "script", *arguments[1:]]


def main() -> None:
    """The console script."""
    _open_closed_streams()
    try:
        app(args=join_expect(name_script(sys.argv[1:])))
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            _leave_at_once()
        raise
    except OSError as error:
        raise SystemExit(_unwritten(error)) from None


def _unwritten(error: OSError) -> int:
    """A help text, or a word about wrong usage, that could not be written."""
    from unchoke.machine.system_errors import limit_reached
    from unchoke.runs.report.console import Console, no_stdout, silence

    if limit_reached(error) is None:
        raise error
    if sys.stdout is not None:
        silence(sys.stdout)
    return tell_error(Console(), "unchoke", no_stdout(error.strerror or str(error)))


def _open_closed_streams() -> None:
    """Where stdin, stdout or stderr is closed (`>&-`), let its number lead nowhere: else the next file would bear it."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)


def _leave_at_once() -> None:
    """Exit without waiting for threads that nobody needs any more: ending Python beside them waits, or aborts in native code.

    Nothing is lost: every file is written whole or not at all, and the lock goes with the process.
    """
    if threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)
