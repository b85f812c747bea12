"""Hooks on the side of a DataLoader that asks for batches: iterators, waiting, what a batch holds.

In comes torch's DataLoader, once the script has imported it; out go one row per DataLoader object and moments to the `Account`.
Loaders are numbered in the order in which they are first iterated over. Loops in threads of their own are counted, not timed.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from unchoke.chokes.watch import fetching, hooks
from unchoke.chokes.watch.account import Iteration
from unchoke.chokes.watch.described import describe_loader
from unchoke.chokes.watch.places import user_place
from unchoke.chokes.watch.recorder import Recorder

Wrapped = Callable[..., Any]

_MAX_LOADERS = 256
_LOOKED_AT = 3  # batches whose content is looked at
_WATCH, _SIZES = "_unchoke_watch", "_unchoke_sizes"  # what sticks to an iterator
_ident = threading.get_ident


class Loader:
    """What one DataLoader object did."""

    def __init__(self, number: int, described: dict[str, Any]) -> None:
        self.number = number
        self._described = described
        self.fetches = fetching.Fetches()
        self.iterators = 0
        self.batches = 0
        self.samples = 0
        self.wait_s = 0.0
        self._first_wait_s = 0.0
        self._first_waits = 0
        self._making_s = 0.0
        self._ending_s = 0.0
        self._batch: dict[str, Any] = {"batch_bytes": None, "sample_shape": None}
        self._pids: set[int] = set()
        self.trained = False

    def made(self, iterator: Any, took_s: float) -> None:
        """An iterator was made, and with it perhaps workers."""
        self.iterators += 1
        self._making_s += took_s
        self._pids |= {worker.pid for worker in getattr(iterator, "_workers", ())}

    def ended(self, took_s: float) -> None:
        """The last batch was asked for in vain; workers that do not persist were ended then."""
        self._ending_s += took_s

    def got(self, batch: Any, took_s: float, *, sizes: deque[int] | None, first: bool) -> int:
        """A batch was handed over; how many samples it holds."""
        self.batches += 1
        self.wait_s += took_s
        if first:
            self._first_wait_s += took_s
            self._first_waits += 1
        if self.batches <= _LOOKED_AT:
            self._batch = _look_at(batch)
        samples = sizes.popleft() if sizes else _first_dimension(batch)
        self.samples += samples
        return samples

    def _startup_s(self) -> float:
        """Making iterators and ending workers, and what first batches took beyond a usual wait."""
        later = self.batches - self._first_waits
        usual_s = (self.wait_s - self._first_wait_s) / later if later > 0 else 0.0
        waited_s = max(0.0, self._first_wait_s - usual_s * self._first_waits) if self._pids else 0.0
        return self._making_s + self._ending_s + waited_s

    def to_dict(self) -> dict[str, Any]:
        counted = {name: getattr(self, name) for name in ("number", "iterators", "batches", "samples", "wait_s")}
        found = {**self._described, **counted, **self._batch, **self.fetches.to_dict(), "startup_s": self._startup_s()}
        return {**found, "evaluation": self.batches > 0 and not self.trained, "worker_pids": sorted(self._pids)}


class Loaders:
    """All DataLoader objects of this process, also those that are gone."""

    def __init__(self) -> None:
        self._rows: list[Loader] = []
        self._by_object: weakref.WeakKeyDictionary[Any, Loader] = weakref.WeakKeyDictionary()
        self.made_at: weakref.WeakKeyDictionary[Any, tuple[str, int]] = weakref.WeakKeyDictionary()
        """The line that made each of them."""

    def of(self, loader: Any) -> Loader:
        found = self._by_object.get(loader)
        if found is None:
            file, line = self.made_at.get(loader, ("", 0))
            found = Loader(len(self._rows), {**describe_loader(loader), "made_file": file, "made_line": line})
            self._by_object[loader] = found
            self._rows.append(found)
        return found

    def forget(self) -> None:
        self.__init__()  # type: ignore[misc]

    def to_list(self) -> list[dict[str, Any]]:
        return [row.to_dict() for row in self._rows[:_MAX_LOADERS]]


class _Watch:
    """Sticks to an iterator: its loader's row, and whether its batches were trained on."""

    __slots__ = ("iteration", "loader")

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.iteration = Iteration()


loaders = Loaders()


