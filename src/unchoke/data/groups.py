"""Groups that nobody named: several photos of one patient, plot or day, which a random split would divide.

In: a table with one row per image, what its columns are known to be, the splits it says itself; or paths. Out: the column (or
the word in the paths) to be suspected, with its values, and a finding that says what to type. Decided by name and by shape: an
id that never repeats, a handful of categories, and what follows from the label are no groups. Paths such as `IMG_plot12_03.jpg`
or `patient_007/view_1.png` may tell groups, too; `--group path:plot` names such a word, `path:2` the second folder. What stands
before it in the path does not count: two plots of one number are then kept together, which costs nothing but a coarser split.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unchoke.core.errors import UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.units import format_count
from unchoke.data.table import is_missing

if TYPE_CHECKING:
    import pandas as pd

UNGROUPED = "ungrouped"
_THINGS = (
    r"patient|lesion|subject|person|participant|individual|volunteer|donor|case|study|exam|observation|animal|cow|calf|pig|sheep"
    r"|horse|plant|tree|plot|quadrat|transect|specimen|slide|biopsy|track|house|building|product|sku|panel|nest|colony"
)
"""One thing that is photographed several times."""
_CIRCUMSTANCES = (
    r"site|farm|field|station|location|region|hospital|clinic|center|centre|institution|lab|laboratory|orchard|greenhouse"
    r"|forest|parcel|paddock|block|camera|cam|device|trap|sensor|scanner|microscope|drone|date|day|night|session|visit|trip"
    r"|flight|mission|batch|series|survey|campaign|cruise|deployment|photographer|user|uploader|writer|actor"
    r"|scene|video|clip|sequence|seq|burst|capture|event"
)
"""Where, when, by whom and in one go with what photos are taken; such words also name other things, so more is asked of their
shape."""
_ALONE = r"group|cluster"
"""Words that mean a group by themselves, and something else with another before them: an age group."""
_ENDINGS = r"id|ids|no|nr|num|number|code|name|key|uid|uuid|index|idx|taken|captured|recorded|acquired|collected|shot|visited"
_CATEGORIES = (
    r"class|category|label|target|species|taxon|genus|family|breed|variety|color|colour|country|state|city|type|status|license"
    r"|organ|image|img|photo|file|sample|row|frame|slice|node|annotator|rater"
)
"""What an id may be of without being of a group; an id of anything else may be one."""
_OTHERWISE = re.compile(
    r"^(anatom\w*|body|tumou?r\w*|birth\w*|born|label\w*|annot\w*|updat\w*|modif\w*|export\w*|download\w*|publi\w*|releas\w*"
    r"|expir\w*|treatment|num|n|per|is|has|total|mean|max|min)$"
)
"""Words before such a name that make it something else: the site on a body, the day of birth or of labelling, a count."""
_PREFIX = "path:"
_PATH_THINGS = "patient|lesion|subject|person|participant|case|animal|cow|plant|tree|plot|specimen|slide"
_PATH_CIRCUMSTANCES = "site|farm|field|session|video|clip|scene|camera|cam|flight|day"
_PROBES = 200
_MOST_PATHS = 0.9
"""The share of paths that must have a word before it is suspected."""
_LEAST_SHARED, _MOST_OF_ONE, _FOLLOWS = 0.05, 0.8, 0.95
_FEWEST, _FEWEST_OF_ANY = 5, 20
_MANY = 1 / 8
"""How many values a circumstance has, as a share of the square root of the images: a few words are a category."""


@dataclass(frozen=True)
class LikelyGroup:
    """A column that looks like a group; `values` has one for each row, "" where there is none."""

    column: str
    values: tuple[str, ...]
    is_thing: bool

    @property
    def num_values(self) -> int:
        return len({value for value in self.values if value})

    def lies_within(self, other: LikelyGroup) -> bool:
        """Whether each of its values comes with one value of `other`: lesions lie within patients."""
        return self.num_values > other.num_values and _follows(other.values, self.values) >= _FOLLOWS


def suspicious_names(names: Collection[str]) -> list[str]:
    """Those names of columns that a group may have; their cells are still to be looked at."""
    return [name for name in names if _meaning(name) is not None]


def find_likely_group(table: pd.DataFrame, *, used: Collection[str | None], labels: Sequence[str]) -> LikelyGroup | None:
    """The column to be suspected, of those that are not `used`; things before circumstances, patients before their lesions."""
    found = [one for name in table.columns if name not in used and (one := _looked_at(table[name], labels)) is not None]
    found.sort(key=lambda one: not one.is_thing)
    if not found:
        return None
    best = found[0]
    for other in found[1:]:
        best = other if other.is_thing == best.is_thing and best.lies_within(other) else best
    return best


def diagnose_ungrouped(likely: LikelyGroup, splits: Sequence[str] | None) -> list[Finding]:
    """What to type; where the table says its `splits` itself, only what those divide."""
    name, images = likely.column, len(likely.values)
    evidence = {"column": name, "values": likely.num_values, "images": images}
    text, typed = f"{name!r} repeats ({likely.num_values:,} values for {format_count(images, 'image')})", shlex.quote(name)
    if splits is None:
        text += f", and its images may be divided between train and test: --group {typed} keeps them together"
        fix = f"type --group {typed}, or --group none if it is no group"
        return [Finding(UNGROUPED, text, evidence=evidence, fix=fix)]
    places: dict[str, set[str]] = defaultdict(set)
    for value, split in zip(likely.values, splits, strict=True):
        if value and split:
            places[value].add(split)
    torn = sum(len(found) > 1 for found in places.values())
    if not torn:
        return []
    text += f", and {format_count(torn, 'of them is', 'of them are')} divided by the split that the table gives"
    fix = f"put all images of one in one split; or leave that split out and type --group {typed}; "
    fix += "or --group none if it is no group"
    return [Finding(UNGROUPED, text, evidence={**evidence, "torn": torn}, fix=fix)]


def _looked_at(column: pd.Series[str], labels: Sequence[str]) -> LikelyGroup | None:
    if (meant := _meaning(str(column.name))) is None:
        return None
    is_thing, fewest = meant
    cells = [str(cell).strip() for cell in column]
    likely = LikelyGroup(str(column.name), tuple("" if is_missing(cell) else cell for cell in cells), is_thing)
    return likely if has_group_shape(likely, labels, fewest=fewest) else None


def _meaning(name: str) -> tuple[bool, int] | None:
    """Whether a name means a thing (or a circumstance), and how many values it has at least; None for neither."""
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name)]
    is_id = len(words) > 1 and words[-1] == "id"
    while len(words) > 1 and re.fullmatch(_ENDINGS, words[-1]):
        words.pop()
    if not words or any(_OTHERWISE.match(word) for word in words[:-1]):
        return None
    head = re.sub(rf"^({_THINGS}|{_CIRCUMSTANCES}|{_ALONE})id$", r"\1", words[-1])
    if re.fullmatch(_THINGS, head) or (re.fullmatch(_ALONE, head) and len(words) == 1):
        return True, _FEWEST
    if re.fullmatch(_CIRCUMSTANCES, head):
        return False, _FEWEST
    return (False, _FEWEST_OF_ANY) if is_id and not re.fullmatch(rf"{_CATEGORIES}|{_ALONE}", head) else None


def has_group_shape(likely: LikelyGroup, labels: Sequence[str], *, fewest: int = _FEWEST) -> bool:
    """Several photos for enough values, none of which is nearly all; and no other name for the label."""
    sizes: dict[str, int] = defaultdict(int)
    for value in likely.values:
        if value:
            sizes[value] += 1
    images, distinct = sum(sizes.values()), len(sizes)
    if distinct < max(2, min(fewest, images // 2)) or max(sizes.values()) > _MOST_OF_ONE * images or _has_fractions(sizes):
        return False
    shared = sum(size for size in sizes.values() if size > 1)
    if likely.is_thing:
        several = shared >= _LEAST_SHARED * images
    else:
        several = images >= 2 * distinct >= 2 * _MANY * math.sqrt(images)
    return several and _follows(likely.values, labels) < _FOLLOWS


def _has_fractions(values: Collection[str]) -> bool:
    """Whether they are measurements: numbers of which some are not whole."""
    return all(re.fullmatch(r"[-+]?\d*\.?\d+", value) for value in values) and any(
        not float(value).is_integer() for value in values
    )


def _follows(values: Sequence[str], from_: Sequence[str]) -> float:
    """The share of rows whose value is the commonest one of what it is to follow from: 1 where that says it all."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for value, source in zip(values, from_, strict=True):
        if value:
            counts[source][value] += 1
    total = sum(sum(found.values()) for found in counts.values())
    return sum(max(found.values()) for found in counts.values()) / total if total else 1.0


