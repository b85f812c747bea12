"""Do more cores read and encode faster? `extract` and `check` without a card, on 1, 2, 4, … cores.

Two questions, because one worker may well keep several cores busy. Cores: the process may use so many cores (its affinity), and
what suits them is chosen as ever. Workers: all cores are there, `--workers` says how many work; more should never be slower.
Each count runs in a fresh process: a small call first, which pays for what is loaded only once and says how many photos the
measured one needs to take about `--seconds`. "Net" is the stage alone, "whole" the call with all its stages.

    python benches/bench_cores.py --photos FOLDER --num 10000 --json cores.json
    python benches/bench_cores.py --only check_cores --counts 1,16
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import Stages
from guarded import Figures, Part, add_guards, run_parts
from photos import some_of, wanted_photos

SMALL = 64
"""Photos for each core or worker in the first, small call."""
MOST_CALLS = 4
Measured = tuple[int, float, float]
"""Photos, seconds of the stage, seconds of the call."""


def usable() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def counts_of(args: argparse.Namespace) -> list[int]:
    """1, 2, 4, … and all that there are, or what was asked for."""
    if args.counts:
        return [int(word) for word in args.counts.split(",")]
    powers = [2**power for power in range(usable().bit_length()) if 2**power < usable()]
    return [*powers, usable()]


def sweep(command: str, kind: str) -> Callable[[argparse.Namespace, Figures], None]:
    """A part: `command` for each count of `kind`, and what each brings over the first."""

    def run(args: argparse.Namespace, figures: Figures) -> None:
        if kind == "cores" and not hasattr(os, "sched_setaffinity"):
            figures.say("not measured", "this system does not limit a process to some cores")
            return
        first = None
        for count in counts_of(args):
            found = in_fresh_process(command, kind, count)
            first = first or found["net"]
            figures.say(f"{count} {kind}: net", found["net"], "images/s")
            figures.say(f"{count} {kind}: whole", found["whole"], "images/s")
            figures.say(f"{count} {kind}: to the first", found["net"] / first, "times")
            figures.say(f"{count} {kind}: measured on", found["about"])

    return run


def in_fresh_process(command: str, kind: str, count: int) -> dict[str, Any]:
    words = [sys.executable, *sys.argv[: sys.argv.index("--inside")], "--measure", f"{command},{kind},{count}"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """In the fresh process: a small call, then calls on as many photos as it takes."""
    command, kind, number = args.measure.split(",")
    count = int(number)
    if kind == "cores":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])
    call = {"extract": extract, "check": check}[command]
    workers = count if kind == "workers" else None
    started = time.perf_counter()
    num, net_s, _ = call(args, workers, SMALL * count)
    start_s = time.perf_counter() - started
    wanted = max(SMALL * count, round(args.seconds * num / net_s))
    calls: list[Measured] = []
    while len(calls) < MOST_CALLS and sum(net_s for _, net_s, _ in calls) < args.seconds / 2:
        calls.append(call(args, workers, wanted))
    num, net_s, whole_s = (sum(column) for column in zip(*calls, strict=True))
    about = {"photos": num, "calls": len(calls), "net_s": round(net_s, 2), "small_call_s": round(start_s, 2)}
    return {"net": num / net_s, "whole": num / whole_s, "about": about}


def extract(args: argparse.Namespace, workers: int | None, num: int) -> Measured:
    import unchoke as ours

    photos, out = photos_of(args, num), fresh(args)
    started = time.perf_counter()
    done = ours.extract(photos, out=out, device="cpu", workers=workers, on_event=Stages())
    return done.num_images, done.seconds, time.perf_counter() - started


def check(args: argparse.Namespace, workers: int | None, num: int) -> Measured:
    """`check` has no `--workers`; the same stage of `fit` has, and a rehearsal ends after it."""
    import unchoke as ours

    photos, out, stages = photos_of(args, num), fresh(args), Stages()
    started = time.perf_counter()
    if workers is None:
        done = ours.check(photos, out=out, on_event=stages)
    else:
        done = ours.fit(photos, out=out, device="cpu", workers=workers, dry_run=True, on_event=stages)
    return done.num_samples, stages.seconds["check"], time.perf_counter() - started


def photos_of(args: argparse.Namespace, most: int | None = None) -> Path:
    """Class folders, with no more than `most` photos."""
    work = Path(args.work)
    return some_of(wanted_photos(args.photos, work, num=args.num), work, num=most or args.num)


def fresh(args: argparse.Namespace) -> Path:
    """A workspace that is not there yet."""
    out = Path(args.work) / "cores"
    shutil.rmtree(out, ignore_errors=True)
    return out


PARTS = {
    "extract_cores": Part(sweep("extract", "cores"), limit_s=300),
    "check_cores": Part(sweep("check", "cores"), limit_s=180),
    "extract_workers": Part(sweep("extract", "workers"), limit_s=300),
    "check_workers": Part(sweep("check", "workers"), limit_s=180),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="a part; repeat it for several")
    parser.add_argument("--photos", help="class folders with photos; left out, the demo's, or crops of them")
    parser.add_argument("--num", type=int, default=600, help="how many photos at most")
    parser.add_argument("--counts", help="how many cores or workers, for instance 1,4,16")
    parser.add_argument("--seconds", type=float, default=8.0, help="about how long a measured call should take")
    parser.add_argument("--work", default="bench-out", help="folder for photos and workspaces")
    parser.add_argument("--json", help="where all figures are written")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    add_guards(parser)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args)))
        return
    photos_of(args)
    run_parts("cores", PARTS, args, only=args.only)


if __name__ == "__main__":
    main()
