"""Can a worker process load this data? Tried for real: one process is spawned, unpickles the loader and loads a batch.

In: a loader with `__getitem__` or `batch`. Out: findings, empty when it worked. What cannot be pickled is named by its attribute
path (`loader.transform.fn`), because "cannot pickle '_thread.lock' object" helps nobody.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from unchoke.findings import Finding
from unchoke.jobs.engines import ProcessEngine

_BATCH = 4


def try_worker(loader: Any, *, name: str = "loader") -> list[Finding]:
    """Spawn one worker, hand it `loader`, load one batch there."""
    try:
        pickle.dumps(loader)
    except Exception as error:  # pickling runs any code the object defines
        return [_unpicklable(loader, error, name)]
    outcomes = list(ProcessEngine(workers=1).map_unordered(load_one_batch, [loader]))
    outcome = outcomes[0]
    if outcome.error is None:
        return []
    return [
        Finding(
            code="worker-cannot-load",
            severity="error",
            stage="load",
            message=f"a spawned worker could not load a batch: {type(outcome.error).__name__}: {outcome.error}",
            evidence={"traceback": outcome.traceback_text[-2000:]},
            fix="a class defined in a notebook or in __main__ cannot be found by a spawned worker: move it into a module",
        )
    ]


def load_one_batch(loader: Any) -> int:
    """What the worker does: the first few items, as one batch where the loader can."""
    positions = list(range(min(_BATCH, len(loader))))
    if hasattr(loader, "batch"):
        return len(loader.batch(positions))
    return len([loader[position] for position in positions])


def _unpicklable(loader: Any, error: Exception, name: str) -> Finding:
    path, culprit = find_unpicklable(loader, name)
    return Finding(
        code="unpicklable",
        severity="error",
        stage="load",
        message=f"{path} cannot be sent to a worker: {type(culprit).__name__} does not pickle ({error})",
        evidence={"attribute": path, "type": type(culprit).__name__},
        fix=f"open or build {path} inside the worker (on first use), or replace it by a function at module level",
    )


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
    elif not isinstance(value, type):
        attributes = dict(getattr(value, "__dict__", {}))
        attributes.update({slot: getattr(value, slot) for slot in getattr(type(value), "__slots__", ()) if hasattr(value, slot)})
        yield from ((f"{path}.{name}", child) for name, child in attributes.items())


def _pickles(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # as above: any code may run, and any failure means no
        return False
    return True
