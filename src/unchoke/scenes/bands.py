"""Names of bands: which part of a file name is one, which names mean the same band, and the order a person would put them in.

Text in, text out. Landsat (`LC08_…_B2.TIF`), Sentinel-2 (`T33UUP_…_B8A_20m.jp2`) and anything like `scene_B2.tif`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from unchoke.core.errors import UsageError

# B2, B02, B8A, b10; SR_B2 and ST_B10 (Landsat collection 2) keep their prefix out of the scene's name.
_BAND = re.compile(r"^(?P<scene>.*?)[_.\- ]?(?P<band>(?:(?:SR|ST)_)?B\d{1,2}A?)(?:[_\-](?P<metres>\d{2,3})m)?$", re.IGNORECASE)
_SEPARATED = re.compile(r"(?:^|[_.\- ])(?:(?:SR|ST)_)?B\d{1,2}A?(?:[_\-]\d{2,3}m)?$", re.IGNORECASE)
_QUALITY = re.compile(
    r"^(?P<scene>.*?)(?:^|[_.\- ])(?P<band>BQA|QA|(?:QA|SR_QA|ST_QA)_[A-Z]+|SCL|AOT|WVP|TCI|CLDPRB|CLD|SNW|PVI|UDM2?|"
    r"preview|thumbnail|thumb|browse|quicklook)(?:[_\-](?P<metres>\d{2,3})m)?(?:[_\-](?:small|large))?$",
    re.IGNORECASE,
)
_PARTS = re.compile(r"\d+|\D+")


@dataclass(frozen=True)
class BandName:
    """What a file's stem says: the scene before the band's name, the band, and its pixel size where the name has one.

    `quality` bands (QA, scene classification, previews) are no image bands unless they are asked for.
    """

    scene: str
    band: str
    metres: int | None = None
    quality: bool = False


def split_stem(stem: str, *, wanted: Sequence[str] = ()) -> BandName | None:
    """The band that a file's stem names; None for a file that is no single band by its name.

    Names in `wanted` are bands whatever they look like: `site_red` is the band `red` of `site` if that was asked for.
    """
    for name in wanted:
        before, band = stem[: -len(name)], stem[-len(name) :]
        if band.lower() == name.lower() and (not before or before[-1] in "_.- "):
            return BandName(before.rstrip("_.- "), band)
    quality = _QUALITY.match(stem)
    found = quality or (_BAND.match(stem) if _SEPARATED.search(stem) else None)
    if found is None:
        return None
    metres = int(found["metres"]) if found["metres"] else None
    return BandName(found["scene"].rstrip("_.- "), found["band"], metres, quality is not None)


def canonical(name: str) -> str:
    """What two spellings of one band have in common: `B2` and `b02`, `SR_B2` is another."""
    return "".join(part.lstrip("0") or "0" if part.isdigit() else part for part in _PARTS.findall(name.strip().lower()))


def find_band(name: str, there: Sequence[str]) -> int | None:
    """The position of the band that `name` means: as spelled, else by number (`B2` is `B02`), else by its last part (`SR_B2`).

    A name that fits several that way means none of them.
    """
    if name in there:
        return there.index(name)
    for reduce in (canonical, lambda text: re.sub(r"^(?:sr|st)_", "", canonical(text))):
        hits = [position for position, other in enumerate(there) if reduce(other) == reduce(name)]
        if len(hits) == 1:
            return hits[0]
    return None


def refuse_repeats(names: Sequence[str]) -> None:
    """A band that is asked for twice is a slip: the bands of a scene are told apart by their names."""
    kept: dict[str, str] = {}
    for name in names:
        if canonical(name) in kept:
            raise UsageError(
                f"--bands names the band {name} twice",
                why=f"it is there as {kept[canonical(name)]} already",
                try_=f"--bands {','.join(kept.values())}",
            )
        kept[canonical(name)] = name


def natural_order(names: Iterable[str]) -> list[str]:
    """B1, B2, …, B8, B8A, B9, B10: numbers by their value."""
    return sorted(names, key=_natural_key)


def _natural_key(name: str) -> tuple[list[tuple[int, int, str]], str]:
    parts = _PARTS.findall(name.lower())
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts], name
