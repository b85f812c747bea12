"""How many samples the books can keep: index, splits, manifest, plan and resume, for samples without pixels.

Samples, their facts and the records of finished jobs are made up; each step then runs in a process of its own, which says its
seconds (of the clock, and of the processor) and the most memory it had (resident, with every library it loads). Usage:
python benches/bench_scale.py [FOLDER] [--samples 100000 1000000 10000000] [--only STEP …] [--limit-gb 6]
For before and after, run it under PYTHONPATH of either checkout.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from common import say

FINGERPRINT = "5ca1e5ca1e5ca1e5ca1e5ca1e5ca1e00"
PATTERN = "encoder_x-5ca1e5ca/img_{first:06d}-{last:06d}.npz"
CLASSES = 1_000
CHUNK = 1_000_000
SIZE_BYTES = 100_000
INFO = {"encoder": "tf_efficientnet_lite0", "fingerprint": FINGERPRINT, "engine": "torch", "precision": "f32", "batch": 32}
CLOCKS = {"load_s": 0.512345, "encode_s": 0.412345, "write_s": 0.001234, "body_s": 0.923456}


def make(folder: Path, num: int) -> None:
    """Samples with the facts of their files, in pieces: a thousand classes, every thousandth file a copy of its neighbour."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from unchoke.core.checksums import add_checksums

    samples = facts = None
    for start in range(0, num, CHUNK):
        rows = range(start, min(start + CHUNK, num))
        ids = [f"c{row * CLASSES // num:03d}/{row:09d}.jpg" for row in rows]
        count, paths = len(ids), [f"/data/photos/{name}" for name in ids]
        content = [_content(row - (row % 1000 == 999)) for row in rows]
        same: dict[str, Any] = {"size_bytes": [SIZE_BYTES] * count, "mtime_ns": [1_700_000_000_000_000_000 + row for row in rows]}
        table = pa.table(
            {"sample_id": ids, "path": paths, "relative": ids, **same, "label": [name[:4] for name in ids]}
            | {"group": [""] * count, "split": [""] * count}
        )
        checked = pa.table(
            {"path": paths, **same, "content": content, "width": [600] * count, "height": [450] * count}
            | {"mode": ["RGB"] * count, "format": ["JPEG"] * count, "problem": [""] * count, "detail": [""] * count}
            | {"decoded": [True] * count}
        )
        samples = samples or pq.ParquetWriter(folder / "samples.parquet", table.schema)
        facts = facts or pq.ParquetWriter(folder / "checked.parquet", checked.schema)
        samples.write_table(table)
        facts.write_table(checked)
    assert samples is not None and facts is not None
    samples.close()
    facts.close()
    add_checksums(folder, ["checked.parquet"])


def _content(row: int) -> str:
    return hashlib.sha256(row.to_bytes(8, "big")).hexdigest()


def _samples(folder: Path, name: str = "samples.parquet") -> Any:
    """The samples as a scan hands them over."""
    from unchoke.data.sample_set import Samples, TaskSpec

    frame = _frame(folder / name)
    return Samples(TaskSpec("classification", tuple(sorted(set(frame["label"].unique())))), frame)


def _frame(file: Path, columns: list[str] | None = None) -> Any:
    from unchoke.core.text_column import read_parquet

    return read_parquet(file, columns)


def inspect(folder: Path) -> dict[str, Any]:
    """Every file is known from before: the facts are found for the samples."""
    from unchoke.core.workspace import Workspace
    from unchoke.data.inspect_samples import inspect_samples

    samples = _samples(folder)
    with Timed() as timed:
        facts = inspect_samples(samples, Workspace(folder), threads=1, on_event=_quiet)
    return timed.told(rows=len(facts))


def split(folder: Path) -> dict[str, Any]:
    """Splits drawn for the first time."""
    from unchoke.data.splits import assign_splits

    samples, content = _samples(folder), _frame(folder / "checked.parquet", ["content"])["content"]
    with Timed() as timed:
        done, choices = assign_splits(samples, content=content)
    timed.told()
    done.frame.to_parquet(folder / "split.parquet", index=False)
    return timed.told(reason=choices[0].value, evidence=choices[0].evidence)


