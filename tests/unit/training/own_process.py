"""Calls in processes of their own, forked from one that has torch loaded: what they take is theirs alone."""

from __future__ import annotations

import os
import pickle
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from unchoke.training.network.prepare_pixels import StoredPixels

Found = TypeVar("Found")
PATIENCE_S = 120.0


def in_own_process(function: Callable[..., Found], *args: object) -> Found:
    """`function(*args)` in a process forked for it, which finds the function in its module."""
    import scene

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found"
        process = scene.fork(_call, file, function, args)
        process.join(PATIENCE_S)
        if process.exitcode is None:
            process.kill()
        assert process.exitcode == 0, f"{function.__name__} ended with {process.exitcode}"
        found: Found = pickle.loads(file.read_bytes())
    return found


def _call(file: Path, function: Callable[..., Found], args: tuple[object, ...]) -> None:
    file.write_bytes(pickle.dumps(function(*args)))


def show_pixels(stored: StoredPixels, names: list[str], epoch: int) -> tuple[NDArray[np.float32], int]:
    """All samples as training sees them in an epoch, and how many of them were not in the cache."""
    every, source = np.arange(len(names)), stored.open(names, 0)
    return source.prepare(source.read(every, epoch), every, epoch).numpy(), source._cache.misses


def peaks_of_heads(counts: tuple[int, ...], file: Path) -> list[int]:
    """The most that this process held by the end of each training of heads, on so many rows of a sparse file."""
    import torch

    from unchoke.core.events import ignore
    from unchoke.machine.memory.memory_watch import own_bytes
    from unchoke.training.data import ArraySource, Problem
    from unchoke.training.heads.heads import HeadConfig
    from unchoke.training.heads.train_heads import train_heads

    torch.set_num_threads(1)
    peaks, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.002):
            peaks[-1] = max(peaks[-1], own_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for count in counts:
        with file.open("wb") as room:
            room.truncate(count * 1280 * 2)  # zeros that take no room on the disk
        feats, positions = np.memmap(file, dtype=np.float16, mode="r", shape=(count, 1280)), np.arange(count)
        splits = {"train": positions[: count * 8 // 10], "val": positions[count * 8 // 10 :]}
        problem = Problem("classification", tuple("abcd"), positions % 4, splits, [f"id-{i}" for i in range(count)])
        configs = [HeadConfig(epochs=1), HeadConfig("mlp", hidden=32, epochs=1)]
        result = train_heads(ArraySource(feats), problem, configs, device=torch.device("cpu"), on_event=ignore)
        result.best.predict(ArraySource(feats), positions, device=torch.device("cpu"))
        peaks.append(peaks[-1])
    ended.set()
    watcher.join()
    return peaks[:-1]


def use_exports(folder: Path, kinds: list[str], pictures: Path, table: Path) -> dict[str, dict[str, Any]]:
    """What exported runs in `folder` say where no network answers; the one of tiles needs a table of inputs."""
    import unchoke
    from unchoke.core.events import ignore

    def refuse(*_: object, **__: object) -> None:
        raise OSError("there is no network here")

    socket.socket.connect = socket.getaddrinfo = refuse  # type: ignore[assignment,method-assign]
    os.chdir(folder)
    found: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        rows = unchoke.predict(kind, [pictures], inputs=table if kind == "tiles" else None, on_event=ignore).rows
        found[kind] = {**unchoke.evaluate(kind, on_event=ignore).to_dict(), "rows": rows, "report": str(unchoke.report(kind))}
    return found
