"""Work that begins before its result is needed, in a thread of its own: libraries and weights, loaded while files are being read.

In: steps, a generator that pauses after each, says what it was, and returns the result. Out: a `Prefetch`, which hands the
result over to the first who asks, or raises what the steps raised. Asked to stop, it ends after the step it is in, and the
block it is used in waits for that; only Ctrl-C does not wait for an import of seconds. It knows nothing of what the steps do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from typing import Generic, Self, TypeVar

from unchoke.core.timeline import Timeline

T = TypeVar("T")
Steps = Generator[str, None, T]
"""Yields the name of each step when it is over; returns the result."""


class Prefetch(Generic[T]):
    """A context: what was begun is over, or has been stopped, when it is left."""

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._tally: dict[str, tuple[float, int]] = {}
        self._result: T | None = None
        self._error: BaseException | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="unchoke-prefetch")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped = True
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            self._thread.join()

    @property
    def is_over(self) -> bool:
        """Whether asking for the result costs no time."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Until asking for the result costs no time."""
        self._thread.join()

    def take(self) -> T | None:
        """Wait for the result and hand it over; None for those who ask after the first, and where there is none.

        What the steps raised is raised here, once.
        """
        self.wait()
        error, result = self._error, self._result
        self._error = self._result = None
        if error is not None:
            raise error
        return result

    def timeline(self) -> Timeline:
        """Seconds by step so far. They passed beside other work: none of them is part of a wall clock."""
        return Timeline.of_tally({}, dict(self._tally), readers=1)

    def _run(self) -> None:
        try:
            while not self._stopped:
                began_s = time.perf_counter()
                name = next(self._steps)
                self._tally[name] = (time.perf_counter() - began_s, 1)
        except StopIteration as end:
            self._result = end.value
        except BaseException as error:  # raised where the result is taken
            self._error = error
