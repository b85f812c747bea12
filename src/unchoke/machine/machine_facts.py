"""What is known of a machine: plain values, made by `detect` or written by hand.

Nothing here probes anything, so a policy can be asked about machines that are not present.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Accelerator:
    """One device that computes beside the CPU. `unified`: it shares the machine's memory, so `memory_bytes` is not extra."""

    kind: str
    name: str
    memory_bytes: int
    capability: tuple[int, int] | None = None
    unified: bool = False
    driver: str = ""
    index: int = 0


@dataclass(frozen=True)
class MachineFacts:
    """Everything a policy looks at.

    `cores` are the usable ones (affinity and container quota honoured), `memory_bytes` is bounded by the container's limit.
    A limit the system does not have is None, a package that is not installed has the version "".
    """

    system: str
    machine: str
    cpu_name: str
    cores: int
    memory_bytes: int
    memory_available_bytes: int
    descriptor_limit: int | None = None
    descriptor_limit_hard: int | None = None
    cpu_flags: frozenset[str] = frozenset()
    accelerators: tuple[Accelerator, ...] = ()
    torch_version: str = ""
    cuda_version: str = ""
    openvino_version: str = ""
    python_version: str = ""
    system_version: str = ""
    disk_free_bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def has_bf16_instructions(self) -> bool:
        """Whether the CPU multiplies bfloat16 itself; without that, bfloat16 is emulated and slower than float32."""
        return bool(self.cpu_flags & {"avx512_bf16", "amx_bf16"})

    @property
    def is_x86(self) -> bool:
        return self.machine.lower() in {"x86_64", "amd64", "i686", "x86"}

    def of_kind(self, kind: str) -> tuple[Accelerator, ...]:
        """The accelerators of one kind, in index order."""
        return tuple(accelerator for accelerator in self.accelerators if accelerator.kind == kind)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "cpu_flags": sorted(self.cpu_flags)}
