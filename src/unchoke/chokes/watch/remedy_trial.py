"""The script once more for so many steps, loading as always, perhaps with one remedy switched on: how fast, and which losses.

In comes the environment (`TRIAL` steps, `REMEDY`, `EVALUATED` loaders, and that of a sandbox, see `replay.py`); out goes the
fact `trial` of the record: when each step ended, and the number each backward began from. Generators are seeded as the script
starts, so that two runs of a script that does not seed its own can be compared. Then the process leaves at once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from unchoke.chokes.watch import hooks, replay
from unchoke.chokes.watch.recorder import Recorder
from unchoke.chokes.watch.replay import WARM_UP_STEPS

if TYPE_CHECKING:
    from unchoke.chokes.watch.scratch import Scratch

TRIAL = "UNCHOKE_WATCH_TRIAL"
REMEDY = "UNCHOKE_WATCH_REMEDY"
EVALUATED = "UNCHOKE_WATCH_EVALUATED"

_LONGEST_S = 30.0
_SEED = 0


def is_asked_for() -> bool:
    return bool(os.environ.get(TRIAL))


def install(recorder: Recorder) -> None:
    """Nothing, unless this run is a trial."""
    if not is_asked_for():
        return
    scratch = replay.protect(recorder)
    _seed()
    losses: list[Any] = []
    hooks.when_imported("torch.autograd", lambda: _keep_losses(losses))
    recorder.account.on_step = _Ending(recorder, int(os.environ[TRIAL]), losses)
    remedy = os.environ.get(REMEDY)
    if remedy:
        _switch_on(remedy, recorder, scratch)


def _switch_on(remedy: str, recorder: Recorder, scratch: Scratch) -> None:
    from unchoke.chokes.watch import remedies
    from unchoke.chokes.watch.remedies.applying import Applying

    evaluated = frozenset(int(number) for number in os.environ.get(EVALUATED, "").split(",") if number)
    _, argument = remedies.split(remedy)
    remedies.switch_on(remedy, Applying(recorder, argument, scratch=scratch, evaluated=evaluated))


def _seed() -> None:
    import random

    random.seed(_SEED)
    hooks.when_imported("numpy.random", lambda: sys.modules["numpy.random"].seed(_SEED))
    hooks.when_imported("torch", lambda: sys.modules["torch"].manual_seed(_SEED))


def _keep_losses(losses: list[Any]) -> None:
    """As tensors: reading one would make a device wait."""

    def make(original: Callable[..., Any], patch: hooks.Patch) -> Callable[..., Any]:
        def backward(tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            first = tensors[0] if isinstance(tensors, tuple | list) and len(tensors) == 1 else tensors
            if getattr(first, "numel", int)() == 1:
                losses.append(first.detach().clone())
            return original(tensors, *args, **kwargs)

        return backward

    hooks.replace(sys.modules["torch.autograd"], "backward", make)


class _Ending:
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
        is_last = number >= self._steps or self._trained_s() > _LONGEST_S
        if is_last or number == WARM_UP_STEPS:
            _wait_for_device()
        self._ends_s.append(time.perf_counter())
        if is_last:
            losses = [float(loss.item()) for loss in self._losses]
            self._recorder.fact("trial", {"ends_s": self._ends_s, "losses": losses})
            self._recorder.flush()
            _leave()

    def _trained_s(self) -> float:
        return time.perf_counter() - self._ends_s[0] if self._ends_s else 0.0


def _wait_for_device() -> None:
    cuda = sys.modules["torch"].cuda
    if cuda.is_initialized():
        cuda.synchronize()


def _leave() -> None:
    """With the workers, which would take seconds to notice, while another run is being timed."""
    import multiprocessing

    for child in multiprocessing.active_children():
        child.terminate()
    os._exit(0)
