"""What a watched command did, as plain data: processes, loaders, steps, networks, facts.

In comes a folder of `<pid>.jsonl` files that its processes left (see `watch/recorder.py`; a kill may have cut one off), or a
saved `recording.json`; out come frozen values with the names of the record, and sums and means over steps. What workers
fetched is added to the row of their loader. Everything may be missing: a command without torch, or one that was killed, still
gives a recording.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

_WARM_UP_STEPS = 2
FETCHED = (
    *("fetches", "fetched_samples", "fetch_s", "collate_s", "handover_s"),
    *("fetch_user_s", "fetch_system_s", "fetch_minor_faults"),
)
_NOTHING = "nothing was watched: the command ran no Python 3.11 or newer, or one that ignores PYTHONPATH (python -I, python -E)"
_OF_THE_MACHINE = ("python", "torch", "device", "cores", "busy_cores", "torch_threads")
_Value = TypeVar("_Value")


def _made(kind: type[_Value], data: Mapping[str, Any]) -> _Value:
    """A value of `kind` from saved data, lists as tuples; fields that are unknown or None are left out."""
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: _frozen(value) for name, value in data.items() if name in known and value is not None})


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _each(kind: type[_Value], rows: Iterable[Mapping[str, Any]] | None) -> tuple[_Value, ...]:
    return tuple(_made(kind, row) for row in rows or ())


@dataclass(frozen=True)
class CallRow:
    """Calls of one kind at one place in one phase: how often, how long, how much, and of how many different things."""

    kind: str = ""
    phase: str = "outside"
    file: str = ""
    line: int = 0
    function: str = ""
    count: int = 0
    seconds: float = 0.0
    amount: float = 0.0
    distinct: int = 0
    example: str = ""
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StackRow:
    """How long the stack sampler found a process in one stage at one place.

    `span` is the piece of the line it was at (first and last line, first and last column), `library` what that had called
    (`module:function`), `callers` the lines of the user's own that led there, innermost first, `state` whether it ran Python,
    native code, or waited for something.
    """

    stage: str = "other"
    phase: str = "outside"
    file: str = ""
    line: int = 0
    function: str = ""
    seconds: float = 0.0
    span: tuple[int, ...] = ()
    library: str = ""
    callers: tuple[tuple[str, int, str], ...] = ()
    state: str = ""


@dataclass(frozen=True)
class ProcessRecord:
    """One process."""

    pid: int = 0
    role: str = "main"
    usage: dict[str, float] = field(default_factory=dict)
    calls: tuple[CallRow, ...] = ()
    samples: tuple[StackRow, ...] = ()
    threads: tuple[StackRow, ...] = ()
    """Looks at other threads than the main one."""
    sampled_s: float = 0.0
    watcher: dict[str, float] = field(default_factory=dict)

    @property
    def watching_s(self) -> float:
        """What being watched has cost this process, by its own measure of one call of each kind."""
        return sum(self.watcher.get(name, 0.0) for name in ("hooks_s", "flush_s", "sampler_s"))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ProcessRecord:
        looks = {name: _each(StackRow, data.get(name)) for name in ("samples", "threads")}
        return _made(cls, {**data, "calls": _each(CallRow, data.get("calls")), **looks})


@dataclass(frozen=True)
class LoaderRecord:
    """One DataLoader object: how it was made, what it gave, and what its fetches cost in whichever process."""

    number: int = 0
    dataset: str = ""
    dataset_file: str = ""
    dataset_line: int = 0
    made_file: str = ""
    made_line: int = 0
    collate: str = ""
    collate_file: str = ""
    collate_line: int = 0
    num_samples: int | None = None
    batch_size: int | None = None
    num_workers: int = 0
    persistent: bool = False
    start_method: str | None = None
    iterators: int = 0
    startup_s: float = 0.0
    batches: int = 0
    samples: int = 0
    wait_s: float = 0.0
    batch_bytes: int | None = None
    sample_shape: tuple[int, ...] = ()
    padded_share: float | None = None
    ignored_share: float | None = None
    evaluation: bool = False
    fetches: int = 0
    fetch_s: float = 0.0
    collate_s: float = 0.0
    fetched_samples: int = 0
    fetch_user_s: float = 0.0
    fetch_system_s: float = 0.0
    fetch_minor_faults: int = 0
    handover_s: float = 0.0
    worker_pids: tuple[int, ...] = ()

    @property
    def used_sides(self) -> tuple[int, ...]:
        """The two sides of one sample as the loop gets it, shorter first: of three dimensions the two larger ones."""
        return tuple(sorted(self.sample_shape[-3:])[-2:]) if len(self.sample_shape) >= 2 else ()


@dataclass(frozen=True)
class ModuleRecord:
    """One network, or a part of one, as a few steps were looked at closely."""

    name: str = ""
    class_: str = ""
    file: str = ""
    line: int = 0
    call_file: str = ""
    call_line: int = 0
    depth: int = 0
    calls_per_step: float = 0.0
    seconds_per_step: float = 0.0
    batch: int | None = None
    input_shape: tuple[int, ...] = ()
    output_width: int = 0
    training: bool = False
    grad_enabled: bool = False
    num_params: int = 0
    num_trainable: int = 0
    num_in_optimizer: int = 0
    output_requires_grad: bool = False
    dtype: str = ""
    in_evaluation: bool = False
    repeated_inputs_share: float | None = None
    detail: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModuleRecord:
        known = {one.name for one in fields(cls)} | {"class"}
        more = {name: value for name, value in data.items() if name not in known}
        class_ = data.get("class_") or data.get("class")
        return _made(cls, {**data, "class_": class_, "detail": more})


@dataclass(frozen=True)
class Steps:
    """One row per optimizer step (or per few, once there are thousands), and `tail`: what came after the last one."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    tail: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return int(self.total("steps"))

    def column(self, name: str) -> list[Any]:
        """The values of one column, in order."""
        if name not in self.columns:
            return []
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def each(self, name: str) -> list[float]:
        """A column of seconds or counts, per step of each row; a row may sum up several."""
        return [(value or 0) / max(1, steps) for value, steps in zip(self.column(name), self.column("steps"), strict=True)]

    def total(self, name: str) -> float:
        return float(sum(value or 0 for value in self.column(name)))

    def mean(self, name: str) -> float:
        """Per optimizer step; 0 without any."""
        return self.total(name) / len(self) if len(self) else 0.0

    def after(self, name: str) -> float:
        """What a column amounts to after the last step: an evaluation at the very end, for instance."""
        return float(self.tail[self.columns.index(name)] or 0) if self.tail and name in self.columns else 0.0

    def steady(self) -> Steps:
        """The same without the first two steps, which warm up."""
        return Steps(self.columns, self.rows[_WARM_UP_STEPS:], self.tail)


