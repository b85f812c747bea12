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
from unchoke_doctor.watch.stacks import user_place

CHANGES_PIXELS = frozenset({"draft-jpeg"})
"""Remedies that cannot keep the numbers to the last digit."""
RANDOM_IN_WORKERS = frozenset({"workers", "persistent-workers"})
"""Remedies after which random numbers in a Dataset are drawn by other processes, or in another order."""
_DATALOADER = "torch.utils.data.dataloader"
_LEARNT_FROM, _GAP, _OPENED = 4, 2.0, "_unchoke_opened"
Change = Callable[[dict[str, Any]], bool]
"""Changes the arguments of a DataLoader; whether there was anything to change."""
Size = tuple[int, int]


class Remedy:
    """One change to a training, switched on in this process. `evaluated`: the numbers of loaders that are not trained on."""

    def __init__(self, recorder: Recorder, argument: str = "", *, evaluated: frozenset[int] = frozenset()) -> None:
        self.argument = argument
        self.evaluated = evaluated
        self.recorder = recorder
        self.done = 0
        recorder.register("remedy", lambda: {"done": self.done})
        recorder.after_fork(self._forget)

    def put(self, owner: Any, name: str, make: Callable[[Function], Function]) -> None:
        """Replace `owner.name`, where there is such a thing."""
        hooks.put(owner, name, lambda original, _: make(original))

    def did(self) -> None:
        """The remedy took effect once. The first time is written down at once: a process may be gone before the next second."""
        self.done += 1
        if self.done == 1 and self.recorder.phase is not record.WATCHER:
            self.recorder.flush()

    def _forget(self) -> None:
        self.done = 0


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

    from unchoke_doctor.watch import loading

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


class _OpeningLine:
    """A line that opens pictures: how much they were shrunk, as far as it has been seen."""

    def __init__(self) -> None:
        self.sizes: list[tuple[Size, Size]] = []
        self.is_left_alone = False

    def draft_size(self, full: Size) -> Size | None:
        """What a picture of this size has to cover; None as long as too little is known."""
        if self.is_left_alone or len(self.sizes) < _LEARNT_FROM:
            return None
        targets = {to for _, to in self.sizes}
        if len(targets) == 1:
            width, height = targets.pop()
            return round(_GAP * width), round(_GAP * height)
        share = max(max(to[0] / of[0], to[1] / of[1]) for of, to in self.sizes)
        return round(_GAP * share * full[0]), round(_GAP * share * full[1])


class _Origin:
    """Sticks to a picture, and to pictures of the same size made from it."""

    __slots__ = ("drafted", "full", "line")

    def __init__(self, line: _OpeningLine, full: Size, *, drafted: bool) -> None:
        self.line = line
        self.full = full
        self.drafted = drafted


def draft_jpeg(remedy: Remedy) -> None:
    """Draft what is shrunk anyway."""
    hooks.when_imported("PIL.Image", lambda: _draft(remedy))


def _draft(remedy: Remedy) -> None:
    module = sys.modules["PIL.Image"]
    lines: dict[tuple[str, int], _OpeningLine] = {}
    remedy.put(module, "open", lambda original: _drafting(remedy, lines, original))
    remedy.put(module.Image, "_new", _passing_on)
    remedy.put(module.Image, "resize", _learning)
    remedy.put(module.Image, "thumbnail", _learning)
    for name in ("crop", "tobytes", "getpixel"):
        remedy.put(module.Image, name, _leaving_alone)


def _drafting(remedy: Remedy, lines: dict[tuple[str, int], _OpeningLine], original: Function) -> Function:
    def open_(*args: Any, **options: Any) -> Any:
        picture = original(*args, **options)
        if picture.format != "JPEG":
            return picture
        file, number, _ = user_place(2)
        line = lines.setdefault((file, number), _OpeningLine())
        full = picture.size
        size = line.draft_size(full)
        drafted = size is not None and picture.draft(None, size) is not None and picture.size != full
        if drafted:
            remedy.did()
        setattr(picture, _OPENED, _Origin(line, full, drafted=drafted))
        return picture

    return open_


def _passing_on(original: Function) -> Function:
    def new(self: Any, im: Any) -> Any:
        made = original(self, im)
        opened = vars(self).get(_OPENED)
        if opened is not None and made.size == self.size:
            setattr(made, _OPENED, opened)
        return made

    return new


def _learning(original: Function) -> Function:
    def shrink(self: Any, size: Any, *args: Any, **options: Any) -> Any:
        opened = vars(self).pop(_OPENED, None)
        if opened is not None:
            has_box = options.get("box") is not None or len(args) > 1
            if has_box or size[0] > self.size[0] or size[1] > self.size[1]:  # a part of it, or more than there is
                opened.line.is_left_alone = True
            elif not opened.drafted:
                opened.line.sizes.append((opened.full, tuple(size)))
        return original(self, size, *args, **options)

    return shrink


def _leaving_alone(original: Function) -> Function:
    def look(self: Any, *args: Any, **options: Any) -> Any:
        opened = vars(self).pop(_OPENED, None)
        if opened is not None:
            opened.line.is_left_alone = True
        return original(self, *args, **options)

    return look


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
