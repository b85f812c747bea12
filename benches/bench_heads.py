"""Time of training heads on cached features: 3 and 64 configurations of 20 epochs on 10,000 x 1280, and the default of `fit`.

10,000 rows are trained on and 1,500 more judged after every epoch. The default: a solved linear head, an MLP, and the better
one once more with val, on the pooled blocks of 24,164 photos (16,914 rows to train on, 3,625 to judge, 2,224 features, 38
classes). The features are a synthetic mixture (overlapping Gaussian classes, float16, memory-mapped), so the time is real
and the accuracy is not comparable with anything. Run it with other numbers of configurations if you like; it prints one JSON
line.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from unchoke.core.events import ignore
from unchoke.machine.backend import one_thread
from unchoke.training.data import ArraySource, Problem
from unchoke.training.heads.head_trainer import default_sweep, refit_head
from unchoke.training.heads.train_heads import train_heads

NUM_TRAIN, NUM_VAL, DIM, NUM_CLASSES, EPOCHS = 10_000, 1_500, 1280, 16, 20


def main(nums: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, problem = make_mixture(Path(folder) / "feats.npy", NUM_TRAIN, NUM_VAL, DIM, NUM_CLASSES)
        seconds: dict[str, dict[str, float]] = {}
        for threads in (1, 2):
            torch.set_num_threads(threads)
            seconds[f"{threads} threads"] = {str(num): bench(source, problem, num=num) for num in nums}
        with busy_cores():
            for threads in (1, 2):
                torch.set_num_threads(threads)
                seconds[f"{threads} threads, cores busy"] = {str(nums[0]): bench(source, problem, num=nums[0])}
        default = bench_default(*make_mixture(Path(folder) / "blocks.npy", 16_914, 3_625, 2224, 38))
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    shape = {
        "train": NUM_TRAIN,
        "val": NUM_VAL,
        "dim": DIM,
        "classes": NUM_CLASSES,
        "epochs": EPOCHS,
        "features": "synthetic mixture",
    }
    print(json.dumps({"bench": "heads", **shape, "seconds": seconds, "default": default, "peak_rss_bytes": peak_bytes}))


@contextmanager
def busy_cores() -> Iterator[None]:
    """One other program that never rests, as on a machine somebody is using."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def bench(source: ArraySource, problem: Problem, *, num: int) -> float:
    configs = default_sweep(problem, num=num, seed=0, epochs=EPOCHS, batch_size=256)
    started = time.perf_counter()
    result = train_heads(source, problem, configs, device=torch.device("cpu"), on_event=ignore)
    elapsed_s = time.perf_counter() - started
    best = result.all[result.best_index].val_metric
    print(f"{torch.get_num_threads()} threads, {num} configurations: {elapsed_s:.2f} s, best val {best:.3f}", file=sys.stderr)
    return round(elapsed_s, 3)


def bench_default(source: ArraySource, problem: Problem) -> dict[str, float]:
    """What `fit` does without options: seconds by the clock, and of the processor."""
    configs, cpu = default_sweep(problem, num=2, seed=0, epochs=EPOCHS, batch_size=256), torch.device("cpu")
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    with one_thread():
        best = train_heads(source, problem, configs, device=cpu, on_event=ignore).best
        refit_head(source, problem, best, device=cpu)
    return {"seconds": round(time.perf_counter() - began_s, 1), "cpu_seconds": round(time.process_time() - began_cpu_s, 1)}


def make_mixture(path: Path, num_train: int, num_val: int, dim: int, num_classes: int) -> tuple[ArraySource, Problem]:
    """Rows around centres, in a file that is then memory-mapped."""
    count = num_train + num_val
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(num_classes, dim)).astype(np.float32) * 0.12
    targets = generator.integers(0, num_classes, size=count)
    feats = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(count, dim))
    for start in range(0, count, 500):
        here = targets[start : start + 500]
        feats[start : start + 500] = centres[here] + generator.normal(size=(len(here), dim)).astype(np.float32)
    feats.flush()
    order = generator.permutation(count)
    splits = {"train": order[:num_train], "val": order[num_train:]}
    names = tuple(f"class {number}" for number in range(num_classes))
    ids = [f"sample-{number}" for number in range(count)]
    return ArraySource(np.load(path, mmap_mode="r")), Problem("classification", names, targets, splits, ids)


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [3, 64])
