"""Is a file part of a library, whose functions others call, or a program that somebody starts?

In comes a source, out goes yes or no. How often a library's function runs, on what sizes, and whether gradients are off there is
settled by its callers, which are not seen. A library is a package that can be installed, or that lies by itself and offers names;
its examples, scripts and files named for what they start (`train.py`, with a main guard) are programs.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

from unchoke.code.facts.stakes import text_of
from unchoke.code.nodes import is_main_test
from unchoke.code.source import SourceFile
from unchoke.core import listing

_PROGRAMS = frozenset(
    {"example", "examples", "script", "scripts", "notebook", "notebooks", "tutorial", "tutorials", "demo", "demos", "references",
     "recipes", "experiments", "paper", "papers", "bin"}
)  # fmt: skip
_STARTS = re.compile(r"^(?:train|main|run|fit|finetune|demo|example|eval|evaluate|val|validate|predict|infer|detect)(?:_|\d|$)")
_OFFERS = re.compile(r"^\s*(?:from|import)\s|__all__|__version__", re.MULTILINE)
_METADATA = ("setup.py", "setup.cfg", "PKG-INFO")
_DEEPEST = 12


def is_library(source: SourceFile) -> bool:
    """Of an installable package, and not below `examples/` and the like, nor a script like `train.py`."""
    path = Path(source.path)
    if source.is_notebook or path.name == "__main__.py" or not _is_packaged(path.parent.absolute()):
        return False
    body = [item for cell in source.cells if cell.tree is not None for item in cell.tree.body]
    started = any(isinstance(item, ast.If) and is_main_test(item.test) for item in body)
    return not (started and _STARTS.match(path.stem))


@lru_cache(maxsize=4096)
def _is_packaged(folder: Path) -> bool:
    """Does the folder belong to a package that has been, or can be, installed, or that has no programs beside it?"""
    inner: list[str] = []
    root = folder
    while any((base / "__init__.py").is_file() for base in (root, *root.parents[:2])) and len(inner) < _DEEPEST:
        inner.append(root.name)
        root = root.parent
    if not inner or _PROGRAMS & set(inner):
        return False
    if root.name in ("site-packages", "dist-packages") or listing.names(root, suffix=".dist-info"):
        return True
    above = (root, root.parent) if root.name in ("src", "lib") else (root,)
    if any((base / name).is_file() for base in above for name in _METADATA):
        return True
    if any("[build-system]" in text_of(base / "pyproject.toml") for base in above):
        return True
    offers = _OFFERS.search(text_of(root / inner[-1] / "__init__.py")) is not None
    return offers and not any(name.endswith((".py", ".ipynb")) for name in listing.names(root))
