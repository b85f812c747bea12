"""A DataLoader object in words and numbers: what it loads, how, and where the code for it stands. Objects in, plain data out."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any


def describe_loader(loader: Any) -> dict[str, Any]:
    """What can be known of a DataLoader before its first batch; what cannot is None."""
    dataset = _innermost(loader.dataset)
    dataset_file, dataset_line = _where(_sample_function(dataset))
    collate_file, collate_line = _where(loader.collate_fn)
    workers = int(loader.num_workers)
    return {
        "dataset": type(dataset).__name__,
        "dataset_file": dataset_file,
        "dataset_line": dataset_line,
        "collate": _name(loader.collate_fn),
        "collate_file": collate_file,
        "collate_line": collate_line,
        "num_samples": _length(loader.dataset),
        "batch_size": _batch_size(loader),
        "num_workers": workers,
        "persistent": bool(loader.persistent_workers),
        "prefetch": loader.prefetch_factor,
        "pin_memory": bool(loader.pin_memory),
        "start_method": _start_method(loader) if workers else None,
        "shuffle": any("Random" in type(sampler).__name__ for sampler in _samplers(loader)),
    }


def _samplers(loader: Any) -> Iterator[Any]:
    """The loader's sampler and those inside it, one wrapped in the other."""
    for name in ("sampler", "batch_sampler"):
        sampler = getattr(loader, name, None)
        for _ in range(4):
            if sampler is None:
                break
            yield sampler
            sampler = getattr(sampler, "sampler", None) or getattr(sampler, "batch_sampler", None)


def _innermost(dataset: Any) -> Any:
    """The dataset that loads samples, inside torch's own wrappers around it."""
    for _ in range(8):
        if not type(dataset).__module__.startswith("torch.utils.data"):
            break
        inside = [getattr(dataset, "dataset", None), *getattr(dataset, "datasets", ())]
        inner = next((one for one in inside if one is not None), None)
        if inner is None:
            break
        dataset = inner
    return dataset


def _sample_function(dataset: Any) -> Any:
    for name in ("__getitem__", "__iter__"):
        found = getattr(type(dataset), name, None)
        if found is not None:
            return found
    return None


def _where(function: Any) -> tuple[str, int]:
    function = getattr(function, "func", function)  # functools.partial
    if not inspect.isroutine(function) and not isinstance(function, type):
        function = getattr(type(function), "__call__", None)  # noqa: B004 - the method itself, for its place
    try:
        code = getattr(inspect.unwrap(function), "__code__", None)
    except ValueError:  # wrapped in a circle
        code = None
    return ("", 0) if code is None else (code.co_filename, code.co_firstlineno)


def _name(function: Any) -> str:
    function = getattr(function, "func", function)
    return getattr(function, "__qualname__", None) or type(function).__name__


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:  # the user's own __len__, or none: not ours to judge
        return None


def _batch_size(loader: Any) -> int | None:
    size = loader.batch_size
    if size is None:
        size = getattr(loader.batch_sampler, "batch_size", None)
    return size if isinstance(size, int) else None


def _start_method(loader: Any) -> str | None:
    context = loader.multiprocessing_context
    if context is None:
        import multiprocessing as context
    return str(context.get_start_method())
