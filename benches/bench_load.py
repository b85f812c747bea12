"""A training on a machine that others compute on too: what is left of its speed, and are its weights the same?

The last two blocks of a network are trained on cached activations, alone and beside busy loops, in two ways that alternate:
threads that spin while they wait for one another, as OpenMP does when nobody says otherwise, and threads that wait briefly.

    python benches/bench_load.py bench-out          # about 10 minutes on two cores
    python benches/bench_load.py bench-out 11       # beside so many busy loops
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from common import say, unchoke, work_folder
from photos import crops

ROUNDS = 2
SPINS = {"spinning": "300000", "brief": ""}
"""What GNU's OpenMP does by itself, and what we say."""
TRAIN = ("--cut", "-2", "--epochs", "2", "--batch-size", "16")


def burn() -> None:
    while True:
        pass


@contextmanager
def busy(num_loops: int) -> Iterator[None]:
    """So many processes that want a core each."""
    loops = [multiprocessing.Process(target=burn, daemon=True) for _ in range(num_loops)]
    for loop in loops:
        loop.start()
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.join()


def train(prepared: Path, workspace: Path, spins: str) -> dict[str, Any]:
    shutil.rmtree(workspace, ignore_errors=True)
    shutil.copytree(prepared, workspace)
    os.environ.pop("GOMP_SPINCOUNT", None)
    if spins:
        os.environ["GOMP_SPINCOUNT"] = spins
    result, _ = unchoke("train", *TRAIN, "--seed", "1", "--out", str(workspace))
    record = json.loads((workspace / "experiments" / result["run"] / "record.json").read_text())
    num_images = record["training"]["num_steps"] * 16
    loop_s = sum(row["seconds"] for row in record["timeline"]["train"]["stages"] if row["stage"] != "evaluate")
    return {"images_per_s": num_images / loop_s, "weights": record["training"]["weights_sha256"]}


def _rate(rows: list[dict[str, Any]], way: str, loops: int) -> float:
    return round(median(row["images_per_s"] for row in rows if (row["way"], row["loops"]) == (way, loops)), 1)


def main() -> None:
    work, num_loops = work_folder(), int(sys.argv[2]) if len(sys.argv) > 2 else 11
    photos, prepared = crops(work, count=240, side_px=256), work / "load-prepared"
    if not prepared.exists():
        unchoke("train", str(photos), "--cut", "-2", "--epochs", "1", "--out", str(prepared))
    rows: list[dict[str, Any]] = []
    for number in range(ROUNDS):
        for loops in (0, num_loops):
            with busy(loops):
                time.sleep(1)
                for way, spins in sorted(SPINS.items(), reverse=bool(number % 2)):
                    before = os.getloadavg()[0]
                    rows.append({"way": way, "loops": loops, "load": before, **train(prepared, work / "load", spins)})
                    print(rows[-1], file=sys.stderr, flush=True)
    rates = {f"{way} beside {loops}": _rate(rows, way, loops) for way in SPINS for loops in (0, num_loops)}
    say("load", rates=rates, same_weights=len({row["weights"] for row in rows}) == 1, rows=rows)


if __name__ == "__main__":
    main()
