"""Rules about how batches reach the loop: workers, their start, collating, and what is handed over between processes.

In: a `TrainingFigures`, and the causes found so far (what they explain is not explained twice). Out: causes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from unchoke.chokes.diagnose.source_lines import changed_call, source_line
from unchoke.chokes.diagnose.training_figures import MAKING, TrainingFigures, is_timed, loader_place, made_at
from unchoke.chokes.recording import LoaderRecord
from unchoke.core.findings import Cause, CodeLine, per
from unchoke.core.units import format_bytes, format_seconds

_LOADING_STAGES = {"stat", "list", "open", "read", "decode", "transform", "collate", "load"}
_SHRINKING_STAGES = {"transform", "python", "other", "copy", "forward"}
_FAT = 4
_SPINS, _SPIN_COSTS = 0.3, 0.85
_HANDOVER_S = 1e-3
_HANDOVER_BYTES_PER_S = 1.5e9
"""What a batch costs on its way from a worker: estimates, on the high side."""
_STACK_S, _STACK_BYTES_PER_S = 1e-4, 1.5e9
"""What torch.stack takes for a batch: some calls, and a copy into memory that is new."""


def worker_startup(run: TrainingFigures) -> Iterator[Cause]:
    """Workers started again for every epoch."""
    for loader in run.loaders:
        if not loader.num_workers or loader.persistent or loader.iterators < 2:
            continue
        each_s = loader.startup_s / loader.iterators
        yield Cause(
            "worker-startup",
            "wait",
            loader.startup_s * (1 - 1 / loader.iterators),
            f"{loader.num_workers} workers are started {loader.iterators} times, once an epoch, and take "
            f"{format_seconds(each_s)} each time ({loader.start_method})",
            "keep them between epochs",
            made_at(loader),
            {
                "startup_s": loader.startup_s,
                "iterators": loader.iterators,
                "start_method": loader.start_method,
                "remedy": "persistent-workers",
            },
            f"DataLoader(…, num_workers={loader.num_workers}, persistent_workers=True)",
            diff=changed_call(made_at(loader), "DataLoader", persistent_workers="True"),
        )


def slow_collate(run: TrainingFigures) -> Iterator[Cause]:
    """A collate function of the user's own that takes long."""
    for loader in run.loaders:
        if "/torch/utils/data/" in loader.collate_file.replace("\\", "/") or not loader.collate_file:
            continue
        each_s = per(loader.collate_s, loader.fetches)
        stacking_s = min(loader.collate_s, loader.fetches * (_STACK_S + (loader.batch_bytes or 0) / _STACK_BYTES_PER_S))
        yield Cause(
            "slow-collate",
            "collate",
            run.on_path_s(loader.collate_s - stacking_s),
            f"{loader.collate} takes {format_seconds(each_s)} a batch, {per(loader.collate_s, loader.fetch_s):.0%} of making it",
            "stack tensors or arrays as a whole, without going through Python lists of numbers",
            _collate_place(run, loader.collate_file, loader.collate_line),
            {"collate_s": loader.collate_s, "fetch_s": loader.fetch_s, "batches": loader.fetches},
            "images = torch.stack([sample[0] for sample in samples])  # whatever holds a sample's tensor; no .tolist()",
        )


def _collate_place(run: TrainingFigures, file: str, line: int) -> CodeLine:
    """The line of collating that was sampled most, or where the function begins."""
    rows = [row for row, _ in run.sampled("collate") if row.file == file]
    return CodeLine.of(rows[0]) if rows else CodeLine(file, line, "collate")


def fat_handover(run: TrainingFigures) -> Iterator[Cause]:
    """Workers that hand over far more than the network sees, to be shrunk in the main process."""
    loader = run.trained
    if loader is None or not loader.num_workers or not loader.batch_bytes or not loader.batch_size:
        return
    seen = _network_input_bytes(run)
    each = loader.batch_bytes / loader.batch_size
    if seen is None or each < _FAT * seen:
        return
    shrinking_s = sum(
        seconds for row, seconds in run.looks if row.phase == "step" and row.stage in _SHRINKING_STAGES and not is_timed(row)
    )
    share = 1 - seen / each
    yield Cause(
        "fat-handover",
        "handover",
        share * (run.on_path_s(loader.handover_s + loader.collate_s) + shrinking_s),
        f"workers hand over {format_bytes(each)} a sample, {each / seen:.0f} times what the network sees ({format_bytes(seen)})",
        "move what shrinks the sample out of the loop into the Dataset, so that it is small when it leaves the worker, as uint8 "
        "or float32",
        loader_place(loader),
        {"handed_bytes": each, "seen_bytes": seen, "handover_s": loader.handover_s, "shrinking_s": shrinking_s},
        "return resize(image, size).astype(np.float32), label  # in __getitem__",
    )


