"""The folder that holds everything a command writes: where each file lies, and who may write now.

One driver owns a workspace at a time, by an operating-system lock that vanishes with the process. Paths inside are always
derived from the root, so a workspace may be copied or moved.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from unchoke.core import atomic, listing
from unchoke.core.errors import UsageError
from unchoke.core.input_file import read_plain

DEFAULT_ROOT = Path("unchoke-out")
_OWNER = ".owner"
_GLANCE_S = 0.2
"""Longer than `is_owned` of another process holds the lock."""
_OWN_FOLDERS = {"experiments", "features", "engines", "patches", "tiles", "pixels", "logs", "curation", "thumbnails",
                "tensorboard", "data"}  # fmt: skip
_OWN_FILES = {"unchoke.toml", "manifest.csv", "quarantine.csv", "corrections.csv", "checked.parquet", "SHA256SUMS", ".lock",
              ".worker-trial", _OWNER}  # fmt: skip


def out_option(workspace: Path) -> str:
    """What a next command needs to find this workspace: nothing for the default one."""
    return "" if workspace == DEFAULT_ROOT else f" --out {shlex.quote(str(workspace))}"


class _Place:
    """A path below the root, as an attribute of the workspace."""

    def __init__(self, relative: str) -> None:
        self._relative = relative

    def __get__(self, workspace: Workspace, owner: type) -> Path:
        return workspace.root / self._relative


@dataclass(frozen=True)
class Workspace:
    """Paths of the files a user can rely on."""

    root: Path

    settings_file = _Place("unchoke.toml")
    manifest_file = _Place("manifest.csv")
    quarantine_file = _Place("quarantine.csv")
    corrections_file = _Place("corrections.csv")
    """What people decided about single photos."""
    curation = _Place("curation")
    """What `curate` measured of the photos, and what it found."""
    checked_file = _Place("checked.parquet")
    """What `check` learnt of each file, so that a second run re-reads only what changed."""
    data = _Place("data")
    """Photos and tables that were given in memory, from Python."""
    features = _Place("features")
    experiments = _Place("experiments")
    experiments_file = _Place("experiments/experiments.db")
    engines = _Place("engines")
    """Converted models of the frozen part, so that converting is done once."""
    logs = _Place("logs")
    """What detached commands say, one file of JSON lines for each."""
    tensorboard = _Place("tensorboard")
    """What TensorBoard shows of runs that were trained with `--log tensorboard`, a folder for each."""
    profiler_logs = _Place("logs/profiler")
    """Traces of torch.profiler, and pages made of them."""
    masks = _Place("masks")
    """Masks that `segment predict` drew, a folder for each run."""
    lint_file = _Place("logs/lint.json")
    """What `lint --out` found last."""
    thumbnails = _Place("thumbnails")
    """Small pictures of photos, made when a page first shows them; they may be deleted."""
    lock_file = _Place(".lock")

    def run_folder(self, run: str) -> Path:
        return self.inside(f"{self.experiments.name}/{run}")

    def inside(self, relative: str) -> Path:
        """What a file of the workspace names in it; refused if that, or a link on the way, leads elsewhere."""
        path = self.root / relative
        if not stays_below(relative) or not path.resolve().is_relative_to(self.root.resolve()):
            raise UsageError(
                f"{relative!r} lies outside the workspace {self.root}",
                code="outside-workspace",
                why="a workspace may come from somebody else: what it names is read and written only inside of it",
                try_="look at what it holds; a workspace on another disk is one that --out names, without links in it",
            )
        return path

    def refuse_links(self) -> None:
        """Refuse a workspace with a link to a place outside of it where commands write."""
        for folder in (self.root, *(self.root / name for name in _OWN_FOLDERS), self.masks):
            found = listing.links(folder)
            if folder.name in ("experiments", "tiles", "pixels"):  # these hold folders that are written to file by file
                found += [link for name in listing.names(folder) for link in listing.links(folder / name)]
            for link in found:
                self.inside(link.relative_to(self.root).as_posix())

    @contextmanager
    def own(self) -> Iterator[None]:
        """Hold the workspace for writing; say who has it if it is taken."""
        from filelock import FileLock, Timeout

        self.refuse_links()
        absent = self.absent_folders()
        self.root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.lock_file)
        try:
            lock.acquire(timeout=_GLANCE_S, poll_interval=_GLANCE_S / 10)
        except Timeout:
            owner = self.owner()
            raise UsageError(
                f"another command is working in {self.root}",
                code="workspace-in-use",
                why=f"one command owns a workspace at a time{f' (process {owner})' if owner else ''}",
                try_=f"unchoke runs watch --out {self.root}, if it was detached; or give this one its own folder with --out DIR",
            ) from None
        try:
            atomic.write_with(self.root / _OWNER, lambda file: file.write(b"%d" % os.getpid()), durable=False)
            yield
        finally:
            self.leave_nothing(absent)
            lock.release()

    def owner(self) -> int:
        """The process that owns it, or did last; 0 where none is known."""
        try:
            return int(read_plain(self.root / _OWNER))
        except (OSError, ValueError):
            return 0

    def is_owned(self) -> bool:
        """Whether a command is working here; taken for true where the lock may not be touched."""
        from filelock import FileLock, Timeout

        if not self.lock_file.exists():
            return False
        try:
            with FileLock(self.lock_file, timeout=0):
                return False
        except (Timeout, OSError):
            return True

    def absent_folders(self) -> list[Path]:
        """The folders that owning this workspace would make, the innermost first."""
        return [folder for folder in (self.root, *self.root.parents) if not folder.exists()]

    def leave_nothing(self, made: list[Path]) -> None:
        """Take away the folders that were made for a command which then wrote nothing into them; anything in them stays."""
        if not made or {*listing.names(self.root)} - {_OWNER, self.lock_file.name}:
            return
        with suppress(OSError):  # somebody else began to use them, or the system keeps an open file
            for file in (self.root / _OWNER, self.lock_file):
                file.unlink(missing_ok=True)
            for folder in made:
                folder.rmdir()


def keeper_of(file: Path) -> Path | None:
    """The workspace that keeps its own files where `file` (without links) lies; None for any other place, also inside one.

    Pages beside the logs are a person's: `profile view` writes them there.
    """
    for root in file.parents:
        below = file.relative_to(root).parts
        own = below[0] in _OWN_FOLDERS if len(below) > 1 else below[0] in _OWN_FILES
        page = below[0] == "logs" and file.suffix == ".html"
        workspace = Workspace(root)
        if own and not page and (workspace.settings_file.exists() or workspace.experiments_file.exists()):
            return root
    return None


def stays_below(relative: str) -> bool:
    """Whether a name that was read from a file is a path below its folder on any system."""
    parts = re.split(r"[/\\]", relative)
    return {"", ".", ".."}.isdisjoint(parts) and "\0" not in relative and re.match(r"[A-Za-z]:", relative) is None


def safe_name(text: str) -> str:
    """`text` as part of a file name on any system: letters, digits, dot, dash, underscore; never empty, never a path."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip(".") or "_"
