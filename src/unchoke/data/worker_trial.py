"""Can a worker process load this data? Tried for real: one process is spawned, unpickles the loader and loads a batch.

In: a loader with `__getitem__` or `batch`, or the name of a user's own dataset: `my_module:make_dataset`, `train.py:train_set`.
Out: findings, empty when it worked. The process works while its caller does something else. What cannot be pickled is named by
its attribute path (`loader.transform.fn`), because "cannot pickle '_thread.lock' object" helps nobody. A named dataset is made by
the user's code, which runs here; what goes wrong in that code is an explained error.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

import numpy as np

from unchoke.core.errors import UsageError
from unchoke.core.findings import Finding
from unchoke.jobs.attempts import WorkerDied
from unchoke.jobs.pool import WorkerPool
from unchoke.pixels.image import Pixels, read_image
from unchoke.pixels.resize import resize

_BATCH = 4
_EXAMPLE = "--dataset my_module:make_dataset, where make_dataset() returns what a DataLoader would be given"


@dataclass(frozen=True)
class ImageSet:
    """Pictures by position, each scaled to `height` × `width`."""

    paths: tuple[str, ...]
    height: int = 224
    width: int = 224

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, position: int) -> Pixels:
        image = read_image(self.paths[position], cover_px=max(self.height, self.width))
        return resize(image, self.height, self.width, interpolation="bilinear")

    def batch(self, positions: Sequence[int]) -> Pixels:
        """Several pictures as one array."""
        return np.stack([self[position] for position in positions])


class WorkerTrial:
    """One spawned worker that loads one batch of `loader` meanwhile. Leaving it early ends the worker."""

    def __init__(self, loader: Any, *, name: str = "loader") -> None:
        self._loader, self._name = loader, name
        self._refused: list[Finding] = []
        theirs = type(loader).__module__.partition(".")[0] != "unchoke"
        self._pool: WorkerPool[Any, int] = WorkerPool(load_one_batch, size=1, import_main=theirs)
        try:
            pickle.dumps(loader)
        except Exception as error:  # pickling runs any code the object defines
            path, culprit = find_unpicklable(loader, name)
            self._refused = [
                Finding(
                    code="unpicklable",
                    severity="error",
                    stage="load",
                    message=f"{path} cannot be sent to a worker: {type(culprit).__name__} does not pickle ({error})",
                    evidence={"attribute": path, "type": type(culprit).__name__},
                    fix=f"open or build {path} inside the worker (on first use), or replace it by a function at module level",
                )
            ]
        else:
            self._pool.give(loader)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def findings(self) -> list[Finding]:
        """Wait for the batch; what kept the worker from loading it."""
        if self._refused:
            return self._refused
        outcome = self._pool.next_outcome()
        if outcome.error is None:
            return []
        return [
            Finding(
                code="worker-cannot-load",
                severity="error",
                stage="load",
                message=f"a spawned worker could not load a batch: {type(outcome.error).__name__}: {outcome.error}",
                evidence={"traceback": outcome.traceback_text[-2000:]},
                fix=_remedy(self._loader, self._name, outcome.error),
            )
        ]


def try_worker(loader: Any, *, name: str = "loader") -> list[Finding]:
    """Spawn one worker, hand it `loader`, load one batch there, and wait for it."""
    with WorkerTrial(loader, name=name) as trial:
        return trial.findings()


def _remedy(loader: Any, name: str, error: BaseException) -> str:
    kind = type(loader)
    if kind.__module__ == "__main__":
        return (
            f"{kind.__qualname__} is defined in __main__ (a script or a notebook), where a spawned worker may not find it: "
            "move it into a module, and the rest of the script below `if __name__ == '__main__':`"
        )
    if isinstance(error, WorkerDied):
        return (
            "a worker imports the main script anew: put its code below `if __name__ == '__main__':`; "
            "if it is there already, the process was killed, most often for memory"
        )
    return f"make {name}[0] work in a fresh process: the evidence holds the worker's traceback"


def load_one_batch(loader: Any) -> int:
    """What the worker does: the first few items, as one batch where the loader can."""
    if not hasattr(loader, "__len__") or not (hasattr(loader, "__getitem__") or hasattr(loader, "batch")):
        return len(list(itertools.islice(iter(loader), _BATCH)))
    positions = list(range(min(_BATCH, len(loader))))
    if not positions:
        raise IndexError("it has no items: its length is 0")
    if hasattr(loader, "batch"):
        return len(loader.batch(positions))
    return len([loader[position] for position in positions])


def find_unpicklable(value: Any, path: str) -> tuple[str, Any]:
    """The deepest attribute or element that does not pickle by itself, and its path."""
    seen: set[int] = set()
    while True:
        seen.add(id(value))
        for child_path, child in _children(value, path):
            if id(child) not in seen and not _pickles(child):
                value, path = child, child_path
                break
        else:
            return path, value


def _children(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"{path}[{key!r}]", child) for key, child in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"{path}[{index}]", child) for index, child in enumerate(value))
    elif isinstance(value, functools.partial):
        yield from ((f"{path}.{name}", getattr(value, name)) for name in ("func", "args", "keywords"))
    elif not isinstance(value, type):
        declared = [vars(ancestor).get("__slots__", ()) for ancestor in type(value).__mro__]
        slots = [name for one in declared for name in ([one] if isinstance(one, str) else one)]
        names = [*getattr(value, "__dict__", {}), *slots]
        yield from ((f"{path}.{name}", getattr(value, name)) for name in names if hasattr(value, name))


def _pickles(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # as above: any code may run, and any failure means no
        return False
    return True


def load_dataset(name: str) -> Any:
    """The object that `MODULE:NAME` or `FILE.py:NAME` stands for; a function or class there is called for it."""
    module_name, colon, attribute = name.rpartition(":")
    if not colon or not module_name or not attribute:
        raise UsageError(
            f"--dataset {name} names no dataset",
            code="bad-dataset-name",
            why="it is written as MODULE:NAME or FILE.py:NAME",
            try_=_EXAMPLE,
        )
    file = Path(module_name)
    folder, module_name = (file.resolve().parent, file.stem) if file.suffix == ".py" else (Path.cwd(), module_name)
    if file.suffix == ".py" and not file.is_file():
        raise UsageError(
            f"there is no file {file}", code="no-such-file", why="the dataset was to come from it", try_="check the path"
        )
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))  # a worker is told of that folder too
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # the user's own code may raise anything
        missing = error.name if isinstance(error, ModuleNotFoundError) and error.name else ""
        if missing.split(".")[0] == module_name.split(".")[0]:
            why = f"it lies neither in {folder} nor where Python looks for modules"
            raise UsageError(
                f"there is no module {module_name}", code="no-such-module", why=why, try_=f"type it in its folder; {_EXAMPLE}"
            ) from None
        raise _failed(f"the module {module_name}", error) from error
    own = [one for one in vars(found) if not one.startswith("_")][:8]
    for part in attribute.split("."):
        if not hasattr(found, part):
            close = get_close_matches(part, dir(found), n=1)
            raise UsageError(
                f"{module_name} has no {attribute}",
                code="no-such-dataset",
                why=f"there is {', '.join(own) or 'nothing'} in it",
                try_=f"--dataset {module_name}:{close[0]}" if close else _EXAMPLE,
            )
        found = getattr(found, part)
    if isinstance(found, type) or (callable(found) and not _can_be_loaded(found)):
        try:
            found = found()
        except Exception as error:  # as above
            raise _failed(f"{name}()", error) from error
    if not _can_be_loaded(found):
        raise UsageError(
            f"{name} is no dataset but {type(found).__name__}",
            code="not-a-dataset",
            why="it has neither dataset[0] nor a way to go through its items",
            try_=_EXAMPLE,
        )
    return found


def _can_be_loaded(value: Any) -> bool:
    return hasattr(value, "__getitem__") or hasattr(value, "__iter__")


def _failed(what: str, error: Exception) -> UsageError:
    return UsageError(
        f"{what} did not give a dataset",
        code="dataset-failed",
        why=f"its own code raised {type(error).__name__}: {error}",
        try_="write a function without arguments that returns the dataset, and name that: --dataset MODULE:FUNCTION",
    )
