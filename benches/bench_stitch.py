"""Peak memory of stitching a mask: it must not grow with the mask.

Each size is stitched in a process of its own, from patches that cost next to nothing to make (a smooth field of three classes),
and written as a user gets it: bands kept for resuming, then Cloud-Optimised GeoTIFFs of classes and probabilities. RssAnon is
what the process really owns, sampled every few milliseconds; Python, numpy, rasterio and GDAL's cache are part of it. No network
is loaded: what one takes is its own, and the same for every size.

Usage: python benches/bench_stitch.py [FOLDER] [--px 5000 20000] [--patch 256] [--overlap 64] [--batch 8] [--no-write]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import say
from numpy.typing import NDArray

from unchoke.core.boxes import Box
from unchoke.core.units import format_bytes
from unchoke.machine.memory.memory_watch import MemoryWatch, own_bytes

CLASSES = ("water", "land", "cloud")
LIMIT_BYTES = 400_000_000
_INTERVAL_S = 0.01
_WAVE_PX = 900.0


def predict(patches: list[Box]) -> NDArray[np.float32]:
    """Three smooth waves over the whole picture, as probabilities (n, C, p, p)."""
    return np.stack([_field(patch) for patch in patches])


def _field(patch: Box) -> NDArray[np.float32]:
    down = np.arange(patch.top, patch.bottom, dtype=np.float32)[:, None]
    across = np.arange(patch.left, patch.right, dtype=np.float32)[None, :]
    phases = [(down + turn * across) / np.float32(_WAVE_PX) for turn in (0.3, 1.0, 3.0)]
    waves = np.stack([np.sin(phase) + np.float32(1.1) for phase in phases])
    return waves / waves.sum(axis=0)


def stitch_one(args: argparse.Namespace, px: int) -> dict[str, Any]:
    """Stitch one mask in this process; its peak, what was there before, and the seconds of both halves."""
    from unchoke.masks.stitch import plan_stitch, stitch
    from unchoke.masks.write_masks import PartStore, plan_files, to_part, write_masks
    from unchoke.scenes.scene_facts import Grid

    folder = Path(args.folder) / f"stitch-{px}"
    shutil.rmtree(folder, ignore_errors=True)
    plan = plan_stitch(px, px, patch_px=args.patch, overlap_px=args.overlap, num_classes=len(CLASSES))
    grid = Grid(px, px, (10.0, 0.0, 600_000.0, 0.0, -10.0, 4_200_000.0), utm())
    before_bytes = own_bytes()
    with MemoryWatch(interval_s=_INTERVAL_S) as watch:
        started_s = time.perf_counter()
        parts = PartStore(folder / "parts", made_from="bench", probabilities=True)
        for band, values in stitch(plan, predict, batch=args.batch, done=parts.done):
            parts.save(band, to_part(values, probabilities=True))
        stitched_bytes, stitched_s = watch.peak_bytes, time.perf_counter() - started_s
        if not args.no_write:
            files = plan_files(folder, "mask", grid, probabilities=True)
            write_masks(plan, parts, grid=grid, class_names=CLASSES, files=files)
        written_s = time.perf_counter() - started_s - stitched_s
    shutil.rmtree(folder)
    return {
        "px": px,
        "peak_bytes": watch.peak_bytes,
        "peak_stitching_bytes": stitched_bytes,
        "before_bytes": before_bytes,
        "planned_bytes": plan.held_bytes,
        "strip_px": plan.strip_px,
        "band_px": plan.band_px,
        "stitch_s": round(stitched_s, 1),
        "write_s": round(written_s, 1),
    }


def utm() -> str:
    from rasterio.crs import CRS

    return str(CRS.from_epsg(32616).to_wkt())


def in_child(args: argparse.Namespace, px: int) -> dict[str, Any]:
    """One size in a process of its own: what an earlier one left to the allocator would hide what this one takes."""
    options = ["--patch", str(args.patch), "--overlap", str(args.overlap), "--batch", str(args.batch)]
    options += ["--no-write"] if args.no_write else []
    words = [sys.executable, __file__, args.folder, "--one", str(px), *options]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"stitching {px} px exited {done.returncode}\n{done.stderr[-4000:]}")
    measured: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"{px}×{px}: peak {format_bytes(measured['peak_bytes'])}, {measured}", file=sys.stderr)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="bench-out")
    parser.add_argument("--px", type=int, nargs="+", default=[5_000, 20_000])
    parser.add_argument("--patch", type=int, default=256)
    parser.add_argument("--overlap", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--no-write", action="store_true", help="stitch and keep the bands, but write no GeoTIFF")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    Path(args.folder).mkdir(parents=True, exist_ok=True)
    if args.one is not None:
        print(json.dumps(stitch_one(args, args.one)))
        return
    found = [in_child(args, px) for px in args.px]
    small, large = found[0]["peak_bytes"], found[-1]["peak_bytes"]
    say(
        "stitch",
        masks=found,
        peak_mb=[round(one["peak_bytes"] / 1e6, 1) for one in found],
        grown_share=round(large / small - 1, 4),
        under_limit=large < LIMIT_BYTES,
        limit_bytes=LIMIT_BYTES,
    )


if __name__ == "__main__":
    main()
