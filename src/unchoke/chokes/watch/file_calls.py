"""How often the script asks the file system: stat, list, open; and what else makes it wait: sleep, collecting garbage, a device.

In: functions of `os`, `io`, `time`, `gc` and `torch.cuda`, replaced while the script runs. Out: calls of the kinds stat, list,
open, write_open, sleep, gc, sync and empty_cache. `exists()`, `isfile()`, pathlib and glob are covered, since they end up here;
imports, and libraries that go to the system by themselves, are not. Bytes are not counted: what file objects read is not seen
here. Where batches ask the system very often, counting is rationed: most fetches of a batch are let pass uncounted.
"""

from __future__ import annotations

import builtins
import gc
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

from unchoke.chokes.watch import hooks
from unchoke.chokes.watch.hooks import CallFacts, Fail, Function, put, time_calls
from unchoke.chokes.watch.recorder import Recorder
from unchoke.chokes.watch.stacks import user_place

_WRITING = frozenset("wax+")
_CHUNK = 256
_COST_S = 1.5e-6  # of counting one call
_MAX_SHARE = 0.02
_FEW = 1_000  # calls in one fetch that are counted whatever they cost
_MOST = 63


def install(recorder: Recorder) -> None:
    """Watch this process's file-system calls, now and in every process forked from it."""
    ration = Ration(recorder)
    for name in ("stat", "lstat", "access"):
        recorder.duty.may_rest(put(os, name, partial(_watch_stat, recorder, ration)))
        ration.switch(os, name)
    hooks.when_imported("torch.utils.data._utils.fetch", partial(_ration_fetches, ration))
    put(os, "listdir", partial(_watch_listing, recorder))
    put(os, "scandir", partial(_watch_scanning, recorder))
    if opened := put(builtins, "open", partial(_watch_open, recorder)):
        replacement: Function = opened.replacement
        put(io, "open", lambda *_: replacement)
    time_calls(recorder, time, "sleep", "sleep", lambda *_: CallFacts())
    time_calls(recorder, gc, "collect", "gc", lambda *_: CallFacts())
    _claim_support()
    hooks.when_imported("torch.cuda", partial(_watch_device, recorder))


def _watch_stat(recorder: Recorder, ration: Ration, original: Function, fail: Fail) -> Function:
    """Also what fails is counted: a file that is not there costs as much to look for."""
    call, watching = recorder.call, True

    def stat(path: Any, *args: Any, **options: Any) -> Any:
        nonlocal watching
        started_s = perf_counter()
        try:
            return original(path, *args, **options)
        finally:
            if watching:
                took_s = perf_counter() - started_s
                ration.counted += 1
                times = ration.times
                try:
                    call("stat", took_s * times, key=path if type(path) is str else _text(path), times=times)
                except Exception as error:
                    watching = False
                    fail(error)

    return stat


