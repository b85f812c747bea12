"""Which label raster belongs to which scene: one file for all, or a folder matched by names. Paths only; nothing is opened."""

from __future__ import annotations

import os
import re
import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unchoke.core.choices import Choice
from unchoke.core.errors import UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.units import format_count
from unchoke.photos.samples.image_files import find_files, stem_of
from unchoke.scenes.bands import split_stem
from unchoke.scenes.scene_list import Scene

_LABEL_WORD = re.compile(r"[_.\- ](?:label|labels|mask|masks|gt|truth|annotation|lbl|msk)$", re.IGNORECASE)


def label_place(label: str | None, *, data: Path) -> Path | None:
    """The file or folder that `label` means, as typed or inside the data; None without a label."""
    if label is None:
        return None
    folder = data if data.is_dir() else data.parent
    for place in (Path(label), folder / label):
        if place.exists():
            return place.absolute()
    raise UsageError(
        f"no such label raster or folder: {label}",
        why="--label takes a raster file, a folder of them, or a column of a table of scenes",
        try_=f"ls {shlex.quote(str(Path(label).parent))}",
    )


def is_below(path: str, place: Path) -> bool:
    """Whether a file is `place` or lies inside it."""
    real, inside = os.path.realpath(path), os.path.realpath(place)
    return real == inside or real.startswith(inside + os.sep)


def give_labels(
    scenes: Sequence[Scene], label: str | None, *, data: Path
) -> tuple[list[Scene], list[Finding], list[Choice]]:  # fmt: skip
    """The scenes with their labels; one without is named in a warning and kept, for it can still be tiled."""
    place = label_place(label, data=data)
    if place is None:
        return list(scenes), [], []
    if place.is_file():
        return [replace(scene, label=str(place)) for scene in scenes], [], []
    matched = match_labels(scenes, place)
    labelled = [replace(scene, label=path) for scene, path in zip(scenes, matched, strict=True)]
    bare = [scene.scene_id for scene in labelled if scene.label is None]
    choice = Choice("labels", len(labelled) - len(bare), f"files of {place.name} that bear the name of a scene")
    return labelled, missing_labels(bare, place=str(place)), [choice]


def missing_labels(scene_ids: Sequence[str], *, place: str) -> list[Finding]:
    """The warning for scenes without a label."""
    if not scene_ids:
        return []
    return [
        Finding(
            "missing-label",
            f"{format_count(len(scene_ids), 'scene')} without a label in {place}: {list_some(list(scene_ids))}",
            path=place,
            evidence={"scenes": list(scene_ids)[:1000], "count": len(scene_ids)},
            fix="name the label rasters after the scenes, or give a table with a column of labels",
        )
    ]


def match_labels(scenes: Sequence[Scene], folder: Path) -> list[str | None]:
    """For each scene the one raster below `folder` that bears its name: its id, its file's stem, the name before its bands'."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for entry in find_files([folder]).images:
        stem = stem_of(Path(entry.relative).name)
        for name in {stem, _LABEL_WORD.sub("", stem)}:
            by_name[name.lower()].append(entry.path)
    return [_match(scene, by_name) for scene in scenes]


def _match(scene: Scene, by_name: dict[str, list[str]]) -> str | None:
    for name in _names_of(scene):
        found = by_name.get(name.lower(), [])
        if len(found) == 1:
            return found[0]
    return None


def _names_of(scene: Scene) -> list[str]:
    names = [scene.scene_id]
    if scene.file is not None:
        names.append(stem_of(Path(scene.file).name))
    elif scene.bands:
        first = Path(scene.bands[0].path)
        named = split_stem(stem_of(first.name), wanted=[scene.bands[0].name])
        names += [first.parent.name, *([named.scene] if named is not None and named.scene else [])]
    return names
