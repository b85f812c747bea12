"""From nothing to an evaluated model: the demo's photos, and 10,000 crops of 256 px, as typed commands in fresh workspaces.

Also, on the 10,000: `check` the second time against the first, evaluation from cached features against running the encoder
again, and one warm job of 64 images. Usage: python benches/bench_fit.py [FOLDER]
"""

from __future__ import annotations

import csv
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from common import say, unchoke, work_folder
from photos import crops, demo_photos


def fresh_fit(photos: Path, out: Path) -> tuple[dict[str, Any], float]:
    shutil.rmtree(out, ignore_errors=True)
    return unchoke("fit", str(photos), "--out", str(out))


def summary(result: dict[str, Any], wall_s: float) -> dict[str, Any]:
    return {
        "wall_s": round(wall_s, 1),
        "timings": {stage: round(seconds, 2) for stage, seconds in result["timings"].items()},
        "images_per_s": round(result["images_per_s"], 1),
        "test_accuracy": round(result["metrics"]["test"]["accuracy"], 4),
        "interval": [round(bound, 4) for bound in result["intervals"]["test"]["accuracy"]],
        "planned_mb": round(result["memory"]["planned_bytes"] / 1e6),
        "measured_mb": round(result["memory"]["measured_bytes"] / 1e6),
    }


def second_check(photos: Path, out: Path) -> dict[str, Any]:
    """Stage times without waiting for the worker trial, which is not repeated anyway."""
    shutil.rmtree(out, ignore_errors=True)
    seconds = []
    for _ in range(2):
        result, _ = unchoke("check", str(photos), "--out", str(out))
        seconds.append(sum(taken for stage, taken in result["timings"].items() if stage != "worker"))
    return {"first_s": round(seconds[0], 2), "second_s": round(seconds[1], 3), "share": round(seconds[1] / seconds[0], 4)}


def evaluation(out: Path) -> dict[str, Any]:
    """Outputs from cached features against encoding the same pictures again at the rate measured in this very run.

    Scoring (1,000 resamples for the intervals) is the same work either way, and is given beside it.
    """
    result, _ = unchoke("evaluate", "latest", "--out", str(out))
    shown, _ = unchoke("runs", "show", "latest", "--out", str(out))
    judged = shown["data"]["splits"]["val"] + shown["data"]["splits"]["test"]
    again_s = judged / shown["images_per_s"]
    cached_s, score_s = result["timings"]["evaluate"], result["timings"]["score"]
    return {
        "pictures": judged,
        "cached_s": round(cached_s, 3),
        "encoder_s": round(again_s, 2),
        "ratio": round(again_s / cached_s, 1),
        "scoring_s": round(score_s, 3),
        "ratio_with_scoring": round((again_s + score_s) / (cached_s + score_s), 1),
    }


def warm_job(photos: Path, out: Path) -> dict[str, Any]:
    """`extract --job`: the stage time of one job of 64 in a workspace whose engine is there."""
    with (out / "features" / "jobs_queue.csv").open(newline="") as file:
        csv.field_size_limit(sys.maxsize)
        job = next(csv.DictReader(file))["job_id"]
    result, wall_s = unchoke("extract", str(photos), "--out", str(out), "--job", job)
    return {"images": result["num_images"], "seconds": round(result["seconds"], 3), "whole_command_s": round(wall_s, 1)}


def main() -> None:
    work = work_folder()
    started = time.perf_counter()
    demo_fit = summary(*fresh_fit(demo_photos(work), work / "fit-demo"))
    many = crops(work, count=10_000, side_px=256)
    ten_thousand = summary(*fresh_fit(many, work / "fit-10k"))
    say(
        "fit",
        demo=demo_fit,
        ten_thousand=ten_thousand,
        check=second_check(many, work / "check-10k"),
        evaluate=evaluation(work / "fit-10k"),
        job=warm_job(many, work / "fit-10k"),
        took_s=round(time.perf_counter() - started),
    )


if __name__ == "__main__":
    main()
