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
from typing import TYPE_CHECKING

from unchoke.core.settings import Settings, flag, flag_off
from unchoke.features.recipe import FULL
from unchoke.tuning.trials import Switch

if TYPE_CHECKING:
    from unchoke.tuning.tune_frozen import FrozenSetup, FrozenWork
    from unchoke.tuning.tune_training import TrainSetup

SET = "set: "
"""How the reason begins for what is not tried because the user decided it."""
_SMALLEST_PART = 4
_CLOSER = ("1", "1.4")
"""Decoding closer to the size needed than usual: features drift, and agreement decides."""


@dataclass(frozen=True)
class Circumstances:
    """What decides which switches of training apply: the device, the part that trains, and what is settled otherwise."""

    on_cpu: bool
    has_bf16: bool
    convolutions: bool
    batch_norm_trains: bool
    memory_is_planned: bool
    caches: tuple[str, ...]
    glibc: bool


def train_switches(settings: Settings, now: TrainSetup, about: Circumstances, *, largest_step: int = 2**30) -> list[Switch]:
    """The switches of a training, in the order they are tried. `largest_step`: samples of the steps that are compared."""
    no_convolutions = "" if about.convolutions else "does not apply: the part that trains has no convolutions"
    no_copies = "does not apply: nothing is copied to another device" if about.on_cpu else ""
    no_glibc = "" if about.on_cpu and about.glibc else "does not apply: only glibc on Linux hands freed tensors back page by page"
    no_bf16 = "" if about.has_bf16 or not about.on_cpu else "does not apply: this CPU has no bfloat16 instructions"
    if now.train_precision != "f32":
        no_bf16 = f"{now.train_precision} already, and its numbers were compared with float32's"

    sizes = tuple(now.sub_batch // part for part in (2, 4, 8) if now.sub_batch // part >= _SMALLEST_PART)
    undivided = "" if sizes else "the batch is too small to be divided"
    if about.memory_is_planned:
        undivided = "does not apply: what fits is measured before each run, with a limit or on a device"
    elif now.sub_batch > largest_step:
        undivided = "a whole batch takes too long for that: its parts cannot be compared with it in time"
    elif about.batch_norm_trains:
        undivided = "does not apply: batch statistics are trained, and depend on it"

    fewer = tuple(num for num in (now.threads // 2, now.threads // 4) if num >= 1)
    no_threads = "" if fewer else "one thread is all there is"
    caches = tuple(mode for mode in about.caches if mode != now.cache)
    no_cache = "" if caches else "decoded pictures fit nowhere else"
    if not now.cache:
        no_cache = "does not apply: activations are cached, not pictures"
    loaders = tuple(num for num in dict.fromkeys([1, 2 * max(1, now.workers)]) if num != now.workers)
    found = [
        Switch("train_precision", ("bf16",) if about.on_cpu else ("bf16", "f16"), why_not=no_bf16),
        Switch("channels_last", (not now.channels_last,), why_not=no_convolutions),
        Switch("sub_batch", sizes, why_not=undivided, ladder=True),
        Switch("threads", fewer, why_not=no_threads if about.on_cpu else "does not apply: the device computes", ladder=True),
        Switch("cache", caches, why_not=no_cache),
        Switch("workers", loaders),
        Switch("pin_memory", (not now.pin_memory,), why_not=no_copies),
        Switch("keep_freed_memory", (not now.keep_freed_memory,), why_not=no_glibc),
        Switch("compile", (True,), why_not="on already" if now.compile else _no_compiler(on_cpu=about.on_cpu), apart=True),
    ]
    for place, switch in enumerate(found):  # what was typed, remembered or preset stands
        if (value := getattr(settings, switch.name, None)) is not None:
            typed = flag_off(switch.name) if value is False else flag(switch.name)
            found[place] = Switch(switch.name, why_not=f"{SET}{typed}" if isinstance(value, bool) else f"{SET}{typed} {value}")
    return found


def _no_compiler(*, on_cpu: bool) -> str:
    """Why torch.compile cannot be tried; empty if it can."""
    compilers = (os.environ.get("CXX", ""), "g++", "clang++", "c++", "cl")
    found = any(map(shutil.which, filter(None, compilers))) if on_cpu else find_spec("triton") is not None
    lacking = "a C++ compiler" if on_cpu else "triton"
    return "" if found else f"does not apply: torch.compile needs {lacking}, which is not installed"


def frozen_switches(settings: Settings, now: FrozenSetup, work: FrozenWork, labels: Sequence[str]) -> list[Switch]:
    """The switches of the frozen part; `labels` are the engines that may suit this machine, the most promising first."""
    streams = now.engine.startswith("openvino:")
    others = tuple(label for label in labels if label != now.engine)
    given = " ".join(f"{flag(name)} {value}" for name in ("engine", "precision") if (value := getattr(settings, name)))
    no_engine = f"{SET}{given}" if given else "" if others else "no other engine suits here"

    usual = work.shrinks(now.decode_scale)
    scales = tuple(scale for scale in _CLOSER if (work.shrinks(scale) > usual).any()) + ((FULL,) if (usual > 1).any() else ())
    no_scale = "" if scales else "does not apply: no picture of the sample is large enough to be decoded smaller"
    if settings.views:
        no_scale = "does not apply: augmented views show parts of a picture, which need more of it"

    most = max(1, work.num_inputs // now.engine_streams)
    batches = tuple(size for size in (2 * now.encode_batch, 4 * now.encode_batch, now.encode_batch // 2) if 1 <= size <= most)
    no_streams = "" if settings.workers is None else f"{SET}--workers {settings.workers}"
    if not streams:
        no_streams = "does not apply: torch runs one batch at a time, on all cores or on the device"
    stream_counts = tuple(num for num in (2 * now.engine_streams, now.engine_streams // 2) if num)
    engine = Switch("engine", others, why_not=no_engine)
    sizes = [
        Switch("decode_scale", scales, why_not=no_scale),
        Switch("encode_batch", batches, why_not="" if batches else "too few pictures to fill other batches"),
        Switch("engine_streams", stream_counts, why_not=no_streams),
        Switch("decode_threads", (now.engine_streams,) if streams else (2 * max(1, now.decode_threads),)),
    ]
    return [*sizes, engine] if now.engine == labels[0] else [engine, *sizes]
