"""The script once more, in a sandbox: with loading for free (a replay), or as it is, perhaps with one remedy (a trial).

In comes the environment. A replay (`REPLAY` steps, `LOADERS` that were trained on) gives each of those loaders its first batch
again and again, and leaves the fact `replay`: seconds per step without waiting, evaluation and checkpoints. A trial (`TRIAL`
steps, `REMEDY`, `EVALUATED` loaders) leaves the fact `trial`: when each step ended, and the number each backward began from; it
seeds generators as the script starts, so that two runs of a script that does not seed its own can be compared. Either writes to
a scratch folder in front of its files (`scratch.py`), and its process leaves as soon as enough was measured.
"""

from __future__ import annotations

import copy
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from unchoke_doctor.watch import FOLDER, SCRATCH, hooks
from unchoke_doctor.watch.recorder import Recorder

REPLAY = "UNCHOKE_WATCH_REPLAY"
LOADERS = "UNCHOKE_WATCH_LOADERS"
TRIAL = "UNCHOKE_WATCH_TRIAL"
REMEDY = "UNCHOKE_WATCH_REMEDY"
EVALUATED = "UNCHOKE_WATCH_EVALUATED"

WARM_UP_STEPS = 2
_LONGEST_REPLAY_S = 10.0
_LONGEST_TRIAL_S = 30.0
_SEED = 0
_NOT_OF_A_STEP = ("wait_s", "evaluate_s", "checkpoint_s")


def install(recorder: Recorder) -> None:
    """Nothing, unless the environment asks for a replay or a trial."""
    if os.environ.get(REPLAY):
        protect(recorder)
        hooks.when_imported("torch.utils.data.dataloader", lambda: _repeat(_numbers(LOADERS)))
        recorder.account.on_step = _ReplayEnd(recorder, int(os.environ[REPLAY]))
    if os.environ.get(TRIAL):
        protect(recorder)
        _seed()
        losses: list[Any] = []
        hooks.when_imported("torch.autograd", lambda: _keep_losses(losses))
        recorder.account.on_step = _TrialEnd(recorder, int(os.environ[TRIAL]), losses)
        if os.environ.get(REMEDY):
            from unchoke_doctor.watch import remedies

            remedies.switch_on(os.environ[REMEDY], recorder, _numbers(EVALUATED))


def _numbers(name: str) -> frozenset[int]:
    return frozenset(int(number) for number in os.environ.get(name, "").split(",") if number)


def protect(recorder: Recorder) -> None:
    """From now on what this process writes goes to the scratch folder of the environment; where that fails, it ends here."""
    try:
        from unchoke_doctor.watch import scratch

        folder = os.environ[SCRATCH]
        allowed = (*_caches(), os.environ[FOLDER], "/dev", "/proc")
        if not scratch.put_up_fence((folder, *allowed)):
            recorder.note("no fence around files on this system: C extensions could have written in the replay")
        scratch.put_in_front(scratch.Scratch(folder, recorder, left_alone=allowed))
    except Exception as error:  # the script must not run on without it
        recorder.note(f"its files could not be protected: {type(error).__name__}: {error}")
        recorder.flush()
        os._exit(1)


def _caches() -> tuple[str, ...]:
    """Where compilers keep what they made: without it a replay would compile anew."""
    home = os.path.expanduser("~")
    named = (os.environ.get("TORCHINDUCTOR_CACHE_DIR"), os.environ.get("TRITON_CACHE_DIR"))
    return tuple(folder for folder in (*named, os.path.join(home, ".triton"), os.path.join(home, ".nv")) if folder)


def _wait_for_device() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