def _watch_open(recorder: Recorder, original: Function, fail: Fail) -> Function:
    """A number is a file that is open already, and not counted."""
    call, watching = recorder.call, True

    def open_file(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        nonlocal watching
        started_s = perf_counter()
        try:
            return original(file, mode, *args, **options)
        finally:
            if watching and type(file) is not int:
                took_s = perf_counter() - started_s
                try:
                    call("open" if _WRITING.isdisjoint(mode) else "write_open", took_s, key=_text(file))
                except Exception as error:
                    watching = False
                    fail(error)

    return open_file


def _ration_fetches(ration: Ration) -> None:
    def make(original: Function) -> Function:
        def fetch(*args: Any, **options: Any) -> Any:
            ration.begin()
            try:
                return original(*args, **options)
            finally:
                ration.end()

        return fetch

    fetchers: Any = sys.modules["torch.utils.data._utils.fetch"]
    for fetcher in (fetchers._MapDatasetFetcher, fetchers._IterableDatasetFetcher):
        hooks.replace(fetcher, "fetch", make)


def _watch_listing(recorder: Recorder, original: Function, fail: Fail) -> Function:
    watching = True

    def list_folder(path: Any = None) -> Any:
        nonlocal watching
        started_s = perf_counter()
        found = original(path)
        if watching:
            took_s = perf_counter() - started_s
            try:
                recorder.call("list", took_s, amount=len(found), key=_text(path))
            except Exception as error:
                watching = False
                fail(error)
        return found

    return list_folder


def _watch_scanning(recorder: Recorder, original: Function, fail: Fail) -> Function:
    def scan_folder(path: Any = None) -> Any:
        started_s = perf_counter()
        entries = original(path)
        folder, place = _text(path), user_place()

        def record(seconds: float, num_entries: int) -> None:
            try:
                recorder.call("list", seconds, amount=num_entries, key=folder, place=place)
            except Exception as error:
                fail(error)

        return _Scan(entries, record, perf_counter() - started_s)

    return scan_folder


class _Scan:
    """An `os.scandir` that counts its entries. They are read in chunks, so that timing costs little for each."""

    def __init__(self, entries: Any, record: Callable[[float, int], None], opening_s: float) -> None:
        self._entries = entries
        self._rows = self._counted(record, opening_s)

    def _counted(self, record: Callable[[float, int], None], took_s: float) -> Iterator[Any]:
        num_entries = 0
        try:
            while True:
                started_s = perf_counter()
                chunk = list(islice(self._entries, _CHUNK))
                took_s += perf_counter() - started_s
                num_entries += len(chunk)
                if not chunk:
                    return
                yield from chunk
        finally:  # read to its end, or given up
            record(took_s, num_entries)

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def __next__(self) -> Any:
        return next(self._rows)

    def __enter__(self) -> _Scan:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._rows.close()  # type: ignore[attr-defined]  # it is a generator
        self._entries.close()


def _claim_support() -> None:
    """`os` says by sets of functions which of them take descriptors and the like: ours take what the originals took."""
    for name in ("supports_dir_fd", "supports_effective_ids", "supports_fd", "supports_follow_symlinks"):
        supported: set[Any] = getattr(os, name, set())
        for function in (os.stat, os.lstat, os.access, os.listdir, os.scandir):
            if getattr(function, "__wrapped__", None) in supported:
                supported.add(function)


def _watch_device(recorder: Recorder) -> None:
    import torch.cuda

    for name, kind in (("synchronize", "sync"), ("empty_cache", "empty_cache")):
        time_calls(recorder, torch.cuda, name, kind, lambda *_: CallFacts())


def _text(path: Any) -> str | None:
    """A path as text; the current folder for none, nothing for a descriptor."""
    if type(path) is str:
        return path
    if type(path) is int:
        return None
    return "." if path is None else os.fsdecode(path)


class Ration:
    """Decides for each fetch of a batch whether its calls are counted: where they are very many, most fetches are let pass.

    A counted fetch stands for half of those let pass before it and half of those after it; while one is let pass, the counting
    functions are put back, so that it costs nothing. Calls outside of fetches always count one by one.
    Whoever counts adds 1 to `counted` for each call, which stands for `times` of them. These are plain attributes because every
    call pays for them.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.counted = 0
        self.times = 1
        self._recorder = recorder
        self._functions: list[tuple[Any, str, Any, Any]] = []
        self._thread = 0
        self._depth = 0
        self._began_s = 0.0
        self._share = 0.0
        self._to_pass = 0
        self._owed = 0

    def switch(self, owner: Any, name: str) -> None:
        """`owner.name` is a counting function: what it wraps stands in its place while a fetch is let pass."""
        counting = getattr(owner, name)
        self._functions.append((owner, name, counting, getattr(counting, "__wrapped__", counting)))

    def begin(self) -> None:
        """A fetch begins. Fetches in other threads, and inside one another, go along with the first."""
        if self._depth and self._thread != threading.get_ident():
            return
        self._thread = threading.get_ident()
        self._depth += 1
        if self._depth > 1 or self._recorder.duty.resting:
            return
        if self._to_pass:
            self._put(counting=False)
            return
        following = min(_MOST, int(self._share / _MAX_SHARE))
        self.times = self._owed + 1 + following // 2
        self._owed = following - following // 2
        self._to_pass = following + 1  # this one ends the counted way
        self._began_s, self.counted = perf_counter(), 0

    def end(self) -> None:
        """The fetch has ended."""
        if self._thread != threading.get_ident():
            return
        self._depth -= 1
        if self._depth or self._recorder.duty.resting:
            return
        self._to_pass -= 1
        if self._began_s:
            took_s = perf_counter() - self._began_s
            self._share = self.counted * _COST_S / took_s if self.counted >= _FEW else 0.0
            self._recorder.num_let_pass += self.counted * (self.times - 1)
            self.times, self._began_s = 1, 0.0
        else:
            self._put(counting=True)

    def _put(self, *, counting: bool) -> None:
        """Only where nothing else has replaced the function since."""
        for owner, name, counts, plain in self._functions:
            if getattr(owner, name) is (plain if counting else counts):
                setattr(owner, name, counts if counting else plain)