def _network_input_bytes(run: TrainingFigures) -> float | None:
    """Bytes of one sample as the outermost network gets it, in float32."""
    roots = [module for module in run.recording.modules if not module.in_evaluation and module.num_params and module.depth == 0]
    shapes = [module.input_shape for module in roots if len(module.input_shape) >= 2]
    return max((4.0 * math.prod(shape[1:]) for shape in shapes), default=None)


def spinning_thread(run: TrainingFigures) -> Iterator[Cause]:
    """A thread of the script's own that asks in a loop without a pause: it keeps the interpreter from the training thread."""
    main = run.recording.main
    total = max(main.num_looks, 1)
    for row in sorted(main.threads, key=lambda one: -one.count):
        share = min(1.0, row.count / total)
        source = source_line(row.file, row.line) if row.file else None
        if source is None or share < _SPINS or not source.spins:
            continue
        yield Cause(
            "spinning-thread",
            "wait",
            _SPIN_COSTS * share * run.span_s,
            f"{row.function} asks again and again in a thread of its own without a pause ({share:.0%} of all looks): the "
            "training thread waits for the interpreter meanwhile",
            "let the thread sleep until there is something to do: queue.Queue(maxsize=…).put and get, threading.Event.wait or a "
            "Semaphore instead of a loop that asks",
            CodeLine.of(row),
            {"share_of_looks": share},
            "queue.put(batch)  # with queue.Queue(maxsize=4): it waits by itself where the queue is full",
        )
        return


def no_workers(run: TrainingFigures, found: Sequence[Cause]) -> Iterator[Cause]:
    """Loading in the training process itself, one after the other with the step, while cores are idle."""
    loader = run.trained
    if loader is None or loader.num_workers or run.cores < 2:
        return
    explained_s = sum(cause.saved_s for cause in found if cause.stage in _LOADING_STAGES)
    left_s = max(0.0, loader.fetch_s - explained_s)
    workers = min(run.cores, 4)
    saved_s = run.rest_s + left_s - _beside_s(run, loader, left_s, workers)
    yield Cause(
        "no-workers",
        "wait",
        saved_s,
        f"samples are made in the training process itself (num_workers=0), "
        f"{format_seconds(per(loader.fetch_s, loader.batches))} a batch, while {run.busy_cores:.1f} of {run.cores} cores "
        "are busy",
        "load in workers beside the step; a lambda or an open file that stands in the way of sending the Dataset to them can "
        "become a function of the module, or be opened on first use (augmentation then draws other random numbers)",
        made_at(loader),
        {"fetch_s": loader.fetch_s, "busy_cores": run.busy_cores, "cores": run.cores, "remedy": f"workers:{workers}"},
        f"DataLoader(…, num_workers={workers}, persistent_workers=True)",
        diff=changed_call(made_at(loader), "DataLoader", num_workers=str(workers), persistent_workers="True"),
    )


def _beside_s(run: TrainingFigures, loader: LoaderRecord, making_s: float, workers: int) -> float:
    """What the training takes at the least with `making_s` in workers: neither side, nor all cores together, can be quicker."""
    share = per(making_s, loader.fetch_s)
    loading_cpu_s = loader.fetch_user_s + loader.fetch_system_s
    step_cpu_s = max(0.0, run.steps.total("user_s") + run.steps.total("system_s") - loading_cpu_s)
    handing_s = loader.batches * (_HANDOVER_S + (loader.batch_bytes or 0) / _HANDOVER_BYTES_PER_S)
    return max(run.rest_s + handing_s, making_s / workers, (share * loading_cpu_s + step_cpu_s + 2 * handing_s) / run.cores)


def waiting(run: TrainingFigures, found: Sequence[Cause]) -> Iterator[Cause]:
    """What is left of waiting for workers once the other rules have explained theirs: the slowest line of making samples."""
    loader = run.trained
    if loader is None or not loader.num_workers:
        return
    explained_s = sum(cause.saved_s for cause in found if cause.stage in {*_LOADING_STAGES, "handover"})
    left_s = run.loading_s - explained_s
    rows = [(row, seconds) for row, seconds in run.sampled(*MAKING) if row.file]
    if not rows:
        return
    row, seconds = rows[0]
    if (row.file, row.function) in {(cause.place.file, cause.place.function) for cause in found}:
        return
    share = per(seconds, sum(spent_s for _, spent_s in rows))
    more = (
        f"num_workers={run.cores}"
        if loader.num_workers < run.cores
        else "fewer or cheaper operations there, or their results kept"
    )
    yield Cause(
        "slow-loading",
        row.stage,
        left_s * share,
        f"the step waits for workers, and {share:.0%} of making a sample is {row.stage} in {row.function}",
        f"make this line cheaper, or keep its results between epochs: {more}",
        CodeLine.of(row),
        {"wait_s": loader.wait_s, "stage": row.stage, "share_of_loading": share},
        f"DataLoader(…, {more})" if loader.num_workers < run.cores else "",
    )
