"""Peak anonymous memory of `fit` for 1,000 and for 50,000 images: it must not grow with their number.

RssAnon counts what a process really owns; mapped feature files are not in it.
Usage: python benches/bench_memory.py [FOLDER] [COUNT]
"""

from __future__ import annotations

import shutil
import sys

from common import say, unchoke, work_folder
from photos import crops


def main() -> None:
    work = work_folder()
    large = int(sys.argv[2]) if len(sys.argv) > 2 else 50_000
    peaks = {}
    for count in (1_000, large):
        out = work / f"memory-{count}"
        shutil.rmtree(out, ignore_errors=True)
        result, wall_s = unchoke("fit", str(crops(work, count=count, side_px=64)), "--out", str(out))
        peaks[count] = {"peak_anon_mb": round(result["memory"]["measured_bytes"] / 1e6, 1), "wall_s": round(wall_s, 1)}
    grown_mb = peaks[large]["peak_anon_mb"] - peaks[1_000]["peak_anon_mb"]
    say("memory", peaks=peaks, grown_mb=round(grown_mb, 1))


if __name__ == "__main__":
    main()