def manifest(folder: Path) -> dict[str, Any]:
    """The manifest written."""
    from unchoke.data.manifest import save_manifest

    samples = _samples(folder, "split.parquet")
    with Timed() as timed:
        save_manifest(samples, folder / "manifest.csv")
    return timed.told(size_bytes=(folder / "manifest.csv").stat().st_size)


def recall(folder: Path) -> dict[str, Any]:
    """The manifest read again, and splits as it says."""
    from unchoke.data.manifest import load_manifest
    from unchoke.data.splits import assign_splits

    samples, content = _samples(folder), _frame(folder / "checked.parquet", ["content"])["content"]
    with Timed() as timed:
        previous = load_manifest(folder / "manifest.csv")
        done, choices = assign_splits(samples, previous=previous, content=content)
    return timed.told(reason=choices[0].reason, rows=len(done))


def plan(folder: Path) -> dict[str, Any]:
    """From samples and facts to the queue's first plan."""
    from unchoke.jobs.queue import JobQueue

    inputs, timed = _inputs(folder)
    with timed:
        queue = JobQueue.load(folder / "features")
        state = queue.plan(inputs.ids, inputs.contents, fingerprint=FINGERPRINT, output_pattern=PATTERN)
    return timed.told(pending=len(state.pending), size_bytes=(folder / "features" / "jobs_queue.csv").stat().st_size)


def _inputs(folder: Path) -> tuple[Any, Timed]:
    """What extraction is asked for, made as the commands make it; its time counts."""
    from unchoke.core.settings import Settings
    from unchoke.data.check_samples import Inspection
    from unchoke.features.extraction import picture_inputs
    from unchoke.training.pipeline import sound_pictures

    samples = _samples(folder, "split.parquet")
    facts = _frame(folder / "checked.parquet", ["content", "problem", "decoded"])
    timed = Timed()
    with timed:
        pictures = sound_pictures(Inspection(samples, facts, []))
        inputs = picture_inputs(SimpleNamespace(settings=Settings()), SimpleNamespace(), pictures)  # type: ignore[arg-type]
    return inputs, timed


def finish(folder: Path, num: int) -> None:
    """Records and (tiny) artefacts of all jobs, as if they had been run; without waiting for the disk each time."""
    from unchoke.core.fingerprint import digest_bytes
    from unchoke.jobs.records import DONE, DoneRecord, record_name

    features = folder / "features"
    when = datetime(2026, 1, 31, tzinfo=UTC)
    for number, (job_id, inputs, output, count) in enumerate(_planned(features / "jobs_queue.csv")):
        data, now = f"{number:016d}".encode(), when + timedelta(seconds=number)
        artefact = features / output
        artefact.parent.mkdir(exist_ok=True)
        artefact.write_bytes(data)
        fields: dict[str, Any] = {"num_items": count, "num_failed": 0, "seconds": 0.923456, "finished_at": now.isoformat()}
        record = DoneRecord(job_id, inputs, output, digest_bytes(data), len(data), **fields, info={**INFO, **CLOCKS})
        text = json.dumps(record.to_dict(), indent=1, sort_keys=True) + "\n"
        (features / record_name(job_id, DONE, when=now)).write_text(text)


def _planned(file: Path) -> Iterator[tuple[str, str, str, int]]:
    import csv

    csv.field_size_limit(2**31 - 1)
    with file.open(newline="") as text:
        for row in csv.DictReader(text):
            yield row["job_id"], row["inputs"], row["output"], int(row["num_items"])


def resume(folder: Path) -> dict[str, Any]:
    """The queue loaded, every record read, every artefact compared: what is pending?"""
    from unchoke.jobs.queue import JobQueue

    with Timed() as timed:
        state = JobQueue.load(folder / "features").state(FINGERPRINT)
    return timed.told(done=len(state.done), pending=len(state.pending), problems=state.problems[:3], files=_num_records(folder))


