"""The values a scan of scenes speaks in: which files make up a scene, what was found on the way. Nothing here reads a disk."""

from __future__ import annotations

from dataclasses import dataclass, field

from unchoke.core.choices import Choice
from unchoke.core.findings import Finding


@dataclass(frozen=True)
class BandFile:
    """One band: its name as the file spells it, the file, and which of the file's bands it is (from 1)."""

    name: str
    path: str
    number: int = 1


@dataclass(frozen=True)
class Scene:
    """One scene: either `bands`, one file each, or one `file` that holds them all (its bands are known once it is opened).

    `scene_id` is unique in one scan and safe as part of a file name. `label` is the path of this scene's label raster.
    """

    scene_id: str
    bands: tuple[BandFile, ...] = ()
    label: str | None = None
    group: str = ""
    split: str = ""
    file: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file of the scene once, its label last."""
        files = [self.file] if self.file is not None else [band.path for band in self.bands]
        return tuple(dict.fromkeys([*files, *([self.label] if self.label is not None else [])]))


@dataclass(frozen=True)
class ScannedScenes:
    """The scenes that are complete, what keeps others out, and what was chosen."""

    scenes: list[Scene]
    findings: list[Finding] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
