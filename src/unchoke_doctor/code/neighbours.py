"""The modules that a file imports and that lie beside it: same folder, packages below it, folders above up to the repository.

Also scripts that the notebook itself writes (`%%writefile`) or runs with `%run`. They are read so that names mean something; what
is wrong in them is found when they are linted themselves.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from unchoke_doctor.code.magics import run_scripts
from unchoke_doctor.code.program import Program, import_base
from unchoke_doctor.code.source import SourceFile, parse_source

_MOST_FILES = 16
_LONGEST_BYTES = 300_000
_FOLDERS_UP = 3


def read_program(source: SourceFile) -> Program:
    """The source with its neighbours, as one program."""
    return Program(source, _neighbours(source))


def _neighbours(source: SourceFile) -> list[tuple[str, SourceFile]]:
    """Modules by the name they are imported with, breadth first: those that modules import come after."""
    path = Path(source.path)
    roots = [path.parent, *_above(path.parent)]
    written = {script.name.removesuffix(".py").replace("/", "."): script for script in source.scripts}
    found: dict[str, SourceFile] = {}
    seen = {os.path.realpath(path)}
    todo = list(_imported(source, ""))
    while todo and len(found) < _MOST_FILES:
        name = todo.pop(0)
        other = None if name in found else written.get(name) or _read(name, roots, seen)
        if other is not None:
            found[name] = other
            todo += _imported(other, name)
    return list(found.items())


def _imported(source: SourceFile, asker: str) -> Iterator[str]:
    """The names that may be modules: those of `from a.b import c`, relative ones seen from `asker`, scripts of `%run`."""
    for cell in source.cells:
        for part in cell.imports:
            if isinstance(part, ast.Import):
                yield from (alias.name for alias in part.names)
                continue
            base = import_base(part, asker, source.path)
            yield from (name.strip(".") for name in (base, *(f"{base}.{alias.name}" for alias in part.names)))
        if cell.kind == "code":
            yield from (name.removesuffix(".py").replace("/", ".") for name in run_scripts(cell.text))


def _above(folder: Path) -> Iterator[Path]:
    """Folders above, as far as the repository goes: code is often run from its top, with notebooks in a folder below."""
    for _ in range(_FOLDERS_UP):
        if (folder / ".git").exists() or folder == folder.parent or not folder.name or folder == Path.home():
            return
        folder = folder.parent
        yield folder


@lru_cache(maxsize=64)
def _parsed(path: Path, _changed_ns: int) -> SourceFile:
    """The file, read once for all files of a folder that import it."""
    return parse_source(str(path), path.read_bytes())


def _read(name: str, roots: list[Path], seen: set[str]) -> SourceFile | None:
    """The first file of this name below one of the roots that was not read yet."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    for root in roots:
        for path in (root.joinpath(*parts).with_suffix(".py"), root.joinpath(*parts, "__init__.py")):
            try:
                if path.is_file() and path.stat().st_size <= _LONGEST_BYTES and os.path.realpath(path) not in seen:
                    seen.add(os.path.realpath(path))
                    return _parsed(path, path.stat().st_mtime_ns)
            except OSError:
                continue  # a file that cannot be read is no neighbour
    return None
