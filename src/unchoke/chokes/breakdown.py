"""Where the time of a recorded command went: per step, inside loading, per sample, and how much a step could gain.

In comes a `Recording`, out come small tables of numbers; nothing is judged and nothing rendered. Steps are counted without the
first two, which warm up. Inside loading, time is split by the stack sampler's counts in the processes that made the batches.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from unchoke.chokes.recording import Recording

STAGES = ("wait", "copy", "forward", "backward", "optimizer", "evaluate", "checkpoint")
"""Parts of a step, in the order they happen; what none of them covers is `other`."""
LOADING = ("list", "stat", "open", "read", "decode", "transform", "collate", "handover", "python", "other")
_MAKING = ("getitem", "collate")


@dataclass(frozen=True)
class TimePart:
    """One part of a step, or of loading one sample: its seconds, and its share of the whole."""

    stage: str
    seconds: float
    share: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class SampleCounts:
    """What loading one sample asks of the system; None where it could not be told."""

    samples: int
    stat: float
    opens: float
    opens_per_file: float | None
    read_bytes: float
    decoded_px: float | None
    used_px: int | None
    minor_faults: float
    system_share: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Headroom:
    """Seconds of a step as it is and with loading for free, both without evaluation and checkpoints.

    `free_s` is what the replay took, but never less than what is left of a step once all waiting and all work of workers is gone.
    """

    step_s: float
    free_s: float
    steps: int

    @property
    def share(self) -> float:
        """How much of a step would be saved."""
        return max(0.0, 1 - self.free_s / self.step_s) if self.step_s else 0.0

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "share": self.share}


def trained_s(recording: Recording) -> float:
    """From the first batch asked for to the last step, and what evaluation and checkpoints took after it."""
    return recording.steps.total("wall_s") + sum(recording.steps.after(name) for name in ("evaluate_s", "checkpoint_s"))


def step_parts(recording: Recording) -> list[TimePart]:
    """Seconds of one step by part; an evaluation or a checkpoint after the last step is spread over all of them."""
    steps = recording.steps.steady() if len(recording.steps) > 2 else recording.steps
    if not len(steps):
        return []
    after = {name: steps.after(f"{name}_s") for name in ("evaluate", "checkpoint")}
    seconds = {name: (steps.total(f"{name}_s") + after.get(name, 0.0)) / len(steps) for name in STAGES}
    wall_s = (steps.total("wall_s") + sum(after.values())) / len(steps)
    seconds["other"] = max(0.0, wall_s - sum(seconds.values()))
    return [TimePart(name, value, value / wall_s if wall_s else 0.0) for name, value in seconds.items()]


def loading_parts(recording: Recording) -> list[TimePart]:
    """Seconds of making one sample by stage, over all processes that made batches; empty where none was sampled."""
    samples = sum(loader.fetched_samples for loader in recording.loaders)
    seconds: dict[str, float] = {}
    for process in (recording.main, *recording.workers):
        for row in process.samples:
            if row.phase in _MAKING:
                stage = row.stage if row.stage in LOADING else "other"
                seconds[stage] = seconds.get(stage, 0.0) + row.count * process.sample_period_s
    found_s = sum(seconds.values())
    if not samples or not found_s:
        return []
    scale = sum(loader.fetch_s for loader in recording.loaders) / found_s
    parts = {stage: seconds.get(stage, 0.0) * scale / samples for stage in LOADING}
    parts["handover"] += sum(loader.handover_s for loader in recording.loaders) / samples
    total_s = sum(parts.values())
    return [TimePart(stage, value, value / total_s) for stage, value in parts.items() if value]


def per_sample(recording: Recording) -> SampleCounts | None:
    """Counts of file-system calls, bytes, pixels and faults per sample that was made; None where no sample was."""
    loaders = [loader for loader in recording.loaders if loader.fetched_samples]
    samples = sum(loader.fetched_samples for loader in loaders)
    if not samples:
        return None
    opened = recording.calls("open", "raster_open", phases=_MAKING)
    decoded = recording.calls("decode", phases=_MAKING)
    num_opened, num_looked_for = (
        sum(row.count for row in rows) for rows in (opened, recording.calls("stat", "list", phases=_MAKING))
    )
    cpu_s = sum(loader.fetch_user_s + loader.fetch_system_s for loader in loaders)
    distinct = sum(row.distinct for row in opened)
    return SampleCounts(
        samples=samples,
        stat=num_looked_for / samples,
        opens=num_opened / samples,
        opens_per_file=num_opened / distinct if distinct else None,
        read_bytes=sum(loader.fetch_read_bytes for loader in loaders) / samples,
        decoded_px=sum(row.amount for row in decoded) / samples if decoded else None,
        used_px=max(loaders, key=lambda loader: loader.fetched_samples).used_px,
        minor_faults=sum(loader.fetch_minor_faults for loader in loaders) / samples,
        system_share=sum(loader.fetch_system_s for loader in loaders) / cpu_s if cpu_s > 0.05 else None,
    )


def waiting_share(recording: Recording) -> float:
    """Share of a step that is spent on loading: waiting for it, or, where workers share the cores, working for it."""
    steps = recording.steps.steady() if len(recording.steps) > 2 else recording.steps
    wall_s = steps.total("wall_s")
    if not wall_s:
        return 0.0
    loaded_s = sum(loader.fetch_s for loader in recording.trained_loaders)
    return max(steps.total("wait_s") / wall_s, loaded_s / (wall_s * max(1, recording.machine.get("cores") or 1)))


def headroom(recording: Recording) -> Headroom | None:
    """The step as it was against the replayed one; None without a replay that measured something."""
    replay, steps = recording.replay, recording.steps.steady()
    if replay is None or not replay.steps or not len(steps):
        return None
    step_s = steps.mean("wall_s") - steps.mean("evaluate_s") - steps.mean("checkpoint_s")
    in_workers_s = sum(loader.fetch_s for loader in recording.trained_loaders if loader.num_workers) / len(recording.steps)
    least_s = step_s - steps.mean("wait_s") - in_workers_s  # a busy machine may have become quieter for the replay
    return Headroom(step_s, min(max(replay.step_s, least_s), step_s), replay.steps)


def watching_cost(recording: Recording, own_cpu_s: float) -> dict[str, float]:
    """CPU seconds that being watched cost inside the script's processes, those of the command round it, and both as a share.

    Inside it is our own account: calls of hooks times the measured cost of one, sampling, and writing records.
    """
    inside_s = sum(process.watching_s for process in recording.processes)
    used_s = sum(process.usage.get("user_s", 0.0) + process.usage.get("system_s", 0.0) for process in recording.processes)
    plain_s = max(0.0, used_s - inside_s)
    return {
        "inside_cpu_s": inside_s,
        "own_cpu_s": own_cpu_s,
        "script_cpu_s": plain_s,
        "share": (inside_s + own_cpu_s) / plain_s if plain_s else 0.0,
    }
