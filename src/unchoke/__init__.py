"""unchoke: train image models fast on the machine you have, and know what holds a run back.

The functions have the names of the commands: `unchoke.fit("photos/")` does what `unchoke fit photos/` does. They are
imported when first used, so `import unchoke` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_EXPORTS: dict[str, str] = {
    "budget": "unchoke.commands.budget",
    "check": "unchoke.photos.check_samples",
    "claims_run": "unchoke.tuning.claims.run_claims",
    "demo": "unchoke.commands.demo",
    "detach": "unchoke.commands.detach",
    "doctor": "unchoke.commands.doctor",
    "evaluate": "unchoke.commands.evaluate",
    "export_run": "unchoke.commands.export",
    "extract": "unchoke.commands.fit",
    "fit": "unchoke.commands.fit",
    "lint": "unchoke.linting.lint_engine",
    "list_claims": "unchoke.tuning.claims.run_claims",
    "list_presets": "unchoke.core.presets",
    "list_runs": "unchoke.runs.lookup",
    "notebook": "unchoke.commands.notebook",
    "predict": "unchoke.commands.predict",
    "profile": "unchoke.commands.profile_script",
    "profile_tile": "unchoke.commands.profile_tile",
    "profile_train": "unchoke.commands.profile_train",
    "profile_view": "unchoke.commands.profile_view",
    "report": "unchoke.runs.lookup",
    "segment_predict": "unchoke.commands.segment_predict",
    "segment_train": "unchoke.commands.segment_train",
    "tile": "unchoke.commands.tile",
    "train": "unchoke.commands.fit",
    "tune": "unchoke.commands.tune",
    "watch_run": "unchoke.commands.detach",
}
"""Public name to the module that holds it."""


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'unchoke' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext unchoke`: gives a notebook the cell magic `%%choke`."""
    import_module("unchoke.cli.magic").register(shell)


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