def install(recorder: Recorder) -> None:
    """Wait for torch's DataLoader, then watch its iterators; batches are made under `fetching`."""
    fetching.install(recorder)
    recorder.register("loaders", loaders.to_list)
    recorder.after_fork(loaders.forget)
    hooks.when_imported("torch.utils.data.dataloader", lambda: _watch_loaders(recorder))


def _watch_loaders(recorder: Recorder) -> None:
    import torch.utils.data.dataloader as dataloader

    hooks.replace(dataloader.DataLoader, "__init__", lambda original, patch: _placed_init(original))
    hooks.replace(dataloader.DataLoader, "__iter__", lambda original, patch: _timed_iter(recorder, original))
    hooks.replace(dataloader._BaseDataLoaderIter, "__next__", lambda original, patch: _timed_next(recorder, original))
    hooks.replace(dataloader._BaseDataLoaderIter, "_next_index", lambda original, patch: _counted_index(original))


def _placed_init(original: Wrapped) -> Wrapped:
    def make(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        loaders.made_at[self] = user_place()[:2]

    return make


def _timed_iter(recorder: Recorder, original: Wrapped) -> Wrapped:
    import torch

    def iterate(self: Any) -> Any:
        account = recorder.account
        if _ident() != account.thread:
            return original(self)
        loader = loaders.of(self)
        account.begin()
        evaluates = not torch.is_grad_enabled() or (loader.batches > 0 and not loader.trained)
        account.enter("evaluate_s" if evaluates else "wait_s")
        try:
            _forget_sizes(getattr(self, "_iterator", None))
            iterator = original(self)
        finally:
            took_s = account.leave()
        iterator.__dict__[_WATCH] = _Watch(loader)
        loader.made(iterator, took_s)
        return iterator

    return iterate


def _forget_sizes(iterator: Any) -> None:
    """Persistent workers keep their iterator; a pass that was broken off leaves sizes behind."""
    if iterator is not None:
        iterator.__dict__.pop(_SIZES, None)


def _counted_index(original: Wrapped) -> Wrapped:
    """Batches come in the order in which their indices were handed out, so sizes wait in a row."""

    def next_index(self: Any) -> Any:
        index = original(self)
        if self._auto_collation:
            self.__dict__.setdefault(_SIZES, deque()).append(len(index))
        return index

    return next_index


def _timed_next(recorder: Recorder, original: Wrapped) -> Wrapped:
    import torch

    def next_batch(self: Any) -> Any:
        watch: _Watch | None = self.__dict__.get(_WATCH)
        account = recorder.account
        if watch is None or _ident() != account.thread:
            return original(self)
        iteration, loader = watch.iteration, watch.loader
        if not account.region:
            recorder.duty.tick(step=False)
        if account.resting and loader.trained and torch.is_grad_enabled():
            iteration.trained = True  # backward, which would tell, rests too
        account.ask(iteration, gradients=torch.is_grad_enabled())
        asked, fetching.makers.asked = fetching.makers.asked, loader.fetches
        try:
            batch = original(self)
        except StopIteration:
            loader.ended(account.leave())
            account.end(iteration)
            recorder.phase = "outside"
            raise
        except BaseException:
            account.leave()
            raise
        finally:
            fetching.makers.asked = asked
            loader.trained = loader.trained or bool(iteration.trained)
        samples = loader.got(batch, account.leave(), sizes=self.__dict__.get(_SIZES), first=iteration.asked == 1)
        account.count("batches")
        account.count("samples", samples)
        recorder.phase = "evaluate" if iteration.trained is False else "step"
        return batch

    return next_batch


def _look_at(batch: Any) -> dict[str, Any]:
    """How large a batch is, and the shape of a sample of its largest tensor."""
    tensors = list(_tensors(batch))
    if not tensors:
        return {"batch_bytes": None, "sample_shape": None}
    largest = max(tensors, key=lambda tensor: tensor.numel())
    num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return {"batch_bytes": num_bytes, "sample_shape": list(largest.shape[1:])}


def _first_dimension(batch: Any) -> int:
    """Samples of a batch that the dataset itself made: the length of its first tensor."""
    first = next(_tensors(batch), None)
    return int(first.shape[0]) if first is not None and first.dim() else 1


def _tensors(batch: Any, depth: int = 4) -> Iterator[Any]:
    import torch

    if isinstance(batch, torch.Tensor):
        yield batch
    elif depth and isinstance(batch, Mapping):
        for value in batch.values():
            yield from _tensors(value, depth - 1)
    elif depth and isinstance(batch, list | tuple):
        for value in batch:
            yield from _tensors(value, depth - 1)
