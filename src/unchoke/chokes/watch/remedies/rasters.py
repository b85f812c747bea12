"""Rasters stay open: one dataset for each file, thread and process, handed out again instead of opened again.

In: `rasterio.open`. Out: datasets that do not close. Only plain reading: a path, mode "r".
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from unchoke.chokes.watch import hooks
from unchoke.chokes.watch.remedies.applying import Applying, file_key
from unchoke.chokes.watch.wrapping import Function

_MAX_OPEN = 128


def cached_rasters(applying: Applying) -> None:
    """Open each file once."""
    hooks.when_imported("rasterio", lambda: applying.put(sys.modules["rasterio"], "open", lambda open_: _kept(applying, open_)))


def _kept(applying: Applying, original: Function) -> Function:
    from rasterio.io import DatasetReader

    class Staying(DatasetReader):  # type: ignore[misc]
        """A dataset that `with` and `close` leave open."""

        def close(self) -> None:
            """Not yet."""

    datasets: dict[Any, Any] = {}

    def open_(fp: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        file = file_key(fp) if mode == "r" and not args else None
        key = (file, os.getpid(), threading.get_ident(), *sorted(options.items()))
        if file is None or not applying.may_keep(file[0]) or not _is_hashable(key):
            return original(fp, mode, *args, **options)
        found = datasets.get(key)
        if found is not None:
            applying.did()
            return found
        opened = original(fp, mode, **options)
        if type(opened) is DatasetReader and len(datasets) < _MAX_OPEN:
            opened.__class__ = Staying
            datasets[key] = opened
        return opened

    return open_


def _is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True
