"""What every measurement is given: a folder of data made for the purpose, the device, and the time it may take.

In: a folder that the caller removes. Out: photos, made when first asked for, and interleaved comparisons of two ways. Which ways,
and what their ratio means, is the business of each claim.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from unchoke.machine.detect import detect_machine
from unchoke.machine.machine_facts import MachineFacts
from unchoke.tuning.claims.claim_material import write_photos
from unchoke.tuning.compare import Compared, compare

if TYPE_CHECKING:
    import torch

_MIN_PAIRS = 8
"""Enough to place a ratio within a range; where it is near 1, as many more as there is time for."""
_FOR_PAIRS = 0.75
"""Of the time that is left to a claim; the rest is for what explains the ratio."""
_BATCHES_ON_A_CARD = 4


@dataclass(frozen=True)
class Sizes:
    """How large the data is: as in the reports where that fits into seconds. Tests use smaller ones."""

    photo_px: tuple[int, int] = (2000, 1000)
    num_photos: int = 16
    small_photo_px: tuple[int, int] = (600, 450)
    num_small_photos: int = 64
    input_px: int = 224
    batch: int = 8
    tile_px: int = 512
    window_px: int = 256
    head_rows: int = 1024


class Bench:
    """Where one claim after the other is measured; `until_s` is when the present one should end, on the monotonic clock."""

    def __init__(self, folder: Path, *, sizes: Sizes | None = None, facts: MachineFacts | None = None) -> None:
        self.folder = folder
        self.sizes = sizes or Sizes()
        self.facts = facts or detect_machine(folder)
        self.until_s = 0.0

    @cached_property
    def device(self) -> torch.device:
        """The accelerator, if there is one that torch can use."""
        from unchoke.machine.backend import torch_device
        from unchoke.machine.policy import choose_policy

        return torch_device(choose_policy(self.facts))

    @property
    def batch(self) -> int:
        """Pictures in a step of training: more where an accelerator waits for them."""
        return self.sizes.batch * (_BATCHES_ON_A_CARD if self.facts.accelerators else 1)

    @cached_property
    def photos(self) -> list[str]:
        """Large photos, about as a camera writes them."""
        return write_photos(self.folder / "photos", self.sizes.photo_px, self.sizes.num_photos)

    @cached_property
    def small_photos(self) -> list[str]:
        """Small photos, as data sets hold them, in two folders."""
        count = self.sizes.num_small_photos
        parts = [self.folder / "small" / part for part in ("part_1", "part_2")]
        return [
            path
            for number, part in enumerate(parts)
            for path in write_photos(part, self.sizes.small_photo_px, count // 2, first=number * count // 2)
        ]

    def compare(self, plain: Callable[[], object], trick: Callable[[], object], *, warm: bool = False) -> Compared:
        """Time two bodies in turn until the claim's share of the time is over. Unless `warm`, each is first run for nothing."""
        return self.compare_seconds(lambda: self.seconds(plain), lambda: self.seconds(trick), warm=warm)

    def compare_seconds(self, plain: Callable[[], float], trick: Callable[[], float], *, warm: bool = False) -> Compared:
        """The same of functions that give their own seconds."""
        if not warm:
            plain()
            trick()
        budget_s = _FOR_PAIRS * max(0.0, self.until_s - time.monotonic())
        return compare(plain, trick, budget_s=budget_s, min_pairs=_MIN_PAIRS)

    def seconds(self, body: Callable[[], object]) -> float:
        """What one call takes, work that was handed to the accelerator included."""
        from unchoke.machine.backend import synchronize

        synchronize(self.device)
        started_s = time.perf_counter()
        body()
        synchronize(self.device)
        return time.perf_counter() - started_s
