"""Tries out what a repair saves: a network that evaluates with gradients, or one sample at a time, is called again the repaired way.

While a cell runs, the first such call at each line is kept; when the cell has ended, the call as it was and the repaired one are
timed by turns. Networks in training mode are left alone, since a call would change them.
"""

from __future__ import annotations

import statistics
import sys
from time import perf_counter
from typing import Any

from unchoke_doctor.watch.hooks import when_imported
from unchoke_doctor.watch.stacks import user_place

_TURNS, _LIMIT_S, _BATCH, _MOST = 7, 1.5, 16, 6


class Trials:
    """Calls worth trying again; `kept` holds those of the running cell by line and by what is wrong with them."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int, str], tuple[Any, ...]] = {}
        self._inside = False

    def watch(self) -> None:
        when_imported("torch.nn.modules.module", self._wrap)

    def _wrap(self) -> None:
        torch: Any = sys.modules["torch"]
        module_type: Any = sys.modules["torch.nn.modules.module"].Module
        call = module_type.__call__

        def called(module: Any, *args: Any, **options: Any) -> Any:
            if module.training or self._inside:
                return call(module, *args, **options)
            self._inside = True
            try:
                result = call(module, *args, **options)
            finally:
                self._inside = False
            if args and hasattr(args[0], "shape") and len(self.kept) < _MOST:
                keeps = torch.is_grad_enabled() and getattr(result, "requires_grad", False)
                alone = len(args[0].shape) > 1 and args[0].shape[0] == 1
                if keeps or alone:
                    file, line, _ = user_place(2)
                    for code, applies in (("no-inference-mode", keeps), ("one-at-a-time", alone)):
                        if applies and file:
                            self.kept.setdefault((file, line, code), (module, args, options, torch.is_grad_enabled()))
            return result

        module_type.__call__ = called

    def measure(self) -> list[dict[str, Any]]:
        """For each kept call the share of its time that the repair saves; a call that cannot be repeated gives none."""
        found = []
        for (file, line, code), kept in self.kept.items():
            try:
                found.append({"file": file, "line": line, "code": code, "saves": _saves(code, *kept)})
            except Exception:  # another network, another reason
                continue
        self.kept.clear()
        return found


def _saves(code: str, module: Any, args: tuple[Any, ...], options: dict[str, Any], grads: bool) -> float:
    torch: Any = sys.modules["torch"]
    many = [torch.cat([args[0]] * _BATCH), *args[1:]] if code == "one-at-a-time" else args
    state = torch.get_rng_state()

    def seconds(inputs: Any, *, with_grads: bool) -> float:
        began_s = perf_counter()
        with torch.set_grad_enabled(with_grads):
            result = module(*inputs, **options)
        del result  # its graph goes with it
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return perf_counter() - began_s

    repaired, per_call = (many, _BATCH) if code == "one-at-a-time" else (args, 1)
    now, then = [], []
    began_s = perf_counter()
    for turn in range(_TURNS):
        now += [seconds(args, with_grads=grads) for _ in range(per_call)]
        then.append(seconds(repaired, with_grads=grads and code != "no-inference-mode"))
        if turn and perf_counter() - began_s > _LIMIT_S:
            break
    torch.set_rng_state(state)
    return max(0.0, 1 - statistics.median(then) / (statistics.median(now) * per_call))
