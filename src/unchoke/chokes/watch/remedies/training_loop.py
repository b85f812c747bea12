"""Remedies for a training loop: workers, memory that stays, no anomaly detection, no needless gradients, inference mode.

In: torch, as the script imports it, and its DataLoaders as they are made. Out: the same training without work that nothing
depends on. With workers the samples come in the order of the plain script, but random numbers that a Dataset draws come from
other generators; a dataset that is an iterator is left alone, since each worker would give all of it.
"""

from __future__ import annotations

import gc
import inspect
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from unchoke.chokes.watch import hooks, remedies
from unchoke.chokes.watch.hooks import Function
from unchoke.chokes.watch.remedies.remedy import Remedy

_DATALOADER = "torch.utils.data.dataloader"
Change = Callable[[dict[str, Any]], bool]
"""Changes the arguments of a DataLoader; whether there was anything to change."""


def workers(remedy: Remedy) -> None:
    """Load in this many processes where the script loads in its own."""
    number = int(remedy.argument or 2)

    def change(arguments: dict[str, Any]) -> bool:
        from torch.utils.data import IterableDataset

        if arguments["num_workers"] or isinstance(arguments["dataset"], IterableDataset):
            return False
        arguments |= {"num_workers": number, "persistent_workers": True}
        # a forked process cannot use a device that was in use before
        may_fork = "fork" in multiprocessing.get_all_start_methods() and not sys.modules["torch"].cuda.is_initialized()
        if arguments["multiprocessing_context"] is None and may_fork:
            arguments["multiprocessing_context"] = "fork"
        return True

    hooks.when_imported(_DATALOADER, lambda: _make_otherwise(remedy, change))


def persistent_workers(remedy: Remedy) -> None:
    """Keep workers from one epoch to the next."""

    def change(arguments: dict[str, Any]) -> bool:
        if not arguments["num_workers"] or arguments["persistent_workers"]:
            return False
        arguments["persistent_workers"] = True
        return True

    hooks.when_imported(_DATALOADER, lambda: _make_otherwise(remedy, change))


def _make_otherwise(remedy: Remedy, change: Change) -> None:
    dataloader = sys.modules[_DATALOADER]
    signature = inspect.signature(dataloader.DataLoader.__init__)

    def make(original: Function) -> Function:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            given = signature.bind(self, *args, **kwargs)
            given.apply_defaults()
            if change(given.arguments):
                remedy.did()
            original(*given.args, **given.kwargs)

        return init

    remedy.put(dataloader.DataLoader, "__init__", make)
    remedy.put(dataloader._MultiProcessingDataLoaderIter, "_reset", _drawing_as_before)


def _drawing_as_before(original: Function) -> Function:
    """Each new iterator draws a seed for its workers; one that persists does not, and the next order would be another."""
    import torch

    def reset(self: Any, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        original(self, loader, first_iter)

    return reset


def anomaly_off(remedy: Remedy) -> None:
    """Switching anomaly detection on does nothing."""

    def make(original: Function) -> Function:
        def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
            if mode:
                remedy.did()
            else:
                original(mode, check_nan)

        return set_anomaly_enabled

    hooks.when_imported("torch", lambda: remedy.put(sys.modules["torch"], "set_anomaly_enabled", make))


def frozen_no_grad(remedy: Remedy) -> None:
    """Parameters that have a gradient at the first step, and are in no optimizer, need none from then on."""
    hooks.when_imported("torch.optim.optimizer", lambda: _freeze_at_first_step(remedy))


def _freeze_at_first_step(remedy: Remedy) -> None:
    optim = sys.modules["torch.optim.optimizer"]
    moved: set[int] = set()
    frozen: dict[int, Any] = {}
    waiting = {"for the first step"}

    def make(original: Function) -> Function:
        def add_param_group(self: Any, param_group: dict[str, Any]) -> None:
            original(self, param_group)
            for parameter in self.param_groups[-1]["params"]:
                moved.add(id(parameter))
                if frozen.pop(id(parameter), None) is not None:  # to be trained from now on
                    parameter.requires_grad_(True)

        return add_param_group

    def freeze(*_: Any) -> None:
        if not waiting:
            return
        waiting.clear()
        kind = sys.modules["torch.nn.parameter"].Parameter
        with_gradients = [one for one in gc.get_objects() if type(one) is kind and one.requires_grad and one.grad is not None]
        for parameter in with_gradients:
            if id(parameter) not in moved:
                parameter.requires_grad_(False)
                parameter.grad = None
                frozen[id(parameter)] = parameter
                remedy.did()

    remedy.put(optim.Optimizer, "add_param_group", make)
    optim.register_optimizer_step_pre_hook(freeze)


def inference_mode(remedy: Remedy) -> None:
    """Loops over loaders that are not trained on run in inference mode, from the first batch to the last."""
    hooks.when_imported("torch.utils.data.dataloader", lambda: _evaluate_in_inference_mode(remedy))


def _evaluate_in_inference_mode(remedy: Remedy) -> None:
    import torch.utils.data.dataloader as dataloader

    from unchoke.chokes.watch import loading

    def make(original: Function) -> Function:
        def iterate(self: Any) -> Any:
            if loading.loaders.of(self).number not in remedy.evaluated or torch.is_inference_mode_enabled():
                return original(self)
            remedy.did()
            return _in_inference_mode(original(self))

        return iterate

    torch = sys.modules["torch"]
    remedy.put(dataloader.DataLoader, "__iter__", make)


def _in_inference_mode(batches: Any) -> Iterator[Any]:
    """The mode holds for the thread, so also for what is done to a batch between two of them."""
    with sys.modules["torch"].inference_mode():
        yield from batches


def keep_freed_memory(remedy: Remedy) -> None:
    """The environment has to be set before a process starts (`remedies.environment`): here it is only noticed."""
    if all(os.environ.get(name) == value for name, value in remedies.KEEP_FREED_MEMORY.items()):
        remedy.did()
