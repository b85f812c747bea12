"""The script once more, with loading for free: every loader that was trained on gives its first batch again and again.

In comes the environment (`REPLAY` steps to measure, `LOADERS` that were trained on, `SCRATCH`); out goes the fact `replay` of the
record: seconds per step without waiting, evaluation and checkpoints. Then the process leaves at once. It runs with a scratch
folder in front of its files (`scratch.py`) and, where the kernel has one, a fence around them (`fence.py`).
"""

from __future__ import annotations

import copy
import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from unchoke.chokes.watch import FOLDER, SCRATCH, hooks
from unchoke.chokes.watch.recorder import Recorder

if TYPE_CHECKING:
    from unchoke.chokes.watch.scratch import Scratch

REPLAY = "UNCHOKE_WATCH_REPLAY"
LOADERS = "UNCHOKE_WATCH_LOADERS"

WARM_UP_STEPS = 2
_LONGEST_S = 10.0
_NOT_OF_A_STEP = ("wait_s", "evaluate_s", "checkpoint_s")


def is_asked_for() -> bool:
    return bool(os.environ.get(REPLAY))


def install(recorder: Recorder) -> None:
    """Nothing, unless this run is a replay."""
    if not is_asked_for():
        return
    protect(recorder)
    numbers = {int(number) for number in os.environ[LOADERS].split(",") if number}
    hooks.when_imported("torch.utils.data.dataloader", lambda: _repeat(numbers))
    recorder.account.on_step = _Ending(recorder, int(os.environ[REPLAY]))


def protect(recorder: Recorder) -> Scratch:
    """From now on what this process writes goes to the scratch folder of the environment; where that fails, it ends here."""
    try:
        return _protected(recorder)
    except Exception as error:  # the script must not run on without it
        recorder.note(f"its files could not be protected: {type(error).__name__}: {error}")
        recorder.flush()
        os._exit(1)


def _protected(recorder: Recorder) -> Scratch:
    from unchoke.chokes.watch import fence, scratch

    folder = os.environ[SCRATCH]
    allowed = (*_caches(), os.environ[FOLDER], "/dev", "/proc")
    if not fence.put_up((folder, *allowed)):
        recorder.note("no fence around files on this system: C extensions could have written in the replay")
    front = scratch.Scratch(folder, recorder, left_alone=allowed)
    scratch.put_in_front(front, recorder)
    return front


def _caches() -> tuple[str, ...]:
    """Where compilers keep what they made: without it a replay would compile anew."""
    home = os.path.expanduser("~")
    named = (os.environ.get("TORCHINDUCTOR_CACHE_DIR"), os.environ.get("TRITON_CACHE_DIR"))
    return tuple(folder for folder in (*named, os.path.join(home, ".triton"), os.path.join(home, ".nv")) if folder)


class _Ending:
    """After each step: begin to measure after the warm-up, and leave when enough was measured."""

    def __init__(self, recorder: Recorder, steps: int) -> None:
        self._recorder = recorder
        self._steps = steps
        self._began: dict[str, float] = {}

    def __call__(self) -> None:
        done = self._recorder.account.num_steps - WARM_UP_STEPS
        if done == 0:
            self._began = self._now()
        elif done > 0 and (done >= self._steps or time.perf_counter() - self._began["clock_s"] > _LONGEST_S):
            now = self._now()
            took = {name: now[name] - self._began[name] for name in now}
            seconds = took["clock_s"] - sum(took[name] for name in _NOT_OF_A_STEP)
            self._recorder.fact("replay", {"steps": done, "step_s": seconds / done})
            self._recorder.flush()
            os._exit(0)

    def _now(self) -> dict[str, float]:
        """The clock once the device is done, and what has been spent so far on what is not part of a step."""
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        spent = self._recorder.account.to_dict()
        totals = {name: sum(row[spent["columns"].index(name)] for row in spent["rows"]) for name in _NOT_OF_A_STEP}
        return {"clock_s": time.perf_counter(), **totals}


def _repeat(numbers: set[int]) -> None:
    import torch.utils.data.dataloader as dataloader

    from unchoke.chokes.watch import loading

    def make(original: Any, patch: hooks.Patch) -> Any:
        def iterate(self: Any) -> Any:
            if loading.loaders.of(self).number not in numbers:
                return original(self)
            repeated = self.__dict__.get("_unchoke_repeated")
            if repeated is None:
                repeated = self.__dict__["_unchoke_repeated"] = _Repeated(_first_batch(self))
            return repeated.batches(_length(self))

        return iterate

    hooks.replace(dataloader.DataLoader, "__iter__", make)


def _first_batch(loader: Any) -> Any:
    """Loaded here, without workers, the way they would."""
    import torch
    from torch.utils.data import _DatasetKind
    from torch.utils.data._utils.pin_memory import pin_memory

    made_of = (loader.dataset, loader._auto_collation, loader.collate_fn, loader.drop_last)
    fetcher: Any = _DatasetKind.create_fetcher(loader._dataset_kind, *made_of)  # type: ignore[no-untyped-call]
    batch = fetcher.fetch(next(iter(loader._index_sampler)))
    pins = loader.pin_memory and torch.accelerator.is_available()
    return pin_memory(batch) if pins else batch  # type: ignore[no-untyped-call]


def _length(loader: Any) -> int:
    try:
        return len(loader)
    except TypeError:  # an iterable dataset without a length: as long as it takes
        return sys.maxsize


class _Repeated:
    """One batch, given out many times: its containers are new each time, its tensors are copied only if somebody changed them."""

    def __init__(self, batch: Any) -> None:
        self._kept = _rebuilt(batch, clone=True)
        self._given = _rebuilt(self._kept, clone=True)
        self._versions = _versions(self._given)

    def batches(self, number: int) -> Iterator[Any]:
        for _ in range(number):
            if _versions(self._given) != self._versions:
                self._given = _rebuilt(self._kept, clone=True)
                self._versions = _versions(self._given)
            yield _rebuilt(self._given, clone=False)


def _rebuilt(value: Any, *, clone: bool) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.clone() if clone else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_rebuilt(item, clone=clone) for item in value))
    if type(value) in (list, tuple):
        return type(value)(_rebuilt(item, clone=clone) for item in value)
    if type(value) is dict:
        return {key: _rebuilt(item, clone=clone) for key, item in value.items()}
    return copy.copy(value)


def _versions(value: Any) -> list[int]:
    """How often each tensor was changed in place."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value._version]
    if isinstance(value, Mapping):
        return [version for item in value.values() for version in _versions(item)]
    if isinstance(value, list | tuple):
        return [version for item in value for version in _versions(item)]
    return []
