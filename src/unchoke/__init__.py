"""unchoke: train image models fast on the machine you have, and know what holds a run back.

The functions have the names of the commands: `unchoke.fit("photos/")` does what `unchoke fit photos/` does. They are
imported when first used, so `import unchoke` costs next to nothing. Four of them, `train`, `report`, `budget` and `lint`, share
their name with a package of stages: those packages can be called.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

_EXPORTS: dict[str, str] = {
    "budget": "unchoke.flows.budget",
    "check": "unchoke.flows.check",
    "claims_run": "unchoke.flows.claims.run",
    "demo": "unchoke.flows.demo",
    "detach": "unchoke.flows.detach",
    "doctor": "unchoke.flows.doctor",
    "evaluate": "unchoke.flows.evaluate",
    "export_run": "unchoke.flows.export",
    "extract": "unchoke.flows.fit",
    "fit": "unchoke.flows.fit",
    "lint": "unchoke.lint.engine",
    "list_claims": "unchoke.flows.claims.run",
    "list_presets": "unchoke.presets",
    "list_runs": "unchoke.flows.runs",
    "notebook": "unchoke.flows.notebook",
    "predict": "unchoke.flows.predict",
    "profile": "unchoke.flows.profile_script",
    "profile_tile": "unchoke.flows.profile_tile",
    "profile_train": "unchoke.flows.profile_train",
    "profile_view": "unchoke.flows.profile_view",
    "report": "unchoke.flows.runs",
    "segment_predict": "unchoke.flows.segment_predict",
    "segment_train": "unchoke.flows.segment_train",
    "tile": "unchoke.flows.tile",
    "train": "unchoke.flows.fit",
    "tune": "unchoke.flows.tune",
    "watch_run": "unchoke.flows.detach",
}
"""Public name to the module that holds it."""


def _exported(name: str) -> Any:
    return getattr(import_module(_EXPORTS[name]), name)


class _Callable(ModuleType):
    """A package of stages whose name is also a command's: called, it runs the command."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return _exported(self.__name__.rpartition(".")[2])(*args, **options)


class _Package(ModuleType):
    """This package: the import system hands it each sub-package, and those named like a command become callable."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _EXPORTS and isinstance(value, ModuleType):
            value.__class__ = _Callable
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'unchoke' has no attribute {name!r}")
    function = _exported(name)
    return globals().get(name, function)  # the import may have brought a package of that name


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext unchoke`: gives a notebook the cell magic `%%choke`."""
    import_module("unchoke.cli.magic").register(shell)


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
