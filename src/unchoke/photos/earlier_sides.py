"""What of the earlier manifest still stands: on which side, or in which fold, a sample was. In: that manifest and the samples of
now. Out: the sides to keep, or why none of them can be kept, and how many samples changed theirs in the end. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unchoke.core.units import format_count
from unchoke.photos.samples.sample_set import Samples

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class EarlierSides:
    """The sides to keep, by sample; `num_kept` of the samples there are have one. Where `num_torn` groups would be torn apart by
    them, which the manifest did not know as groups, there are none.
    """

    sides: dict[str, str] = field(default_factory=dict)
    num_kept: int = 0
    num_torn: int = 0
    group_name: str = ""

    def words(self, what: str) -> str:
        """How the choice of a split goes on; nothing where there was no manifest."""
        if self.num_torn:
            torn = f"{format_count(self.num_torn, 'group')} of {self.group_name!r}"
            return f"; the earlier manifest tore {torn} apart, so all are drawn anew"
        return f"; {format_count(self.num_kept, 'sample')} kept the {what} of the earlier manifest" if self.num_kept else ""


def recall_sides(previous: pd.DataFrame | None, samples: Samples, column: str, *, free: Sequence[bool]) -> EarlierSides:
    """Where `free` samples were, by `column` of the manifest (split or fold)."""
    earlier, known = _by_sample(previous, column), _by_sample(previous, "group")
    sides: dict[str, set[str]] = defaultdict(set)
    unknown: set[str] = set()
    names, groups = samples.frame["sample_id"].tolist(), samples.frame["group"].tolist()
    for sample, group, ours in zip(names, groups, free, strict=True):
        if group and ours and sample in earlier:
            sides[group].add(earlier[sample])
            unknown |= {group} if known.get(sample) != group else set()
    if num_torn := sum(len(sides[group]) > 1 for group in unknown):
        return EarlierSides(num_torn=num_torn, group_name=samples.group_name or "group")
    return EarlierSides(earlier, sum(sample in earlier for sample in names))


def count_moved(previous: pd.DataFrame | None, samples: Samples) -> int:
    """How many of the samples that were in the manifest are on another side now; in another fold, where both have folds."""
    folds = previous is not None and "fold" in previous.columns and "fold" in samples.frame.columns
    column = "fold" if folds else "split"
    earlier = _by_sample(previous, column)
    now = zip(samples.frame["sample_id"].tolist(), map(str, samples.frame[column].tolist()), strict=True)
    return sum(earlier.get(sample, side) != side for sample, side in now)


def _by_sample(previous: pd.DataFrame | None, column: str) -> dict[str, str]:
    if previous is None or column not in previous.columns:
        return {}
    return dict(zip(previous["sample_id"].tolist(), map(str, previous[column].tolist()), strict=True))
