"""Tries out what a repair saves, when a cell has ended: the code as it is and the repaired one are timed by turns.

Two kinds: a network that evaluated with gradients, or one sample at a time, is called without gradients, or with a batch;
samples of a DataLoader are made with JPEGs decoded smaller, and without their random transforms. A network in training mode is
left alone, since a call would change it. What cannot be repeated is not tried.
"""

from __future__ import annotations

import random
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any

from unchoke_doctor.watch.hooks import when_imported
from unchoke_doctor.watch.stacks import user_place

_TURNS, _LIMIT_S, _BATCH, _MOST, _SAMPLES = 7, 2.0, 16, 6, 8
_RANDOM = re.compile(r"^Random(?!Resized|Crop)|Jitter|Blur|Elastic|Augment|AugMix|Distort|Noise|Affine|Rotat|Perspective|Flip")


class Trials:
    """What is worth trying of the running cell: calls of networks by line and by what is wrong, and its first DataLoader."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, int, str], tuple[Any, ...]] = {}
        self._loader: Any = None
        self._inside = False

    def watch(self) -> None:
        when_imported("torch.nn.modules.module", self._wrap)

    def iterated(self, loader: Any) -> None:
        self._loader = self._loader or loader

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
            if args and hasattr(args[0], "shape") and len(self._calls) < _MOST:
                keeps = torch.is_grad_enabled() and getattr(result, "requires_grad", False)
                alone = len(args[0].shape) > 1 and args[0].shape[0] == 1
                file, line, _ = user_place(2) if keeps or alone else ("", 0, "")
                for code, applies in (("no-inference-mode", keeps), ("one-at-a-time", alone)):
                    if applies and file:
                        self._calls.setdefault((file, line, code), (module, args, options, torch.is_grad_enabled()))
            return result

        module_type.__call__ = called

    def measure(self) -> list[dict[str, Any]]:
        """For each trial the share of the call, or of making a sample, that the repair saves."""
        found: list[dict[str, Any]] = []
        calls, loader = dict(self._calls), self._loader
        self._calls.clear()
        self._loader = None
        if not calls and loader is None:
            return found
        with _same_random_numbers():
            for (file, line, code), kept in calls.items():
                with suppress(Exception):  # whatever a network raises that is called once more
                    found.append({"code": code, "file": file, "line": line, "saves": _network(code, *kept)})
            for code, named, repair in _repairs(loader):
                with suppress(Exception):
                    found.append({"code": code, "named": named, "saves": _samples(loader, repair)})
        return found


def _by_turns(now: Callable[[], float], then: Callable[[], float]) -> float:
    """1 - repaired / now, of medians."""
    began_s = perf_counter()
    pairs: list[tuple[float, float]] = []
    while len(pairs) < _TURNS and (len(pairs) < 3 or perf_counter() - began_s < _LIMIT_S):
        pairs.append((now(), then()))
    before, after = (statistics.median(values) for values in zip(*pairs[1:], strict=True))
    return float(max(0.0, 1 - after / before))


def _network(code: str, module: Any, args: tuple[Any, ...], options: dict[str, Any], grads: bool) -> float:
    torch: Any = sys.modules["torch"]
    batched = code == "one-at-a-time"
    repaired = (torch.cat([args[0]] * _BATCH), *args[1:]) if batched else args

    def seconds(inputs: tuple[Any, ...], times: int, *, with_grads: bool) -> float:
        began_s = perf_counter()
        for _ in range(times):
            with torch.set_grad_enabled(with_grads):
                result = module(*inputs, **options)
            del result  # its graph goes with it
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return perf_counter() - began_s

    return _by_turns(
        lambda: seconds(args, _BATCH if batched else 1, with_grads=grads),
        lambda: seconds(repaired, 1, with_grads=grads and batched),
    )


def _samples(loader: Any, repair: Callable[[], Any]) -> float:
    dataset = loader.dataset
    places = range(0, len(dataset), max(1, len(dataset) // _SAMPLES))[:_SAMPLES]

    def seconds() -> float:
        began_s = perf_counter()
        for place in places:
            dataset[place]
        return perf_counter() - began_s

    def repaired() -> float:
        with repair():
            return seconds()

    return _by_turns(seconds, repaired)


def _repairs(loader: Any) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """The repairs that can be tried on a loader's dataset, each with the name in the code that it is about."""
    own: Any = getattr(loader, "dataset", None)
    while hasattr(own, "dataset"):
        own = own.dataset  # of a Subset
    pictures: Any = sys.modules.get("PIL.Image")
    if pictures is not None and hasattr(own, "__getitem__"):
        yield "oversized-decode", type(own).__name__, lambda: _decoding_smaller(pictures, loader.dataset)
    composed = [value for value in getattr(own, "__dict__", {}).values() if isinstance(getattr(value, "transforms", None), list)]
    drawn = [type(one).__name__ for value in composed for one in value.transforms if _RANDOM.search(type(one).__name__)]
    if drawn:
        yield "heavy-augmentation", drawn[0], lambda: _without_random(composed)


@contextmanager
def _decoding_smaller(pictures: Any, dataset: Any) -> Iterator[None]:
    """JPEGs are decoded at the smallest scale that is no smaller than what comes out."""
    sample, opened = dataset[0], pictures.open
    first = sample[0] if isinstance(sample, tuple | list) else sample
    sides = tuple(int(side) for side in first.shape[-2:])

    def drafted(*args: Any, **options: Any) -> Any:
        image = opened(*args, **options)
        if image.format == "JPEG":
            image.draft(None, sides[::-1])
        return image

    pictures.open = drafted
    try:
        yield
    finally:
        pictures.open = opened


@contextmanager
def _without_random(composed: list[Any]) -> Iterator[None]:
    before = [list(one.transforms) for one in composed]
    for one in composed:
        one.transforms = [step for step in one.transforms if not _RANDOM.search(type(step).__name__)]
    try:
        yield
    finally:
        for one, steps in zip(composed, before, strict=True):
            one.transforms = steps


@contextmanager
def _same_random_numbers() -> Iterator[None]:
    """Later cells draw what they would have drawn."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    states: Any = (random.getstate(), torch and torch.get_rng_state(), numpy and numpy.random.get_state())
    try:
        yield
    finally:
        random.setstate(states[0])
        if torch is not None:
            torch.set_rng_state(states[1])
        if numpy is not None:
            numpy.random.set_state(states[2])
