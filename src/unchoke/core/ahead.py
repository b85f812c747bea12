"""Work ahead of the consumer: `map_ahead` is `map` with threads and a bounded look-ahead.

A function and an iterable come in; the results go out in the order of the items. Threads suffice where the function releases the
interpreter's lock, as decoders do. It knows nothing of images, starts no processes and drops nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_ahead(fn: Callable[[T], R], items: Iterable[T], *, threads: int, ahead: int) -> Generator[R, None, None]:
    """The results of `fn` over `items`, in order, with at most `ahead` items taken whose result was not handed out yet.

    An exception, from `fn` or from `items`, appears at its place: after the results before it. When the consumer stops early,
    what has not begun is cancelled and what is running is waited for. `threads=0` runs everything in the caller's thread.
    """
    if threads == 0:
        yield from map(fn, items)
        return
    ahead = max(1, ahead)
    pool = ThreadPoolExecutor(min(threads, ahead), thread_name_prefix="unchoke-ahead")
    waiting: deque[Future[R]] = deque()
    source, ended, failure = iter(items), False, None
    try:
        while True:
            while len(waiting) < ahead and not ended:
                try:
                    waiting.append(pool.submit(fn, next(source)))
                except StopIteration:
                    ended = True
                except Exception as error:  # raised once the results before it have been handed out
                    ended, failure = True, error
            if not waiting:
                break
            yield waiting.popleft().result()
        if failure is not None:
            raise failure
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