@dataclass(frozen=True)
class Replay:
    """The same script on one batch, so that loading is free: seconds per step, over how many; or why there is none."""

    step_s: float = 0.0
    steps: int = 0
    loader: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Recording:
    """Everything that was recorded of one command."""

    command: tuple[str, ...] = ()
    exit_code: int = 0
    wall_s: float = 0.0
    machine: dict[str, Any] = field(default_factory=dict)
    main: ProcessRecord = ProcessRecord()
    workers: tuple[ProcessRecord, ...] = ()
    others: tuple[ProcessRecord, ...] = ()
    loaders: tuple[LoaderRecord, ...] = ()
    steps: Steps = Steps()
    modules: tuple[ModuleRecord, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    replay: Replay | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recording:
        made = {
            "main": ProcessRecord.from_dict(data.get("main") or {}),
            "workers": tuple(map(ProcessRecord.from_dict, data.get("workers") or ())),
            "others": tuple(map(ProcessRecord.from_dict, data.get("others") or ())),
            "loaders": _each(LoaderRecord, data.get("loaders")),
            "steps": _made(Steps, data.get("steps") or {}),
            "modules": tuple(map(ModuleRecord.from_dict, data.get("modules") or ())),
            "replay": _made(Replay, data["replay"]) if data.get("replay") else None,
        }
        return _made(cls, {**data, **made})

    def to_dict(self) -> dict[str, Any]:
        found = asdict(self)
        found["modules"] = [{"class": row.pop("class_"), **row.pop("detail"), **row} for row in found["modules"]]
        return found

    @property
    def processes(self) -> tuple[ProcessRecord, ...]:
        """The one that trained first, then its workers, then the others."""
        return (self.main, *self.workers, *self.others)

    @cached_property
    def trained_loaders(self) -> tuple[LoaderRecord, ...]:
        return tuple(loader for loader in self.loaders if loader.batches and not loader.evaluation)

    def calls(self, *kinds: str, phases: Iterable[str] = ()) -> list[CallRow]:
        """Calls of these kinds over the main process and its workers, those of one place and phase added up; slowest first."""
        wanted = set(phases)
        found: dict[tuple[str, str, str, int], CallRow] = {}
        for process in (self.main, *self.workers):
            for row in process.calls:
                if row.kind in kinds and (not wanted or row.phase in wanted):
                    key = (row.kind, row.phase, row.file, row.line)
                    found[key] = _added(found[key], row) if key in found else row
        return sorted(found.values(), key=lambda row: -row.seconds)


def _added(first: CallRow, second: CallRow) -> CallRow:
    """Two processes at one place. A thing is `distinct` once per process: `count / distinct` is how often one came back to it."""
    return CallRow(
        first.kind, first.phase, first.file, first.line, first.function,
        first.count + second.count, first.seconds + second.seconds, first.amount + second.amount,
        first.distinct + second.distinct, first.example or second.example, second.detail or first.detail,
    )  # fmt: skip


def load_recording(folder: Path, *, command: Sequence[str], exit_code: int, wall_s: float) -> Recording:
    """What the processes of `command` recorded in `folder`."""
    return Recording.from_dict({**_gather(folder), "command": list(command), "exit_code": exit_code, "wall_s": wall_s})


def _gather(folder: Path) -> dict[str, Any]:
    """The records of all processes as the data of one recording; without any, an empty one."""
    records = read_records(folder)
    main = _main_of(records)
    workers = [record for record in records if record["role"] == "loader"]
    others = [record for record in records if record is not main and record["role"] != "loader"]
    loaders = _loaders(main, workers)
    return {
        "machine": {name: main.get(name) for name in _OF_THE_MACHINE},
        "main": _process(main),
        "workers": list(map(_process, workers)),
        "others": list(map(_process, others)),
        "loaders": loaders,
        "steps": main.get("steps") or {},
        "modules": main.get("modules") or [],
        "facts": {
            **(main.get("facts") or {}),
            "peeks": _peeks(records),
            "same_arguments": [row for record in records for row in (record.get("samples") or {}).get("same_arguments") or ()],
            "cells": {
                file: text for record in records for file, text in ((record.get("samples") or {}).get("cells") or {}).items()
            },
        },
        "notes": list(dict.fromkeys(note for record in records for note in record["notes"])) if records else [_NOTHING],
    }


def _peeks(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The largest array seen at each line, over all processes."""
    found = [peek for record in records for peek in (record.get("samples") or {}).get("peeks") or ()]
    return list({(peek["file"], peek["line"]): peek for peek in sorted(found, key=lambda peek: float(peek["px"]))}.values())


def read_records(folder: Path) -> list[dict[str, Any]]:
    """The last whole line of every process, by process id; of two files of one process the one that is further."""
    newest: dict[int, dict[str, Any]] = {}
    for file in sorted(folder.glob("*.jsonl")):
        record = _last_line(file)
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

    def num_steps(record: dict[str, Any]) -> int:
        return sum(row[-1] for row in (record.get("steps") or {}).get("rows") or [])

    able = [record for record in records if record["role"] != "loader"]
    return max(able, key=lambda record: (num_steps(record), record["role"] == "main"), default={"role": "main"})


def _loaders(main: dict[str, Any], workers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the asking side, with what their workers did added."""
    rows = [dict(row) for row in main.get("loaders") or []]
    for worker in workers:
        fetched = worker.get("fetches") or {}
        row = next((row for row in rows if worker["pid"] in row.get("worker_pids", ())), {})
        row |= {name: row.get(name, 0) + fetched.get(name, 0) for name in FETCHED}
    return rows


def _process(record: dict[str, Any]) -> dict[str, Any]:
    samples = record.get("samples") or {}
    own = {
        "samples": samples.get("rows") or [],
        "threads": samples.get("threads") or [],
        "sampled_s": samples.get("total_s") or 0.0,
    }
    return {**record, **own, "watcher": {**(record.get("watcher") or {}), "sampler_s": samples.get("own_s", 0.0)}}
