"""unchoke: train image models fast on the machine you have, and know what holds a run back.

The functions have the names of the commands: `unchoke.fit("photos/")` does what `unchoke fit photos/` does. They are
imported when first used, so `import unchoke` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_EXPORTS: dict[str, str] = {}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'unchoke' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
