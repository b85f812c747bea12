"""One real piece of a segmenter's training, run over noise to see what memory it takes (see `memory_trial.py`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.events import ignore
from unchoke.core.mixing import hash_ids
from unchoke.masks.mask_objective import MaskObjective, Turns
from unchoke.masks.segment_job import PatchSource, SegmentJob
from unchoke.masks.segmenter import WHOLE, Segmenter, SegmenterConfig
from unchoke.training.data import Positions, Problem
from unchoke.training.network.loop_config import LoopConfig, Where
from unchoke.training.network.memory_trial import NoiseRows, Rehearsal
from unchoke.training.network.sources import ActivationSource, Source


@dataclass(frozen=True)
class SegmentTrial:
    """What to try: the network and the loop; no data."""

    network: SegmenterConfig
    loop: LoopConfig
    device: str
    dice: float = 0.5
    num_turns: int = 1
    evaluation: bool = False
    limit_bytes: int | None = None
    others_bytes: int = 0
    steps: int = 3
    workers: int = 0

    @classmethod
    def of(cls, job: SegmentJob) -> SegmentTrial:
        spec = replace(job.network.spec, weights_sha256="")
        network = replace(job.network, spec=spec)
        return cls(network, job.loop, job.device, job.dice, job.num_turns, workers=job.workers)

    def can_checkpoint(self) -> bool:
        """Not offered: decoders keep what they computed, and pyramids of timm's have no such switch."""
        return False

    def rehearse(self, loop: LoopConfig) -> Rehearsal:
        num, device = loop.batch_size, torch.device(self.device)
        ids = [str(number) for number in range(num)]
        order = np.arange(num, dtype=np.int64)
        names = tuple(str(number) for number in range(self.network.num_classes))
        problem = Problem("segmentation", names, order, {"train": order}, ids)
        turns = Turns(hash_ids(ids), loop.seed, self.num_turns)
        rows = _Noise(self.network)
        objective = MaskObjective(rows, self.network.num_classes, turns, device, self.dice)
        where = Where(device, None, ignore, self.workers)
        source: Source = PatchSource(rows, turns, self.network)
        if self.network.cut != WHOLE:
            source = ActivationSource(NoiseRows(num, (self.network.spec.row_length,)), turns.hashes, loop.seed)
        return Rehearsal(Segmenter(self.network), source, problem, objective, loop, metric="loss", where=where, inputs=None)


class _Noise:
    """Patches of no meaning."""

    def __init__(self, network: SegmenterConfig) -> None:
        spec, random = network.spec, np.random.default_rng(0)
        side = spec.patch_px
        self._mask = random.integers(0, network.num_classes, (side, side), np.uint8)
        self._pixels = random.standard_normal((spec.num_bands, side, side), np.float32).astype(np.float16)

    def masks(self, positions: Positions) -> NDArray[np.uint8]:
        return np.repeat(self._mask[None], len(positions), axis=0)

    def pixels(self, positions: Positions) -> NDArray[np.float16]:
        return np.repeat(self._pixels[None], len(positions), axis=0)
