"""What was decoded, parsed or opened is kept by file, time of change and arguments, and handed out again.

In: Pillow, NumPy, OpenCV and others that read pictures and arrays; pandas, NumPy, JSON and YAML for tables; `rasterio.open`. Out:
copies of the same results, made once for each file, and datasets that do not close: one for each file, thread and process.
Nothing is kept once the memory that is left has shrunk by a quarter, nor of files that the script writes.
"""

from __future__ import annotations

import copy
import marshal
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from unchoke.chokes.watch import hooks
from unchoke.chokes.watch.hooks import Function
from unchoke.chokes.watch.remedies.remedy import Remedy, file_key

_READERS: dict[str, tuple[str, ...]] = {
    "numpy": ("load",),
    "cv2": ("imread",),
    "imageio": ("imread",),
    "imageio.v2": ("imread",),
    "imageio.v3": ("imread",),
    "skimage.io": ("imread",),
    "tifffile": ("imread",),
}
"""Functions that give an array, the file being their first argument."""
_PARSERS: dict[str, tuple[str, ...]] = {
    "pandas": ("read_csv", "read_table", "read_parquet", "read_excel", "read_json", "read_feather"),
    "numpy": ("loadtxt", "genfromtxt"),
    "yaml": ("load", "safe_load"),
    "json": ("load",),
}
_FREE_SHARE = 0.75
_LOOK_EVERY = 64
_SHORTEST_TEXT = 1024
_UNKNOWN_BYTES = 2 << 30
_MAX_OPEN = 128
_open = os.open  # ours stays what it was when others are replaced


class ResultCache:
    """Results by key, as long as there is room for more."""

    def __init__(self, remedy: Remedy) -> None:
        self._applying = remedy
        self._values: dict[Any, Any] = {}
        self._least_bytes = int(_FREE_SHARE * available_bytes())
        self._has_room = True

    def find(self, key: Any) -> Any:
        """What is kept under `key`, or None."""
        found = self._values.get(key)
        if found is not None:
            self._applying.did()
        return found

    def result(self, key: Any, make: Callable[[], Any]) -> Any:
        """A copy of what is kept under `key`; else what `make` gives, kept from now on if there is a key and it can be copied."""
        copies = self.find(key) if key is not None else None
        if copies is not None:
            return copies()
        result = make()
        copies = _copies_of(result) if key is not None else None
        if copies is not None:
            self.keep(key, copies)
        return result

    def keep(self, key: Any, value: Any) -> None:
        if len(self._values) % _LOOK_EVERY == 0:
            self._has_room = available_bytes() > self._least_bytes
        if self._has_room:
            self._values[key] = value

    def key(self, source: Any, *more: Any) -> Any:
        """What tells this file as it is now, read in this way, from any other; None where nothing may be kept."""
        file = file_key(source)
        return (file, repr(more)) if file is not None and self._applying.may_keep(file[0]) else None


def cached_decode(remedy: Remedy) -> None:
    """Pictures and arrays are decoded once."""
    kept = ResultCache(remedy)
    for module, names in _READERS.items():
        hooks.when_imported(module, partial(_keep_functions, remedy, kept, module, names))
    hooks.when_imported("PIL.ImageFile", lambda: _keep_pictures(remedy, kept))
    hooks.when_imported("numpy", lambda: _keep_members(remedy, kept))


def cached_tables(remedy: Remedy) -> None:
    """Tables and other structured files are parsed once."""
    kept = ResultCache(remedy)
    for module, names in _PARSERS.items():
        hooks.when_imported(module, partial(_keep_functions, remedy, kept, module, names))
    hooks.when_imported("json", lambda: remedy.put(sys.modules["json"], "loads", partial(_keep_text, kept)))


def _keep_functions(remedy: Remedy, kept: ResultCache, module: str, names: tuple[str, ...]) -> None:
    for name in names:
        remedy.put(sys.modules[module], name, partial(_keep_results, kept))


def _keep_results(kept: ResultCache, original: Function) -> Function:
    def read(source: Any, *args: Any, **options: Any) -> Any:
        key = kept.key(source, original.__module__, original.__name__, args, options)
        return kept.result(key, partial(original, source, *args, **options))

    return read


