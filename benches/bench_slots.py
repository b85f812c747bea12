"""How many jobs, decoding threads and pictures per batch keep OpenVINO's streams busiest? The demo's photos, alternating passes.

Usage: python benches/bench_slots.py [FOLDER]
"""

from __future__ import annotations

import shutil
import time

import torch
from common import say, work_folder
from photos import demo_photos

from unchoke.features.encoders import load_encoder
from unchoke.features.engine_openvino import OpenVinoEngine
from unchoke.features.extractor import Extractor, PictureReader
from unchoke.features.recipe import PictureRecipe
from unchoke.jobs.job_engines import InProcessEngine
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.run_jobs import run_jobs
from unchoke.machine.backend import keep_freed_memory

STREAMS = 2
WAYS = ((2, 0, 8), (3, 0, 8), (4, 0, 8), (2, 2, 8), (2, 0, 16))
"""Jobs at once, further decoding threads for each, pictures per batch."""


def main() -> None:
    work = work_folder()
    keep_freed_memory()
    torch.set_num_threads(1)
    encoder = load_encoder()
    engines = {
        batch: OpenVinoEngine(encoder, precision="bf16", streams=STREAMS, batch=batch, keep_in=work / "engines")
        for batch in {batch for _, _, batch in WAYS}
    }
    recipe = PictureRecipe(encoder.spec, "openvino", "bf16")
    paths = {str(file): str(file) for file in sorted(demo_photos(work).rglob("*.jpg"))}
    rates: dict[str, list[int]] = {}
    for _ in range(3):
        for slots, threads, batch in WAYS:
            out = work / "slots"
            shutil.rmtree(out, ignore_errors=True)
            queue = JobQueue.load(out)
            plan = queue.plan(
                list(paths), [""] * len(paths), fingerprint=recipe.fingerprint, output_pattern=recipe.output_pattern
            )
            started = time.perf_counter()
            body = Extractor(engines[batch], recipe, PictureReader(recipe, paths), out, threads)
            run_jobs(queue, plan.pending, body, engine=InProcessEngine(slots))
            rate = round(len(paths) / (time.perf_counter() - started))
            rates.setdefault(f"{slots} jobs, {threads} threads, batch {batch}", []).append(rate)
    say("slots", streams=STREAMS, images_per_s=rates)


if __name__ == "__main__":
    main()
