"""Hooks on the training step: backward, optimizers of torch and of Keras; and stopping after so many steps.

In comes torch, once the script has imported it; out go moments to the process's `Account`. Nothing is synchronised: on a device
the times are those of the CPU side, which the record says. Code that torch compiles is left alone.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from types import TracebackType
from typing import Any

from unchoke_doctor.watch import hooks
from unchoke_doctor.watch.hooks import Function
from unchoke_doctor.watch.recorder import Recorder
from unchoke_doctor.watch.stacks import user_place

STEPS = "UNCHOKE_WATCH_STEPS"
SECONDS = "UNCHOKE_WATCH_SECONDS"
_LEAVE_AFTER_S = 5.0
_sleep = time.sleep
_ident = threading.get_ident


def install(recorder: Recorder) -> None:
    """Wait for torch, then watch backward and optimizers."""
    recorder.register("steps", lambda: recorder.account.to_dict())
    hooks.when_imported("torch", lambda: _describe(recorder))
    hooks.when_imported("torch.autograd", lambda: _watch_backward(recorder))
    hooks.when_imported("torch.autograd.anomaly_mode", lambda: _watch_anomaly(recorder))
    hooks.when_imported("torch.optim.optimizer", lambda: _watch_optimizers(recorder))
    hooks.when_imported("keras.src.optimizers.base_optimizer", lambda: _watch_keras(recorder))
    hooks.when_imported("keras.src.backend.torch.trainer", lambda: _watch_judging(recorder))
    steps, seconds = os.environ.get(STEPS), os.environ.get(SECONDS)
    if steps or seconds:
        recorder.account.on_step = StepLimit(recorder, int(steps) if steps else None, float(seconds) if seconds else None)


def _describe(recorder: Recorder) -> None:
    import torch

    def version() -> str:
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            recorder.device = torch.cuda.get_device_name()
            recorder.note("on a device, times are those of the CPU side: work it has been handed and not finished is not in them")
        return str(torch.__version__)

    recorder.register("torch", version)
    recorder.register("torch_threads", torch.get_num_threads)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if name in os.environ:
            recorder.fact(name, os.environ[name])
    hooks.replace(torch, "set_num_threads", lambda original: _placed(recorder, "threads_set_at", original))


def _placed(recorder: Recorder, name: str, original: Function) -> Function:
    """Keeps the line of the user's own that calls a setting."""

    def called(*args: Any, **kwargs: Any) -> Any:
        recorder.fact(name, user_place(2)[:2])
        return original(*args, **kwargs)

    return called


def _watch_anomaly(recorder: Recorder) -> None:
    """The line that switches anomaly detection on."""
    import torch.autograd.anomaly_mode as anomaly

    def make(original: Function) -> Function:
        def begin(self: Any, *args: Any, **options: Any) -> None:
            original(self, *args, **options)
            if not isinstance(self, anomaly.set_detect_anomaly) or sys.modules["torch"].is_anomaly_enabled():
                recorder.fact("anomaly_at", user_place(2)[:2])

        return begin

    for switch in (anomaly.set_detect_anomaly, anomaly.detect_anomaly):
        hooks.replace(switch, "__init__", make)


def _compiling() -> bool:
    """Whether torch is reading this code in order to compile it."""
    compiler = sys.modules.get("torch.compiler")
    return compiler is not None and bool(compiler.is_compiling())


def _watch_backward(recorder: Recorder) -> None:
    autograd = sys.modules["torch.autograd"]  # torch itself is still being imported

    def make(original: Function) -> Function:
        def backward(*args: Any, **kwargs: Any) -> Any:
            account = recorder.account
            if _ident() != account.thread or _compiling():
                return original(*args, **kwargs)
            account.begin()
            account.trained()
            account.count("backwards")
            account.loss = _loss(args[0] if args else None)
            account.enter("backward_s")
            try:
                return original(*args, **kwargs)
            finally:
                account.leave()
                if recorder.phase != "step":
                    recorder.phase = "step"

        return backward

    for name in ("backward", "grad"):
        hooks.replace(autograd, name, make)


