"""Does `unchoke tune` make the demo faster, in bounded time, without letting a wrong number pass? Before and after, in turns.

For each cut a fresh workspace is tuned; then the same command runs in an untuned and in the tuned workspace by turns (A B B A),
each run a process of its own: seconds of extraction for the frozen part, seconds of training for three epochs of what trains.
Usage: python benches/bench_tune.py [FOLDER] [--cut end] [--minutes 2] [--rounds 4]
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from common import say, unchoke
from photos import demo_photos

from unchoke.tuning.compare import summarise

EPOCHS = 3


def tuned_workspace(work: Path, photos: Path, cut: str, minutes: float) -> tuple[dict[str, Path], dict[str, Any], float]:
    """An untuned and a tuned workspace, what tuning said, and how long the command took by the wall clock."""
    places = {name: work / f"tune-{name}-{cut.lstrip('-')}" for name in ("before", "after")}
    for place in places.values():
        shutil.rmtree(place, ignore_errors=True)
    typed = ["tune", str(photos), f"--cut={cut}", "--minutes", str(minutes), "--epochs", str(EPOCHS)]
    result, wall_s = unchoke(*typed, "--out", str(places["after"]))
    return places, result, wall_s


def frozen_seconds(place: Path, photos: Path, cut: str) -> float:
    """Extraction of all photos, from nothing; converted networks are kept, as in any second run."""
    shutil.rmtree(place / "features", ignore_errors=True)
    result, _ = unchoke("extract", str(photos), f"--cut={cut}", "--out", str(place))
    return float(result["seconds"])


def training_seconds(place: Path, photos: Path, cut: str, seed: int) -> float:
    """Three epochs with their evaluation, and what comes before the first step."""
    typed = ["train", str(photos), f"--cut={cut}", "--epochs", str(EPOCHS), "--seed", str(seed)]
    result, _ = unchoke(*typed, "--out", str(place))
    return float(result["timings"]["train"])


def in_turns(places: dict[str, Path], rounds: int, run: Any) -> dict[str, Any]:
    """Both ways by turns, and the ratio with its interval. The first run of each, which converts and decodes, is left out."""
    for place in places.values():
        run(place, 0)
    pairs = []
    for number in range(1, rounds + 1):
        order = ("before", "after") if number % 2 else ("after", "before")
        seconds = {name: run(places[name], number) for name in order}
        pairs.append((seconds["before"], seconds["after"]))
    found = summarise(pairs)
    return {"seconds": pairs, "ratio": found.ratio, "interval": (found.low, found.high), "slower": found.high < 1}


def measure(work: Path, photos: Path, cut: str, *, minutes: float, rounds: int) -> None:
    places, result, wall_s = tuned_workspace(work, photos, cut, minutes)
    switches = result["tuned"]["switches"]
    kept = {name: one["value"] for name, one in switches.items() if one["verdict"] == "kept"}
    figures: dict[str, Any] = {}
    if cut != "none":
        figures["extraction"] = in_turns(places, rounds, lambda place, _: frozen_seconds(place, photos, cut))
    if cut != "end":
        figures["training"] = in_turns(places, rounds, lambda place, seed: training_seconds(place, photos, cut, seed))
    say(
        "tune",
        cut=cut,
        kept=kept,
        unequal_kept=[name for name in kept if "unequal" in switches[name]["reason"]],
        tuning={"asked_s": 60 * minutes, "said_s": result["seconds"], "wall_s": wall_s},
        together={part["name"]: part["whole"] for part in result["parts"]},
        **figures,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="bench-out")
    parser.add_argument("--cut", action="append")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    work = Path(args.folder)
    work.mkdir(parents=True, exist_ok=True)
    photos = demo_photos(work)
    for cut in args.cut or ("end", "-4", "none"):
        measure(work, photos, cut, minutes=args.minutes, rounds=args.rounds)


if __name__ == "__main__":
    main()