def _copies_of(result: Any) -> Callable[[], Any] | None:
    """A maker of copies, itself holding one; None for what reads more later: archives, memory maps, readers in chunks."""
    kind = type(result)
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return result.copy().copy  # type: ignore[no-any-return]
    if kind.__module__.startswith("pandas.") and kind.__name__ in ("DataFrame", "Series"):
        return result.copy().copy  # type: ignore[no-any-return]
    if kind not in (dict, list):
        return None
    try:
        return partial(marshal.loads, marshal.dumps(result))  # far faster than a deep copy
    except ValueError:  # dates and other objects
        return partial(copy.deepcopy, copy.deepcopy(result))


def _keep_text(kept: ResultCache, original: Function) -> Function:
    def loads(s: Any, **options: Any) -> Any:
        if options or not isinstance(s, str | bytes) or len(s) < _SHORTEST_TEXT:
            return original(s, **options)
        return kept.result(s, partial(original, s))

    return loads


def _keep_members(remedy: Remedy, kept: ResultCache) -> None:
    """Arrays of an NPZ archive, decompressed once each."""

    def make(original: Function) -> Function:
        def member(self: Any, name: str) -> Any:
            key = kept.key(getattr(self.zip, "filename", None), "npz", name)
            return kept.result(key, partial(original, self, name))

        return member

    remedy.put(sys.modules["numpy"].lib.npyio.NpzFile, "__getitem__", make)


def _keep_pictures(remedy: Remedy, kept: ResultCache) -> None:
    """Pillow decodes when pixels are first needed: kept from then on, and given out as pictures that are loaded already."""

    def making_load(original: Function) -> Function:
        def load(self: Any) -> Any:
            is_first = bool(self.tile)
            result = original(self)
            is_draft = self.format == "JPEG" and self.decoderconfig
            is_whole = not getattr(self, "is_animated", False) and not is_draft  # not a frame of many, at its full size
            if is_first and not self.tile and is_whole:
                key = kept.key(self.filename or None)
                if key is not None:
                    kept.keep(key, _Picture(self))
            return result

        return load

    def making_open(original: Function) -> Function:
        def open_(fp: Any, mode: str = "r", formats: Any = None) -> Any:
            key = kept.key(fp) if isinstance(fp, str) or hasattr(fp, "__fspath__") else None
            found = kept.find(key) if key is not None else None
            return original(fp, mode, formats) if found is None else found.copy()

        return open_

    remedy.put(sys.modules["PIL.ImageFile"].ImageFile, "load", making_load)
    remedy.put(sys.modules["PIL.Image"], "open", making_open)


class _Picture:
    """A decoded picture, and what a file said beside its pixels."""

    def __init__(self, opened: Any) -> None:
        self._pixels = opened.copy()
        self._said = {name: getattr(opened, name) for name in ("format", "filename")}

    def copy(self) -> Any:
        picture = self._pixels.copy()
        vars(picture).update(self._said)
        return picture


def cached_rasters(remedy: Remedy) -> None:
    """Open each file once."""
    hooks.when_imported("rasterio", lambda: remedy.put(sys.modules["rasterio"], "open", partial(_keep_open, remedy)))


def _keep_open(remedy: Remedy, original: Function) -> Function:
    from rasterio.io import DatasetReader

    class OpenDataset(DatasetReader):  # type: ignore[misc]
        """A dataset that `with` and `close` leave open."""

        def close(self) -> None:
            """Not yet."""

    datasets: dict[Any, Any] = {}

    def open_(fp: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        file = file_key(fp) if mode == "r" and not args else None
        key = (file, os.getpid(), threading.get_ident(), *sorted(options.items()))
        if file is None or not remedy.may_keep(file[0]) or not _is_hashable(key):
            return original(fp, mode, *args, **options)
        found = datasets.get(key)
        if found is not None:
            remedy.did()
            return found
        opened = original(fp, mode, **options)
        if type(opened) is DatasetReader and len(datasets) < _MAX_OPEN:
            opened.__class__ = OpenDataset
            datasets[key] = opened
        return opened

    return open_


def _is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def available_bytes() -> int:
    """What all processes together could still use, as Linux counts it; elsewhere a careful guess."""
    try:
        descriptor = _open("/proc/meminfo", os.O_RDONLY)
    except OSError:
        return _UNKNOWN_BYTES
    try:
        lines = os.read(descriptor, 4096).decode().splitlines()
    finally:
        os.close(descriptor)
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else _UNKNOWN_BYTES
