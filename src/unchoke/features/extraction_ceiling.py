"""What an extraction could have done: its engine on one batch, and one reader alone, measured when it is over.

In: an extraction that has just ended: its engine, how an item is read, some of its items, and its timeline. Out: a `Ceiling`, or
None after an extraction too short to be worth it, or whose engine takes longer for one batch than may be spent on it: what
reading alone could do says nothing about such an extraction. Nothing is written, and what is read was read a moment ago.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.ceilings import CORES, DEVICE, Ceiling, PartRate
from unchoke.core.timeline import Timeline
from unchoke.features.card_decoder import CardDecoder, EncodedPicture
from unchoke.features.engines import FrozenEngine, TorchEngine
from unchoke.features.stream import Found
from unchoke.machine.backend import one_thread, synchronize, to_device
from unchoke.machine.detect import usable_cores
from unchoke.machine.measure_rate import LoneReader, allowed_s, measure_rate


def measure_extraction(
    engine: FrozenEngine,
    read: Callable[[str, str], Found],
    items: Sequence[tuple[str, str]],
    timeline: Timeline,
    *,
    num_items: int,
    wall_s: float,
    on_cpu: bool,
    decoder: CardDecoder | None = None,
) -> Ceiling | None:
    """`items` are some of the `num_items` that took `wall_s`. Where a card decoded (`decoder`), all that `read` brings are files.

    On a CPU those who read and those who compute share its cores; a card decodes and computes in turn.
    """
    limit_s, encode_s = allowed_s(wall_s), timeline.seconds("encode") / max(1, timeline.calls("encode"))
    if not limit_s or not items or encode_s > limit_s:
        return None
    reader = LoneReader(lambda item: read(*item), items, count=lambda found: 0 if isinstance(found, str) else 1)
    with one_thread():  # one reader has one core
        reading_per_s = measure_rate(reader, limit_s=limit_s)
    inputs = [one for found in reader.found for one in _inputs(found)]
    if not inputs:
        return None
    parts = [PartRate("reading", reading_per_s, max(1, min(timeline.readers, usable_cores())))]
    batch = [inputs[place % len(inputs)] for place in range(engine.batch)]
    if decoder is not None:
        parts.append(PartRate("decoding", measure_rate(_decoder_alone(decoder, batch), limit_s=limit_s), place=DEVICE))
    ready = np.stack(batch) if decoder is None else decoder(batch)[0]
    inputs_per_s = _engine_rate(engine, ready, on_cpu=on_cpu, limit_s=limit_s)
    per_item = len(inputs) / len(reader.found)
    parts.append(PartRate("engine", inputs_per_s / per_item, place=CORES if on_cpu else DEVICE))
    facts = {"readers": timeline.readers, "batch": engine.batch, "slots": timeline.slots, "first_s": timeline.first_s}
    return Ceiling.of(num_items, wall_s, parts, alone_s=reader.seconds(), facts=facts)


def _inputs(found: Found) -> Sequence[Any]:
    """What one item is to the network, or to the card's decoder."""
    if isinstance(found, str):
        return []
    return [found] if isinstance(found, EncodedPicture) else found


def _decoder_alone(decoder: CardDecoder, files: Sequence[EncodedPicture | NDArray[Any]]) -> Callable[[], int]:
    """A batch decoded on the card and waited for."""

    def run() -> int:
        decoder(files)
        synchronize(decoder.device)
        return len(files)

    return run


def _engine_rate(engine: FrozenEngine, batch: NDArray[Any] | torch.Tensor, *, on_cpu: bool, limit_s: float) -> float:
    """Inputs a second of the engine: on a device from a batch that lies there, else a batch in each slot, all at once."""
    if isinstance(engine, TorchEngine) and not on_cpu:
        there = to_device(torch.as_tensor(batch), engine.device)
        wait = partial(synchronize, engine.device)
        return measure_rate(lambda: len(engine.launch(there)), limit_s=limit_s, synchronize=wait)
    array = np.asarray(batch)
    if engine.slots == 1:
        return measure_rate(lambda: len(engine.encode(array)), limit_s=limit_s)
    with ThreadPoolExecutor(engine.slots) as pool:
        return measure_rate(lambda: sum(map(len, pool.map(engine.encode, [array] * engine.slots))), limit_s=limit_s)
