"""What a container allows: the CPU quota and memory limit of this process's control groups, version 1 or 2.

In goes the text of `/proc/self/cgroup` and the folder where the groups are mounted; out come numbers, or None without a limit. A
group is bounded by its parents too, so the tightest of them counts. Nothing is probed beyond these files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MOUNT = Path("/sys/fs/cgroup")
_UNLIMITED_BYTES = 1 << 60  # version 1 writes a huge number for "no limit"


@dataclass(frozen=True)
class Limits:
    """`cpus` may be a fraction; `memory_used_bytes` leaves out file cache the kernel would give back."""

    cpus: float | None = None
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None


def read_limits(membership: str, *, mount: Path = MOUNT) -> Limits:
    """The limits on the process whose `/proc/<pid>/cgroup` reads `membership`."""
    quotas = [quota for folder in _folders(membership, mount, "cpu") if (quota := _cpu_quota(folder)) is not None]
    memories = [pair for folder in _folders(membership, mount, "memory") if (pair := _memory(folder)) is not None]
    limit, used = min(memories, default=(None, None))
    return Limits(min(quotas, default=None), limit, used)


def _folders(membership: str, mount: Path, controller: str) -> Iterator[Path]:
    """The group's folder and its parents up to the mount, for the unified tree and for the controller's own."""
    for line in membership.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            yield from _upwards(mount, path)
        elif controller in controllers.split(","):
            yield from _upwards(mount / controllers, path)
            if controllers != controller:
                yield from _upwards(mount / controller, path)


def _upwards(top: Path, path: str) -> Iterator[Path]:
    parts = [part for part in PurePosixPath(path).parts if part not in {"/", ".."}]
    for length in range(len(parts), -1, -1):
        yield top.joinpath(*parts[:length])


def _cpu_quota(folder: Path) -> float | None:
    both = _text(folder / "cpu.max").split()
    if len(both) != 2:
        both = [_text(folder / "cpu.cfs_quota_us").strip(), _text(folder / "cpu.cfs_period_us").strip()]
    quota, period = _number(both[0]), _number(both[1])
    return quota / period if quota is not None and period and quota > 0 else None


def _memory(folder: Path) -> tuple[int, int] | None:
    limit = _number(_text(folder / "memory.max")) or _number(_text(folder / "memory.limit_in_bytes"))
    if not limit or limit >= _UNLIMITED_BYTES:
        return None
    used = _number(_text(folder / "memory.current")) or _number(_text(folder / "memory.usage_in_bytes")) or 0
    return limit, max(0, used - _reclaimable_bytes(folder))


def _reclaimable_bytes(folder: Path) -> int:
    values = dict(line.split(maxsplit=1) for line in _text(folder / "memory.stat").splitlines() if " " in line)
    return _number(values.get("total_inactive_file", values.get("inactive_file", "0"))) or 0


def _text(file: Path) -> str:
    """The file's text, or nothing where this kernel or version has no such file."""
    try:
        return file.read_text()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.lstrip("-").isdigit() else None