def replan(folder: Path) -> dict[str, Any]:
    """The same command typed again: plan, records and samples brought together, and still nothing to do."""
    from unchoke.jobs.queue import JobQueue

    inputs, timed = _inputs(folder)
    with timed:
        queue = JobQueue.load(folder / "features")
        queue.sweep()
        state = queue.plan(inputs.ids, inputs.contents, fingerprint=FINGERPRINT, output_pattern=PATTERN)
    return timed.told(done=len(state.done), pending=len(state.pending), files=_num_records(folder))


def _num_records(folder: Path) -> int:
    return sum(name.startswith("job") for name in os.listdir(folder / "features"))


def _quiet(_event: object) -> None:
    pass


class Timed:
    """Seconds of everything done under it, and the memory of the process so far."""

    def __init__(self) -> None:
        self.seconds = self.cpu_s = 0.0

    def __enter__(self) -> Timed:
        self.began_s, self.began_cpu_s, self.base_bytes = time.perf_counter(), time.process_time(), _rss_bytes("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self.began_s
        self.cpu_s += time.process_time() - self.began_cpu_s
        self.peak_bytes = _rss_bytes("VmHWM")

    def told(self, **facts: Any) -> dict[str, Any]:
        figures = {
            "seconds": self.seconds,
            "cpu_s": self.cpu_s,
            "peak_gb": self.peak_bytes / 1e9,
            "base_gb": self.base_bytes / 1e9,
        }
        return {**{name: round(value, 3) for name, value in figures.items()}, **facts}


def _rss_bytes(field: str, pid: int | str = "self") -> int:
    with suppress(FileNotFoundError, ProcessLookupError), Path(f"/proc/{pid}/status").open(encoding="ascii") as status:
        return next((int(line.split()[1]) * 1024 for line in status if line.startswith(field)), 0)
    return 0


STEPS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "inspect": inspect,
    "split": split,
    "manifest": manifest,
    "recall": recall,
    "plan": plan,
    "resume": resume,
    "replan": replan,
    "resume again": resume,
}
PREPARES: dict[str, Callable[[Path, int], None]] = {"inspect": make, "resume": finish}
"""What is made up before a step; neither timed nor measured."""


def run_step(folder: Path, step: str, num: int, limit_gb: float) -> dict[str, Any]:
    """One step in a process of its own, which may have so much memory and no more."""
    for name, prepare in PREPARES.items():
        mark = folder / f".made-{name}"
        if name == step and not mark.exists():
            prepare(folder, num)
            mark.touch()
    child = subprocess.Popen(
        [sys.executable, __file__, str(folder), "--step", step], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while child.poll() is None:
        time.sleep(0.1)
        if (rss := _rss_bytes("VmRSS", child.pid)) > limit_gb * 1e9:
            child.kill()
            child.communicate()
            return {"seconds": None, "error": f"ended with {rss / 1e9:.1f} GB"}
    said, complaint = child.communicate()
    if child.returncode:
        return {"seconds": None, "error": complaint.strip().splitlines()[-1:]}
    found: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default="bench-out", type=Path)
    parser.add_argument("--samples", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--only", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--limit-gb", type=float, default=6.0, help="what a step may take before it is ended")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        print(json.dumps(STEPS[args.step](args.folder), default=str))
        return
    figures: dict[str, Any] = {}
    print(f"{'samples':>12}  {'step':<14}{'seconds':>9}{'CPU s':>9}{'peak GB':>9}  what")
    for num in args.samples:
        folder = args.folder / str(num)
        folder.mkdir(parents=True, exist_ok=True)
        for step in args.only:
            found = run_step(folder, step, num, args.limit_gb)
            figures[f"{num} {step}"] = dict(found)
            shown = [found.pop(name, None) or "-" for name in ("seconds", "cpu_s", "peak_gb")]
            print(f"{num:>12,}  {step:<14}{shown[0]:>9}{shown[1]:>9}{shown[2]:>9}  {found}", flush=True)
    say("scale", **figures)


if __name__ == "__main__":
    main()
