"""Look at this machine: a folder comes in (whose disk is meant), `MachineFacts` come out. The one place that counts cores.

Every probe may fail, on a system nobody has tried or in a locked-down container. A failed probe becomes a note in the facts and a
cautious value, never a crash. What a container allows is read from this process's control groups, version 1 or 2; a group is
bounded by its parents too, so the tightest of them counts. Nothing is chosen here; torch is imported only to ask it which devices
it sees.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from unchoke.machine.machine_facts import Accelerator, MachineFacts

T = TypeVar("T")
_INTERESTING_FLAGS = ("avx", "amx", "sse4", "f16c", "fma", "asimd", "sve", "bf16", "i8mm", "neon")
_STDIO_LIMIT_WINDOWS = 512
_NO_LIMITS: tuple[int | None, int | None] = (None, None)
MOUNT = Path("/sys/fs/cgroup")
_UNLIMITED_BYTES = 1 << 60  # version 1 writes a huge number for "no limit"


class _Probes:
    """Runs probes one by one and keeps a note of each that failed."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def ask(self, what: str, probe: Callable[[], T], *, otherwise: T) -> T:
        try:
            return probe()
        except Exception as error:  # whatever a strange machine raises is worth a note, not a stop
            self.notes.append(f"could not determine {what}: {type(error).__name__}: {error}")
            return otherwise


def detect_machine(folder: Path = Path()) -> MachineFacts:
    """The facts of this machine; `folder` (or its nearest existing parent) says which disk to measure."""
    probes = _Probes()
    limits = probes.ask("container limits", _container_limits, otherwise=Limits())
    memory_bytes, available_bytes = probes.ask("memory", lambda: _memory(limits), otherwise=(0, 0))
    soft, hard = probes.ask("descriptor limit", descriptor_limits, otherwise=_NO_LIMITS)
    return MachineFacts(
        system=platform.system(),
        machine=platform.machine(),
        cpu_name=probes.ask("processor name", _cpu_name, otherwise=platform.processor()),
        cores=probes.ask("usable cores", lambda: usable_cores(limits), otherwise=os.cpu_count() or 1),
        memory_bytes=memory_bytes,
        memory_available_bytes=available_bytes,
        descriptor_limit=soft,
        descriptor_limit_hard=hard,
        cpu_flags=probes.ask("processor features", _cpu_flags, otherwise=frozenset()),
        accelerators=probes.ask("accelerators", lambda: _cuda_devices() + _mps_devices(), otherwise=()),
        torch_version=package_version("torch"),
        cuda_version=probes.ask("CUDA version", _cuda_version, otherwise=""),
        openvino_version=package_version("openvino"),
        python_version=platform.python_version(),
        system_version=platform.mac_ver()[0] or platform.release(),
        disk_free_bytes=probes.ask("free disk space", lambda: disk_free_bytes(folder), otherwise=0),
        notes=tuple(probes.notes),
    )


def _container_limits() -> Limits:
    membership = Path("/proc/self/cgroup")
    return read_limits(membership.read_text()) if membership.exists() else Limits()


def usable_cores(limits: Limits | None = None) -> int:
    """Cores this process may use: its affinity and its container's quota honoured."""
    quota = (_container_limits() if limits is None else limits).cpus
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, int(quota) if quota is not None else cores))


def load_per_core() -> float:
    """Programs that wanted a core in the last minute, for each core there is; 0 where the system does not say."""
    return os.getloadavg()[0] / usable_cores() if hasattr(os, "getloadavg") else 0.0


def has_card_driver() -> bool:
    """Whether a driver for NVIDIA's GPUs is loaded: a hint that needs no torch."""
    return any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg"))


def machine_memory() -> tuple[int, int]:
    """Total and available bytes of ordinary memory, a container's limit honoured."""
    return _memory(_container_limits())


def _memory(limits: Limits) -> tuple[int, int]:
    import psutil

    memory = psutil.virtual_memory()
    total, available = int(memory.total), int(memory.available)
    if limits.memory_bytes is not None:
        total = min(total, limits.memory_bytes)
        available = min(available, max(0, limits.memory_bytes - (limits.memory_used_bytes or 0)))
    return total, available