class _ReplayEnd:
    """After each step: begin to measure after the warm-up, and leave when enough was measured."""

    def __init__(self, recorder: Recorder, steps: int) -> None:
        self._recorder = recorder
        self._steps = steps
        self._began: dict[str, float] = {}

    def __call__(self) -> None:
        done = self._recorder.account.num_steps - WARM_UP_STEPS
        if done == 0:
            self._began = self._now()
        elif done > 0 and (done >= self._steps or time.perf_counter() - self._began["clock_s"] > _LONGEST_REPLAY_S):
            now = self._now()
            took = {name: now[name] - self._began[name] for name in now}
            seconds = took["clock_s"] - sum(took[name] for name in _NOT_OF_A_STEP)
            self._recorder.fact("replay", {"steps": done, "step_s": seconds / done})
            self._recorder.flush()
            os._exit(0)

    def _now(self) -> dict[str, float]:
        """The clock once the device is done, and what has been spent so far on what is not part of a step."""
        _wait_for_device()
        spent = self._recorder.account.to_dict()
        totals = {name: sum(row[spent["columns"].index(name)] for row in spent["rows"]) for name in _NOT_OF_A_STEP}
        return {"clock_s": time.perf_counter(), **totals}


def _repeat(numbers: frozenset[int]) -> None:
    import torch.utils.data.dataloader as dataloader

    from unchoke_doctor.watch import loading

    def make(original: hooks.Function) -> hooks.Function:
        def iterate(self: Any) -> Any:
            if loading.loaders.of(self).number not in numbers:
                return original(self)
            repeated = self.__dict__.get("_unchoke_repeated")
            if repeated is None:
                repeated = self.__dict__["_unchoke_repeated"] = _RepeatedBatch(_first_batch(self))
            try:
                length = len(self)
            except TypeError:  # an iterable dataset without a length: as long as it takes
                length = sys.maxsize
            return repeated.batches(length)

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


class _RepeatedBatch:
    """One batch, given out many times: its containers are new each time, its tensors are copied only if somebody changed them."""

    def __init__(self, batch: Any) -> None:
        self._original = _rebuilt(batch, clone=True)
        self._copy = _rebuilt(self._original, clone=True)
        self._versions = _versions(self._copy)

    def batches(self, number: int) -> Iterator[Any]:
        for _ in range(number):
            if _versions(self._copy) != self._versions:
                self._copy = _rebuilt(self._original, clone=True)
                self._versions = _versions(self._copy)
            yield _rebuilt(self._copy, clone=False)


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


def _seed() -> None:
    import random

    random.seed(_SEED)
    hooks.when_imported("numpy.random", lambda: sys.modules["numpy.random"].seed(_SEED))
    hooks.when_imported("torch", lambda: sys.modules["torch"].manual_seed(_SEED))


def _keep_losses(losses: list[Any]) -> None:
    """As tensors: reading one would make a device wait."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            first = tensors[0] if isinstance(tensors, tuple | list) and len(tensors) == 1 else tensors
            if getattr(first, "numel", int)() == 1:
                losses.append(first.detach().clone())
            return original(tensors, *args, **kwargs)

        return backward

    hooks.replace(sys.modules["torch.autograd"], "backward", make)


class _TrialEnd:
    """Notes when each step ends, and leaves after the last."""

    def __init__(self, recorder: Recorder, steps: int, losses: list[Any]) -> None:
        self._recorder = recorder
        self._steps = steps
        self._losses = losses
        self._ends_s: list[float] = []

    def __call__(self) -> None:
        number = self._recorder.account.num_steps
        if number == len(self._ends_s):  # a second optimizer in the same step
            return
        trained_s = time.perf_counter() - self._ends_s[0] if self._ends_s else 0.0
        is_last = number >= self._steps or trained_s > _LONGEST_TRIAL_S
        if is_last or number == WARM_UP_STEPS:
            _wait_for_device()
        self._ends_s.append(time.perf_counter())
        if is_last:
            losses = [float(loss.item()) for loss in self._losses]
            self._recorder.fact("trial", {"ends_s": self._ends_s, "losses": losses})
            self._recorder.flush()
            _leave()


def _leave() -> None:
    """With the workers, which would take seconds to notice, while another run is being timed."""
    import multiprocessing

    for child in multiprocessing.active_children():
        child.terminate()
    os._exit(0)
