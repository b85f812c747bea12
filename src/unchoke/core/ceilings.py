"""What a stage of a run reached, beside what each of its parts can do with nothing else running: plain data that a record keeps.

In: how many items took how long, and the rate of each part alone, measured right after the stage (`machine/measure_rate.py`).
Out: a `Ceiling`: the rate that was possible and the share of it that was reached. Nothing is measured or judged here:
`runs/ceiling_chokes.py` says why a share is small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

LOW_SHARE = 0.6
"""A stage that reaches less of what is possible has something to find."""
EXCEEDED_SHARE = 1.1
"""Rates vary by a tenth from one moment to the next; beyond that they are of different conditions."""


CORES, DEVICE = "cores", "device"
"""Where parts run."""


@dataclass(frozen=True)
class PartRate:
    """Items a second of one part alone, in its `place`. `lanes` of it work side by side, which is a bound and no measurement."""

    part: str
    alone_per_s: float
    lanes: int = 1
    place: str = CORES

    @property
    def per_s(self) -> float:
        return self.alone_per_s * self.lanes


@dataclass(frozen=True)
class Ceiling:
    """`num_items` took `wall_s`; `possible_per_s` is the rate of the `slowest` part.

    Parts in one place take turns and count as one: cores that compute do not read meanwhile. `alone_s` are the seconds in which
    one reader alone made an item, by stage of its loading; `facts` are further figures that say why a share is small.
    """

    num_items: int
    wall_s: float
    reached_per_s: float
    possible_per_s: float
    share: float
    slowest: str
    parts: tuple[PartRate, ...] = ()
    alone_s: dict[str, float] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        num_items: int,
        wall_s: float,
        parts: Sequence[PartRate],
        *,
        alone_s: Mapping[str, float] | None = None,
        facts: Mapping[str, float] | None = None,
    ) -> Ceiling | None:
        """None where nothing was measured that could be compared."""
        known = tuple(sorted((part for part in parts if part.per_s > 0), key=lambda part: part.per_s))
        if not known or num_items <= 0 or wall_s <= 0:
            return None
        needs_s = {part.place: sum(1 / other.per_s for other in known if other.place == part.place) for part in known}
        place = max(needs_s, key=lambda name: needs_s[name])
        slowest = " and ".join(part.part for part in known if part.place == place)
        reached, possible = num_items / wall_s, 1 / needs_s[place]
        return cls(
            num_items, wall_s, reached, possible, reached / possible, slowest, known, dict(alone_s or {}), dict(facts or {})
        )

    @property
    def in_turn(self) -> bool:
        """Whether all parts share one place."""
        return len(self.parts) > 1 and len({part.place for part in self.parts}) == 1

    @property
    def lost_s(self) -> float:
        """How much longer it took than its parts need."""
        return max(0.0, self.wall_s - self.num_items / self.possible_per_s)

    @property
    def is_low(self) -> bool:
        return self.share < LOW_SHARE

    @property
    def is_exceeded(self) -> bool:
        """Whether more was reached than can be: the parts were measured while the machine was busier."""
        return self.share > EXCEEDED_SHARE

    def part(self, name: str) -> PartRate | None:
        return next((part for part in self.parts if part.part == name), None)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
