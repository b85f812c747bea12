"""Groups that file names and folders tell: `plot12` in `IMG_plot12_03.jpg`, `patient_007` in `patient_007/view_1.png`.

In: paths below the folders that were given. Out: for each the word with its number, "" where it has none; and the word that looks
like a group, where most paths have it. `--group path:plot` names such a word. Whatever stands before it in the path does not
count: two plots of one number are then kept together, which costs nothing but a coarser split.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from unchoke.core.errors import UsageError, list_some
from unchoke.data.likely_groups import LikelyGroup, has_group_shape

_PREFIX = "path:"
_THINGS = "patient|lesion|subject|person|participant|case|animal|cow|plant|tree|plot|specimen|slide"
_CIRCUMSTANCES = "site|farm|field|session|video|clip|scene|camera|cam|flight|day"
_PROBES = 200
_MOST = 0.9
"""The share of paths that must have a word before it is suspected."""


def path_word(group: str | None) -> str | None:
    """``plot`` of ``path:plot``; None for the name of a column."""
    return group.removeprefix(_PREFIX).lower() if group is not None and group.startswith(_PREFIX) else None


def read_path_groups(relatives: Sequence[str], word: str) -> list[str]:
    """``plot12`` for each path that has it, whatever stands between word and number; refused where none has."""
    found = _numbered(relatives, word)
    if not any(found):
        raise UsageError(
            f"no path has {word!r} with a number",
            code="no-path-groups",
            why=f"--group {_PREFIX}{word} takes groups from names like {word}12; there are {list_some(list(relatives), limit=3)}",
            try_="name a word that stands before a number in the paths, a column of a table, or leave --group out",
        )
    return found


def find_path_group(relatives: Sequence[str], labels: Sequence[str]) -> LikelyGroup | None:
    """The word in the paths to be suspected: of a thing before that of a place or a time; the first in the path of several."""
    some = relatives[:: max(1, len(relatives) // _PROBES)]
    for words, is_thing in ((_THINGS, True), (_CIRCUMSTANCES, False)):
        present = [word for word in words.split("|") if _share(_numbered(some, word)) >= _MOST]
        likely = [LikelyGroup(_PREFIX + word, tuple(_numbered(relatives, word)), is_thing) for word in present]
        shaped = [one for one in likely if _share(one.values) >= _MOST and has_group_shape(one, labels)]
        if shaped:
            return min(shaped, key=lambda one: _place(relatives[0], one.column.removeprefix(_PREFIX)))
    return None


def _numbered(relatives: Sequence[str], word: str) -> list[str]:
    pattern = _pattern(word)
    return [f"{word}{match[1].lstrip('0') or '0'}" if (match := pattern.search(path)) else "" for path in relatives]


def _pattern(word: str) -> re.Pattern[str]:
    """The word where one begins, and the number after it."""
    return re.compile(rf"(?<![a-z]){re.escape(word)}(?:id|no|nr)?[-_ .#]*(\d+)", re.IGNORECASE)


def _place(path: str, word: str) -> int:
    found = _pattern(word).search(path)
    return len(path) if found is None else found.start()


def _share(values: Sequence[str]) -> float:
    return sum(bool(value) for value in values) / len(values) if values else 0.0
