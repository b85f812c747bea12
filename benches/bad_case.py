"""What a bad input is to `campaign_inputs.py`: a name, a way to make it, the command that meets it, and what is due.

`Stage` holds sound things that cases copy and spoil: photos, tables, scenes, weights, and a workspace with a finished run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Due = Literal["refused", "named", "fine", "handled"]
"""An error of three lines; the bad thing named, whether or not the rest goes on; exit 0; anything but a crash."""
ENCODER = "test_efficientnet"


@dataclass(frozen=True)
class Stage:
    """Sound inputs, never changed."""

    root: Path

    @property
    def photos(self) -> Path:
        return self.root / "inputs" / "photos"

    @property
    def weights(self) -> Path:
        return self.root / "inputs" / "tiny.safetensors"

    @property
    def scenes(self) -> Path:
        return self.root / "inputs" / "scenes"

    @property
    def workspace(self) -> Path:
        """A workspace in which `fit` ran."""
        return self.root / "workspace"

    @property
    def tiny(self) -> list[str]:
        """Options of a network that takes no time, in plain torch."""
        small = ["--epochs", "1", "--head", "linear", "--workers", "1", "--input-px", "32"]
        return ["--encoder", ENCODER, "--weights", str(self.weights), "--engine", "torch", "--precision", "f32", *small]

    def copy_photos(self, folder: Path, *, per_class: int = 10) -> Path:
        """A few photos of each class below `folder`/photos."""
        target = folder / "photos"
        for number, name in enumerate(("apple", "birch", "cloud")):
            (target / name).mkdir(parents=True)
            for file in sorted((self.photos / name).iterdir())[:per_class]:
                shutil.copyfile(file, target / name / f"{'abc'[number]}{file.name}")
        return target

    def copy_workspace(self, folder: Path) -> Path:
        return Path(shutil.copytree(self.workspace, folder / "out"))


Make = Callable[[Stage, Path], list[str]]
"""Makes the bad input in a folder of its own, and returns the words after `unchoke`."""


@dataclass(frozen=True)
class BadCase:
    """One bad input met by one command."""

    kind: str
    name: str
    make: Make
    due: Due = "refused"
    says: str = ""
    """A pattern that must be found in what is said."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Limits of the process, by their names in `resource`."""
    stdout: str = ""
    """Where stdout goes instead of a file: a device, or "closed"."""
    in_namespace: bool = False
    """Whether it needs devices or a disk of its own."""
    disk_bytes: int = 400_000_000
    may_be_json: bool = True


def sparse(file: Path, size_bytes: int) -> None:
    """A file that claims to be large and takes no room."""
    with file.open("wb") as opened:
        opened.truncate(size_bytes)


def pipe(file: Path) -> None:
    os.mkfifo(file)