def _loss(tensors: Any) -> float | None:
    """The number a backward began from, where reading it costs nothing: on the CPU."""
    first = tensors[0] if isinstance(tensors, tuple | list) and len(tensors) == 1 else tensors
    if not getattr(first, "is_cpu", False) or first.numel() != 1:
        return None
    value = float(sys.modules["torch"]._C.TensorBase.item(first))  # the method itself, not our hook on it
    return round(value, 6) if math.isfinite(value) else None


def _watch_optimizers(recorder: Recorder) -> None:
    import torch.optim.optimizer as optim

    def before(_optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        account = recorder.account
        if _ident() != account.thread:
            return None
        account.begin()
        account.enter("optimizer_s")
        return _with_closure_apart(recorder, args, kwargs)

    def after(optimizer: Any, *_: Any) -> None:
        account = recorder.account
        if _ident() == account.thread and account.region == "optimizer_s":
            account.leave()
            account.trained()
            account.step(id(optimizer))

    optim.register_optimizer_step_pre_hook(before)
    optim.register_optimizer_step_post_hook(after)


def _with_closure_apart(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Lightning runs the whole step in the optimizer's closure: what happens there is not the optimizer's time."""
    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
    if not callable(closure):
        return None

    def apart(*given: Any, **named: Any) -> Any:
        recorder.account.enter("closure")
        try:
            return closure(*given, **named)
        finally:
            recorder.account.leave()

    return (args, {**kwargs, "closure": apart}) if "closure" in kwargs else ((args[0], apart, *args[2:]), kwargs)


def _watch_keras(recorder: Recorder) -> None:
    """Keras 3 has optimizers of its own, on whichever backend: `apply` is their step."""
    module: Any = sys.modules["keras.src.optimizers.base_optimizer"]

    def make(original: Function) -> Function:
        def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
            account = recorder.account
            if _ident() != account.thread or account.region == "optimizer_s":
                return original(self, *args, **kwargs)
            account.begin()
            account.trained()
            account.enter("optimizer_s")
            try:
                return original(self, *args, **kwargs)
            finally:
                account.leave()
                recorder.phase = "step"
                account.step(id(self))

        return apply

    hooks.replace(module.BaseOptimizer, "apply", make)


def _watch_judging(recorder: Recorder) -> None:
    """Keras' `evaluate` and `predict`, which often run in a callback, are evaluation from their first line to their last."""

    def make(original: Function) -> Function:
        def judge(*args: Any, **kwargs: Any) -> Any:
            account, phase = recorder.account, recorder.phase
            if _ident() != account.thread or phase == "evaluate":
                return original(*args, **kwargs)
            account.judge()
            recorder.phase = "evaluate"
            try:
                return original(*args, **kwargs)
            finally:
                account.judged()
                recorder.phase = phase

        return judge

    for name in ("evaluate", "predict"):
        hooks.replace(sys.modules["keras.src.backend.torch.trainer"].TorchTrainer, name, make)


class StepLimit:
    """Ends the script after so many steps or seconds of training, as Ctrl-C would; by force if it does not end."""

    def __init__(self, recorder: Recorder, steps: int | None, seconds: float | None) -> None:
        self._recorder = recorder
        self._steps = steps
        self._seconds = seconds
        self._is_stopping = False

    def __call__(self) -> None:
        """After each step."""
        account = self._recorder.account
        enough = self._steps is not None and account.num_steps >= self._steps
        trained_s = time.perf_counter() - (account.began_s or time.perf_counter())
        late = self._seconds is not None and trained_s >= self._seconds
        if (enough or late) and not self._is_stopping:
            self._is_stopping = True
            self._recorder.fact("stopped", f"after {account.num_steps} steps, {trained_s:.1f} s of training")
            self._recorder.flush()
            _interrupt(self._recorder)


def _interrupt(recorder: Recorder) -> None:
    show = sys.excepthook

    def quietly(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            show(kind, error, trace)

    def leave() -> None:
        _sleep(_LEAVE_AFTER_S)
        recorder.flush()
        os._exit(0)

    sys.excepthook = quietly
    threading.Thread(target=leave, name="unchoke-stop", daemon=True).start()
    signal.raise_signal(signal.SIGINT)
