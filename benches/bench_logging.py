"""What `--log tensorboard` costs a training: the same training with and without it, in turns.

Usage: benches/bench_logging.py [--pairs 5]. Out: seconds of the stage `train` of each pair, and the ratio of their medians; and
what the thread that trains pays for each event it tells.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

import unchoke
from unchoke.core.events import Progress, ignore
from unchoke.core.workspace import Workspace
from unchoke.runs.experiment_store import ExperimentStore
from unchoke.runs.tracking import Tracking


def make_photos(folder: Path, per_class: int = 40) -> Path:
    random = np.random.default_rng(0)
    for name, colour in {"red": (200, 60, 50), "green": (60, 170, 70)}.items():
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            pixels = (np.array(colour) * random.uniform(0.4, 1, (96, 96, 1))).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.jpg")
    return folder


def train_s(photos: Path, out: Path, seed: int, log: list[str]) -> float:
    done = unchoke.train(photos, out=out, cut="-1", epochs=30, patience=0, seed=seed, log=log, on_event=ignore)
    return done.run_record.timings["train"]


def event_us(out: Path, num: int = 20_000) -> float:
    """Microseconds for one event, told to a run that is being sent."""
    with ExperimentStore.open(Workspace(out).experiments_file) as experiments:
        tracking = Tracking(["tensorboard"], Workspace(out), ignore)
        listen = tracking.listening(ignore)
        with tracking.run(experiments, experiments.run("latest")):
            began = time.perf_counter()
            for number in range(num):
                listen(Progress("train", number, num + 1, "images", extra={"loss": 0.5}))
            return 1e6 * (time.perf_counter() - began) / num


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as name:
        photos, out = make_photos(Path(name) / "photos"), Path(name) / "out"
        train_s(photos, out, 1000, ["tensorboard"])  # loads what is loaded once
        plain, logged = [], []
        for pair in range(pairs):
            plain.append(train_s(photos, out, 2 * pair + 1, []))
            logged.append(train_s(photos, out, 2 * pair + 2, ["tensorboard"]))
            print(f"pair {pair + 1}: {plain[-1]:.2f} s plain, {logged[-1]:.2f} s logged", flush=True)
        print(f"logged over plain, medians: {statistics.median(logged) / statistics.median(plain):.3f}")
        print(f"one event costs the training {event_us(out):.1f} µs")


if __name__ == "__main__":
    main()