def path_word(group: str | None) -> str | None:
    """``plot`` of ``path:plot``; None for the name of a column."""
    return group.removeprefix(_PREFIX).lower() if group is not None and group.startswith(_PREFIX) else None


def read_path_groups(relatives: Sequence[str], word: str) -> list[str]:
    """``plot12`` for each path that has it, whatever stands between word and number; refused where none has. For a number, the
    folders down to that level.
    """
    found = _folders(relatives, int(word)) if word.isdecimal() else _numbered(relatives, word)
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
    for words, is_thing in ((_PATH_THINGS, True), (_PATH_CIRCUMSTANCES, False)):
        present = [word for word in words.split("|") if _share(_numbered(some, word)) >= _MOST_PATHS]
        likely = [LikelyGroup(_PREFIX + word, tuple(_numbered(relatives, word)), is_thing) for word in present]
        shaped = [one for one in likely if _share(one.values) >= _MOST_PATHS and has_group_shape(one, labels)]
        if shaped:
            return min(shaped, key=lambda one: _place(relatives[0], one.column.removeprefix(_PREFIX)))
    return None


def find_folder_group(relatives: Sequence[str], labels: Sequence[str]) -> LikelyGroup | None:
    """Folders within class folders: most likely one patient, plant or recording each."""
    values = tuple(_folders(relatives, 2))
    likely = LikelyGroup(f"{_PREFIX}2", values, is_thing=True)
    return likely if _share(values) >= _MOST_PATHS and has_group_shape(likely, labels) else None


def _folders(relatives: Sequence[str], level: int) -> list[str]:
    folders = (path.split("/")[:-1] for path in relatives)
    return ["/".join(parts[:level]) if len(parts) >= level else "" for parts in folders]


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
