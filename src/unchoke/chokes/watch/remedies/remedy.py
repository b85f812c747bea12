"""What a remedy is given to work with: its argument, ways to replace functions, and a counter of what it did.

In come the recorder of a process and the scratch folder in front of its files; out goes the field `remedy` of the record.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from unchoke.chokes.watch import hooks
from unchoke.chokes.watch import recorder as record
from unchoke.chokes.watch.hooks import Function
from unchoke.chokes.watch.recorder import Recorder

if TYPE_CHECKING:
    from unchoke.chokes.watch.scratch import Scratch


class Remedy:
    """One change to a training, switched on in this process. `evaluated`: the numbers of loaders that are not trained on."""

    def __init__(
        self,
        recorder: Recorder,
        argument: str = "",
        *,
        scratch: Scratch | None = None,
        evaluated: frozenset[int] = frozenset(),
    ) -> None:
        self.argument = argument
        self.evaluated = evaluated
        self.recorder = recorder
        self.done = 0
        self._scratch = scratch
        recorder.register("remedy", lambda: {"done": self.done})
        recorder.after_fork(self._forget)

    def put(self, owner: Any, name: str, make: Callable[[Function], Function]) -> None:
        """Replace `owner.name`, where there is such a thing."""
        hooks.put(owner, name, lambda original, _: make(original))

    def did(self) -> None:
        """The remedy took effect once. The first time is written down at once: a process may be gone before the next second."""
        self.done += 1
        if self.done == 1 and self.recorder.phase is not record.WATCHER:
            self.recorder.flush()

    def may_keep(self, path: str) -> bool:
        """Whether what is known of an absolute path stays true: not for what the script writes, nor for temporary files."""
        scratch = self._scratch
        return scratch is None or not (path in scratch.written or path.startswith(scratch.left_alone))

    def _forget(self) -> None:
        self.done = 0


def file_key(source: Any) -> tuple[str, int, int] | None:
    """Path, time of change and size of a file, given by its path or open at its beginning; None for anything else."""
    try:
        if isinstance(source, str | os.PathLike):
            path, found = os.path.abspath(os.fsdecode(source)), os.stat(source)
        elif isinstance(getattr(source, "name", None), str) and source.tell() == 0:
            path, found = os.path.abspath(source.name), os.fstat(source.fileno())
        else:
            return None
    except (OSError, ValueError, AttributeError, TypeError):  # no file, or none that the system knows
        return None
    return path, found.st_mtime_ns, found.st_size
