"""What the shell offers after an option or a command: presets, heads, runs, encoders and other names that can be known.

In: the beginning of a word, and what was typed before it. Out: names that begin so. Nothing heavy is loaded: runs are read from
the database, and names of encoders from the text of timm's modules, without importing torch.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from unchoke.core import listing
from unchoke.core.presets import preset_names
from unchoke.core.settings import TYPES
from unchoke.core.workspace import DEFAULT_ROOT, Workspace

Completer = Callable[[str], list[str]]
_RUN_WORDS = ("latest", "best")
_WORDS = {
    "cut": ("blocks", "end", "none", "-1", "-2", "-4"),
    "device": ("cpu", "cuda", "mps"),
    "fold": ("all",),
    "grid": ("finest", "coarsest"),
    "normalise": ("none", "max", "percentile"),
    "tile_size": ("auto",),
}
"""Settings that take other values, too."""


def complete_setting(name: str) -> Completer | None:
    """What offers values of a setting; None where they cannot be known."""
    if name == "encoder":
        return complete_encoder
    names = (*preset_names(), "none") if name == "preset" else _WORDS.get(name) or tuple(_choices(TYPES[name]))
    if not names:
        return None

    def complete(incomplete: str) -> list[str]:
        return [word for word in names if word.startswith(incomplete)]

    return complete


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """Runs of the workspace that was named, newest first, and the words that stand for one."""
    root = Path((ctx.params or {}).get("out") or DEFAULT_ROOT)
    return [name for name in (*_RUN_WORDS, *_stored_names(Workspace(root).experiments_file)) if name.startswith(incomplete)]


def complete_preset(incomplete: str) -> list[str]:
    return [name for name in preset_names() if name.startswith(incomplete)]


def complete_encoder(incomplete: str) -> list[str]:
    """Names of timm's networks."""
    return [name for name in encoder_names() if name.startswith(incomplete)]


@cache
def encoder_names() -> tuple[str, ...]:
    """Every function that timm registers as a network, by reading its modules: importing them takes seconds."""
    found = find_spec("timm")
    places = list(found.submodule_search_locations or ()) if found else []
    names: set[str] = set()
    for place in places:
        folder = Path(place) / "models"
        for file in listing.names(folder, suffix=".py"):
            names.update(re.findall(r"^@register_model\ndef (\w+)\(", (folder / file).read_text(encoding="utf-8"), re.MULTILINE))
    return tuple(sorted(names))


def _stored_names(file: Path) -> list[str]:
    """Names in the database, newest first; none where there is no database that can be read."""
    if not file.exists():
        return []
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            return [str(name) for (name,) in database.execute("SELECT name FROM runs ORDER BY id DESC")]
    except sqlite3.Error:  # a shell that completes a word is no place for an error
        return []


def _choices(annotation: Any) -> Iterator[str]:
    """The values of every `Literal` in a type."""
    if get_origin(annotation) is Literal:
        yield from (str(value) for value in get_args(annotation))
        return
    for inner in get_args(annotation):
        if get_origin(inner) is not None:
            yield from _choices(inner)
