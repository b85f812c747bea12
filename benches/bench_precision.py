"""Does a lower precision of the frozen part change what a head learns? The demo's photos, one fit per precision, five splits.

Each seed splits the photos anew, the same way for every precision, so differences are paired. int8 earns its place where its
accuracy differs from float32's by no more than the splits differ among themselves.
Usage: python benches/bench_precision.py [FOLDER]
"""

from __future__ import annotations

import shutil
import statistics

from common import say, unchoke, work_folder
from photos import demo_photos

PRECISIONS = ("f32", "bf16", "int8")
SEEDS = range(5)


def main() -> None:
    work = work_folder()
    photos = demo_photos(work)
    accuracy: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    for precision in PRECISIONS:
        out = work / f"precision-{precision}"
        shutil.rmtree(out, ignore_errors=True)
        for seed in SEEDS:
            (out / "manifest.csv").unlink(missing_ok=True)  # rows in it would keep their split
            result, _ = unchoke("fit", str(photos), "--out", str(out), "--precision", precision, "--seed", str(seed))
            accuracy[precision].append(result["metrics"]["test"]["accuracy"])
    figures = {
        name: {"mean": round(statistics.mean(found), 4), "each": [round(one, 4) for one in found]}
        for name, found in accuracy.items()
    }
    against = {
        name: [round(low - full, 4) for low, full in zip(accuracy[name], accuracy["f32"], strict=True)]
        for name in ("bf16", "int8")
    }
    say("precision", accuracy=figures, difference_from_f32=against)


if __name__ == "__main__":
    main()
