"""What the always-on timers cost: the time of one stage's two marks, times the marks of a step, as a share of that step.

A mark is timed over a million of them, a step is that of a real training: `network`, all of tf_efficientnet_lite0 in batches of
16 as `unchoke train --cut none` runs it, over noise; and `head`, linear heads on 1,280 features, trained in batches of 64. No
synchronisation is added anywhere, so there is nothing else to count.

Usage: python benches/bench_timers.py [network] [head]
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import torch
from common import say

from unchoke.core.clock import Clock, Loading, during
from unchoke.core.events import ignore
from unchoke.core.settings import Settings
from unchoke.core.timeline import Timeline
from unchoke.machine.backend import keep_freed_memory
from unchoke.pixels.tile_grid import TilePlan
from unchoke.training.data import ArraySource, Problem
from unchoke.training.heads.heads import HeadConfig
from unchoke.training.heads.train_heads import train_heads
from unchoke.training.network.loop_config import LoopConfig
from unchoke.training.network.memory_trial import rehearse
from unchoke.training.network.photo_job import NetworkSpec, PhotoJob
from unchoke.training.network.prepare_pixels import noise_pixels

_MARKS = 1_000_000
_STEPS = 5
_BATCH = 16


def measure_marks() -> dict[str, float]:
    """Seconds of entering and leaving a stage, in the thread that trains and in a reader."""
    clock, loading = Clock(), Loading()
    empty_s = _timed(lambda: None)
    stage = clock.stage("forward")

    def mark() -> None:
        with stage:
            pass

    def look_up_and_mark() -> None:
        with clock.stage("forward"):
            pass

    def mark_in_a_reader() -> None:
        with during("decode"):
            pass

    with loading.here():
        spent = {"held": _timed(mark), "stage": _timed(look_up_and_mark), "reader": _timed(mark_in_a_reader)}
    return {name: seconds - empty_s for name, seconds in spent.items()}


def _timed(work: Any) -> float:
    """Seconds of one call, the best of three rounds."""
    rounds = []
    for _ in range(3):
        started = time.perf_counter()
        for _ in range(_MARKS // 3):
            work()
        rounds.append((time.perf_counter() - started) / (_MARKS // 3))
    return min(rounds)


def measure_network() -> tuple[float, float, float]:
    """Seconds of a step of the demo's network, and stages entered in it by the training and by what reads for it."""
    loop = LoopConfig(
        epochs=1, batch_size=_BATCH, sub_batch=_BATCH, eval_batch=_BATCH, lr=1e-3, body_lr=1e-4, threads=torch.get_num_threads()
    )
    spec = NetworkSpec(encoder=Settings().encoder, cut="none", tiles=TilePlan())
    problem = Problem("classification", tuple("abcd"), np.arange(4), {"train": np.arange(4)}, list("abcd"))
    source = noise_pixels(_canvas(), "light")
    job = PhotoJob(network=spec, source=source, problem=problem, loop=loop, metric="loss", device="cpu")
    rehearsal = rehearse(job, loop)
    step_s = rehearsal.train_steps(_STEPS)
    timeline = Timeline.of(rehearsal.clock, rehearsal.loading)
    own, readers = (sum(row.calls for row in rows) / _STEPS for rows in (timeline.stages, timeline.loading))
    return step_s, own + 1, readers  # waiting for the batch is marked by the loop around the step


def _canvas() -> Any:
    from unchoke.features.encoders import bare_encoder
    from unchoke.pixels.canvas import plan_canvas

    return plan_canvas(TilePlan(), bare_encoder(Settings().encoder).spec.preprocess, [(640, 480)])


def measure_heads() -> tuple[float, float, float]:
    """The same of three linear heads that are trained at once."""
    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    num, dim = 8192, 1280
    classes = generator.integers(0, 16, num)
    feats = generator.normal(size=(num, dim)).astype(np.float16)
    splits = {"train": np.arange(num - 512), "val": np.arange(num - 512, num)}
    problem = Problem("classification", tuple(f"class {n}" for n in range(16)), classes, splits, [str(n) for n in range(num)])
    configs = [HeadConfig(kind="linear", epochs=4, batch_size=64, lr=lr) for lr in (1e-3, 3e-3, 1e-2)]
    timeline = train_heads(ArraySource(feats), problem, configs, device=torch.device("cpu"), on_event=ignore).timeline
    num_steps = next(row.calls for row in timeline.stages if row.stage == "forward")
    own = sum(row.calls for row in timeline.stages) / num_steps
    readers = sum(row.calls for row in timeline.loading) / num_steps
    seconds = timeline.seconds("wait", "copy", "forward", "backward", "optimizer", "other")
    return seconds / num_steps, own, readers


def main() -> None:
    wanted = sys.argv[1:] or ["network", "head"]
    keep_freed_memory()
    marks = measure_marks()
    rounded = {f"{name}_us": round(seconds * 1e6, 3) for name, seconds in marks.items()}
    for name, measure in {"network": measure_network, "head": measure_heads}.items():
        if name in wanted:
            step_s, stages, readers = measure()
            cost_s = stages * marks["stage"] + readers * marks["reader"]
            figures = {"step_ms": round(step_s * 1e3, 3), "stages": round(stages, 1), "stages_of_readers": round(readers, 1)}
            share = round(100 * cost_s / step_s, 4)
            say("timers", what=name, **rounded, **figures, cost_us=round(cost_s * 1e6, 2), share_percent=share)


if __name__ == "__main__":
    main()
