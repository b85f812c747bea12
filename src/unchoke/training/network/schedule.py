"""The learning rate of a step, as a pure function: a linear warm-up, then half a cosine down to nothing."""

from __future__ import annotations

import math


def lr_factor(step: int, *, num_steps: int, warmup_steps: int) -> float:
    """What the base rate is multiplied by in `step` (from 0). The first step already moves; the last one hardly does."""
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    left = max(1, num_steps - warmup_steps)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup_steps) / left)))
