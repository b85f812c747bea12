"""What a Ray cluster costs and brings, on a cluster of namespaces on this machine (needs root; see tests/cluster/raynet.py).

(a) overhead: the same photos through the same engine on the same cores, here and on a cluster of one node that has all of them.
    Passes alternate; only the time between the first and the last finished job counts, so starting either side does not. The
    shards must be equal, byte for byte.
(b) scaling: jobs that sleep, on 3 nodes with 4 slots each, against the ideal. More nodes than cores cannot compute faster on one
    machine: what is shown is that handing out work and books keep up.

    python benches/bench_cluster.py [--photos FOLDER] [--passes 3] [--only overhead|scaling]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from datetime import datetime
from pathlib import Path

from common import say, typed
from photos import demo_photos

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "cluster"), str(ROOT / "tests")]
from raynet import RayNet, why_not  # noqa: E402

DRIVER = ROOT / "tests" / "cluster" / "jobs_on_cluster.py"
PATHS = os.pathsep.join(str(ROOT / name) for name in ("src", "tests", "tests/cluster"))


def working_s(workspace: Path) -> tuple[float, int]:
    """Seconds between the first and the last finished job, and how many images came after the first."""
    records = [json.loads(file.read_text()) for file in (workspace / "features").glob("*.done")]
    records.sort(key=lambda record: record["finished_at"])
    first, last = (datetime.fromisoformat(records[place]["finished_at"]) for place in (0, -1))
    return (last - first).total_seconds(), sum(record["num_items"] for record in records[1:])


def shards(workspace: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((workspace / "features").rglob("*.npz"))}


def measure_overhead(photos: Path, passes: int, folder: Path) -> None:
    cores = os.cpu_count() or 1
    net = RayNet(1, cpus=cores)
    net.env["PYTHONPATH"] = PATHS
    del net.env["OMP_NUM_THREADS"]  # as a user's own node would run
    rates: dict[str, list[float]] = {"here": [], "cluster": []}
    whole: dict[str, list[float]] = {"here": [], "cluster": []}
    try:
        net.start()
        for number in range(passes):
            here, there = folder / f"here{number}", folder / f"cluster{number}"
            done, seconds = typed("extract", str(photos), "--out", str(here))
            assert done.returncode == 0, done.stderr[-2000:]
            whole["here"].append(seconds)
            started = datetime.now()
            answer = net.run(
                0, sys.executable, "-m", "unchoke", "extract", str(photos), "--out", str(there), "--on", "auto", timeout=900
            )
            assert answer.returncode == 0, answer.stderr[-2000:]
            whole["cluster"].append((datetime.now() - started).total_seconds())
            assert shards(here) == shards(there), "features differ"
            for name, workspace in (("here", here), ("cluster", there)):
                seconds, num = working_s(workspace)
                rates[name].append(num / seconds)
    finally:
        net.stop()
    medians = {name: statistics.median(found) for name, found in rates.items()}
    say(
        "cluster-overhead",
        images=sum(1 for _ in photos.rglob("*.*")),
        images_per_s={name: [round(rate, 1) for rate in found] for name, found in rates.items()},
        ratio=round(medians["here"] / medians["cluster"], 3),
        whole_command_s={name: [round(seconds, 1) for seconds in found] for name, found in whole.items()},
        shards="equal",
    )


def measure_scaling(folder: Path, *, nodes: int = 3, slots: int = 4, jobs: int = 480, sleep_s: float = 0.5) -> None:
    net = RayNet(nodes, cpus=1)
    net.env["PYTHONPATH"] = PATHS
    try:
        net.start()
        for used in (1, nodes):
            if used == 1:
                options = ["--jobs", str(jobs // nodes), "--only", "node0"]
            else:
                options = ["--jobs", str(jobs)]
            command = [
                sys.executable,
                str(DRIVER),
                "auto",
                str(folder / f"nodes{used}"),
                "--slots",
                str(slots),
                "--seconds",
                str(sleep_s),
            ]
            answer = net.run(0, *command, *options, timeout=600)
            result = json.loads(answer.stdout.splitlines()[-1])
            num = jobs // nodes if used == 1 else jobs
            assert result["done"] == num, answer.stdout[-2000:]
            ideal_s = (num - used * slots) * sleep_s / (used * slots)
            say(
                "cluster-scaling",
                nodes=used,
                slots=used * slots,
                jobs=num,
                sleep_s=sleep_s,
                seconds=round(result["work_s"], 2),
                of_ideal=round(ideal_s / result["work_s"], 3),
                start_s=round(result["seconds"] - result["work_s"], 1),
            )
    finally:
        net.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--only", choices=("overhead", "scaling"))
    asked = parser.parse_args()
    if why := why_not():
        print(f"no cluster can be made here: {why}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as folder:
        if asked.only != "overhead":
            measure_scaling(Path(folder))
        if asked.only != "scaling":
            measure_overhead((asked.photos or demo_photos(Path(folder))).resolve(), asked.passes, Path(folder))


if __name__ == "__main__":
    main()
