"""Stop requests: the first Ctrl-C or SIGTERM asks, the second insists. Handlers live only inside `stop_requests`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequests:
    """Whether someone asked to stop; a second request raises `KeyboardInterrupt` wherever the main thread is.

    `on_first` is called in a thread of its own: the main thread may at that moment hold the very lock that a message needs.
    """

    def __init__(self, on_first: Callable[[], None]) -> None:
        self.requested = False
        self._on_first = on_first

    def receive(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        threading.Thread(target=self._on_first, daemon=True).start()


@contextmanager
def stop_requests(on_first: Callable[[], None]) -> Iterator[StopRequests]:
    """Route stop signals to a `StopRequests`.

    Outside the main thread, where handlers cannot be set, nothing changes; a signal ignored when we were started stays ignored.
    """
    requests = StopRequests(on_first)
    if threading.current_thread() is not threading.main_thread():
        yield requests
        return
    heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before: dict[signal.Signals, Any] = {number: signal.signal(number, requests.receive) for number in heeded}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
