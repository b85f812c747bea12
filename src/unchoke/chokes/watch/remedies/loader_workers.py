"""DataLoaders with workers, or with workers that stay between epochs; the samples come in the order of the plain script.

In: torch's DataLoader, as it is made. Out: one made with other arguments. A dataset that is an iterator is left alone: each
worker would give all of it. Random numbers that a Dataset draws come from other generators in workers, which is not undone.
"""

from __future__ import annotations

import inspect
import multiprocessing
import sys
from collections.abc import Callable
from typing import Any

from unchoke.chokes.watch import hooks
from unchoke.chokes.watch.remedies.applying import Applying
from unchoke.chokes.watch.wrapping import Function

_DATALOADER = "torch.utils.data.dataloader"
Change = Callable[[dict[str, Any]], bool]
"""Changes the arguments of a DataLoader; whether there was anything to change."""


def workers(applying: Applying) -> None:
    """Load in this many processes where the script loads in its own."""
    number = int(applying.argument or 2)

    def change(arguments: dict[str, Any]) -> bool:
        if arguments["num_workers"] or _is_iterable(arguments["dataset"]):
            return False
        arguments |= {"num_workers": number, "persistent_workers": True}
        if arguments["multiprocessing_context"] is None and _may_fork():
            arguments["multiprocessing_context"] = "fork"
        return True

    hooks.when_imported(_DATALOADER, lambda: _make_otherwise(applying, change))


def persistent_workers(applying: Applying) -> None:
    """Keep workers from one epoch to the next."""

    def change(arguments: dict[str, Any]) -> bool:
        if not arguments["num_workers"] or arguments["persistent_workers"]:
            return False
        arguments["persistent_workers"] = True
        return True

    hooks.when_imported(_DATALOADER, lambda: _make_otherwise(applying, change))


def _is_iterable(dataset: Any) -> bool:
    from torch.utils.data import IterableDataset

    return isinstance(dataset, IterableDataset)


def _may_fork() -> bool:
    """A forked process cannot use a device that was in use before."""
    return "fork" in multiprocessing.get_all_start_methods() and not sys.modules["torch"].cuda.is_initialized()


def _make_otherwise(applying: Applying, change: Change) -> None:
    dataloader = sys.modules[_DATALOADER]
    signature = inspect.signature(dataloader.DataLoader.__init__)

    def make(original: Function) -> Function:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            given = signature.bind(self, *args, **kwargs)
            given.apply_defaults()
            if change(given.arguments):
                applying.did()
            original(*given.args, **given.kwargs)

        return init

    applying.put(dataloader.DataLoader, "__init__", make)
    applying.put(dataloader._MultiProcessingDataLoaderIter, "_reset", _drawing_as_before)


def _drawing_as_before(original: Function) -> Function:
    """Each new iterator draws a seed for its workers; one that persists does not, and the next order would be another."""
    import torch

    def reset(self: Any, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        original(self, loader, first_iter)

    return reset
