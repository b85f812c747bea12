"""Work ahead of the consumer: `map_ahead` is `map` with threads and a bounded look-ahead.

A function and an iterable come in; the results go out in the order of the items. Threads suffice where the function releases the
interpreter's lock, as decoders do. It knows nothing of images, starts no processes and drops nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_ahead(fn: Callable[[T], R], items: Iterable[T], *, threads: int, ahead: int) -> Generator[R, None, None]:
    """The results of `fn` over `items`, in order, with at most `ahead` items taken whose result was not handed out yet.

    An exception, from `fn` or from `items`, appears at its place: after the results before it. When the consumer stops early,
    what has not begun is cancelled and what is running is waited for. `threads=0` runs everything in the caller's thread.
    """
    if threads == 0:
        return (fn(item) for item in items)
    return _map_in_threads(fn, items, threads=threads, ahead=max(1, ahead))


def _map_in_threads(fn: Callable[[T], R], items: Iterable[T], *, threads: int, ahead: int) -> Generator[R, None, None]:
    pool = ThreadPoolExecutor(min(threads, ahead), thread_name_prefix="unchoke-ahead")
    waiting: deque[Future[R]] = deque()
    source = _Source(items)
    try:
        while True:
            while len(waiting) < ahead and source.advance():
                waiting.append(pool.submit(fn, source.item))
            if not waiting:
                source.reraise()
                return
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _Source(Generic[T]):
    """An iterator that keeps its own failure until the results before it have been handed out."""

    item: T

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)
        self._ended = False
        self._error: Exception | None = None

    def advance(self) -> bool:
        """Take the next item; False at the end or after a failure."""
        if self._ended:
            return False
        try:
            self.item = next(self._items)
        except StopIteration:
            self._ended = True
        except Exception as error:  # kept, and raised at its place by `reraise`
            self._ended, self._error = True, error
        return not self._ended

    def reraise(self) -> None:
        if self._error is not None:
            raise self._error
