"""A network's training killed 20 times at random moments, with 0 to 2 workers: are its weights those of an unbroken one?

Each start is a fresh interpreter. Prints the SHA-256 of the final weights of both, and how many steps were lost to the kills.
Usage: python benches/bench_resume.py [FOLDER] [KILLS]
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import say, work_folder

from unchoke.core.fingerprint import digest, digest_file

DRIVER = Path(__file__).parents[1] / "tests" / "crash" / "finetune_driver.py"
EPOCHS = 150
STEPS_PER_EPOCH = 3
STARTING = 0.15
"""The share of kills that hit while a process is still starting."""


def start(folder: Path, workers: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(DRIVER), str(folder), str(workers), str(EPOCHS)])


def num_begun(folder: Path) -> int:
    """Steps begun in `folder` by all processes together."""
    log = folder / "steps.log"
    return log.stat().st_size // len("step\n") if log.exists() else 0


def kill_somewhere(folder: Path, workers: int, num_steps: int, chance: random.Random) -> int:
    """Start a training and kill it: while it starts, or a moment after it began `num_steps` steps. How many it began."""
    before, process = num_begun(folder), start(folder, workers)
    if chance.random() < STARTING:
        time.sleep(chance.uniform(0.0, 3.0))
    else:
        while num_begun(folder) < before + num_steps and process.poll() is None:
            time.sleep(0.001)
        time.sleep(chance.uniform(0.0, 0.03))
    process.send_signal(signal.SIGKILL)
    if process.wait() != -signal.SIGKILL:
        raise SystemExit("the training was over before it was killed: raise EPOCHS")
    return num_begun(folder) - before


def finish(folder: Path, workers: int) -> dict[str, Any]:
    if start(folder, workers).wait():
        raise SystemExit(f"the training in {folder} failed")
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


def main() -> None:
    num_kills = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    calm, stormy = (work_folder() / f"resume-{name}" for name in ("calm", "stormy"))
    for folder in (calm, stormy):
        shutil.rmtree(folder, ignore_errors=True)
    chance = random.Random(2024)
    unbroken = finish(calm, 0)
    workers = [chance.randrange(3) for _ in range(num_kills)]
    at_most = EPOCHS * STEPS_PER_EPOCH // num_kills
    steps = [kill_somewhere(stormy, number, chance.randint(1, at_most), chance) for number in workers]
    broken = finish(stormy, 1)
    say(
        "resume",
        kills=num_kills,
        workers=workers,
        steps_begun_before_each_kill=steps,
        steps=unbroken["num_steps"],
        steps_taken_again=num_begun(stormy) - num_begun(calm),
        weights_sha256={"unbroken": unbroken["weights"], "killed": broken["weights"]},
        history_sha256={"unbroken": digest(unbroken["history"]), "killed": digest(broken["history"])},
        last_pt_sha256={
            name: digest_file(folder / "checkpoints" / "last.pt") for name, folder in (("unbroken", calm), ("killed", stormy))
        },
        equal=broken == unbroken,
    )
    if broken != unbroken:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
