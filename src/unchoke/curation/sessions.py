"""Photos that were taken together: by one camera, within a minute of each other, at one place. As far as their files say so.

In: times, places and cameras, groups and sides. Out: a finding for each such session that is no group yet. A split with parts of
one in train and test leaks: a model recognises the session instead of the class.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unchoke.core.units import format_count
from unchoke.curation.data_finding import DataFinding
from unchoke.curation.measure_photos import MeasureTable
from unchoke.curation.photo_measures import NO_TIME
from unchoke.data.corrections import GROUP, Correction

_GAP_S = 60
_APART_DEGREES = 0.002
"""About 200 metres."""
_FEWEST, _MOST_SHARE = 3, 0.5


def find_sessions(ids: Sequence[str], table: MeasureTable, groups: Sequence[str], sides: Sequence[str]) -> list[DataFinding]:
    """Sessions of three photos or more, or of two that are in several splits."""
    found = []
    for rows in _chains(table):
        torn = sorted({sides[row] for row in rows} - {""})
        if len({groups[row] or f"photo {row}" for row in rows}) == 1 or len(rows) > _MOST_SHARE * len(ids):
            continue
        if len(rows) < (2 if len(torn) > 1 else _FEWEST):
            continue
        names = tuple(ids[row] for row in rows)
        seconds = int(table.taken_s[rows[-1]] - table.taken_s[rows[0]])
        camera = str(table.cameras[rows[0]])
        where = f", in the splits {', '.join(torn)}" if len(torn) > 1 else ""
        message = f"{format_count(len(rows), 'photo')} taken within {seconds} s by one camera{where}: {names[0]!r} and others"
        evidence = {"seconds": seconds, "camera": camera, "sides": torn, "photos": len(rows)}
        suggested = tuple(Correction(name, GROUP, names[0]) for name in names[1:])
        found.append(DataFinding("session", message, names, 0.6 if len(torn) > 1 else 0.25, evidence, suggested))
    return found


def _chains(table: MeasureTable) -> list[list[int]]:
    """Rows in the order of their times, one camera's after another's, cut where more than a minute or a place lies between."""
    timed = np.flatnonzero(table.taken_s != NO_TIME)
    order = sorted(timed.tolist(), key=lambda row: (str(table.cameras[row]), int(table.taken_s[row]), row))
    chains: list[list[int]] = []
    for row in order:
        if chains and _follows(table, chains[-1][-1], row):
            chains[-1].append(row)
        else:
            chains.append([row])
    return [chain for chain in chains if len(chain) > 1]


def _follows(table: MeasureTable, before: int, row: int) -> bool:
    if table.cameras[before] != table.cameras[row] or table.taken_s[row] - table.taken_s[before] > _GAP_S:
        return False
    apart = np.abs(table.places[before] - table.places[row]).max()
    return bool(np.isnan(apart) or apart <= _APART_DEGREES)
