"""What an extraction could have done: its engine on one batch, and one reader alone, measured when it is over.

In: an extraction that has just ended: its engine, how an item is read, some of its items, and its timeline. Out: a `Ceiling`, or
None after an extraction too short to be worth it. Nothing is written, and what is read was read a moment ago.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.ceilings import Ceiling, PartRate
from unchoke.core.clock import Loading
from unchoke.core.timeline import Timeline
from unchoke.features.card_decoder import CardDecoder, EncodedPicture
from unchoke.features.engines import FrozenEngine
from unchoke.features.extractor import Read
from unchoke.features.stream import Found
from unchoke.machine.backend import one_thread, synchronize
from unchoke.machine.detect import usable_cores
from unchoke.machine.measure_rate import allowed_s, measure_rate

_READ_ALONE = 16


def measure_extraction(
    engine: FrozenEngine,
    read: Read,
    items: Sequence[tuple[str, str]],
    timeline: Timeline,
    *,
    num_items: int,
    wall_s: float,
    on_cpu: bool,
    decoder: CardDecoder | None = None,
    read_file: Callable[[str, str], Found] | None = None,
) -> Ceiling | None:
    """`items` are some of the `num_items` that took `wall_s`; on a CPU those who read and those who compute share its cores.

    Where a card decoded (`decoder`), what its readers do is `read_file`.
    """
    limit_s = allowed_s(wall_s)
    if not limit_s or not items:
        return None
    reader = _ReaderAlone(read, items[:_READ_ALONE])
    files = None if read_file is None else _ReaderAlone(read_file, items[:_READ_ALONE])
    with one_thread():  # one reader has one core
        reading_per_s = measure_rate(reader, limit_s=limit_s)
        if files is not None:
            reading_per_s = measure_rate(files, limit_s=limit_s)
    if not reader.inputs:
        return None
    lanes = max(1, min(timeline.readers, usable_cores()))
    parts = [PartRate("reading", reading_per_s, lanes)]
    if decoder is not None and files is not None and files.inputs:
        parts.append(PartRate("decoding", measure_rate(_decoder_alone(decoder, files.inputs[0], engine.batch), limit_s=limit_s)))
    encode_s = timeline.seconds("encode") / max(1, timeline.calls("encode"))
    if encode_s <= limit_s:
        per_item = len(reader.inputs)
        inputs_per_s = measure_rate(_engine_alone(engine, reader.inputs), limit_s=limit_s)
        parts.append(PartRate("engine", inputs_per_s / per_item))
    facts = {"readers": timeline.readers, "batch": engine.batch, "slots": timeline.slots, "first_s": timeline.first_s}
    return Ceiling.of(num_items, wall_s, parts, in_turn=on_cpu, alone_s=(files or reader).seconds(), facts=facts)


class _ReaderAlone:
    """Reads one item after another, and keeps account of it."""

    def __init__(self, read: Callable[[str, str], Found], items: Sequence[tuple[str, str]]) -> None:
        self._read, self._items, self._loading, self._num = read, cycle(items), Loading(), 0
        self.inputs: list[Any] = []
        """Of the last item that could be read."""

    def __call__(self) -> int:
        with self._loading.here():
            found = self._read(*next(self._items))
        if isinstance(found, str):
            return 0
        self.inputs = [found] if isinstance(found, EncodedPicture) else list(found)
        self._num += 1
        return 1

    def seconds(self) -> dict[str, float]:
        """For an item, by stage."""
        return {stage: seconds / self._num for stage, (seconds, _) in self._loading.tally().items()}


def _decoder_alone(decoder: CardDecoder, file: EncodedPicture, batch: int) -> Callable[[], int]:
    """A batch of one file, decoded on the card and waited for."""

    def run() -> int:
        decoder([file] * batch)
        synchronize(decoder.device)
        return batch

    return run


def _engine_alone(engine: FrozenEngine, inputs: Sequence[NDArray[Any]]) -> Callable[[], int]:
    """One batch in each of the engine's slots, all of them at once; how many inputs that were."""
    batch = np.stack([inputs[place % len(inputs)] for place in range(engine.batch)])

    def run() -> int:
        if engine.slots == 1:
            return len(engine.encode(batch))
        with ThreadPoolExecutor(engine.slots) as pool:
            return sum(map(len, pool.map(engine.encode, [batch] * engine.slots)))

    return run
