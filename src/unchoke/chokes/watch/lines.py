"""Where a process's record goes: a file of lines that does not grow without end, and never loses its newest line.

In comes one line after the other, each the whole record so far; out go `<pid>.jsonl` and, once that is large, `<pid>.next.jsonl`
in turn: the other one begins anew, so that a kill at any moment leaves a whole line. The reader takes the newest of both.
"""

from __future__ import annotations

import os

MAX_BYTES = 8_000_000
_open = os.open  # ours stays what it was when others are replaced


class Lines:
    """The files of one process; to be made anew after a fork."""

    def __init__(self, folder: str, *, max_bytes: int = MAX_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._turn = 0
        self._written_bytes = 0

    def write(self, line: bytes) -> None:
        """Append a line, or begin the other file with it."""
        begins = not self._written_bytes
        if self._written_bytes > self._max_bytes:
            self._turn, self._written_bytes, begins = 1 - self._turn, 0, True
        name = f"{os.getpid()}{('', '.next')[self._turn]}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if begins else os.O_APPEND)
        descriptor = _open(os.path.join(self._folder, name), flags, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
        self._written_bytes += len(line)