def descriptor_limits() -> tuple[int | None, int | None]:
    """How many files may be open at a time, and how far that may be raised; None where there is no limit."""
    if os.name == "nt":
        return _STDIO_LIMIT_WINDOWS, None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (None if soft == resource.RLIM_INFINITY else soft), (None if hard == resource.RLIM_INFINITY else hard)


def _cpu_name() -> str:
    if platform.system() == "Linux":
        return _cpuinfo("model name") or platform.machine()
    if platform.system() == "Darwin":
        return _sysctl("machdep.cpu.brand_string")
    return platform.processor()


def _cpu_flags() -> frozenset[str]:
    if platform.system() == "Linux":
        names = (_cpuinfo("flags") or _cpuinfo("Features")).lower().split()
    elif platform.system() == "Darwin":
        names = f"{_sysctl('machdep.cpu.features')} {_sysctl('machdep.cpu.leaf7_features')}".lower().split()
    else:
        import torch

        names = [name for name, present in torch.cpu.get_capabilities().items() if present is True]
    return frozenset(name for name in names if any(part in name for part in _INTERESTING_FLAGS))


def _cpuinfo(key: str) -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def _sysctl(key: str) -> str:
    """One value of macOS's `sysctl`; empty where this chip has no such key."""
    return subprocess.run(["sysctl", "-n", key], capture_output=True, text=True, timeout=5, check=False).stdout.strip()


def _cuda_devices() -> tuple[Accelerator, ...]:
    import torch

    if not torch.cuda.is_available():
        return ()
    driver = _nvidia_driver()
    found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return tuple(
        Accelerator(
            "cuda",
            device.name,
            device.total_memory,
            (device.major, device.minor),
            bool(getattr(device, "is_integrated", False)),
            driver,
            index,
        )
        for index, device in enumerate(found)
    )


def _mps_devices() -> tuple[Accelerator, ...]:
    import torch

    if not torch.backends.mps.is_available():
        return ()
    return (Accelerator("mps", _cpu_name(), torch.mps.recommended_max_memory(), unified=True, driver=platform.mac_ver()[0]),)


def _nvidia_driver() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    asked = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False).stdout.splitlines()
    return answer[0].strip() if answer else ""


def _cuda_version() -> str:
    import torch

    return torch.version.cuda or ""


def package_version(name: str) -> str:
    """The installed version without importing the package; empty if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def disk_free_bytes(folder: Path) -> int:
    """What is free on the disk of `folder`, or of its nearest existing parent."""
    existing = next(parent for parent in [folder.absolute(), *folder.absolute().parents] if parent.exists())
    return shutil.disk_usage(existing).free


@dataclass(frozen=True)
class Limits:
    """`cpus` may be a fraction; `memory_used_bytes` leaves out file cache the kernel would give back."""

    cpus: float | None = None
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None


def read_limits(membership: str, *, mount: Path = MOUNT) -> Limits:
    """The limits on the process whose `/proc/<pid>/cgroup` reads `membership`."""
    quotas = [quota for folder in _folders(membership, mount, "cpu") if (quota := _cpu_quota(folder)) is not None]
    memories = [pair for folder in _folders(membership, mount, "memory") if (pair := _group_memory(folder)) is not None]
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


def _group_memory(folder: Path) -> tuple[int, int] | None:
    limit = _number(_text(folder / "memory.max")) or _number(_text(folder / "memory.limit_in_bytes"))
    if not limit or limit >= _UNLIMITED_BYTES:
        return None
    used = _number(_text(folder / "memory.current")) or _number(_text(folder / "memory.usage_in_bytes")) or 0
    values = dict(line.split(maxsplit=1) for line in _text(folder / "memory.stat").splitlines() if " " in line)
    reclaimable = _number(values.get("total_inactive_file", values.get("inactive_file", "0"))) or 0
    return limit, max(0, used - reclaimable)


def _text(file: Path) -> str:
    """The file's text, or nothing where this kernel or version has no such file."""
    try:
        return file.read_text()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.lstrip("-").isdigit() else None


def interface_towards(address: str) -> str | None:
    """The name of the interface that packets to `address` leave by, `eth0` for instance; None where that cannot be told."""
    import psutil

    try:
        family, _, _, _, target = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)  # nothing is sent: the system only chooses a way
            own = probe.getsockname()[0]
    except OSError:
        return None
    listed = psutil.net_if_addrs().items()
    return next((name for name, addresses in listed if any(one.address.partition("%")[0] == own for one in addresses)), None)
