"""Is there room for what is about to run? Disk, memory and file descriptors: numbers in, findings out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unchoke.core.findings import Finding
from unchoke.core.units import format_bytes, format_count
from unchoke.machine.detect import descriptor_limits, disk_free_bytes, machine_memory

_DEFAULT_DIM = 1280
_WIDEST_DIM = 4096
_ENGINE_BYTES = 100_000_000
_RECORD_BYTES_PER_SAMPLE = 600
_PROCESS_BYTES = 850_000_000
_MEMORY_BYTES_PER_SAMPLE = 1_600
_LEAST_DESCRIPTORS = 48
_NO_LIMIT = 1_000_000


@dataclass(frozen=True)
class FreeRoom:
    """What the machine has free."""

    disk_bytes: int
    memory_bytes: int
    descriptors: int


@dataclass(frozen=True)
class ResourceNeed:
    """What a run will take. Features stay on disk and are mapped, so memory hardly grows with the number of images.

    Memory was measured with the default encoder (docs/claims-history.md); most of it goes into converting the network.
    """

    disk_bytes: int
    memory_bytes: int
    descriptors: int = _LEAST_DESCRIPTORS


def estimate_need(num_samples: int, *, num_views: int, default_encoder: bool) -> ResourceNeed:
    """Float16 features for every view, the engine's file, and a little for each sample's records."""
    dim = _DEFAULT_DIM if default_encoder else _WIDEST_DIM
    return ResourceNeed(
        disk_bytes=num_samples * (num_views * dim * 2 + _RECORD_BYTES_PER_SAMPLE) + _ENGINE_BYTES,
        memory_bytes=_PROCESS_BYTES + num_samples * _MEMORY_BYTES_PER_SAMPLE,
    )


def measure_room(folder: Path) -> FreeRoom:
    """What is free where the workspace will be."""
    return FreeRoom(disk_free_bytes(folder.resolve()), machine_memory()[1], descriptor_limits()[0] or _NO_LIMIT)


def diagnose_room(room: FreeRoom, need: ResourceNeed, folder: Path) -> list[Finding]:
    """An error for a disk that cannot hold the result; warnings where it will be tight."""
    findings = []
    if room.disk_bytes < need.disk_bytes:
        findings.append(
            Finding(
                "disk-too-small",
                f"the features need about {format_bytes(need.disk_bytes)}, {format_bytes(room.disk_bytes)} are free at {folder}",
                severity="error",
                stage="extract",
                evidence={"need_bytes": need.disk_bytes, "free_bytes": room.disk_bytes},
                fix="free some space, or put the workspace on another disk with --out",
            )
        )
    if room.memory_bytes < need.memory_bytes:
        findings.append(
            Finding(
                "memory-tight",
                f"about {format_bytes(need.memory_bytes)} of memory will be used, {format_bytes(room.memory_bytes)} are free",
                stage="extract",
                evidence={"need_bytes": need.memory_bytes, "available_bytes": room.memory_bytes},
                fix="close other programs; fewer images would change little",
            )
        )
    if room.descriptors < need.descriptors:
        findings.append(
            Finding(
                "descriptors-few",
                f"this shell allows {format_count(room.descriptors, 'open file')}, {need.descriptors} are wanted",
                stage="extract",
                evidence={"limit": room.descriptors},
                fix="raise the limit",
                command="ulimit -n 1024",
            )
        )
    return findings
