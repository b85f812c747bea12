"""Which samples each step of a network's training sees: global batches, and this process's share of them.

In: the train split, the loop's settings and this process's place among several. Out: positions, and for mixup how much of each
sample is kept. All of it follows from (seed, epoch, sample id), so that nothing needs to be remembered to go on after a kill.
Nothing is read here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unchoke.core.fingerprint import hash_int
from unchoke.core.mixing import Hashes
from unchoke.training.data import Positions
from unchoke.training.network.parallel import Ranks
from unchoke.training.network.step import Kept
from unchoke.training.sampling import epoch_order


@dataclass(frozen=True, eq=False)
class Batches:
    """`train` and `hashes` belong together, sample by sample; `mixup` is the alpha of its beta distribution."""

    train: Positions
    hashes: Hashes
    batch_size: int
    mixup: float
    seed: int
    ranks: Ranks

    @property
    def per_epoch(self) -> int:
        return -(-len(self.train) // self.batch_size)

    def plan(self, epoch: int, first: int) -> tuple[list[Positions], list[Kept | None]]:
        """The global batches of an epoch from step `first` on, and for mixup how much of each of our samples is kept."""
        order = self.train[epoch_order(self.hashes, seed=self.seed, epoch=epoch)]
        starts = range(first * self.batch_size, len(order), self.batch_size)
        batches = [order[start : start + self.batch_size] for start in starts]
        return batches, [self.mixing(epoch, step, len(batch)) for step, batch in enumerate(batches, start=first)]

    def mixing(self, epoch: int, step: int, num_global: int) -> Kept | None:
        """Mixup: how much of each of our samples is kept; the rest is taken from the next one in the global batch."""
        if not self.mixup or num_global < 2:
            return None
        random = np.random.Generator(np.random.PCG64(hash_int("mixup", self.seed, epoch, step)))
        kept = random.beta(self.mixup, self.mixup, size=num_global)
        return self.ranks.share(kept.astype(np.float32))

    def own(self, batch: Positions, kept: Kept | None) -> Positions:
        """Our share of a global batch and, for mixup, the one sample more that the last of ours is mixed with."""
        share = self.ranks.share(batch)
        return share if kept is None else np.concatenate([share, self.ranks.share(np.roll(batch, -1))[-1:]])
