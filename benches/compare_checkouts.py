"""Did a change make commands slower? Two checkouts run the same commands by turns, and their medians stand side by side.

The commands are whole, interpreter and report included, in fresh workspaces, on the demos' photos and scenes. Both checkouts run
with this interpreter and its packages. Usage: python benches/compare_checkouts.py FOLDER BEFORE [AFTER] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from common import say

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {
    "help": "fit --help",
    "demo fit": "demo --out {work}/photos",
    "cut -4, 2 epochs": "train {work}/photos/photos --cut -4 --epochs 2 --out {work}/cut",
    "done already": "demo --out {work}/photos",
    "scenes: tile, train, predict": "demo scenes --out {work}/scenes",
    "lint": "lint {corpus} --json",
}
"""By name, in the order they are run; each round begins with an empty folder."""


def run(checkout: Path, words: str) -> float:
    """Wall-clock seconds of one command with the code of a checkout."""
    env = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "unchoke", *words.split()], env=env, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):  # 1: lint found something
        raise SystemExit(f"unchoke {words} exited {done.returncode}\n{done.stderr[-2000:]}")
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    seconds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(asked.rounds):
        ways = [("before", asked.before), ("after", asked.after)]
        for way, checkout in ways if number % 2 == 0 else ways[::-1]:
            work = asked.folder / way
            shutil.rmtree(work, ignore_errors=True)
            for name, words in COMMANDS.items():
                typed = words.format(work=work, corpus=ROOT / "benches" / "lint" / "corpus")
                seconds[name][way].append(run(checkout.resolve(), typed))
    for name, ways_s in seconds.items():
        before, after = (statistics.median(ways_s[way]) for way in ("before", "after"))
        rounds = {way: [round(one, 2) for one in ways_s[way]] for way in ways_s}
        say(
            "checkouts",
            command=name,
            before_s=round(before, 2),
            after_s=round(after, 2),
            ratio=round(after / before, 3),
            rounds=rounds,
        )


if __name__ == "__main__":
    main()
