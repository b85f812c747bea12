"""What suits a machine: facts come in, a `Policy` of choices with their reasons comes out.

A pure function: it looks at nothing but the facts and what was typed, so it can be asked about machines that are not here. It
leaves what it cannot know to measurement (`tune`, and the comparison of engines before use) and says so in the reason.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError, UsageError, missing_extra
from unchoke.core.units import format_bytes, format_count
from unchoke.machine.detect import package_version
from unchoke.machine.machine_facts import Accelerator, MachineFacts

GIB = 2**30
UNMEASURED = {"measured": "unmeasured on this machine"}
CLAIMED = {"measured": "measured: see docs/claims.md"}
_GIVEN = "given on the command line"
_SMALL_GPU_BYTES = 6 * GIB
SHORT = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
LONG = {short: long for long, short in SHORT.items()}
"""The names of precisions: as torch says them, and as they are typed."""
_PRECISIONS = {**LONG, **{name: name for name in SHORT}, "fp32": "float32", "fp16": "float16", "int8": ""}


@dataclass(frozen=True)
class Policy:
    """The choices in a fixed order; the value of each is also an attribute."""

    choices: tuple[Choice, ...]

    def choice(self, name: str) -> Choice:
        return next(choice for choice in self.choices if choice.name == name)

    def value(self, name: str) -> Any:
        return self.choice(name).value

    def to_dict(self) -> dict[str, Any]:
        return {"choices": [choice.to_dict() for choice in self.choices]}

    @property
    def device(self) -> str:
        return str(self.value("device"))

    @property
    def dtype(self) -> str:
        """ "float32", "bfloat16" or "float16": what a network computes in when torch runs it."""
        return str(self.value("dtype"))

    @property
    def train_dtype(self) -> str:
        """What a network is trained in, by the same names."""
        return str(self.value("train_dtype"))

    @property
    def memory_format(self) -> str:
        return str(self.value("memory_format"))

    @property
    def pin_memory(self) -> bool:
        return bool(self.value("pin_memory"))

    @property
    def workers(self) -> int:
        return int(self.value("workers"))

    @property
    def decode_threads(self) -> int:
        return int(self.value("decode_threads"))

    @property
    def compile(self) -> bool:
        return bool(self.value("compile"))

    @property
    def engine(self) -> tuple[str, ...]:
        """Candidates for the frozen part, best first, as "engine:precision"; each is compared with float32 before use."""
        return tuple(self.value("engine"))

    @property
    def encode_batch(self) -> int:
        return int(self.value("encode_batch"))


def refuse_absent_device(device: str | None) -> None:
    """Refuse a device that this system, or the torch installed here, cannot have: known without loading torch."""
    kind, system, version = (device or "").partition(":")[0], platform.system(), package_version("torch")
    why = ""
    if kind == "mps" and system != "Darwin":
        why = f"MPS is the GPU of Macs, and this is {system}"
    elif kind == "cuda" and system == "Darwin":
        why = "no Mac that torch runs on has CUDA; its GPU is called mps"
    elif kind == "cuda" and version.endswith("+cpu"):
        why = f"torch {version} was built without CUDA"
    if why:
        raise MachineError(
            f"--device {device}: this machine has none",
            code="device-not-available",
            why=why,
            try_="--device cpu, or leave it out",
        )


def choose_policy(
    facts: MachineFacts, *, device: str | None = None, workers: int | None = None, precision: str | None = None
) -> Policy:
    """Choose for `facts`. What was typed and this machine cannot do is refused."""
    if precision is not None and precision not in _PRECISIONS:
        raise UsageError(
            f"--precision {precision!r} is not known",
            code="unknown-choice",
            why="it is f32, bf16, fp16 or int8",
            try_="--precision f32",
        )
    where = _device(facts, None if device == "auto" else device)
    device, gpu = str(where.value), _accelerator(facts, where.value)
    dtype = _dtype(facts, gpu, device, _PRECISIONS[precision] if precision else "")
    engine = _engine(facts, device, dtype.value, precision)
    threads = _workers(facts, gpu, workers)

    # training rounds more often than the frozen part, and what it rounds stays
    train_dtype = Choice("train_dtype", dtype.value, f"as the frozen part on {device}", UNMEASURED)
    memory_format = Choice("memory_format", "channels_last", "convolutions read neighbouring channels together", UNMEASURED)
    pin_memory = Choice("pin_memory", False, "nothing is copied to another device")
    if device == "cpu":
        reason = "float32 resumes to the same bytes; --train-precision bf16 is faster where the CPU multiplies it itself"
        train_dtype = Choice("train_dtype", "float32", reason, CLAIMED)
    elif dtype.value == "float16":
        reason = "with a loss scale, so that small gradients do not vanish"
        train_dtype = Choice("train_dtype", "float16", reason, UNMEASURED)
    if device == "mps":
        reason = "channels_last gives wrong results on MPS in some versions: used only behind an equality check"
        memory_format = Choice("memory_format", "contiguous", reason, UNMEASURED)
        pin_memory = Choice("pin_memory", False, "memory is shared, and pinning harms in some versions", UNMEASURED)
    elif device.startswith("cuda"):
        reason = "copies to the GPU run beside the computation only from pinned memory"
        pin_memory = Choice("pin_memory", True, reason, UNMEASURED)
    reason = "decoders release the interpreter's lock, so threads suffice: one for each worker"
    decode_threads = Choice("decode_threads", threads.value, reason, UNMEASURED)
    if engine.value[0].startswith("openvino"):
        reason = "each OpenVINO stream decodes its own pictures: more threads gained nothing"
        decode_threads = Choice("decode_threads", 0, reason, CLAIMED)
    compiled = Choice("compile", False, "compiling must first repay its compile time", UNMEASURED)
    batch = _encode_batch(gpu, device, engine.value)
    return Policy((where, dtype, train_dtype, memory_format, pin_memory, threads, decode_threads, compiled, engine, batch))


def _device(facts: MachineFacts, device: str | None) -> Choice:
    if device is not None:
        return Choice("device", _checked_device(facts, device), _GIVEN)
    cuda, mps = facts.of_kind("cuda"), facts.of_kind("mps")
    if cuda:
        return Choice("device", "cuda", f"{cuda[0].name} with {format_bytes(cuda[0].memory_bytes)}", {"devices": len(cuda)})
    if mps:
        return Choice("device", "mps", f"{mps[0].name}: its GPU shares the machine's memory, so copies are cheap", UNMEASURED)
    return Choice("device", "cpu", f"torch sees no accelerator; {format_count(facts.cores, 'usable core')}")


def _checked_device(facts: MachineFacts, device: str) -> str:
    kind, _, index = device.partition(":")
    if kind not in {"cuda", "mps", "cpu"} or (index and not index.isdigit()) or (kind == "cpu" and int(index or 0)):
        raise UsageError(
            f"no such device: {device!r}", code="unknown-device", why="devices are cpu, cuda, cuda:N and mps", try_="--device cpu"
        )
    if kind != "cpu" and int(index or 0) >= len(facts.of_kind(kind)):
        there = ", ".join([*(f"{gpu.kind}:{gpu.index} ({gpu.name})" for gpu in facts.accelerators), "cpu"])
        raise MachineError(
            f"--device {device}: this machine has none that torch {facts.torch_version} can use",
            code="device-not-available",
            why=f"there is {there}",
            try_=f"--device {facts.accelerators[0].kind if facts.accelerators else 'cpu'}",
        )
    return device


def _accelerator(facts: MachineFacts, device: str) -> Accelerator | None:
    kind, _, index = device.partition(":")
    devices = facts.of_kind(kind)
    return devices[int(index or 0)] if devices else None


def describe_device(facts: MachineFacts, device: str) -> dict[str, str]:
    """What `device` is called, and the driver behind it ("" where there is none): what figures of speed hold for."""
    gpu = _accelerator(facts, device)
    if gpu is None:
        return {"device": f"{facts.cpu_name}, {format_count(facts.cores, 'core')}", "driver": ""}
    return {"device": gpu.name, "driver": gpu.driver}


def _dtype(facts: MachineFacts, gpu: Accelerator | None, device: str, dtype: str) -> Choice:
    if dtype == "bfloat16" and gpu is not None and gpu.capability is not None and gpu.capability < (8, 0):
        raise MachineError(
            f"--precision bf16: {gpu.name} has no bfloat16",
            code="precision-unsupported",
            why=f"its compute capability is {gpu.capability[0]}.{gpu.capability[1]}; bfloat16 begins with 8.0",
            try_="--precision fp16",
        )
    if dtype:
        return Choice("dtype", dtype, _GIVEN)
    if device == "mps":
        return Choice("dtype", "float32", "half precision on MPS differs between versions; left to be measured", UNMEASURED)
    if gpu is not None and gpu.capability is not None:
        return _dtype_on_gpu(gpu, gpu.capability)
    if facts.has_bf16_instructions:
        return Choice("dtype", "bfloat16", "this CPU multiplies bfloat16 itself; compared with float32 before use", UNMEASURED)
    return Choice("dtype", "float32", "this CPU has no bfloat16 instructions: emulating them is slower than float32", UNMEASURED)


def _dtype_on_gpu(gpu: Accelerator, capability: tuple[int, int]) -> Choice:
    evidence = {"capability": list(capability), **UNMEASURED}
    if capability >= (8, 0):
        return Choice("dtype", "bfloat16", f"{gpu.name} multiplies bfloat16 itself, with float32's range", evidence)
    if capability < (7, 0):
        return Choice("dtype", "float32", f"{gpu.name} computes float16 more slowly than float32", evidence)
    if "GTX 16" in gpu.name:
        reason = (
            f"{gpu.name} has no bfloat16 and no tensor cores: float16 saves memory more than time; compared with float32 first"
        )
        return Choice("dtype", "float16", reason, evidence)
    return Choice("dtype", "float16", f"{gpu.name} has no bfloat16; float16 runs on its tensor cores", evidence)


def _workers(facts: MachineFacts, gpu: Accelerator | None, workers: int | None) -> Choice:
    if workers is not None:
        return Choice("workers", workers, _GIVEN)
    cores = facts.cores
    evidence = {"cores": cores, "memory_bytes": facts.memory_bytes, **UNMEASURED}
    if gpu is not None and gpu.unified:
        reason = f"half of {format_count(cores, 'core')}: pictures in flight and the GPU share one memory"
        return Choice("workers", max(1, cores // 2), reason, evidence)
    if cores >= 8:
        return Choice("workers", cores - 1, f"{cores} usable cores, one left to feed the device", evidence)
    return Choice("workers", cores, f"one thread for each of {format_count(cores, 'usable core')}", evidence)


def _engine(facts: MachineFacts, device: str, dtype: str, precision: str | None) -> Choice:
    """The engines to be compared with float32, best first. int8 is a way to run the frozen part, not a way to compute."""
    if precision == "int8":
        if not facts.openvino_version:
            raise missing_extra("openvino", extra="openvino", purpose="the engine openvino")
        if device != "cpu":
            raise MachineError(
                f"--precision int8 on {device}",
                code="device-option-unsupported",
                why="int8 is run by OpenVINO, which is used on the CPU only",
                try_="--device cpu",
            )
        return Choice("engine", ("openvino:int8",), _GIVEN)
    openvino = device == "cpu" and facts.is_x86 and facts.openvino_version and dtype != "float16"
    names = ("openvino", "torch") if openvino else ("torch",)
    if precision is not None:
        return Choice("engine", tuple(f"{name}:{SHORT[dtype]}" for name in names), f"those that compute in {dtype}, as given")
    halves = ["f16"] if device.startswith("cuda") and dtype == "bfloat16" else []  # of the same speed, with finer steps
    precisions = dict.fromkeys([*halves, SHORT[dtype], "f32"])
    candidates = tuple(f"{name}:{short}" for name in names for short in precisions)
    if openvino:
        reason = "OpenVINO runs the frozen part fastest on this kind of CPU; int8 must be earned per model, so it is not tried"
        return Choice("engine", candidates, reason, CLAIMED)
    if device != "cpu":
        reason = f"torch drives {device} directly"
    elif facts.is_x86:
        reason = "OpenVINO is not installed (pip install 'unchoke[openvino]' makes the frozen part faster here)"
    else:
        reason = f"OpenVINO is tried by itself only on x86; this is {facts.machine}"
    return Choice("engine", candidates, reason, UNMEASURED)


def _encode_batch(gpu: Accelerator | None, device: str, engines: tuple[str, ...]) -> Choice:
    if gpu is None:
        if engines[0].startswith("openvino"):
            return Choice("encode_batch", 8, "eight pictures for each stream keep activations in the cache", UNMEASURED)
        return Choice("encode_batch", 16, "on a CPU a larger batch costs memory and gains nothing", UNMEASURED)
    evidence, memory = {"memory_bytes": gpu.memory_bytes, **UNMEASURED}, format_bytes(gpu.memory_bytes)
    if gpu.memory_bytes < _SMALL_GPU_BYTES:
        return Choice("encode_batch", 16, f"small batches: {gpu.name} has only {memory}", evidence)
    if device == "mps":
        return Choice("encode_batch", 32, f"{memory} shared with everything else", evidence)
    return Choice("encode_batch", 128, f"{memory} hold it easily, and launches cost less per picture", evidence)
