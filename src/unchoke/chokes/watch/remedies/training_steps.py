"""Remedies for the step and for evaluation: no anomaly detection, no gradients for what is not trained, inference mode.

In: torch, as the script imports it. Out: the same training without work that nothing depends on.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

from unchoke.chokes.watch import hooks
from unchoke.chokes.watch.remedies.applying import Applying
from unchoke.chokes.watch.wrapping import Function


def anomaly_off(applying: Applying) -> None:
    """Switching anomaly detection on does nothing."""

    def make(original: Function) -> Function:
        def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
            if mode:
                applying.did()
            else:
                original(mode, check_nan)

        return set_anomaly_enabled

    hooks.when_imported("torch", lambda: applying.put(sys.modules["torch"], "set_anomaly_enabled", make))


def frozen_no_grad(applying: Applying) -> None:
    """Parameters that have a gradient at the first step, and are in no optimizer, need none from then on."""
    hooks.when_imported("torch.optim.optimizer", lambda: _freeze_at_first_step(applying))


def _freeze_at_first_step(applying: Applying) -> None:
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
        for parameter in _with_gradients():
            if id(parameter) not in moved:
                parameter.requires_grad_(False)
                parameter.grad = None
                frozen[id(parameter)] = parameter
                applying.did()

    applying.put(optim.Optimizer, "add_param_group", make)
    applying.when_removed(optim.register_optimizer_step_pre_hook(freeze).remove)


def _with_gradients() -> list[Any]:
    parameter = sys.modules["torch.nn.parameter"].Parameter
    return [one for one in gc.get_objects() if type(one) is parameter and one.requires_grad and one.grad is not None]


def inference_mode(applying: Applying) -> None:
    """Loops over loaders that are not trained on run in inference mode, from the first batch to the last."""
    hooks.when_imported("torch.utils.data.dataloader", lambda: _evaluate_in_inference_mode(applying))


def _evaluate_in_inference_mode(applying: Applying) -> None:
    import torch.utils.data.dataloader as dataloader

    from unchoke.chokes.watch import loading

    def make(original: Function) -> Function:
        def iterate(self: Any) -> Any:
            if loading.loaders.of(self).number not in applying.evaluated or torch.is_inference_mode_enabled():
                return original(self)
            applying.did()
            return _in_inference_mode(original(self))

        return iterate

    torch = sys.modules["torch"]
    applying.put(dataloader.DataLoader, "__iter__", make)


def _in_inference_mode(batches: Any) -> Iterator[Any]:
    """The mode holds for the thread, so also for what is done to a batch between two of them."""
    with sys.modules["torch"].inference_mode():
        yield from batches
