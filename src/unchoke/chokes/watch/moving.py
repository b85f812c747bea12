"""Hooks on what moves tensors: to a device, to plain numbers, to and from files.

In comes torch (and safetensors), once the script has imported it; out go `to_device`, `item`, `save` and `load` calls. Each hook
costs a microsecond or two. What an optimizer reads for itself is not counted.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any

from unchoke.chokes.watch import hooks
from unchoke.chokes.watch.hooks import Function
from unchoke.chokes.watch.recorder import Recorder

_clock = time.perf_counter
_stat = os.stat  # ours stays what it was when others are replaced
_TO_NUMBERS = ("item", "tolist", "numpy", "cpu", "__float__", "__int__", "__bool__")


def install(recorder: Recorder) -> None:
    """Wait for torch and safetensors, then watch copies, readings and files."""
    hooks.when_imported("torch", lambda: _watch_torch(recorder))
    hooks.when_imported("safetensors.torch", lambda: _watch_safetensors(recorder))


def _watch_torch(recorder: Recorder) -> None:
    import torch
    import torch.serialization

    for name in ("to", "cuda"):
        recorder.duty.may_rest(hooks.replace(torch.Tensor, name, partial(_timed_copy, recorder)))
    for name in _TO_NUMBERS:
        recorder.duty.may_rest(hooks.replace(torch.Tensor, name, partial(_timed_reading, recorder)))
    for name, kind, at in (("save", "save", 1), ("load", "load", 0)):
        hook = hooks.replace(torch.serialization, name, partial(_timed_file, recorder, kind, at))
        if hook is not None and getattr(torch, name) is hook.original:
            setattr(torch, name, hook.replacement)


def _watch_safetensors(recorder: Recorder) -> None:
    import safetensors.torch

    for name, kind, at in (("save_file", "save", 1), ("save_model", "save", 1), ("load_file", "load", 0)):
        hooks.replace(safetensors.torch, name, partial(_timed_file, recorder, kind, at))


def _timed_copy(recorder: Recorder, original: Function) -> Function:
    def copy(self: Any, *args: Any, **kwargs: Any) -> Any:
        began_s = _clock()
        result = original(self, *args, **kwargs)
        if result is not self and result.device != self.device:
            took_s = _clock() - began_s
            recorder.account.add("copy_s", took_s)
            recorder.call("item" if result.is_cpu else "to_device", took_s, amount=result.element_size() * result.numel())
        return result

    return copy


def _timed_reading(recorder: Recorder, original: Function) -> Function:
    def reading(self: Any, *args: Any, **kwargs: Any) -> Any:
        account = recorder.account
        if account.region == "optimizer_s":
            return original(self, *args, **kwargs)
        began_s = _clock()
        result = original(self, *args, **kwargs)
        account.count("items")
        recorder.call("item", _clock() - began_s, amount=0 if self.is_cpu else 1)
        return result

    return reading


def _timed_file(recorder: Recorder, kind: str, at: int, original: Function) -> Function:
    """For a function whose argument number `at` is a file; `kind` is save or load."""

    def timed(*args: Any, **kwargs: Any) -> Any:
        phase, recorder.phase = recorder.phase, "checkpoint"
        began_s = _clock()
        try:
            return original(*args, **kwargs)
        finally:
            took_s = _clock() - began_s
            recorder.account.add("checkpoint_s" if kind == "save" else kind, took_s)
            file = args[at] if len(args) > at else kwargs.get("f", kwargs.get("filename"))
            key = os.fspath(file) if isinstance(file, str | os.PathLike) else None
            recorder.call(kind, took_s, amount=_file_bytes(file), key=key)
            recorder.phase = phase

    return timed


def _file_bytes(file: Any) -> int:
    """Bytes of a file, or how far an open one was written; 0 where neither can be told."""
    try:
        return int(file.tell()) if hasattr(file, "tell") else int(_stat(file).st_size)
    except (OSError, TypeError, ValueError, AttributeError):
        return 0
