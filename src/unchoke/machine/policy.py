"""What suits a machine: facts come in, a `Policy` of choices with their reasons comes out.

A pure function: it looks at nothing but the facts and the overrides, so it can be asked about machines that are not here. What it
cannot know it leaves to measurement (`tune`, and the comparison of engines before use) and says so in the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError, UsageError, missing_extra
from unchoke.core.units import format_bytes, format_count
from unchoke.machine import overrides as given
from unchoke.machine.machine_facts import Accelerator, MachineFacts

GIB = 2**30
UNMEASURED = {"measured": "unmeasured on this machine"}
CLAIMED = {"measured": "measured: see docs/claims.md"}
_SMALL_CARD_BYTES = 6 * GIB
_BYTES_PER_JOB_PROCESS = 1 * GIB
SHORT = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
LONG = {short: long for long, short in SHORT.items()}
"""The names of precisions: as torch says them, and as they are typed."""


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
    def non_blocking(self) -> bool:
        return bool(self.value("non_blocking"))

    @property
    def workers(self) -> int:
        return int(self.value("workers"))

    @property
    def decode_threads(self) -> int:
        return int(self.value("decode_threads"))

    @property
    def start_method(self) -> str:
        return str(self.value("start_method"))

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

    @property
    def job_slots(self) -> int:
        return int(self.value("job_slots"))


def choose_policy(facts: MachineFacts, *, overrides: Mapping[str, Any] | None = None) -> Policy:
    """Choose for `facts`. An override that is None counts as not given; one this machine cannot meet is refused."""
    wanted = given.normalise(overrides or {})
    device = _device(facts, wanted)
    card = _card(facts, device.value)
    dtype = _dtype(facts, card, device.value, wanted)
    train_dtype = _train_dtype(device.value, dtype.value)
    pin_memory = _pin_memory(device.value, wanted)
    workers = _workers(facts, card, wanted)
    engine = _engine(facts, device.value, dtype.value, wanted)
    return Policy(
        (
            device,
            dtype,
            train_dtype,
            _memory_format(device.value, wanted),
            pin_memory,
            _non_blocking(device.value, pin_memory.value, wanted),
            workers,
            _decode_threads(workers.value, engine.value, wanted),
            _start_method(facts, wanted),
            _compile(wanted),
            engine,
            _encode_batch(card, device.value, engine.value, wanted),
            _job_slots(facts, device.value, engine.value, workers.value, wanted),
        )
    )


def _device(facts: MachineFacts, wanted: dict[str, Any]) -> Choice:
    if "device" in wanted:
        return given.choice("device", _checked_device(facts, wanted["device"]))
    cuda = facts.of_kind("cuda")
    if cuda:
        return Choice("device", "cuda", f"{cuda[0].name} with {format_bytes(cuda[0].memory_bytes)}", {"devices": len(cuda)})
    mps = facts.of_kind("mps")
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
        there = ", ".join([*(f"{card.kind}:{card.index} ({card.name})" for card in facts.accelerators), "cpu"])
        raise MachineError(
            f"--device {device}: this machine has none that torch {facts.torch_version} can use",
            code="device-not-available",
            why=f"there is {there}",
            try_=f"--device {facts.accelerators[0].kind if facts.accelerators else 'cpu'}",
        )
    return device


def _card(facts: MachineFacts, device: str) -> Accelerator | None:
    kind, _, index = device.partition(":")
    cards = facts.of_kind(kind)
    return cards[int(index or 0)] if cards else None


def describe_device(facts: MachineFacts, device: str) -> dict[str, str]:
    """What `device` is called, and the driver behind it ("" where there is none): what figures of speed hold for."""
    card = _card(facts, device)
    if card is None:
        return {"device": f"{facts.cpu_name}, {format_count(facts.cores, 'core')}", "driver": ""}
    return {"device": card.name, "driver": card.driver}


def _dtype(facts: MachineFacts, card: Accelerator | None, device: str, wanted: dict[str, Any]) -> Choice:
    if "dtype" in wanted:
        return given.choice("dtype", _checked_dtype(card, wanted["dtype"]))
    if device == "mps":
        return Choice("dtype", "float32", "half precision on MPS differs between versions; left to be measured", UNMEASURED)
    if card is not None and card.capability is not None:
        return _dtype_on_card(card, card.capability)
    if facts.has_bf16_instructions:
        return Choice("dtype", "bfloat16", "this CPU multiplies bfloat16 itself; compared with float32 before use", UNMEASURED)
    return Choice("dtype", "float32", "this CPU has no bfloat16 instructions: emulating them is slower than float32", UNMEASURED)


def _train_dtype(device: str, dtype: str) -> Choice:
    """Training rounds more often than the frozen part, and what it rounds stays."""
    if device == "cpu":
        reason = "float32 resumes to the same bytes; --train-precision bf16 is faster where the CPU multiplies it itself"
        return Choice("train_dtype", "float32", reason, CLAIMED)
    if dtype == "float16":
        return Choice("train_dtype", dtype, "with a loss scale, so that small gradients do not vanish", UNMEASURED)
    return Choice("train_dtype", dtype, f"as the frozen part on {device}", UNMEASURED)


def _dtype_on_card(card: Accelerator, capability: tuple[int, int]) -> Choice:
    evidence = {"capability": list(capability), **UNMEASURED}
    if capability >= (8, 0):
        return Choice("dtype", "bfloat16", f"{card.name} multiplies bfloat16 itself, with float32's range", evidence)
    if capability < (7, 0):
        return Choice("dtype", "float32", f"{card.name} computes float16 more slowly than float32", evidence)
    if "GTX 16" in card.name:
        reason = (
            f"{card.name} has no bfloat16 and no tensor cores: float16 saves memory more than time; compared with float32 first"
        )
        return Choice("dtype", "float16", reason, evidence)
    return Choice("dtype", "float16", f"{card.name} has no bfloat16; float16 runs on its tensor cores", evidence)


def _checked_dtype(card: Accelerator | None, dtype: str) -> str:
    if dtype == "bfloat16" and card is not None and card.capability is not None and card.capability < (8, 0):
        raise MachineError(
            f"--precision bf16: {card.name} has no bfloat16",
            code="precision-unsupported",
            why=f"its compute capability is {card.capability[0]}.{card.capability[1]}; bfloat16 begins with 8.0",
            try_="--precision fp16",
        )
    return dtype


def _memory_format(device: str, wanted: dict[str, Any]) -> Choice:
    if "memory_format" in wanted:
        return given.choice("memory_format", wanted["memory_format"])
    if device == "mps":
        reason = "channels_last gives wrong results on MPS in some versions: used only behind an equality check"
        return Choice("memory_format", "contiguous", reason, UNMEASURED)
    return Choice("memory_format", "channels_last", "convolutions read neighbouring channels together", UNMEASURED)


def _pin_memory(device: str, wanted: dict[str, Any]) -> Choice:
    on_cuda = device.startswith("cuda")
    if wanted.get("pin_memory") and not (on_cuda or device == "mps"):
        raise MachineError(
            "pinned memory was asked for on the CPU",
            code="device-option-unsupported",
            why="pinning speeds copies to an accelerator, and none is used",
            try_="leave pinning to the automatic choice",
        )
    if "pin_memory" in wanted:
        return given.choice("pin_memory", wanted["pin_memory"])
    if on_cuda:
        return Choice("pin_memory", True, "copies to the card run beside the computation only from pinned memory", UNMEASURED)
    why = "memory is shared, and pinning harms in some versions" if device == "mps" else "nothing is copied to another device"
    return Choice("pin_memory", False, why, UNMEASURED if device == "mps" else {})


def _non_blocking(device: str, pinned: bool, wanted: dict[str, Any]) -> Choice:
    possible = device.startswith("cuda") and pinned
    if wanted.get("non_blocking") and not possible:
        raise MachineError(
            f"copies that do not wait were asked for on {device}",
            code="device-option-unsupported",
            why="they are safe only from pinned memory to a CUDA card",
            try_="leave non_blocking to the automatic choice",
        )
    if "non_blocking" in wanted:
        return given.choice("non_blocking", wanted["non_blocking"])
    if possible:
        return Choice("non_blocking", True, "memory is pinned, so the copy overlaps the computation", UNMEASURED)
    return Choice("non_blocking", False, "only from pinned memory to a CUDA card is an overlapping copy safe")


def _workers(facts: MachineFacts, card: Accelerator | None, wanted: dict[str, Any]) -> Choice:
    if "workers" in wanted:
        return given.choice("workers", wanted["workers"])
    cores = facts.cores
    evidence = {"cores": cores, "memory_bytes": facts.memory_bytes}
    if card is not None and card.unified:
        reason = f"half of {format_count(cores, 'core')}: pictures in flight and the GPU share one memory"
        return Choice("workers", max(1, cores // 2), reason, {**evidence, **UNMEASURED})
    if cores >= 8:
        return Choice(
            "workers", cores - 1, f"{cores} usable cores, one left to whoever feeds the device", {**evidence, **UNMEASURED}
        )
    return Choice("workers", cores, f"one thread for each of {format_count(cores, 'usable core')}", {**evidence, **UNMEASURED})


def _decode_threads(workers: int, engines: tuple[str, ...], wanted: dict[str, Any]) -> Choice:
    if "decode_threads" in wanted:
        return given.choice("decode_threads", wanted["decode_threads"])
    if engines[0].startswith("openvino"):
        return Choice("decode_threads", 0, "each OpenVINO stream decodes its own pictures: more threads gained nothing", CLAIMED)
    return Choice(
        "decode_threads", workers, "decoders release the interpreter's lock, so threads suffice: one for each worker", UNMEASURED
    )


def _start_method(facts: MachineFacts, wanted: dict[str, Any]) -> Choice:
    if "start_method" in wanted:
        return given.choice("start_method", _checked_start_method(facts, wanted["start_method"]))
    where = {"Windows": "Windows knows no other", "Darwin": "the default on macOS"}.get(
        facts.system, "forking beside threads can hang"
    )
    return Choice("start_method", "spawn", f"the same everywhere, and {where}")


def _checked_start_method(facts: MachineFacts, method: str) -> str:
    if facts.system == "Windows" and method != "spawn":
        raise MachineError(
            f"start method {method!r} on Windows",
            code="device-option-unsupported",
            why="Windows cannot fork",
            try_="leave it out: spawn is used",
        )
    return method


def _compile(wanted: dict[str, Any]) -> Choice:
    if "compile" in wanted:
        return given.choice("compile", wanted["compile"])
    return Choice("compile", False, "compiling must first repay its compile time", UNMEASURED)


def _engine(facts: MachineFacts, device: str, dtype: str, wanted: dict[str, Any]) -> Choice:
    if "engine" in wanted:
        return given.choice("engine", _checked_engines(facts, device, dtype, wanted["engine"]))
    if "dtype" in wanted:
        kept = tuple(f"{name}:{SHORT[dtype]}" for name in _engine_names(facts, device, dtype))
        return Choice("engine", kept, f"those that compute in {dtype}, as given on the command line")
    names = _engine_names(facts, device, dtype)
    halves = ["f16"] if device.startswith("cuda") and dtype == "bfloat16" else []  # of the same speed, with finer steps
    precisions = dict.fromkeys([*halves, SHORT[dtype], "f32"])
    candidates = tuple(f"{name}:{precision}" for name in names for precision in precisions)
    if names[0] == "openvino":
        reason = "OpenVINO runs the frozen part fastest on this kind of CPU; int8 must be earned per model, so it is not tried"
        return Choice("engine", candidates, reason, CLAIMED)
    return Choice("engine", candidates, _why_torch(facts, device), UNMEASURED)


def _engine_names(facts: MachineFacts, device: str, dtype: str) -> tuple[str, ...]:
    if device == "cpu" and facts.is_x86 and facts.openvino_version and dtype != "float16":
        return ("openvino", "torch")
    return ("torch",)


def _why_torch(facts: MachineFacts, device: str) -> str:
    if device != "cpu":
        return f"torch drives {device} directly"
    if facts.is_x86:
        return "OpenVINO is not installed (pip install 'unchoke[openvino]' makes the frozen part faster here)"
    return f"OpenVINO is tried by itself only on x86; this is {facts.machine}"


def _checked_engines(facts: MachineFacts, device: str, dtype: str, engine: str) -> tuple[str, ...]:
    name, _, precision = engine.partition(":")
    if name == "openvino" and not facts.openvino_version:
        raise missing_extra("openvino", extra="openvino", purpose="the engine openvino")
    if name == "openvino" and device != "cpu":
        raise MachineError(
            f"engine {engine!r} on {device}",
            code="device-option-unsupported",
            why="OpenVINO is used on the CPU only",
            try_="--device cpu",
        )
    if precision:
        return (engine,)
    return tuple(f"{name}:{short}" for short in dict.fromkeys([SHORT[dtype], "f32"]))


def _encode_batch(card: Accelerator | None, device: str, engines: tuple[str, ...], wanted: dict[str, Any]) -> Choice:
    if "encode_batch" in wanted:
        return given.choice("encode_batch", wanted["encode_batch"])
    if card is None:
        if engines[0].startswith("openvino"):
            return Choice("encode_batch", 8, "eight pictures for each stream keep activations in the cache", UNMEASURED)
        return Choice("encode_batch", 16, "on a CPU a larger batch costs memory and gains nothing", UNMEASURED)
    evidence = {"memory_bytes": card.memory_bytes, **UNMEASURED}
    if card.memory_bytes < _SMALL_CARD_BYTES:
        return Choice("encode_batch", 16, f"small batches: {card.name} has only {format_bytes(card.memory_bytes)}", evidence)
    if device == "mps":
        return Choice("encode_batch", 32, f"{format_bytes(card.memory_bytes)} shared with everything else", evidence)
    return Choice(
        "encode_batch", 128, f"{format_bytes(card.memory_bytes)} hold it easily, and launches cost less per picture", evidence
    )


def _job_slots(facts: MachineFacts, device: str, engines: tuple[str, ...], workers: int, wanted: dict[str, Any]) -> Choice:
    if "job_slots" in wanted:
        return given.choice("job_slots", wanted["job_slots"])
    if device != "cpu":
        return Choice(
            "job_slots", 2, "one process owns the device; a second job is loaded while the first is computed", UNMEASURED
        )
    if engines[0].startswith("openvino"):
        return Choice("job_slots", max(1, workers), "one job for each OpenVINO stream, in one process", CLAIMED)
    fit = max(1, facts.memory_available_bytes // _BYTES_PER_JOB_PROCESS)
    slots = max(1, min(facts.cores, fit))
    reason = (
        f"one process for each of {format_count(facts.cores, 'core')}, as far as {format_bytes(facts.memory_available_bytes)} go"
    )
    return Choice("job_slots", slots, reason, UNMEASURED)
