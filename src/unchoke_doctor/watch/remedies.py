"""Changes to somebody's training that can be switched on while it runs, the script unedited: one at a time.

In comes a remedy by name, `workers:2` for one with an argument; out comes the same process with a few functions replaced. Each
remedy is a function that takes a `Remedy` and counts there what it changed, so that one that found nothing to do is noticed.
Whether it helps, and whether the losses stay the same, is measured by `trials.py`.
"""

from __future__ import annotations

import gc
import inspect
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from typing import Any

from unchoke_doctor.watch import hooks
from unchoke_doctor.watch import recorder as record
from unchoke_doctor.watch.hooks import Function
from unchoke_doctor.watch.recorder import Recorder

CHANGES_PIXELS = frozenset({"draft-jpeg"})
"""Remedies that cannot keep the numbers to the last digit."""
RANDOM_IN_WORKERS = frozenset({"workers", "persistent-workers"})
"""Remedies after which random numbers in a Dataset are drawn by other processes, or in another order."""
_DATALOADER = "torch.utils.data.dataloader"
Change = Callable[[dict[str, Any]], bool]
"""Changes the arguments of a DataLoader; whether there was anything to change."""


class Remedy:
    """One change to a training, switched on in this process. `evaluated`: the numbers of loaders that are not trained on."""

    def __init__(self, recorder: Recorder, argument: str = "", *, evaluated: frozenset[int] = frozenset()) -> None:
        self.argument = argument
        self.evaluated = evaluated
        self.recorder = recorder
        self.done = 0
        recorder.register("remedy", lambda: {"done": self.done})
        recorder.after_fork(lambda: setattr(self, "done", 0))

    def put(self, owner: Any, name: str, make: Callable[[Function], Function]) -> None:
        """Replace `owner.name`, where there is such a thing."""
        hooks.replace(owner, name, make, stand_in=True)

    def did(self) -> None:
        """The remedy took effect once. The first time is written down at once: a process may be gone before the next second."""
        self.done += 1
        if self.done == 1 and self.recorder.phase is not record.WATCHER:
            self.recorder.flush()


def is_known(remedy: str) -> bool:
    return remedy.partition(":")[0] in REMEDIES


def switch_on(remedy: str, recorder: Recorder, evaluated: frozenset[int]) -> None:
    """Put the functions of the remedy of this name in place, now or as soon as the script imports what it is about."""
    name, _, argument = remedy.partition(":")
    REMEDIES[name](Remedy(recorder, argument, evaluated=evaluated))


def workers(remedy: Remedy) -> None:
    """Load in this many processes where the script loads in fewer."""
    number = int(remedy.argument or 2)

    def change(arguments: dict[str, Any]) -> bool:
        from torch.utils.data import IterableDataset

        if arguments["num_workers"] >= number or isinstance(arguments["dataset"], IterableDataset):
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
        before, arguments["persistent_workers"] = arguments["persistent_workers"], bool(arguments["num_workers"])
        return bool(arguments["num_workers"] and not before)

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
    """Parameters that have a gradient at the first step, and are in no optimizer, need none until one is given them."""
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
        kind = sys.modules["torch.nn.parameter"].Parameter
        for parameter in [one for one in gc.get_objects() if type(one) is kind] if waiting else ():
            if parameter.requires_grad and parameter.grad is not None and id(parameter) not in moved:
                parameter.requires_grad_(False)
                parameter.grad = None
                frozen[id(parameter)] = parameter
                remedy.did()
        waiting.clear()

    def begin() -> None:
        optim = sys.modules["torch.optim.optimizer"]
        remedy.put(optim.Optimizer, "add_param_group", make)
        optim.register_optimizer_step_pre_hook(freeze)

    hooks.when_imported("torch.optim.optimizer", begin)


def inference_mode(remedy: Remedy) -> None:
    """Loops over loaders that are not trained on run in inference mode, from the first batch to the last."""

    def make(original: Function) -> Function:
        from unchoke_doctor.watch import loading

        torch = sys.modules["torch"]

        def in_inference_mode(batches: Any) -> Iterator[Any]:
            with torch.inference_mode():  # holds for the thread, so also for what is done to a batch between two of them
                yield from batches

        def iterate(self: Any) -> Any:
            if loading.loaders.of(self).number not in remedy.evaluated or torch.is_inference_mode_enabled():
                return original(self)
            remedy.did()
            return in_inference_mode(original(self))

        return iterate

    hooks.when_imported(_DATALOADER, lambda: remedy.put(sys.modules[_DATALOADER].DataLoader, "__iter__", make))


def draft_jpeg(remedy: Remedy) -> None:
    """JPEGs are decoded at the smallest scale that leaves twice the side that is used (the argument)."""
    side = 2 * int(remedy.argument or 256)

    def make(original: Function) -> Function:
        def open_(*args: Any, **options: Any) -> Any:
            picture = original(*args, **options)
            full = picture.size
            if picture.format == "JPEG" and picture.draft(None, (side, side)) is not None and picture.size != full:
                remedy.did()
            return picture

        return open_

    hooks.when_imported("PIL.Image", lambda: remedy.put(sys.modules["PIL.Image"], "open", make))


def torch_threads(remedy: Remedy) -> None:
    """Let torch use this many threads, whatever the script and the environment ask for."""
    number = int(remedy.argument or multiprocessing.cpu_count())

    def make(original: Function) -> Function:
        def set_num_threads(_asked: int) -> None:
            original(number)

        return set_num_threads

    def begin() -> None:
        torch = sys.modules["torch"]
        torch.set_num_threads(number)
        remedy.put(torch, "set_num_threads", make)
        remedy.did()

    hooks.when_imported("torch", begin)


REMEDIES: dict[str, Callable[[Remedy], None]] = {
    "workers": workers,
    "persistent-workers": persistent_workers,
    "torch-threads": torch_threads,
    "anomaly-off": anomaly_off,
    "frozen-no-grad": frozen_no_grad,
    "inference-mode": inference_mode,
    "draft-jpeg": draft_jpeg,
}
