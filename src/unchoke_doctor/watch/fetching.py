"""Hooks on the side of a DataLoader that makes batches, in whichever process: samples, collating, handing over.

In come torch's fetchers and its worker loop, once the script has imported them; out go sums over fetches, for the loader that is
being asked in this process, or for the worker that this process is. What a fetch uses and reads is counted by the system, not
here; where fetches are short only some of them ask, and stand for the others.
"""

from __future__ import annotations

import time
from typing import Any

from unchoke_doctor.watch import hooks, usage
from unchoke_doctor.watch.hooks import Function
from unchoke_doctor.watch.recorder import Recorder

_clock = time.perf_counter
_ASKING_S = 30e-6  # to ask the system twice, with cold caches
_MAX_SHARE = 0.01
_LEARNT_AFTER = 32
_MOST = 32


class Fetches:
    """Sums over the batches made in this process."""

    def __init__(self) -> None:
        self.fetches = 0
        self.fetched_samples = 0
        self.fetch_s = 0.0
        self.collate_s = 0.0
        self.handover_s = 0.0
        self.fetch_user_s = 0.0
        self.fetch_system_s = 0.0
        self.fetch_minor_faults = 0
        self._every = 1

    @property
    def asks(self) -> bool:
        """Whether the next fetch asks the system what it used."""
        return self.fetches % self._every == 0

    def add(self, took_s: float, samples: int) -> None:
        self.fetches += 1
        self.fetched_samples += samples
        self.fetch_s += took_s

    def used(self, before: usage.Usage, after: usage.Usage) -> None:
        """What a fetch used, for as many fetches as it stands for."""
        self.fetch_user_s += self._every * (after.user_s - before.user_s)
        self.fetch_system_s += self._every * (after.system_s - before.system_s)
        self.fetch_minor_faults += self._every * (after.minor_faults - before.minor_faults)
        if self.fetches == _LEARNT_AFTER - 1 and self.fetch_s > 0:
            self._every = max(1, min(_MOST, round(_ASKING_S / (_MAX_SHARE * self.fetch_s / self.fetches))))

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


class BatchMakers:
    """Whose batches are being made: `asked` is the loader that this process waits for, `own` the worker that it is."""

    def __init__(self) -> None:
        self.asked: Fetches | None = None
        self.own = Fetches()

    @property
    def now(self) -> Fetches:
        return self.own if self.asked is None else self.asked

    def forget(self) -> None:
        self.asked, self.own = None, Fetches()


makers = BatchMakers()


def install(recorder: Recorder) -> None:
    """Wait for torch's loading, then watch fetches, workers and what goes between processes."""
    recorder.after_fork(makers.forget)
    recorder.register("fetches", lambda: makers.own.to_dict() if makers.own.fetches else None)
    hooks.when_imported("torch.utils.data._utils.fetch", lambda: _watch_fetchers(recorder))
    hooks.when_imported("torch.utils.data._utils.worker", lambda: _watch_worker(recorder))
    hooks.when_imported("multiprocessing.reduction", lambda: _watch_handover(recorder))
    hooks.when_imported("multiprocessing.util", lambda: _watch_ends(recorder))


class _TimedCollate:
    """In the place of a fetcher's `collate_fn`."""

    def __init__(self, collate: Function, recorder: Recorder) -> None:
        self._collate = collate
        self._recorder = recorder

    def __call__(self, samples: Any) -> Any:
        self._recorder.phase = "collate"
        began_s = _clock()
        try:
            return self._collate(samples)
        finally:
            makers.now.collate_s += _clock() - began_s
            self._recorder.phase = "getitem"


def _watch_fetchers(recorder: Recorder) -> None:
    import torch.utils.data._utils.fetch as fetchers

    def make(original: Function) -> Function:
        def fetch(self: Any, index: Any) -> Any:
            phase = recorder.phase
            if phase in ("getitem", "collate"):  # a loader inside a dataset
                return original(self, index)
            if not isinstance(self.collate_fn, _TimedCollate):
                self.collate_fn = _TimedCollate(self.collate_fn, recorder)
            row = makers.now
            before = usage.of_thread() if row.asks else None
            recorder.phase = "getitem"
            began_s = _clock()
            try:
                return original(self, index)
            finally:
                took_s = _clock() - began_s
                recorder.phase = phase
                samples = len(index) if self.auto_collation else 1
                if before is not None:
                    row.used(before, usage.of_thread())
                row.add(took_s, samples)

        return fetch

    for fetcher in (fetchers._MapDatasetFetcher, fetchers._IterableDatasetFetcher):
        hooks.replace(fetcher, "fetch", make)


def _watch_worker(recorder: Recorder) -> None:
    import torch.utils.data._utils.worker as worker

    def make(original: Function) -> Function:
        def worker_loop(*args: Any, **kwargs: Any) -> Any:
            recorder.role = "loader"
            try:
                return original(*args, **kwargs)
            finally:
                recorder.flush()

        return worker_loop

    hooks.replace(worker, "_worker_loop", make)


def _watch_ends(recorder: Recorder) -> None:
    """Processes that multiprocessing forked leave without the usual end of an interpreter: it has one of its own."""
    from multiprocessing import util

    def at_the_end(forked: Recorder) -> None:
        util.Finalize(None, forked.flush, exitpriority=0)

    util.register_after_fork(recorder, at_the_end)


def _watch_handover(recorder: Recorder) -> None:
    """Packing a batch in a worker's sending thread, unpacking it where it is waited for; what the pipe takes is not in it."""
    from multiprocessing.reduction import ForkingPickler

    def make(original: Function) -> Function:
        def handed(*args: Any, **kwargs: Any) -> Any:
            began_s = _clock()
            try:
                return original(*args, **kwargs)
            finally:
                if (recorder.role == "loader") is (original.__name__ == "dumps"):
                    makers.now.handover_s += _clock() - began_s

        return handed

    hooks.replace(ForkingPickler, "dumps", make)
    hooks.replace(ForkingPickler, "loads", make)
