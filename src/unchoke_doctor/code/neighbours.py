"""The modules that a file imports and that lie beside it: same folder, packages below it, folders above up to the repository.

Also scripts that the notebook itself writes (`%%writefile`) or runs with `%run`. They are read so that names mean something; what
is wrong in them is found when they are linted themselves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from unchoke_doctor.code.magics import script_runs
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.source import SourceFile, parse_source

_MOST_FILES = 16
_LONGEST_BYTES = 300_000
_FOLDERS_UP = 3


def read_program(source: SourceFile) -> Program:
    """The source with its neighbours, as one program."""
    return Program(source, _neighbours(source))


def _neighbours(source: SourceFile) -> list[tuple[str, SourceFile]]:
    """Modules by the name they are imported with, breadth first: those that modules import come after."""
    folder = Path(source.path).parent
    roots = [folder, *_above(folder)]
    written = {script.name.removesuffix(".py").replace("/", "."): script for script in source.scripts}
    found: dict[str, SourceFile] = {}
    seen: set[Path] = {_real(Path(source.path))}
    todo = [("", name) for name in _imported(source)]
    while todo and len(found) < _MOST_FILES:
        asker, name = todo.pop(0)
        plain = _absolute(name, asker)
        if not plain or plain in found:
            continue
        other = written.get(plain) or _read(plain, roots, seen)
        if other is not None:
            found[plain] = other
            todo += [(plain, inner) for inner in _imported(other)]
    return list(found.items())


def _imported(source: SourceFile) -> Iterator[str]:
    """The names that may be modules: `a.b` and `a.b.c` of `from a.b import c`, `.x` of a relative import, scripts of `%run`."""
    for cell in source.cells:
        for part in cell.imports:
            if isinstance(part, ast.Import):
                yield from (alias.name for alias in part.names)
            else:
                base = "." * part.level + (part.module or "")
                if part.module:
                    yield base
                yield from (f"{base}.{alias.name}" if part.module else base + alias.name for alias in part.names if alias.name != "*")
        if cell.kind == "code":
            yield from (run.name.removesuffix(".py").replace("/", ".") for run in script_runs(cell.text, cell.language) if run.shares)


def _absolute(name: str, asker: str) -> str:
    """A relative name seen from the module that imports it."""
    plain = name.lstrip(".")
    level = len(name) - len(plain)
    if not level:
        return plain
    package = asker.split(".")[:-level] if asker else []
    return ".".join([*package, plain])


def _above(folder: Path) -> Iterator[Path]:
    """Folders above, as far as the repository goes: code is often run from its top, with notebooks in a folder below."""
    for _ in range(_FOLDERS_UP):
        if (folder / ".git").exists() or folder == folder.parent or not folder.name or folder == Path.home():
            return
        folder = folder.parent
        yield folder


def _read(name: str, roots: list[Path], seen: set[Path]) -> SourceFile | None:
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    for root in roots:
        for path in (root.joinpath(*parts).with_suffix(".py"), root.joinpath(*parts, "__init__.py")):
            try:
                if not path.is_file() or path.stat().st_size > _LONGEST_BYTES or _real(path) in seen:
                    continue
                seen.add(_real(path))
                return parse_source(str(path), path.read_bytes())
            except OSError:
                continue  # a file that cannot be read is no neighbour
    return None


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path
