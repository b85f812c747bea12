"""Which switches there are, and what is worth trying of each here: biggest expected gain first.

In: the settings in force, facts of the machine, and the way things are done now. Out: `Switch` values. What the user set is not
tried, and what cannot apply says why. Nothing is run here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from unchoke.core.settings import Settings, flag, flag_off
from unchoke.features.recipe import FULL

if TYPE_CHECKING:
    from unchoke.tuning.tune_frozen import FrozenSetup, FrozenWork
    from unchoke.tuning.tune_training import TrainSetup


SET = "set: "
"""How the reason begins for what is not tried because the user decided it."""
_SMALLEST_PART = 4
_CLOSER = ("1", "1.4")
"""Decoding closer to the size needed than usual: features drift, and agreement decides."""


@dataclass(frozen=True)
class Switch:
    """Something that can be done in another way: the name of a field of the set-up, and the values to try, in order.

    `why_not` says why nothing is tried. `timed` is what the work times for it. On a `ladder`, a value is tried only while the one
    before it was kept. What is tried `apart` runs in a process of its own, which can be ended. `repays`: every run pays for
    getting ready, and must be long enough to gain more than that. `loads`: it can only make loading faster.
    """

    name: str
    values: tuple[Any, ...] = ()
    why_not: str = ""
    timed: str = "train"
    ladder: bool = False
    apart: bool = False
    repays: bool = False
    loads: bool = False


@dataclass(frozen=True)
class Circumstances:
    """What decides which switches of training apply: the device, the part that trains, and what is settled otherwise."""

    on_cpu: bool
    has_bf16: bool
    convolutions: bool
    batch_norm_trains: bool
    memory_is_planned: bool
    num_judged_at_once: int
    caches: tuple[str, ...] = ()
    glibc: bool = True
    largest_step: int = 2**30
    """How many samples the steps have that are compared, at most."""


def train_switches(settings: Settings, now: TrainSetup, about: Circumstances) -> list[Switch]:
    """The switches of a training, in the order they are tried."""
    no_convolutions = "" if about.convolutions else "does not apply: the part that trains has no convolutions"
    no_copies = "does not apply: nothing is copied to another device" if about.on_cpu else ""
    no_glibc = "" if about.on_cpu and about.glibc else "does not apply: only glibc on Linux hands freed tensors back page by page"
    readers = tuple(num for num in dict.fromkeys([1, 2 * max(1, now.workers)]) if num != now.workers)
    found = [
        _precision(now, about),
        Switch("channels_last", (not now.channels_last,), why_not=no_convolutions),
        _sub_batch(now, about),
        _threads(now, about),
        _cache(now, about),
        Switch("workers", readers, loads=True),
        Switch("pin_memory", (not now.pin_memory,), why_not=no_copies, loads=True),
        _eval_batch(now, about),
        Switch("keep_freed_memory", (not now.keep_freed_memory,), why_not=no_glibc),
        _compile(now, about),
    ]
    return [_unless_set(settings, switch) for switch in found]


def frozen_switches(settings: Settings, now: FrozenSetup, work: FrozenWork, labels: Sequence[str]) -> list[Switch]:
    """The switches of the frozen part; `labels` are the engines that may suit this machine, the most promising first."""
    streams = now.engine.startswith("openvino:")
    others = tuple(label for label in labels if label != now.engine)
    given = " ".join(f"{flag(name)} {value}" for name in ("engine", "precision") if (value := getattr(settings, name)))
    most = max(1, work.num_inputs // now.engine_streams)
    batches = tuple(size for size in (2 * now.encode_batch, 4 * now.encode_batch, now.encode_batch // 2) if 1 <= size <= most)
    engine = Switch("engine", others, why_not=f"{SET}{given}" if given else "" if others else "no other engine suits here")
    why_no_streams = "" if settings.workers is None else f"{SET}--workers {settings.workers}"
    if not streams:
        why_no_streams = "does not apply: torch runs one batch at a time, on all cores or on the device"
    sizes = [
        _decode_scale(settings, now, work),
        Switch("encode_batch", batches, why_not="" if batches else "too few pictures to fill other batches"),
        Switch(
            "engine_streams",
            tuple(num for num in (2 * now.engine_streams, now.engine_streams // 2) if num >= 1),
            why_not=why_no_streams,
        ),
        Switch("decode_threads", (now.engine_streams,) if streams else (2 * max(1, now.decode_threads),), loads=True),
    ]
    return [*sizes, engine] if now.engine == labels[0] else [engine, *sizes]


def _decode_scale(settings: Settings, now: FrozenSetup, work: FrozenWork) -> Switch:
    """Scales at which at least one picture of the sample would be decoded smaller than now."""
    if settings.views:
        return Switch("decode_scale", why_not="does not apply: augmented views show parts of a picture, which need more of it")
    usual = work.shrinks(now.decode_scale)
    closer = tuple(scale for scale in _CLOSER if (work.shrinks(scale) > usual).any())
    larger = (FULL,) if (usual > 1).any() else ()
    why_not = "" if closer + larger else "does not apply: no picture of the sample is large enough to be decoded smaller"
    return Switch("decode_scale", closer + larger, why_not=why_not, loads=True)


def _unless_set(settings: Settings, switch: Switch) -> Switch:
    """What was typed, remembered or preset stands."""
    value = getattr(settings, switch.name, None)
    if value is None:
        return switch
    typed = flag_off(switch.name) if value is False else flag(switch.name)
    return Switch(switch.name, why_not=f"{SET}{typed}" if isinstance(value, bool) else f"{SET}{typed} {value}")


def _precision(now: TrainSetup, about: Circumstances) -> Switch:
    if now.train_precision != "f32":
        return Switch("train_precision", why_not=f"{now.train_precision} already, and its numbers were compared with float32's")
    if about.on_cpu:
        why_not = "" if about.has_bf16 else "does not apply: this CPU has no bfloat16 instructions, and emulating them is slower"
        return Switch("train_precision", ("bf16",), why_not=why_not)
    return Switch("train_precision", ("bf16", "f16"))


def _sub_batch(now: TrainSetup, about: Circumstances) -> Switch:
    if about.memory_is_planned:
        return Switch("sub_batch", why_not="does not apply: what fits is measured before each run, with a limit or on a device")
    if now.sub_batch > about.largest_step:
        return Switch("sub_batch", why_not="a whole batch takes too long for that: its parts cannot be compared with it in time")
    if about.batch_norm_trains:
        return Switch("sub_batch", why_not="does not apply: batch statistics are trained, and depend on it")
    sizes = tuple(now.sub_batch // part for part in (2, 4, 8) if now.sub_batch // part >= _SMALLEST_PART)
    return Switch("sub_batch", sizes, why_not="" if sizes else "the batch is too small to be divided", ladder=True)


def _eval_batch(now: TrainSetup, about: Circumstances) -> Switch:
    if about.memory_is_planned:
        return Switch("eval_batch", why_not="does not apply: what fits is measured before each run, with a limit or on a device")
    at_once = min(now.eval_batch, about.num_judged_at_once)
    sizes = tuple(size for size in (at_once // 2, at_once // 4) if size >= 1)
    why_not = "" if sizes else "the val split is too small for it to matter"
    return Switch("eval_batch", sizes, why_not=why_not, timed="evaluate", ladder=True)


def _threads(now: TrainSetup, about: Circumstances) -> Switch:
    if not about.on_cpu:
        return Switch("threads", why_not="does not apply: the device computes")
    fewer = tuple(num for num in (now.threads // 2, now.threads // 4) if num >= 1)
    return Switch("threads", fewer, why_not="" if fewer else "one thread is all there is", ladder=True)


def _cache(now: TrainSetup, about: Circumstances) -> Switch:
    if not now.cache:
        return Switch("cache", why_not="does not apply: activations are cached, not pictures")
    others = tuple(mode for mode in about.caches if mode != now.cache)
    return Switch("cache", others, why_not="" if others else "decoded pictures fit nowhere else", loads=True)


def _compile(now: TrainSetup, about: Circumstances) -> Switch:
    if about.on_cpu:
        compilers = (os.environ.get("CXX", ""), "g++", "clang++", "c++", "cl")
        lacking = "" if any(map(shutil.which, filter(None, compilers))) else "a C++ compiler"
    else:
        lacking = "" if find_spec("triton") else "triton"
    why_not = f"does not apply: torch.compile needs {lacking}, which is not installed" if lacking else ""
    return Switch("compile", (True,), why_not=why_not or ("on already" if now.compile else ""), apart=True, repays=True)
