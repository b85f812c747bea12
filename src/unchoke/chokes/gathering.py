"""The files that watched processes left, as one dictionary: the process that trained, its workers, the others.

In comes a folder of `<pid>.jsonl` files (see `watch/recorder.py`), of which a kill may have cut the last line; out comes plain
data for `Recording.from_dict`. What workers fetched is added to the row of their loader. Nothing is judged here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unchoke.core import listing

_SUMMED = (
    *("fetches", "fetched_samples", "fetch_s", "getitem_s", "collate_s", "handover_s"),
    *("fetch_user_s", "fetch_system_s", "fetch_minor_faults", "fetch_read_bytes"),
)
_NOTHING = "nothing was watched: the command ran no Python 3.11 or newer, or one that ignores PYTHONPATH (python -I, python -E)"
_OF_THE_MACHINE = ("python", "torch", "device", "cores", "memory_bytes", "torch_threads")


def gather(folder: Path) -> dict[str, Any]:
    """The records of all processes; without any, an empty one."""
    records = read_records(folder)
    main = _main_of(records)
    workers = [record for record in records if record["role"] == "loader"]
    others = [record for record in records if record is not main and record["role"] != "loader"]
    loaders = _loaders(main, workers)
    samples = main.get("samples") or {}
    return {
        "machine": {name: main.get(name) for name in _OF_THE_MACHINE},
        "main": _watched(main),
        "workers": [_watched(worker, _loader_of(worker, loaders)) for worker in workers],
        "others": [_watched(other) for other in others],
        "loaders": loaders,
        "steps": main.get("steps") or {},
        "modules": main.get("modules") or [],
        "facts": {**(main.get("facts") or {}), "stacks": samples.get("stacks") or []},
        "notes": list(dict.fromkeys(note for record in records for note in record["notes"])) if records else [_NOTHING],
    }


def read_records(folder: Path) -> list[dict[str, Any]]:
    """The last whole line of every process, by process id; of two files of one process the one that is further."""
    newest: dict[int, dict[str, Any]] = {}
    for name in listing.names(folder, suffix=".jsonl"):
        record = _last_line(folder / name)
        if record is not None and record["elapsed_s"] >= newest.get(record["pid"], record)["elapsed_s"]:
            newest[record["pid"]] = record
    return sorted(newest.values(), key=lambda record: float(record["started_at"]))


def _last_line(file: Path) -> dict[str, Any] | None:
    for line in reversed(file.read_bytes().split(b"\n")):
        try:
            record = json.loads(line)
        except ValueError:  # cut off, or the empty end
            continue
        if isinstance(record, dict) and {"pid", "role", "elapsed_s", "started_at", "notes"} <= record.keys():
            return record
    return None


def _main_of(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The process that made most steps; else the one the command began with."""
    able = [record for record in records if record["role"] != "loader"]
    return max(able, key=lambda record: (_num_steps(record), record["role"] == "main"), default={"role": "main"})


def _num_steps(record: dict[str, Any]) -> int:
    return sum(row[-1] for row in (record.get("steps") or {}).get("rows") or [])


def _loaders(main: dict[str, Any], workers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the asking side, with what their workers did added."""
    rows = [dict(row) for row in main.get("loaders") or []]
    for worker in workers:
        number = _loader_of(worker, rows)
        fetched = worker.get("fetches")
        if number is not None and fetched:
            row = next(row for row in rows if row["number"] == number)
            row |= {name: row.get(name, 0) + fetched.get(name, 0) for name in _SUMMED}
    return rows


def _loader_of(worker: dict[str, Any], loaders: list[dict[str, Any]]) -> int | None:
    return next((row["number"] for row in loaders if worker["pid"] in row.get("worker_pids", ())), None)


def _watched(record: dict[str, Any], loader: int | None = None) -> dict[str, Any]:
    samples = record.get("samples") or {}
    fetches = record.get("fetches") or {}
    own = {"loader": loader, "fetch_s": fetches.get("fetch_s", 0.0), "samples": samples.get("rows") or []}
    watcher = {**(record.get("watcher") or {}), "sampler_s": samples.get("own_s", 0.0)}
    return {**record, **own, "sample_period_s": samples.get("period_s", 0.0), "watcher": watcher}
