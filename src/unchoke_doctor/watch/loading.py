"""Hooks on the side of a DataLoader that asks for batches: iterators, waiting, what a batch holds.

In comes torch's DataLoader, once the script has imported it; out go one row per DataLoader object and moments to the `Account`.
A row says what a DataLoader loads, how, and where the code for it stands. Loaders are numbered in the order in which they are
first iterated over. Loops in threads of their own are counted, not timed.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from collections import deque
from functools import partial
from typing import Any

from unchoke_doctor.watch import fetching, hooks
from unchoke_doctor.watch.account import Iteration
from unchoke_doctor.watch.hooks import Function
from unchoke_doctor.watch.networks import tensors_in
from unchoke_doctor.watch.recorder import Recorder
from unchoke_doctor.watch.stacks import user_place

_MAX_LOADERS = 256
_LOOKED_AT = 3  # batches whose content is looked at
_FEW_ROWS, _FEW_COLUMNS = 4, 16
_IGNORED = -100  # of labels, as losses of torch have it
_WATCH, _SIZES = "_unchoke_watch", "_unchoke_sizes"  # what sticks to an iterator
_ident = threading.get_ident


class LoaderRow:
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
        """A pass is over, and with it workers that do not persist."""
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
        if sizes:
            samples = sizes.popleft()
        else:  # the dataset itself made the batch: the length of its first tensor
            first_tensor = next(tensors_in(batch), None)
            samples = int(first_tensor.shape[0]) if first_tensor is not None and first_tensor.dim() else 1
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
        self._rows: list[LoaderRow] = []
        self._by_object: weakref.WeakKeyDictionary[Any, LoaderRow] = weakref.WeakKeyDictionary()
        self.made_at: weakref.WeakKeyDictionary[Any, tuple[str, int]] = weakref.WeakKeyDictionary()
        """The line that made each of them."""

    def of(self, loader: Any) -> LoaderRow:
        found = self._by_object.get(loader)
        if found is None:
            file, line = self.made_at.get(loader, ("", 0))
            found = LoaderRow(len(self._rows), {**describe_loader(loader), "made_file": file, "made_line": line})
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

    def __init__(self, loader: LoaderRow) -> None:
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

    hooks.replace(dataloader.DataLoader, "__init__", _placed_init)
    hooks.replace(dataloader.DataLoader, "__iter__", partial(_timed_iter, recorder))
    hooks.replace(dataloader._BaseDataLoaderIter, "__next__", partial(_timed_next, recorder))
    hooks.replace(dataloader._BaseDataLoaderIter, "_next_index", _counted_index)


def _placed_init(original: Function) -> Function:
    def make(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        loaders.made_at[self] = user_place()[:2]

    return make


def _timed_iter(recorder: Recorder, original: Function) -> Function:
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
            persistent = getattr(
                self, "_iterator", None
            )  # workers that persist keep it; a pass that was broken off left sizes there
            if persistent is not None:
                persistent.__dict__.pop(_SIZES, None)
            iterator = original(self)
        finally:
            took_s = account.leave()
        iterator.__dict__[_WATCH] = _Watch(loader)
        loader.made(iterator, took_s)
        return iterator

    return iterate


def _counted_index(original: Function) -> Function:
    """Batches come in the order in which their indices were handed out, so sizes wait in a row."""

    def next_index(self: Any) -> Any:
        index = original(self)
        if self._auto_collation:
            self.__dict__.setdefault(_SIZES, deque()).append(len(index))
        return index

    return next_index


def _timed_next(recorder: Recorder, original: Function) -> Function:
    import torch

    def next_batch(self: Any) -> Any:
        watch: _Watch | None = self.__dict__.get(_WATCH)
        account = recorder.account
        if watch is None or _ident() != account.thread:
            return original(self)
        iteration, loader = watch.iteration, watch.loader
        account.ask(iteration, gradients=torch.is_grad_enabled() and recorder.phase != "evaluate")
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
    tensors = list(tensors_in(batch))
    if not tensors:
        return {"batch_bytes": None, "sample_shape": None}
    largest = max(tensors, key=lambda tensor: tensor.numel())
    num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    texts = [tensor for tensor in tensors if tensor.is_cpu and tensor.dim() == 2 and not tensor.is_floating_point()]
    shares = {
        "padded_share": _padded_share(texts),
        "ignored_share": max((float((text == _IGNORED).sum()) / max(1, text.numel()) for text in texts), default=None),
    }
    return {"batch_bytes": num_bytes, "sample_shape": list(largest.shape[1:]), **shares}


def _padded_share(texts: list[Any]) -> float | None:
    """Of a batch of texts, the share of columns at one end that hold the same number in all rows: padding of the longest."""
    wide = max(texts, key=lambda tensor: (tensor.shape[1], int(tensor.max()) if tensor.numel() else 0), default=None)
    if wide is None or wide.shape[0] < _FEW_ROWS or wide.shape[1] < _FEW_COLUMNS:
        return None
    shares = []
    for column in (-1, 0):
        same = (wide == wide[0, column]).all(0).tolist()
        if column:
            same.reverse()
        shares.append(next((place for place, is_same in enumerate(same) if not is_same), len(same)) / len(same))
    return max(shares) if max(shares) < 1 else None


def describe_loader(loader: Any) -> dict[str, Any]:
    """What can be known of a DataLoader before its first batch; what cannot is None."""
    dataset = _innermost(loader.dataset)
    dataset_file, dataset_line = _where(getattr(type(dataset), "__getitem__", None) or getattr(type(dataset), "__iter__", None))
    collate_file, collate_line = _where(loader.collate_fn)
    collate = getattr(loader.collate_fn, "func", loader.collate_fn)  # of a functools.partial
    workers = int(loader.num_workers)
    batch_size = loader.batch_size
    if batch_size is None:
        batch_size = getattr(loader.batch_sampler, "batch_size", None)
    return {
        "dataset": type(dataset).__name__,
        "dataset_file": dataset_file,
        "dataset_line": dataset_line,
        "collate": getattr(collate, "__qualname__", None) or type(collate).__name__,
        "collate_file": collate_file,
        "collate_line": collate_line,
        "num_samples": _length(loader.dataset),
        "batch_size": batch_size if isinstance(batch_size, int) else None,
        "num_workers": workers,
        "persistent": bool(loader.persistent_workers),
        "start_method": _start_method(loader) if workers else None,
    }


def _innermost(dataset: Any) -> Any:
    """The dataset that loads samples, inside torch's own wrappers around it."""
    for _ in range(8):
        if not type(dataset).__module__.startswith("torch.utils.data"):
            break
        inside = [getattr(dataset, "dataset", None), *getattr(dataset, "datasets", ())]
        inner = next((one for one in inside if one is not None), None)
        if inner is None:
            break
        dataset = inner
    return dataset


def _where(function: Any) -> tuple[str, int]:
    function = getattr(function, "func", function)  # functools.partial
    if not inspect.isroutine(function) and not isinstance(function, type):
        function = getattr(type(function), "__call__", None)  # noqa: B004 - the method itself, for its place
    try:
        code = getattr(inspect.unwrap(function), "__code__", None)
    except ValueError:  # wrapped in a circle
        code = None
    return ("", 0) if code is None else (code.co_filename, code.co_firstlineno)


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:  # the user's own __len__, or none: not ours to judge
        return None


def _start_method(loader: Any) -> str | None:
    context = loader.multiprocessing_context
    if context is None:
        import multiprocessing as context
    return str(context.get_start_method())
