"""How often the script asks the file system: stat, list, open; and what else makes it wait: sleep, collecting garbage, a device.

In: functions of `os`, `io`, `time`, `gc` and `torch.cuda`, replaced while the script runs. Out: calls of the kinds stat, list,
open, write_open, sleep, gc, sync and empty_cache. `exists()`, `isfile()`, pathlib and glob are covered, since they end up here;
imports, and libraries that go to the system by themselves, are not. Bytes are not counted: file objects read without a word to
us.
"""

from __future__ import annotations

import builtins
import gc
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

from unchoke.chokes.watch import hooks
from unchoke.chokes.watch.places import Place, user_place
from unchoke.chokes.watch.ration import Ration
from unchoke.chokes.watch.recorder import Recorder
from unchoke.chokes.watch.wrapping import About, Fail, Function, StandIn, Wrappings

_WRITING = frozenset("wax+")
_CHUNK = 256
_wrappings: list[Wrappings] = []


def install(recorder: Recorder) -> None:
    """Watch this process's file-system calls, now and in every process forked from it."""
    wrappings = Wrappings(recorder)
    _wrappings.append(wrappings)
    ration = Ration(recorder)
    for name in ("stat", "lstat", "access"):
        wrappings.put(os, name, partial(_watch_stat, recorder, ration), rests=True)
        ration.switch(os, name)
    hooks.when_imported("torch.utils.data._utils.fetch", partial(_watch_fetches, wrappings, ration))
    wrappings.put(os, "listdir", partial(_watch_listing, recorder))
    wrappings.put(os, "scandir", partial(_watch_scanning, recorder))
    if opened := wrappings.put(builtins, "open", partial(_watch_open, recorder)):
        wrappings.put(io, "open", lambda _, __: opened)
    wrappings.time(time, "sleep", "sleep", _nothing_more)
    wrappings.time(gc, "collect", "gc", _nothing_more)
    _claim_support()
    hooks.when_imported("torch.cuda", partial(_watch_device, wrappings))


def uninstall() -> None:
    """Put everything back."""
    for supported in _support():
        supported.difference_update([function for function in supported if isinstance(function, StandIn)])
    while _wrappings:
        _wrappings.pop().remove()


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


def _watch_fetches(wrappings: Wrappings, ration: Ration) -> None:
    fetchers: Any = sys.modules["torch.utils.data._utils.fetch"]
    for fetcher in (fetchers._MapDatasetFetcher, fetchers._IterableDatasetFetcher):
        wrappings.put(fetcher, "fetch", partial(_rationed, ration))


def _rationed(ration: Ration, original: Function, fail: Fail) -> Function:
    def fetch(*args: Any, **options: Any) -> Any:
        ration.begin()
        try:
            return original(*args, **options)
        finally:
            ration.end()

    return fetch


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
        return _Scan(entries, partial(_record_scan, recorder, fail, _text(path), user_place()), perf_counter() - started_s)

    return scan_folder


def _record_scan(recorder: Recorder, fail: Fail, folder: str | None, place: Place, seconds: float, num_entries: int) -> None:
    try:
        recorder.call("list", seconds, amount=num_entries, key=folder, place=place)
    except Exception as error:
        fail(error)


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
    for supported in _support():
        for function in (os.stat, os.lstat, os.access, os.listdir, os.scandir):
            if getattr(function, "__wrapped__", None) in supported:
                supported.add(function)


def _support() -> list[set[Any]]:
    names = ("supports_dir_fd", "supports_effective_ids", "supports_fd", "supports_follow_symlinks")
    return [getattr(os, name, set()) for name in names]


def _watch_device(wrappings: Wrappings) -> None:
    import torch.cuda

    wrappings.time(torch.cuda, "synchronize", "sync", _nothing_more)
    wrappings.time(torch.cuda, "empty_cache", "empty_cache", _nothing_more)


def _nothing_more(_: Any, __: tuple[Any, ...], ___: dict[str, Any]) -> About:
    return {}


def _text(path: Any) -> str | None:
    """A path as text; the current folder for none, nothing for a descriptor."""
    if type(path) is str:
        return path
    if type(path) is int:
        return None
    return "." if path is None else os.fsdecode(path)
