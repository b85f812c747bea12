"""Places that a user names: a `Path` for what lies on this machine, a `RemotePlace` for what lies behind a URL.

Of a `RemotePlace` the few things are asked that are asked of a `Path`: names as text, the rest of its store (`stores.py`).
Listing is in `listing.py`. A URL that carries credentials is refused, because places are written down.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unchoke.core.errors import UsageError
from unchoke.core.stores import explain, info_of, read_url
from unchoke.core.urls import LOCAL_SCHEMES, WEB_SCHEMES, is_url, parent_of, refuse_secrets, split_url

Kind = Literal["file", "folder", ""]


@dataclass(frozen=True, order=True)
class RemotePlace:
    """A file or folder behind a URL, with what is asked of a `Path`: its names as text alone, the rest from the store."""

    url: str

    def __post_init__(self) -> None:
        scheme, rest = split_url(self.url)
        object.__setattr__(self, "url", f"{scheme.lower()}://{rest.rstrip('/')}")

    def __str__(self) -> str:
        return self.url

    @property
    def scheme(self) -> str:
        return split_url(self.url)[0]

    @property
    def name(self) -> str:
        """The last part, without a query."""
        return split_url(self.url)[1].partition("?")[0].rpartition("/")[2]

    @property
    def stem(self) -> str:
        return Path(self.name).stem

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix

    @property
    def parent(self) -> RemotePlace:
        """The folder it lies in; a bucket or host is its own."""
        return RemotePlace(parent_of(self.url))

    @property
    def parents(self) -> tuple[RemotePlace, ...]:
        return () if self.parent == self else (self.parent, *self.parent.parents)

    def __truediv__(self, name: str) -> RemotePlace:
        place = self
        for part in name.split("/"):
            place = place.parent if part == ".." else place if part in ("", ".") else RemotePlace(f"{place.url}/{part}")
        return place

    def absolute(self) -> RemotePlace:
        return self

    def exists(self) -> bool:
        return look(self) != ""

    def is_dir(self) -> bool:
        return look(self) == "folder"

    def is_file(self) -> bool:
        return look(self) == "file"

    def read_bytes(self) -> bytes:
        """The content of a file that a user named; a failure is an error in three lines."""
        try:
            return read_url(self.url)
        except OSError as error:
            raise explain(self.url, error) from error


DataPlace = Path | RemotePlace
"""Where data lies: on this machine, or behind a URL."""


def locate(named: str | Path | RemotePlace) -> DataPlace:
    """The place that a user named: a `Path`, also for a `file:` URL, or a `RemotePlace`."""
    if isinstance(named, RemotePlace):
        return named
    if not is_url(named):
        return Path(named)
    scheme, rest = split_url(str(named))
    if scheme.lower() in LOCAL_SCHEMES:
        return Path(rest.removeprefix("localhost"))
    refuse_secrets(str(named))
    return RemotePlace(str(named))


def join(folder: DataPlace, named: str) -> DataPlace:
    """What `named` means in a table that lies in `folder`: a URL or an absolute path is itself, the rest counts from there."""
    if is_url(named):
        return locate(named)
    return Path(named) if Path(named).is_absolute() else folder / named


def cannot_list(place: DataPlace) -> bool:
    """Whether a store has no folders: a web server names its files to nobody."""
    return isinstance(place, RemotePlace) and place.scheme in WEB_SCHEMES


def refuse_unlisted(place: DataPlace) -> None:
    """Say what to give instead of a folder of a web server."""
    if isinstance(place, RemotePlace) and cannot_list(place):
        raise UsageError(
            f"{place} cannot be listed",
            code="cannot-list",
            why=f"{place.scheme}:// has files and no folders: a web server does not say which files it has",
            try_="give a table with the URL of each file in a column: path,label",
        )


def look(place: RemotePlace) -> Kind:
    """What lies there; an error in three lines where that cannot be asked."""
    try:
        info = info_of(place.url)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise explain(place.url, error) from error
    return "folder" if info.get("type") == "directory" and place.scheme not in WEB_SCHEMES else "file"
